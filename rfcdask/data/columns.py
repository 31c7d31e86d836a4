"""Columns: their names, which is the label, how new rows find them, and their statistics."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from rfcdask.data.errors import DamagedStoreError, DataError
from rfcdask.display import cut
from rfcdask.kernels.arrays import LEAST_SQUARE, Array, FloatArray
from rfcdask.persist.chunks import MOST_CHARACTERS
from rfcdask.persist.untrusted import reason, redacted

LABEL_NAMES = ("label", "target", "class", "y")
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What stands in text files for a value that is missing."""
STANDARDIZED = "standardized "
"""How what tells the units of rows begins, where a data set was standardized; stores keep it."""
PROJECTED = "projected "
"""How what tells the units of rows begins, where they were projected."""
MOST_SHOWN = 30
MOST_COMPARED = 1000
"""Columns among which one with a similar name is looked for."""
TILE_ROWS = 4096
"""Rows taken to float64 at once, so that the statistics of a block need no second block."""


Label = str | tuple[str, ...] | None
"""The name of the label column, or those of several targets."""


@dataclass(frozen=True)
class Names:
    """What a source calls its columns."""

    columns: tuple[str, ...] | None = None
    columns_in_file: tuple[str, ...] | None = None  # before the projection, if there was one
    label: Label = None
    label_column: int | tuple[int, ...] | None = None  # its place, for tables without names
    left_out: tuple[str, ...] = ()  # columns that are there and were not asked for
    first_index: int | None = None  # what svmlight text calls its first column: 0 or 1

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Names:
        """Rebuild what `dataclasses.asdict` made plain."""
        plain: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**plain)

    @classmethod
    def of(cls, attrs: dict[str, Any]) -> Names:
        """Take the names from the attributes of a store; an old one has none."""
        known = ("columns", "columns_in_file", "label_column", "first_index")
        kept = {k: attrs.get(k) for k in known}
        return cls.from_json(kept | {"label": attrs.get("label_name")})

    def attributes(self, *, projected: bool) -> dict[str, Any]:
        """Return what a store keeps; projected columns are sums of named ones and have no names."""
        before = self.columns if projected else self.columns_in_file
        return {
            "columns": None if projected or self.columns is None else list(self.columns),
            "columns_in_file": None if before is None else list(before),
            "label_name": self.label,
            "label_column": self.label_column,
            **({} if self.first_index is None else {"first_index": self.first_index}),
        }


NAMELESS = Names()


def choose_label(name: str, columns: Sequence[str], label: Any) -> int | None:
    """Return the place of the label column, given by name or number.

    None stands for the column whose name says that it is the label, False for none.
    """
    if label is False:
        return None
    if label is None:
        lowered = [column.lower() for column in columns]
        for known in LABEL_NAMES:
            if lowered.count(known) == 1:
                return lowered.index(known)
        raise DataError(
            f"{name} has no column named {', '.join(LABEL_NAMES)}: pass label= with one of the "
            f"columns {quoted(columns)}, or label=False for rows without labels."
        )
    if isinstance(label, str) and label in columns:
        return list(columns).index(label)
    number = isinstance(label, int | np.integer) and not isinstance(label, bool)
    if number and -len(columns) <= label < len(columns):
        place, text = int(label) % len(columns), str(label)
        if text in columns and columns[place] != text:
            other = list(columns).index(text)
            raise DataError(
                f"{name}: label={label} is the place of column {columns[place]!r} and the name of "
                f"another: count from the end, label={place - len(columns)} for the former or "
                f"label={other - len(columns)} for the latter."
            )
        return place
    if number and str(label) in columns:  # as 2023 may be a name
        return list(columns).index(str(label))
    numbers = isinstance(label, str) and list(columns) == [str(n) for n in range(len(columns))]
    remedy = "; pass header=True if the first line names them" if numbers else ""
    raise DataError(f"{name} has no column {label!r}: its columns are {quoted(columns)}{remedy}.")


def choose_labels(name: str, columns: Sequence[str], label: Any) -> int | tuple[int, ...] | None:
    """Return the place of the label column, or the places of several targets.

    These are given as a list, or as names with commas between.
    """
    if isinstance(label, str) and label not in columns and "," in label:
        label = [part.strip() for part in label.split(",")]
    if not isinstance(label, list | tuple):
        return choose_label(name, columns, label)
    if not label or any(one is None or isinstance(one, bool) for one in label):
        raise DataError(f"label={label!r} is no list of columns: give names or numbers.")
    places = tuple(choose_label(name, columns, one) or 0 for one in label)
    if len(set(places)) < len(places):
        raise DataError(f"label={label!r} names a column twice: give each target once.")
    return places if len(places) > 1 else places[0]


