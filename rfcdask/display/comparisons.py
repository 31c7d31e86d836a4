"""The charts of a comparison of feature maps, for `.plot()`, notebooks and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from rfcdask.display.charts import (
    Chart,
    Rows,
    Tips,
    clean,
    columns,
    plain_ticks,
    rows_axis,
    set_log,
    ticker,
)
from rfcdask.display.style import (
    Style,
    count,
    finite,
    micros,
    number,
    percent_tick,
    share,
    short_title,
    size,
    size_tick,
    styles_for,
    tick,
    title_of,
)


@dataclass(frozen=True)
class Measure:
    """A column of a comparison: its axis, and how a value is written."""

    label: str
    show: Callable[[Any], str]
    tick: Callable[[float], str] = tick
    log: bool = True
    base: int = 10


MEASURES = {
    "n_components": Measure("features", count),
    "kernel_error": Measure("kernel error (lower is better)", number),
    "accuracy": Measure("accuracy (higher is better)", lambda v: share(v, 2), percent_tick, False),
    "fit_seconds": Measure("seconds to fit (fewer is better)", number),
    "microseconds_per_row": Measure("µs per row (fewer is better)", micros),
    "model_bytes": Measure("bytes of the map (fewer is better)", size, size_tick, base=2),
}


LOWER_IS_BETTER = tuple(name for name in MEASURES if name != "accuracy")
"""Any other column is a score."""


def _measure(column: str) -> Measure:
    said = column.replace("_", " ")
    return MEASURES.get(column) or Measure(f"{said} (higher is better)", number, tick, False)


def against_features(
    rows: Rows, column: str, margins: Mapping[str, float] | None = None
) -> Chart | None:
    """Draw a column against the number of features; with one number only, one value per method.

    Parameters
    ----------
    rows : sequence of mapping
        One row per method and number of features.
    column : str
        A key of `MEASURES`, or a metric.
    margins : mapping of method to float, optional
        How uncertain the values are, drawn where there is one value per method; otherwise the
        spread over repeats that the rows have themselves.

    Returns
    -------
    Chart or None
        None when nothing was measured.
    """
    if len({row.get("n_components") for row in rows if row.get("n_components")}) > 1:
        return one_against_other(rows, "n_components", column)
    known = [row for row in rows if finite(row.get(column)) is not None]
    known.sort(key=lambda row: float(row[column]), reverse=column in LOWER_IS_BETTER)
    if not known:
        return None
    measure = _measure(column)

    def draw(ax: Any) -> Tips:
        styles = styles_for([str(row["method"]) for row in rows])
        tips: Tips = {}
        for place, row in enumerate(known):
            method = str(row["method"])
            margin = (margins or {}).get(method, finite(row.get(f"{column}_spread")))
            point = _point(ax, float(row[column]), place, styles[method], margin)
            point.set_label(clean(title_of(method)))
            tips[point] = [f"{clean(title_of(method))}: {measure.show(row[column])}"]
        rows_axis(ax, [short_title(str(row["method"]), 15) for row in known])
        _write_right(ax, [measure.show(row[column]) for row in known])
        ax.set(xlabel=measure.label)
        _measure_axis(ax.xaxis, measure, [row[column] for row in known], most=4)
        return tips

    return Chart(f"{measure.label} of each method", draw, 44 + 20.0 * len(known))


def one_against_other(rows: Rows, x: str, y: str) -> Chart | None:
    """Draw one column against another, a line through the sizes of each method."""
    across, upward = _measure(x), _measure(y)
    known = [
        row for row in rows if finite(row.get(x)) is not None and finite(row.get(y)) is not None
    ]
    if x == "n_components":  # not all methods have features
        known = [row for row in known if row[x]]
    known.sort(key=lambda row: finite(row.get("n_components")) or 0)
    if not known:
        return None
    single = len({row.get("n_components") for row in rows if row.get("n_components")}) <= 1

    def draw(ax: Any) -> Tips:
        tips: Tips = {}
        names = []
        for method, style in styles_for([str(row["method"]) for row in rows]).items():
            mine = [row for row in known if str(row["method"]) == method]
            if not mine:
                continue
            points = [(float(row[x]), float(row[y])) for row in mine]
            line = _line(ax, points, style, [finite(row.get(f"{y}_spread")) for row in mine])
            line.set_label(clean(title_of(method)))
            tips[line] = [
                _tip(row, across if x != "n_components" else None, upward, x, y) for row in mine
            ]
            names.append((points[-1], short_title(method), style.hex))
        ax.set(xlabel=across.label, ylabel=upward.label)
        _measure_axis(ax.yaxis, upward, [row[y] for row in known])
        _measure_axis(ax.xaxis, across, [row[x] for row in known])
        if x == "n_components":
            _name_sizes(ax, sorted({float(row[x]) for row in known}))
        if single:
            _name_points(ax, names)
        return tips

    return Chart(f"{upward.label} against {across.label}, a line or point per method", draw)


def _tip(row: Mapping[str, Any], across: Measure | None, upward: Measure, x: str, y: str) -> str:
    more = f", {across.show(row[x])}" if across else ""
    method = clean(title_of(str(row["method"])))
    return f"{method}, {count(row.get('n_components'))} features: {upward.show(row[y])}{more}"


def _line(
    ax: Any, points: Sequence[tuple[float, float]], style: Style, spreads: Sequence[float | None]
) -> Any:
    """Draw the line of a method with its markers, and its spreads where all are known."""
    x, y = columns(points)
    if None not in spreads:
        ax.errorbar(x, y, spreads, fmt="none", ecolor=style.hex, elinewidth=1, capsize=2)
    (line,) = ax.plot(x, y, **_look(style))
    return line


def _point(ax: Any, value: float, place: float, style: Style, margin: float | None) -> Any:
    if margin:
        ax.errorbar([value], [place], xerr=[margin], fmt="none", ecolor=style.hex, alpha=0.6)
    (point,) = ax.plot([value], [place], **_look(style))
    return point


def _look(style: Style) -> dict[str, Any]:
    return {
        "marker": style.marker,
        "color": style.hex,
        "lw": 2.0 if style.strong else 1.2,
        "ms": 6.5 if style.strong else 5.0,
    }


def _name_sizes(ax: Any, sizes: Sequence[float]) -> None:
    """Name the numbers of features that were tried, leaving out those that are too close."""
    low, high = sizes[0], sizes[-1]
    kept: list[float] = []
    for value in sizes:
        if not kept or high <= low or _part(low, high, value) - _part(low, high, kept[-1]) > 0.13:
            kept.append(value)
    ax.set_xticks(kept, [tick(value) for value in kept])


def _part(low: float, high: float, value: float) -> float:
    return log(value / low) / log(high / low) if low > 0 else (value - low) / (high - low)


def _name_points(ax: Any, points: Sequence[tuple[tuple[float, float], str, str]]) -> None:
    """Write names beside points where there is room; the legend has them all."""
    figure = ax.get_figure(root=True)
    figure.draw_without_rendering()  # places of points are known once the layout is
    places = (ax.transData.transform(at) for at, _, _ in points)
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    frame = ax.get_window_extent()
    around = ((7, -3, "left"), (-7, -3, "right"), (0, 7, "center"), (0, -14, "center"))
    for at, name, colour in points:
        for dx, dy, ha in around:
            text = ax.annotate(
                clean(name), at, (dx, dy), textcoords="offset points", ha=ha, color=colour,
                fontsize="small", parse_math=False,
            )  # fmt: skip
            box = text.get_window_extent()
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 + 4 and frame.y0 <= box.y0
            free = not any(_overlap(box.extents, other) for other in taken)
            if inside and free and box.y1 <= frame.y1:
                taken.append(tuple(box.extents))
                break
            text.remove()


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _write_right(ax: Any, texts: Sequence[str]) -> None:
    """Write a text at the right end of each row."""
    place = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points"}
    for row, text in enumerate(texts):
        ax.annotate(text, (1.0, row), (8, 0), va="center", fontsize="small", **place)


def _measure_axis(axis: Any, measure: Measure, values: Sequence[Any], most: int = 5) -> None:
    """Give an axis the scale and the labels of a measure; no share goes beyond one."""
    if not (measure.log and set_log(axis, values, measure.base, most)):
        axis.set_major_locator(ticker().MaxNLocator(most))
        low, high = axis.get_view_interval()
        if measure.tick is percent_tick and high > 1.0 >= max(values):
            axis.set_view_interval(low, 1.0, ignore=True)
    plain_ticks(axis, measure.tick)
