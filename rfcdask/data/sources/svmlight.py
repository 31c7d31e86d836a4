"""svmlight files as a source: plain ones by byte ranges in parallel, packed ones as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rfcdask.data.errors import DataError
from rfcdask.data.sources.base import Batch, Wishes, between
from rfcdask.data.sources.survey import Survey, Tally
from rfcdask.data.sources.svmlight_text import LARGEST_INDEX, LineError, TextRows, parse_rows
from rfcdask.data.sources.text import (
    Piece,
    count_lines,
    file_facts,
    file_size,
    is_compressed,
    plan_pieces,
    read_piece,
    stream_lines,
)
from rfcdask.execution.executor import call_later, run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.types import Array

WIDEST = 100_000
"""Columns of a dense store unless more are asked for: one index in the text may claim 10^9."""
WIDEST_OF_ALL = 50_000_000
"""Columns of rows that are projected, whose matrix has a number for each of them."""


@dataclass(frozen=True)
class Limits:
    """Which column numbers may occur."""

    least: int = 0
    largest: int = LARGEST_INDEX

    @classmethod
    def of(cls, wishes: Wishes) -> Limits:
        """Take them from what the caller said."""
        first = 1 if wishes.zero_based is False else 0
        if wishes.n_columns is None:
            return cls(least=first)
        # Before the file is seen, "auto" must allow for both ways of counting.
        last = wishes.n_columns - 1 if wishes.zero_based is True else wishes.n_columns
        return cls(first, last)


@dataclass
class Look:
    """What one piece of text holds."""

    tally: Tally
    least: int = LARGEST_INDEX + 1
    largest: int = -1

    def join(self, other: Look) -> None:
        """Take what the next piece holds."""
        self.tally.join(other.tally)
        self.least = min(self.least, other.least)
        self.largest = max(self.largest, other.largest)


class SvmlightFiles:
    """One or several svmlight files as one set of rows."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.pieces: list[Piece] = []
        self.first_index = 1
        self.n_columns = 0
        self.labelled = True

    @property
    def names(self) -> list[str]:
        """The files."""
        return self.paths

    @property
    def in_parallel(self) -> bool:
        """Plain files can be entered anywhere."""
        return not any(map(is_compressed, self.paths))

    def identity(self) -> Any:
        """Names, sizes and times of the files."""
        return [file_facts(path) for path in self.paths]

    def survey(self, wishes: Wishes) -> Survey:
        """Parse everything once; malformed lines are named here."""
        if wishes.label is not None and wishes.label is not False:
            raise DataError(
                f"label={wishes.label!r}: svmlight lines begin with their label; leave label= out, "
                "or pass label=False for rows without labels."
            )
        for path in self.paths:
            if file_size(path) == 0:
                raise DataError(f"{path} is empty: give a file with rows.")
        limits = Limits.of(wishes)
        look, pieces = self._look(wishes, limits)
        if look.tally.n_rows == 0:
            raise DataError(f"{self.paths[0]} holds no row, only blank lines or comments.")
        zero_based = wishes.zero_based
        first = int(look.least != 0) if zero_based == "auto" else int(not zero_based)
        n_columns = wishes.n_columns or look.largest - first + 1
        if look.largest - first >= n_columns:
            # The column numbers begin at 0 after all: look again to name the line that is beyond.
            self._look(wishes, replace(limits, largest=n_columns - 1))
        if n_columns < 1:
            raise DataError(f"{self.paths[0]} has labels only, no index:value pair.")
        self._check_width(n_columns, asked=wishes.n_columns is not None or bool(wishes.project))
        labels = None
        if wishes.label is not False:
            labels = look.tally.labels.conclude(self.paths[0], wishes.task)
        details = {"pieces": pieces, "first_index": first, "n_columns": n_columns}
        survey = Survey(
            look.tally.n_rows,
            n_columns,
            look.tally.dtype(),
            labels,
            np.asarray(look.tally.bad_rows, np.int64),
            details,
        )
        self.adopt(survey)
        return survey

    def _check_width(self, n_columns: int, asked: bool) -> None:
        """Refuse rows of a width that a single index in the text has made."""
        if n_columns > WIDEST_OF_ALL:
            raise DataError(
                f"{self.paths[0]}: the largest index makes rows of {n_columns:,} columns, and at "
                f"most {WIDEST_OF_ALL:,} are read: give smaller numbers to the columns."
            )
        if not asked and n_columns > WIDEST:
            raise DataError(
                f"{self.paths[0]}: the largest index makes rows of {n_columns:,} columns, and more "
                f"than {WIDEST:,} are not written in full unasked: pass project= to make them "
                f"shorter, or n_columns={n_columns} if you want them so."
            )

    def adopt(self, survey: Survey) -> None:
        """Take the pieces and the way of counting columns from a survey."""
        self.pieces = [Piece(*piece) for piece in survey.details["pieces"]]
        self.first_index = survey.details["first_index"]
        self.n_columns = survey.details["n_columns"]
        self.labelled = survey.labels is not None

    def narrowed(self, start: int, stop: int) -> SvmlightRows:
        """Return the pieces that hold these rows."""
        ends = np.cumsum([piece.rows for piece in self.pieces])
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        begin = int(ends[first - 1]) if first else 0
        pieces = self.pieces[first : last + 1]
        return SvmlightRows(pieces, begin, self.n_columns, self.first_index, self.labelled)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Give rows: from the pieces that hold them, or from the beginning of the stream."""
        if self.in_parallel:
            return self.narrowed(start, stop).read(start, stop)
        return between(self._stream(), start, stop)

    def _stream(self) -> Iterator[Batch]:
        for path in self.paths:
            for text in stream_lines(path):
                rows = parse_rows(text)
                yield _batch(rows, self.n_columns, self.first_index, self.labelled)

    def _look(self, wishes: Wishes, limits: Limits) -> tuple[Look, list[Piece]]:
        total = sum(map(file_size, self.paths))
        look = Look(Tally())
        pieces: list[Piece] = []
        with track("checking the text", total, "bytes", progress=wishes.progress) as report:
            for piece, part in self._looks(wishes, limits):
                look.join(part)
                if piece is not None:
                    pieces.append(piece._replace(rows=part.tally.n_rows))
                    report.advance(piece.stop - piece.start)
        return look, pieces

    def _looks(self, wishes: Wishes, limits: Limits) -> Iterator[tuple[Piece | None, Look]]:
        if not self.in_parallel:
            for path in self.paths:
                yield from ((None, look) for look in _look_at_stream(path, limits, wishes.drop))
            return
        pieces = [piece for path in self.paths for piece in plan_pieces(path)]
        tasks = (call_later(_look_at_piece, piece, limits, wishes.drop) for piece in pieces)
        yield from zip(pieces, run_tasks(tasks, wishes.client), strict=True)


@dataclass(frozen=True)
class SvmlightRows:
    """The pieces of text that a task needs for its rows."""

    pieces: list[Piece]
    begin: int
    n_columns: int
    first_index: int
    labelled: bool

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Give the rows, one batch a piece."""
        return between(self._batches(), start - self.begin, stop - self.begin)

    def _batches(self) -> Iterator[Batch]:
        """Parse some pieces ahead: a store of few blocks would leave the other cores idle."""
        for rows in run_tasks((call_later(_parse, piece) for piece in self.pieces), at_once=3):
            yield _batch(rows, self.n_columns, self.first_index, self.labelled)


