"""The Dask side of feature maps: lazy arrays of features that know the rows they come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Self, TypeVar

import dask.array as da
import numpy as np
from dask.base import tokenize

from rfcdask.features.evaluators import FeatureRows
from rfcdask.kernels.arrays import Array, DaskArray, Matrix, as_csr

Kind = TypeVar("Kind", bound=type)


class FeatureArray(da.Array):
    """Lazy features: a dask array, together with the rows it is computed from and the map.

    A block of features is many times the size of its rows. Whoever needs each row once, such as
    ridge regression and PCA, takes the blocks of :meth:`unevaluated` instead, which hold the rows
    and evaluate the features of a few of them at a time, where they are used.

    Slices of rows and new row chunks are those of the rows, so they give such an array again.
    Everything else (arithmetic, a choice of columns, ``persist``, assignment to a part) gives what
    it gives on any dask array: the same values, a whole block of features at a time.

    Attributes
    ----------
    rows : dask array of shape (n, p)
    evaluator : Delayed
        Called with a block of rows (and `where`, the block's name in errors), returns its features.
    """

    rows: DaskArray
    evaluator: Any
    _name_of_features: str

    @classmethod
    def of(cls, rows: DaskArray, evaluator: Any, width: int, dtype: np.dtype) -> Self:
        """Return the features of `rows`, a dask array with one block of columns."""
        plain = _map_rows(evaluate_block, "features", rows, evaluator, width, dtype)
        made: Self = cls.__new__(cls, plain.dask, plain.name, plain.chunks, meta=plain._meta)
        made.rows, made.evaluator, made._name_of_features = rows, evaluator, plain.name
        return made

    def unevaluated(self) -> DaskArray:
        """Return the array whose blocks are :class:`FeatureRows`, for one that was not changed."""
        if not self._is_unchanged:
            return self
        width, dtype = self.shape[1], self.dtype
        function = partial(_pair_block, width=width, kind=dtype)
        return _map_rows(function, "feature-rows", self.rows, self.evaluator, width, dtype)

    def rechunk(self, *args: Any, **kwargs: Any) -> DaskArray:
        """Return the same features in other chunks; see :func:`dask.array.rechunk`."""
        found = super().rechunk(*args, **kwargs)
        if not self._is_unchanged or found.numblocks[1] > 1:
            return found
        return self._with_rows(self.rows.rechunk({0: found.chunks[0]}))

    def __getitem__(self, index: Any) -> DaskArray:
        parts = index if isinstance(index, tuple) else (index,)
        only_rows = len(parts) == 1 or (isinstance(parts[1], slice) and parts[1] == slice(None))
        if self._is_unchanged and len(parts) < 3 and isinstance(parts[0], slice) and only_rows:
            return self._with_rows(self.rows[parts[0]])
        return super().__getitem__(index)

    @property
    def _is_unchanged(self) -> bool:
        # Assigning to a part of an array changes it in place, and its name with it.
        return bool(self.name == self._name_of_features)

    def _with_rows(self, rows: DaskArray) -> Self:
        return self.of(rows, self.evaluator, self.shape[1], self.dtype)


def _map_rows(
    function: Callable[..., Any],
    prefix: str,
    rows: DaskArray,
    evaluator: Any,
    width: int,
    dtype: np.dtype,
) -> DaskArray:
    return da.map_blocks(
        function,
        rows,
        evaluator,
        dtype=dtype,
        chunks=(rows.chunks[0], (width,)),
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


def lazy_on_dask(kind: Kind) -> Kind:
    """Let `transform` and `fit_transform` of a class return dask arrays as they are.

    With ``set_output(transform="pandas")`` scikit-learn makes a data frame of whatever comes out,
    and of a lazy array it would make one of all rows in memory.
    """
    for name in ("transform", "fit_transform"):
        setattr(kind, name, _lazily(getattr(kind, name)))
    return kind


def _lazily(wrapped: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(wrapped, "__wrapped__", wrapped)  # without what scikit-learn put around it

    @wraps(wrapped)
    def method(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = plain if isinstance(X, da.Array) else wrapped
        return chosen(self, X, *args, **kwargs)

    return method
