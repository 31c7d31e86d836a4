"""What is learned of a column, from blocks that may come in any order and of any size.

Every summary is of bounded size and joins with that of other rows to the very same result, bit for
bit, however the rows were cut:

- sums of numbers and of their squares are whole numbers in units of 2^-1074, so no rounding depends
  on the order; the squares are taken exactly too (Dekker's product);
- the median comes from counts of sorted values, exact up to `SKETCH` distinct ones; beyond, the
  lowest bits are cut off until so many are left, so it is off by at most the width of one bin, and
  there are at least half as many bins as fit;
- levels are counted exactly up to `MOST_LEVELS`; beyond, their number is estimated from the
  smallest hashes (the standard error is 3 percent).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rfcdask.data.columns import MISSING
from rfcdask.data.errors import DataError
from rfcdask.data.tables import CIRCLES, Choices, ColumnSpec, TableSpec, list_faults
from rfcdask.kernels.arrays import LEAST_SQUARE, Array, FloatArray, IntArray
from rfcdask.kernels.runtime import compiled

SKETCH = 2**16
"""Bins from which a median is found, of each column; fewer when there are many columns."""
SKETCH_OF_ALL = 2**24
MOST_LEVELS = 10_000
LONGEST_LEVEL = 200
"""A level with more characters than this gets no column of its own."""
NEARLY_ALL = 0.9
"""Text of which more than this share of the values are different is taken for no category."""
_HASHES = 1024
_WHOLE = re.compile(r"-?\d+\.0")
_POWER = re.compile(r"-?\d(\.\d+)?e[-+]\d{1,2}")
_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d[ T])?(\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
_UNIT = 1074
DAY = 86_400_000_000
"""Microseconds of a day."""
Decided = dict[str, str]
"""Kinds of columns by name."""


@compiled()
def _add_number(value, bits, sums):  # type: ignore[no-untyped-def]
    """Add a finite number to whole sums by its exponent, as two halves that cannot overflow."""
    exponent = (bits >> 52) & 0x7FF
    digits = bits & 0xFFFFFFFFFFFFF
    if exponent > 0:
        digits |= 1 << 52
    if bits < 0:
        digits = -digits
    sums[exponent, 0] += digits >> 32
    sums[exponent, 1] += digits & 0xFFFFFFFF


@compiled()
def _add_numbers(values, sums, squares):  # type: ignore[no-untyped-def]
    """Add finite values, and their squares as a product and what its rounding left over."""
    word = np.zeros(1)
    bits = word.view(np.int64)
    for i in range(len(values)):
        value = values[i]
        word[0] = value
        _add_number(value, bits[0], sums)
        product = value * value
        split = 134217729.0 * value  # 2^27 + 1 cuts the 53 digits into two halves
        high = split - (split - value)
        low = value - high
        rest = ((high * high - product) + 2.0 * high * low) + low * low
        word[0] = product
        _add_number(product, bits[0], squares)
        word[0] = rest
        _add_number(rest, bits[0], squares)


def _whole(sums: IntArray) -> int:
    used = np.flatnonzero(sums.any(axis=1)).tolist()
    return sum(((int(sums[e, 0]) << 32) + int(sums[e, 1])) << max(e - 1, 0) for e in used)


@dataclass(frozen=True)
class Sketch:
    """Sorted values cut to their leading bits, and how often each occurs."""

    bins: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    counts: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    shift: int = 0
    size: int = SKETCH

    @classmethod
    def of(cls, values: FloatArray, size: int) -> Sketch:
        """Count finite values."""
        bits = (values + 0.0).view(np.int64)  # without the sign of zeros
        keys = bits ^ ((bits >> 63) & np.int64(2**63 - 1))  # in the order of the values
        bins, counts = np.unique(keys, return_counts=True)
        return cls(bins, counts, 0, size)._cut()

    def join(self, other: Sketch) -> Sketch:
        """Return the counts of both."""
        shift = max(self.shift, other.shift)
        parts = [(part.bins >> (shift - part.shift), part.counts) for part in (self, other)]
        keys = np.concatenate([bins for bins, _ in parts])
        order = np.argsort(keys, kind="stable")
        counts = np.concatenate([counts for _, counts in parts])[order]
        return Sketch(*_merged(keys[order], counts), shift, self.size)._cut()

    def _cut(self) -> Sketch:
        """Return it with as many leading bits as leave no more bins than fit."""
        bins, counts, shift = self.bins, self.counts, self.shift
        while len(bins) > self.size:
            bins, counts = _merged(bins >> 1, counts)
            shift += 1
        return Sketch(bins, counts, shift, self.size)

    def median(self) -> float:
        """Return the middle value, or the mean of the two; the middle of a bin where it is cut."""
        total = int(self.counts.sum())
        places = np.searchsorted(np.cumsum(self.counts), [(total - 1) // 2, total // 2], "right")
        low, high = (self._middle(int(self.bins[place])) for place in places)
        return low / 2 + high / 2 if low != high else low

    def _middle(self, key: int) -> float:
        key = (key << self.shift) + ((1 << self.shift) >> 1)
        bits = np.array([key if key >= 0 else key ^ (2**63 - 1)], np.int64)
        return float(bits.view(np.float64)[0])


def _merged(keys: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Add up the counts of equal neighbours."""
    if not len(keys):
        return keys, counts
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], np.add.reduceat(counts, first)


