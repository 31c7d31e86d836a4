"""What the kept features shall reproduce: the candidates' own sum, the kernel, or labels too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.multiclass import type_of_target

from rfcdask.kernels import Kernel
from rfcdask.kernels.arrays import Array, IntArray, Matrix
from rfcdask.kernels.threads import map_tiles, one_blas_thread
from rfcdask.selection.candidates import Candidates, slices, symmetric

_TILE, _SQUARE, _BLOCK = 256, 512, 1024
"""Rows per tile of gathered blocks, of the candidates' own sum, and of the exact kernel."""


class RowTarget:
    """A target over all pairs of the gathered rows, given as blocks of an m x m matrix.

    Parameters
    ----------
    rows : array or CSR of shape (m, p)
    kernel : Kernel or None
        None takes the candidates' own sum (the paper's target) from `candidates`.
    gamma : float
    labels : array of shape (m, n_outputs), optional
        Label columns already times ``sqrt(label_weight)``; their products are added.
    candidates : Candidates, optional
    dtype : dtype
    budget : int
        Bytes the whole matrix may take; above that blocks are computed each time.
    """

    def __init__(
        self,
        rows: Matrix,
        kernel: Kernel | None,
        gamma: float,
        *,
        labels: Array | None = None,
        candidates: Candidates | None = None,
        dtype: np.dtype,
        budget: int,
    ) -> None:
        self.rows, self.kernel, self.gamma, self.labels = rows, kernel, gamma, labels
        self.candidates, self.dtype = candidates, dtype
        self._matrix: Array | None = None
        size = rows.shape[0] ** 2 * np.dtype(dtype).itemsize
        if size <= budget:
            self._matrix = self._whole()
            self.candidates = None  # their values may go: no block is computed again

    def _whole(self) -> Array:
        """Compute the symmetric matrix: what lies right of the diagonal, then its mirror image."""
        m = self.rows.shape[0]
        if self.kernel is None:
            return symmetric(self._compute, m, _SQUARE, self.dtype)
        out = np.empty((m, m), self.dtype)
        for start in range(0, m, _BLOCK):
            rows, right = slice(start, min(start + _BLOCK, m)), slice(start, m)
            out[rows, right] = self._compute(rows, right)
            out[right, rows] = out[rows, right].T
        return out

    def block(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        """Return a writable block of the target matrix."""
        if self._matrix is None:
            return self._compute(rows, columns)
        if isinstance(rows, slice):
            return np.array(self._matrix[rows, columns])
        return _gather_block(self._matrix, rows, np.asarray(columns))

    def _compute(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        if self.kernel is not None:
            block = self.kernel.matrix(self.rows[rows], self.rows[columns], self.gamma)
            block = block.astype(self.dtype, copy=False)
        else:
            block = self._candidate_block(rows, columns)
        if self.labels is not None:
            with one_blas_thread():
                block += (self.labels[rows] @ self.labels[columns].T).astype(self.dtype)
        return block

    def _candidate_block(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        if isinstance(rows, slice) and isinstance(columns, slice):
            return self._product_of_candidates(rows, columns)
        index = np.arange(self.rows.shape[0])
        left = index[rows]
        out = np.empty((len(left), len(index[columns])), self.dtype)

        def fill(part: slice) -> None:
            out[part] = self._product_of_candidates(left[part], columns)

        map_tiles(fill, slices(len(left), _TILE))
        return out

    def _product_of_candidates(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        """Add up the candidates' products, tile after tile."""
        assert self.candidates is not None
        parts = (part for tile in self.candidates.tiles() for part in self.candidates.parts(tile))
        return np.asarray(sum(part[:, rows].T @ part[:, columns] for part in parts))


def _gather_block(matrix: Array, rows: IntArray, columns: IntArray) -> Array:
    """Return ``matrix[rows][:, columns]``, tiles of rows side by side."""
    out = np.empty((len(rows), len(columns)), matrix.dtype)

    def fill(start: int) -> None:
        some = rows[start : start + _TILE]
        np.take(matrix[some], columns, axis=1, out=out[start : start + _TILE], mode="clip")

    map_tiles(fill, range(0, len(rows), _TILE))
    return out


@dataclass(frozen=True)
class PairTarget:
    """A target over sampled pairs."""

    values: Array | None  # the kernel of each pair; None stands for the candidates' own sum
    label_products: Array | float = 0.0  # what the labels add


def label_columns(y: Array) -> Array:
    """Return centred label columns with mean squared row norm 1.

    Classes become one column each (one against the rest); numbers and 0-1 columns stay columns.
    No label may be missing.
    """
    y = np.asarray(y)
    kind = type_of_target(y, input_name="y")
    if kind.startswith(("continuous", "multilabel")):
        columns = y.reshape(len(y), -1).astype(np.float64)
    elif kind == "multiclass-multioutput":
        raise ValueError(
            f"label_weight needs one class per row, but y has shape {y.shape}; give one column, "
            "for example y[:, 0]."
        )
    else:
        classes, codes = np.unique(y, return_inverse=True)
        columns = np.eye(len(classes))[codes.reshape(-1)]
    columns = columns - columns.mean(axis=0)
    size = float(np.mean(np.sum(columns**2, axis=1)))
    if size == 0:
        raise ValueError(
            "label_weight needs labels that differ, but all sampled rows have the same y; "
            "set label_weight=0 or sample more rows with n_rows."
        )
    return np.asarray(columns / np.sqrt(size))
