"""A table of numbers as a map of shades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rfcdask.svg.charts import CHARACTER, WIDTH, picture, words
from rfcdask.svg.markup import Markup, el, join, short
from rfcdask.svg.styles import LIGHT, cut_apart

SHADES = 8
WRITTEN = 12
"""Up to this many rows and columns the numbers stand in the cells."""
LONGEST = 10
"""Characters of a name beside the map."""
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
    names = [cut_apart([str(x) for x in side], LONGEST) for side in (cells.rows, cells.columns)]
    named = max(n, m) <= NAMED
    left = 22 + (5 + CHARACTER * max(map(len, names[0])) if named else 0)
    edge = (WIDTH - left - 2) / m
    head = 20 + (_head(names[1], edge) if named else 0)
    high = min(edge * tall, 46.0)
    draw = _written if max(n, m) <= WRITTEN else _shaded
    return picture(
        label,
        words(left, 12, along, class_="axis", font_weight="600"),
        _turned(down, 12, head + high * n / 2, "middle", class_="axis", font_weight="600"),
        *(_names(names, left, head, edge, high) if named else ()),
        el("g", *draw(cells, edge, high), transform=f"translate({short(left)} {short(head)})"),
        height=head + high * n + 4,
    )


def _head(names: Sequence[str], edge: float) -> float:
    wide = CHARACTER * max(map(len, names))
    return 16.0 if wide < edge else wide + 6


def _turned(shown: str, x: float, y: float, anchor: str, **more: Any) -> Markup:
    """Return text that is read from below."""
    place = f"translate({short(x)} {short(y)}) rotate(-90)"
    return el("text", shown, transform=place, text_anchor=anchor, fill="currentColor", **more)


def _names(
    names: Sequence[Sequence[str]], left: float, head: float, edge: float, high: float
) -> list[Markup]:
    # In maps of many classes the names must be smaller than a page would have them.
    small = {} if min(edge, high) > 14 else {"style": "font-size:8px"}
    turned = _head(names[1], edge) > 16
    found = [
        words(left - 5, head + high * (k + 0.5) + 4, name, "end", **small)
        for k, name in enumerate(names[0])
    ]
    for k, name in enumerate(names[1]):
        x = left + edge * (k + 0.5)
        if turned:
            found.append(_turned(name, x + 4, head - 5, "start", **small))
        else:
            found.append(words(x, head - 5, name, "middle", **small))
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
