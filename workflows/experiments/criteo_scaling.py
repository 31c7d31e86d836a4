"""Figure 3: error and accuracy against time on sparse rows of Criteo's shape.

Rows of about 39 ones among 1,000,000 columns are made block by block, projected to 250 columns by a
very sparse random projection, and never held whole. Time is CPU time of all of it: the projected
rows are made anew for every method. Johnson-Lindenstrauss makes its 5,000 candidates for every row.

    python workflows/experiments/criteo_scaling.py [--rows 1000000] [--trials 3]
    python workflows/experiments/criteo_scaling.py --rows 51882752   # as many as Criteo has
    python workflows/experiments/criteo_scaling.py --quick --out /tmp/results
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import dask.array as da
import numpy as np
from data import Array
from figures import Row, draw_lines, one_figure
from harness import (
    ERROR,
    Options,
    Results,
    cells_of,
    make_map,
    print_table,
    run_trials,
)
from scipy import sparse
from sklearn.random_projection import SparseRandomProjection

import rfcdask as rf

COLUMNS, FIELDS, WIDTH = 1_000_000, 39, 250
BLOCK = 20_000
METHODS = ("RFM", "RFM-JL", "RFM-GIGA", "compressed", "learned")


def n_rows(options: Options) -> int:
    return options.n_rows or (4000 if options.quick else 1_000_000)


@lru_cache(maxsize=1)
def projection() -> Any:
    """Return the projection, from a seed; one in a thousand of its entries is not zero."""
    project = SparseRandomProjection(WIDTH, random_state=0)
    return project.fit(sparse.random(1, COLUMNS, 0, format="csr", dtype=np.float32))


def block_of(start: int, count: int, labels: bool) -> Array:
    """Return projected rows, or their labels, from a seed of the block.

    Each of 39 fields has a range of columns and takes one of them by a Zipf law. Some columns of
    each field raise the chance of a click.
    """
    rng = np.random.default_rng([7, start])
    span = COLUMNS // FIELDS
    levels = np.minimum(rng.zipf(1.3, (count, FIELDS)) - 1, span - 1)
    effects = np.random.default_rng(5).normal(size=(FIELDS, 20))
    score = np.where(levels < 20, effects[np.arange(FIELDS), np.minimum(levels, 19)], 0).sum(1)
    if labels:
        clicked: Array = rng.random(count) < 1 / (1 + np.exp(-0.5 * score + 0.5))
        return clicked.astype(np.int64)
    columns = (levels + span * np.arange(FIELDS)).ravel()
    ends = np.arange(0, count * FIELDS + 1, FIELDS)
    ones = np.ones(len(columns), np.float32)
    rows = sparse.csr_matrix((ones, columns, ends), shape=(count, COLUMNS))
    return np.asarray(projection().transform(rows).todense(), np.float32)


def arrays(count: int) -> tuple[Any, Any]:
    """Return the projected rows and labels, lazily."""
    sizes = [min(BLOCK, count - start) for start in range(0, count, BLOCK)]
    starts = da.from_array(np.arange(0, count, BLOCK), chunks=1)
    X, y = (
        starts.map_blocks(
            lambda s, labels: block_of(int(s[0]), min(BLOCK, count - int(s[0])), labels),
            labels=labels,
            chunks=(tuple(sizes),) if labels else (tuple(sizes), (WIDTH,)),
            new_axis=None if labels else 1,
            dtype=np.int64 if labels else np.float32,
            meta=np.empty((0,) if labels else (0, 0), np.int64 if labels else np.float32),
        )
        for labels in (False, True)
    )
    return X, y


def sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or ((20, 60) if options.quick else (100, 300, 1000))


def measure(options: Options, method: str, trial: int) -> Iterator[Row]:
    count = n_rows(options)
    X, y = arrays(count)
    held = 1000 if options.quick else 10_000
    X_test, y_test = block_of(10**9, held, False), block_of(10**9, held, True)
    gamma = 0.5 / WIDTH
    _warm_up(options, method, X, y, trial)
    for J in sizes(options):
        start = chosen = time.process_time()
        error = np.nan
        if method == "learned":
            model: Any = rf.KernelClassifier(J, gamma=gamma, epochs=1, random_state=trial)
            model.fit(X, y)
        else:
            features = make_map(options, method, J, gamma, trial).fit(X, y)
            chosen = time.process_time()
            model = rf.RidgeClassifier().fit(features.transform(X), y)
        seconds = time.process_time() - start
        if method == "learned":  # which no longer approximates the kernel
            accuracy = model.score(X_test, y_test)
        else:
            accuracy = model.score(features.transform(X_test), y_test)
            error = rf.kernel_error(features, X_test, n_points=5000, random_state=0)
        yield {
            "rows": count,
            "J": J,
            "error": error,
            "accuracy": accuracy,
            "seconds": seconds,
            "choice_seconds": chosen - start,  # of the solver, and of making the rows that it needs
            "microseconds_per_row": 1e6 * (seconds - (chosen - start)) / count,
        }


def _warm_up(options: Options, method: str, X: Any, y: Any, trial: int) -> None:
    """Run once on few rows, so that compiling and loading do not count."""
    if method != "learned":
        few = {} if method == "RFM" else {"n_candidates": 100}
        features = make_map(options, method, 20, 0.5 / WIDTH, trial, **few).fit(X[:500], y[:500])
        rf.RidgeClassifier().fit(features.transform(X[:500]), y[:500])


def report(options: Options, results: Results) -> None:
    values = {"error": ERROR, "accuracy": "test accuracy"}
    by = ["method", "rows", "J"]
    seconds = {tuple(r[k] for k in by): r["mean"] for r in results.summary(by, "seconds")}
    counts = sorted({row["rows"] for row in results.rows})
    with one_figure(options.out, "criteo_scaling", list(values.values()), columns=2) as panels:
        for panel, (value, label) in zip(panels, values.items(), strict=True):
            found = [
                row | {"seconds": seconds[tuple(row[k] for k in by)]}
                for row in results.summary(by, value)
                if not np.isnan(row["mean"])
            ]
            xlabel = f"CPU seconds for {' and '.join(f'{count:,}' for count in counts)} rows"
            draw_lines(panel, found, "seconds", xlabel=xlabel, ylabel=label)
            panel.set_xscale("log")
            if value == "error":
                panel.set_yscale("log")
            print(f"\n{label}\n")
            print_table(found, "J")
    print("\nCPU seconds\n")
    print_table(results.summary(by, "seconds"), "J", digits=1)


def cells(options: Options) -> list[Row]:
    return cells_of(method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "criteo_scaling", cells, measure, report, trials=3)
