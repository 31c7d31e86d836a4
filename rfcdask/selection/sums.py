"""Sums of products, added up in float64 without copies in float64."""

from __future__ import annotations

import numba
import numpy as np

from rfcdask._types import Array

# Sums over a row may be cut into lanes; the cut is the same every time.
_LANES = {"reassoc", "contract"}


def products_by_column(A: Array, B: Array) -> Array:
    """Return ``sum_i A[i, j] B[i, j]`` for each column j, in float64."""
    out = np.zeros(A.shape[1])
    _add_products(A, B, out)
    return out


def products_by_row(A: Array, B: Array) -> Array:
    """Return ``sum_i A[j, i] B[j, i]`` for each row j, in float64."""
    out = np.zeros(len(A))
    _dot_rows(A, B, out)
    return out


def weighted_by_row(A: Array, t: Array) -> Array:
    """Return ``sum_i A[j, i] t[i]`` for each row j, in float64."""
    out = np.zeros(len(A))
    _dot_all(A, t, out)
    return out


def add_rows(A: Array) -> Array:
    """Return the sum of all rows of A, in float64."""
    out = np.zeros(A.shape[1])
    _add_rows(A, out)
    return out


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _add_products(A: Array, B: Array, out: Array) -> None:
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[j] += np.float64(A[i, j]) * np.float64(B[i, j])


@numba.njit(cache=True, nogil=True, fastmath=_LANES)
def _dot_rows(A: Array, B: Array, out: Array) -> None:
    for j in range(A.shape[0]):
        total = 0.0
        for i in range(A.shape[1]):
            total += np.float64(A[j, i]) * np.float64(B[j, i])
        out[j] = total


@numba.njit(cache=True, nogil=True, fastmath=_LANES)
def _dot_all(A: Array, t: Array, out: Array) -> None:
    for j in range(A.shape[0]):
        total = 0.0
        for i in range(A.shape[1]):
            total += np.float64(A[j, i]) * t[i]
        out[j] = total


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _add_rows(A: Array, out: Array) -> None:
    for j in range(A.shape[0]):
        for i in range(A.shape[1]):
            out[i] += np.float64(A[j, i])
