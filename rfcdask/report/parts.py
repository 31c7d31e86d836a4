"""Pieces that several sections of the report are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rfcdask.svg.markup import Markup, el, join


def part(title: str, name: str, *children: Any) -> Markup:
    """Return a section with a heading; `name` is where links lead."""
    return el("section", el("h2", title), *children, id=name)


def note(*children: Any) -> Markup:
    """Return a paragraph in the voice of a caption."""
    return el("p", *children, class_="note")


def facts(pairs: Iterable[tuple[str, Any]], class_: str = "facts") -> Markup:
    """Return names with values, side by side where there is room; None is left out."""
    shown = [
        el("div", el("dt", name), el("dd", value)) for name, value in pairs if value is not None
    ]
    return el("dl", *shown, class_=class_)


def figure(title: str, drawing: Any, *below: Any) -> Markup:
    """Return a drawing on its own card."""
    return el("figure", el("figcaption", title), drawing, *below)


def cards(*children: Any) -> Markup:
    """Return cards side by side where there is room."""
    return el("div", *children, class_="cards")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str = "",
    class_: str = "plain",
    wordy: int = 1,
) -> Markup:
    """Return a table whose rows become small cards on a narrow page.

    Parameters
    ----------
    head : sequence of str
        Names of the columns.
    rows : iterable of sequences
        Markup or anything else, which is escaped. The first cell names the row.
    caption : str
        What the table holds, for those who hear it.
    class_ : str
        Of the table.
    wordy : int
        So many columns from the left hold words and are set to the left.
    """
    top = [el("th", name, scope="col", class_=_side(k, wordy)) for k, name in enumerate(head)]
    body = [el("tr", *_cells(head, row, wordy)) for row in rows]
    return el(
        "table",
        el("caption", caption, class_="unseen") if caption else None,
        el("thead", el("tr", *top)),
        el("tbody", *body),
        class_=class_,
    )


def _cells(head: Sequence[str], row: Sequence[Any], wordy: int) -> list[Markup]:
    first = el("th", row[0], scope="row")
    rest = [
        el("td", value, data_label=head[k], class_=_side(k, wordy))
        for k, value in enumerate(row)
        if k
    ]
    return [first, *rest]


def _side(column: int, wordy: int) -> str | None:
    return None if column < wordy else "num"


def best(value: Any) -> Markup:
    """Mark a value as the best of its kind."""
    return join(el("strong", value, class_="best"), el("span", " (best)", class_="unseen"))


def measure(value: Any, of: float) -> Markup:
    """Return a value with a bar behind it that is full at 1."""
    width = f"{100 * min(max(of, 0.0), 1.0):.1f}%"
    return el("span", el("i", style=f"width:{width}"), el("b", value), class_="measure")
