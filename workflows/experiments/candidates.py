"""Figure 5: 100,000 candidates on HIGGS, error against the number of features kept.

python workflows/experiments/candidates.py --data FOLDER [--trials 5]
python workflows/experiments/candidates.py --quick --out /tmp/results
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import Row
from harness import (
    ERROR,
    Options,
    Results,
    cells_of,
    fit_sizes,
    report_lines,
    run_trials,
    tuned,
)

import rfcdask as rf

METHODS = ("RFM", "RFM-GIGA", "compressed")


def sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or ((20, 60) if options.quick else (500, 1000, 2000, 5000, 10_000))


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows, (gamma, _) = options.rows(data, trial), tuned(options, data)
    more: dict[str, Any] = {}
    if method != "RFM":  # what gradient steps add is in figure 1
        more = {"n_candidates": 1000 if options.quick else 100_000, "refine": 0}
        more |= {"n_pairs": None, "n_rows": 500 if options.quick else 2000}
    for J, features, seconds in fit_sizes(
        options, data, rows, method, sizes(options), gamma, trial, **more
    ):
        error = rf.kernel_error(features, rows.X_test, n_points=5000, random_state=options.seed)
        kept = features.transform(rows.X_test[:1]).shape[1]
        yield {"J": J, "kept": kept, "error": error, "fit_seconds": seconds}


def report(options: Options, results: Results) -> None:
    report_lines(options, results, "error", "J", xlabel="number of features J", ylabel=ERROR)


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "candidates", cells, measure, report, sets=("higgs",), trials=5)
