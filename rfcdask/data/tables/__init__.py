"""Tables as people have them: columns of all kinds, learned in one pass and encoded as numbers.

Here is what is known of the columns: their kinds, what was learned, the names they give. `summary`
learns it from blocks in any order, `encode` makes Arrow tables of frames and numbers of their
blocks, `encoder` is the scikit-learn transformer; the way into a store is `sources.tables`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from rfcdask.data.columns import quoted
from rfcdask.data.errors import DataError
from rfcdask.persist.untrusted import faults_as, read_toml

KINDS = ("number", "boolean", "category", "date", "drop")
CIRCLES = ("hour", "day of week", "day of year")
UNITS = ("", "time of day", "duration")
MOST_HASHED = 2**16
_MOST_MADE = 1_000_000  # columns of levels and hashes, of which every row has all
_SPEC_BYTES = 2**20


@dataclass(frozen=True)
class ColumnSpec:
    """One column of a table: its kind and what was learned of it; JSON can hold it."""

    name: str
    kind: str
    missing: int = 0
    """Rows without a value among those it was learned from; if any, a column marks them."""
    center: float = 0.0
    scale: float = 1.0
    """A number, or the seconds of a date, becomes ``(value - center) / scale``."""
    fill: float = 0.0
    """What stands for a missing number: the median."""
    levels: tuple[str, ...] = ()
    """Levels with a column of their own, sorted."""
    other: bool = False
    """Whether the rare levels share a column, which also takes levels never seen."""
    hashed: int = 0
    """Number of columns over which all other levels are spread by their hash."""
    n_levels: int = 0
    """Distinct levels that were seen, an estimate when they are many."""
    circles: tuple[str, ...] = ()
    """Parts of a date that vary, each a sine and a cosine."""
    alike: bool = False
    """Whether a hash is that of all spellings of a level, 1.0 and 1; older records hash each."""
    unit: str = ""
    """What dates and numbers are: "time of day", "duration" (in seconds), or neither."""
    format: str | None = None
    """How dates are written in text, as strptime has it; None is ISO 8601."""
    why: str = ""
    """Why the column is left out."""

    @property
    def derived(self) -> list[str]:
        """Names of the columns that it becomes."""
        if self.kind == "drop":
            return []
        made = [self.name]
        if self.kind == "date":
            waves = [f"{circle} {wave}" for circle in self.circles for wave in ("sin", "cos")]
            made = [f"{self.name}: {part}" for part in ("elapsed", *waves)]
        elif self.kind == "category":
            made = [f"{self.name}={level}" for level in self.levels]
            made += [f"{self.name}: other levels"] * self.other
            made += [f"{self.name}: hash {place}" for place in range(self.hashed)]
        return [*made, f"{self.name} missing"] if self.missing else made

    @property
    def width(self) -> int:
        """Number of columns that it becomes."""
        return len(self.derived)

    def takes(self, unit: str) -> bool:
        """Whether values of a unit are those that were learned; older records do not tell it."""
        first_day = {*self.circles} <= {"hour"} and 0 <= self.center < 86_400
        older = self.kind == "date" and not self.unit and first_day
        return unit == self.unit or (older and unit == "time of day")

    def describe(self, n_rows: int) -> str:
        """Return what was decided, in words."""
        if self.kind == "drop":
            return f"left out ({self.why})"
        said = self.kind
        if self.kind == "category":
            about = "about " * (self.hashed > 0)
            said += f" of {about}{self.n_levels:,} level{'s' * (self.n_levels != 1)}"
            parts = [f"{len(self.levels)} one-hot"] if self.levels else []
            parts += ["rare ones together"] * self.other
            parts += [f"{'others' if parts else 'all'} hashed to {self.hashed} columns"] * (
                self.hashed > 0
            )
            said += f", {', '.join(parts)}" if parts else ""
        elif self.kind == "date":
            said += ", " + ", ".join(("elapsed", *self.circles))
        if self.missing:
            filled = ", filled with the median" if self.kind != "category" else ""
            said += f"; {100 * self.missing / n_rows:.2g} % missing{filled} and marked"
        return said


@dataclass(frozen=True)
class TableSpec:
    """All columns of a table, in the order in which they are encoded."""

    columns: tuple[ColumnSpec, ...]
    n_rows: int

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns that it is encoded to, each once."""
        made: dict[str, None] = {}
        for name in (name for column in self.columns for name in column.derived):
            unique, number = name, 2
            while unique in made:
                unique, number = f"{name} ({number})", number + 1
            made[unique] = None
        return list(made)

    @property
    def sources(self) -> dict[str, list[str]]:
        """Names of the columns that each column of the table is encoded to."""
        names = iter(self.names)
        return {c.name: list(islice(names, c.width)) for c in self.columns if c.width}

    @property
    def inputs(self) -> list[str]:
        """Names of the columns that new rows must have."""
        return [column.name for column in self.columns if column.kind != "drop"]

    def describe(self) -> list[tuple[str, str]]:
        """Return the decision for each column."""
        return [(column.name, column.describe(self.n_rows)) for column in self.columns]

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what a column does not use is left out."""
        plain = {known.name: known.default for known in fields(ColumnSpec)}
        columns = [
            {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in asdict(column).items()
                if value != plain[key]
            }
            for column in self.columns
        ]
        return {"version": 1, "rows": self.n_rows, "columns": columns}

    @classmethod
    def from_json(cls, data: Any) -> TableSpec:
        """Rebuild what `to_json` wrote, and refuse what it never writes."""
        with faults_as(
            lambda why: DataError(
                f"the record of the table's columns is damaged ({why}): save it again, or restore "
                "a copy."
            )
        ):
            columns = tuple(_column_from_json(item) for item in data["columns"])
            if data["version"] != 1 or len({column.name for column in columns}) < len(columns):
                raise ValueError("it is of another version, or names a column twice")
            if not int(data["rows"]) > 0 or not columns:
                raise ValueError("it was learned from nothing")
            if sum(column.hashed + len(column.levels) for column in columns) > _MOST_MADE:
                raise ValueError(f"it makes more than {_MOST_MADE:,} columns")
            return cls(columns, int(data["rows"]))


_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "str | None": (str, type(None)),
    "tuple[str, ...]": list,
}


def _column_from_json(data: Mapping[str, Any]) -> ColumnSpec:
    known = {item.name: _TYPES[str(item.type)] for item in fields(ColumnSpec)}
    for key, value in data.items():
        if not isinstance(value, known[key]) or (
            isinstance(value, list) and not all(isinstance(item, str) for item in value)
        ):
            raise ValueError(f"{key} is {str(value)[:40]!r}")
    plain: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    made = ColumnSpec(**plain)
    numbers = (made.center, made.fill, made.scale, 1 / max(made.scale, 1e-300))
    sound = made.kind in KINDS and made.scale > 0 and all(abs(v) <= 1e150 for v in numbers)
    # Given twice, levels or circles would move the columns behind them.
    once = all(len({*part}) == len(part) for part in (made.levels, made.circles))
    sound = sound and once and {*made.circles} <= {*CIRCLES} and made.missing >= 0
    sound = sound and made.unit in UNITS
    if not (sound and 0 <= made.hashed <= MOST_HASHED and len(made.levels) <= MOST_HASHED):
        raise ValueError(f"the column {made.name[:40]!r} is none that was ever written")
    return made


@dataclass(frozen=True)
class Choices:
    """What somebody decided about the columns of a table before it was looked at."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    max_levels: int = 50
    hash_columns: int = 32
    min_frequency: float = 0.001

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which `read_choices` takes as well."""
        return asdict(self)

    def kind(self, name: str) -> str | None:
        """Return the kind that a column was given."""
        return self.kinds.get(name)

    def format(self, name: str) -> str | None:
        """Return how the dates of a column are written."""
        return self.formats.get(name)

    def require_known(self, names: Sequence[str], where: str) -> None:
        """Refuse decisions about columns that are not there."""
        wrong = [name for name in self.kinds if name not in names]
        if wrong:
            raise DataError(
                f"columns= decides on {quoted(wrong)}, which {where} has not: its columns are "
                f"{quoted(names)}."
            )


_NUMBERS = {"max_levels": 0, "hash_columns": 1, "min_frequency": 0}


def read_choices(columns: Any) -> Choices:
    """Take what `columns=` says: ``"auto"``, a mapping of names to kinds, or a TOML file.

    The value of a column is its kind, or a table with ``kind`` and, of dates, ``format``. A file
    has them under ``[columns]``, and ``max_levels``, ``hash_columns`` and ``min_frequency`` at its
    top.
    """
    if columns is None or (isinstance(columns, str) and columns == "auto"):
        return Choices()
    if isinstance(columns, Choices):
        return columns
    if _is_record(columns):
        numbers = {name: columns[name] for name in _NUMBERS}
        kinds = {name: {"kind": kind} for name, kind in columns["kinds"].items()}
        for name, format in columns["formats"].items():
            kinds.setdefault(name, {})["format"] = format
        return _of_mapping(kinds, numbers, "columns=")
    if isinstance(columns, str | os.PathLike):
        return _read_file(Path(columns))
    if not isinstance(columns, Mapping):
        raise DataError(f"columns={columns!r:.200} is neither a TOML file nor kinds by name.")
    return _of_mapping(columns, {}, "columns=")


def _is_record(columns: Any) -> bool:
    """Whether this is what `Choices.to_json` writes: there are tables of any names too."""
    known = {item.name for item in fields(Choices)}
    written = isinstance(columns, Mapping) and {*columns} == known
    return written and all(isinstance(columns[k], Mapping) for k in ("kinds", "formats"))


def _read_file(path: Path) -> Choices:
    try:
        with faults_as(lambda why: DataError(f"{path} is no TOML file: {why}."), FileNotFoundError):
            table = read_toml(path, _SPEC_BYTES)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}: give a TOML file of columns.") from None
    columns = table.pop("columns", {})
    if not isinstance(columns, dict):
        raise DataError(f"{path}: 'columns' must be a table, [columns].")
    return _of_mapping(columns, table, str(path))


def _of_mapping(columns: Mapping[str, Any], options: Mapping[str, Any], where: str) -> Choices:
    kinds, formats = {}, {}
    for name, said in columns.items():
        record = said if isinstance(said, Mapping) else {"kind": said}
        kind, unknown = record.get("kind", "date"), {*record} - {"kind", "format"}
        if kind == "auto" and not unknown:
            continue
        if kind not in KINDS or unknown or not isinstance(record.get("format", ""), str):
            raise DataError(
                f"{where}: {name} = {said!r} is no kind of column: write one of "
                f"{', '.join(KINDS)} or auto, or a table of kind and format."
            )
        kinds[str(name)] = str(kind)
        if "format" in record:
            formats[str(name)] = str(record["format"])
    return Choices(kinds, formats, **checked_numbers(options, where))


def checked_numbers(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the numbers among the choices, after looking that they can be used."""
    for name, value in options.items():
        good = isinstance(value, int | float) and not isinstance(value, bool)
        good = good and _NUMBERS.get(name, MOST_HASHED + 1) <= value <= MOST_HASHED
        if not good or (name != "min_frequency" and value != int(value)):
            raise DataError(
                f"{where}: {name} = {value!r} cannot be used: max_levels and hash_columns are "
                f"whole numbers up to {MOST_HASHED:,}, min_frequency a share of the rows below 1 "
                "or a number of rows."
            )
    return dict(options)


