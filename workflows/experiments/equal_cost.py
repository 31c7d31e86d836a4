"""Figure 1 at equal cost: error against the time of a row and against the size of the model.

The CPU time of `transform` on one thread and the bytes of a model depend on the kind of the map,
the columns and J alone, so they are measured here, quickly, and joined with the errors in
``kernel_error.csv`` of the same folder.

    OMP_NUM_THREADS=1 python workflows/experiments/equal_cost.py --data FOLDER [--trials 5]
    python workflows/experiments/equal_cost.py --quick --out /tmp/results
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from data import titled
from figures import Row, draw_lines, one_figure
from harness import (
    Options,
    Results,
    cells_of,
    make_map,
    model_bytes,
    print_table,
    run_trials,
)

COSTS = {"microseconds": "CPU microseconds per row", "bytes": "bytes of the model"}
KINDS = {
    "RFM": ("RFM", "RFM-FW", "RFM-GIGA", "compressed"),
    "RFM-JL": ("RFM-JL",),
    "Nyström": ("Nyström", "Nyström, RPCholesky"),
}
"""What costs the same: a chosen feature is evaluated as a random one."""


def sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or ((20, 60) if options.quick else (100, 300, 1000))


def measure(options: Options, data: str, method: str, trial: int) -> Iterator[Row]:
    rows = options.rows(data, trial)
    X = rows.X[:2048]
    for J in sizes(options):
        features = make_map(options, method, J, 1 / X.shape[1], trial).fit(rows.X[:2000], None)
        features.transform(X)
        start, passes = time.process_time(), 0
        while time.process_time() - start < 0.1 or passes < 2:
            features.transform(X)
            passes += 1
        seconds = (time.process_time() - start) / passes / len(X)
        size = model_bytes(method, X.shape[1], J)
        yield {"J": J, "microseconds": 1e6 * seconds, "bytes": size}


def joined(options: Options, results: Results, cost: str) -> list[Row]:
    """Return the errors of figure 1 with what each map costs."""
    kind = {method: name for name, methods in KINDS.items() for method in methods}
    by = ["data", "method", "J"]
    costs = {tuple(row[k] for k in by): row["mean"] for row in results.summary(by, cost)}
    errors = Results(options.out / "kernel_error.csv", ()).summary(by, "error")
    return [
        row | {cost: costs[place]}
        for row in errors
        if (place := (row["data"], kind.get(row["method"]), row["J"])) in costs
    ]


def report(options: Options, results: Results) -> None:
    sets = list(dict.fromkeys(row["data"] for row in results.rows))
    known = {cost: joined(options, results, cost) for cost in COSTS}
    panels_of: list[tuple[str, str, list[Row], str]] = []
    for data in sets:
        for cost, label in COSTS.items():
            chosen = [row for row in known[cost] if row["data"] == data]
            panels_of.append((data, cost, chosen, label))
            found = results.summary(["data", "method", "J"], cost)
            print(f"\n{titled(data)}: {label}\n")
            print_table([row for row in found if row["data"] == data], "J", digits=2)
    titles = [titled(data) for data, *_ in panels_of]
    with one_figure(options.out, "equal_cost", titles, columns=2) as panels:
        for panel, (data, cost, chosen, label) in zip(panels, panels_of, strict=True):
            _draw(panel, chosen or _costs(results, data, cost), cost, label, bool(chosen))


def _costs(results: Results, data: str, cost: str) -> list[Row]:
    found = results.summary(["data", "method", "J"], cost)
    return [row | {cost: row["J"]} for row in found if row["data"] == data]


def _draw(panel: Any, rows: list[Row], cost: str, label: str, errors: bool) -> None:
    words = (label, "relative Frobenius error") if errors else ("number of features J", label)
    draw_lines(panel, rows, cost, xlabel=words[0], ylabel=words[1])
    panel.set_xscale("log")
    panel.set_yscale("log")


def cells(options: Options) -> list[Row]:
    return cells_of(data=options.sets, method=tuple(KINDS))


if __name__ == "__main__":
    run_trials(__doc__, "equal_cost", cells, measure, report, trials=5)
