"""A small tidy table: rows that are dicts with the same keys, shown as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any


class Table:
    """Rows with the same columns, in a fixed order.

    Parameters
    ----------
    rows : list of dict
        One dict a row; plain numbers and strings only.
    """

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows[0]) if self.rows else []

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        return [row[column] for row in self.rows]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __repr__(self) -> str:
        cells = [self.columns, *([_show(value) for value in row.values()] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_show(v))}</td>" for v in row.values()) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _show(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
