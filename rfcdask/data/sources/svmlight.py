"""svmlight files as a source: plain ones by byte ranges in parallel, packed ones as a stream.

scikit-learn's reader splits lines as Python objects: it holds the interpreter lock, keeps 16 bytes
per value and names no line. This one runs without the lock, so that threads read side by side, and
gives the same rows (the tests compare the two). Characters are compared by their codes: 9, 13 and
32 are blanks, 10 ends a line, 35 (#) begins a comment, 44 is a comma, 58 a colon, 48 to 57 digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from rfcdask.data.columns import Names
from rfcdask.data.errors import DataError
from rfcdask.data.sources.base import Batch, SourceOptions, Survey, Tally
from rfcdask.data.sources.text import (
    PARSED,
    FileSource,
    Piece,
    between,
    count_lines,
    file_size,
    is_compressed,
    parse_number,
    plan_pieces,
    python_float,
    read_piece,
    stream_lines,
)
from rfcdask.execution.executor import call_later, run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import CSR, Array, FloatArray, IntArray
from rfcdask.kernels.runtime import compiled

WIDEST = 100_000
"""Columns of a store unless more are asked for: one index in the text may claim 10^9."""
WIDEST_OF_ALL = 50_000_000
"""Columns of rows that are projected, whose matrix has a number for each of them."""
PIECE_BYTES, PARSED_AHEAD = 2 * 2**20, 2
"""Pieces of a block that are parsed at once: a store of few blocks would leave cores idle."""
LARGEST_INDEX = 2**31 - 2

_FINE, _NO_PAIR, _ORDER, _BEYOND, _BELOW, _NO_LABEL, _MANY_LABELS = range(7)


class IndexLimits(NamedTuple):
    """Which column numbers may occur."""

    least: int = 0
    largest: int = LARGEST_INDEX


def _index_limits(options: SourceOptions) -> IndexLimits:
    least = int(options.zero_based is False)
    if options.n_columns is None:
        return IndexLimits(least)
    # Before the file is seen, "auto" must allow for both ways of counting.
    return IndexLimits(least, options.n_columns - int(options.zero_based is True))


@dataclass
class TextSummary:
    """What one piece of text holds: rows, and the smallest and the largest column number."""

    tally: Tally
    least: int = LARGEST_INDEX + 1
    largest: int = -1

    def join(self, other: TextSummary) -> None:
        """Take what the next piece holds."""
        self.tally.join(other.tally)
        self.least = min(self.least, other.least)
        self.largest = max(self.largest, other.largest)


class SvmlightFiles(FileSource):
    """One or several svmlight files as one set of rows."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(paths)
        self.in_parallel = not any(map(is_compressed, paths))  # plain files are entered anywhere
        self.pieces: list[Piece] = []
        self.first_index, self.n_columns, self.labelled = 1, 0, True

    def survey(self, options: SourceOptions) -> Survey:
        """Parse everything once; malformed lines are named here."""
        name = self.paths[0]
        if options.label is not None and options.label is not False:
            raise DataError(
                f"label={options.label!r}: svmlight lines begin with their label; leave label= "
                "out, or pass label=False for rows without labels."
            )
        self.require_content()
        limits = _index_limits(options)
        summary, pieces = self._check_text(options, limits)
        tally = summary.tally
        if tally.n_rows == 0:
            raise DataError(f"{name} holds no row, only blank lines or comments.")
        zero_based = options.zero_based
        first = int(summary.least != 0) if zero_based == "auto" else int(not zero_based)
        n_columns = options.n_columns or summary.largest - first + 1
        if summary.largest - first >= n_columns:
            # The column numbers begin at 0 after all: look again to name the line that is beyond.
            self._check_text(options, limits._replace(largest=n_columns - 1))
        wide = options.n_columns is not None or bool(options.project) or options.sparse is True
        self._check_width(n_columns, asked=wide)
        labels = None
        if options.label is not False:
            labels = tally.labels.conclude(name, options.task)
        details = {"pieces": pieces, "first_index": first, "n_columns": n_columns}
        bad, names, n_values = tally.bad_rows, Names(first_index=first), tally.n_values
        survey = Survey(
            tally.n_rows, n_columns, tally.dtype(), labels, bad, details, names, n_values
        )
        self.adopt(survey)
        return survey

    def _check_width(self, n_columns: int, asked: bool) -> None:
        """Refuse rows without columns, and of a width that a single index in the text has made."""
        name = self.paths[0]
        if n_columns < 1:
            raise DataError(f"{name} has labels only, no index:value pair.")
        if n_columns > WIDEST_OF_ALL:
            raise DataError(
                f"{name}: the largest index makes rows of {n_columns:,} columns, and at most "
                f"{WIDEST_OF_ALL:,} are read: give smaller numbers to the columns."
            )
        if not asked and n_columns > WIDEST:
            raise DataError(
                f"{name}: the largest index makes rows of {n_columns:,} columns, and more than "
                f"{WIDEST:,} are not written in full unasked: pass project= to make them shorter, "
                f"sparse=True for a store of sparse rows, or n_columns={n_columns} if you want "
                "them so."
            )

    def _check_text(
        self, options: SourceOptions, limits: IndexLimits
    ) -> tuple[TextSummary, list[Piece]]:
        total, summary = sum(map(file_size, self.paths)), TextSummary(Tally())
        pieces: list[Piece] = []
        with track("checking the text", total, "bytes", progress=options.progress) as report:
            for piece, part in self._summaries(options, limits):
                summary.join(part)
                if piece is not None:
                    pieces.append(piece._replace(rows=part.tally.n_rows))
                    report.advance(piece.stop - piece.start)
        return summary, pieces

    def _summaries(
        self, options: SourceOptions, limits: IndexLimits
    ) -> Iterator[tuple[Piece | None, TextSummary]]:
        if not self.in_parallel:
            for path in self.paths:
                for summary in _summarize_stream(path, limits, options.drop):
                    yield None, summary
            return
        pieces = [piece for path in self.paths for piece in plan_pieces(path, PIECE_BYTES)]
        tasks = (call_later(_summarize_piece, piece, limits, options.drop) for piece in pieces)
        found = run_tasks(tasks, options.client, block_bytes=PIECE_BYTES)
        yield from zip(pieces, found, strict=True)

    def adopt(self, survey: Survey) -> None:
        self.pieces = [Piece(*piece) for piece in survey.details["pieces"]]
        known = survey.details
        self.first_index, self.n_columns = known["first_index"], known["n_columns"]
        self.labelled = survey.labels is not None

    def narrowed(self, start: int, stop: int) -> SvmlightRows:
        ends = np.cumsum([piece.rows for piece in self.pieces])
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        begin = int(ends[first - 1]) if first else 0
        pieces = self.pieces[first : last + 1]
        return SvmlightRows(pieces, begin, self.n_columns, self.first_index, self.labelled)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield rows: from the pieces that hold them, or from the beginning of the stream."""
        if self.in_parallel:
            return self.narrowed(start, stop).read(start, stop)
        rows = (parse_rows(text) for path in self.paths for text in stream_lines(path))
        whole = SvmlightRows([], 0, self.n_columns, self.first_index, self.labelled)
        return between(map(whole.batch, rows), start, stop)


@dataclass(frozen=True)
class SvmlightRows:
    """The pieces of text that a task needs for its rows, and how they are read."""

    pieces: list[Piece]
    begin: int
    n_columns: int
    first_index: int
    labelled: bool

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the rows, one batch per piece."""
        tasks = (call_later(_parse_piece, piece) for piece in self.pieces)
        batches = map(self.batch, run_tasks(tasks, at_once=PARSED_AHEAD))
        return between(batches, start - self.begin, stop - self.begin)

    def batch(self, rows: TextRows) -> Batch:
        """Return the rows of one piece of text."""
        matrix = rows.matrix(self.n_columns, self.first_index)
        return Batch(matrix, rows.labels if self.labelled else None)


