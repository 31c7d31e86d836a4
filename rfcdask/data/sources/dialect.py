"""What a table in a text file looks like: which delimiter, and whether line 1 names columns."""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from contextlib import suppress
from dataclasses import dataclass

from rfcdask.data.errors import DataError
from rfcdask.data.sources.text import PIECE_BYTES, is_number, open_text, require_utf8
from rfcdask.persist.untrusted import faults_as

READ_BYTES = PIECE_BYTES
"""No line of a table is longer."""
DELIMITERS = (",", "\t", ";", "|", " ")
SAMPLE_BYTES = 2**18
SAMPLE_LINES = 20
WIDEST = 100_000
"""Most columns of a table: each is a column of its own to pyarrow."""
_MISSING_NAMES = {"", "na", "n/a", "nan", "null", "none", "?", "-"}
_DECIMAL = re.compile(r"\s*[-+]?\d+,\d+\s*")
_BLANKS = " \t\n\r\x0b\x0c"
"""Those of ASCII: a line of others, such as that of HTML, is no blank line to pyarrow."""


@dataclass(frozen=True)
class Dialect:
    """Delimiter, and whether the first line is a header."""

    delimiter: str = ","
    header: bool = True


def line_too_long(path: str) -> DataError:
    """Say that a line is longer than any that is read."""
    return DataError(
        f"{path} has a line of more than {READ_BYTES // 2**20} MB, the most that is read of a "
        "table: give text with one row per line, look for a quote that is never closed, or write "
        "the rows as Parquet or npy."
    )


def sniff(
    path: str, delimiter: str | None = None, header: bool | None = None
) -> tuple[Dialect, tuple[str, ...]]:
    """Detect what was not given; return it with the names (or numbers) of the columns."""
    with faults_as(lambda why: DataError(f"{path} is no table ({why}): pass format=."), DataError):
        lines = _first_lines(path)
        if not lines:
            raise DataError(f"{path} holds only blank lines: give a file with rows.")
        delimiter = delimiter or _delimiter(path, lines)
        rows = _rows(lines, delimiter)
        if not rows:
            raise DataError(f"{path}, line 1: a name is too long to be one: pass delimiter=.")
        header = _has_header(rows) if header is None else header
        names = [name.strip() if header else str(i) for i, name in enumerate(rows[0])]
        if len(names) > WIDEST:
            raise DataError(
                f"{path} has {len(names):,} columns, and at most {WIDEST:,} are read of a table: "
                "write the rows as npy or svmlight."
            )
        return Dialect(delimiter, header), tuple(names)


def _first_lines(path: str) -> list[str]:
    with open_text(path) as file:
        data = file.read(SAMPLE_BYTES)
        require_utf8(path, data)
        if not _has_line(data.lstrip()):  # many columns
            data += file.read(READ_BYTES - len(data))
    if len(data) == READ_BYTES and not _has_line(data):
        raise line_too_long(path)
    text = data.decode("utf-8-sig", "backslashreplace")  # names stay apart in any encoding
    lines = [line.rstrip("\r\n") for line in io.StringIO(text, newline="")]
    if len(data) >= SAMPLE_BYTES and len(lines) > 1:
        lines.pop()  # the last one is most likely cut
    return [line for line in lines if line.strip(_BLANKS)][:SAMPLE_LINES]


def blank_bytes(head: bytes) -> int:
    """Return how many bytes of the head of a file are blank lines before the first other one."""
    begin = len(BOM_UTF8) if head.startswith(BOM_UTF8) else 0
    stop = len(head) - len(head[begin:].lstrip())
    return max(head.rfind(b"\n", begin, stop), head.rfind(b"\r", begin, stop)) + 1


def _has_line(data: bytes) -> bool:
    return b"\n" in data or b"\r" in data


def _delimiter(path: str, lines: list[str]) -> str:
    counts = {mark: _fields(lines, mark) for mark in DELIMITERS}
    # Numbers may have commas, which are not those of the header, and text and names have blanks.
    heads = {mark: len(next(iter(_rows(lines[:1], mark)), [])) for mark in DELIMITERS}
    fits = {mark: heads[mark] == counts[mark] > 1 for mark in DELIMITERS}
    # Marks within quoted text leave half of its quotes in a field; a blank divides words of any.
    cuts = {m: m == " " or any(f.count('"') % 2 for r in _rows(lines, m) for f in r) for m in fits}
    parts = [field for row in _rows(lines, ";")[1:] for field in row if "," in field]
    if counts[";"] > 1 and parts and all(map(_DECIMAL.fullmatch, parts)):
        cuts[","] = True
    best = max(counts, key=lambda m: (fits[m], counts[m] > 1, not cuts[m], counts[m]))
    if counts[best] < 2:
        raise DataError(
            f"{path}, line 1: no delimiter was found among {DELIMITERS}: pass delimiter=."
        )
    return best


def _rows(lines: list[str], mark: str) -> list[list[str]]:
    """Return the fields of lines, up to the first with a field that is too long for Python."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(csv.reader(io.StringIO("\n".join(lines)), delimiter=mark))
    return rows


def _fields(lines: list[str], mark: str) -> int:
    """Return the number of fields of most lines; a malformed line must not decide."""
    found = [len(row) for row in _rows(lines, mark)]
    common = max(set(found), key=found.count, default=0)
    return common if found.count(common) * 2 > len(found) else 0


def _has_header(rows: list[list[str]]) -> bool:
    first = [is_number(field) for field in rows[0]]
    if not any(first):
        return True
    if len(rows) < 2:
        return False
    if _counts_columns(rows) or _names_label(rows):
        return True
    if all(first):
        return False
    # Some names are numbers: a header is then a line whose pattern the next one does not share,
    # but for fields that are missing in either.
    return any(
        is_number(name) != is_number(field)
        for name, field in zip(rows[0], rows[1], strict=False)
        if _MISSING_NAMES.isdisjoint((name.strip().lower(), field.strip().lower()))
    )


def _counts_columns(rows: list[list[str]]) -> bool:
    """Tell the numbers 0, 1, 2, ... that pandas writes for columns without names from a row."""
    places = [place for place, field in enumerate(rows[0]) if is_number(field)]
    first, second = ([row[place] for place in places if place < len(row)] for row in rows[:2])
    # Of few columns a row may well read 0, 1; then it is taken for a row.
    return len(first) > 3 and first == [str(n) for n in range(len(first))] and first != second


def _names_label(rows: list[list[str]]) -> bool:
    """Tell whether the first line names a label, which no row has there for its class."""
    return any(
        name.strip().lower() in ("label", "target", "class")
        and all(row[place : place + 1] != [name] for row in rows[1:])
        for place, name in enumerate(rows[0])
    )
