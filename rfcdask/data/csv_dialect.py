"""What a delimited file looks like: which delimiter, and whether the first line names columns."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

import fsspec

from rfcdask.data.errors import DataError

DELIMITERS = (",", "\t", ";", "|", " ")
SAMPLE_BYTES = 2**18
SAMPLE_LINES = 20
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}


@dataclass(frozen=True)
class Dialect:
    """Delimiter, and whether the first line is a header."""

    delimiter: str = ","
    header: bool = True


def sniff(
    path: str, delimiter: str | None = None, header: bool | None = None
) -> tuple[Dialect, tuple[str, ...]]:
    """Detect what was not given; return it with the names (or numbers) of the columns."""
    lines = _first_lines(path)
    if not lines:
        raise DataError(f"{path} holds only blank lines: give a file with rows.")
    delimiter = delimiter or _delimiter(path, lines)
    rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))
    header = _has_header(rows) if header is None else header
    names = [name.strip() for name in rows[0]] if header else [str(i) for i in range(len(rows[0]))]
    return Dialect(delimiter, header), tuple(names)


def _first_lines(path: str) -> list[str]:
    with fsspec.open(path, "rb", compression="infer") as file:
        text = file.read(SAMPLE_BYTES).decode("utf-8-sig", "replace")
    lines = text.splitlines()
    if len(text) >= SAMPLE_BYTES and len(lines) > 1:
        lines.pop()  # the last one is most likely cut
    return [line for line in lines if line.strip()][:SAMPLE_LINES]


def _delimiter(path: str, lines: list[str]) -> str:
    counts = {mark: _fields(lines, mark) for mark in DELIMITERS}
    best = max(counts, key=lambda mark: counts[mark])
    if counts[best] < 2:
        raise DataError(
            f"{path}, line 1: no delimiter was found among {DELIMITERS}: pass delimiter=."
        )
    return best


def _fields(lines: list[str], mark: str) -> int:
    """Return the number of fields of most lines; a malformed line must not decide."""
    found = [len(row) for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=mark)]
    common = max(set(found), key=found.count)
    return common if found.count(common) * 2 > len(found) else 0


def _has_header(rows: list[list[str]]) -> bool:
    first = [is_number(field) for field in rows[0]]
    if not any(first):
        return True
    if len(rows) < 2:
        return False
    if all(first):
        return _counts_columns(rows)
    # Some names are numbers: a header is then a line whose pattern the next one does not share,
    # but for fields that are missing in either.
    return any(
        is_number(name) != is_number(field)
        for name, field in zip(rows[0], rows[1], strict=False)
        if not (_is_missing(name) or _is_missing(field))
    )


def _counts_columns(rows: list[list[str]]) -> bool:
    """Tell the numbers 0, 1, 2, ... that pandas writes for columns without names from a row."""
    numbers = [str(place) for place in range(len(rows[0]))]
    # Of few columns a row may well read 0, 1; then it is taken for a row.
    return len(numbers) > 3 and rows[0] == numbers and rows[1] != numbers


def _is_missing(field: str) -> bool:
    return field.strip().lower() in _MISSING


def is_number(text: str) -> bool:
    """Whether a field reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
