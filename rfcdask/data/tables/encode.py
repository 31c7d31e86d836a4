"""From the columns of a block, of whatever Arrow types they come, to an array of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rfcdask.data.errors import DataError
from rfcdask.data.tables.spec import ColumnSpec, TableSpec
from rfcdask.data.tables.summary import date_parts, level_hash, microseconds, numbers_of
from rfcdask.kernels.arrays import Array

LARGEST = 1e150
"""Numbers beyond this have no square, and so no deviation."""
SAMPLE = 1000
"""Values of a text column by which it is told whether they are dates."""
SINGLY = 200
"""Values that are tried one by one where not all are of one kind."""
TIME = pa.timestamp("us")
_ARROW = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string(), "date": TIME}
_EXPECTED = {"number": "a number", "boolean": "true or false", "date": "a date", "category": "text"}


class ValueKindError(DataError):
    """A value that is not of the kind of its column; `row` counts from the block's first."""

    def __init__(self, row: int, column: str, kind: str, value: Any) -> None:
        self.row, self.column = row, column
        shown = repr(str(value)[:40])
        self.said = f"expected {_EXPECTED[kind]} in column {column!r}, found {shown}"
        remedy = "write dates as 2024-12-31 or give their format" if kind == "date" else "fix it"
        self.remedy = f"{remedy}, or pass columns={{{column!r}: 'category'}} to take it as text"
        if kind == "number" and isinstance(value, float):
            self.remedy = "leave such rows out, or write the value as missing"
        super().__init__(f"row {row}: {self.said}: {self.remedy}.")

    def at(self, where: str) -> DataError:
        """Return the error with the name of the place."""
        return DataError(f"{where}: {self.said}: {self.remedy}.")

    def __reduce__(self) -> Any:
        return _rebuilt, (self.args[0],)


def _rebuilt(message: str) -> DataError:
    return DataError(message)


def kind_of(column: Any, from_text: bool = False) -> str | None:
    """Tell the kind of a column by its Arrow type, and text by its first values.

    Text that reads as numbers is numbers where all columns are text (`from_text`), else levels.

    None stands for a column without values, whose kind nobody knows yet. A type that is none of a
    table's, such as a list, is returned by its own name.
    """
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return None
    if types.is_dictionary(kind):
        return "category"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_duration(kind):
        return "number"
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return "date"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        first = _present(pc.cast(column, pa.string())).slice(0, SAMPLE)
        return _kind_of_text(first, ("number", "date") if from_text else ("date",))
    return str(kind)


def _present(column: Any) -> Any:
    """Return the values of a text column that are there; blank text is none."""
    return column.filter(pc.not_equal(pc.utf8_trim_whitespace(column), ""))


def _kind_of_text(values: Any, kinds: tuple[str, ...]) -> str | None:
    if not len(values):
        return None
    if set(pc.utf8_lower(values).to_pylist()) <= {"true", "false"}:
        return "boolean"
    # Where most are numbers or dates, the others are most likely faults, to be named as such.
    few = values.slice(0, SINGLY)
    for kind in kinds:
        if _converts(values, kind) or 2 * sum(_converts(v, kind) for v in _singly(few)) >= len(few):
            return kind
    return "category"


def _singly(values: Any) -> Iterator[Any]:
    return (values.slice(place, 1) for place in range(len(values)))


def _converts(values: Any, kind: str) -> bool:
    try:
        _converted(values, kind, None)
    except pa.ArrowInvalid:
        return False
    return True


def as_kind(column: Any, name: str, kind: str, format: str | None = None) -> Any:
    """Return a column with the one Arrow type of its kind, null where a value is missing."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        made = _converted(column, kind, format)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise _fault(column, name, kind, format) from None
    if kind == "number":
        wrong = pc.greater(pc.abs(made), LARGEST)  # null stays null
        place = pc.index(wrong, True).as_py()
        if place >= 0:
            raise ValueKindError(place, name, kind, made[place].as_py())
    return made


def _converted(column: Any, kind: str, format: str | None) -> Any:
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_string_view(column.type) or types.is_large_string(column.type):
        column = pc.cast(column, pa.string())
    text = types.is_string(column.type)
    if text:
        column = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    if kind == "date":
        return _as_time(column, text, format)
    if kind == "number":
        return _as_number(column)
    if kind == "boolean" and (types.is_integer(column.type) or types.is_floating(column.type)):
        whole = pc.cast(column, pa.int8())  # refuses what is neither
        return pc.cast(pc.cast(whole, pa.string()), pa.bool_())
    return pc.cast(column, _ARROW[kind])


def _as_number(column: Any) -> Any:
    if pa.types.is_duration(column.type):
        ticks = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        return pc.divide(pc.cast(pc.cast(column, pa.int64()), pa.float64()), ticks)
    made = pc.cast(column, pa.float64(), safe=False)
    # What is not a number is missing.
    return pc.if_else(pc.is_nan(made), pa.scalar(None, pa.float64()), made)


def _as_time(column: Any, text: bool, format: str | None) -> Any:
    """Return times in microseconds; zones are left to UTC, times of a day begin in 1970."""
    if text and format is not None:
        column = pc.strptime(column, format=format, unit="us")
    elif pa.types.is_time(column.type):
        wide = pc.cast(column, pa.time64("us" if column.type.bit_width == 32 else column.type.unit))
        column = pc.cast(pc.cast(wide, pa.time64("us"), safe=False), pa.int64())
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        raise pa.ArrowInvalid("a number is no date")
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.cast(column, pa.timestamp(column.type.unit))
    return pc.cast(column, TIME, safe=False)


def _fault(column: Any, name: str, kind: str, format: str | None) -> DataError:
    """Find the first value that cannot be of the kind."""

    def fails(stop: int) -> bool:
        try:
            _converted(column.slice(0, stop), kind, format)
        except pa.ArrowException:
            return True
        return False

    place = first_where(fails, len(column)) - 1
    try:
        value = column[place].as_py()
    except (pa.ArrowException, UnicodeDecodeError, ValueError):  # bytes that are no text
        value = str(column.type)
    return ValueKindError(place, name, kind, value)


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
            out = rows[:, place : place + column.width]
            _ENCODERS[column.kind](values, column, out)
            if column.missing:
                out[:, -1] = np.asarray(values.is_null())
            place += column.width
    return rows


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
    coded = values.dictionary_encode()
    known = {level: place for place, level in enumerate(column.levels)}
    n_known = len(known)

    def target(level: str) -> int:
        if level in known:
            return known[level]
        if column.hashed:
            return n_known + level_hash(level) % column.hashed
        return n_known if column.other else -1  # a level never seen has no column

    targets = np.array([target(level) for level in coded.dictionary.to_pylist()] + [-1])
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