_EXPECTED = {
    "number": "a number",
    "boolean": "true or false",
    "date": "a date",
    "category": "text",
    "time of day": "a time of day",
    "duration": "a duration",
}


class ValueKindError(DataError):
    """A value that is not of the kind of its column; `row` counts from the block's first."""

    def __init__(self, row: int, column: str, kind: str, value: Any) -> None:
        self.row, self.column = row, column
        shown = repr(str(value)[:40])
        self.said = f"expected {_EXPECTED[kind]} in column {column!r}, found {shown}"
        remedy = "write dates as 2024-12-31 or give their format" if kind == "date" else "fix it"
        self.remedy = f"{remedy}, or pass columns={{{column!r}: 'category'}} to take it as text"
        if kind == "category":
            self.remedy = "make it text first, in pandas with astype(str)"
        if kind == "number" and isinstance(value, float):
            self.remedy = "leave such rows out, or write the value as missing"
        super().__init__(f"row {row}: {self.said}: {self.remedy}.")

    def at(self, where: str, learned: bool) -> DataError:
        """Return the error with the name of the place; kinds that are learned are given no more."""
        remedy = "fix it, or leave such rows out" if learned else self.remedy
        return DataError(f"{where}: {self.said}: {remedy}.")

    def __reduce__(self) -> Any:
        return DataError, (self.args[0],)


@contextmanager
def value_errors(place: Callable[[int], str], first: int, learned: bool = True) -> Iterator[None]:
    """Name the place of a value that is not of its column's kind, in a block from row `first`."""
    try:
        yield
    except ValueKindError as error:
        raise error.at(place(first + error.row), learned) from None


def list_faults(where: str, faults: Iterable[str], remedy: str) -> DataError:
    """Return one error for all columns that cannot be used."""
    return DataError(f"{where}: {'; '.join(faults)}: {remedy}.")
