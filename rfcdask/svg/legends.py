"""Which colour and shape is which method."""

from __future__ import annotations

from collections.abc import Iterable

from rfcdask.svg.markup import Markup, el
from rfcdask.svg.styles import Style, mark


def swatch(style: Style) -> Markup:
    """Draw a point as it looks in a chart, to stand in a line of text."""
    return el(
        "svg",
        mark(7, 7, style),
        width="14",
        height="14",
        viewBox="0 0 14 14",
        aria_hidden="true",
        style="vertical-align:-2px",
    )


def legend(entries: Iterable[tuple[str, Style]]) -> Markup:
    """Return names with their points, wrapping as text does."""
    spans = [
        el("span", swatch(style), " ", name, style="display:inline-block;margin-right:1em")
        for name, style in entries
    ]
    return el("p", *(part for span in spans for part in (span, " ")), class_="legend")
