"""Figure 1: error of the approximated kernel against the number of features.

Relative Frobenius and spectral error on rows held out, for the paper's maps, ours, Nyström, and the
best possible matrix of that rank. The kernel is tuned by the paper's protocol.

    python workflows/experiments/kernel_error.py --data FOLDER [--sets mnist] [--trials 20]
    python workflows/experiments/kernel_error.py --quick --out /tmp/results
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from data import Array, Rows
from figures import Row
from harness import (
    Options,
    Results,
    cells_of,
    fit_sizes,
    report_lines,
    run_trials,
    tuned,
)
from scipy.sparse.linalg import eigsh
from sklearn.metrics.pairwise import rbf_kernel

METHODS = (
    "RFM", "RFM-JL", "RFM-FW", "RFM-GIGA", "compressed", "compressed, paired", "Nyström",
    "Nyström, RPCholesky", "best of this rank",
)  # fmt: skip
POINTS = 5000  # rows on which errors are measured


def sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or ((20, 60) if options.quick else (100, 300, 1000))


class Judged(NamedTuple):
    """Rows to learn from, rows to judge by, their exact kernel and its largest eigenvalue."""

    rows: Rows
    points: Array
    gamma: float
    K: Array
    largest: float


@lru_cache(maxsize=1)
def judged(options: Options, data: str, trial: int) -> Judged:
    rows, (gamma, _) = options.rows(data, trial), tuned(options, data)
    points = rows.X_test[:POINTS]
    K = rbf_kernel(points.astype(np.float64), gamma=gamma).astype(np.float32)
    return Judged(rows, points, gamma, K, norm(K))


def norm(matrix: Array) -> float:
    """Return the spectral norm of a symmetric matrix."""
    largest = eigsh(matrix, k=1, which="LM", return_eigenvectors=False, tol=1e-3)
    return float(abs(largest[0]))


def frobenius(matrix: Array) -> float:
    """Return the Frobenius norm, summed in float64: sums of 25 million float32 lose digits."""
    return float(np.sqrt(np.square(matrix).sum(dtype=np.float64)))


def errors(Z: Array, K: Array, largest: float) -> Row:
    """Return the relative errors of ``Z Z^T`` in Frobenius and spectral norm."""
    difference = Z @ Z.T
    difference -= K
    return {
        "error": frobenius(difference) / frobenius(K),
        "spectral_error": norm(difference) / largest,
    }


def floor(J: int, eigenvalues: Array) -> Row:
    """Return the errors of the best matrix of rank J: what no method can pass."""
    left = eigenvalues[J:] if len(eigenvalues) > J else np.zeros(1)
    squares = np.sqrt((left**2).sum() / (eigenvalues**2).sum())
    return {"error": float(squares), "spectral_error": float(left[0] / eigenvalues[0])}


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    by = judged(options, data, trial)
    if method == "best of this rank":
        eigenvalues = np.linalg.eigvalsh(by.K)[::-1]
        yield from ({"J": J} | floor(J, eigenvalues) for J in sizes(options))
        return
    fitted = fit_sizes(options, data, by.rows, method, sizes(options), by.gamma, trial)
    for J, features, seconds in fitted:
        yield (
            {"J": J}
            | errors(np.asarray(features.transform(by.points)), by.K, by.largest)
            | {"fit_seconds": seconds}
        )


def report(options: Options, results: Results) -> None:
    for value, words in (("error", "Frobenius"), ("spectral_error", "spectral")):
        label = f"relative {words} error"
        figure = "kernel_error" if value == "error" else "kernel_error_spectral"
        report_lines(
            options, results, value, "J", xlabel="number of features J", ylabel=label, figure=figure
        )


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "kernel_error", cells, measure, report)
