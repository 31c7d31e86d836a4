"""CSV and TSV files as a source, read by pyarrow; a line that it refuses is looked up and named."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from rfcdask.data.columns import (
    MISSING,
    Label,
    Names,
    choose_columns,
    label_names,
    several_are_numbers,
)
from rfcdask.data.errors import DataError, NotNumbersError, missing_extra
from rfcdask.data.sources.base import (
    Batch,
    Source,
    SourceOptions,
    Survey,
    Tally,
    bad_rows_of,
    is_text,
)
from rfcdask.data.sources.dialect import (
    READ_BYTES,
    SAMPLE_BYTES,
    Dialect,
    blank_bytes,
    line_too_long,
    sniff,
)
from rfcdask.data.sources.text import (
    FileSource,
    between,
    file_size,
    is_number,
    open_text,
    python_float,
    stream_lines,
)
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import Array
from rfcdask.persist.untrusted import reason

BLOCK_BYTES = 2**20
"""Bytes of a block of pyarrow, which reads 32 of them ahead; those for files with a longer line
have READ_BYTES."""


@dataclass(frozen=True)
class TableColumns:
    """Names of all columns, of those to read, of the label, whether labels are text, and gaps."""

    names: tuple[str, ...]
    features: tuple[str, ...]
    label: Label
    text_labels: bool = False
    missing: tuple[str, ...] = MISSING


class CsvFiles(FileSource):
    """One or several delimited files with the same columns as one set of rows."""

    in_parallel = False  # a stream; pyarrow itself converts columns on several threads

    def __init__(self, paths: list[str]) -> None:
        super().__init__(paths)
        self.dialect = Dialect()
        self.columns = TableColumns((), (), None)
        self.orders: dict[str, tuple[str, ...]] = {}
        """Names of the columns of files that have them in another order than the first."""

    def survey(self, options: SourceOptions) -> Survey:
        """Read everything once; what does not fit is named here."""
        names = self._agree(options)
        tally = self._look(options)
        if tally.labels.mixed:
            # Some batches read as numbers, others do not: then all labels are text.
            self.columns = replace(self.columns, text_labels=True)
            tally = self._look(options)
        if tally.n_rows == 0:
            raise DataError(
                f"{self.paths[0]} holds no row below its header: give a file with rows."
            )
        labels = None
        if self.columns.label is not None:
            label = label_names(self.columns.label)
            labels = tally.labels.conclude(self.paths[0], options.task, label=label)
            self.columns = replace(self.columns, text_labels=labels.text)
        details = {
            "dialect": asdict(self.dialect),
            "columns": asdict(self.columns),
            "orders": self.orders,
        }
        n_columns, dtype = len(self.columns.features), tally.dtype()
        return Survey(tally.n_rows, n_columns, dtype, labels, tally.bad_rows, details, names)

    def adopt(self, survey: Survey) -> None:
        self.dialect = Dialect(**survey.details["dialect"])
        columns = survey.details["columns"]
        names, features = tuple(columns["names"]), tuple(columns["features"])
        label = columns["label"]
        label = tuple(label) if isinstance(label, list) else label
        self.columns = TableColumns(names, features, label, columns["text_labels"])
        self.orders = {path: tuple(order) for path, order in survey.details["orders"].items()}

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield rows from the beginning of the stream on."""
        text = self.columns.text_labels
        batches = (
            Batch(X, labels_of_text(path, batch, self.columns.label, text))
            for path in self.paths
            for X, batch in self._batches(path)
        )
        return between(batches, start, stop)

    def _agree(self, options: SourceOptions) -> Names:
        """Find out what the files look like, the same for all of them, and choose columns."""
        self.require_content()
        found = {path: sniff(path, options.delimiter, options.header) for path in self.paths}
        first = self.paths[0]
        self.dialect, columns = found[first]
        for path, (dialect, names) in found.items():
            if dialect.header != self.dialect.header:
                said = "a header" if dialect.header else "no header"
                raise DataError(f"{path} has {said}, unlike {first}: give every file one, or none.")
            if options.columns is not None and not dialect.header:
                raise DataError(f"{path} names no columns to choose from: leave columns= out.")
            if not dialect.header and names != columns:
                raise DataError(
                    f"{path}: {len(columns)} columns expected as in {first}, {len(names)} found."
                )
        tables = {path: names for path, (_, names) in found.items()}
        chosen = choose_columns(tables, options.label, options.columns, ", line 1")
        self.orders = {path: names for path, names in tables.items() if names != columns}
        self.columns = TableColumns(columns, chosen.columns or (), chosen.label)
        return chosen if self.dialect.header else Names(label_column=chosen.label_column)

    def _of(self, path: str) -> TableColumns:
        return replace(self.columns, names=self.orders.get(path, self.columns.names))

    def as_table(self, options: SourceOptions) -> Source | None:
        from rfcdask.data.sources.tables import CsvTable, Table

        self.require_content()
        found = [
            CsvTable(path, *sniff(path, options.delimiter, options.header)) for path in self.paths
        ]
        return Table(found, self) if all(part.dialect.header for part in found) else None

    def _batches(self, path: str) -> Iterator[tuple[Array, Any]]:
        """Yield rows, and the batch that has their labels."""
        n_columns = len(self.columns.features)
        for batch in read_csv(path, self.dialect, self._of(path)):
            X = np.empty((batch.num_rows, n_columns))
            for place in range(n_columns):
                X[:, place] = batch.column(place).to_numpy(zero_copy_only=False)
            yield X, batch

    def _look(self, options: SourceOptions) -> Tally:
        tally, text = Tally(), self.columns.text_labels or None
        total = sum(map(file_size, self.paths))
        with track("checking the text", None, "rows", progress=options.progress) as report:
            report.note(f"{total / 1e6:,.0f} MB")
            for path in self.paths:
                begin = tally.n_rows
                for X, batch in self._batches(path):
                    labels = labels_of_text(path, batch, self.columns.label, text)
                    bad = bad_rows_of(X, labels)
                    if len(bad) and not options.drop:
                        raise self._say_bad(path, tally.n_rows - begin + int(bad[0]), X[bad[0]])
                    tally.add(len(X), bad, labels, X)
                    report.advance(len(X))
        return tally

    def _say_bad(self, path: str, row: int, values: Array) -> DataError:
        columns = np.flatnonzero(~np.isfinite(values))
        what = "the label is missing"
        if len(columns):
            what = f"column {self.columns.features[columns[0]]!r} is missing or not finite"
        line = find_line(path, self.dialect, row)
        said = f"{path}, line {line}: {what}: pass nan='drop' to leave such rows out."
        return NotNumbersError(said, missing=True)


