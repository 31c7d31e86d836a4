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
from harness import (
    Options,
    Results,
    Row,
    cells_of,
    fit_timed,
    make_map,
    microseconds_per_row,
    model_bytes,
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
    return (20, 60) if options.quick else (100, 300, 1000)


class Judged(NamedTuple):
    """Rows to learn from, rows to judge by, their exact kernel and its eigenvalues."""

    rows: Rows
    points: Array
    gamma: float
    K: Array
    eigenvalues: Array  # largest first


@lru_cache(maxsize=1)
def judged(options: Options, data: str, trial: int) -> Judged:
    rows, (gamma, _) = options.rows(data, trial), tuned(options, data)
    points = rows.X_test[:POINTS]
    K = rbf_kernel(points.astype(np.float64), gamma=gamma)
    return Judged(rows, points, gamma, K, np.linalg.eigvalsh(K)[::-1])


def errors(Z: Array, K: Array, eigenvalues: Array) -> Row:
    """Return the relative errors of ``Z Z^T`` in Frobenius and spectral norm."""
    Z = Z.astype(np.float64)
    difference = Z @ Z.T - K
    largest = eigsh(difference, k=1, which="LM", return_eigenvectors=False, tol=1e-4)
    return {
        "error": float(np.linalg.norm(difference) / np.linalg.norm(K)),
        "spectral_error": float(abs(largest[0]) / eigenvalues[0]),
    }


def floor(J: int, eigenvalues: Array) -> Row:
    """Return the errors of the best matrix of rank J: what no method can pass."""
    left = eigenvalues[J:] if len(eigenvalues) > J else np.zeros(1)
    squares = np.sqrt((left**2).sum() / (eigenvalues**2).sum())
    return {"error": float(squares), "spectral_error": float(left[0] / eigenvalues[0])}


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    by = judged(options, data, trial)
    for J in sizes(options):
        if method == "best of this rank":
            yield {"J": J} | floor(J, by.eigenvalues)
            continue
        feature_map = make_map(options, method, J, by.gamma, trial)
        features, seconds = fit_timed(feature_map, by.rows.X, by.rows.y)
        yield (
            {"J": J}
            | errors(np.asarray(features.transform(by.points)), by.K, by.eigenvalues)
            | {
                "fit_seconds": seconds,
                "microseconds_per_row": microseconds_per_row(features, by.points),
                "model_bytes": model_bytes(method, by.points.shape[1], J),
            }
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
