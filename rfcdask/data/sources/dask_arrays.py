"""Dask arrays and data sets of our own as a source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import zarr
from dask.base import compute, tokenize
from dask.delayed import delayed

from rfcdask.data.columns import NAMELESS, Names
from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DataError
from rfcdask.data.location import Location
from rfcdask.data.reader import Reader, StoreReader
from rfcdask.data.sample import checked_blocks
from rfcdask.data.sources.arrays import (
    ArrayRows,
    ZarrMember,
    check_pair,
    flat,
    unmasked,
    zarr_place,
)
from rfcdask.data.sources.base import (
    BATCH_BYTES,
    Batch,
    Labels,
    Source,
    SourceOptions,
    Survey,
    Tally,
)
from rfcdask.data.views import SparseProjection, View
from rfcdask.execution.dask_internals import values_in_graph
from rfcdask.execution.executor import run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import DaskArray, is_sparse


def stored_facts(*arrays: DaskArray) -> str | None:
    """Return what changes with the files of the zarr arrays that Dask arrays read, None for none.

    Names of Dask arrays do not: what is written to the place of a zarr array has the same name.
    """
    found = [value for array in arrays for value in values_in_graph(array)]
    places = [_place(value) for value in found if isinstance(value, zarr.Array)]
    with suppress(OSError, DataError, NotImplementedError):  # some servers cannot list files
        return tokenize([place and place.stamps() for place in places]) if places else None
    return None


def places_read(source: Source | DaskArray) -> list[Location]:
    """Return where the zarr arrays and stores lie that a source or a Dask array reads."""
    if isinstance(source, DaskRows):
        return [*places_read(source.X), *(() if source.y is None else places_read(source.y))]
    if isinstance(source, DatasetRows):
        values: Iterable[Any] = [source.reader]
    elif isinstance(source, ArrayRows):
        values = [getattr(part, "array", part) for pair in source.parts for part in pair]
    else:
        values = () if isinstance(source, Source) else values_in_graph(source)
    places = [_place(value) for value in values]
    return [place for place in places if place is not None]


def paths_read(rows: Source) -> list[str]:
    """Return the local files of a source and its labels; archive[array] is one of an archive."""
    pairs = rows.parts if isinstance(rows, ArrayRows) else ()
    names = [*rows.names, *(y.name for _, y in pairs if y is not None)]
    return [name.rpartition("[")[0] or name for name in names if os.path.isabs(name)]


def _place(value: Any) -> Location | None:
    """Return where a zarr array, or the store of a reader or of a view of one, lies."""
    while isinstance(value, View):
        value = value.base
    if isinstance(value, zarr.Array):
        return zarr_place(value)
    return value.location if isinstance(value, StoreReader | ZarrMember) else None


class DaskRows(Source):
    """A lazy array of rows and one of labels.

    Values are looked at while they are written, not before, because computing them may be
    expensive; only ``nan='drop'`` has to know the bad rows first.
    """

    def __init__(self, X: DaskArray, y: DaskArray | None) -> None:
        self.X = _known(X, "X")
        self.y = None if y is None else _known(y, "y")

    @property
    def names(self) -> list[str]:
        return ["dask array"]

    def identity(self) -> Any:
        # The names of Dask arrays hash what they are made of, but of zarr arrays only the place.
        lazy = [self.X] if self.y is None else [self.X, self.y]
        name = None if self.y is None else self.y.name
        return [self.X.name, list(self.X.shape), name, stored_facts(*lazy)]

    def narrowed(self, start: int, stop: int) -> DaskRows:
        return DaskRows(self.X[start:stop], None if self.y is None else self.y[start:stop])

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Compute the rows at once; blocks are written by tasks instead."""
        part = self.narrowed(start, stop)
        X, y = compute(part.X, part.y, scheduler="sync")
        yield Batch(X, None if y is None else flat(y))

    def survey(self, options: SourceOptions) -> Survey:
        """Compare shapes and collect the labels, block by block."""
        check_pair("X", self.X, "y", self.y)
        tally = self._look(options)
        labels = None
        if self.y is not None:
            given = None if tally.labels.text else self.y.dtype.newbyteorder("=")
            labels = tally.labels.conclude("y", options.task, given)
        (n_rows, n_columns), dtype = self.X.shape, np.dtype(self.X.dtype).newbyteorder("=")
        n_values = tally.n_values if self._counts_values(options) else None
        return Survey(n_rows, n_columns, dtype.str, labels, tally.bad_rows, n_values=n_values)

    def _look(self, options: SourceOptions) -> Tally:
        tally = Tally()
        rows = options.drop or self._counts_values(options)
        if self.y is None and not rows:
            return tally
        total = self.X.shape[0]
        with track("checking the labels", total, "rows", progress=options.progress) as report:
            looks, width = self._looks(rows, options.drop), self.X.shape[1] * self.X.dtype.itemsize
            held = max(self.X.chunks[0]) * (width if rows else 8)
            for found in run_tasks(looks, options.client, block_bytes=held):
                tally.join(found)
                report.advance(found.n_rows)
        return tally

    def _counts_values(self, options: SourceOptions) -> bool:
        """Whether blocks are CSR and may be stored so, for which their values are counted first."""
        return is_sparse(self.X._meta) and options.sparse is not False and not options.project

    def _looks(self, rows: bool, drop: bool) -> Iterator[Any]:
        look = delayed(_look_at, pure=False)
        for start, stop in pairwise([0, *np.cumsum(self.X.chunks[0]).tolist()]):
            part = self.narrowed(start, stop)
            yield look(part.X if rows else None, part.y, start, drop)


