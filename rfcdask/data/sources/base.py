"""What every reader offers, and how its rows become blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from rfcdask.data.errors import DataError
from rfcdask.data.sources.survey import Survey
from rfcdask.kernels.types import Array, IntArray


class Batch(NamedTuple):
    """Some neighbouring rows: dense or CSR, with their labels where there are any."""

    X: Any
    y: Array | None


@dataclass(frozen=True)
class Wishes:
    """What the caller said about the source."""

    label: Any = None
    task: str = "auto"
    nan: str = "raise"
    n_columns: int | None = None
    zero_based: bool | str = "auto"
    delimiter: str | None = None
    header: bool | None = None
    progress: Any = None
    client: Any = None
    columns: tuple[str, ...] | None = None
    project: int | None = None

    @property
    def drop(self) -> bool:
        """Whether rows with missing values are left out."""
        return self.nan == "drop"


class Source(Protocol):
    """Rows of one data set, in files or arrays."""

    @property
    def names(self) -> list[str]:
        """What messages and the store call the source."""

    @property
    def in_parallel(self) -> bool:
        """Whether any range of rows can be read without reading those before it."""

    def identity(self) -> Any:
        """Return a JSON value that changes when the source does."""

    def survey(self, wishes: Wishes) -> Survey:
        """Look at the source: shape, type, labels, bad rows."""

    def adopt(self, survey: Survey) -> None:
        """Take the details of an earlier survey."""

    def narrowed(self, start: int, stop: int) -> Any:
        """Return what a task needs to read these rows: an object with the same `read`."""

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Give the rows from `start` up to `stop` in small batches."""


def between(batches: Iterator[Batch], start: int, stop: int) -> Iterator[Batch]:
    """Give only the rows from `start` up to `stop` of a run of batches that begins with row 0."""
    place = 0
    for X, y in batches:
        a, b = max(start - place, 0), min(stop - place, X.shape[0])
        place += X.shape[0]
        if a < b:
            yield Batch(X[a:b], None if y is None else y[a:b])
        if place >= stop:
            return


def keep_rows(batches: Iterator[Batch], start: int, dropped: IntArray) -> Iterator[Batch]:
    """Leave out the dropped rows of a run of batches that begins with row `start`."""
    for batch in batches:
        stop = start + batch.X.shape[0]
        first, last = np.searchsorted(dropped, [start, stop])
        if first == last:
            yield batch
        else:
            keep = np.ones(stop - start, bool)
            keep[dropped[first:last] - start] = False
            yield Batch(batch.X[keep], None if batch.y is None else batch.y[keep])
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
            left.append(Batch(batch.X[size:], None if batch.y is None else batch.y[size:]))
            batch = Batch(batch.X[:size], None if batch.y is None else batch.y[:size])
        size -= min(rows, size)
        yield batch


def is_sparse(X: Any) -> bool:
    """Whether rows are a scipy sparse matrix or array."""
    return bool(sparse.issparse(X))


def dense(X: Any, n_columns: int) -> Array:
    """Return rows as a dense array, whatever they came as."""
    rows: Array = X.toarray() if is_sparse(X) else np.asarray(X)
    if rows.shape[1] != n_columns:
        raise DataError(f"a batch has {rows.shape[1]} columns where {n_columns} were expected.")
    return rows