def label_names(label: Label) -> list[str]:
    """Return the names of all targets."""
    return [] if label is None else [label] if isinstance(label, str) else list(label)


def distinct_texts(labels: Array) -> Array:
    """Return the different labels of some rows as sorted text, if each can name a class."""
    try:
        found = set(labels.tolist())
        texts = [label for label in found if isinstance(label, str | bytes)]
        "".join(label for label in texts if isinstance(label, str)).encode()
    except (SystemError, ValueError) as error:  # numpy takes any number for a letter
        raise DataError(
            f"a label is no text ({reason(error)}): write the labels again, as UTF-8."
        ) from None
    longest = max(texts, key=len, default="")
    if len(longest) > MOST_CHARACTERS:
        raise DataError(
            f"a label of {len(longest):,} characters begins with {longest[:20]!r}, and the most is "
            f"{MOST_CHARACTERS:,}: choose another label column, look for a quote that is never "
            "closed, or give the classes shorter names."
        )
    try:
        return np.unique(np.fromiter(found, labels.dtype, len(found)).astype(str))
    except UnicodeDecodeError as error:
        raise DataError(
            f"the labels are bytes and no plain text ({error.object[:20]!r}): decode them first, "
            "with numpy.char.decode."
        ) from None


def several_are_numbers(where: str, name: str) -> DataError:
    """Say that one of several targets is text."""
    return DataError(
        f"{where}: the target {name!r} holds text, and several targets must be numbers: give one "
        "label, or numbers alone."
    )


def quoted(columns: Sequence[str], most: int = MOST_SHOWN) -> str:
    """Return names in quotes, the first of them when there are many."""
    more = f", ... ({len(columns)} in all)" if len(columns) > most else ""
    return ", ".join(repr(column) for column in columns[:most]) + more


def first_names(names: Sequence[str], most: int = 10) -> str:
    """Return some names, of long ones the beginning, and dots for the others."""
    shown = [cut(name, 60) for name in names[:most]]
    return ", ".join([*shown, *(["..."] if len(names) > most else [])])


def check_names(name: str, columns: Sequence[str], wanted: Sequence[str] | None = None) -> None:
    """Refuse columns that cannot be told apart by name; of others than `wanted` none is read."""
    counts = Counter(columns)
    matters = set(columns if wanted is None else wanted)
    twice = [column for column, count in counts.items() if column and count > 1]
    if twice := [column for column in twice if column in matters]:
        many = f"names {quoted(twice)} occur" if len(twice) > 1 else f"name {twice[0]!r} occurs"
        raise DataError(f"{name}: the column {many} twice: give each column a name of its own.")
    if wanted is None and "" in counts:
        places = [str(place) for place, column in enumerate(columns) if not column]
        many = f"s {', '.join(places)} have" if len(places) > 1 else f" {places[0]} has"
        raise DataError(
            f"{name}: column{many} no name (counted from 0): name it or leave it out, which pandas "
            "does with its index by index=False."
        )


def choose_columns(
    tables: Mapping[str, Sequence[str]], label: Any, wanted: Sequence[str] | None, line: str = ""
) -> Names:
    """Choose the same columns of all files of a table, by default all but the label.

    `tables` has the names of all columns of each file, of which the first one decides on the
    order; `label` is as in :func:`choose_label`, and `line` says in messages where the names are.
    """
    first, columns = next(iter(tables.items()))
    if wanted is None:
        for path, names in tables.items():
            check_names(path + line, names)
    place = choose_labels(first, columns, label)
    found: Label
    if isinstance(place, tuple):
        found = tuple(columns[one] for one in place)
    else:
        found = None if place is None else columns[place]
    own = label_names(found)
    features = [column for column in columns if column not in own] if wanted is None else wanted
    if wanted is not None and (both := [name for name in own if name in wanted]):
        raise DataError(
            f"{first}: the label {both[0]!r} is among the columns to learn from: pass label= with "
            "another one, or label=False."
        )
    known = [*features, *own]
    left_out: dict[str, None] = {}
    for path, names in tables.items():
        extra = match_columns(path, names, known).left_out
        if extra and wanted is None:
            raise DataError(
                f"{path} has {quoted(extra)}, which {first} has not: leave such columns out of the "
                "file, or name those to take, in Python with columns=[...]."
            )
        left_out |= dict.fromkeys(extra)
    return Names(tuple(features), None, found, place, tuple(left_out))


