"""What every source of rows offers, what the first look at it finds, and how rows become blocks.

The first look reads text to its end once before anything is written. That costs a pass, and buys
that every malformed line, missing value and wrong label is named before the work starts, that the
store's shape is known, and that whole numbers can stay whole numbers on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rfcdask.data.columns import NAMELESS, Names
from rfcdask.data.errors import DataError, NotNumbersError
from rfcdask.data.sources.labels import Labels, LabelTally, is_missing
from rfcdask.kernels.arrays import Array, IntArray, is_sparse
from rfcdask.kernels.compiled import compiled

if TYPE_CHECKING:
    from distributed import Client

    from rfcdask.data.projection import SparseProjection

BATCH_BYTES = 8 * 2**20
LARGEST_EXACT = 2.0**53


class Batch(NamedTuple):
    """Some neighbouring rows: dense or CSR, with their labels where there are any."""

    X: Any
    y: Array | None

    def cut(self, rows: Any) -> Batch:
        """Return some of the rows, given as a slice or a mask."""
        return Batch(self.X[rows], None if self.y is None else self.y[rows])


@dataclass(frozen=True)
class SourceOptions:
    """What the caller said about the source; see :func:`rfcdask.ingest`."""

    label: Any = None
    task: str = "auto"
    nan: str = "auto"
    n_columns: int | None = None
    zero_based: bool | str = "auto"
    delimiter: str | None = None
    header: bool | None = None
    columns: tuple[str, ...] | None = None
    table: Any = None  # what was decided of the columns of a table, or is known of them
    project: int | None = None
    sparse: bool | str = "auto"
    progress: Any = None
    client: Client | None = None

    @property
    def drop(self) -> bool:
        """Whether rows with missing values are left out."""
        return self.nan == "drop"


@dataclass(frozen=True)
class Survey:
    """What is known of a source before it is read."""

    n_rows: int  # including those to be dropped
    n_columns: int
    dtype: str  # holds every value of X exactly
    labels: Labels | None
    dropped: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Sorted rows that hold a value which is not finite, to be left out."""
    details: Any = None
    """A JSON value: what the source itself must know to read again."""
    names: Names = NAMELESS
    n_values: int | None = None
    """Stored values of all rows where the source has them sparse; None where it has dense rows."""
    table: Any = None
    """A JSON value: how the columns of a table were encoded, if they were."""

    @property
    def n_kept(self) -> int:
        """Rows that remain."""
        return self.n_rows - len(self.dropped)

    def source_row(self, kept: int) -> int:
        """Return the source's number of the row that is number `kept` among the kept ones."""
        shifted = self.dropped - np.arange(len(self.dropped))
        return kept + int(np.searchsorted(shifted, kept, side="right"))

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the source's rows that hold the kept rows from `start` up to `stop`."""
        return self.source_row(start), self.source_row(stop - 1) + 1

    def dropped_within(self, start: int, stop: int) -> IntArray:
        """Return the dropped rows among the source's rows from `start` up to `stop`."""
        first, last = np.searchsorted(self.dropped, [start, stop])
        return self.dropped[first:last]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"dropped": self.dropped.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Survey:
        """Rebuild what `to_json` wrote."""
        if "names" not in data:
            raise DataError(
                "this ingest was begun by an older version of rfcdask, which kept no column names: "
                "pass overwrite=True to begin anew."
            )
        labels = data["labels"]
        made = {
            "labels": None if labels is None else Labels.from_json(labels),
            "dropped": np.asarray(data["dropped"], np.int64),
            "names": Names.from_json(data["names"]),
        }
        return cls(**data | made)


