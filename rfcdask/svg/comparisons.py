"""The drawings of a comparison of feature maps, for the report and for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rfcdask.svg.charts import Axis, Series, line_chart
from rfcdask.svg.dots import Dot, dot_chart
from rfcdask.svg.legends import legend
from rfcdask.svg.markup import Markup
from rfcdask.svg.numbers import (
    count,
    finite,
    micros,
    number,
    percent_tick,
    share,
    size,
    size_tick,
)
from rfcdask.svg.styles import Style, short_title, styles_for, title_of

Rows = Sequence[Mapping[str, Any]]
FEATURES = Axis("features", log=True)
ERROR = Axis("kernel error (lower is better)", log=True)
ACCURACY = Axis("accuracy (higher is better)", show=percent_tick, highest=1.0)
MICROS = Axis("microseconds a row (fewer is better)", log=True)
SIZE = Axis("bytes of the map (fewer is better)", log=True, show=size_tick, binary=True)


@dataclass(frozen=True)
class Column:
    """A measured column: its name in the table, its axis and how a value is written."""

    name: str
    axis: Axis
    show: Callable[[Any], str]


COLUMNS = {
    "n_components": Column("n_components", FEATURES, count),
    "kernel_error": Column("kernel_error", ERROR, number),
    "accuracy": Column("accuracy", ACCURACY, lambda value: share(value, 2)),
    "microseconds_per_row": Column("microseconds_per_row", MICROS, micros),
    "model_bytes": Column("model_bytes", SIZE, size),
}


def styles_of(rows: Rows) -> dict[str, Style]:
    """Return how each method is drawn, in the order in which they come."""
    return styles_for([str(row["method"]) for row in rows])


def method_legend(rows: Rows) -> Markup:
    """Return the legend of all methods."""
    return legend((title_of(method), style) for method, style in styles_of(rows).items())


def against_features(rows: Rows, column: str, margins: Mapping[str, float] | None = None) -> Markup:
    """Draw a column against the number of features; with one number only, one value a method.

    Parameters
    ----------
    rows : sequence of mapping
        A row a method and number of features.
    column : str
        Which column to draw.
    margins : mapping of method to float, optional
        How far a value may be off, drawn where there is one value a method.
    """
    if len({row.get("n_components") for row in rows}) > 1:
        return one_against_other(rows, "n_components", column)
    kind, styles = COLUMNS[column], styles_of(rows)
    dots = [
        Dot(
            short_title(str(row["method"])),
            float(row[column]),
            styles[str(row["method"])],
            kind.show(row[column]),
            f"{title_of(str(row['method']))}: {kind.show(row[column])}",
            (margins or {}).get(str(row["method"]), 0.0),
        )
        for row in rows
        if finite(row.get(column)) is not None
    ]
    falling = column == "accuracy"
    dots.sort(key=lambda dot: dot.value, reverse=falling)
    return dot_chart(f"{kind.axis.label} of each method", dots, kind.axis)


def spreads(rows: Rows, column: str) -> dict[str, float]:
    """Return the spread over repeats of each method, where there were some."""
    known = ((str(row["method"]), finite(row.get(f"{column}_spread"))) for row in rows)
    return {method: spread for method, spread in known if spread is not None}


def one_against_other(rows: Rows, x: str, y: str) -> Markup:
    """Draw one column against another, a line through the sizes of each method."""
    across, upward = COLUMNS[x], COLUMNS[y]
    places = replace(across.axis, at=_sizes(rows)) if x == "n_components" else across.axis
    series = [
        _series(rows, method, style, across, upward) for method, style in styles_of(rows).items()
    ]
    label = f"{upward.axis.label} against {across.axis.label}, a line or point a method"
    return line_chart(label, series, places, upward.axis)


def _sizes(rows: Rows) -> tuple[float, ...]:
    """Return the numbers of features that were tried, for the axis to name."""
    return tuple(sorted({float(n) for row in rows if (n := finite(row.get("n_components")))}))


def _series(rows: Rows, method: str, style: Style, x: Column, y: Column) -> Series:
    mine = [row for row in rows if str(row["method"]) == method]
    mine.sort(key=lambda row: finite(row.get("n_components")) or 0)
    known = [
        r for r in mine if finite(r.get(x.name)) is not None and finite(r.get(y.name)) is not None
    ]
    titles = [
        f"{title_of(method)}, {count(row.get('n_components'))} features: "
        f"{y.show(row[y.name])}"
        + ("" if x is COLUMNS["n_components"] else f", {x.show(row[x.name])}")
        for row in known
    ]
    points = [(float(row[x.name]), float(row[y.name])) for row in known]
    single = len({row.get("n_components") for row in rows}) == 1
    return Series(
        title_of(method), points, style, titles, True, short_title(method) if single else ""
    )