@dataclass(frozen=True)
class Summary:
    """What was seen of some rows of a column of one kind."""

    kind: str
    rows: int
    present: int
    total: int = 0
    squares: int = 0
    sketch: Sketch = field(default_factory=Sketch)
    spans: tuple[tuple[float, float], ...] = ()
    """Least and largest hour, day of week and day of year of dates."""
    levels: dict[str, int] | None = None
    """How often each level occurs; None when there are too many."""
    hashes: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    unit: str | None = None
    """As that of a `ColumnSpec`; None where all values are missing."""

    def join(self, other: Summary) -> Summary:
        """Return the summary of the rows of both."""
        levels = self.levels
        if levels is not None:
            levels = None if other.levels is None else _join_levels(levels, other.levels)
        spans = self.spans or other.spans
        if self.spans and other.spans:
            pairs = zip(self.spans, other.spans, strict=True)
            spans = tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs)
        return replace(
            self,
            unit=other.unit if self.unit is None else self.unit,
            rows=self.rows + other.rows,
            present=self.present + other.present,
            total=self.total + other.total,
            squares=self.squares + other.squares,
            sketch=self.sketch.join(other.sketch),
            spans=spans,
            levels=levels,
            hashes=np.union1d(self.hashes, other.hashes)[:_HASHES],
        )

    @property
    def distinct(self) -> int:
        """Number of levels, an estimate when there are many."""
        if self.levels is not None:
            return len(self.levels)
        about = int((_HASHES - 1) * 2.0**32 / (float(self.hashes[_HASHES - 1]) + 1))
        return min(about, self.present)


def _join_levels(a: dict[str, int], b: dict[str, int]) -> dict[str, int] | None:
    joined = dict(a)
    for level, count in b.items():
        joined[level] = joined.get(level, 0) + count
    return joined if len(joined) <= MOST_LEVELS else None


def join_summaries(parts: list[dict[str, Summary]]) -> dict[str, Summary]:
    """Join the summaries of all columns."""
    for name in parts[0]:
        units = {part[name].unit for part in parts}
        if len(units - {None}) > 1:
            said = " and ".join(sorted(u or "other values" for u in units if u is not None))
            raise DataError(
                f"column {name!r} mixes {said} between its blocks of rows: give it one type, or "
                f"leave it out with columns={{{name!r}: 'drop'}}."
            )
    return reduce(lambda a, b: {name: a[name].join(b[name]) for name in a}, parts)


