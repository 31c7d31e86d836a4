"""Figure 6: Frank-Wolfe, GIGA and pursuit, with and without refit, for both targets.

python workflows/experiments/solvers.py --data FOLDER [--sets adult] [--trials 20]
python workflows/experiments/solvers.py --quick --out /tmp/results
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
    report_lines,
    run_trials,
    tuned,
)

import rfcdask as rf

SOLVERS = ("frank-wolfe", "giga", "pursuit")
METHODS = tuple(
    f"{solver}, {target}{', refit' if refit else ''}"
    for solver in SOLVERS
    for target in ("candidates", "kernel")
    for refit in (False, True)
    if refit or solver != "pursuit"  # pursuit is refit by its nature
)


def sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or ((20, 60) if options.quick else (50, 100, 200, 500, 1000))


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows, (gamma, _) = options.rows(data, trial), tuned(options, data)
    solver, target, *refit = method.split(", ")
    n_rows = 500 if options.quick else 2000  # all pairs of them: as good as 20,000 random ones
    fitted = fit_sizes(
        options, data, rows, "compressed", sizes(options), gamma, trial, solver=solver,
        target=target, refit=bool(refit), refine=0, n_rows=n_rows,
    )  # fmt: skip
    for J, features, seconds in fitted:
        error = rf.kernel_error(features, rows.X_test, n_points=5000, random_state=options.seed)
        yield {"J": J, "error": error, "fit_seconds": seconds}


def report(options: Options, results: Results) -> None:
    report_lines(options, results, "error", "J", xlabel="number of features J", ylabel=ERROR)


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=METHODS)


if __name__ == "__main__":
    run_trials(__doc__, "solvers", cells, measure, report, sets=("adult", "mnist"))
