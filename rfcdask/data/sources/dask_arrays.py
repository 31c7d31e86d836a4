"""Dask arrays and data sets of our own as a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from dask.base import compute, tokenize
from dask.delayed import delayed

from rfcdask.data.columns import NAMELESS, Names
from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DataError
from rfcdask.data.projection import SparseProjection
from rfcdask.data.reader import Reader
from rfcdask.data.sources.arrays import BATCH_BYTES, check_pair, flat, say_bad
from rfcdask.data.sources.base import Batch, Wishes
from rfcdask.data.sources.labels import Labels, LabelTally
from rfcdask.data.sources.survey import Survey, bad_rows_of
from rfcdask.execution.executor import run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.types import DaskArray, IntArray


class DaskRows:
    """A lazy array of rows and one of labels.

    Values are looked at while they are written, not before, because computing them may be dear;
    only ``nan='drop'`` has to know the bad rows first.
    """

    def __init__(self, X: DaskArray, y: DaskArray | None) -> None:
        self.X = _known(X)
        self.y = None if y is None else _known(y)

    @property
    def names(self) -> list[str]:
        """What messages call the array."""
        return ["dask array"]

    @property
    def in_parallel(self) -> bool:
        """Blocks are tasks of their own."""
        return True

    def identity(self) -> Any:
        """Names of the arrays, which hash what they are made of."""
        return [self.X.name, list(self.X.shape), None if self.y is None else self.y.name]

    def adopt(self, survey: Survey) -> None:
        """Need nothing: the arrays know their shape."""

    def narrowed(self, start: int, stop: int) -> DaskBatch:
        """Return the lazy rows of one block."""
        y = None if self.y is None else self.y[start:stop]
        return DaskBatch(self.X[start:stop], y)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Compute the rows at once; blocks are written by tasks instead."""
        yield self.narrowed(start, stop).compute()

    def survey(self, wishes: Wishes) -> Survey:
        """Compare shapes and collect the labels, block by block."""
        check_pair("X", self.X, "y", self.y)
        bad, tally = self._look(wishes)
        labels = None
        if self.y is not None:
            given = None if tally.text else self.y.dtype.newbyteorder("=")
            labels = tally.conclude("y", wishes.task, given)
        dtype = np.dtype(self.X.dtype).newbyteorder("=").str
        return Survey(self.X.shape[0], self.X.shape[1], dtype, labels, bad)

    def _look(self, wishes: Wishes) -> tuple[IntArray, LabelTally]:
        edges = np.concatenate([[0], np.cumsum(self.X.chunks[0])]).tolist()
        spans = list(pairwise(edges))
        tally, bad = LabelTally(), [np.empty(0, np.int64)]
        if self.y is None and not wishes.drop:
            return bad[0], tally
        tasks = (self._look_task(a, b, wishes) for a, b in spans)
        with track("checking the labels", edges[-1], "rows", progress=wishes.progress) as report:
            results = run_tasks(tasks, wishes.client)
            for (start, stop), (found, part) in zip(spans, results, strict=True):
                bad.append(found + start)
                tally.join(part)
                report.advance(stop - start)
        return np.concatenate(bad), tally

    def _look_task(self, start: int, stop: int, wishes: Wishes) -> Any:
        batch = self.narrowed(start, stop)
        X = batch.X if wishes.drop else None
        return delayed(_look_at, pure=False)(X, batch.y, start, wishes.drop)


@dataclass(frozen=True)
class DaskBatch:
    """Rows that a task gets computed as its arguments."""

    X: DaskArray
    y: DaskArray | None

    def compute(self) -> Batch:
        """Compute the rows here."""
        X, y = compute(self.X, self.y, scheduler="sync")
        return Batch(X, None if y is None else flat(y))


def _known(array: DaskArray) -> DaskArray:
    # Without chunk sizes nobody knows which row is which; finding them computes the array once.
    return array.compute_chunk_sizes() if np.isnan(array.shape[0]) else array


def _look_at(X: Any, y: Any, start: int, drop: bool) -> tuple[IntArray, LabelTally]:
    tally = LabelTally()
    labels = None if y is None else flat(y)
    n_rows = X.shape[0] if X is not None else len(flat(y))
    values = np.empty((n_rows, 0)) if X is None else X
    bad = bad_rows_of(values, labels)
    if len(bad) and not drop:
        label = None if labels is None else labels[bad[0]]
        raise DataError(say_bad("y", start + int(bad[0]), np.empty(0), label))
    if labels is not None and len(labels) > len(bad):
        tally.add(np.delete(labels, bad))
    return bad, tally


@dataclass(frozen=True)
class DatasetRows:
    """A data set of our own, on disk or synthetic; its rows were looked at when it was made."""

    reader: Reader
    labels: Labels | None
    name: str
    scale: float | None = None
    projection: SparseProjection | None = None
    shuffled: bool = False
    columns: Names = NAMELESS

    @classmethod
    def of(cls, dataset: Dataset) -> DatasetRows:
        """Take the reader and what the attributes say of the labels."""
        name = str(dataset.attrs.get("name", getattr(dataset.reader, "location", "data set")))
        labels, projection = _labels_of(dataset), dataset.projection
        shuffled = bool(dataset.attrs.get("shuffled"))
        return cls(
            dataset.reader,
            labels,
            name,
            projection=projection,
            shuffled=shuffled,
            columns=Names.of(dataset.attrs),
        )

    @property
    def names(self) -> list[str]:
        """What messages call it."""
        return [self.name]

    @property
    def in_parallel(self) -> bool:
        """Blocks can be read in any order."""
        return True

    def identity(self) -> Any:
        """Hash of the reader, which knows where and what the rows are."""
        return tokenize(self.reader)

    def survey(self, wishes: Wishes) -> Survey:
        """Know everything already."""
        rows, columns = sum(self.reader.sizes), self.reader.n_columns
        names = self.columns
        if self.labels is None:
            names = replace(names, label=None, label_column=None)
        return Survey(rows, columns, self.reader.dtype.str, self.labels, names=names)

    def adopt(self, survey: Survey) -> None:
        """Need nothing."""

    def narrowed(self, start: int, stop: int) -> DatasetRows:
        """Return itself: a reader is small."""
        return self

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Give the rows in batches of whole chunks."""
        reader = self.reader
        run = reader.run_rows
        width = reader.n_columns * reader.dtype.itemsize
        step = run * max(1, BATCH_BYTES // (run * width))
        begin = 0
        for block, size in enumerate(reader.sizes):
            first, last = max(start - begin, 0), min(stop - begin, size)
            for a in range(first, last, step):
                X, y = reader.rows(block, np.arange(a, min(a + step, last)))
                yield Batch(X, None if self.labels is None else y)
            begin += size


def _labels_of(dataset: Dataset) -> Labels | None:
    dtype = dataset.reader.label_dtype
    if dtype is None:
        return None
    classes = dataset.attrs.get("classes")
    if classes is None:
        return Labels(dtype.str, None)
    if dtype.kind == "U":
        return Labels(np.min_scalar_type(len(classes) - 1).str, tuple(classes), text=True)
    return Labels(dtype.str, tuple(classes))