def summarize(kind: str, column: Any, size: int = SKETCH) -> Summary:
    """Look at a column of some rows, which has the Arrow type of its kind.

    Parameters
    ----------
    kind : str
        One of the kinds of columns.
    column : pyarrow Array
        float64, duration, bool, string, or timestamp or time in microseconds.
    size : int
        Bins of the sketch of a median.
    """
    rows, present = len(column), len(column) - column.null_count
    if kind == "category":
        counted = pc.value_counts(column.drop_null())
        found, counts = (counted.field(part).to_pylist() for part in ("values", "counts"))
        spelled = [plain_level(level) for level in found]
        levels: dict[str, int] = {}
        for level, count in zip(map(_short_level, spelled), counts, strict=True):
            levels[level] = levels.get(level, 0) + count
        hashes = np.unique(np.array([level_hash(level) for level in spelled], np.int64))
        kept = levels if len(levels) <= MOST_LEVELS else None
        return Summary(kind, rows, present, levels=kept, hashes=hashes[:_HASHES], unit="")
    values = numbers_of(column.drop_null())
    spans: tuple[tuple[float, float], ...] = ()
    if kind == "date" and len(values):
        parts = date_parts(microseconds(column.drop_null())).values()
        spans = tuple((float(part.min()), float(part.max())) for part in parts)
    sums = np.zeros((2, 2048, 2), np.int64)
    _add_numbers(values, *sums)
    total, squares = _whole(sums[0]), _whole(sums[1])
    unit = unit_of(column) if present else None
    return Summary(kind, rows, present, total, squares, Sketch.of(values, size), spans, unit=unit)


def _short_level(level: str) -> str:
    """Return what stands for a level while it is counted; of a long one nothing else is needed."""
    if len(level) <= LONGEST_LEVEL:
        return level
    return level[:LONGEST_LEVEL] + hashlib.sha256(level.encode()).hexdigest()


def unit_of(column: Any) -> str:
    """Tell times of a day and durations from dates and numbers, by their Arrow type."""
    if pa.types.is_time(column.type):
        return "time of day"
    return "duration" if pa.types.is_duration(column.type) else ""


def known_places(found: Iterable[str], known: Sequence[str]) -> dict[str, int]:
    """Return where levels are among the known ones, also those of files of another format.

    Records of earlier versions have levels as their source spelled them.
    """
    exact = {level: place for place, level in enumerate(known)}
    alike = {plain_level(level): place for level, place in exact.items()}
    places = {level: exact.get(level, alike.get(plain_level(level))) for level in found}
    return {level: place for level, place in places.items() if place is not None}


def without_words(column: Any, levels: Iterable[str]) -> Any:
    """Return text without the words for a missing value, but for those that are levels."""
    words = pa.array({*MISSING} - {*levels}, column.type)
    return pc.if_else(pc.is_in(column, words), pa.scalar(None, column.type), column)


def levels_or_gaps(column: Any, spec: ColumnSpec) -> Any:
    """Return levels as a file of text has them, where a word for a gap cannot have been a level."""
    known_all = spec.kind == "category" and not (spec.other or spec.hashed)
    return without_words(column, spec.levels) if known_all and spec.missing else column


def plain_level(level: str) -> str:
    """Return the one spelling of a level that files of several formats spell differently.

    Arrow has true, 1, 1.2e+10 and 2024-01-31 00:00:00.000 as the text of what pandas writes to CSV
    as True, 1.0, 12000000000.0 and 2024-01-31.
    """
    if level.lower() in ("true", "false"):
        return level.lower()
    if clock := _CLOCK.fullmatch(level):
        day, time, rest, zone = ((part or "").rstrip(" T") for part in clock.groups())
        zone = "+00:00" if zone == "Z" else zone[:3] + ":" * bool(zone) + zone[-2:]
        time += rest.rstrip("0.") + zone
        return day if day and time == "00:00:00" else f"{day} {time}".strip()
    if _POWER.fullmatch(level):
        return f"{Decimal(level):f}"
    return level[:-2] if _WHOLE.fullmatch(level) else level


def level_hash(level: str) -> int:
    """Return the hash by which levels are spread over columns, as scikit-learn hashes them."""
    from sklearn.utils import murmurhash3_32  # tables without hashed levels do without it

    return int(murmurhash3_32(level.encode(), positive=True))


def numbers_of(column: Any) -> FloatArray:
    """Return numbers, booleans or the seconds of dates as float64, NaN where they are missing."""
    if pa.types.is_duration(column.type):
        ticks = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        column = pc.divide(pc.cast(pc.cast(column, pa.int64()), pa.float64(), safe=False), ticks)
    if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type):
        values = microseconds(column) / 1e6
        values[np.asarray(column.is_null())] = np.nan
        return values
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False))