def find_line(path: str, dialect: Dialect, row: int) -> int:
    """Return the line of a file in which a row stands."""
    lines = (line for line, _ in _data_lines(path, dialect))
    return next((line for number, line in enumerate(lines) if number == row), row + 1)


def read_csv(path: str, dialect: Dialect, columns: TableColumns, text: bool = False) -> Any:
    """Yield the record batches of a file: numbers and the label's text, or all of it as text."""
    import pyarrow as pa

    with open_text(path) as file:
        head = file.read(SAMPLE_BYTES)
    done = 0
    for size in (BLOCK_BYTES, READ_BYTES):
        with open_text(path) as file:
            file.read(blank_bytes(head))  # else pyarrow skips a blank line for the header
            try:
                for batch in _after(
                    done, _open_csv(_WholeEnds(file), dialect, columns, size, text)
                ):
                    yield batch
                    done += batch.num_rows
                return
            except pa.ArrowInvalid as error:
                if "block boundar" in str(error) and len(head) < min(size, SAMPLE_BYTES):
                    return  # all of it is one block: a header alone, without a line end
                if "block boundar" in str(error) and size < READ_BYTES:
                    continue  # a longer line: read on from there in larger blocks
                known = replace(columns, features=()) if text else columns
                raise _explain(path, dialect, known, reason(error)) from None


