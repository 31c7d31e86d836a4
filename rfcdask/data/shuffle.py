"""A true permutation of all rows, out of core: scatter into runs on disk, then gather blocks.

Places are cut into buckets of fixed size. Every unit of rows of the source is dealt to the buckets:
how many go where is a multivariate hypergeometric draw from the places still free, and which ones a
uniform choice. A bucket holds its rows in the source's order and is then permuted. A uniform
assignment of rows to buckets followed by a uniform permutation within each bucket is a uniform
permutation of all rows; it follows from the seed and the number of rows alone, whatever the blocks.

Pass 1 takes each block of the source and writes its rows as one run, sorted by bucket. Pass 2
collects, for each output block, the piece of every run that holds its buckets. A pass that was
interrupted goes on where it stopped and ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.data.errors import DataError
from rfcdask.data.journal import RUNS
from rfcdask.data.write import Plan, WriteBlock, destination_errors

MOST_ROWS = 10**9
"""numpy draws hypergeometric numbers below this."""
MOST_BUCKETS = 2048
LEAST_BUCKET = 8192
_COUNT, _DEAL, _PERMUTE = range(3)


def _generator(seed: int, phase: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, phase, number])


@dataclass(frozen=True)
class Deal:
    """Which bucket each row goes to, and to which place within it.

    Parameters
    ----------
    n_rows : int
        Rows in all.
    seed : int
        What everything is drawn from.
    """

    n_rows: int
    seed: int

    @property
    def size(self) -> int:
        """Rows of a bucket, and of a unit of the source."""
        return max(LEAST_BUCKET, -(-self.n_rows // MOST_BUCKETS))

    @property
    def n_buckets(self) -> int:
        """How many buckets there are; the last one may be smaller."""
        return -(-self.n_rows // self.size)

    def bucket_rows(self, bucket: int) -> int:
        """Return the number of places of a bucket."""
        return min(self.size, self.n_rows - bucket * self.size)

    def buckets_of(self, start: int, stop: int) -> IntArray:
        """Return the bucket of each of the source's rows from `start` up to `stop`."""
        units = range(start // self.size, -(-stop // self.size))
        dealt = np.concatenate([self._unit(unit) for unit in units])
        first = units.start * self.size
        return dealt[start - first : stop - first]

    def order(self, bucket: int) -> IntArray:
        """Return the places of a bucket's rows, in the order of the source."""
        places = _generator(self.seed, _PERMUTE, bucket).permutation(self.bucket_rows(bucket))
        return places + bucket * self.size

    def _unit(self, unit: int) -> IntArray:
        counts = _unit_counts(self)[unit]
        dealt = np.repeat(np.arange(self.n_buckets), counts)
        return _generator(self.seed, _DEAL, unit).permutation(dealt)


@lru_cache(maxsize=4)
def _unit_counts(deal: Deal) -> Array:
    """Return how many rows of each unit (row) go to each bucket (column)."""
    if deal.n_rows >= MOST_ROWS:
        raise DataError(f"shuffle=True takes fewer than {MOST_ROWS:,} rows: ingest without it.")
    free = np.array([deal.bucket_rows(bucket) for bucket in range(deal.n_buckets)])
    counts = np.empty((deal.n_buckets, deal.n_buckets), np.uint32)
    for unit in range(deal.n_buckets):
        draw = _generator(deal.seed, _COUNT, unit)
        counts[unit] = draw.multivariate_hypergeometric(
            free, deal.bucket_rows(unit), method="marginals"
        )
        free -= counts[unit]
    return counts


@dataclass(frozen=True)
class ScatterBlock:
    """Writes a block of the source as a run, sorted by bucket."""

    plan: Plan
    deal: Deal

    def __call__(self, block: int, X: Array, y: Array | None) -> None:
        """Write the rows last, because they say that the run is whole."""
        buckets = self.deal.buckets_of(*self.plan.layout.span(block))
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=self.deal.n_buckets)
        with destination_errors(self.plan.location):
            self._write(f"{block:06d}.counts", counts.astype(np.int64))
            if y is not None:
                self._write(f"{block:06d}.y", y[order])
            self._write(f"{block:06d}.X", X[order])

    def _write(self, name: str, values: Array) -> None:
        self.plan.location.write(f"{RUNS}/{name}", values.reshape(-1).view(np.uint8).data)


def run_counts(plan: Plan) -> Array:
    """Return how many rows of each run (row) lie in each bucket (column)."""
    names = [f"{RUNS}/{block:06d}.counts" for block in range(plan.layout.n_blocks)]
    return np.stack([np.frombuffer(plan.location.read(name), np.int64) for name in names])


@dataclass(frozen=True)
class Pieces:
    """Where the rows of some neighbouring buckets lie: in every run, one after the other."""

    first_bucket: int
    starts: IntArray
    counts: IntArray


def pieces_of(plan: Plan, deal: Deal, counts: Array, block: int) -> Pieces:
    """Return the pieces of the runs that an output block takes its rows from."""
    start, stop = plan.layout.span(block)
    first, last = start // deal.size, -(-stop // deal.size)
    return Pieces(first, counts[:, :first].sum(axis=1), counts[:, first:last])


def gather_block(plan: Plan, deal: Deal, block: int, pieces: Pieces) -> int:
    """Collect an output block from all runs, every row at its place, and write it."""
    layout = plan.layout
    start, stop = layout.span(block)
    X = np.empty((stop - start, layout.n_columns), layout.dtype)
    y = None if layout.label_dtype is None else np.empty(stop - start, layout.label_dtype)
    for run, places in enumerate(_places(deal, pieces)):
        inside = (places >= start) & (places < stop)
        _collect(plan, f"{run:06d}.X", int(pieces.starts[run]), places, inside, start, X)
        if y is not None:
            _collect(plan, f"{run:06d}.y", int(pieces.starts[run]), places, inside, start, y)
    WriteBlock(plan)(block, X, y)
    return stop - start


def _places(deal: Deal, pieces: Pieces) -> Iterator[IntArray]:
    """Give, for each run, the places in the store of the rows of its piece."""
    orders = [deal.order(pieces.first_bucket + i) for i in range(pieces.counts.shape[1])]
    taken = np.zeros(len(orders), np.int64)
    for counts in pieces.counts:
        parts = [
            order[begin : begin + count]
            for order, begin, count in zip(orders, taken, counts, strict=True)
        ]
        yield np.concatenate(parts)
        taken += counts


def _collect(
    plan: Plan, name: str, begin: int, places: IntArray, inside: Array, start: int, out: Any
) -> None:
    width = out.dtype.itemsize * (out.shape[1] if out.ndim == 2 else 1)
    data = plan.location.read(f"{RUNS}/{name}", begin * width, (begin + len(places)) * width)
    rows = np.frombuffer(data, out.dtype).reshape(len(places), *out.shape[1:])
    out[places[inside] - start] = rows if inside.all() else rows[inside]
