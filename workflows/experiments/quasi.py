"""Figures 7 and 8: other draws of the frequencies, raw and compressed as in the paper.

python workflows/experiments/quasi.py --data FOLDER [--sets adult] [--trials 20]
python workflows/experiments/quasi.py --quick --out /tmp/results
"""

from __future__ import annotations

from collections.abc import Iterator

from figures import Row
from harness import (
    ERROR,
    Options,
    Results,
    cells_of,
    fit_sizes,
    lazy,
    report_lines,
    run_trials,
    tuned,
)

import rfcdask as rf

DRAWS = ("iid", "halton", "sobol", "orthogonal", "fastfood")
METHODS = tuple(f"{draw}{kind}" for kind in ("", ", compressed") for draw in DRAWS)


def sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or ((20, 60) if options.quick else (100, 300, 1000))


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows, (gamma, _) = options.rows(data, trial), tuned(options, data)
    draw, *compressed = method.split(", ")
    more = {"n_pairs": None, "n_rows": 500 if options.quick else 2000} if compressed else {}
    name = "RFM-GIGA" if compressed else "RFM"
    for J, features, seconds in fit_sizes(
        options, data, rows, name, sizes(options), gamma, trial, sampling=draw, **more
    ):
        ridge = rf.RidgeClassifier(alphas=(1e-3, 1e-2, 1e-1, 1.0, 10.0))
        ridge.fit(features.transform(lazy(rows.X)), lazy(rows.y))
        yield {
            "J": J,
            "error": rf.kernel_error(
                features, rows.X_test, n_points=5000, random_state=options.seed
            ),
            "accuracy": ridge.score(features.transform(lazy(rows.X_test)), lazy(rows.y_test)),
            "fit_seconds": seconds,
        }


def report(options: Options, results: Results) -> None:
    report_lines(options, results, "error", "J", xlabel="number of features J", ylabel=ERROR)
    report_lines(
        options, results, "accuracy", "J", xlabel="number of features J",
        ylabel="test accuracy (ridge)", figure="quasi_accuracy", log_y=False,
    )  # fmt: skip


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "quasi", cells, measure, report, sets=("adult", "mnist", "sensorless"))
