"""A data set: lazy blocks of rows and labels, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from rfcdask.data._repr import facts
from rfcdask.data.counts import class_counts
from rfcdask.data.errors import DataError
from rfcdask.data.gather import Rows, choose_rows, gather, remember_reader
from rfcdask.data.projection import SparseProjection
from rfcdask.data.reader import Reader
from rfcdask.data.views import ColumnsReader, StandardReader, split_readers
from rfcdask.display.charts import bars
from rfcdask.display.html import aligned, render_repr
from rfcdask.kernels.seeds import seed_of
from rfcdask.kernels.types import Array, DaskArray, FloatArray


class Dataset:
    """Rows and labels as lazy Dask arrays whose chunks are the blocks on disk.

    Made by :func:`rfcdask.open_dataset`, :func:`rfcdask.ingest`, :func:`rfcdask.synthetic` and
    :func:`rfcdask.fetch`. Nothing is read until a block is computed.

    Attributes
    ----------
    X : dask.array.Array of shape (n_rows, n_columns)
        The rows; the chunk sizes are known.
    y : dask.array.Array of shape (n_rows,) or None
        The labels as they were given.
    classes : ndarray or None
        Sorted distinct labels; None for regression targets and without labels.
    columns : list of str or None
        Names of the columns; None when the source had none, or they were projected.
    attrs : mapping
        What the store says of itself: format number, source, statistics, seed and so on.
    projection : SparseProjection or None
        The projection that the rows went through, for new rows to follow.
    """

    def __init__(
        self,
        reader: Reader,
        attrs: Mapping[str, Any],
        *,
        projection: SparseProjection | None = None,
        meta: Any = None,
    ) -> None:
        self.reader = reader
        self.attrs = dict(attrs)
        self.projection = projection
        self._meta = meta

    @cached_property
    def X(self) -> DaskArray:  # noqa: N802 - the name the mathematics has
        """The rows, lazily."""
        chunks = (self.reader.sizes, (self.reader.n_columns,))
        meta = np.empty((0, 0), self.reader.dtype) if self._meta is None else self._meta
        array = _lazy(_read_block, "rows", self.reader, chunks, self.reader.dtype, meta)
        return remember_reader(array, self.reader)

    @cached_property
    def y(self) -> DaskArray | None:
        """The labels, lazily; None when there are none."""
        dtype = self.reader.label_dtype
        if dtype is None:
            return None
        chunks = (self.reader.sizes,)
        return _lazy(_read_labels, "labels", self.reader, chunks, dtype, np.empty(0, dtype))

    @property
    def classes(self) -> Array | None:
        """Sorted distinct labels."""
        known = self.attrs.get("classes")
        dtype = self.reader.label_dtype
        return None if known is None or dtype is None else np.asarray(known, dtype)

    @property
    def columns(self) -> list[str] | None:
        """Names of the columns of `X`."""
        names: list[str] | None = self.attrs.get("columns")
        return names

    def take_columns(self, places: Sequence[int]) -> Dataset:
        """Return the data set with these columns alone, in this order, lazily.

        Parameters
        ----------
        places : sequence of int
            Where the columns are now.
        """
        order = tuple(int(place) for place in places)
        if order == tuple(range(self.shape[1])):
            return self
        kept = (key for key in ("columns", *_STATISTICS) if isinstance(self.attrs.get(key), list))
        chosen = {key: [self.attrs[key][place] for place in order] for key in kept}
        attrs = self.attrs | chosen | {"n_columns": len(order)}
        return Dataset(ColumnsReader(self.reader, order), attrs, meta=self._meta)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return sum(self.reader.sizes), self.reader.n_columns

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def mean(self) -> FloatArray:
        """Mean of each column of `X`, over all rows of the store."""
        return self._statistic("mean") * self._factor

    @property
    def variance(self) -> FloatArray:
        """Variance of each column of `X`, over all rows of the store."""
        return self._statistic("variance") * self._factor**2

    @property
    def _factor(self) -> float:
        scale = self.attrs.get("scale")
        return 1.0 if scale is None else float(scale)

    def _statistic(self, name: str) -> FloatArray:
        if name not in self.attrs:
            raise DataError(
                "this data set has no column statistics: write it to a store first, with "
                "rfcdask.ingest or dest=."
            )
        return np.asarray(self.attrs[name], np.float64)

    def standardize(self) -> Dataset:
        """Return the data set with mean 0 and variance 1 in every column, lazily.

        The statistics are those of all rows of the store, also for the parts of a split, so that
        both parts get the same map. Constant columns become 0.
        """
        variance = self.variance
        if not np.isfinite(variance).all():
            raise DataError(
                f"column {int(np.argmax(~np.isfinite(variance)))} holds values too large to be "
                "squared, so it has no deviation to divide by: scale it down first, with scale=."
            )
        deviation = np.sqrt(variance)
        deviation[deviation == 0] = 1.0
        reader = StandardReader(self.reader, tuple(self.mean.tolist()), tuple(deviation.tolist()))
        attrs = {key: value for key, value in self.attrs.items() if key not in _STATISTICS}
        return Dataset(reader, attrs | {"standardized": True}, projection=self.projection)

    def split(self, test_size: float = 0.25, random_state: Any = None) -> tuple[Dataset, Dataset]:
        """Split the rows at random and return the training and the test part, both lazy.

        Parameters
        ----------
        test_size : float or int
            Fraction of the rows, or their number.
        random_state : int, Generator, RandomState or None
            The same seed gives the same parts, whatever the scheduler.

        Returns
        -------
        train, test : Dataset
            Data sets with known chunk sizes.
        """
        readers = split_readers(self.reader, test_size, seed_of(random_state))
        train, test = (
            Dataset(
                reader,
                self.attrs | {"n_rows": sum(reader.sizes)},
                projection=self.projection,
                meta=self._meta,
            )
            for reader in readers
        )
        return train, test

    def rows(self, indices: Any, *, client: Any = None) -> Rows:
        """Fetch rows by number into memory: one task a block touched, only the chunks needed.

        Parameters
        ----------
        indices : sequence of int
            Row numbers in any order, repeats allowed.
        client : distributed.Client, optional
            Where to run; without one, the current client or Dask's local scheduler.
        """
        return gather(self.reader, indices, client)

    def sample(self, n_rows: int, random_state: Any = None, *, client: Any = None) -> Rows:
        """Fetch a uniform sample of distinct rows into memory, sorted by row number.

        When the store was shuffled, a few whole chunks at random places *are* a uniform sample
        of the rows, and only those are read. Two such samples of one store may share chunks.
        """
        shuffled = bool(self.attrs.get("shuffled"))
        seed = seed_of(random_state)
        return self.rows(choose_rows(self.reader, n_rows, seed, shuffled=shuffled), client=client)

    def verify(self, *, progress: Any = None, client: Any = None) -> None:
        """Read every byte of the store and compare it with the manifest.

        Rows are checked whenever they are read; this reads all of them, and the rest of the store.
        ``rfcdask info --verify`` does the same.

        Parameters
        ----------
        progress : bool, str or callable, optional
            See :func:`rfcdask.execution.progress.track`.
        client : distributed.Client, optional
            Where to read; without one, the current client or threads of this process.

        Raises
        ------
        DamagedStoreError
            With the name of every file that is missing or is not what was written.
        """
        from rfcdask.data.manifest import same_manifest
        from rfcdask.data.store import verify_location

        reader: Any = self.reader
        while hasattr(reader, "base"):
            reader = reader.base
        if not hasattr(reader, "location"):
            raise DataError(
                "this data set is not read from a store, so there is nothing to verify: write it "
                "to one first, with rfcdask.ingest or dest=."
            )
        if reader.has_manifest:
            same_manifest(reader.location, reader.fingerprint)
        verify_location(reader.location, progress=progress, client=client)

    def plot(self, ax: Any = None) -> Any:
        """Draw the rows of each class, for which all labels are read; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
        counts = class_counts(self)
        return bars(list(counts), list(counts.values()), "rows").plot(ax)

    def __repr__(self) -> str:
        return aligned("<rfcdask.Dataset>", facts(self))

    def _repr_html_(self) -> str:
        return render_repr(title="rfcdask.Dataset", facts=facts(self))


_STATISTICS = ("mean", "variance", "min", "max", "scale")


def _lazy(
    function: Any, name: str, reader: Reader, chunks: Any, dtype: Any, meta: Any
) -> DaskArray:
    return da.map_blocks(
        function,
        reader=reader,
        chunks=chunks,
        dtype=dtype,
        meta=meta,
        name=f"{name}-{tokenize(reader)}",
    )


def _read_block(reader: Reader, block_id: tuple[int, ...]) -> Any:
    return reader.block(block_id[0])


def _read_labels(reader: Reader, block_id: tuple[int, ...]) -> Array:
    return reader.labels(block_id[0])
