"""CSV and TSV files as a source, read by pyarrow; a line that it refuses is looked up and named."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from rfcdask.data.columns import (
    Names,
    check_names,
    check_same,
    choose_columns,
    numeric_or_text,
)
from rfcdask.data.errors import DataError, missing_extra
from rfcdask.data.sources.base import Batch, Wishes, between
from rfcdask.data.sources.csv_dialect import (
    SAMPLE_BYTES,
    Dialect,
    blank_bytes,
    is_number,
    line_too_long,
    sniff,
)
from rfcdask.data.sources.survey import Survey, Tally, bad_rows_of
from rfcdask.data.sources.text import file_facts, file_size, open_text, stream_lines
from rfcdask.execution.progress import track
from rfcdask.kernels.types import Array
from rfcdask.persist.untrusted import reason

READ_BYTES = 4 * 2**20
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")


@dataclass(frozen=True)
class Columns:
    """Names of all columns, of those to read, of the label, and whether labels are text."""

    names: tuple[str, ...]
    features: tuple[str, ...]
    label: str | None
    text_labels: bool = False


class CsvFiles:
    """One or several delimited files with the same columns as one set of rows."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.dialect = Dialect()
        self.columns = Columns((), (), None)
        self.orders: dict[str, tuple[str, ...]] = {}
        """Names of the columns of files that have them in another order than the first."""

    @property
    def names(self) -> list[str]:
        """The files."""
        return self.paths

    @property
    def in_parallel(self) -> bool:
        """Streams only; pyarrow itself converts columns on several threads."""
        return False

    def identity(self) -> Any:
        """Names, sizes and times of the files."""
        return [file_facts(path) for path in self.paths]

    def survey(self, wishes: Wishes) -> Survey:
        """Read everything once; what does not fit is named here."""
        self.dialect, self.columns = self._agree(wishes)
        tally = self._look(wishes)
        if tally.labels.mixed:
            # Some batches read as numbers, others do not: then all labels are text.
            self.columns = replace(self.columns, text_labels=True)
            tally = self._look(wishes)
        if tally.n_rows == 0:
            raise DataError(
                f"{self.paths[0]} holds no row below its header: give a file with rows."
            )
        labels = None
        if self.columns.label is not None:
            labels = tally.labels.conclude(self.paths[0], wishes.task)
            self.columns = replace(self.columns, text_labels=labels.text)
        n_columns = len(self.columns.features)
        bad = np.asarray(tally.bad_rows, np.int64)
        details = {
            "dialect": asdict(self.dialect),
            "columns": asdict(self.columns),
            "orders": self.orders,
        }
        names = self._found_names()
        return Survey(tally.n_rows, n_columns, tally.dtype(), labels, bad, details, names)

    def _found_names(self) -> Names:
        columns = self.columns
        place = None if columns.label is None else columns.names.index(columns.label)
        if not self.dialect.header:
            return Names(label_column=place)
        known = {*columns.features, columns.label}
        there = dict.fromkeys(name for path in self.paths for name in self._names(path))
        left_out = tuple(name for name in there if name not in known)
        return Names(columns.features, None, columns.label, place, left_out)

    def _names(self, path: str) -> tuple[str, ...]:
        return self.orders.get(path, self.columns.names)

    def adopt(self, survey: Survey) -> None:
        """Take dialect and columns from an earlier survey."""
        self.dialect = Dialect(**survey.details["dialect"])
        columns = survey.details["columns"]
        names, features = tuple(columns["names"]), tuple(columns["features"])
        self.columns = Columns(names, features, columns["label"], columns["text_labels"])
        self.orders = {path: tuple(order) for path, order in survey.details["orders"].items()}

    def narrowed(self, start: int, stop: int) -> CsvFiles:
        """Return itself."""
        return self

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Give rows from the beginning of the stream on."""
        return between(self._all(), start, stop)

    def _all(self) -> Iterator[Batch]:
        for path in self.paths:
            for X, y in self._batches(path):
                yield Batch(X, None if y is None else numeric_or_text(y, self.columns.text_labels))

    def _agree(self, wishes: Wishes) -> tuple[Dialect, Columns]:
        for path in self.paths:
            if file_size(path) == 0:
                raise DataError(f"{path} is empty: give a file with rows.")
        found = [sniff(path, wishes.delimiter, wishes.header) for path in self.paths]
        dialect, names = found[0]
        for path, (look, other) in zip(self.paths, found, strict=True):
            if look.header != dialect.header:
                said = "a header" if look.header else "no header"
                raise DataError(
                    f"{path} has {said}, unlike {self.paths[0]}: give every file one, or none."
                )
            if wishes.columns is None:
                check_names(f"{path}, line 1", other)
            elif not dialect.header:
                raise DataError(f"{path} names no columns to choose from: leave columns= out.")
        features, label = choose_columns(self.paths[0], names, wishes.label, wishes.columns)
        known = [*features] if label is None else [*features, label]
        for path, (_, other) in zip(self.paths, found, strict=True):
            if other == names:
                continue
            if not dialect.header:
                raise DataError(
                    f"{path}: {len(names)} columns expected as in {self.paths[0]}, {len(other)} "
                    "found."
                )
            check_same(path, other, self.paths[0], known, more=wishes.columns is not None)
            self.orders[path] = other
        return dialect, Columns(names, tuple(features), label)

    def _of(self, path: str) -> Columns:
        return replace(self.columns, names=self._names(path))

    def _batches(self, path: str) -> Iterator[tuple[Array, Any]]:
        import pyarrow as pa

        with open_text(path) as file:
            blank = blank_bytes(file.read(SAMPLE_BYTES))
        with open_text(path) as file:
            file.read(blank)  # else pyarrow skips a blank line for the header
            try:
                for batch in _open_csv(file, self.dialect, self._of(path)):
                    yield self._arrays(batch)
            except pa.ArrowInvalid as error:
                raise explain(path, self.dialect, self._of(path), reason(error)) from None

    def _arrays(self, batch: Any) -> tuple[Array, Any]:
        n_columns = len(self.columns.features)
        X = np.empty((batch.num_rows, n_columns))
        for place in range(n_columns):
            X[:, place] = batch.column(place).to_numpy(zero_copy_only=False)
        return X, None if self.columns.label is None else batch.column(n_columns)

    def _look(self, wishes: Wishes) -> Tally:
        tally = Tally()
        total = sum(map(file_size, self.paths))
        with track("checking the text", None, "rows", progress=wishes.progress) as report:
            report.note(f"{total / 1e6:,.0f} MB")
            for path in self.paths:
                begin = tally.n_rows
                for X, y in self._batches(path):
                    self._add(tally, path, begin, X, y, wishes.drop)
                    report.advance(len(X))
        return tally

    def _add(self, tally: Tally, path: str, begin: int, X: Array, y: Any, drop: bool) -> None:
        text = self.columns.text_labels or None
        labels = None if y is None else numeric_or_text(y, text)
        bad = bad_rows_of(X, labels)
        if len(bad) and not drop:
            raise self._say_bad(path, tally.n_rows - begin + int(bad[0]), X[bad[0]])
        tally.add(len(X), X, bad, None if labels is None else np.delete(labels, bad))

    def _say_bad(self, path: str, row: int, values: Array) -> DataError:
        line = line_of_row(path, self.dialect, row)
        columns = np.flatnonzero(~np.isfinite(values))
        what = (
            f"column {self.columns.features[columns[0]]!r} is missing or not finite"
            if len(columns)
            else ("the label is missing")
        )
        return DataError(f"{path}, line {line}: {what}: pass nan='drop' to leave such rows out.")


def _open_csv(file: Any, dialect: Dialect, columns: Columns) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import csv as arrow
    except ImportError:
        raise missing_extra("pyarrow", "tables", "Reading CSV") from None
    types = {name: pa.float64() for name in columns.features}
    if columns.label is not None:
        types[columns.label] = pa.string()
    return arrow.open_csv(
        file,
        read_options=arrow.ReadOptions(
            column_names=list(columns.names),
            skip_rows=int(dialect.header),
            block_size=READ_BYTES,
        ),
        parse_options=arrow.ParseOptions(
            delimiter=dialect.delimiter,
            # Text in a column that is left out may go over several lines.
            newlines_in_values=len(types) < len(columns.names),
        ),
        convert_options=arrow.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=list(MISSING),
            strings_can_be_null=True,
        ),
    )


def _data_lines(path: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    pieces = (text.tobytes().decode("utf-8", "replace") for text in stream_lines(path))
    lines = (line for piece in pieces for line in io.StringIO(piece, newline=""))
    reader = csv.reader(lines, delimiter=dialect.delimiter)
    skip = dialect.header
    try:
        for fields in reader:
            if fields and not skip:
                yield reader.line_num, fields
            skip = skip and not any(map(str.strip, fields))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}: fix the line.") from None


def line_of_row(path: str, dialect: Dialect, row: int) -> int:
    """Return the line of the file that holds a row; blank lines count as lines."""
    for number, (line, _) in enumerate(_data_lines(path, dialect)):
        if number == row:
            return line
    return row + 1


def explain(path: str, dialect: Dialect, columns: Columns, message: str) -> DataError:
    """Find the first line that pyarrow could not take, and say what was expected there."""
    if "block boundar" in message:
        return line_too_long(path)
    expected, numbers = len(columns.names), set(columns.features)
    for line, fields in _data_lines(path, dialect):
        if len(fields) != expected:
            return DataError(
                f"{path}, line {line}: expected {expected} fields, found {len(fields)}: fix the "
                "line, or pass delimiter= if that is not the one between fields."
            )
        for name, field in zip(columns.names, fields, strict=True):
            text = field.strip()
            if name in numbers and text not in MISSING and not is_number(text):
                return DataError(
                    f"{path}, line {line}: expected a number in column {name!r}, found "
                    f"{text[:40]!r}: encode text as numbers first."
                )
    return DataError(f"{path}: {message}.")
