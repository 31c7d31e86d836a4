"""Figure 4: error against the number of pairs.

The paper's RFM-GIGA on S random pairs, and the same selection on all pairs of m rows, with the time
of each. The values of 5,000 candidates on 100,000 pairs take 2 GB, so the line to 1,000,000 pairs
has 500 candidates.

    python workflows/experiments/pairs.py --data FOLDER [--sets adult] [--trials 20]
    python workflows/experiments/pairs.py --quick --out /tmp/results
"""

from __future__ import annotations

from collections.abc import Iterator

from data import titled
from figures import Row, draw_lines, log_axis, one_figure
from harness import (
    ERROR,
    Options,
    Results,
    cells_of,
    fit_timed,
    make_map,
    print_table,
    run_trials,
    tuned,
)

import rfcdask as rf

SOME, ALL = "S random pairs", "all pairs of m rows"
FEW = "S random pairs, 500 candidates"
J, J_FEW = 300, 100


def counts(options: Options, method: str) -> tuple[int, ...]:
    """Return the numbers of pairs, or of rows, to try."""
    if options.quick:
        return (50, 200) if method == ALL else (100, 1000)
    if method == ALL:
        return (100, 300, 1000, 2000, 5000)
    counts = options.sizes or (100, 1000, 10_000, 20_000, 100_000, 1_000_000)
    return tuple(count for count in counts if method == FEW or count <= 100_000)


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows, (gamma, _) = options.rows(data, trial), tuned(options, data)
    for count in counts(options, method):
        if method == ALL and count > len(rows.X):
            continue
        sample: Row = {"n_pairs": None, "n_rows": count} if method == ALL else {"n_pairs": count}
        if method == FEW:
            sample["n_candidates"] = 100 if options.quick else 500
        size = 40 if options.quick else J_FEW if method == FEW else J
        feature_map = make_map(options, "RFM-GIGA", size, gamma, trial, **sample)
        features, seconds = fit_timed(feature_map, rows.X, rows.y)
        error = rf.kernel_error(features, rows.X_test, n_points=5000, random_state=options.seed)
        yield {
            "count": count,
            "pairs": count * (count - 1) // 2 if method == ALL else count,
            "error": error,
            "fit_seconds": seconds,
        }


def report(options: Options, results: Results) -> None:
    drawn = {
        "pairs": (results.summary(["data", "method", "pairs"], "error"), "number of pairs"),
        "fit_seconds": (_against_time(results), "seconds of selection"),
    }
    sets = list(dict.fromkeys(row["data"] for row in results.rows))
    titles = [f"{titled(data)}: {drawn[x][1]}" for data in sets for x in drawn]
    with one_figure(options.out, "pairs", titles, columns=2) as panels:
        for panel, (data, x) in zip(panels, [(d, x) for d in sets for x in drawn], strict=True):
            chosen = [row for row in drawn[x][0] if row["data"] == data]
            draw_lines(panel, chosen, x, xlabel=drawn[x][1], ylabel=ERROR)
            if x == "pairs":
                log_axis(panel, [10**power for power in range(2, 8)])
            else:
                panel.set_xscale("log")
            panel.set_yscale("log")
    for data in sets:
        for method in (SOME, FEW, ALL):
            size = J_FEW if method == FEW else J
            print(f"\n{titled(data)}: {method}, J = {size}: error, then seconds\n")
            for value in ("error", "fit_seconds"):
                found = results.summary(["data", "method", "count"], value)
                print_table(
                    [r for r in found if (r["data"], r["method"]) == (data, method)], "count"
                )


def _against_time(results: Results) -> list[Row]:
    """Return the errors with the mean time of each setting as the place on the axis."""
    by = ["data", "method", "count"]
    times = {tuple(r[k] for k in by): r["mean"] for r in results.summary(by, "fit_seconds")}
    errors = results.summary(by, "error")
    return [row | {"fit_seconds": times[tuple(row[k] for k in by)]} for row in errors]


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=(SOME, FEW, ALL))


if __name__ == "__main__":
    run_trials(__doc__, "pairs", cells, measure, report, sets=("adult", "mnist"))