def _parse_piece(piece: Piece) -> TextRows:
    return parse_rows(read_piece(piece)[1])


def _summarize_piece(piece: Piece, limits: IndexLimits, drop: bool) -> TextSummary:
    start, text = read_piece(piece)
    try:
        return _summarize(text, limits, drop)
    except LineError as error:
        line = 1 + count_lines(piece.path, start + error.offset)
        raise DataError(f"{piece.path}, line {line}: {error.reason}.") from None


def _summarize_stream(path: str, limits: IndexLimits, drop: bool) -> Iterator[TextSummary]:
    lines = 0
    for text in stream_lines(path):
        try:
            yield _summarize(text, limits, drop)
        except LineError as error:
            line = 1 + lines + int(np.count_nonzero(text[: error.offset] == 10))
            raise DataError(f"{path}, line {line}: {error.reason}.") from None
        lines += int(np.count_nonzero(text == 10))


def _summarize(text: Array, limits: IndexLimits, drop: bool) -> TextSummary:
    rows = parse_rows(text, *limits)
    places = np.flatnonzero(~np.isfinite(rows.values))
    of_values = np.searchsorted(rows.indptr, places, side="right") - 1
    bad = np.union1d(of_values, np.flatnonzero(~np.isfinite(rows.labels)))
    if len(bad) and not drop:
        raise LineError(int(rows.starts[bad[0]]), _what_is_bad(rows, int(bad[0])))
    tally = Tally(n_values=len(rows.values))
    tally.add(len(rows), bad, rows.labels, rows.values)
    if not len(rows.indices):
        return TextSummary(tally)
    return TextSummary(tally, int(rows.indices.min()), int(rows.indices.max()))


