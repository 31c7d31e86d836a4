"""Blocks cut smaller than they are on disk, so that their features stay small in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rfcdask.data import Dataset
from rfcdask.data.reader import Reader
from rfcdask.kernels.types import Array, IntArray

MANY = 100
"""Reading a slice is as cheap as reading a list of about one row in so many."""


@dataclass(frozen=True)
class FinerReader:
    """Each block of the base in pieces of at most `piece` rows; a piece reads only its chunks."""

    base: Reader
    piece: int

    @cached_property
    def _pieces(self) -> list[tuple[int, int, int]]:
        """Block of the base, first row within it, and rows of each piece."""
        return [
            (block, start, min(self.piece, size - start))
            for block, size in enumerate(self.base.sizes)
            for start in range(0, size, self.piece)
        ]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each piece."""
        return tuple(size for _, _, size in self._pieces)

    @property
    def n_columns(self) -> int:
        """Columns of X."""
        return self.base.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of X."""
        return self.base.dtype

    @property
    def label_dtype(self) -> np.dtype[Any] | None:
        """Type of y."""
        return self.base.label_dtype

    @property
    def run_rows(self) -> int:
        """Neighbouring rows that cost as much to fetch as one."""
        return min(self.base.run_rows, self.piece)

    def block(self, block: int) -> Any:
        """Return the rows of one piece."""
        return self._whole(block)[0]

    def labels(self, block: int) -> Array:
        """Return the labels of one piece."""
        origin, start, size = self._pieces[block]
        return self.base.labels(origin)[start : start + size]

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        """Return some rows of one piece; where many are wanted, the piece is read whole."""
        origin, start, size = self._pieces[block]
        local = np.asarray(local)
        if len(local) * MANY < size:
            return self.base.rows(origin, local + start)
        X, y = self._whole(block)
        return X[local], None if y is None else y[local]

    def _whole(self, block: int) -> tuple[Any, Array | None]:
        origin, start, size = self._pieces[block]
        return self.base.rows(origin, np.arange(start, start + size))


def with_small_blocks(dataset: Dataset, row_bytes: int, most: int) -> Dataset:
    """Return the data set in blocks whose rows, at `row_bytes` each, take at most `most` bytes."""
    wanted = max(1, most // row_bytes)
    chunk = dataset.reader.run_rows
    piece = max(chunk, wanted // chunk * chunk)
    return Dataset(
        FinerReader(dataset.reader, piece),
        dataset.attrs,
        projection=dataset.projection,
        meta=dataset._meta,
    )
