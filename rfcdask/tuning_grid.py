"""The accuracies of a tuning as a grid of C and gamma."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rfcdask.svg.heat import Cells, heat_map
from rfcdask.svg.markup import Markup
from rfcdask.svg.numbers import number, share


@dataclass(frozen=True)
class Grid:
    """Accuracy of each C (down) and gamma (along); not a number where a pair was not tried."""

    Cs: list[float]
    gammas: list[float]
    values: list[list[float]]

    @property
    def row_names(self) -> list[str]:
        """Every C, short."""
        return [f"{value:g}" for value in self.Cs]

    @property
    def column_names(self) -> list[str]:
        """Every gamma, short."""
        return [f"{value:.3g}" for value in self.gammas]


def grid_of(rows: Sequence[dict[str, Any]]) -> Grid:
    """Return the accuracies, each from the largest number of rows its pair was tried on."""
    found: dict[tuple[float, float], tuple[int, float]] = {}
    for row in rows:
        pair, tried = (row["C"], row["gamma"]), (row["n_rows"], row["accuracy"])
        found[pair] = max(found.get(pair, (-1, 0.0)), tried)
    Cs, gammas = sorted({C for C, _ in found}), sorted({gamma for _, gamma in found})
    nothing = (0, math.nan)
    return Grid(Cs, gammas, [[found.get((C, g), nothing)[1] for g in gammas] for C in Cs])


def grid_drawing(grid: Grid, best: tuple[float, float]) -> Markup:
    """Draw the grid as inline SVG with the best pair framed."""
    known = [value for row in grid.values for value in row if not math.isnan(value)]
    low, span = min(known), (max(known) - min(known)) or 1.0
    cells = Cells(
        [[0.0 if math.isnan(v) else (v - low) / span for v in row] for row in grid.values],
        grid.row_names,
        grid.column_names,
        [["" if math.isnan(v) else f"{100 * v:.1f}" for v in row] for row in grid.values],
        [
            [
                f"C {C:g}, gamma {number(g)}: {share(v, 2)}"
                for g, v in zip(grid.gammas, row, strict=True)
            ]
            for C, row in zip(grid.Cs, grid.values, strict=True)
        ],
        (grid.Cs.index(best[0]), grid.gammas.index(best[1])),
    )
    label = f"Mean accuracy in percent for each C and gamma; best {share(max(known), 2)}"
    return heat_map(label, cells, "C", "gamma, accuracy in percent", tall=0.8)
