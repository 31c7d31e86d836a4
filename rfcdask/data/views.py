"""Readers on top of readers: standardised columns, and the two parts of a split."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.data.errors import DataError
from rfcdask.data.reader import Reader, float_type


@dataclass(frozen=True)
class StandardReader:
    """Blocks with the mean taken off each column and the deviation divided out."""

    base: Reader
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each block."""
        return self.base.sizes

    @property
    def n_columns(self) -> int:
        """Columns of X."""
        return self.base.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating type that holds the values."""
        return float_type(self.base.dtype)

    @property
    def label_dtype(self) -> np.dtype[Any] | None:
        """Type of y."""
        return self.base.label_dtype

    @property
    def run_rows(self) -> int:
        """Neighbouring rows that cost as much to fetch as one."""
        return self.base.run_rows

    def block(self, block: int) -> Array:
        """Return one standardised block."""
        return self._apply(self.base.block(block))

    def labels(self, block: int) -> Array:
        """Return the labels of one block."""
        return self.base.labels(block)

    def rows(self, block: int, local: IntArray) -> tuple[Array, Array | None]:
        """Return some standardised rows of one block."""
        X, y = self.base.rows(block, local)
        return self._apply(X), y

    def _apply(self, X: Array) -> Array:
        values = X.astype(self.dtype)
        values -= np.asarray(self.mean, self.dtype)
        values /= np.asarray(self.deviation, self.dtype)
        return values


@dataclass(frozen=True)
class SplitReader:
    """One part of a random split.

    Which rows of a block are test rows follows from the seed and the block's number alone, so a
    task needs neither a list of indices nor any other block.
    """

    base: Reader
    seed: int
    test_counts: tuple[int, ...]
    test: bool

    @cached_property
    def _blocks(self) -> list[int]:
        # Blocks that give this part no row are left out: empty chunks trip many Dask functions.
        return [block for block in range(len(self.base.sizes)) if self._count(block)]

    def _count(self, block: int) -> int:
        test = self.test_counts[block]
        return test if self.test else self.base.sizes[block] - test

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each block of this part."""
        return tuple(self._count(block) for block in self._blocks)

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
        return self.base.run_rows

    def picks(self, block: int) -> IntArray:
        """Return the rows of the part's block, counted from the start of the base's block."""
        origin = self._blocks[block]
        generator = np.random.default_rng([self.seed, origin])
        order = generator.permutation(self.base.sizes[origin])
        cut = self.test_counts[origin]
        return np.sort(order[:cut] if self.test else order[cut:])

    def block(self, block: int) -> Any:
        """Return this part's rows of one block."""
        return self.base.block(self._blocks[block])[self.picks(block)]

    def labels(self, block: int) -> Array:
        """Return this part's labels of one block."""
        return self.base.labels(self._blocks[block])[self.picks(block)]

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        """Return some of this part's rows of one block."""
        return self.base.rows(self._blocks[block], self.picks(block)[local])


def split_readers(base: Reader, test_size: float, seed: int) -> tuple[SplitReader, SplitReader]:
    """Split the rows uniformly: every set of that many rows is equally likely to be the test set.

    How many test rows fall into each block is a multivariate hypergeometric draw, and which ones
    a uniform choice within the block; together that is a uniform subset of all rows.
    """
    n_rows = sum(base.sizes)
    n_test = count_test_rows(test_size, n_rows)
    generator = np.random.default_rng([seed, 2**32 - 1])
    counts = generator.multivariate_hypergeometric(base.sizes, n_test, method="marginals")
    picked = tuple(int(count) for count in counts)
    return SplitReader(base, seed, picked, test=False), SplitReader(base, seed, picked, test=True)


def count_test_rows(test_size: float, n_rows: int) -> int:
    """Return the number of test rows: a fraction is rounded up, as scikit-learn does."""
    count = test_size if isinstance(test_size, int | np.integer) else np.ceil(test_size * n_rows)
    if not 0 < count < n_rows:
        raise DataError(
            f"test_size={test_size} leaves no row for one of the parts of {n_rows} rows: give a "
            "fraction between 0 and 1 or a number of rows below that."
        )
    return int(count)
