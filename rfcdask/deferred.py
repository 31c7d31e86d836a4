"""Blocks of features that are evaluated a few rows at a time, where they are summed up.

A block of features is many times the size of the rows it comes from and too large for a cache.
Whoever needs each row once (ridge regression, PCA) takes the block as rows and map, and evaluates
a tile of it while the last is still warm: less memory, and none of it travels twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rfcdask._types import Array, DaskArray, Matrix
from rfcdask.blocks import NotFiniteError

_ATTRIBUTE = "_rfcdask_deferred"


class DeferredRows:
    """Looks like an array of features; slices of rows are evaluated when they are taken."""

    ndim = 2

    def __init__(self, X: Matrix, evaluator: Any, width: int, dtype: np.dtype, where: str) -> None:
        self.X, self.evaluator, self.where = X, evaluator, where
        self.shape, self.dtype = (int(X.shape[0]), width), dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        start = range(*rows.indices(len(self))).start
        try:
            return np.asarray(self.evaluator(self.X[rows], where=self.where))
        except NotFiniteError as error:
            raise NotFiniteError(start + error.row, error.column, error.value, self.where) from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    def __sizeof__(self) -> int:
        return int(getattr(self.X, "nbytes", 0)) or object.__sizeof__(self)


def defer_block(
    block: Matrix,
    evaluator: Any,
    width: int,
    kind: np.dtype,
    block_id: tuple[int, ...] | None = None,
) -> DeferredRows:
    """Return one block of a dask array together with its features to be."""
    where = "" if block_id is None else f" of block {block_id[0]}"
    return DeferredRows(block, evaluator, width, kind, where)


def keep_deferred(features: DaskArray, deferred: DaskArray) -> None:
    """Remember beside an array of features the one whose blocks are evaluated in parts."""
    setattr(features, _ATTRIBUTE, deferred)


def deferred(array: DaskArray) -> DaskArray:
    """Return the array whose blocks are evaluated in parts, where there is one, else the array."""
    return getattr(array, _ATTRIBUTE, array)
