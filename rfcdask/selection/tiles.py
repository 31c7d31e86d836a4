"""Cutting products into fixed tiles, so that sums do not depend on who computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rfcdask._types import Array
from rfcdask.threads import map_tiles

ROW_BLOCK = 4096
"""Rows whose products are summed in float32 before they are added up in float64."""
PART = 128
"""Atoms a tile of G between a few hundred atoms."""


def slices(n: int, step: int) -> Iterator[slice]:
    """Cut n into pieces of `step`; the last may be shorter."""
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def product(A: Array, B: Array) -> Array:
    """Return A B^T: products in the arrays' dtype, blocks of columns added up in float64.

    A single block has nothing to be added and stays in the arrays' dtype.
    """
    if A.shape[1] <= ROW_BLOCK:
        return np.asarray(A @ B.T)
    total = np.zeros((len(A), len(B)))
    for columns in slices(A.shape[1], ROW_BLOCK):
        total += A[:, columns] @ B[:, columns].T
    return total


def symmetric(block: Callable[[slice, slice], Array], n: int, step: int, dtype: Any) -> Array:
    """Return a symmetric matrix from its blocks on and right of the diagonal, side by side.

    Parameters
    ----------
    block : callable
        Given slices of rows and columns, returns that part of the matrix.
    n : int
    step : int
        Rows a block, at most; the blocks have equal sizes.
    dtype : dtype
    """
    out = np.empty((n, n), dtype)
    cuts = list(slices(n, -(-n // -(-n // step))))

    def fill(at: tuple[slice, slice]) -> None:
        rows, columns = at
        out[rows, columns] = block(rows, columns)
        out[columns, rows] = out[rows, columns].T

    map_tiles(fill, [(a, b) for k, a in enumerate(cuts) for b in cuts[k:]])
    return out


def in_parts(block: Callable[[slice, slice], Array], shape: tuple[int, int], dtype: Any) -> Array:
    """Return a matrix of few hundred rows and columns from blocks computed side by side."""
    out = np.empty(shape, dtype)

    def fill(at: tuple[slice, slice]) -> None:
        out[at] = block(*at)

    rows, columns = (list(slices(n, PART)) for n in shape)
    map_tiles(fill, [(a, b) for a in rows for b in columns])
    return out
