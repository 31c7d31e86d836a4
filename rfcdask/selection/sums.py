"""Column sums of products, added up in float64 without copies in float64."""

from __future__ import annotations

import numba
import numpy as np

from rfcdask._types import Array


def products_by_column(A: Array, B: Array) -> Array:
    """Return ``sum_i A[i, j] B[i, j]`` for each column j, in float64."""
    out = np.zeros(A.shape[1])
    _add_products(A, B, out)
    return out


def weighted_by_column(A: Array, t: Array) -> Array:
    """Return ``sum_i A[i, j] t[i]`` for each column j, in float64."""
    out = np.zeros(A.shape[1])
    _add_weighted(A, t, out)
    return out


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _add_products(A: Array, B: Array, out: Array) -> None:
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[j] += np.float64(A[i, j]) * np.float64(B[i, j])


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _add_weighted(A: Array, t: Array, out: Array) -> None:
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[j] += np.float64(A[i, j]) * t[i]