class Match(NamedTuple):
    """Where each wanted column is, and which others there are."""

    places: list[int]
    left_out: list[str]


def match_columns(name: str, found: Sequence[str], wanted: Sequence[str]) -> Match:
    """Find the wanted columns among those of new rows, which messages call `name`."""
    check_names(name, found, wanted)
    places = {column: place for place, column in enumerate(found)}
    known = set(wanted)
    left_out = [column for column in found if column not in known]
    missing = [column for column in wanted if column not in places]
    if missing:
        raise DataError(_say_missing(name, missing, left_out))
    return Match([places[column] for column in wanted], left_out)


def _say_missing(name: str, missing: list[str], left_out: list[str]) -> str:
    more = f" (and {len(missing) - 1} more: {quoted(missing[1:])})" if len(missing) > 1 else ""
    lowered = {column.lower(): column for column in left_out[:MOST_COMPARED]}
    pairs = [
        f"{lowered[near]!r} to {column!r}"
        for column in missing[:MOST_SHOWN]
        for near in get_close_matches(column.lower(), lowered, 1)
    ]
    remedy = "give rows that have it" if len(missing) == 1 else "give rows that have them"
    if pairs:
        remedy += f", or rename {', '.join(pairs)} if that is what is meant"
    return f"column {missing[0]!r} is missing from {name}{more}: {remedy}."


def table_digest(record: Any) -> str:
    """Return a short text that tells apart what was learned of two tables, and "" for none."""
    if record is None:
        return ""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def projection_digest(projection: Any, names: Any, table: Any) -> str:
    """Return a short text that tells apart projections, and the columns that went through them."""
    digests = projection_checksum(projection), table_digest(table), table_digest(names)
    return PROJECTED + " ".join(map(str, digests))


def _check_projections(found: str, known: str) -> None:
    remedies = (
        "were projected by another matrix than those of `fit`: give rfcdask.ingest the project=, "
        "random_state= and, for svmlight text, n_columns= of the data set of `fit`, of which they "
        "are in DATASET.projection (n_components, seed, n_columns)",
        "were encoded by what was learned of another table than that of `fit` before they were "
        "projected: pass columns=rfcdask.TableEncoder.of(DATASET) to rfcdask.ingest, with the data "
        "set of `fit`",
        "were projected from other columns than those of `fit`, or in another order: pass "
        "columns=DATASET.attrs['columns_in_file'] to rfcdask.ingest, with the data set of `fit`",
    )
    pairs = zip(found.split(" ")[1:], known.split(" ")[1:], remedies, strict=False)
    for one, other, said in pairs:
        if one and other and one != other:  # columns of arrays have no names
            raise DataError(f"the rows of X {said}.")


def check_encoding(found: str, known: str) -> None:
    """Refuse rows of a store whose columns have the same names and other units than in `fit`."""
    if found == known:
        return
    projected = [text.startswith(PROJECTED) for text in (found, known)]
    if any(projected):
        if all(projected):  # of others it is not known: rows can be projected by hand
            _check_projections(found, known)
        return
    standard = [text.startswith(STANDARDIZED) for text in (found, known)]
    if standard[0] != standard[1]:
        what, remedy = "are standardized, and those of `fit` were not", "give rows as they are"
        if standard[1]:
            what = "are not standardized, as those of `fit` were"
            remedy = (
                "take make_pipeline(rfcdask.Standardizer.of(DATASET), model), with the data set "
                "of `fit` before it was standardized; rows standardized by themselves have other "
                "units"
            )
        raise DataError(f"the rows of X {what}, so the same values are other rows: {remedy}.")
    found, known = (text.removeprefix(STANDARDIZED) for text in (found, known))
    what = "were encoded by what was learned of another table than that of `fit`"
    if not found or not known:
        what = f"are {'an' if found else 'no'} encoded table, unlike those of `fit`"
    remedy = "give columns of numbers alone, and nan='drop' for rows with gaps, to rfcdask.ingest"
    if known:
        remedy = (
            "write them by rfcdask.ingest(..., columns=rfcdask.TableEncoder.of(DATASET)), with the "
            "data set of `fit`, or fit a pipeline that begins with rfcdask.TableEncoder() on frames"
        )
    raise DataError(f"the rows of X {what}, so columns of one name have other units: {remedy}.")