class Source:
    """Rows of one data set, in files or arrays."""

    in_parallel: bool = True
    """Whether any range of rows can be read without reading those before it."""
    in_memory: bool = False
    """Whether rows lie in the memory of this process."""
    shuffled: bool = False
    """Whether the rows are in random order."""
    scale: float | None = None
    """Factor that the values are to be multiplied by when the store is read."""
    projection: SparseProjection | None = None
    """The projection that the rows went through."""

    @property
    def names(self) -> list[str]:
        """What messages and the store call the source."""
        raise NotImplementedError

    def identity(self) -> Any:
        """Return a JSON value that changes when the source does."""
        raise NotImplementedError

    def survey(self, options: SourceOptions) -> Survey:
        """Look at the source: shape, type, labels, bad rows."""
        raise NotImplementedError

    def adopt(self, survey: Survey) -> None:
        """Take the details of an earlier survey; arrays need none."""

    def as_table(self, options: SourceOptions) -> Source | None:
        """Return the same rows with columns of all kinds; None where columns have no names."""
        return None

    def narrowed(self, start: int, stop: int) -> Any:
        """Return what a task needs to read these rows: an object with the same `read`."""
        return self

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the rows from `start` up to `stop` in small batches."""
        raise NotImplementedError


@dataclass
class Tally:
    """Counts rows, bad ones among them, their labels and the range of their values."""

    n_rows: int = 0
    n_values: int = 0
    """Stored values of sparse rows."""
    whole: bool = True
    single: bool = True
    low: float = 0.0
    high: float = 0.0
    labels: LabelTally = field(default_factory=LabelTally)
    _bad: list[IntArray] = field(default_factory=lambda: [np.empty(0, np.int64)])

    @property
    def bad_rows(self) -> IntArray:
        """Numbers of the rows that are not finite."""
        return np.concatenate(self._bad)

    def add(self, n_rows: int, bad: IntArray, y: Array | None, values: Array | None = None) -> None:
        """Take some rows: which are bad, the labels of all, and the values to find a type for."""
        if values is not None:
            whole, single, low, high = _range(np.ascontiguousarray(values).reshape(-1))
            self._join_range(whole, single, low, high)
        self._bad.append(bad + self.n_rows)
        self.n_rows += n_rows
        if y is not None and len(y) > len(bad):
            self.labels.add(np.delete(y, bad))

    def check(self, name: str, first: int, X: Any, y: Array | None, *, drop: bool) -> None:
        """Take rows and their labels, of which the first is number `first` of `name`.

        Refuse those that are not finite unless they are dropped.
        """
        bad = bad_rows_of(X, y)
        if len(bad) and not drop:
            row = int(bad[0])
            values = X[row].toarray()[0] if is_sparse(X) else X[row]
            raise not_finite(name, first + row, values, None if y is None else y[row])
        self.add(X.shape[0], bad, y)
        self.n_values += X.nnz if is_sparse(X) else 0

    def join(self, other: Tally) -> None:
        """Take what the tally of the next rows has seen."""
        self._join_range(other.whole, other.single, other.low, other.high)
        self._bad.append(other.bad_rows + self.n_rows)
        self.n_rows += other.n_rows
        self.n_values += other.n_values
        self.labels.join(other.labels)

    def _join_range(self, whole: bool, single: bool, low: float, high: float) -> None:
        self.whole &= whole
        self.single &= single
        self.low, self.high = min(self.low, low), max(self.high, high)

    def dtype(self) -> str:
        """Return the smallest type that holds every value exactly, float64 at the last."""
        if not self.whole or max(-self.low, self.high) > LARGEST_EXACT:
            return np.dtype(np.float32 if self.single else np.float64).str
        if self.low >= 0:
            return np.min_scalar_type(int(self.high)).str
        return np.min_scalar_type(min(int(self.low), -int(self.high) - 1)).str


@compiled()
def _range(values):  # type: ignore[no-untyped-def]
    """Whether finite values are all whole, all exact in float32, and their range with 0."""
    whole = single = True
    low = high = 0.0
    for i in range(len(values)):
        value = values[i]
        if np.isfinite(value):
            # The negative zero is no integer: as one it would lose its sign.
            if value != np.rint(value) or (value == 0.0 and np.signbit(value)):
                whole = False
            if np.float64(np.float32(value)) != value:
                single = False
            low = min(low, value)
            high = max(high, value)
    return whole, single, low, high


def bad_rows_of(X: Any, y: Array | None) -> IntArray:
    """Return the rows, dense or CSR, that hold a value or a label which is not finite."""
    bad: Array = np.zeros(X.shape[0], bool)
    if hasattr(X, "indptr"):
        places = np.flatnonzero(~np.isfinite(X.data))
        bad[np.searchsorted(X.indptr, places, side="right") - 1] = True
    elif X.dtype.kind == "f":
        bad = np.logical_not(np.isfinite(X).all(axis=1))
    if y is not None:
        bad |= is_missing(np.asarray(y))
    return np.flatnonzero(bad)


def not_finite(
    name: str, row: int, values: Array, label: Any, remedy: str = "pass nan='drop'"
) -> DataError:
    """Say which value of a row is not a finite number."""
    what = f"the label is missing ({label!r})"
    columns = np.flatnonzero(~np.isfinite(values)) if values.dtype.kind == "f" else np.empty(0)
    if len(columns):
        what = f"column {columns[0]} is {values[columns[0]]}, not a finite number"
    return NotNumbersError(f"{name}, row {row}: {what}: {remedy} to leave such rows out.", True)


def between(batches: Iterator[Batch], start: int, stop: int) -> Iterator[Batch]:
    """Yield only the rows from `start` up to `stop` of a run of batches that begins with row 0."""
    place = 0
    for batch in batches:
        a, b = max(start - place, 0), min(stop - place, batch.X.shape[0])
        place += batch.X.shape[0]
        if a < b:
            yield batch.cut(slice(a, b))
        if place >= stop:
            return


def keep_rows(batches: Iterator[Batch], start: int, dropped: IntArray) -> Iterator[Batch]:
    """Leave out the dropped rows of a run of batches that begins with row `start`."""
    for batch in batches:
        stop = start + batch.X.shape[0]
        first, last = np.searchsorted(dropped, [start, stop])
        keep = np.ones(stop - start, bool)
        keep[dropped[first:last] - start] = False
        yield batch if first == last else batch.cut(keep)
        start = stop


def cut(batches: Iterator[Batch], sizes: Iterator[int]) -> Iterator[Iterator[Batch]]:
    """Cut a run of batches into runs of the given numbers of rows; each must be used up in turn."""
    left: list[Batch] = []
    for size in sizes:
        yield _take(batches, size, left)


def _take(batches: Iterator[Batch], size: int, left: list[Batch]) -> Iterator[Batch]:
    while size > 0:
        batch = left.pop() if left else next(batches, None)
        if batch is None:
            return
        rows = batch.X.shape[0]
        if rows > size:
            left.append(batch.cut(slice(size, None)))
            batch = batch.cut(slice(size))
        size -= min(rows, size)
        yield batch


def dense(X: Any, n_columns: int) -> Array:
    """Return rows as a dense array, whatever they came as."""
    rows: Array = X.toarray() if is_sparse(X) else unmasked(X)
    if rows.shape[1] != n_columns:
        raise wrong_width(rows.shape[1], n_columns)
    return rows


def wrong_width(found: int, wanted: int) -> DataError:
    """Say that rows have another number of columns than those before them."""
    return DataError(f"a batch has {found} columns where {wanted} were expected.")


def unmasked(values: Any) -> Array:
    """Return an array whose masked entries are missing, which `nan=` then rules on."""
    if not np.ma.is_masked(values):
        return np.asarray(values)
    numbers = values.dtype.kind in "biuf"
    found: Array = values.data.astype(
        np.result_type(values.dtype, np.float32) if numbers else object
    )
    found[np.ma.getmaskarray(values)] = np.nan if numbers else None
    return found


def flat(y: Any) -> Array:
    """Return labels as one row of values, also when they came as one column."""
    labels = unmasked(y)
    if labels.dtype.kind == "T":  # text of zarr, which numpy does not yet cast to its own
        labels = labels.astype(object)
    return labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
