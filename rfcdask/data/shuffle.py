"""A true permutation of all rows, out of core: scatter into runs on disk, then gather blocks.

Pass 1 takes each block of the source, permutes its rows and writes them as one run: first those
that go to output block 0, then those of block 1, and so on. How many go where is a multivariate
hypergeometric draw from the places still free. Pass 2 collects, for each output block, its piece
of every run and permutes it. A uniform assignment of rows to blocks followed by a uniform
permutation within each block is a uniform permutation of all rows. Every draw has a seed of its
own, so a pass that was interrupted goes on where it stopped and ends in the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.data.errors import DataError
from rfcdask.data.journal import RUNS
from rfcdask.data.write import Plan, WriteBlock, destination_errors

MOST_ROWS = 10**9
"""numpy draws hypergeometric numbers below this."""
_COUNT, _SCATTER, _GATHER = range(3)


def _generator(seed: int, phase: int, block: int) -> np.random.Generator:
    return np.random.default_rng([seed, phase, block])


def scatter_counts(sizes: tuple[int, ...], seed: int) -> Array:
    """Return how many rows of each block (row) go to each output block (column)."""
    if sum(sizes) >= MOST_ROWS:
        raise DataError(f"shuffle=True takes fewer than {MOST_ROWS:,} rows: ingest without it.")
    free = np.asarray(sizes, np.int64)
    counts = np.empty((len(sizes), len(sizes)), np.uint32)
    for block, size in enumerate(sizes):
        draw = _generator(seed, _COUNT, block)
        counts[block] = draw.multivariate_hypergeometric(free, size, method="marginals")
        free -= counts[block]
    return counts


@dataclass(frozen=True)
class ScatterBlock:
    """Writes a block of the source as a run, in random order."""

    plan: Plan
    seed: int

    def __call__(self, block: int, X: Array, y: Array | None) -> None:
        """Permute the rows and write them; the rows come last, they say that the run is whole."""
        order = _generator(self.seed, _SCATTER, block).permutation(len(X))
        with destination_errors(self.plan.location):
            if y is not None:
                self._write(f"{block:06d}.y", y[order])
            self._write(f"{block:06d}.X", X[order])

    def _write(self, name: str, values: Array) -> None:
        self.plan.location.write(f"{RUNS}/{name}", values.reshape(-1).view(np.uint8).data)


@dataclass(frozen=True)
class Pieces:
    """Where an output block's rows lie: in every run, from `starts`, `counts` many."""

    starts: IntArray
    counts: IntArray


def pieces_of(counts: Array, block: int) -> Pieces:
    """Return the pieces of one output block."""
    starts = counts[:, :block].sum(axis=1, dtype=np.int64)
    return Pieces(starts, counts[:, block].astype(np.int64))


def gather_block(plan: Plan, seed: int, block: int, pieces: Pieces) -> int:
    """Collect an output block from all runs, permute it and write it."""
    layout = plan.layout
    size = int(pieces.counts.sum())
    order = _generator(seed, _GATHER, block).permutation(size)
    X = np.empty((size, layout.n_columns), layout.dtype)
    _collect(plan, ".X", pieces, order, X)
    y = None
    if layout.label_dtype is not None:
        y = np.empty(size, layout.label_dtype)
        _collect(plan, ".y", pieces, order, y)
    WriteBlock(plan)(block, X, y)
    return size


def _collect(plan: Plan, ending: str, pieces: Pieces, order: IntArray, out: Any) -> None:
    width = out.dtype.itemsize * (out.shape[1] if out.ndim == 2 else 1)
    place = 0
    for run, (start, count) in enumerate(zip(pieces.starts, pieces.counts, strict=True)):
        name = f"{RUNS}/{run:06d}{ending}"
        data = plan.location.read(name, int(start) * width, int(start + count) * width)
        out[order[place : place + count]] = np.frombuffer(data, out.dtype).reshape(
            count, *out.shape[1:]
        )
        place += count