def microseconds(column: Any) -> IntArray:
    """Return the times of dates since 1970, 0 where they are missing."""
    return np.asarray(pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def date_parts(times: IntArray) -> dict[str, Array]:
    """Return the turn of the day, the week and the year of each time, from 0 to 1."""
    days = times // DAY
    day = days.astype("datetime64[D]")
    of_year = (day - day.astype("datetime64[Y]")).astype(np.int64)
    turns = ((times - days * DAY) / DAY, ((days + 3) % 7) / 7, of_year / 365.25)
    return dict(zip(CIRCLES, turns, strict=True))


def conclude(name: str, found: Summary, choices: Choices) -> ColumnSpec:
    """Decide how a column is encoded, from all of its rows."""
    missing = found.rows - found.present
    if found.present == 0:
        return ColumnSpec(name, "drop", missing=missing, why="every value is missing")
    unit = found.unit or ""
    made = ColumnSpec(name, found.kind, missing, unit=unit, format=choices.format(name))
    if found.kind == "category":
        return _with_levels(made, found, choices)
    fill = found.sketch.median()
    if found.kind == "boolean":
        return replace(made, fill=float(fill >= 0.5))
    # Mean and variance of the column with its gaps filled, from exact fractions.
    unit = 2**_UNIT
    mean = (Fraction(found.total, unit) + missing * Fraction(fill)) / found.rows
    square = (Fraction(found.squares, unit) + missing * Fraction(fill) ** 2) / found.rows
    circles = tuple(c for c, (a, b) in zip(CIRCLES, found.spans, strict=False) if a != b)
    variance = square - mean**2
    if variance and variance < LEAST_SQUARE:
        raise DataError(
            f"the numbers in column {name!r} are too small to be squared, so they have no "
            "deviation to divide by: multiply them first, or leave them out with "
            f"columns={{{name!r}: 'drop'}}."
        )
    scale = math.sqrt(variance) or 1.0
    return replace(made, center=float(mean), scale=scale, fill=fill, circles=circles)


def _with_levels(made: ColumnSpec, found: Summary, choices: Choices) -> ColumnSpec:
    """Give the frequent levels columns of their own, and the others some together."""
    many, counts = found.distinct, found.levels or {}
    share = choices.min_frequency
    least = share * found.rows if share < 1 else share
    frequent = [
        level
        for level, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if count >= least and len(level) <= LONGEST_LEVEL
    ]
    levels = tuple(sorted(frequent[: choices.max_levels]))
    if found.levels is None or many > choices.max_levels:
        hashed = choices.hash_columns
        return replace(made, levels=levels, hashed=hashed, n_levels=many, alike=True)
    return replace(made, levels=levels, other=len(levels) < many, n_levels=many)


def is_free_text(found: Summary, choices: Choices) -> bool:
    """Whether the values of a text column are nearly all different."""
    return (
        found.kind == "category"
        and found.distinct > choices.max_levels
        and found.distinct > NEARLY_ALL * found.present
    )


def no_columns(where: str) -> DataError:
    """Say that of a table nothing is left."""
    return DataError(
        f"{where} has no column to learn from: all are left out or missing, so leave out fewer by "
        "columns= or give rows with values."
    )


def conclude_all(
    found: dict[str, Summary], kinds: Decided, choices: Choices, n_rows: int, where: str
) -> TableSpec:
    """Decide on all columns; text that is no category is refused, all such columns at once."""
    free = [
        name
        for name, summary in found.items()
        if choices.kind(name) is None and is_free_text(summary, choices)
    ]
    if free:
        drop = ", ".join(f"{name!r}: 'drop'" for name in free)
        faults = [
            f"column {name!r} is text with {'about ' * (summary.levels is None)}"
            f"{summary.distinct:,} different values in {summary.present:,} rows"
            for name in free
            if (summary := found[name])
        ]
        remedy = f"leave out what tells rows apart with columns={{{drop}}}, or give 'category'"
        raise list_faults(where, faults, f"{remedy} for 'drop' to hash it")
    columns = []
    for name, kind in kinds.items():
        if kind == "drop":
            why = "as asked" if choices.kind(name) == "drop" else "every value is missing"
            columns.append(ColumnSpec(name, "drop", why=why))
        else:
            columns.append(conclude(name, found[name], choices))
    spec = TableSpec(tuple(columns), n_rows)
    if not spec.names:
        raise no_columns(where)
    return spec
