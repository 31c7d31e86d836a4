"""The first look at a source: how many rows and columns, of which type, with which labels.

It reads text to its end once before anything is written. That costs a pass, and buys that every
malformed line, missing value and wrong label is named before the work starts, that the store's
shape is known, and that whole numbers can stay whole numbers on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np

from rfcdask.data.columns import NAMELESS, Names
from rfcdask.data.errors import DataError
from rfcdask.data.sources.labels import Labels, LabelTally, is_missing
from rfcdask.kernels.types import Array, IntArray

LARGEST_EXACT = 2.0**53


@dataclass(frozen=True)
class Survey:
    """What is known of a source before it is read.

    Parameters
    ----------
    n_rows, n_columns : int
        Shape of the source, including the rows to be dropped.
    dtype : str
        Type that holds every value of X exactly.
    labels : Labels, optional
        What the labels are.
    dropped : array of int
        Sorted rows that hold a value which is not finite, to be left out.
    details : JSON value
        What the source itself must know to read again.
    names : Names
        What the source calls its columns and its label.
    """

    n_rows: int
    n_columns: int
    dtype: str
    labels: Labels | None
    dropped: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    details: Any = None
    names: Names = NAMELESS

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
        return {
            "n_rows": self.n_rows,
            "n_columns": self.n_columns,
            "dtype": self.dtype,
            "labels": None if self.labels is None else self.labels.to_json(),
            "dropped": self.dropped.tolist(),
            "details": self.details,
            "names": self.names.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Survey:
        """Rebuild what `to_json` wrote."""
        if "names" not in data:
            raise DataError(
                "this ingest was begun by an older version of rfcdask, which kept no column names: "
                "pass overwrite=True to begin anew."
            )
        labels = data["labels"]
        return cls(
            data["n_rows"],
            data["n_columns"],
            data["dtype"],
            None if labels is None else Labels.from_json(labels),
            np.asarray(data["dropped"], np.int64),
            data["details"],
            Names.from_json(data["names"]),
        )


@dataclass
class Tally:
    """Counts rows and the range of their values, batch by batch."""

    n_rows: int = 0
    whole: bool = True
    single: bool = True
    low: float = 0.0
    high: float = 0.0
    bad_rows: list[int] = field(default_factory=list)
    labels: LabelTally = field(default_factory=LabelTally)

    def add(self, n_rows: int, values: Array, bad: IntArray, y: Array | None) -> None:
        """Take some rows: their values, which of them are bad, and the labels of the others."""
        whole, single, low, high = _range(np.ascontiguousarray(values).reshape(-1))
        self.whole &= whole
        self.single &= single
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.bad_rows.extend((bad + self.n_rows).tolist())
        self.n_rows += n_rows
        if y is not None and len(y):
            self.labels.add(y)

    def join(self, other: Tally) -> None:
        """Take what the tally of the next rows has seen."""
        self.whole &= other.whole
        self.single &= other.single
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.bad_rows.extend(row + self.n_rows for row in other.bad_rows)
        self.n_rows += other.n_rows
        self.labels.join(other.labels)

    def dtype(self) -> str:
        """Return the smallest type that holds every value exactly, float64 at the last."""
        if not self.whole or max(-self.low, self.high) > LARGEST_EXACT:
            return np.dtype(np.float32 if self.single else np.float64).str
        if self.low >= 0:
            return np.min_scalar_type(int(self.high)).str
        return np.min_scalar_type(min(int(self.low), -int(self.high) - 1)).str


@numba.njit(cache=True, nogil=True)
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
