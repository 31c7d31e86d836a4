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

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import google_crc32c
import numpy as np

from rfcdask.data.errors import DamagedStoreError, DataError
from rfcdask.data.ingest.journal import RUNS
from rfcdask.data.ingest.write import Plan, WriteBlock, destination_errors, require_same_ingest
from rfcdask.kernels.types import Array, IntArray

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
        """Write the counts last, because they say that the run is whole."""
        buckets = self.deal.buckets_of(*self.plan.layout.span(block))
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=self.deal.n_buckets).astype(np.int64)
        with destination_errors(self.plan.location):
            require_same_ingest(self.plan)
            sums = [self._write(f"{block:06d}.X", X[order], counts)]
            if y is not None:
                sums.append(self._write(f"{block:06d}.y", y[order], counts))
            record = np.stack([counts, *sums]).tobytes()
            mark = google_crc32c.value(record).to_bytes(4, "little")
            self.plan.location.write(_counts_name(block), record + mark)

    def _write(self, name: str, values: Array, counts: IntArray) -> IntArray:
        data = values.reshape(-1).view(np.uint8).data
        self.plan.location.write(f"{RUNS}/{name}", data)
        return _sums(data, counts, _width(values))


def _counts_name(block: int) -> str:
    return f"{RUNS}/{block:06d}.counts"


def _width(values: Array) -> int:
    """Return the bytes of one row."""
    return values.dtype.itemsize * (values.shape[1] if values.ndim == 2 else 1)


def _sums(data: Any, counts: IntArray, width: int) -> IntArray:
    """Return the checksum of each bucket's rows."""
    values = np.frombuffer(data, np.uint8)
    edges = np.concatenate([[0], np.cumsum(counts) * width]).tolist()
    sums = (google_crc32c.value(values[a:b]) for a, b in pairwise(edges))
    return np.fromiter(sums, np.int64, len(counts))


def read_run(plan: Plan, deal: Deal, block: int) -> Array:
    """Return what is known of a run: for each bucket its rows, and checksums of them and of labels.

    A damaged record is refused with the same error as damaged rows.
    """
    data = b""
    with contextlib.suppress(FileNotFoundError):
        data = plan.location.read(_counts_name(block))
    names = 2 if plan.layout.label_dtype is None else 3
    if len(data) != 8 * names * deal.n_buckets + 4:
        raise damaged_run(plan, block)
    if google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise damaged_run(plan, block)
    return np.frombuffer(data[:-4], np.int64).reshape(names, deal.n_buckets)


def damaged_run(plan: Plan, block: int) -> DamagedStoreError:
    """Make sure that a run is scattered again, and say how."""
    plan.location.delete(_counts_name(block))
    return DamagedStoreError(
        f"the scratch files {plan.location}/{RUNS}/{block:06d}.* are damaged: run the same ingest "
        "again, which writes them anew."
    )


def whole_runs(plan: Plan, deal: Deal) -> set[int]:
    """Return the blocks that an earlier attempt scattered, with a good record and all their bytes.

    Whether the bytes are right is seen when they are gathered.
    """
    sizes = plan.location.sizes(RUNS)
    layout = plan.layout
    widths = {"X": layout.n_columns * np.dtype(layout.dtype).itemsize}
    if layout.label_dtype is not None:
        widths["y"] = np.dtype(layout.label_dtype).itemsize
    whole = set()
    for block, rows in enumerate(layout.sizes()):
        if all(sizes.get(f"{block:06d}.{k}") == rows * width for k, width in widths.items()):
            with contextlib.suppress(DamagedStoreError):
                read_run(plan, deal, block)
                whole.add(block)
    return whole


@dataclass(frozen=True)
class Pieces:
    """Where the rows of some neighbouring buckets lie: in every run, one after the other.

    Parameters
    ----------
    first_bucket : int
        The first of them.
    starts : array of shape (runs,)
        Rows before the piece in each run.
    runs : array of shape (runs, 2 or 3, buckets)
        Rows of each bucket, and the checksums of its rows and labels.
    """

    first_bucket: int
    starts: IntArray
    runs: IntArray

    @property
    def counts(self) -> IntArray:
        """Rows of each run (row) in each bucket (column)."""
        return self.runs[:, 0]


def pieces_of(plan: Plan, deal: Deal, runs: list[Array], block: int) -> Pieces:
    """Return the pieces of the runs that an output block takes its rows from."""
    start, stop = plan.layout.span(block)
    first, last = start // deal.size, -(-stop // deal.size)
    starts = np.array([run[0, :first].sum() for run in runs])
    return Pieces(first, starts, np.stack([run[:, first:last] for run in runs]))


def gather_block(plan: Plan, deal: Deal, block: int, pieces: Pieces) -> int:
    """Collect an output block from all runs, every row at its place, and write it."""
    layout = plan.layout
    start, stop = layout.span(block)
    X = np.empty((stop - start, layout.n_columns), layout.dtype)
    y = None if layout.label_dtype is None else np.empty(stop - start, layout.label_dtype)
    for run, places in enumerate(_places(deal, pieces)):
        inside = (places >= start) & (places < stop)
        for number, out in enumerate((X,) if y is None else (X, y)):
            rows = _read_piece(plan, run, pieces, number, out)
            out[places[inside] - start] = rows if inside.all() else rows[inside]
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


def _read_piece(plan: Plan, run: int, pieces: Pieces, number: int, out: Array) -> Array:
    """Return the rows (0) or labels (1) of a piece of a run, after comparing their checksums."""
    counts, sums = pieces.runs[run, 0], pieces.runs[run, 1 + number]
    begin, n_rows, width = int(pieces.starts[run]), int(counts.sum()), _width(out)
    name = f"{RUNS}/{run:06d}.{'Xy'[number]}"
    data = b""
    with contextlib.suppress(FileNotFoundError):
        data = plan.location.read(name, begin * width, (begin + n_rows) * width)
    if len(data) != n_rows * width or not np.array_equal(_sums(data, counts, width), sums):
        raise damaged_run(plan, run)
    return np.frombuffer(data, out.dtype).reshape(n_rows, *out.shape[1:])
