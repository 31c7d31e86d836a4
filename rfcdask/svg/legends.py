"""Which colour and shape is which method."""

from __future__ import annotations

from collections.abc import Iterable

from rfcdask.svg.markup import Markup, el
from rfcdask.svg.styles import Style, mark


def swatch(style: Style, line: bool = False) -> Markup:
    """Draw a point, or a piece of line, as it looks in a chart, to stand in a line of text."""
    wide = 24 if line else 14
    stroke = el(
        "path",
        d=f"M1 7H{wide - 1}",
        stroke_width="2",
        stroke_dasharray="5 3" if style.dashed else None,
        **style.stroke,
    )
    return el(
        "svg",
        stroke if line else mark(7, 7, style),
        width=wide,
        height="14",
        viewBox=f"0 0 {wide} 14",
        aria_hidden="true",
        style="vertical-align:-2px",
    )


def legend(entries: Iterable[tuple[str, Style]], lines: Iterable[str] = ()) -> Markup:
    """Return names with their points, wrapping as text does; those in `lines` with a line."""
    drawn = set(lines)
    spans = [
        el(
            "span",
            swatch(style, name in drawn),
            " ",
            name,
            style="display:inline-block;margin-right:1em",
        )
        for name, style in entries
    ]
    return el("p", *(part for span in spans for part in (span, " ")), class_="legend")