def _known(array: DaskArray, name: str) -> DaskArray:
    # Without chunk sizes nobody knows which row is which; finding them computes the array once.
    found = array.compute_chunk_sizes() if np.isnan(array.shape[:1]).any() else array
    return checked_blocks(found, name, masked=True)


def _look_at(X: Any, y: Any, first: int, drop: bool) -> Tally:
    tally = Tally()
    labels = None if y is None else flat(y)
    # Without X there are labels: one of the two has to be looked at.
    rows = np.empty((len(flat(y)), 0)) if X is None else X if is_sparse(X) else unmasked(X)
    tally.check("y", first, rows, labels, drop=drop)
    return tally


@dataclass(frozen=True)
class DatasetRows(Source):
    """A data set of our own, on disk or synthetic; its rows were looked at when it was made."""

    reader: Reader
    labels: Labels | None
    name: str
    scale: float | None = None
    projection: SparseProjection | None = None
    shuffled: bool = False
    columns: Names = NAMELESS
    n_values: int | None = None
    table: Any = None
    standardized: str | None = None

    @classmethod
    def of(cls, dataset: Dataset, *, labelled: bool = True) -> DatasetRows:
        """Take the reader and what the attributes say of the labels."""
        reader, attrs = dataset.reader, dataset.attrs
        name = str(attrs.get("name", getattr(reader, "location", "data set")))
        scale = None
        if isinstance(reader, StoreReader) and reader.scale is not None:
            # The values stay the integers they are on disk, and so does their scale.
            reader, scale = replace(reader, scale=None), reader.scale
        names, projection, table = Names.of(attrs), dataset.projection, attrs.get("table")
        if attrs.get("standardized"):
            # A store says how new rows become like its own, and of standardizing it cannot say it.
            names, projection, table = replace(names, columns_in_file=None), None, None
        return cls(
            reader,
            _labels_of(dataset) if labelled else None,
            name,
            scale=scale,
            projection=projection,
            shuffled=bool(attrs.get("shuffled")),
            columns=names,
            n_values=_count_values(dataset),
            table=table,
            standardized=attrs.get("standardized"),
        )

    @property
    def names(self) -> list[str]:
        return [self.name]

    def identity(self) -> Any:
        return tokenize(self.reader)

    def survey(self, options: SourceOptions) -> Survey:
        """Know everything already."""
        rows, columns = sum(self.reader.sizes), self.reader.n_columns
        names = self.columns
        known = self.labels and ("classification" if self.labels.classes else "regression")
        if options.task not in ("auto", known or options.task):
            raise DataError(
                f"task={options.task!r}: the labels of {self.name} are kept for {known}: leave "
                "task= out, or ingest the data that it was made from."
            )
        if self.labels is None:
            names = replace(names, label=None, label_column=None)
        return Survey(
            rows,
            columns,
            self.reader.dtype.str,
            self.labels,
            names=names,
            n_values=self.n_values,
            table=self.table,
        )

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the rows in batches of whole chunks."""
        reader = self.reader
        run = reader.run_rows
        step = run * max(1, BATCH_BYTES // (run * reader.row_bytes))
        begin = 0
        for block, size in enumerate(reader.sizes):
            first, last = max(start - begin, 0), min(stop - begin, size)
            for a in range(first, last, step):
                X, y = reader.rows(block, np.arange(a, min(a + step, last)))
                yield Batch(X, None if self.labels is None else y)
            begin += size


def _count_values(dataset: Dataset) -> int | None:
    """Return how many values sparse rows have: what their store says, else about so many."""
    if not dataset.sparse:
        return None
    known = dataset.attrs.get("n_values")
    value_bytes = dataset.reader.dtype.itemsize + 4
    return int(known or dataset.shape[0] * dataset.reader.row_bytes // value_bytes)


def _labels_of(dataset: Dataset) -> Labels | None:
    dtype = dataset.reader.label_dtype
    if dtype is None:
        return None
    classes = dataset.attrs.get("classes")
    if classes is not None and dtype.kind == "U":
        return Labels(np.min_scalar_type(len(classes) - 1).str, tuple(classes), text=True)
    kept = None if classes is None else tuple(classes)
    return Labels(dtype.str, kept, targets=dataset.reader.n_targets)
