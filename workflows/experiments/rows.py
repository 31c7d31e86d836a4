"""Accuracy against the number of training rows, at a fixed number of features: what rows buy.

Maps that are chosen on a sample and features that learn from all rows, each trained on 5,000
random rows and on more, up to all.

    python workflows/experiments/rows.py --data FOLDER [--sets covtype] [--trials 5]
    python workflows/experiments/rows.py --quick --out /tmp/results
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from classification import fixed_maps, learned
from figures import Row
from harness import (
    Options,
    Results,
    cells_of,
    report_lines,
    run_trials,
)

METHODS = ("RFM", "compressed, labels", "Nyström", "learned")
COUNTS = (5000, 20_000, 60_000, 100_000, 400_000)
J = 300


def counts(options: Options, n_rows: int) -> list[int]:
    if options.quick:
        return [500, 2000]
    wanted = options.sizes or COUNTS
    return [*(count for count in wanted if count < n_rows), n_rows]


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows = options.rows(data, trial)
    size = 40 if options.quick else J
    order = np.random.default_rng([options.seed + trial, 4]).permutation(len(rows.X))
    for count in counts(options, len(rows.X)):
        some = rows._replace(X=rows.X[order[:count]], y=rows.y[order[:count]])
        if method == "learned":
            yield {"rows": count} | learned(some, size, options.seed + trial)
        else:
            for row in fixed_maps(options, data, some, method, [size], trial):
                yield {"rows": count} | row


def report(options: Options, results: Results) -> None:
    report_lines(
        options, results, "accuracy", "rows", xlabel="training rows",
        ylabel=f"test accuracy, J = {J}", log_y=False,
    )  # fmt: skip


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "rows", cells, measure, report, sets=("mnist", "covtype", "made"), trials=5)
