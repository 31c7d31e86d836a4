"""svmlight files as a source: plain ones by byte ranges in parallel, packed ones as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rfcdask.data.errors import DataError
from rfcdask.data.sources.base import Batch, SourceOptions, Survey, Tally, between
from rfcdask.data.sources.files import (
    PIECE_BYTES,
    FileSource,
    Piece,
    count_lines,
    file_size,
    is_compressed,
    plan_pieces,
    read_piece,
    stream_lines,
)
from rfcdask.data.sources.svmlight_text import LARGEST_INDEX, LineError, TextRows, parse_rows
from rfcdask.execution.executor import call_later, run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import Array

WIDEST = 100_000
"""Columns of a store unless more are asked for: one index in the text may claim 10^9."""
WIDEST_OF_ALL = 50_000_000
"""Columns of rows that are projected, whose matrix has a number for each of them."""
PARSED_AHEAD = 3
"""Pieces of a block that are parsed at once: a store of few blocks would leave cores idle."""


@dataclass(frozen=True)
class IndexLimits:
    """Which column numbers may occur."""

    least: int = 0
    largest: int = LARGEST_INDEX

    @classmethod
    def of(cls, options: SourceOptions) -> IndexLimits:
        """Take them from what the caller said."""
        first = 1 if options.zero_based is False else 0
        if options.n_columns is None:
            return cls(least=first)
        # Before the file is seen, "auto" must allow for both ways of counting.
        last = options.n_columns - 1 if options.zero_based is True else options.n_columns
        return cls(first, last)


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


def _wants_wide(options: SourceOptions) -> bool:
    """Whether the caller said that rows of very many columns are what is meant."""
    return options.n_columns is not None or bool(options.project) or options.sparse is True


class SvmlightFiles(FileSource):
    """One or several svmlight files as one set of rows."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(paths)
        self.in_parallel = not any(map(is_compressed, paths))  # plain files are entered anywhere
        self.pieces: list[Piece] = []
        self.first_index = 1
        self.n_columns = 0
        self.labelled = True

    def survey(self, options: SourceOptions) -> Survey:
        """Parse everything once; malformed lines are named here."""
        name = self.paths[0]
        if options.label is not None and options.label is not False:
            raise DataError(
                f"label={options.label!r}: svmlight lines begin with their label; leave label= "
                "out, or pass label=False for rows without labels."
            )
        self.require_content()
        limits = IndexLimits.of(options)
        summary, pieces = self._check_text(options, limits)
        if summary.tally.n_rows == 0:
            raise DataError(f"{name} holds no row, only blank lines or comments.")
        zero_based = options.zero_based
        first = int(summary.least != 0) if zero_based == "auto" else int(not zero_based)
        n_columns = options.n_columns or summary.largest - first + 1
        if summary.largest - first >= n_columns:
            # The column numbers begin at 0 after all: look again to name the line that is beyond.
            self._check_text(options, replace(limits, largest=n_columns - 1))
        self._check_width(n_columns, asked=_wants_wide(options))
        labels = None
        if options.label is not False:
            labels = summary.tally.labels.conclude(name, options.task)
        details = {"pieces": pieces, "first_index": first, "n_columns": n_columns}
        tally = summary.tally
        survey = Survey(
            tally.n_rows,
            n_columns,
            tally.dtype(),
            labels,
            tally.bad_rows,
            details,
            n_values=tally.n_values,
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
        total = sum(map(file_size, self.paths))
        summary = TextSummary(Tally())
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
                yield from (
                    (None, summary) for summary in _summarize_stream(path, limits, options.drop)
                )
            return
        pieces = [piece for path in self.paths for piece in plan_pieces(path)]
        tasks = (call_later(_summarize_piece, piece, limits, options.drop) for piece in pieces)
        found = run_tasks(tasks, options.client, block_bytes=PIECE_BYTES)
        yield from zip(pieces, found, strict=True)

    def adopt(self, survey: Survey) -> None:
        self.pieces = [Piece(*piece) for piece in survey.details["pieces"]]
        self.first_index = survey.details["first_index"]
        self.n_columns = survey.details["n_columns"]
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
    rows = parse_rows(text, limits.least, limits.largest)
    places = np.flatnonzero(~np.isfinite(rows.values))
    of_values = np.searchsorted(rows.indptr, places, side="right") - 1
    bad = np.union1d(of_values, np.flatnonzero(~np.isfinite(rows.labels)))
    if len(bad) and not drop:
        raise LineError(int(rows.starts[bad[0]]), _what_is_bad(rows, int(bad[0])))
    tally = Tally()
    tally.add(len(rows), bad, rows.labels, rows.values)
    tally.n_values = len(rows.values)
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