def _what_is_bad(rows: TextRows, row: int) -> str:
    what = f"the label is {rows.labels[row]}"
    if np.isfinite(rows.labels[row]):
        inside = slice(rows.indptr[row], rows.indptr[row + 1])
        place = int(np.flatnonzero(~np.isfinite(rows.values[inside]))[0])
        what = f"column {rows.indices[inside][place]} is {rows.values[inside][place]}"
    return f"{what}, not a finite number: pass nan='drop' to leave such rows out"


@dataclass(frozen=True)
class TextRows:
    """Rows of one piece of text; column numbers are as written."""

    labels: FloatArray
    indptr: IntArray
    indices: Array
    values: FloatArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.labels)

    def matrix(self, n_columns: int, first_index: int) -> CSR:
        """Return the rows as CSR; `first_index` is what the file calls the first column."""
        parts = (self.values, self.indices - np.int32(first_index), self.indptr)
        return sparse.csr_matrix(parts, shape=(len(self), n_columns))


class LineError(DataError):
    """A line that is not svmlight; `offset` is where in the piece of text."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


@compiled()
def _is_space(c):  # type: ignore[no-untyped-def]
    return c == 32 or c == 9 or c == 13


@compiled()
def _token_end(text, i, stop):  # type: ignore[no-untyped-def]
    """Return where the characters up to the next blank, comment or line end stop."""
    while i < stop and not _is_space(text[i]) and text[i] != 10 and text[i] != 35:
        i += 1
    return i


@compiled()
def _is_query(text, i, end):  # type: ignore[no-untyped-def]
    """Whether a token is ``qid:7``, which groups rows for ranking and is passed over."""
    if end - i < 5 or text[i + 3] != 58:
        return False
    return text[i] == 113 and text[i + 1] == 105 and text[i + 2] == 100


@compiled()
def _skip_spaces(text, i, stop):  # type: ignore[no-untyped-def]
    while i < stop and _is_space(text[i]):
        i += 1
    return i


@compiled()
def _label_fault(text, start, end):  # type: ignore[no-untyped-def]
    """Return what is wrong with the first token of a line, before it is read as a number."""
    for j in range(start, end):
        if text[j] == 58:
            return _NO_LABEL
        if text[j] == 44:
            return _MANY_LABELS
    return _FINE


@compiled()
def _read_index(text, i, end, previous, least, largest):  # type: ignore[no-untyped-def]
    """Read the index of a pair; return it, the place of the colon, and what is wrong with it."""
    index = np.int64(0)
    j = i
    while j < end and 48 <= text[j] <= 57 and index <= LARGEST_INDEX:
        index = index * 10 + (text[j] - 48)
        j += 1
    if j < end and 48 <= text[j] <= 57:
        return index, j, _BEYOND
    if j == i or j + 1 >= end or text[j] != 58:
        return index, j, _NO_PAIR
    if index <= previous:
        return index, j, _ORDER
    if index > largest:
        return index, j, _BEYOND
    return index, j, _BELOW if index < least else _FINE


@compiled()
def _scan(text, least, largest, labels, indptr, indices, values, starts, slow):  # type: ignore[no-untyped-def]
    """Fill the arrays; return rows, values, slow numbers, the error's code and its place.

    One loop over lines with one over their pairs within. Compiled code cannot call Python's float:
    a number that needs it is noted in `slow` as its target (a value, or minus one minus the row of
    a label) and its place, and the caller fills it in.
    """
    stop = len(text)
    bits = np.zeros(1, np.uint64)
    value = bits.view(np.float64)
    rows = filled = n_slow = i = 0
    while i < stop:
        i = _skip_spaces(text, i, stop)
        if i < stop and text[i] != 10 and text[i] != 35:
            end = _token_end(text, i, stop)
            fault = _label_fault(text, i, end)
            if fault != _FINE:
                return rows, filled, n_slow, fault, i
            starts[rows] = i
            if parse_number(text, i, end, bits, value) == PARSED:
                labels[rows] = value[0]
            else:
                slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = -1 - rows, i, end
                n_slow += 1
            previous = np.int64(-1)  # indices must ascend
            i = _skip_spaces(text, end, stop)
            while i < stop and text[i] != 10 and text[i] != 35:
                end = _token_end(text, i, stop)
                if previous >= 0 or not _is_query(text, i, end):
                    index, colon, fault = _read_index(text, i, end, previous, least, largest)
                    if fault != _FINE:
                        return rows, filled, n_slow, fault, i
                    if parse_number(text, colon + 1, end, bits, value) == PARSED:
                        values[filled] = value[0]
                    else:
                        slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = filled, colon + 1, end
                        n_slow += 1
                    indices[filled] = previous = index
                    filled += 1
                i = _skip_spaces(text, end, stop)
            rows += 1
            indptr[rows] = filled
        while i < stop and text[i] != 10:
            i += 1
        i += 1
    return rows, filled, n_slow, _FINE, 0


def parse_rows(text: Array, least: int = 0, largest: int = LARGEST_INDEX) -> TextRows:
    """Parse whole lines of svmlight text.

    Parameters
    ----------
    text : ndarray of uint8
        The characters; the last line may lack its end.
    least, largest : int
        Smallest and largest column number that may occur.
    """
    # Counting line ends and colons first bounds the sizes, so that nothing grows while scanning.
    n_lines = int(np.count_nonzero(text == 10)) + 1
    n_values = int(np.count_nonzero(text == 58))
    labels, starts = np.empty(n_lines), np.empty(n_lines, np.int64)
    indptr = np.zeros(n_lines + 1, np.int64)
    indices, values = np.empty(n_values, np.int32), np.empty(n_values)
    slow = np.empty((n_lines + n_values, 3), np.int32)
    rows, filled, n_slow, code, place = _scan(
        text, least, min(largest, LARGEST_INDEX), labels, indptr, indices, values, starts, slow
    )
    # Numbers left to Python come before the place of the error, and may hold an earlier one.
    for target, start, end in slow[:n_slow].tolist():
        number = _python_number(text[start:end].tobytes(), start, label=target < 0)
        if target < 0:
            labels[-1 - target] = number
        else:
            values[target] = number
    if code != _FINE:
        raise LineError(place, _reason(text, code, place, least, largest))
    return TextRows(
        labels[:rows], indptr[: rows + 1], indices[:filled], values[:filled], starts[:rows]
    )


def _python_number(token: bytes, place: int, *, label: bool) -> float:
    try:
        return python_float(token)
    except ValueError:
        what = "a number as label" if label else "a number after the colon"
        raise LineError(place, f"expected {what}, found {_shown(token)}") from None


def _reason(text: Array, code: int, place: int, least: int, largest: int) -> str:
    token = _shown(text[place : _token_end(text, place, len(text))].tobytes())
    return {
        _NO_PAIR: f"expected index:value, found {token}",
        _ORDER: f"indices must ascend, but {token} does not exceed the index before it",
        _BEYOND: f"{token} lies beyond the largest index {largest}: pass a larger n_columns",
        _BELOW: f"{token} has an index below {least}: pass zero_based=True",
        _NO_LABEL: f"expected a label first, found {token}: the labels are missing",
        _MANY_LABELS: f"several labels per row ({token}) are not supported: keep one",
    }[code]


def _shown(token: bytes) -> str:
    shown = token[:40].decode("utf-8", "replace")
    return repr(shown + "..." if len(token) > 40 else shown)
