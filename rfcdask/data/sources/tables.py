"""Tables with columns of all kinds as a source: CSV, Parquet, frames in memory and Dask's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from dask.base import tokenize

from rfcdask.data.columns import (
    MISSING,
    Label,
    Names,
    choose_columns,
    label_names,
    quoted,
)
from rfcdask.data.errors import DataError, NotNumbersError
from rfcdask.data.sources.arrays import ArrayRows, InMemory
from rfcdask.data.sources.base import (
    Batch,
    Source,
    SourceOptions,
    Survey,
    Tally,
    is_missing,
)
from rfcdask.data.sources.csv import TableColumns, find_line, labels_of_text, read_csv
from rfcdask.data.sources.dialect import Dialect
from rfcdask.data.sources.parquet import (
    check_label,
    common_type,
    label_columns,
    numpy_type,
    parquet_schema,
    read_parquet,
)
from rfcdask.data.tables import Choices, TableSpec, value_errors
from rfcdask.data.tables.encode import (
    BATCH_ROWS,
    arrow_blocks,
    convert_block,
    decide_kinds,
    encode,
    frame_names,
    is_dask_frame,
    summarize_columns,
    to_arrow,
)
from rfcdask.data.tables.summary import (
    Decided,
    Summary,
    conclude_all,
    join_summaries,
    no_columns,
    without_words,
)
from rfcdask.execution.dask_internals import token_of_frame
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import Array, IntArray

BATCH_VALUES = 2**21
"""Values of a batch of rows that are read at once."""
SHOWN_ROWS = 5


@dataclass(frozen=True)
class CsvTable:
    """A delimited file with names in its first line, read as text."""

    name: str
    dialect: Dialect
    columns: tuple[str, ...]
    levels: dict[str, set[str]] = field(default_factory=dict)
    """Levels by column that elsewhere mean that a value is missing, such as NA for Namibia."""
    from_text = True

    def blocks(self, wanted: list[str], label: Label) -> Iterator[Any]:
        """Yield record batches of some columns and the label."""
        found = TableColumns(self.columns, tuple(wanted), label)
        if not self.levels:
            yield from read_csv(self.name, self.dialect, found, text=True)
            return
        for block in read_csv(self.name, self.dialect, replace(found, missing=("",)), text=True):
            made = [
                without_words(values, self.levels.get(name, ()))
                for name, values in zip(block.schema.names, block.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(made, schema=block.schema)

    def knowing(self, spec: TableSpec) -> CsvTable:
        """Return the file, to be read by what was learned, maybe of a table of another format."""
        found = {column.name: {*column.levels} & {*MISSING} for column in spec.columns}
        return replace(self, levels={name: levels for name, levels in found.items() if levels})

    def place(self, row: int) -> str:
        """Say where a row stands."""
        return f"{self.name}, line {find_line(self.name, self.dialect, row)}"

    def schema(self) -> Any:
        """Return the types of the columns, where the file knows them."""
        return None


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file."""

    name: str
    columns: tuple[str, ...]
    from_text = False

    def blocks(self, wanted: list[str], label: Label) -> Iterator[Any]:
        names = [*wanted, *label_names(label)]
        yield from read_parquet(self.name, names, max(1, BATCH_VALUES // max(1, len(names))))

    def place(self, row: int) -> str:
        return f"{self.name}, row {row}"

    def schema(self) -> Any:
        return parquet_schema(self.name)


@dataclass(frozen=True)
class FrameTable:
    """A table in memory, or a dask DataFrame, of which one partition is in memory at a time."""

    frame: Any
    name: str = "the frame"
    from_text = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(frame_names(self.frame))

    def blocks(self, wanted: list[str], label: Label) -> Iterator[Any]:
        names = [*wanted, *label_names(label)]
        if isinstance(self.frame, pa.Table):
            tables: Iterable[Any] = [self.frame.select(names)]
        else:
            tables = arrow_blocks(self.frame[names].to_delayed())
        for table in tables:
            yield from table.to_batches(BATCH_ROWS)

    def place(self, row: int) -> str:
        return f"{self.name}, row {row}"

    def schema(self) -> Any:
        return self.frame.schema if isinstance(self.frame, pa.Table) else None


class Table(Source):
    """Files or frames with the same columns, matched by name, as one set of encoded rows."""

    in_parallel = False  # a stream; Arrow itself works on several threads

    def __init__(self, parts: list[Any], origin: Source, label: str | None = None) -> None:
        self.parts = parts
        self.origin = origin
        self.own_label = label  # counts more than what the options say
        self.in_memory = origin.in_memory
        self.spec = TableSpec((), 0)
        self.label: Label = None
        self.text_labels: bool | None = None
        self.kinds: Decided = {}
        self.choices = Choices()

    @property
    def names(self) -> list[str]:
        return self.origin.names

    def identity(self) -> Any:
        return self.origin.identity()

    def survey(self, options: SourceOptions) -> Survey:
        """Look at every value once: what is learned of the columns, and what is missing."""
        given, where = options.table, self.parts[0].name
        known = given if isinstance(given, TableSpec) else None
        wanted = options.columns if known is None else tuple(known.inputs)
        tables = {part.name: part.columns for part in self.parts}
        names = choose_columns(tables, self.own_label or options.label, wanted)
        features, self.label = list(names.columns or ()), names.label
        self._know(known or TableSpec((), 0))
        if known is None:
            self.choices = given or Choices()
            text = self.parts[0].from_text
            found = self._to_decide_by([f for f in features if self.choices.kind(f) is None])
            self.kinds = decide_kinds(found, features, self.choices, where, from_text=text)
        else:
            self.kinds = {column.name: column.kind for column in known.columns if column.width}
            formats = {column.name: column.format for column in known.columns if column.format}
            self.choices = Choices({}, formats)
        tally, seen = self._look(options, learn=known is None)
        if tally.labels.mixed:
            self.text_labels = True  # numbers in some batches, text in others: all are text
            tally, seen = self._look(options, learn=known is None)
        n_kept = tally.n_rows - len(tally.bad_rows)
        if n_kept == 0:
            what = "no row" if tally.n_rows == 0 else "no row without a missing value"
            raise DataError(f"{where} holds {what}: give a file with rows.")
        self.spec = known or conclude_all(seen, self.kinds, self.choices, n_kept, where)
        return self._conclude(tally, names, options)

    def _to_decide_by(self, names: list[str]) -> Iterator[Any]:
        """Yield blocks to tell kinds by: the first without rows, for types that say it alone."""
        if (schema := self.parts[0].schema()) is not None:
            # Schema.empty_table knows not every type, such as tensors.
            yield pa.table({name: pa.nulls(0, schema.field(name).type) for name in names})
        yield from (block for _, _, block in self._blocks(names, None))

    def _conclude(self, tally: Tally, names: Names, options: SourceOptions) -> Survey:
        labels = None
        if self.label is not None:
            schemas = {part.name: part.schema() for part in self.parts}
            typed = all(schema is not None for schema in schemas.values())
            given = common_type(schemas, self.label) if typed and not tally.labels.text else None
            own = label_names(self.label)
            labels = tally.labels.conclude(self.parts[0].name, options.task, given, own)
            self.text_labels = labels.text
        record = self.spec.to_json()
        named = Names(
            tuple(self.spec.names), None, self.label, names.label_column, self._left_out(names)
        )
        details = {"label": self.label, "text_labels": self.text_labels}
        width, dtype = len(self.spec.names), np.dtype(np.float32).str
        return Survey(
            tally.n_rows, width, dtype, labels, tally.bad_rows, details, named, table=record
        )

    def _left_out(self, names: Names) -> tuple[str, ...]:
        known = {column.name for column in self.spec.columns}
        return tuple(name for name in names.left_out if name not in known)

    def _know(self, spec: TableSpec) -> None:
        self.parts = [part.knowing(spec) if part.from_text else part for part in self.parts]

    def adopt(self, survey: Survey) -> None:
        self.spec = TableSpec.from_json(survey.table)
        self._know(self.spec)
        self.label, self.text_labels = survey.names.label, survey.details["text_labels"]

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield encoded rows, from the beginning of the stream on."""
        begin = 0
        for part, first, block in self._blocks(self.spec.inputs, self.label):
            a, b = max(start - begin, 0), min(stop - begin, block.num_rows)
            begin += block.num_rows
            if a < b:
                some = block.slice(a, b - a)
                with value_errors(part.place, first + a):
                    rows = encode(some, self.spec)
                yield Batch(rows, self._labels(part, some))
            if begin >= stop:
                return

    def _blocks(self, wanted: list[str], label: Label) -> Iterator[tuple[Any, int, Any]]:
        """Yield each part, the number of the block's first row within it, and the block."""
        for part in self.parts:
            first = 0
            for block in part.blocks(wanted, label):
                yield part, first, block
                first += block.num_rows

    def _labels(self, part: Any, block: Any) -> Array | None:
        if part.from_text:
            return labels_of_text(part.name, block, self.label, self.text_labels)
        return label_columns(part.name, block, self.label)

    def _look(self, options: SourceOptions, *, learn: bool) -> tuple[Tally, dict[str, Summary]]:
        """Go over all rows: learn from those that stay, and note those that do not."""
        tally, unlabelled = Tally(), Unlabelled()
        seen: list[dict[str, Summary]] = []
        if self.label is not None:
            schemas = {part.name: part.schema() for part in self.parts}
            check_label({name: known for name, known in schemas.items() if known}, self.label)
        wanted = [name for name, kind in self.kinds.items() if kind != "drop"]
        with track("looking at the columns", None, "rows", progress=options.progress) as report:
            for part, first, block in self._blocks(wanted, self.label):
                with value_errors(part.place, first, learned=not learn):
                    columns = convert_block(block, self.kinds, self.choices)
                if not columns:
                    raise no_columns(part.name)
                labels = self._labels(part, block)
                bad = self._bad_rows(part, first, columns, labels, options.nan, unlabelled)
                tally.add(block.num_rows, np.flatnonzero(bad), labels)
                if bad.any():
                    keep = pa.array(~bad)
                    columns = {name: column.filter(keep) for name, column in columns.items()}
                if learn:
                    seen = [join_summaries([*seen, summarize_columns(columns, self.kinds)])]
                report.advance(block.num_rows)
        unlabelled.refuse(self.label)
        return tally, seen[0] if seen else {}

    def _bad_rows(
        self,
        part: Any,
        first: int,
        columns: dict[str, Any],
        labels: Array | None,
        nan: str,
        unlabelled: Unlabelled,
    ) -> Any:
        """Return which rows are left out; refuse what is missing and was not to be."""
        bad: Any = np.zeros(len(next(iter(columns.values()))), bool)
        if nan in ("drop", "raise"):
            gaps = {name: np.asarray(column.is_null()) for name, column in columns.items()}
            bad = np.logical_or.reduce([bad, *gaps.values()])
            if nan == "raise" and bad.any():
                row = int(np.argmax(bad))
                name = next(name for name, missing in gaps.items() if missing[row])
                raise DataError(
                    f"{part.place(first + row)}: column {name!r} has no value: pass nan='auto' to "
                    "fill such gaps, or nan='drop' to leave such rows out."
                )
        if labels is not None:
            without = is_missing(labels)
            if nan in ("auto", "raise"):
                unlabelled.add(part, first, np.flatnonzero(without))
            bad |= without
        return bad


class FrameRows(Source):
    """A frame: of numbers without gaps as they are, else, and of Dask, a table of all kinds."""

    def __init__(self, frame: Any, labels: Any = None) -> None:
        self.own_label: str | None = None
        self.in_memory = not is_dask_frame(frame)
        self.in_parallel = self.in_memory
        if self.in_memory:
            frame = to_arrow(frame, "the frame")
        if labels is not None:
            self.own_label = "label"
            while self.own_label in frame_names(frame):
                self.own_label += "_"
            frame = _with_labels(frame, self.own_label, labels)
        self.frame = frame
        self._plain = ArrayRows(())

    @property
    def names(self) -> list[str]:
        return ["the frame"]

    def identity(self) -> Any:
        if not self.in_memory:
            return token_of_frame(self.frame)
        columns = [column.to_pandas() for column in self.frame.columns]
        return tokenize(columns, frame_names(self.frame))

    def as_table(self, options: SourceOptions) -> Source:
        return Table([FrameTable(self.frame)], self, self.own_label)

    def survey(self, options: SourceOptions) -> Survey:
        """Take the columns as they are if they are numbers."""
        tables = {"the frame": frame_names(self.frame)}
        names = choose_columns(tables, self.own_label or options.label, options.columns)
        self._take(names)
        return replace(self._plain.survey(options), names=names)

    def adopt(self, survey: Survey) -> None:
        self._take(survey.names)

    def _take(self, names: Names) -> None:
        features = list(names.columns or ())
        schema = self.frame.schema if self.in_memory else None
        if not (schema and all(numpy_type(schema.field(name).type) for name in features)):
            raise NotNumbersError("the frame holds other columns than numbers.")
        X = np.column_stack([_number_values(self.frame.column(name)) for name in features])
        y = None
        if names.label is not None:
            check_label({"the frame": schema}, names.label)
            y = InMemory(label_columns("the frame", self.frame, names.label), "y")
        self._plain = ArrayRows(((InMemory(X, "the frame"), y),))

    def narrowed(self, start: int, stop: int) -> Any:
        return self._plain.narrowed(start, stop)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        return self._plain.read(start, stop)


def _with_labels(frame: Any, name: str, labels: Any) -> Any:
    """Put labels beside the columns of a frame in memory."""
    if not isinstance(frame, pa.Table) or hasattr(labels, "dask"):
        raise DataError(
            "labels beside a frame must lie in memory with it: add them as a column, as by "
            "frame.assign(label=y), of a dask DataFrame with y from dask.array in chunks of the "
            "rows of its partitions, and pass label='label'."
        )
    values = np.asarray(labels)
    if values.ndim != 1 or len(values) != frame.num_rows:
        raise DataError(
            f"the frame has {frame.num_rows} rows but y has shape {values.shape}: give one label "
            "for each row."
        )
    return frame.append_column(name, pa.array(values, from_pandas=True))


def _number_values(column: Any) -> Array:
    """Return a column of numbers, NaN where they are missing."""
    return np.asarray((column.cast(pa.float64()) if column.null_count else column).to_numpy())


class Unlabelled:
    """Counts rows without a label, and remembers where the first of them are."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[tuple[Any, int]] = []

    def add(self, part: Any, first: int, rows: IntArray) -> None:
        """Take rows of a block."""
        self.count += len(rows)
        room = SHOWN_ROWS - len(self.first)
        self.first += [(part, first + int(row)) for row in rows[: max(room, 0)]]

    def refuse(self, label: Label) -> None:
        """Raise if there were any."""
        if self.count:
            places = ", ".join(part.place(row) for part, row in self.first)
            more = ", ..." if self.count > len(self.first) else ""
            rows = "1 row" if self.count == 1 else f"{self.count:,} rows"
            raise DataError(
                f"the label {quoted(label_names(label))} is missing in {rows} ({places}{more}): "
                "pass nan='drop-unlabelled' to leave such rows out."
            )
