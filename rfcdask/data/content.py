"""A checksum of the rows of a data set: of what they say, not of the file that they came in."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rfcdask.kernels.arrays import Array, Matrix, is_sparse
from rfcdask.kernels.seeds import hash_rows

PIECE_ROWS = 8192


def content_checksum(blocks: Iterable[tuple[Matrix, Array]], scale: float | None = None) -> int:
    """Return a sum over rows and their labels that depends on neither order nor number type.

    The sum of two parts is the sum of their sums, modulo 2^64. `scale` is what stored whole
    numbers were multiplied by. It finds accidents; it is no defence against a forger.
    """
    total = 0
    for X, y in blocks:
        for start in range(0, X.shape[0], PIECE_ROWS):
            piece = X[start : start + PIECE_ROWS]
            dense = np.asarray(piece.toarray() if is_sparse(piece) else piece, np.float64)
            if scale:
                dense = np.rint(dense / scale)
            labels = np.asarray(y[start : start + PIECE_ROWS], np.float64)
            total += _sum(np.column_stack([dense, labels]))
    return total % 2**64


def _sum(values: Array) -> int:
    bits = (values + 0.0).view(np.uint64)  # one zero, not two
    columns = hash_rows(np.arange(values.shape[1], dtype=np.uint64), 1)
    entries = hash_rows(bits ^ columns, 2).sum(axis=1, dtype=np.uint64)
    return int(hash_rows(entries, 3).sum(dtype=np.uint64))
