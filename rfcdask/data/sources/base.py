"""What every source of rows offers, what the first look at it finds, and how rows become blocks.

The first look reads text to its end once before anything is written. That costs a pass, and buys
that every malformed line, missing value and wrong label is named before the work starts, that the
store's shape is known, and that whole numbers can stay whole numbers on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rfcdask.data.columns import NAMELESS, Names, distinct_texts
from rfcdask.data.errors import DataError, NotNumbersError
from rfcdask.kernels.arrays import Array, IntArray, is_sparse
from rfcdask.kernels.runtime import compiled

if TYPE_CHECKING:
    from distributed import Client

    from rfcdask.data.views import SparseProjection

BATCH_BYTES = 8 * 2**20
LARGEST_EXACT = 2.0**53
TASKS = ("auto", "classification", "regression")
AUTO_CLASSES = 100
"""Whole-numbered labels with at most so many distinct values are taken for classes."""
MOST_CLASSES = 10_000


class Batch(NamedTuple):
    """Some neighbouring rows: dense or CSR, with their labels where there are any."""

    X: Any
    y: Array | None

    def cut(self, rows: Any) -> Batch:
        """Return some of the rows, given as a slice or a mask."""
        return Batch(self.X[rows], None if self.y is None else self.y[rows])


@dataclass(frozen=True)
class Labels:
    """What the labels of a data set are."""

    dtype: str  # on disk
    classes: tuple[Any, ...] | None  # sorted distinct labels; None for regression targets
    text: bool = False  # whether they are text, kept on disk as their positions in `classes`
    targets: int | None = None  # how many a row has, where it has several

    def encode(self, y: Array) -> Array:
        """Return labels as they are kept on disk."""
        if not self.text:
            return np.asarray(y).astype(self.dtype)
        names, labels = np.asarray(self.classes), np.asarray(y).astype(str)
        codes = np.minimum(np.searchsorted(names, labels), len(names) - 1)
        if (names[codes] != labels).any():
            strange = labels[names[codes] != labels][0]
            raise DataError(
                f"the label {str(strange)!r} was not there when the classes were counted: the "
                "source has changed since, so store it again."
            )
        return codes.astype(self.dtype)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Labels:
        """Rebuild what `dataclasses.asdict` made plain."""
        kept = None if data["classes"] is None else tuple(data["classes"])
        return cls(data["dtype"], kept, data["text"], data.get("targets"))


@dataclass
class LabelTally:
    """Collects the distinct labels, batch by batch, and gives up counting when there are many."""

    distinct: set[Any] = field(default_factory=set)
    text: bool = False
    whole: bool = True
    many: bool = False
    numbers: bool = False
    targets: list[LabelTally] = field(default_factory=list)
    """What each column has, where there are several."""

    @property
    def mixed(self) -> bool:
        """Whether some batches were numbers and others text."""
        return self.text and self.numbers

    def add(self, y: Array) -> None:
        """Take the labels of some rows."""
        values = np.asarray(y)
        if values.ndim == 2:
            more = [LabelTally() for _ in values.T]
            for one, column in zip(more, values.T, strict=True):
                one.add(column)
            self.join(LabelTally(targets=more))
            return
        found = distinct_texts(values) if is_text(values) else np.unique(values)
        if values.dtype.kind in "OT":
            _require_text(values)
            _require_apart(values, found)
        text, many = is_text(values), len(found) > MOST_CLASSES
        whole = text or bool(np.all(found == np.rint(found.astype(np.float64))))
        distinct = set() if many else set(found.tolist())
        self.join(LabelTally(distinct, text, whole, many, numbers=not text))

    def join(self, other: LabelTally) -> None:
        """Take what another tally has seen."""
        for mine, its in zip(self.targets, other.targets, strict=False):
            mine.join(its)
        self.targets = self.targets or other.targets
        self.distinct |= other.distinct
        self.text |= other.text
        self.numbers |= other.numbers
        self.whole &= other.whole
        self.many |= other.many or len(self.distinct) > MOST_CLASSES
        if self.many:
            self.distinct.clear()

    def conclude(
        self, name: str, task: str, dtype: Any = None, label: Sequence[str] = ()
    ) -> Labels:
        """Decide between classes and targets; `dtype` is the given type, None for text files."""
        if self.targets:
            return self._conclude_targets(name, task, dtype, label)
        if self.text and task == "regression":
            raise DataError(f"{name}: task='regression' needs numbers, but the labels are text.")
        if not self._are_classes(name, task):
            return Labels(np.dtype(dtype or np.float64).str, None)
        if dtype is None and not self.text:
            self._require_exact(name)
        if len(self.distinct) < 2:
            only = next(iter(self.distinct), "none")
            raise DataError(
                f"{name}: all labels are of one class ({only}): choose another label column, or "
                "pass label=False for rows without labels."
            )
        classes = tuple(sorted(self.distinct))
        if self.text:
            return Labels(np.min_scalar_type(len(classes) - 1).str, classes, text=True)
        kind = np.dtype(np.int64 if dtype is None and self.whole else dtype or np.float64)
        kept = tuple(kind.type(value).item() for value in classes)
        if kept != classes:  # whole numbers in one file, which floats in another make floats
            self._require_exact(name)
        return Labels(kind.str, kept)

    def _conclude_targets(self, name: str, task: str, dtype: Any, label: Sequence[str]) -> Labels:
        """Take several targets, which are numbers: of classes there is one label."""
        names = [repr(one) for one in label] or [f"number {n}" for n in range(len(self.targets))]
        each = zip(names, self.targets, strict=True)
        found = [one for one, tally in each if tally._are_classes(name, task)]
        if found:
            what = f"{', '.join(found)} {'are' if len(found) > 1 else 'is'}"
            raise DataError(
                f"{name}: the target {what} taken for classes, and several must be numbers: give "
                "one label, or pass task='regression' to predict whole numbers as numbers."
            )
        kind = np.result_type(np.float64 if dtype is None else dtype, np.float32)
        return Labels(kind.str, None, targets=len(self.targets))

    def _require_exact(self, name: str) -> None:
        """Refuse numbers that float64 may have rounded, or rounds, to the class beside them."""
        large = [value for value in self.distinct if abs(value) >= 2.0**53]
        if large:
            raise DataError(
                f"{name}: the label {large[0]:.0f} has so many digits that it cannot be told from "
                "its neighbours: give the classes smaller numbers, or pass task='regression'."
            )

    def _are_classes(self, name: str, task: str) -> bool:
        if task == "regression":
            return False
        if self.many and (task == "classification" or self.text):
            raise DataError(
                f"{name}: there are more than {MOST_CLASSES} distinct labels: choose another "
                "label column, or pass task='regression' for numbers."
            )
        if task == "classification" or self.text:
            return True
        return self.whole and not self.many and len(self.distinct) <= AUTO_CLASSES


def _require_text(values: Array) -> None:
    """Refuse objects that are numbers; frames give booleans beside gaps as objects."""
    distinct = set(values.tolist())
    given: list[type] = [type(v) for v in distinct if isinstance(v, Number) and v == v]
    if given and bool not in given and not any(isinstance(v, str | bytes) for v in distinct):
        raise DataError(
            f"labels are Python objects of type {given[0].__name__}, and would become text: give "
            "y.astype(float), or y.astype(str)."
        )


def _require_apart(values: Array, found: Array) -> None:
    """Refuse labels that differ and are the same text: 1 and "1", or "a" with a NUL behind it."""
    distinct = set(values.tolist())
    if len(distinct) > len(found):
        texts = [str(np.asarray(label).astype(str)) for label in distinct]
        pairs = zip(texts, distinct, strict=True)
        alike = sorted(repr(label) for text, label in pairs if texts.count(text) > 1)
        shown = " and ".join(alike[:2])
        raise DataError(
            f"the labels {shown} differ and would become one class: write them in one way."
        )


def is_text(y: Array) -> bool:
    """Whether labels are strings (or bytes, or objects) rather than numbers."""
    return y.dtype.kind in "OUST"


def is_missing(y: Array) -> Array:
    """Return which labels are absent: NaN, None, or empty text."""
    if y.dtype.kind == "f":
        good = np.isfinite(y)
        return np.logical_not(good if y.ndim == 1 else good.all(axis=1))
    if y.dtype.kind == "O":
        return np.array([value is None or value == "" or value != value for value in y], bool)
    if y.dtype.kind in "UST":
        return np.asarray(y == y.dtype.type(""))
    return np.zeros(len(y), bool)


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
    standardized: str | None = None
    """What tells the units of rows that were standardized before they are stored."""

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
            self.labels.add(np.delete(y, bad, axis=0))

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
    if X.dtype.kind == "f" and hasattr(X, "indptr"):
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