def _parse(piece: Piece) -> TextRows:
    return parse_rows(read_piece(piece)[1])


def _batch(rows: TextRows, n_columns: int, first_index: int, labelled: bool) -> Batch:
    return Batch(rows.matrix(n_columns, first_index), rows.labels if labelled else None)


def _look_at_piece(piece: Piece, limits: Limits, drop: bool) -> Look:
    start, text = read_piece(piece)
    try:
        return _look_at(text, limits, drop)
    except LineError as error:
        line = 1 + count_lines(piece.path, start + error.offset)
        raise DataError(f"{piece.path}, line {line}: {error.reason}.") from None


def _look_at_stream(path: str, limits: Limits, drop: bool) -> Iterator[Look]:
    lines = 0
    for text in stream_lines(path):
        try:
            yield _look_at(text, limits, drop)
        except LineError as error:
            line = 1 + lines + int(np.count_nonzero(text[: error.offset] == 10))
            raise DataError(f"{path}, line {line}: {error.reason}.") from None
        lines += int(np.count_nonzero(text == 10))


def _look_at(text: Array, limits: Limits, drop: bool) -> Look:
    rows = parse_rows(text, limits.least, limits.largest)
    bad = _bad_rows(rows)
    if len(bad) and not drop:
        raise LineError(int(rows.starts[bad[0]]), _what_is_bad(rows, int(bad[0])))
    tally = Tally()
    tally.add(len(rows), rows.values, bad, np.delete(rows.labels, bad))
    if not len(rows.indices):
        return Look(tally)
    return Look(tally, int(rows.indices.min()), int(rows.indices.max()))


def _bad_rows(rows: TextRows) -> Array:
    places = np.flatnonzero(~np.isfinite(rows.values))
    of_values = np.searchsorted(rows.indptr, places, side="right") - 1
    return np.union1d(of_values, np.flatnonzero(~np.isfinite(rows.labels)))


def _what_is_bad(rows: TextRows, row: int) -> str:
    remedy = "pass nan='drop' to leave such rows out"
    if not np.isfinite(rows.labels[row]):
        return f"the label is {rows.labels[row]}, not a finite number: {remedy}"
    inside = slice(rows.indptr[row], rows.indptr[row + 1])
    place = int(np.flatnonzero(~np.isfinite(rows.values[inside]))[0])
    index, value = rows.indices[inside][place], rows.values[inside][place]
    return f"column {index} is {value}, not a finite number: {remedy}"
