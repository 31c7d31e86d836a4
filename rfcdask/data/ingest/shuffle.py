"""A true permutation of all rows, out of core: scatter into runs on disk, then gather blocks.

Places are cut into buckets of fixed size. Every unit of rows of the source is spread over the
buckets: how many go where is a multivariate hypergeometric draw from the places still free, and
which ones a uniform choice. A bucket holds its rows in the source's order and is then permuted. A
uniform assignment of rows to buckets followed by a uniform permutation within each bucket is a
uniform permutation of all rows; it follows from the seed and the number of rows alone, whatever the
blocks.

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
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from scipy import sparse

from rfcdask.data.errors import DamagedStoreError, DataError
from rfcdask.data.ingest.blocks import WriteBlock, block_tasks, place_of, run_blocks, written_blocks
from rfcdask.data.ingest.destination import RUNS, WritePlan, destination_errors
from rfcdask.data.sources.base import Source, Survey
from rfcdask.data.views import MOST_ROWS
from rfcdask.execution.executor import call_later
from rfcdask.kernels.arrays import Array, IntArray, Matrix

if TYPE_CHECKING:
    from distributed import Client

MOST_BUCKETS = 2048
LEAST_BUCKET = 8192
_COUNT, _SPREAD, _PERMUTE = range(3)


def shuffle_blocks(
    plan: WritePlan,
    rows: Source,
    survey: Survey,
    seed: int,
    progress: Any,
    client: Client | None,
) -> None:
    """Scatter all blocks into runs, then gather the permuted blocks from them.

    Without a cluster one block is handled at a time: with the copy that is permuted and what the
    encoder holds, that is up to four blocks of memory.
    """
    written = written_blocks(plan, progress, client)
    blocks = range(plan.layout.n_blocks)
    left = [block for block in blocks if block not in written]
    if not left:
        return
    order = RowPermutation(plan.layout.n_rows, seed)
    scattered = whole_runs(plan, order)
    if len(scattered) < len(blocks):
        tasks = block_tasks(plan, rows, survey, ScatterBlock(plan, order), scattered)
        place = place_of(rows, client)
        at_once = 1 if place is None else None
        run_blocks("scattering rows", plan, tasks, len(scattered), progress, place, at_once)
    runs = [read_run(plan, order, block) for block in blocks]
    gathers = (
        call_later(gather_block, plan, order, block, pieces_of(plan, order, runs, block))
        for block in left
    )
    at_once = 1 if client is None else None
    run_blocks("writing rows", plan, gathers, len(written), progress, client, at_once)


def _generator(seed: int, phase: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, phase, number])


@dataclass(frozen=True)
class RowPermutation:
    """Which bucket each row goes to, and to which place within it; drawn from the seed alone."""

    n_rows: int
    seed: int

    @property
    def bucket_size(self) -> int:
        """Rows of a bucket, and of a unit of the source."""
        return max(LEAST_BUCKET, -(-self.n_rows // MOST_BUCKETS))

    @property
    def n_buckets(self) -> int:
        """How many buckets there are; the last one may be smaller."""
        return -(-self.n_rows // self.bucket_size)

    def bucket_rows(self, bucket: int) -> int:
        """Return the number of places of a bucket."""
        return min(self.bucket_size, self.n_rows - bucket * self.bucket_size)

    def buckets_of(self, start: int, stop: int) -> IntArray:
        """Return the bucket of each of the source's rows from `start` up to `stop`."""
        size = self.bucket_size
        units = range(start // size, -(-stop // size))
        spread = np.concatenate([self._unit(unit) for unit in units])
        return spread[start - units.start * size : stop - units.start * size]

    def places(self, bucket: int) -> IntArray:
        """Return the places of a bucket's rows, in the order of the source."""
        places = _generator(self.seed, _PERMUTE, bucket).permutation(self.bucket_rows(bucket))
        return places + bucket * self.bucket_size

    def _unit(self, unit: int) -> IntArray:
        buckets = np.repeat(np.arange(self.n_buckets), _unit_counts(self)[unit])
        return _generator(self.seed, _SPREAD, unit).permutation(buckets)


@lru_cache(maxsize=4)
def _unit_counts(order: RowPermutation) -> Array:
    """Return how many rows of each unit (row) go to each bucket (column)."""
    if order.n_rows >= MOST_ROWS:
        raise DataError(f"shuffle=True takes fewer than {MOST_ROWS:,} rows: ingest without it.")
    free = np.array([order.bucket_rows(bucket) for bucket in range(order.n_buckets)])
    counts = np.empty((order.n_buckets, order.n_buckets), np.uint32)
    for unit in range(order.n_buckets):
        draw = _generator(order.seed, _COUNT, unit)
        counts[unit] = draw.multivariate_hypergeometric(
            free, order.bucket_rows(unit), method="marginals"
        )
        free -= counts[unit]
    return counts


@dataclass(frozen=True)
class ScatterBlock:
    """Writes a block of the source as a run, sorted by bucket."""

    plan: WritePlan
    order: RowPermutation

    def __call__(self, block: int, X: Matrix, y: Array | None) -> None:
        """Write the counts last, because they say that the run is whole."""
        location = self.plan.location
        buckets = self.order.buckets_of(*self.plan.layout.span(block))
        by_bucket = np.argsort(buckets, kind="stable")
        n_rows = np.bincount(buckets, minlength=self.order.n_buckets).astype(np.int64)
        record = [n_rows]
        arrays: dict[str, Any] = {"X": X[by_bucket], "y": None if y is None else y[by_bucket]}
        if self.plan.layout.sparse:
            rows = arrays["X"]
            lengths = np.diff(rows.indptr)
            arrays |= {"lengths": lengths, "indices": rows.indices, "data": rows.data}
            n_values = np.bincount(buckets[by_bucket], lengths, self.order.n_buckets)
            record.append(n_values.astype(np.int64))
        with destination_errors(location):
            self.plan.require_same_ingest()
            for name, (dtype, _) in run_arrays(self.plan).items():
                data = np.ascontiguousarray(arrays[name], dtype).reshape(-1).view(np.uint8).data
                location.write(f"{RUNS}/{block:06d}.{name}", data)
                record.append(_sums(data, _counts_of(record, name), _width(self.plan, name)))
            packed = np.stack(record).tobytes()
            mark = google_crc32c.value(packed).to_bytes(4, "little")
            location.write(_counts_name(block), packed + mark)


def run_arrays(plan: WritePlan) -> dict[str, tuple[Any, int]]:
    """Return the arrays of a run by name: their types, and how many values an entry has.

    Sparse rows are the number of values of each row, and for each value its column and itself.
    """
    layout = plan.layout
    found: dict[str, tuple[Any, int]] = {"X": (layout.dtype, layout.n_columns)}
    if layout.sparse:
        index = np.int32 if layout.n_columns < 2**31 else np.int64
        found = {"lengths": (np.int32, 1), "indices": (index, 1), "data": (layout.dtype, 1)}
    if layout.label_dtype is None:
        return found
    return found | {"y": (layout.label_dtype, layout.n_targets or 1)}


def _width(plan: WritePlan, name: str) -> int:
    dtype, n_values = run_arrays(plan)[name]
    return int(np.dtype(dtype).itemsize) * n_values


def _counts_of(record: Any, name: str) -> IntArray:
    """Return how many entries of an array each bucket has: rows, or values of sparse rows."""
    counts: IntArray = record[1 if name in ("indices", "data") else 0]
    return counts


def _counts_name(block: int) -> str:
    return f"{RUNS}/{block:06d}.counts"


def _sums(data: Any, counts: IntArray, row_bytes: int) -> IntArray:
    """Return the checksum of each bucket's rows."""
    values = np.frombuffer(data, np.uint8)
    edges = np.concatenate([[0], np.cumsum(counts) * row_bytes]).tolist()
    sums = (google_crc32c.value(values[a:b]) for a, b in pairwise(edges))
    return np.fromiter(sums, np.int64, len(counts))


def read_run(plan: WritePlan, order: RowPermutation, block: int) -> Array:
    """Return what is known of a run: for each bucket its rows, and a checksum for each array.

    Of sparse rows the number of values comes second.

    A damaged record is refused with the same error as damaged rows.
    """
    data = b""
    with contextlib.suppress(FileNotFoundError):
        data = plan.location.read(_counts_name(block))
    n_lists = 1 + plan.layout.sparse + len(run_arrays(plan))
    whole = len(data) == 8 * n_lists * order.n_buckets + 4
    if not whole or google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise _damaged_run(plan, block)
    return np.frombuffer(data[:-4], np.int64).reshape(n_lists, order.n_buckets)


def _damaged_run(plan: WritePlan, block: int) -> DamagedStoreError:
    """Make sure that a run is scattered again, and say how."""
    plan.location.delete(_counts_name(block))
    return DamagedStoreError(
        f"the scratch files {plan.location}/{RUNS}/{block:06d}.* are damaged: run the same ingest "
        "again, which writes them anew."
    )


def whole_runs(plan: WritePlan, order: RowPermutation) -> set[int]:
    """Return the blocks that an earlier attempt scattered, with a good record and all their bytes.

    Whether the bytes are right is seen when they are gathered.
    """
    sizes = plan.location.sizes(RUNS)
    names = run_arrays(plan)
    whole = set()
    for block in range(plan.layout.n_blocks):
        with contextlib.suppress(DamagedStoreError):
            run = read_run(plan, order, block)
            wanted = {name: _counts_of(run, name).sum() * _width(plan, name) for name in names}
            if all(sizes.get(f"{block:06d}.{name}") == size for name, size in wanted.items()):
                whole.add(block)
    return whole


@dataclass(frozen=True)
class Pieces:
    """Where the rows of some neighbouring buckets lie: in every run, one after the other."""

    first_bucket: int
    starts: IntArray  # (runs, lists): rows, and values, before the piece
    runs: IntArray  # (runs, lists, buckets): what `read_run` gives of these buckets


def pieces_of(plan: WritePlan, order: RowPermutation, runs: list[Array], block: int) -> Pieces:
    """Return the pieces of the runs that an output block takes its rows from."""
    start, stop = plan.layout.span(block)
    first, last = start // order.bucket_size, -(-stop // order.bucket_size)
    starts = np.stack([run[:2, :first].sum(axis=1) for run in runs])
    return Pieces(first, starts, np.stack([run[:, first:last] for run in runs]))


def gather_block(plan: WritePlan, order: RowPermutation, block: int, pieces: Pieces) -> int:
    """Collect an output block from all runs, every row at its place, and write it."""
    layout = plan.layout
    start, stop = layout.span(block)
    X: Any = None
    if not layout.sparse:
        X = np.empty((stop - start, layout.n_columns), layout.dtype)
    y = None
    if layout.label_dtype is not None:
        y = np.empty((stop - start, *layout.label_shape), layout.label_dtype)
    parts, places_of_parts = [], []
    for run, places in enumerate(_places(order, pieces)):
        inside = (places >= start) & (places < stop)
        found = {name: _read_piece(plan, run, pieces, name) for name in run_arrays(plan)}
        here = places[inside] - start
        kept: Any = slice(None) if inside.all() else inside
        if X is None:
            indptr = np.concatenate([[0], np.cumsum(found["lengths"])])
            part = sparse.csr_matrix(
                (found["data"], found["indices"], indptr), shape=(len(places), layout.n_columns)
            )
            parts.append(part[kept])
            places_of_parts.append(here)
        else:
            X[here] = found["X"][kept]
        if y is not None:
            y[here] = found["y"][kept]
    if parts:
        X = sparse.vstack(parts, format="csr")[np.argsort(np.concatenate(places_of_parts))]
    WriteBlock(plan)(block, X, y)
    return stop - start


def _places(order: RowPermutation, pieces: Pieces) -> Iterator[IntArray]:
    """Yield, for each run, the places in the store of the rows of its piece."""
    counts = pieces.runs[:, 0]
    places = [order.places(pieces.first_bucket + i) for i in range(counts.shape[1])]
    ends = np.cumsum(counts, axis=0)
    for stops, sizes in zip(ends, counts, strict=True):
        spans = zip(places, stops - sizes, stops, strict=True)
        yield np.concatenate([bucket[begin:end] for bucket, begin, end in spans])


def _read_piece(plan: WritePlan, run: int, pieces: Pieces, name: str) -> Array:
    """Return an array of a piece of a run, after comparing its checksums."""
    names = run_arrays(plan)
    lists = pieces.runs[run]
    counts, sums = _counts_of(lists, name), lists[len(lists) - len(names) + list(names).index(name)]
    begin, count = int(_counts_of(pieces.starts[run], name)), int(counts.sum())
    dtype, n_values = names[name]
    width = _width(plan, name)
    data = b""
    with contextlib.suppress(FileNotFoundError):
        data = plan.location.read(
            f"{RUNS}/{run:06d}.{name}", begin * width, (begin + count) * width
        )
    if len(data) != count * width or not np.array_equal(_sums(data, counts, width), sums):
        raise _damaged_run(plan, run)
    values = np.frombuffer(data, dtype)
    return values.reshape(count, n_values) if name == "X" or n_values > 1 else values
