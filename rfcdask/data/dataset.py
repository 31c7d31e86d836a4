"""A data set: lazy blocks of rows and labels, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.utils import format_bytes

from rfcdask.data.columns import (
    STANDARDIZED,
    count_labels,
    first_names,
    names_in_file,
    projection_digest,
    squares_kept,
    table_digest,
)
from rfcdask.data.errors import DataError
from rfcdask.data.layout import whole_number
from rfcdask.data.reader import Reader
from rfcdask.data.sample import Rows, choose_rows, fetch_rows, rows_name
from rfcdask.data.tables import TableSpec
from rfcdask.data.views import (
    ColumnsReader,
    ProjectedReader,
    SmallerBlocksReader,
    SparseProjection,
    StandardReader,
    split_readers,
)
from rfcdask.display.charts import bars
from rfcdask.display.html import aligned, render_repr
from rfcdask.execution.executor import compute
from rfcdask.kernels.arrays import Array, DaskArray, FloatArray, is_sparse
from rfcdask.kernels.seeds import seed_of

MOST_LISTED = 10
"""More classes than this are counted, not listed."""

MOST_NAMED = 20_000
"""Letters of column names that travel with the lazy rows, by which models know their columns."""


class Dataset:
    """Rows and labels as lazy Dask arrays whose chunks are the blocks on disk, large ones in parts.

    Made by :func:`rfcdask.open_dataset`, :func:`rfcdask.ingest`, :func:`rfcdask.synthetic` and
    :func:`rfcdask.fetch`. Nothing is read until a block is computed.

    Attributes
    ----------
    X : dask.array.Array of shape (n_rows, n_columns)
        The rows; the chunk sizes are known.
    y : dask.array.Array of shape (n_rows,) or (n_rows, n_targets), or None
        The labels as they were given.
    targets : list of str or None
        Names of the columns of `y` where it has several.
    classes : ndarray or None
        Sorted distinct labels; None for regression targets and without labels.
    columns : list of str or None
        Names of the columns; None when the source had none, or they were projected.
    attrs : mapping
        What the store says of itself: format number, source, statistics, seed and so on.
    projection : SparseProjection or None
        The projection that the rows went through, for new rows to follow.
    sparse : bool
        Whether the blocks of `X` are CSR matrices.
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
        names = tuple(self.columns or ())
        known: dict[str, Any] = {"encoding": self._encoding}
        known |= {"columns": names} if 0 < sum(map(len, names)) <= MOST_NAMED else {}
        name = rows_name(self.reader)
        return self._lazy(_read_block, name, chunks, self.reader.dtype, meta, **known)

    @cached_property
    def y(self) -> DaskArray | None:
        """The labels, lazily; None when there are none."""
        dtype = self.reader.label_dtype
        if dtype is None:
            return None
        name, k = f"labels-{tokenize(self.reader)}", self.reader.n_targets
        chunks = (self.reader.sizes,) if k is None else (self.reader.sizes, (k,))
        return self._lazy(_read_labels, name, chunks, dtype, np.empty((0,) * len(chunks), dtype))

    @property
    def targets(self) -> list[str] | None:
        """Names of several targets, numbers where they have none."""
        if (k := self.reader.n_targets) is None:
            return None
        return list(self.attrs.get("label_name") or map(str, range(k)))

    def _lazy(
        self, read: Any, name: str, chunks: Any, dtype: Any, meta: Any, **known: Any
    ) -> DaskArray:
        about = {"chunks": chunks, "dtype": dtype, "meta": meta, "name": name}
        return da.map_blocks(read, reader=self.reader, **known, **about)

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

    @property
    def _encoding(self) -> str | None:
        """What tells apart the units of rows: tables, projections, standardizing; else None."""
        attrs, standard = self.attrs, self.attrs.get("standardized")
        if "encoding" in attrs or (standard and self.projection is not None):
            return None
        if self.projection is not None:
            names = attrs.get("columns_in_file")
            return projection_digest(self.projection, names, attrs.get("table"))
        return standard or table_digest(attrs.get("table"))

    def take_columns(self, places: Sequence[int]) -> Dataset:
        """Return the data set with these columns alone, in this order, lazily.

        Parameters
        ----------
        places : sequence of int
            Where the columns are now.
        """
        order = tuple(whole_number("places", place) for place in places)
        if not order or not all(0 <= place < self.shape[1] for place in order):
            raise DataError(f"places={list(order)}: there are columns 0 to {self.shape[1] - 1}.")
        if order == tuple(range(self.shape[1])):
            return self
        kept = (key for key in ("columns", *_STATISTICS) if isinstance(self.attrs.get(key), list))
        chosen = {key: [self.attrs[key][place] for place in order] for key in kept}
        attrs = self.attrs | chosen | {"n_columns": len(order)}
        if attrs.pop("table", None) is not None:  # these are no longer the columns of the table
            attrs["encoding"] = None
        return Dataset(ColumnsReader(self.reader, order), attrs, meta=self._meta)

    @property
    def sparse(self) -> bool:
        """Whether the blocks of `X` are CSR matrices of scipy."""
        return is_sparse(self._meta)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return sum(self.reader.sizes), self.reader.n_columns

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def mean(self) -> FloatArray:
        """Mean of each column of `X`, over all rows of the store."""
        return self._statistic("mean", 1)

    @property
    def variance(self) -> FloatArray:
        """Variance of each column of `X`, over all rows of the store."""
        return self._statistic("variance", 2)

    def _statistic(self, name: str, power: int) -> FloatArray:
        if self.sparse:
            raise DataError(
                "sparse rows have no column statistics: centring them would fill every zero; leave "
                "standardizing out, scale the values before the ingest, or pass sparse=False to it "
                "for a dense store."
            )
        if self.attrs.get(name) is None:
            raise DataError(
                "this data set has no column statistics: write it to a store first, with "
                "rfcdask.ingest or dest=."
            )
        scale = self.attrs.get("scale")
        with np.errstate(over="ignore"):
            return np.asarray(self.attrs[name], np.float64) * np.float64(scale or 1) ** power

    @property
    def deviation(self) -> FloatArray:
        """Standard deviation of each column of `X`, over all rows of the store."""
        self._statistic("variance", 2)
        known = [np.asarray(self.attrs.get(n, 0), float) for n in ("variance", "min", "max")]
        lost = ~squares_kept(*known) | ~np.isfinite(known[0])
        if lost.any():
            raise DataError(
                f"column {int(np.argmax(lost))} holds values too large or too small to be squared, "
                "so it has no deviation to divide by: multiply it by a number before the ingest, "
                "or fit rfcdask.Standardizer on X."
            )
        return np.asarray(np.sqrt(known[0]) * abs(float(self.attrs.get("scale") or 1)))

    def standardize(self) -> Dataset:
        """Return the data set with mean 0 and variance 1 in every column, lazily.

        The statistics are those of all rows of the store, also for the parts of a split, so that
        both parts get the same map. Constant columns become 0.
        """
        deviation = np.where(self.deviation == 0, 1.0, self.deviation)
        reader = StandardReader(self.reader, tuple(self.mean.tolist()), tuple(deviation.tolist()))
        attrs = {key: value for key, value in self.attrs.items() if key not in _STATISTICS}
        attrs["standardized"] = STANDARDIZED + table_digest(attrs.get("table"))
        return Dataset(reader, attrs, projection=self.projection)

    def project(self, n_components: int, random_state: Any = None) -> Dataset:
        """Return the data set with rows projected to fewer, dense columns, lazily.

        The same projection as ``rfcdask.ingest(project=...)`` writes to a store, drawn from the
        same seed.

        Parameters
        ----------
        n_components : int
            Columns that come out.
        random_state : int, Generator, RandomState or None
            Seed.
        """
        n_components = whole_number("n_components", n_components)
        if self.projection is not None or not 0 < n_components <= self.shape[1]:
            raise DataError(
                f"project({n_components}): give rows that are not projected yet, and a number of "
                f"columns from 1 to {self.shape[1]}."
            )
        reader = ProjectedReader(self.reader, n_components, seed_of(random_state))
        attrs = {key: value for key, value in self.attrs.items() if key not in _STATISTICS}
        named = {"columns": None, "columns_in_file": self.columns, "n_columns": n_components}
        return Dataset(reader, attrs | named, projection=reader.projection)

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
        size: Any = test_size
        if isinstance(size, bool) or not isinstance(size, Real):
            raise DataError(f"test_size={size!r} is no share or number of rows.")
        readers = split_readers(self.reader, test_size, seed_of(random_state))
        train, test = (self._read_by(reader, n_rows=sum(reader.sizes)) for reader in readers)
        return train, test

    def _read_by(self, reader: Reader, **attrs: Any) -> Dataset:
        return Dataset(reader, self.attrs | attrs, projection=self.projection, meta=self._meta)

    def with_smaller_blocks(self, row_bytes: int, block_bytes: int) -> Dataset:
        """Return the data set in blocks of whole chunks that take at most `block_bytes`, lazily.

        Parameters
        ----------
        row_bytes : int
            Bytes of one row of what will be made of the blocks, such as their features.
        block_bytes : int
            Bytes of a block of that; a block keeps at least one chunk.
        """
        chunk = self.reader.run_rows
        piece = max(chunk, max(1, block_bytes // row_bytes) // chunk * chunk)
        return self._read_by(SmallerBlocksReader(self.reader, piece))

    def rows(self, indices: Any, *, client: Any = None) -> Rows:
        """Fetch rows by number into memory: one task per block touched, only the chunks needed.

        Parameters
        ----------
        indices : sequence of int
            Row numbers in any order, repeats allowed.
        client : distributed.Client, optional
            Where to run; without one, the current client or Dask's local scheduler.
        """
        return fetch_rows(self.reader, indices, client)

    def sample(self, n_rows: int, random_state: Any = None, *, client: Any = None) -> Rows:
        """Fetch a uniform sample of distinct rows into memory, sorted by row number.

        When the store was shuffled, a few whole chunks at random places *are* a uniform sample
        of the rows, and only those are read. Two such samples of one store may share chunks.
        """
        n_rows, shuffled = whole_number("n_rows", n_rows), bool(self.attrs.get("shuffled"))
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

    def class_counts(self, *, client: Any = None) -> dict[str, int]:
        """Return the number of rows of each class by its name, reading all labels and no rows."""
        classes = self.classes
        if classes is None or self.y is None:
            raise DataError(
                "this data set has no classes to count: its labels are none, or numbers."
            )
        chunks, meta = ((1,) * self.y.numblocks[0], (len(classes),)), np.empty((0, 0), np.int64)
        parts = da.map_blocks(
            count_labels, self.y, classes, new_axis=1, chunks=chunks, dtype=np.int64, meta=meta
        )
        counts = np.asarray(compute(parts.sum(axis=0), client)).tolist()
        return dict(zip(map(str, classes), counts, strict=True))

    def plot(self, ax: Any = None) -> Any:
        """Draw the rows of each class, for which all labels are read; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
        counts = self.class_counts()
        return bars(list(counts), list(counts.values()), "rows").plot(ax)

    def facts(self) -> list[tuple[str, str]]:
        """Return what a reader wants to know first, as pairs of name and text."""
        (n_rows, n_columns), reader, attrs = self.shape, self.reader, self.attrs
        names = f": {first_names(self.columns)}" if self.columns else ""
        most = max(reader.sizes)
        size = f", {format_bytes(most * reader.row_bytes)}"
        found = [
            ("rows", f"{n_rows:,}"),
            ("columns", f"{n_columns:,}{names}"),
            ("type", str(reader.dtype) + (", sparse (CSR)" if self.sparse else "")),
            ("labels", self._describe_labels()),
            ("blocks", f"{len(reader.sizes)} of up to {most:,} rows{size}"),
            ("order", "shuffled" if attrs.get("shuffled") else "as given"),
        ]
        if attrs.get("standardized"):
            found.append(("columns are", "standardized"))
        if self.projection is not None:
            found.append(("projected from", f"{self.projection.n_columns:,} columns"))
        if "table" in attrs:
            table = TableSpec.from_json(attrs["table"])
            found += [(f"column {name}", said) for name, said in table.describe()]
        source = attrs.get("source")
        if isinstance(source, list):
            more = f" and {len(source) - 1} more" if len(source) > 1 else ""
            source = f"{source[0]}{more}"
        return [*found, ("source", str(source))] if source else found

    def _describe_labels(self) -> str:
        if self.reader.label_dtype is None:
            return "none"
        classes, name = self.classes, self.attrs.get("label_name")
        said = "regression targets"
        if self.targets is not None:
            return f"{len(self.targets)} regression targets: {first_names(self.targets)}"
        if classes is not None:
            named = first_names(classes.astype(str).tolist())
            listed = f": {named}" if len(classes) <= MOST_LISTED else ""
            said = f"{len(classes)} classes{listed}"
        return said if name is None else f"{said} (column {name})"

    def __repr__(self) -> str:
        return aligned("<rfcdask.Dataset>", self.facts())

    def _repr_html_(self) -> str:
        return render_repr(title="rfcdask.Dataset", facts=self.facts())


_STATISTICS = ("mean", "variance", "min", "max", "scale")


def _read_block(
    reader: Reader, block_id: tuple[int, ...], columns: Any = None, encoding: Any = None
) -> Any:
    return reader.block(block_id[0])


def _read_labels(reader: Reader, block_id: tuple[int, ...]) -> Array:
    return reader.labels(block_id[0])


def describe_store(dataset: Dataset, path: str) -> dict[str, Any]:
    """Return what a store holds, for machines."""
    attrs, reader = dataset.attrs, dataset.reader
    width = reader.row_bytes
    noted = ("label_name", "task", "scale", "seed", "dropped_rows", "source", "format", "version")
    return {
        "path": path,
        "rows": dataset.shape[0],
        "columns": dataset.shape[1],
        "column_names": names_in_file(dataset),
        "dtype": str(reader.dtype),
        "sparse": dataset.sparse,
        "classes": None if dataset.classes is None else dataset.classes.tolist(),
        "blocks": len(reader.sizes),
        "block_rows": max(reader.sizes),
        "block_bytes": max(reader.sizes) * width,
        "bytes": dataset.shape[0] * width,
        "shuffled": bool(attrs.get("shuffled")),
        "table": None if "table" not in attrs else TableSpec.from_json(attrs["table"]).describe(),
        "projected_from": None if dataset.projection is None else dataset.projection.n_columns,
    } | {name: attrs.get(name) for name in noted}
