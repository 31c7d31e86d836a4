"""Figure 2: accuracy on the test rows against the number of features.

The maps of figure 1 with a ridge and an SVM head, maps chosen with labels, features that learn from
all rows, and beside them the exact kernel SVM on 10,000 rows, a linear model and gradient boosting.
Kernel and C are tuned by the paper's protocol; the learned features choose theirs themselves.

    python workflows/experiments/classification.py --data FOLDER [--sets mnist] [--trials 20]
    python workflows/experiments/classification.py --quick --out /tmp/results
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from data import Rows
from figures import Row
from harness import (
    Options,
    Results,
    cells_of,
    fit_sizes,
    lazy,
    report_lines,
    run_trials,
    tuned,
)
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.svm import SVC

import rfcdask as rf

REFERENCES = ("exact kernel SVM", "linear", "boosting")
METHODS = (
    "RFM", "RFM-JL", "RFM-FW", "RFM-GIGA", "compressed", "compressed, labels", "Nyström",
    "Nyström, RPCholesky", "learned", *REFERENCES,
)  # fmt: skip
RIDGE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
EXACT_ROWS = 10_000


def sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or ((20, 60) if options.quick else (100, 300, 1000))


def heads(Z: Any, y: Any, Z_test: Any, y_test: Any, C: float, seed: int) -> Row:
    """Return the accuracy of a ridge model and of a linear SVM on features."""
    ridge = rf.RidgeClassifier(alphas=RIDGE_PENALTIES).fit(Z, y)
    svm = rf.SGDClassifier(alpha=1 / (C * len(y)), random_state=seed).fit(Z, y)
    return {"ridge": ridge.score(Z_test, y_test), "svm": svm.score(Z_test, y_test)}


def fixed_maps(
    options: Options, data: str, rows: Rows, method: str, sizes: Sequence[int], trial: int
) -> Iterator[Row]:
    """Measure maps of several sizes, each under the better of its two heads."""
    gamma, C = tuned(options, data)
    for J, features, seconds in fit_sizes(options, data, rows, method, sizes, gamma, trial):
        Z, Z_test = (features.transform(lazy(X)).persist() for X in (rows.X, rows.X_test))
        found = heads(Z, lazy(rows.y), Z_test, lazy(rows.y_test), C, options.seed + trial)
        yield {"J": J} | found | {"accuracy": max(found.values()), "fit_seconds": seconds}


def learned(rows: Rows, J: int, seed: int) -> Row:
    start = time.perf_counter()
    model = rf.KernelClassifier(J, random_state=seed).fit(rows.X, rows.y)
    seconds = time.perf_counter() - start
    return {"accuracy": model.score(rows.X_test, rows.y_test), "fit_seconds": seconds}


def reference(rows: Rows, method: str, gamma: float, C: float, seed: int) -> float:
    """Return the accuracy of a model without features of ours."""
    some = np.random.default_rng([seed, 3]).permutation(len(rows.X))[:EXACT_ROWS]
    X, y = rows.X, rows.y
    model: Any
    if method == "linear":
        model = rf.SGDClassifier(random_state=seed)
    elif method == "boosting":
        model = HistGradientBoostingClassifier(random_state=seed, early_stopping=True)
    else:
        model, X, y = SVC(C=C, gamma=gamma, cache_size=1000), X[some], y[some]
    return float(model.fit(X, y).score(rows.X_test, rows.y_test))


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows, (gamma, C) = options.rows(data, trial), tuned(options, data)
    seed = options.seed + trial
    if method in REFERENCES:
        yield {"J": 0, "accuracy": reference(rows, method, gamma, C, seed)}
        return
    if method == "learned":
        yield from ({"J": J} | learned(rows, J, seed) for J in sizes(options))
    else:
        yield from fixed_maps(options, data, rows, method, sizes(options), trial)


def report(options: Options, results: Results) -> None:
    report_lines(
        options, results, "accuracy", "J", xlabel="number of features J",
        ylabel="test accuracy", log_y=False, level=REFERENCES,
    )  # fmt: skip


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "classification", cells, measure, report)
