"""The Dask side of feature maps: lazy arrays of features that know the rows they come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import dask.array as da
import numpy as np
from dask.base import tokenize

from rfcdask.execution.configuration import configured_bytes
from rfcdask.features.evaluators import FeatureRows
from rfcdask.kernels.arrays import Array, DaskArray, Matrix, as_csr

FEATURE_BLOCK_BYTES = 2**26
"""Features of a block of rows that take more than this are cut into several blocks."""


class FeatureArray(da.Array):
    """Lazy features: a dask array, together with the rows it is computed from and the map.

    A block of features is many times the size of its rows. Whoever needs each row once, such as
    ridge regression and PCA, takes the blocks of :meth:`unevaluated` instead, which hold the rows
    and evaluate the features of a few of them at a time, where they are used.

    Slices of rows and new row chunks are those of the rows, so they give such an array again.
    Everything else (arithmetic, a choice of columns, ``persist``, assignment to a part) gives what
    it gives on any dask array: the same values, a block of features at a time. Where the features
    of a block of rows take more than ``rfcdask.feature-block-bytes`` (64 MiB), they are cut into
    several blocks, whose rows are read once and sliced.

    Attributes
    ----------
    rows : dask array of shape (n, p)
        As they were given, in blocks of their own size.
    evaluator : Delayed
        Called with a block of rows (and `where`, the block's name in errors), returns its features.
    """

    rows: DaskArray
    evaluator: Any
    _name_of_features: str

    @classmethod
    def of(
        cls, rows: DaskArray, evaluator: Any, width: int, dtype: np.dtype, cut: bool = True
    ) -> Self:
        """Return the features of `rows`, a dask array with one block of columns."""
        parts = rows
        if cut:
            sizes = small_chunks(rows.chunks[0], width * dtype.itemsize)
            parts = rows if sizes == rows.chunks[0] else rows.rechunk({0: sizes})
        plain = _map_rows(
            evaluate_block, "features", parts, evaluator, (parts.chunks[0], (width,)), dtype
        )
        made: Self = cls.__new__(cls, plain.dask, plain.name, plain.chunks, meta=plain._meta)
        made.rows, made.evaluator, made._name_of_features = rows, evaluator, plain.name
        return made

    def unevaluated(self) -> DaskArray:
        """Return the array whose blocks are :class:`FeatureRows`, for one that was not changed.

        Its blocks, its columns and its size in bytes are those of the rows.
        """
        if not self._is_unchanged:
            return self
        function = partial(_pair_block, width=self.shape[1], kind=self.dtype)
        chunks, dtype = self.rows.chunks, self.rows.dtype
        return _map_rows(function, "feature-rows", self.rows, self.evaluator, chunks, dtype)

    def in_blocks_of_rows(self) -> DaskArray:
        """Return the same features in the blocks that the rows have."""
        if not self._is_unchanged or self.chunks[0] == self.rows.chunks[0]:
            return self
        return self.of(self.rows, self.evaluator, self.shape[1], self.dtype, cut=False)

    def rechunk(self, *args: Any, **kwargs: Any) -> DaskArray:
        """Return the same features in other chunks; see :func:`dask.array.rechunk`."""
        found = super().rechunk(*args, **kwargs)
        if not self._is_unchanged or found.numblocks[1] > 1:
            return found
        rows = self.rows.rechunk({0: found.chunks[0]})
        return self.of(rows, self.evaluator, self.shape[1], self.dtype, cut=False)

    def __getitem__(self, index: Any) -> DaskArray:
        parts = index if isinstance(index, tuple) else (index,)
        only_rows = len(parts) == 1 or (isinstance(parts[1], slice) and parts[1] == slice(None))
        if self._is_unchanged and len(parts) < 3 and isinstance(parts[0], slice) and only_rows:
            return self.of(self.rows[parts[0]], self.evaluator, self.shape[1], self.dtype)
        return super().__getitem__(index)

    @property
    def _is_unchanged(self) -> bool:
        # Assigning to a part of an array changes it in place, and its name with it.
        return bool(self.name == self._name_of_features)


def small_chunks(sizes: tuple[int, ...], row_bytes: int) -> tuple[int, ...]:
    """Return row chunks whose features stay small, each of them a part of one of the given.

    Parts have the same size where the size of the first chunk has a divisor that suits.
    """
    most = max(configured_bytes("feature-block-bytes", FEATURE_BLOCK_BYTES), 1)
    if not sizes or any(np.isnan(sizes)) or max(sizes) * row_bytes <= most:
        return sizes
    parts = max(-(-sizes[0] * row_bytes // most), 1)
    even = (k for k in range(parts, 3 * parts) if sizes[0] % k == 0)
    part = min(max(-(-sizes[0] // next(even, parts)), 1), max(most // row_bytes, 1))
    return tuple(min(part, size - i) for size in sizes for i in range(0, max(size, 1), part))


def _map_rows(
    function: Callable[..., Any],
    prefix: str,
    rows: DaskArray,
    evaluator: Any,
    chunks: tuple[tuple[int, ...], ...],
    dtype: np.dtype,
) -> DaskArray:
    return da.map_blocks(
        function,
        rows,
        evaluator,
        dtype=dtype,
        chunks=chunks,
        meta=np.empty((0, 0), dtype),
        name=f"{prefix}-{tokenize(rows.name, evaluator.key)}",
    )


def evaluate_block(block: Matrix, evaluator: Any, block_id: tuple[int, ...] | None = None) -> Array:
    """Evaluate the features on one block of a dask array; errors name the block."""
    return np.asarray(evaluator(as_csr(block), where=_name_block(block_id)))


def _pair_block(
    block: Matrix,
    evaluator: Any,
    width: int,
    kind: np.dtype,
    block_id: tuple[int, ...] | None = None,
) -> FeatureRows:
    return FeatureRows(as_csr(block), evaluator, width, kind, _name_block(block_id))


def _name_block(block_id: tuple[int, ...] | None) -> str:
    return "" if block_id is None else f" of block {block_id[0]}"
