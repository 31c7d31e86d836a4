"""Figure 5: 100,000 candidates on HIGGS, error against the number of features kept.

python workflows/experiments/candidates.py --data FOLDER [--trials 5]
python workflows/experiments/candidates.py --quick --out /tmp/results
"""

from __future__ import annotations

from collections.abc import Iterator

from harness import (
    ERROR,
    Options,
    Results,
    Row,
    cells_of,
    fit_timed,
    make_map,
    report_lines,
    run_trials,
    tuned,
)

import rfcdask as rf

METHODS = ("RFM", "RFM-GIGA", "compressed")


def sizes(options: Options) -> tuple[int, ...]:
    return (20, 60) if options.quick else (500, 1000, 2000, 5000, 10_000)


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows, (gamma, _) = options.rows(data, trial), tuned(options, data)
    more = {} if method == "RFM" else {"n_candidates": 1000 if options.quick else 100_000}
    for J in sizes(options):
        feature_map = make_map(options, method, J, gamma, trial, **more)
        if method == "compressed":  # what 300 gradient steps add is in figure 1
            feature_map.set_params(refine=0)
        features, seconds = fit_timed(feature_map, rows.X, rows.y)
        error = rf.kernel_error(features, rows.X_test, n_points=5000, random_state=options.seed)
        kept = features.transform(rows.X_test[:1]).shape[1]
        yield {"J": J, "kept": kept, "error": error, "fit_seconds": seconds}


def report(options: Options, results: Results) -> None:
    report_lines(options, results, "error", "J", xlabel="number of features J", ylabel=ERROR)


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "candidates", cells, measure, report, sets=("higgs",), trials=5)