class _WholeEnds:
    """A file of which no read ends between CR and LF.

    Where a block begins with LF after a CR, pyarrow leaves it out, also of text in quotes.
    """

    closed = False

    def __init__(self, file: Any) -> None:
        self._file, self._held = file, b""

    def read(self, size: int) -> bytes:
        text: bytes = self._held + self._file.read(size - len(self._held))
        self._held = b""
        if text.endswith(b"\r") and len(text) > 1 and (more := self._file.read(1)):
            text, self._held = text[:-1], b"\r" + more
        return text


def _after(done: int, batches: Any) -> Iterator[Any]:
    """Leave out so many rows."""
    for batch in batches:
        if done < batch.num_rows:
            yield batch.slice(done)
        done = max(0, done - batch.num_rows)


def _open_csv(file: Any, dialect: Dialect, columns: TableColumns, size: int, text: bool) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import csv as arrow
    except ImportError:
        raise missing_extra("pyarrow", "tables", "Reading CSV") from None
    types = {name: pa.string() if text else pa.float64() for name in columns.features}
    types |= dict.fromkeys(label_names(columns.label), pa.string())
    return arrow.open_csv(
        file,
        read_options=arrow.ReadOptions(
            column_names=list(columns.names),
            skip_rows_after_names=int(dialect.header),  # a row: names may go over several lines
            block_size=size,
        ),
        # Text, also that of labels, names and columns that are left out, may go over several lines.
        parse_options=arrow.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        convert_options=arrow.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=list(columns.missing),
            strings_can_be_null=True,
        ),
    )


def numeric_or_text(column: Any, text: bool | None) -> Array:
    """Turn a column of strings into numbers where all of them are numbers.

    Parameters
    ----------
    column : pyarrow array of strings
        Labels, null where missing.
    text : bool or None
        Whether labels are known to be text; None tries numbers first.
    """
    values = column.to_numpy(zero_copy_only=False)
    if not text:
        try:
            return np.array([np.nan if value is None else python_float(value) for value in values])
        except ValueError:
            if text is False:
                raise
    return np.asarray(values, object)


def labels_of_text(path: str, batch: Any, label: Label, text: bool | None) -> Array | None:
    """Return the labels of a batch, of several targets as columns of numbers."""
    if label is None or isinstance(label, str):
        return None if label is None else numeric_or_text(batch.column(label), text)
    found = [numeric_or_text(batch.column(name), None) for name in label]
    for name, values in zip(label, found, strict=True):
        if is_text(values):
            raise several_are_numbers(path, name)
    return np.column_stack(found)


def _data_lines(path: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line below the header; blank lines count as lines."""
    pieces = (text.tobytes().decode("utf-8", "replace") for text in stream_lines(path))
    marked = (piece.removeprefix("\ufeff") for piece in pieces)
    lines = (line for piece in marked for line in io.StringIO(piece, newline=""))
    reader, skip = csv.reader(lines, delimiter=dialect.delimiter), dialect.header
    try:
        for fields in reader:
            if fields and not skip:
                yield reader.line_num, fields
            skip = skip and not any(map(str.strip, fields))
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {error}: fix the line, or look for a quote that is "
            "never closed."
        ) from None


def _explain(path: str, dialect: Dialect, columns: TableColumns, message: str) -> DataError:
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
            if name in numbers and field not in MISSING and not _is_plain_number(field):
                return NotNumbersError(
                    f"{path}, line {line}: expected a number in column {name!r}, found "
                    f"{field[:40]!r}: give the file a first line that names its columns, then text "
                    "and dates are taken too."
                )
    if "UTF8" in message:
        message = "it holds text in another encoding than UTF-8: write it as UTF-8"
    return DataError(f"{path}: {message}.")


def _is_plain_number(field: str) -> bool:
    """Whether pyarrow reads a number: without other blanks than these, and other digits."""
    text = field.strip(" \t")
    return text.isascii() and text == text.strip() and text not in MISSING and is_number(text)
