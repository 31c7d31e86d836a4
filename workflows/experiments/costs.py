"""Tables 1 and 2: measured times beside the paper's orders, and its error bounds beside the errors.

CPU times of making the features Z and of PCA, SVM and ridge on them, against the rows N (up to
``--rows``), the features J and the candidates J+, with the exponent of a power fitted to each. Then
the bounds of the paper's appendix for kernel ridge, SVM and PCA, and how far the exact machines
really are from those on Z.

    python workflows/experiments/costs.py --data FOLDER [--sets higgs] [--trials 5]
    python workflows/experiments/costs.py --quick --out /tmp/results
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from data import Array, Rows
from figures import Row, draw_lines, log_axis, one_figure
from harness import (
    Options,
    Results,
    cells_of,
    lazy,
    make_map,
    print_table,
    run_trials,
    tuned,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import LinearSVC

import rfcdask as rf

MAKING = ("RFM", "RFM-JL", "RFM-FW", "RFM-GIGA", "compressed", "Nyström")
LEARNING = ("PCA", "SVM", "ridge")
BOUNDS = "bounds"
ORDERS = {
    "RFM": "N J", "RFM-JL": "N J+ log J", "RFM-FW": "S J+ log J+ + N J",
    "RFM-GIGA": "S J+ log J+ + N J", "compressed": "m J+^2 + N J", "Nyström": "N J^2",
    "PCA": "N J^2", "SVM": "N J", "ridge": "N J^2",
}  # fmt: skip
AXES = {"N": "rows N", "J": "features J", "candidates": "candidates J+"}
RIDGE = 1e-2  # lambda_0 of the ridge bound
PENALTY = 1.0  # C_0 of the SVM bound
COMPONENTS = 10  # of PCA


def grid(options: Options) -> dict[str, tuple[int, ...]]:
    """Return what is varied, one thing at a time; the others stay at their middle values."""
    if options.quick:
        return {"N": (500, 2000), "J": (20, 60), "candidates": (200, 400)}
    most = options.n_rows or 400_000
    return {
        "N": (most // 16, most // 4, most),
        "J": (100, 300, 1000),
        "candidates": (1250, 2500, 5000),
    }


def settings(options: Options) -> Iterator[tuple[str, dict[str, int]]]:
    middle = {name: values[len(values) // 2] for name, values in grid(options).items()}
    for varied, values in grid(options).items():
        for value in values:
            yield varied, middle | {varied: value}


def seconds_of(action: Callable[[], Any]) -> float:
    start = time.process_time()  # of all threads, so that other programs do not count
    action()
    return time.process_time() - start


def repeated(rows: Rows, N: int) -> Rows:
    """Return N training rows, the same ones again where there are too few."""
    some = np.arange(N) % len(rows.X)
    return rows._replace(X=rows.X[some], y=rows.y[some])


def making(options: Options, method: str, rows: Rows, at: dict[str, int], trial: int) -> Row:
    """Return the seconds of choosing the map and of the features of all rows."""
    more = {}
    if method not in ("RFM", "Nyström"):
        more = {"n_candidates": at["candidates"]}
    if method == "compressed":
        more |= {"refine": 0}
    gamma = 1 / rows.X.shape[1]
    features = make_map(options, method, at["J"], gamma, trial, **more)
    fit = seconds_of(lambda: features.fit(rows.X, rows.y))
    # Sums over blocks, so that time is that of the features and not of writing them down.
    transform = seconds_of(lambda: features.transform(lazy(rows.X)).sum().compute())
    return {"fit_seconds": fit, "transform_seconds": transform, "seconds": fit + transform}


def learning(method: str, rows: Rows, at: dict[str, int], trial: int) -> Row:
    """Return the seconds of a learner on features that are made as they are needed."""
    features = rf.RandomFeatures(at["J"], gamma=1 / rows.X.shape[1], random_state=trial)
    Z, y = features.fit(rows.X).transform(lazy(rows.X)), lazy(rows.y)
    if method == "PCA":
        return {"seconds": seconds_of(lambda: rf.PCA(COMPONENTS).fit(Z))}
    model: Any = rf.RidgeClassifier()
    if method == "SVM":
        model = rf.SGDClassifier(alpha=1e-6, epochs=1, random_state=trial)
    return {"seconds": seconds_of(lambda: model.fit(Z, y))}


def bounds(options: Options, rows: Rows, gamma: float, J: int, trial: int) -> Iterator[Row]:
    """Return the three bounds of the appendix and the differences that they bound.

    N rows, labels -1 and 1 (so M = 1), and k(x, x) = 1 = c.
    """
    N = 300 if options.quick else 2000
    X, X_test = rows.X[:N].astype(np.float64), rows.X_test[:N].astype(np.float64)
    y = np.where(rows.y[:N] > np.median(rows.y[:N]), 1.0, -1.0)
    if len(set(y)) == 1:
        y = np.where(rows.y[:N] == rows.y[0], 1.0, -1.0)
    K = rbf_kernel(X, gamma=gamma)
    for method in ("RFM", "RFM-GIGA", "compressed", "Nyström"):
        features = make_map(options, method, J, gamma, trial).fit(rows.X, rows.y)
        Z, Z_test = (np.asarray(features.transform(part), np.float64) for part in (X, X_test))
        near = float(np.linalg.norm(Z @ Z.T - K, 2))
        frobenius = float(np.linalg.norm(Z @ Z.T - K))
        exact_K = rbf_kernel(X_test, X, gamma=gamma)
        found: dict[str, tuple[float, float]] = {
            "ridge": (_ridge(K, exact_K, Z, Z_test, y), near / (RIDGE**2 * N)),
            "SVM": (_svm(K, exact_K, Z, Z_test, y), _svm_bound(near)),
            "PCA": (_pca(K, Z), (1 - COMPONENTS / N) * near),
        }
        for machine, (difference, bound) in found.items():
            yield {
                "J": J, "map": method, "machine": machine, "difference": difference,
                "bound": bound, "spectral": near, "frobenius": frobenius,
            }  # fmt: skip


def _ridge(K: Array, exact_K: Array, Z: Array, Z_test: Array, y: Array) -> float:
    alpha = RIDGE * len(y)
    exact = KernelRidge(alpha=alpha, kernel="precomputed").fit(K, y).predict(exact_K)
    near = KernelRidge(alpha=alpha, kernel="precomputed").fit(Z @ Z.T, y)
    return float(np.abs(near.predict(Z_test @ Z.T) - exact).max())


def _svm(K: Array, exact_K: Array, Z: Array, Z_test: Array, y: Array) -> float:
    """Return the largest difference of the scores of two SVMs without an offset."""
    # Exact features of the same rows: a factor of K, so that both are solved by the same program.
    values, vectors = np.linalg.eigh(K)
    root = np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    pairs = ((vectors * root, exact_K @ vectors / root), (Z, Z_test))
    C = PENALTY / len(y)  # the bound has its penalty on the mean of the losses
    exact, near = (
        LinearSVC(C=C, loss="hinge", fit_intercept=False, max_iter=20_000)
        .fit(learned, y)
        .decision_function(judged)
        for learned, judged in pairs
    )
    return float(np.abs(near - exact).max())


def _svm_bound(norm: float) -> float:
    return float(np.sqrt(2) * PENALTY * norm**0.25 * (1 + norm**0.25 / 4))


def _pca(K: Array, Z: Array) -> float:
    """Return the difference of the mean residuals after the first components."""
    exact, near = (np.linalg.eigvalsh(matrix)[:-COMPONENTS] for matrix in (K, Z @ Z.T))
    return float(abs(exact.sum() - near.sum()) / len(K))


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows = replace(options, n_rows=None).rows(data, trial)
    if method == BOUNDS:
        for J in options.sizes or ((20, 60) if options.quick else (100, 300, 1000)):
            yield from bounds(options, rows, tuned(options, data)[0], J, trial)
        return
    _warm_up(options, method, rows, trial)
    for varied, at in settings(options):
        some = repeated(rows, at["N"])
        if method in LEARNING:
            if varied != "candidates":
                yield {"varied": varied} | at | learning(method, some, at, trial)
        else:
            yield {"varied": varied} | at | making(options, method, some, at, trial)


def _warm_up(options: Options, method: str, rows: Rows, trial: int) -> None:
    """Run once on few rows, so that compiling and loading do not count."""
    some, at = repeated(rows, 500), {"N": 500, "J": 20, "candidates": 100}
    if method in LEARNING:
        learning(method, some, at, trial)
    else:
        making(options, method, some, at, trial)


def exponent(points: list[Row], x: str) -> float:
    """Return the power of x that the times follow, by least squares of logarithms."""
    places = np.log([row[x] for row in points])
    return float(np.polyfit(places, np.log([row["mean"] for row in points]), 1)[0])


def report(options: Options, results: Results) -> None:
    for data in dict.fromkeys(row["data"] for row in results.rows):
        timed = [(x, f"{data}: against {AXES[x]}") for x in grid(options)]
        with one_figure(options.out, f"costs_{data}", [title for _, title in timed]) as panels:
            for panel, (x, _) in zip(panels, timed, strict=True):
                _draw_times(panel, results, data, x)
        print(f"\n{data}: CPU seconds grow as these powers\n\n{exponents_table(results, data)}")
        for value in ("difference", "bound"):
            found = results.summary(["data", "machine", "map", "J"], value)
            chosen = [r | {"method": f"{r['machine']}, {r['map']}"} for r in found]
            print(f"\n{data}: {value}\n")
            print_table([row for row in chosen if row["data"] == data], "J")


def _times(results: Results, data: str, x: str) -> dict[str, list[Row]]:
    """Return mean seconds by method where x is varied."""
    found = results.summary(["data", "method", "varied", x], "seconds")
    chosen = [row for row in found if row["data"] == data and row["varied"] == x]
    return {m: [r for r in chosen if r["method"] == m] for m in {r["method"]: 0 for r in chosen}}


def _draw_times(panel: Any, results: Results, data: str, x: str) -> None:
    for lines in _times(results, data, x).values():
        draw_lines(panel, lines, x, xlabel=AXES[x], ylabel="CPU seconds")
        log_axis(panel, (row[x] for row in lines))
    panel.set_yscale("log")


def exponents_table(results: Results, data: str) -> str:
    """Return the powers of N, J and J+ that the CPU seconds grow with, as Markdown."""
    lines = [f"| method | order in the paper | {' | '.join(AXES.values())} |"]
    lines.append("|---" * (len(AXES) + 2) + "|")
    for method in (*MAKING, *LEARNING):
        cells = []
        for x in AXES:
            points = _times(results, data, x).get(method, [])
            cells.append(f"{exponent(points, x):.2f}" if len(points) > 1 else "")
        if any(cells):
            lines.append(f"| {method} | {ORDERS[method]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=(*MAKING, *LEARNING, BOUNDS))


if __name__ == "__main__":
    run_trials(__doc__, "costs", cells, measure, report, sets=("higgs",), trials=5)
