"""A table of numbers as a map of shades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rfcdask.svg.charts import CHARACTER, FONT, WIDTH, picture, words
from rfcdask.svg.markup import Markup, el, join, short
from rfcdask.svg.styles import LIGHT, cut

SHADES = 8
WRITTEN = 12
"""Up to this many rows and columns the numbers stand in the cells."""
NAMED = 30
"""Up to this many rows and columns have their names beside them."""


@dataclass(frozen=True)
class Cells:
    """Values in 0..1 that give the shade, with what to write and to say of each."""

    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    shown: Sequence[Sequence[str]] | None = None
    titles: Sequence[Sequence[str]] | None = None
    marked: tuple[int, int] | None = None


def heat_map(label: str, cells: Cells, down: str, along: str, *, tall: float = 1.0) -> Markup:
    """Draw shaded cells.

    Parameters
    ----------
    label : str
        What the drawing shows, for those who cannot see it.
    cells : Cells
        Numbers are written into small maps only.
    down, along : str
        What the rows and the columns are.
    tall : float
        Height of a cell in units of its width.
    """
    n, m = len(cells.rows), len(cells.columns)
    named = max(n, m) <= NAMED
    left = 20.0
    head = 20.0
    if named:
        left += 6 + CHARACTER * max(len(cut(str(name), 10)) for name in cells.rows)
        head += _head(cells.columns, (WIDTH - left - 2) / m)
    edge = (WIDTH - left - 2) / m
    high = min(edge * tall, 46.0)
    draw = _written if max(n, m) <= WRITTEN else _shaded
    body = el("g", *draw(cells, edge, high), transform=f"translate({short(left)} {short(head)})")
    return picture(
        label,
        words(left, 12, along, class_="axis", font_weight="600"),
        el(
            "text",
            down,
            transform=f"translate(12 {short(head + high * n / 2)}) rotate(-90)",
            text_anchor="middle",
            fill="currentColor",
            font_weight="600",
            class_="axis",
        ),
        *(_names(cells, left, head, edge, high) if named else ()),
        body,
        height=head + high * n + 4,
    )


def _head(names: Sequence[str], edge: float) -> float:
    longest = max(len(cut(str(name), 10)) for name in names)
    return 16.0 if longest * CHARACTER < edge else 10 + 0.8 * CHARACTER * longest


def _names(cells: Cells, left: float, head: float, edge: float, high: float) -> list[Markup]:
    turned = _head(cells.columns, edge) > 16
    found = []
    small = {"font_size": str(FONT if max(edge, high) > 14 else 8)}
    for k, name in enumerate(cells.rows):
        y = head + high * (k + 0.5) + 4
        found.append(words(left - 5, y, cut(str(name), 10), "end", **small))
    for k, name in enumerate(cells.columns):
        x = left + edge * (k + 0.5)
        place = f"translate({short(x + (4 if turned else 0))} {short(head - 5)})"
        found.append(
            el(
                "text",
                cut(str(name), 10),
                fill="currentColor",
                **small,
                transform=place + (" rotate(-55)" if turned else ""),
                text_anchor="start" if turned else "middle",
            )
        )
    return found


def _written(cells: Cells, edge: float, high: float) -> list[Markup]:
    found = []
    for i, row in enumerate(cells.values):
        for j, value in enumerate(row):
            found.append(_cell(cells, i, j, value, edge, high))
    return found


def _cell(cells: Cells, i: int, j: int, value: float, edge: float, high: float) -> Markup:
    part = min(max(value, 0.0), 1.0)
    title = el("title", cells.titles[i][j]) if cells.titles else None
    outline: dict[str, Any] = {}
    if cells.marked == (i, j):
        outline = {"stroke": "currentColor", "stroke_width": "2"}
    box = el(
        "rect",
        title,
        x=edge * j + 1,
        y=high * i + 1,
        width=edge - 2,
        height=high - 2,
        rx="2",
        fill=LIGHT[0],
        fill_opacity=f"{0.05 + 0.9 * part:.2f}",
        class_="f0",
        **outline,
    )
    shown = cells.shown[i][j] if cells.shown else ""
    if not shown or len(shown) * CHARACTER > edge + 2:
        return box
    tone = {"fill": "#fff", "class_": "onheat"} if part > 0.55 else {}
    inside = words(
        edge * (j + 0.5), high * (i + 0.5) + 4, shown, "middle", pointer_events="none", **tone
    )
    return join(box, inside)


def _shaded(cells: Cells, edge: float, high: float) -> list[Markup]:
    """Draw one path a shade, so that a hundred classes stay small."""
    paths: dict[int, list[str]] = {}
    for i, row in enumerate(cells.values):
        for j, value in enumerate(row):
            shade = min(int(min(max(value, 0.0), 1.0) ** 0.5 * SHADES), SHADES - 1)
            if value > 0:
                paths.setdefault(shade, []).append(f"M{j} {i}h1v1h-1z")
    ground = el(
        "rect",
        width=str(len(cells.columns)),
        height=str(len(cells.rows)),
        fill="currentColor",
        fill_opacity="0.05",
    )
    drawn = [
        el("path", d="".join(d), fill=LIGHT[0], class_="f0", fill_opacity=f"{(k + 1) / SHADES:.2f}")
        for k, d in sorted(paths.items())
    ]
    return [el("g", ground, *drawn, transform=f"scale({edge:.4f} {high:.4f})")]
