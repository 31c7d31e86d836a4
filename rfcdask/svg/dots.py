"""One value a name: points on lines that start at the names, and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rfcdask.svg.charts import CHARACTER, RIGHT, WIDTH, Axis, axis_scale, picture, rule, words
from rfcdask.svg.markup import Markup, el, join, short
from rfcdask.svg.scales import Scale
from rfcdask.svg.styles import Style, cut, mark

ROW = 21.0
HEAD = 22.0


@dataclass(frozen=True)
class Dot:
    """A name with its value, and how far the value may be off."""

    name: str
    value: float
    style: Style
    shown: str
    title: str = ""
    margin: float = 0.0


def dot_chart(label: str, dots: Sequence[Dot], axis: Axis, most: int = 15) -> Markup:
    """Draw one value a name on a common axis, with the numbers at the right."""
    if not dots:
        return el("p", "Nothing was measured that could be drawn here.", class_="none")
    left = 10 + CHARACTER * max(len(cut(dot.name, most)) for dot in dots)
    right = WIDTH - 6 - CHARACTER * max(len(dot.shown) for dot in dots)
    ends = [dot.value + side * dot.margin for dot in dots for side in (-1, 1)]
    across = axis_scale(axis, ends, left, right - 6)
    bottom = HEAD + ROW * len(dots)
    rows = [_dot(dot, k, across, most) for k, dot in enumerate(dots)]
    return picture(
        label,
        words(2, 12, axis.label, class_="axis", font_weight="600"),
        el("g", *_columns(across, axis, bottom), class_="grid"),
        *rows,
        height=bottom + 20,
    )


def _columns(across: Scale, axis: Axis, bottom: float) -> list[Markup]:
    found = []
    for value in across.ticks(4, axis.binary):
        place = across(value)
        found.append(rule(place, HEAD, place, bottom))
        found.append(words(place, bottom + 14, axis.show(value), "middle"))
    return found


def _dot(dot: Dot, row: int, across: Scale, most: int) -> Markup:
    y = HEAD + ROW * (row + 0.5)
    weight = {"font_weight": "600"} if dot.style.strong else {}
    whisker = None
    if dot.margin:
        low, high = across(dot.value - dot.margin), across(dot.value + dot.margin)
        whisker = el(
            "path",
            d=f"M{short(low)} {short(y)}H{short(high)}",
            stroke_width="2",
            stroke_opacity="0.55",
            **dot.style.stroke,
        )
    return join(
        words(2, y + 4, cut(dot.name, most), **weight),
        rule(across.start, y, across.stop, y, 0.08),
        whisker,
        mark(across(dot.value), y, dot.style, dot.title or f"{dot.name}: {dot.shown}"),
        words(WIDTH - 2, y + 4, dot.shown, "end", **weight),
    )


def bar_chart(label: str, dots: Sequence[Dot], most: int = 15) -> Markup:
    """Draw bars from zero with names at the left and numbers at the right."""
    if not dots:
        return el("p", "Nothing to draw.", class_="none")
    left = 10 + CHARACTER * max(len(cut(dot.name, most)) for dot in dots)
    right = WIDTH - RIGHT - CHARACTER * max(len(dot.shown) for dot in dots)
    highest = max(dot.value for dot in dots) or 1.0
    rows = []
    for k, dot in enumerate(dots):
        y = 2 + ROW * k
        wide = max((right - left) * dot.value / highest, 0.5)
        bar = el(
            "rect",
            el("title", dot.title or f"{dot.name}: {dot.shown}"),
            x=left,
            y=y + 3,
            width=wide,
            height=ROW - 6,
            rx="2",
            **dot.style.fill,
        )
        rows.append(join(words(2, y + 14.5, cut(dot.name, most)), bar))
        rows.append(words(left + wide + 5, y + 14.5, dot.shown))
    return picture(label, *rows, height=4 + ROW * len(dots))