def training_data_record(dataset: Any, path: str) -> dict[str, Any]:
    """Return what a model should know of its data to read new rows the same way."""
    projection, (n_rows, n_columns), drawn = dataset.projection, dataset.shape, None
    if projection is not None:
        n_columns = projection.n_columns
        drawn = {"seed": projection.seed, "checksum": projection_checksum(projection)}
    noted = ("label_name", "label_column", "label_checksum", "task", "scale", "first_index")
    return {
        "path": redacted(path),
        "rows": n_rows,
        "columns": dataset.shape[1],
        "columns_in_file": n_columns,
        "column_names": names_in_file(dataset),
        **{name: dataset.attrs.get(name) for name in noted},
        "projection": drawn,
    }


def names_in_file(dataset: Any) -> list[str] | None:
    """Return the names of a data set's columns, those before the projection if there was one."""
    names: list[str] | None = dataset.columns
    return names if dataset.projection is None else dataset.attrs.get("columns_in_file")


def projection_checksum(projection: Any) -> int:
    """Return a number that tells two projections apart."""
    matrix = projection.matrix
    return zlib.crc32(matrix.data.tobytes(), zlib.crc32(matrix.indices.tobytes()))


_KEPT = ("mean", "m2", "min", "max")


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of the columns of some rows (float64)."""

    count: int
    mean: FloatArray
    m2: FloatArray
    minimum: FloatArray
    maximum: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Variance of each column, divided by the number of rows."""
        # The mean of equal values may be off by a bit, and the variance is then not quite zero.
        return np.where(self.minimum == self.maximum, 0.0, self.m2 / self.count)

    @property
    def has_deviation(self) -> Array:
        """Whether the square of each column's deviation is a number that kept its digits, or 0."""
        return squares_kept(self.variance, self.minimum, self.maximum)

    def attributes(self) -> dict[str, list[float | None]]:
        """Return what a store keeps; JSON knows no infinity, so None stands for it."""
        kept = (self.mean, self.variance, self.minimum, self.maximum)
        return {
            name: [value if np.isfinite(value) else None for value in values.tolist()]
            for name, values in zip(("mean", "variance", "min", "max"), kept, strict=True)
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain lists; Python writes floats so that they come back bit for bit."""
        kept = (self.mean, self.m2, self.minimum, self.maximum)
        lists = {name: v.tolist() for name, v in zip(_KEPT, kept, strict=True)}
        return {"count": self.count, **lists}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ColumnStats:
        """Rebuild what `to_json` wrote."""
        return cls(data["count"], *(np.asarray(data[name], np.float64) for name in _KEPT))


def squares_kept(variance: FloatArray, minimum: FloatArray, maximum: FloatArray) -> Array:
    """Tell of each column whether its variance is right: it is lost where squares leave float64."""
    kept = (minimum == maximum) | ((variance >= LEAST_SQUARE) & np.isfinite(variance))
    return np.asarray(kept)


def column_stats(X: Array) -> ColumnStats:
    """Return the statistics of a dense block, in tiles and with a stable update."""
    # Squares of values near the end of float64 overflow; the variance is then infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        return merge_stats(_tile_stats(X[a : a + TILE_ROWS]) for a in range(0, len(X), TILE_ROWS))


def merge_stats(parts: Iterable[ColumnStats]) -> ColumnStats:
    """Join the statistics of disjoint rows, in the given order (Chan, Golub, LeVeque)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return reduce(_join, parts)


def _tile_stats(tile: Array) -> ColumnStats:
    wide = tile.astype(np.float64)
    low, high = wide.min(axis=0), wide.max(axis=0)
    mean = wide.mean(axis=0)
    wide -= mean
    return ColumnStats(len(tile), mean, np.einsum("ij,ij->j", wide, wide), low, high)


def _join(a: ColumnStats, b: ColumnStats) -> ColumnStats:
    count = a.count + b.count
    delta = b.mean - a.mean
    return ColumnStats(
        count,
        a.mean + delta * (b.count / count),
        a.m2 + b.m2 + delta**2 * (a.count * b.count / count),
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )


def count_labels(labels: Array, classes: Array) -> Array:
    """Return how many labels of a block each class has, as a row."""
    places = np.searchsorted(classes, labels)
    if np.any(classes[np.minimum(places, len(classes) - 1)] != labels):
        raise DamagedStoreError(
            "the store holds labels that are none of its classes: ingest the data again."
        )
    return np.bincount(places, minlength=len(classes))[None]
