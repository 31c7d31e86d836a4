"""From frames of any kind to Arrow tables, the kinds of their columns, and arrays of numbers.

Everything that looks at several blocks takes an iterator of Arrow tables, so that files, frames and
partitions are learned from in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rfcdask.data.columns import check_names
from rfcdask.data.errors import DataError
from rfcdask.data.tables import (
    KINDS,
    Choices,
    ColumnSpec,
    TableSpec,
    ValueKindError,
    list_faults,
    value_errors,
)
from rfcdask.data.tables.summary import (
    SKETCH,
    SKETCH_OF_ALL,
    Decided,
    Summary,
    date_parts,
    known_places,
    level_hash,
    levels_or_gaps,
    microseconds,
    numbers_of,
    plain_level,
    summarize,
    unit_of,
)
from rfcdask.execution.cluster import current_client
from rfcdask.execution.executor import run_tasks
from rfcdask.kernels.arrays import Array

LARGEST = 1e150
"""Numbers beyond this have no square, and so no deviation."""
SAMPLE = 1000
"""Values of a text column by which it is told whether they are dates."""
SINGLY = 200
"""Values that are tried one by one where not all are of one kind."""
TIME = pa.timestamp("us")
_ARROW = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string(), "date": TIME}
_KINDS = {
    "category": (pa.types.is_dictionary,),
    "boolean": (pa.types.is_boolean,),
    "number": (
        *(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration),
    ),
    "date": (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time),
}
"""The kinds of columns that their Arrow types tell."""


def kind_of(column: Any, from_text: bool = False) -> str | None:
    """Tell the kind of a column by its Arrow type, and text by its first values.

    Text that reads as numbers is numbers where all columns are text (`from_text`), else levels.

    None stands for a column without values, whose kind nobody knows yet. A type that is none of a
    table's, such as a list, is returned by its own name.
    """
    if pa.types.is_null(column.type):
        return None
    for kind, tests in _KINDS.items():
        if any(test(column.type) for test in tests):
            return kind
    if not _is_text(column.type):
        return str(column.type)
    try:
        first = _present(pc.cast(column, pa.string())).slice(0, SAMPLE)
        return _kind_of_text(first, ("number", "date") if from_text else ("date",))
    except pa.ArrowInvalid:
        return "bytes that are no text"


def _is_text(kind: Any) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _present(column: Any) -> Any:
    """Return the values of a text column that are there; blank text is none."""
    return column.filter(pc.not_equal(pc.utf8_trim_whitespace(column), ""))


def _kind_of_text(values: Any, kinds: tuple[str, ...]) -> str | None:
    if not len(values):
        return None
    if set(pc.utf8_lower(values).to_pylist()) <= {"true", "false"}:
        return "boolean"
    # Where most are numbers or dates, the others are most likely faults, to be named as such.
    for kind in kinds:
        if _converts(values, kind) or _most_convert(values.slice(0, SINGLY), kind):
            return kind
    if "number" in kinds:
        number = r"^\s*[-+]?\d+([.' \x{A0}\x{202F}]\d{3})*(,\d+)+(\.\d+)?([eE][-+]?\d+)?\s*$"
        if 2 * pc.sum(pc.match_substring_regex(values, number)).as_py() >= len(values):
            return "numbers with commas (write them as 1234.5, or choose 'category' for levels)"
    return "category"


def _most_convert(values: Any, kind: str) -> bool:
    counted = pc.value_counts(values)  # a wide table has thousands of columns, of few words each
    words, counts = counted.field(0), counted.field(1).to_pylist()
    good = (n for place, n in enumerate(counts) if _converts(words.slice(place, 1), kind))
    return 2 * sum(good) >= len(values)


def _converts(values: Any, kind: str) -> bool:
    try:
        _converted(values, kind, None)
    except pa.ArrowInvalid:
        return False
    return True


def as_kind(column: Any, name: str, kind: str, format: str | None = None) -> Any:
    """Return a column with the Arrow type of its kind, null where a value is missing.

    Times of a day and durations keep types of their own: in other units they are other values.
    """
    column = one_chunk(column)
    if isinstance(column.type, pa.BaseExtensionType):  # of periods Arrow takes the days since 1970
        raise ValueKindError(0, name, kind, column.type)
    try:
        made = _converted(column, kind, format)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise _fault(column, name, kind, format) from None
    if kind == "number" and not unit_of(made):
        wrong = pc.greater(pc.abs(made), LARGEST)  # null stays null
        place = pc.index(wrong, True).as_py()
        if place >= 0:
            raise ValueKindError(place, name, kind, made[place].as_py())
    return made


def _converted(column: Any, kind: str, format: str | None) -> Any:
    if pa.types.is_dictionary(column.type):
        levels = column.dictionary  # of polars they are views of text, which Arrow cannot take from
        levels = pc.cast(levels, pa.string()) if _is_text(levels.type) else levels
        column = levels.take(column.indices)
    text = _is_text(column.type)
    if text:
        column = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    if kind == "date":
        return _as_time(column, text, format)
    if kind == "number":
        return _as_number(column)
    if kind == "boolean" and _is_plain_number(column.type):
        whole = pc.cast(column, pa.int8())  # refuses what is neither
        return pc.cast(pc.cast(whole, pa.string()), pa.bool_())
    if text and kind == "category":
        column = pc.cast(column, pa.binary())  # else their bytes would not be looked at
    return pc.cast(column, _ARROW[kind])


def _is_plain_number(kind: Any) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _as_number(column: Any) -> Any:
    if pa.types.is_duration(column.type):
        return column
    made = pc.cast(column, pa.float64(), safe=False)
    # What is not a number is missing.
    return pc.if_else(pc.is_nan(made), pa.scalar(None, pa.float64()), made)


def _as_time(column: Any, text: bool, format: str | None) -> Any:
    """Return times in microseconds; zones are left to UTC."""
    if text and format is not None:
        column = pc.strptime(column, format=format, unit="us")
    elif text:
        try:
            return pc.cast(column, TIME)
        except pa.ArrowInvalid:  # with zones, as 2024-12-31T23:59:00+01:00, all or none
            column = pc.cast(column, pa.timestamp("us", "UTC"))
    elif pa.types.is_time(column.type):
        wide = pc.cast(column, pa.time64("us" if column.type.bit_width == 32 else column.type.unit))
        return pc.cast(wide, pa.time64("us"), safe=False)
    elif _is_plain_number(column.type):
        raise pa.ArrowInvalid("a number is no date")
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.cast(column, pa.timestamp(column.type.unit))
    # Of nanoseconds the rest is dropped; larger units may be beyond what microseconds can count.
    return pc.cast(column, TIME, safe=getattr(column.type, "unit", None) != "ns")


def _fault(column: Any, name: str, kind: str, format: str | None) -> DataError:
    """Find the first value that cannot be of the kind."""

    def fails(stop: int) -> bool:
        try:
            _converted(column.slice(0, stop), kind, format)
        except pa.ArrowException:
            return True
        return False

    place = first_where(fails, len(column)) - 1
    return ValueKindError(place, name, kind, _shown(column, place))


def _shown(column: Any, place: int) -> Any:
    try:
        return column[place].as_py()
    except (pa.ArrowException, OverflowError, ValueError):  # bytes that are no text, no such date
        return str(column.type)


def one_chunk(column: Any) -> Any:
    """Return a column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def first_where(holds: Callable[[int], bool], most: int) -> int:
    """Return the least number from 1 to `most` at which something holds that stays so."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def encode(table: Any, spec: TableSpec) -> Array:
    """Return the rows of an Arrow table, which has the columns of the spec by name, as float32."""
    width = sum(column.width for column in spec.columns)
    rows = np.zeros((table.num_rows, width), np.float32)
    place = 0
    for column in spec.columns:
        if column.width:
            values = as_kind(table.column(column.name), column.name, column.kind, column.format)
            values = levels_or_gaps(values, column)
            _require_unit(values, column)
            out = rows[:, place : place + column.width]
            _ENCODERS[column.kind](values, column, out)
            if column.missing:
                out[:, -1] = np.asarray(values.is_null())
            place += column.width
    return rows


def _require_unit(values: Any, column: ColumnSpec) -> None:
    """Refuse times of a day where dates were learned, seconds where durations were, and so on."""
    if not column.takes(unit_of(values)) and values.null_count < len(values):
        place = pc.index(values.is_null(), False).as_py()
        expected = column.unit or column.kind
        raise ValueKindError(place, column.name, expected, _shown(values, place))


def _encode_number(values: Any, column: ColumnSpec, out: Array) -> None:
    found = numbers_of(values)
    out[:, 0] = (np.where(np.isnan(found), column.fill, found) - column.center) / column.scale


def _encode_date(values: Any, column: ColumnSpec, out: Array) -> None:
    _encode_number(values, column, out)
    parts = date_parts(microseconds(values)) if column.circles else {}
    missing = np.asarray(values.is_null())
    for place, circle in enumerate(column.circles):
        angle = 2 * np.pi * parts[circle]
        waves = np.stack([np.sin(angle), np.cos(angle)], axis=1)
        waves[missing] = 0.0  # the middle of the circle, as far from every day as from any other
        out[:, 1 + 2 * place : 3 + 2 * place] = waves


def _encode_levels(values: Any, column: ColumnSpec, out: Array) -> None:
    coded, n_known = values.dictionary_encode(), len(column.levels)
    levels = coded.dictionary.to_pylist()
    known = known_places(levels, column.levels)
    others = [n_known if column.other else -1] * len(levels)  # a level never seen has no column
    if column.hashed:
        spelled = map(plain_level, levels) if column.alike else levels
        others = [n_known + level_hash(level) % column.hashed for level in spelled]
    targets = np.array([*map(known.get, levels, others), -1])
    # A value that is missing, where none was before, has no column either.
    places = targets[coded.indices.fill_null(len(targets) - 1).to_numpy(zero_copy_only=False)]
    rows = np.flatnonzero(places >= 0)
    out[rows, places[rows]] = 1.0


_ENCODERS = {
    "number": _encode_number,
    "boolean": _encode_number,
    "date": _encode_date,
    "category": _encode_levels,
}


BATCH_ROWS = 2**16


def is_dask_frame(X: Any) -> bool:
    """Whether this is a dask DataFrame."""
    return hasattr(X, "to_dask_array") and hasattr(X, "columns")


def is_frame(X: Any) -> bool:
    """Whether this is a table in memory: of pandas, polars, pyarrow or what else gives Arrow."""
    columns = hasattr(X, "columns") and getattr(X, "ndim", 2) == 2
    arrow = hasattr(X, "__arrow_c_stream__") and columns
    return isinstance(X, pa.Table | pa.RecordBatch) or arrow or _is_pandas(X)


def _is_pandas(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pandas" and hasattr(X, "iloc") and X.ndim == 2


def frame_names(X: Any) -> list[str]:
    """Return the names of the columns of any frame."""
    found = X.schema.names if isinstance(X, pa.Table | pa.RecordBatch) else list(X.columns)
    return [str(name) for name in found]


def to_arrow(X: Any, name: str = "X") -> Any:
    """Return a frame in memory as an Arrow table."""
    names = frame_names(X)
    check_names(name, names)
    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if not _is_pandas(X):
        try:
            return pa.table(X)
        except pa.ArrowException as error:  # whole numbers of 128 bits, of polars
            raise DataError(
                f"{name} has a column of a type that Arrow lacks ({error}): cast it to one that it "
                "has, such as a 64-bit number or text."
            ) from error
    columns = [_arrow_column(X.iloc[:, place], names[place], name) for place in range(len(names))]
    return pa.Table.from_arrays(columns, names=names)


def _arrow_column(column: Any, name: str, where: str) -> Any:
    if hasattr(column, "sparse"):  # which Arrow does not know
        column = column.sparse.to_dense()
    try:
        found = pa.Array.from_pandas(column)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise DataError(
            f"{where}: column {name!r} mixes values that no column holds together "
            f"({', '.join(kinds[:5])}): make them all numbers, or all text with astype(str)."
        ) from error
    return one_chunk(found)


def decide_kinds(
    blocks: Iterable[Any],
    names: Sequence[str],
    choices: Choices,
    where: str,
    *,
    from_text: bool = False,
) -> Decided:
    """Tell the kind of each column, from as many blocks as that takes; all bad ones are named.

    In a file of text numbers are text too, and told by `from_text`.
    """
    choices.require_known(names, where)
    found: dict[str, str | None] = {name: choices.kind(name) for name in names}
    bad: dict[str, str | None] = {}
    for block in blocks:
        open_ones = [name for name, kind in found.items() if kind is None]
        found |= {name: kind_of(block.column(name), from_text) for name in open_ones}
        bad = {name: kind for name, kind in found.items() if kind not in (None, *KINDS)}
        if bad or None not in found.values():
            break
    if bad:
        faults = [f"column {name!r} holds {kind}" for name, kind in bad.items()]
        drop = ", ".join(f"{name!r}: 'drop'" for name in bad)
        raise list_faults(where, faults, f"leave such columns out with columns={{{drop}}}")
    return {name: kind or "drop" for name, kind in found.items()}


def convert_block(block: Any, kinds: Decided, choices: Choices) -> dict[str, Any]:
    """Return the columns of a block that are not left out, each with the type of its kind."""
    return {
        name: as_kind(block.column(name), name, kind, choices.format(name))
        for name, kind in kinds.items()
        if kind != "drop"
    }


def summarize_columns(columns: dict[str, Any], kinds: Decided) -> dict[str, Summary]:
    """Look at the converted columns of a block."""
    size = max(1024, min(SKETCH, SKETCH_OF_ALL // max(1, len(kinds))))
    return {name: summarize(kinds[name], column, size) for name, column in columns.items()}


def summarize_block(
    block: Any, kinds: Decided, choices: Choices, where: str, first: int = 0
) -> dict[str, Summary]:
    """Look at all columns of a block, whose first row is number `first` of `where`."""
    with value_errors(partial("{}, row {}".format, where), first, learned=False):
        return summarize_columns(convert_block(block, kinds, choices), kinds)


def arrow_blocks(parts: list[Any], client: Any = None) -> Iterator[Any]:
    """Compute partitions one after another, and yield them as Arrow tables."""
    for frame in run_tasks(iter(parts), current_client(client), at_once=1):
        table = to_arrow(frame)
        if table.num_rows:
            yield table


def numbered_batches(table: Any) -> Iterator[tuple[int, Any]]:
    """Yield a table in batches of rows, each with the number of its first row."""
    first = 0
    for block in table.to_batches(BATCH_ROWS):
        yield first, block
        first += block.num_rows


def encode_table(table: Any, spec: TableSpec, where: str = "X") -> Array:
    """Encode a table in memory whose columns may stand in any order, block by block."""
    rows = np.empty((table.num_rows, len(spec.names)), np.float32)
    for first, block in numbered_batches(table):
        with value_errors(partial("{}, row {}".format, where), first):
            rows[first : first + block.num_rows] = encode(block, spec)
    return rows


def look_at_partition(
    frame: Any, kinds: Decided, choices: Choices, place: int
) -> tuple[int, dict[str, Summary]]:
    """Return the rows and the summaries of a partition of a dask DataFrame."""
    table = to_arrow(frame)
    return table.num_rows, summarize_block(table, kinds, choices, f"X, partition {place}")


def encode_partition(frame: Any, spec: TableSpec, place: int, n_rows: int) -> Array:
    """Encode a partition of a dask DataFrame."""
    table = to_arrow(frame)
    if table.num_rows != n_rows:  # else labels would belong to other rows
        raise DataError(
            f"X, partition {place} has {table.num_rows} rows and had {n_rows} when they were "
            "counted: its source has changed since, so transform it again."
        )
    return encode_table(table, spec, f"X, partition {place}")
