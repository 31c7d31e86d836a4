"""Lines and points on two axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rfcdask.svg.markup import Markup, el, join, short
from rfcdask.svg.numbers import finite, tick
from rfcdask.svg.scales import Scale, scale_for, thinned
from rfcdask.svg.styles import Style, mark

WIDTH, HEIGHT = 360.0, 236.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 24.0, 36.0
FONT = 12
CHARACTER = 7.3
"""About the width of a character at that size."""
MOST_POINTS = 160


@dataclass(frozen=True)
class Axis:
    """What an axis is called, how its numbers are shown and, if not by itself, where."""

    label: str
    log: bool = False
    show: Callable[[float], str] = tick
    binary: bool = False
    zero: bool = False
    highest: float | None = None
    at: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """Points that belong together, joined by a line unless there is one only."""

    name: str
    points: list[tuple[float, float]]
    style: Style
    titles: list[str] = field(default_factory=list)
    marks: bool = True
    label: str = ""


def picture(label: str, *children: Any, width: float = WIDTH, height: float = HEIGHT) -> Markup:
    """Return a drawing that scales with the page and says what it shows."""
    return el(
        "svg",
        *children,
        viewBox=f"0 0 {short(width)} {short(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
        class_="chart",
        font_size=FONT,
        font_family="system-ui, sans-serif",
        style="max-width:100%;height:auto",
    )


def words(x: float, y: float, shown: str, anchor: str = "start", **more: Any) -> Markup:
    """Return a piece of text in the colour of the text around the drawing."""
    return el("text", shown, x=x, y=y, text_anchor=anchor, **({"fill": "currentColor"} | more))


def line_chart(label: str, series: Sequence[Series], x: Axis, y: Axis, *extra: Any) -> Markup:
    """Draw series on two axes.

    Parameters
    ----------
    label : str
        What the drawing shows, for those who cannot see it.
    series : sequence of Series
        Points that are not finite are left out.
    x, y : Axis
    *extra : callables
        Each gets both scales and returns more markup, drawn above the lines.
    """
    kept = [_finite(one) for one in series]
    places = [point for one in kept for point in one.points]
    if not places:
        return el("p", "Nothing was measured that could be drawn here.", class_="none")
    across = axis_scale(x, [p[0] for p in places], LEFT, WIDTH - RIGHT)
    upward = axis_scale(y, [p[1] for p in places], HEIGHT - BOTTOM, TOP)
    drawn = [draw_series(one, across, upward) for one in kept if one.points]
    labels = place_labels(kept, across, upward)
    more = [draw(across, upward) for draw in extra]
    return picture(label, frame(across, upward, x, y), *drawn, *more, *labels)


def axis_scale(axis: Axis, values: list[float], start: float, stop: float) -> Scale:
    """Return the scale of an axis."""
    return scale_for(values, start, stop, log=axis.log, zero=axis.zero, highest=axis.highest)


def frame(across: Scale, upward: Scale, x: Axis, y: Axis) -> Markup:
    """Draw the grid, the numbers along it and what the axes are."""
    return join(
        el("g", *_rows(upward, y), *_columns(across, x), class_="grid"),
        words(2, 12, y.label, class_="axis", font_weight="600"),
        words(WIDTH - RIGHT, HEIGHT - 3, x.label, "end", class_="axis", font_weight="600"),
    )


def _rows(upward: Scale, y: Axis) -> list[Markup]:
    found = []
    for value in upward.ticks(5, y.binary):
        place = upward(value)
        found.append(rule(LEFT, place, WIDTH - RIGHT, place))
        found.append(words(LEFT - 5, place + 4, y.show(value), "end"))
    return found


def _columns(across: Scale, x: Axis) -> list[Markup]:
    bottom = HEIGHT - BOTTOM
    found = [rule(LEFT, bottom, WIDTH - RIGHT, bottom, 0.5)]
    end = 0.0
    for value in x.at or across.ticks(5, x.binary):
        place = across(value)
        found.append(rule(place, bottom, place, bottom + 3, 0.5))
        shown = x.show(value)
        half = CHARACTER * len(shown) / 2
        at = min(max(place, half), WIDTH - half)
        if at - half >= end:  # else it would lie over the one before
            found.append(words(at, bottom + 15, shown, "middle"))
            end = at + half + 3
    return found


def rule(x1: float, y1: float, x2: float, y2: float, opacity: float = 0.15) -> Markup:
    """Draw a thin straight line."""
    return el(
        "path",
        d=f"M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}",
        stroke="currentColor",
        stroke_opacity=str(opacity),
        fill="none",
    )


def _finite(series: Series) -> Series:
    kept = [k for k, point in enumerate(series.points) if all(finite(v) is not None for v in point)]
    titles = [series.titles[k] for k in kept] if series.titles else []
    points = [series.points[k] for k in kept]
    return Series(series.name, points, series.style, titles, series.marks, series.label)


def draw_series(series: Series, across: Scale, upward: Scale) -> Markup:
    """Draw a line through the points and, where asked for, the points."""
    kept = thinned([p[0] for p in series.points], MOST_POINTS)
    places = [(across(series.points[k][0]), upward(series.points[k][1])) for k in kept]
    titles = [series.titles[k] if series.titles else series.name for k in kept]
    line = None
    if len(places) > 1:
        line = el(
            "path",
            None if series.marks else el("title", series.name),
            d="M" + "L".join(f"{short(a)} {short(b)}" for a, b in places),
            fill="none",
            stroke_width="2" if series.style.strong else "1.5",
            stroke_dasharray="5 3" if series.style.dashed else None,
            stroke_linejoin="round",
            **series.style.stroke,
        )
    if not series.marks and line is not None:
        return line
    points = [mark(*p, series.style, t) for p, t in zip(places, titles, strict=True)]
    return join(line, *points)


def place_labels(series: Sequence[Series], across: Scale, upward: Scale) -> list[Markup]:
    """Write names beside last points where there is room; the legend has them all."""
    dots = [(across(a), upward(b)) for one in series for a, b in one.points]
    taken = [(a - 4, b - 4, a + 4, b + 4) for a, b in dots]
    found = []
    for one in series:
        if not one.label or not one.points:
            continue
        at = across(one.points[-1][0]), upward(one.points[-1][1])
        for x, y, anchor, box in _positions(at, len(one.label) * CHARACTER):
            if _inside(box) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                found.append(words(x, y, one.label, anchor, **one.style.fill))
                break
    return found


Box = tuple[float, float, float, float]


def _positions(at: tuple[float, float], wide: float) -> list[tuple[float, float, str, Box]]:
    x, y = at
    found = []
    for dy in (4.0, -7.0, 15.0):
        top, low = y + dy - 10, y + dy + 2
        found.append((x + 7, y + dy, "start", (x + 6, top, x + 7 + wide, low)))
        found.append((x - 7, y + dy, "end", (x - 7 - wide, top, x - 6, low)))
    found += [
        (x, y + dy, "middle", (x - wide / 2, y + dy - 10, x + wide / 2, y + dy + 2))
        for dy in (-8.0, 17.0)
    ]
    return found


def _inside(box: Box) -> bool:
    return box[0] >= LEFT and box[2] <= WIDTH and box[1] >= TOP - 6 and box[3] <= HEIGHT - BOTTOM


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
