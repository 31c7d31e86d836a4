"""Which classes are taken for which."""

from __future__ import annotations

from typing import Any

from rfcdask.report.measured import Results, section
from rfcdask.report.parts import figure, note, part, table
from rfcdask.svg.heat import NAMED, WRITTEN, Cells, heat_map
from rfcdask.svg.markup import Markup, el
from rfcdask.svg.numbers import count, finite, share

MOST_DRAWN = 100
MOST_LISTED = 10

Matrix = list[list[float]]


def confusion(results: Results) -> Markup | None:
    """Return the section; None when there is no matrix."""
    labels, matrix = _read(section(results, "confusion"))
    if len(labels) < 2:
        return None
    listed = _largest(labels, matrix)
    return part(
        "Which classes are confused",
        "confusion",
        el("div", _drawing(labels, matrix), listed, class_="cards"),
    )


def _read(found: dict[str, Any]) -> tuple[list[str], Matrix]:
    labels = [str(label) for label in found.get("labels") or ()]
    matrix = [[finite(value) or 0.0 for value in row] for row in found.get("matrix") or ()]
    n = len(labels)
    whole = len(matrix) == n and all(len(row) == n for row in matrix)
    return (labels, matrix) if whole else ([], [])


def _drawing(labels: list[str], matrix: Matrix) -> Markup:
    kept = _worst(matrix)
    names = [labels[k] for k in kept]
    totals = [sum(matrix[i]) or 1.0 for i in kept]
    shares = [[matrix[i][j] / total for j in kept] for i, total in zip(kept, totals, strict=True)]
    small = len(kept) <= WRITTEN
    cells = Cells(
        shares,
        names,
        names,
        [[_percent(value) for value in row] for row in shares] if small else None,
        _titles(labels, matrix) if small else None,
    )
    label = f"Shares of {count(len(labels))} true classes by predicted class; the diagonal is right"
    return figure(
        "Rows by true and predicted class",
        heat_map(label, cells, "true class", "predicted class"),
        note(_words(len(labels), len(kept))),
    )


def _percent(value: float) -> str:
    if value == 0:
        return ""
    return "<1" if value < 0.005 else f"{100 * value:.0f}"


def _titles(labels: list[str], matrix: Matrix) -> list[list[str]]:
    return [
        [f"{true} taken for {guess}: {count(n)} rows" for guess, n in zip(labels, row, strict=True)]
        for true, row in zip(labels, matrix, strict=True)
    ]


def _words(n: int, drawn: int) -> str:
    said = (
        "Each line holds the rows of one true class; the stronger the colour, the larger the share"
    )
    said += " of them, in percent." if drawn <= WRITTEN else " of them."
    if drawn > NAMED:
        said += " Classes are in the order of their names, which would be too many to write."
    if drawn < n:
        said += f" Of {count(n)} classes the {drawn} with the most wrong answers are drawn."
    return said


def _worst(matrix: Matrix) -> list[int]:
    """Return the classes to draw: all, or those with the most wrong answers."""
    wrong = [sum(row) - row[k] for k, row in enumerate(matrix)]
    return sorted(sorted(range(len(matrix)), key=lambda k: -wrong[k])[:MOST_DRAWN])


def _largest(labels: list[str], matrix: Matrix) -> Markup | None:
    pairs = [
        (n, i, j) for i, row in enumerate(matrix) for j, n in enumerate(row) if i != j and n > 0
    ]
    pairs.sort(key=lambda found: (-found[0], found[1], found[2]))
    if not pairs:
        return figure("Largest confusions", el("p", "Every held-out row was classified right."))
    rows = [
        (labels[i], labels[j], count(n), share(n / (sum(matrix[i]) or 1.0)))
        for n, i, j in pairs[:MOST_LISTED]
    ]
    head = ("true class", "taken for", "rows", "of the class")
    return figure(
        "Largest confusions",
        table(head, rows, caption="Largest confusions", class_="confusions", wordy=2),
    )
