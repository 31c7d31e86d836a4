"""All charts, drawn by matplotlib from plain numbers: for `.plot()`, notebooks and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from rfcdask.display import (
    LIGHT,
    Style,
    count,
    cut,
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
from rfcdask.display.drawing import (
    BLUE,
    Chart,
    Tips,
    as_float,
    clean,
    columns,
    legend,
    plain_ticks,
    rows_axis,
    set_log,
    ticker,
)

Rows = Sequence[Mapping[str, Any]]
ORANGE, GREY = LIGHT[1], LIGHT[7]
LOSSES = (("loss", "training rows", "o-", BLUE), ("held_out_loss", "held-out rows", "D-", ORANGE))
MOST_MARKERS = 40  # a line with more points is drawn without markers
MOST_STEPS = 250  # of more values an area shows every so many


def error_path(
    sizes: Sequence[float],
    sampled: Sequence[Any],
    heldout: Sequence[Any],
    chosen: float | None = None,
    refined: float | None = None,
) -> Chart:
    """Draw the relative errors along a selection, on the pairs it looked at and on held-out ones.

    `chosen` is the size that was kept, `refined` its held-out error after refinement.
    """
    after = finite(refined) if chosen is not None else None

    def draw(ax: Any) -> Tips:
        marker = "o" if len(sizes) == 1 else None
        for errors, name, look in (
            (heldout, "held-out pairs", {"color": BLUE}),
            (sampled, "sampled pairs", {"color": GREY, "ls": "--"}),
        ):
            known = [as_float(error) for error in errors]
            ax.plot(sizes[: len(known)], known[: len(sizes)], marker=marker, label=name, **look)
        tips: Tips = {}
        if chosen is not None:
            _mark_size(ax, chosen, before_half=chosen < (sizes[0] + sizes[-1]) / 2)
        if after is not None:
            (point,) = ax.plot([chosen], [after], "D", color=ORANGE, label="after refinement")
            tips[point] = [f"after refinement, {count(chosen)} features: {number(after)}"]
        ax.set(xlabel="features kept", ylabel="relative error, pairs of rows")
        set_log(ax.yaxis, [*heldout, *sampled, after])
        legend(ax, loc="upper right", borderaxespad=1.4)
        return tips

    kept = f"; {count(chosen)} features were kept" if chosen is not None else ""
    return Chart(f"Relative kernel error against the number of features{kept}", draw)


def _mark_size(ax: Any, chosen: float, *, before_half: bool) -> None:
    ink = ax.xaxis.label.get_color()
    ax.axvline(chosen, color=ink, alpha=0.6, lw=1, zorder=0)
    ax.annotate(
        f"chosen: {count(chosen)}",
        (chosen, 0.0),
        (4 if before_half else -4, 5),
        xycoords=ax.get_xaxis_transform(),
        textcoords="offset points",
        ha="left" if before_half else "right",
        fontsize="small",
    )


def curve(
    x: Sequence[float],
    y: Sequence[Any],
    xlabel: str,
    ylabel: str,
    *,
    log: bool = False,
    highest: float | None = None,
) -> Chart:
    """Draw one line, with its points while they are few.

    A logarithmic axis of x is linear around 0; with `highest` that of y goes from 0 to above it.
    """

    def draw(ax: Any) -> Tips:
        few = len(x) <= MOST_MARKERS
        points = [(a, as_float(b)) for a, b in zip(x, y, strict=True)]
        tips = _plot(ax, points, xlabel, number, color=BLUE, marker="o" if few else None)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        if log and not set_log(ax.xaxis, x):
            ax.set_xscale("symlog")
            plain_ticks(ax.xaxis, tick)
        elif not log and all(float(value).is_integer() for value in x):
            ax.xaxis.get_major_locator().set_params(integer=True)
        if highest is not None:
            ax.set_ylim(0, 1.05 * highest)
        return tips if few else {}

    return Chart(f"{ylabel} against {xlabel}", draw)


def _plot(
    ax: Any, points: Sequence[tuple[float, float]], name: str, show: Any, *form: str, **look: Any
) -> Tips:
    """Draw a line; a point that is not a number is not drawn and has no text."""
    (line,) = ax.plot(*columns(points), *form, **look)
    return {line: [f"{name} {show(x)}: {number(y)}" for x, y in points if y == y]}


def training(history: Rows) -> Chart:
    """Draw the mean loss of each epoch, on rows learned from and on rows held out."""

    def draw(ax: Any) -> Tips:
        tips: Tips = {}
        for key, name, form, colour in LOSSES:
            points = [(entry["epoch"], as_float(entry[key])) for entry in history if key in entry]
            if points:
                look = {"color": colour, "label": name}
                tips |= _plot(ax, points, f"{name}, epoch", count, form, **look)
        ax.set(xlabel="epoch", ylabel="mean loss")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if len(tips) > 1:
            legend(ax)
        return tips

    return Chart("Mean loss of each epoch", draw)


def bars(
    names: Sequence[str], values: Sequence[float], xlabel: str, shown: Sequence[str] = ()
) -> Chart:
    """Draw one bar per name, the first at the top, with its number behind it."""

    def draw(ax: Any) -> Tips:
        drawn = ax.barh(range(len(names)), values, color=BLUE, height=0.7)
        rows_axis(ax, [cut(str(name), 18) for name in names])
        ax.invert_yaxis()
        texts = list(shown) or [count(value) for value in values]
        ax.bar_label(drawn, texts, padding=4, fontsize="small")
        ax.set(xlabel=xlabel)
        ax.margins(x=0.15)  # room for the numbers
        ax.xaxis.set_major_locator(ticker().MaxNLocator(3))
        plain_ticks(ax.xaxis, tick)
        return {
            bar: [f"{clean(name)}: {text}"]
            for bar, name, text in zip(drawn, names, texts, strict=True)
        }

    return Chart(
        f"{xlabel} of each: {', '.join(clean(name) for name in names[:20])}",
        draw,
        44 + 20.0 * len(names),
    )


def sorted_area(values: Sequence[float], xlabel: str, ylabel: str) -> Chart:
    """Draw values, largest first, as steps that touch; of many, every so many."""
    falling = sorted((float(value) for value in values), reverse=True)
    kept = thinned(len(falling), MOST_STEPS)

    def draw(ax: Any) -> Tips:
        ax.stairs([falling[k] for k in kept], [*kept, len(falling)], fill=True, color=BLUE)
        ax.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, len(falling)))
        ax.xaxis.get_major_locator().set_params(integer=True)
        return {}

    return Chart(f"{ylabel} of {count(len(falling))} {xlabel}", draw)


def scatter(points: Rows, x: str, y: str, line: str) -> Chart:
    """Draw one dot per point, and where both are equal or `y` is zero as a line."""
    across, upward = ([float(point[name]) for point in points] for name in (x, y))

    def draw(ax: Any) -> Tips:
        ends = [min(across), max(across)]
        ax.plot(ends, ends if line == "equal" else [0.0, 0.0], color=GREY, lw=1)
        ax.scatter(across, upward, s=6, color=BLUE, alpha=0.5, linewidths=0)
        ax.set(xlabel=x, ylabel=y)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(ticker().MaxNLocator(4))
            plain_ticks(axis, tick)
        return {}

    return Chart(f"{y} against {x} of {count(len(points))} rows held out", draw)


def thinned(n: int, most: int) -> list[int]:
    """Return at most `most` evenly spread positions among `n`, with the first and the last."""
    if n <= most:
        return list(range(n))
    return sorted({round(k * (n - 1) / (most - 1)) for k in range(most)})


def stacks(parts: Mapping[str, Mapping[str, float]], xlabel: str) -> Chart:
    """Draw one bar per name, made of its parts; a part looks the same in every bar."""

    def draw(ax: Any) -> Tips:
        starts = dict.fromkeys(parts, 0.0)
        kinds = dict.fromkeys(part for bar in parts.values() for part in bar)
        for k, part in enumerate(kinds):
            widths = [bar.get(part, 0.0) for bar in parts.values()]
            # More parts than colours: the second time round they are hatched.
            look = {"color": LIGHT[k % len(LIGHT)], "hatch": "///" if k >= len(LIGHT) else None}
            ax.barh(range(len(parts)), widths, left=list(starts.values()), label=part, **look)
            starts = {name: starts[name] + w for name, w in zip(parts, widths, strict=True)}
        rows_axis(ax, list(parts))
        ax.set(xlabel=xlabel)
        # Below the bars, where it covers none.
        legend(ax, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.35))
        return {}

    lines = -(-len({part for bar in parts.values() for part in bar}) // 2)
    return Chart(f"{xlabel} by its parts", draw, 60 + 30.0 * len(parts) + 18.0 * lines)


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

    `margins` say how uncertain the values of methods are; otherwise the spread over repeats that
    rows have themselves is drawn. None when nothing was measured.
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
    from matplotlib.transforms import Bbox

    ax.get_figure(
        root=True
    ).draw_without_rendering()  # places of points are known once the layout is
    places = (ax.transData.transform(at) for at, _, _ in points)
    taken = [Bbox.from_extents(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    frame = ax.get_window_extent().padded(4, 0)
    around = ((7, -3, "left"), (-7, -3, "right"), (0, 7, "center"), (0, -14, "center"))
    for at, name, colour in points:
        for dx, dy, ha in around:
            text = ax.annotate(
                clean(name), at, (dx, dy), textcoords="offset points", ha=ha, color=colour,
                fontsize="small", parse_math=False,
            )  # fmt: skip
            box = text.get_window_extent()
            inside = frame.containsx(box.x0) and frame.containsx(box.x1)
            inside = inside and frame.containsy(box.y0) and frame.containsy(box.y1)
            if inside and not box.count_overlaps(taken):
                taken.append(box)
                break
            text.remove()


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
