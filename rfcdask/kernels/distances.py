"""Sums over coordinates of x - y, from which every kernel here is computed.

Three sums are enough: of squares (rbf, matern), of absolute values (laplacian) and of
``log1p(d**2)`` (cauchy). Each comes for all pairs of two sets of rows and for rows side by side,
dense or CSR. A CSR block is never made dense.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from rfcdask.kernels.arrays import CSR, Array, Matrix, is_sparse
from rfcdask.kernels.compiled import compiled

Sum = Literal["squares", "absolutes", "log1p"]
_ABSOLUTES, _LOG1P = 0, 1
# Sums of many terms may be reordered, else the loops below do not vectorise; NaN must survive.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


def pairwise(kind: Sum, X: Matrix, Y: Matrix) -> Array:
    """Return the sum over coordinates for each row of X with each row of Y, ``(n, m)``."""
    if is_sparse(X) or is_sparse(Y):
        return _pairwise_csr(kind, _as_csr(X), _as_csr(Y))
    if kind == "squares":
        return _pairwise_squares(X, Y)
    out = np.empty((X.shape[0], Y.shape[0]), X.dtype)
    _pairwise_dense(_code(kind), np.ascontiguousarray(X), np.ascontiguousarray(Y, X.dtype), out)
    return out


def rowwise(kind: Sum, X: Matrix, Y: Matrix) -> Array:
    """Return the sum over coordinates for row i of X with row i of Y, ``(n,)``, in float64."""
    if is_sparse(X) or is_sparse(Y):
        return _rowwise_csr(kind, _as_csr(X) - _as_csr(Y))
    D = X - Y
    if kind == "squares":
        return np.asarray(np.einsum("ij,ij->i", D, D, dtype=np.float64))
    terms = np.abs(D) if kind == "absolutes" else np.log1p(D * D)
    return np.asarray(terms.sum(axis=1, dtype=np.float64))


def _code(kind: Sum) -> int:
    return _ABSOLUTES if kind == "absolutes" else _LOG1P


def _as_csr(X: Matrix) -> CSR:
    """Return X as CSR without duplicate entries; the arrays of the given one stay as they are."""
    out = sp.csr_array(X)
    if not out.has_canonical_format:
        out = out.copy()
        out.sum_duplicates()
    return out


def _squared_norms(X: Matrix) -> Array:
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
    return np.asarray(np.einsum("ij,ij->i", X, X))


def _pairwise_squares(X: Array, Y: Array) -> Array:
    # Only differences matter: rows far from the origin would lose their digits in |x|^2 + |y|^2.
    middle = Y.mean(axis=0, dtype=np.float64)
    return _squares_of_differences(X - middle, Y - middle, X.dtype)


def _squares_of_differences(X: Matrix, Y: Matrix, dtype: np.dtype) -> Array:
    """Return ``|x|^2 + |y|^2 - 2 x.y`` in `dtype`, from rows in float64.

    In float32 one row far off, or a cluster away from the others, would cost all digits.
    """
    out = X @ Y.T
    out = np.asarray(out.todense()) if is_sparse(out) else out
    out *= -2
    out += _squared_norms(X)[:, None]
    out += _squared_norms(Y)[None, :]
    np.maximum(out, 0, out=out)
    with np.errstate(over="ignore"):  # infinitely far in float32 is far enough for every kernel
        return np.asarray(out, dtype)


def _pairwise_csr(kind: Sum, X: CSR, Y: CSR) -> Array:
    if kind == "squares":
        exact = np.float64
        return _squares_of_differences(X.astype(exact), Y.astype(exact), X.dtype)
    out = np.empty((X.shape[0], Y.shape[0]), X.dtype)
    parts = (X.data, X.indices, X.indptr, Y.data, Y.indices, Y.indptr)
    _pairwise_sparse(_code(kind), *parts, out)
    return out


def _rowwise_csr(kind: Sum, D: CSR) -> Array:
    if kind == "squares":
        D.data **= 2
    elif kind == "absolutes":
        np.abs(D.data, out=D.data)
    else:
        D.data = np.log1p(D.data**2)
    return np.asarray(D.sum(axis=1, dtype=np.float64)).reshape(-1)


@compiled(fastmath=_REORDER)
def _pairwise_dense(code: int, X: Array, Y: Array, out: Array) -> None:
    n, p = X.shape
    one = X.dtype.type(1)
    for i in range(n):
        for j in range(Y.shape[0]):
            if code == 0:
                total = X.dtype.type(0)
                for k in range(p):
                    total += abs(X[i, k] - Y[j, k])
                out[i, j] = total
            else:
                # A product and one logarithm at the end; it overflows where the kernel is zero.
                product = np.float64(1)
                for k in range(p):
                    d = X[i, k] - Y[j, k]
                    product *= one + d * d
                out[i, j] = np.log(product)


@compiled()
def _pairwise_sparse(
    code: int,
    x: Array,
    x_columns: Array,
    x_start: Array,
    y: Array,
    y_columns: Array,
    y_start: Array,
    out: Array,
) -> None:
    for i in range(len(x_start) - 1):
        for j in range(len(y_start) - 1):
            a, a_end, b, b_end = x_start[i], x_start[i + 1], y_start[j], y_start[j + 1]
            total = 0.0
            while a < a_end or b < b_end:
                if b == b_end or (a < a_end and x_columns[a] < y_columns[b]):
                    d = np.float64(x[a])
                    a += 1
                elif a == a_end or y_columns[b] < x_columns[a]:
                    d = np.float64(y[b])
                    b += 1
                else:
                    d = np.float64(x[a]) - y[b]
                    a += 1
                    b += 1
                total += abs(d) if code == 0 else np.log1p(d * d)
            out[i, j] = total
