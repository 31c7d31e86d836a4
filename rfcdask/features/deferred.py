"""Blocks of features that are evaluated a few rows at a time, where they are summed up.

A block of features is many times the size of the rows it comes from and too large for a cache.
Whoever needs each row once (ridge regression, PCA) takes the block as rows and map, and evaluates
a tile of it while the last is still warm: less memory, and none of it travels twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rfcdask.kernels.arrays import as_csr, check_finite
from rfcdask.kernels.types import Array, DaskArray, Matrix

_ATTRIBUTE = "_rfcdask_deferred"


class DeferredRows:
    """Looks like an array of features; slices of rows are evaluated when they are taken."""

    def __init__(self, X: Matrix, evaluator: Any, width: int, dtype: np.dtype, where: str) -> None:
        self.X, self.evaluator, self.where = X, evaluator, where
        self.shape, self.dtype = (int(X.shape[0]), width), dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        part = self.X[rows]
        if isinstance(part, np.ndarray):  # from the network it may start at any byte: other bits
            part = np.require(part, requirements="A")
        try:
            return np.asarray(self.evaluator(part, where=self.where))
        except ValueError:
            # The whole block names the row by its place in the block.
            check_finite(self.X, where=self.where)
            self.evaluator(self.X, where=self.where)
            raise

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
    return DeferredRows(as_csr(block), evaluator, width, kind, where)


def keep_deferred(features: DaskArray, make: Callable[[], DaskArray]) -> None:
    """Remember beside an array of features how to make the one that is evaluated in parts."""
    setattr(features, _ATTRIBUTE, (features.name, make))


def deferred(array: DaskArray) -> DaskArray:
    """Return the array whose blocks are evaluated in parts, where there is one, else the array."""
    name, make = getattr(array, _ATTRIBUTE, (None, None))
    # Assigning to a part of an array changes it in place, and its name with it.
    return make() if make is not None and name == array.name else array
