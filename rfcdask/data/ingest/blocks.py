"""The blocks of an ingest: what the task of one of them does, and how all of them are run."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from dask.delayed import delayed
from dask.utils import format_bytes
from scipy import sparse
from zarr.storage import MemoryStore

from rfcdask.data.columns import column_stats
from rfcdask.data.errors import DataError, OutOfMemoryError
from rfcdask.data.ingest.destination import (
    NOT_READ,
    BlockRecord,
    Journal,
    WritePlan,
    destination_errors,
)
from rfcdask.data.layout import CSR_PARTS, Layout, canonical, create_arrays, encode_csr
from rfcdask.data.location import Location
from rfcdask.data.manifest import Seal, file_facts, seal_of, shard_key
from rfcdask.data.sources.arrays import flat, unmasked
from rfcdask.data.sources.base import (
    BATCH_BYTES,
    Batch,
    Source,
    Survey,
    bad_rows_of,
    not_finite,
)
from rfcdask.data.sources.dask_arrays import DaskRows
from rfcdask.data.views import SparseProjection, load_projection
from rfcdask.execution.executor import call_later, run_tasks
from rfcdask.execution.failures import WorkerDiedError
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import CSR, Array, IntArray, Matrix, is_sparse
from rfcdask.kernels.runtime import release_memory

if TYPE_CHECKING:
    from distributed import Client


_ENCODING = threading.Lock()
# The encoder holds two blocks beside the one it writes, and uses several threads by itself; one at
# a time in a process keeps memory low while other threads read the next blocks.

WRITTEN_REMEDY = "pass nan='drop', and overwrite=True because rows are written already,"

Sink = Callable[[int, Any, "Array | None"], None]
"""Takes a finished block: its number, its rows, its labels."""


@dataclass(frozen=True)
class WriteBlock:
    """Writes a block as one whole shard, or as the files of a CSR matrix, then records it."""

    plan: WritePlan

    def __call__(self, block: int, X: Matrix, y: Array | None) -> None:
        """Write rows and labels; a shard that is there already is replaced."""
        location = self.plan.location
        with destination_errors(location):
            if is_sparse(X):
                record = BlockRecord(files=self._write_csr(block, X), n_values=int(X.nnz))
            else:
                seal = self._write("X", block, X)
                record = BlockRecord(column_stats(X), seals={"X": seal})
            if y is not None:
                labels = zlib.crc32(np.ascontiguousarray(y).tobytes())
                name = self.plan.layout.label_array
                seals = {**record.seals, name: self._write(name, block, y)}
                record = replace(record, labels=labels, seals=seals)
            Journal(location).record(block, record)

    def _write_csr(self, block: int, X: CSR) -> dict[str, tuple[int, str]]:
        release_memory()  # the text and the parts of which the block was made
        with _ENCODING:
            files = encode_csr(self.plan.layout, block, X)
        self.plan.require_same_ingest()
        for name, data in files.items():
            self.plan.location.write(name, data)
        return {name: file_facts(data) for name, data in files.items()}

    def _write(self, name: str, block: int, values: Array) -> Seal:
        layout = self.plan.layout
        with _ENCODING:
            shard = _encode_shard(layout, name, block, values)
        self.plan.require_same_ingest()
        self.plan.location.write(shard_key(name, block), shard.data)
        return seal_of(shard, layout.chunks_of(name))


def _encode_shard(layout: Layout, name: str, block: int, values: Array) -> Array:
    """Return the bytes of a shard: what is written is what was encoded here, and nothing older."""
    kept: dict[str, Any] = {}
    group = zarr.create_group(store=MemoryStore(kept), zarr_format=3)
    create_arrays(group, layout, [name])
    start, stop = layout.span(block)
    array: Any = group[name]
    # A chunk of zeros is written too: left out, it could not be told from a lost one, and negative
    # zeros would lose their sign.
    array.with_config({"write_empty_chunks": True})[start:stop] = values
    shard: Array = kept[shard_key(name, block)].as_numpy_array()
    return shard


def holds_block(location: Location, block: int, layout: Layout) -> bool:
    """Whether a block has a record and its shards are, to the last byte, those of the record.

    Otherwise the record goes, so that the block is written again.
    """
    record = Journal(location).block(block)
    try:
        if record is not None and all(
            seal_of(location.read(shard_key(name, block)), layout.chunks_of(name), deep=True)
            == seal
            for name, seal in record.seals.items()
        ):
            files = record.files.items()
            if all(file_facts(location.read(name)) == facts for name, facts in files):
                return True
    except NOT_READ:
        pass
    Journal(location).forget(block)
    return False


def put_rows(
    plan: WritePlan, sink: Sink, block: int, source: Any, span: tuple[int, int], dropped: IntArray
) -> int:
    """Read a block's rows from a part of a source and pass them to the sink."""
    batches = keep_rows(source.read(*span), span[0], dropped)
    return put_filled(sink, block, *fill(plan, block, batches))


def put_computed(
    plan: WritePlan, sink: Sink, block: int, X: Any, y: Any, first: int, dropped: IntArray
) -> int:
    """Pass rows that Dask computed to the sink."""
    batch = Batch(X, None if y is None else flat(y))
    return put_filled(sink, block, *fill(plan, block, keep_rows(iter([batch]), first, dropped)))


def put_filled(sink: Sink, block: int, X: Matrix, y: Array | None) -> int:
    """Pass a block to the sink and return its number of rows."""
    sink(block, X, y)
    return int(X.shape[0])


def fill(plan: WritePlan, block: int, batches: Iterable[Batch]) -> tuple[Any, Array | None]:
    """Bring the rows of one block into memory as they will lie on disk."""
    layout = plan.layout
    start, stop = layout.span(block)
    X = None if layout.sparse else np.empty((stop - start, layout.n_columns), layout.dtype)
    y = None
    if plan.labels is not None:
        y = np.empty((stop - start, *layout.label_shape), layout.label_dtype)
    place, parts = 0, []
    for batch in batches if layout.sparse else few_rows(batches):
        n_rows = batch.X.shape[0]
        if X is None:
            parts.append(_convert_csr(plan, batch.X, start + place))
        else:
            X[place : place + n_rows] = _convert(plan, batch.X, start + place)
        if y is not None and plan.labels is not None:
            y[place : place + n_rows] = plan.labels.encode(np.asarray(batch.y))
        place += n_rows
    if place != stop - start:
        raise DataError(
            f"{plan.source_name} gave {place} rows where {stop - start} were found before: it "
            "changed meanwhile; ingest it again with overwrite=True."
        )
    return (_stacked(parts) if X is None else X), y


def _stacked(parts: list[CSR]) -> CSR:
    """Put sparse rows together; the arrays of the parts go as soon as they are copied."""
    shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(p.indptr) for p in parts]))])
    joined: list[Array] = []
    for name in ("data", "indices"):
        joined.append(np.concatenate([getattr(part, name) for part in parts]))
        for part in parts:
            setattr(part, name, joined[-1][:0])
    return sparse.csr_matrix((*joined, indptr), shape=shape)


def few_rows(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Cut sparse batches so that they stay small when they become dense."""
    for batch in batches:
        n_rows, width = batch.X.shape
        step = max(1, BATCH_BYTES // (8 * max(1, width))) if is_sparse(batch.X) else n_rows
        for start in range(0, n_rows, max(1, step)):
            yield batch if step >= n_rows else batch.cut(slice(start, start + step))


def _convert_csr(plan: WritePlan, X: Any, first: int) -> CSR:
    """Bring sparse rows to canonical form and to the type on disk, whose values are checked."""
    if X.shape[1] != plan.source_columns:
        raise wrong_width(X.shape[1], plan.source_columns)
    rows = canonical(X)

    def at(place: int) -> tuple[int, int]:
        row = int(np.searchsorted(rows.indptr, place, side="right")) - 1
        return first + row, int(rows.indices[place])

    if len(bad := bad_rows_of(rows, None)):
        values = rows[bad[0]].toarray()[0]
        raise not_finite(plan.source_name, first + int(bad[0]), values, None, WRITTEN_REMEDY)
    cast, wrong = _cast(rows.data, plan.layout.dtype)
    if len(wrong):
        raise _does_not_fit(plan, *at(int(wrong[0][0])), rows.data[wrong[0][0]])
    return sparse.csr_matrix((cast, rows.indices, rows.indptr), shape=rows.shape)


def _cast(values: Array, dtype: Any) -> tuple[Array, Array]:
    """Return values in a type, and the places of those that it cannot hold."""
    wanted = np.dtype(dtype)
    if values.dtype == wanted:
        return values, np.empty((0, values.ndim), int)
    # A value too large for the type overflows here; the comparison below names it.
    with np.errstate(invalid="ignore", over="ignore"):
        cast = values.astype(wanted)
    return cast, np.argwhere(cast != values if wanted.kind in "biu" else ~np.isfinite(cast))


def _does_not_fit(plan: WritePlan, row: int, column: int, value: Any) -> DataError:
    return DataError(
        f"{plan.source_name}, row {row}: column {column} is {value}, which "
        f"dtype={np.dtype(plan.layout.dtype)} cannot hold: pass another dtype, and overwrite=True "
        "because rows are written already."
    )


def _convert(plan: WritePlan, X: Any, first: int) -> Array:
    """Project or densify rows, and bring them to the type on disk without loss of whole numbers."""
    if plan.projected:
        # What it was drawn from is part of the key: the store may be another one of the same name.
        drawn_from = (plan.projection_seed, plan.source_columns, plan.layout.n_columns)
        rows = _projection(plan.location, *drawn_from).transform(X)
    else:
        rows = dense(X, plan.source_columns)
    if len(bad := bad_rows_of(rows, None)):
        number = first + int(bad[0])
        raise not_finite(plan.source_name, number, rows[bad[0]], None, WRITTEN_REMEDY)
    cast, wrong = _cast(rows, plan.layout.dtype)
    if len(wrong):
        row, column = (int(place) for place in wrong[0])
        raise _does_not_fit(plan, first + row, column, rows[row, column])
    return cast


@lru_cache(maxsize=4)
def _projection(location: Location, *_drawn_from: int | None) -> SparseProjection:
    return load_projection(location)


def write_blocks(
    plan: WritePlan, rows: Source, survey: Survey, progress: Any, client: Client | None
) -> None:
    """Write every block that is not written yet."""
    done = written_blocks(plan, progress, client)
    tasks = block_tasks(plan, rows, survey, WriteBlock(plan), done)
    # A sparse block is read and joined from many parts, by several threads for one block.
    here = place_of(rows, client)
    at_once = 1 if plan.layout.sparse and here is None else None
    run_blocks("writing rows", plan, tasks, len(done), progress, here, at_once)


def written_blocks(plan: WritePlan, progress: Any, client: Client | None) -> set[int]:
    """Return the blocks that an earlier attempt wrote and that are still whole; read them all."""
    recorded = Journal(plan.location).recorded()
    phase, done = "checking blocks", set[int]()
    tasks = (call_later(holds_block, plan.location, block, plan.layout) for block in recorded)
    if not recorded:
        return done
    with (
        out_of_memory(phase, plan.layout),
        track(phase, len(recorded), "blocks", progress=progress) as report,
    ):
        for block, whole in zip(recorded, run_tasks(tasks, client), strict=True):
            report.advance(1)
            if whole and block < plan.layout.n_blocks:
                done.add(block)
    return done


def place_of(rows: Source, client: Client | None) -> Client | None:
    """Return where blocks of a source are written: None means by threads of this process.

    Streams are read here and arrays in memory lie here: sending their rows to a worker, which
    writes them to the same store, costs more than writing them.
    """
    return client if rows.in_parallel and not rows.in_memory else None


def block_tasks(
    plan: WritePlan, rows: Source, survey: Survey, sink: Sink, done: set[int]
) -> Iterator[Any]:
    """Yield a delayed task for every block that is not done; it returns its number of rows."""
    left = [block for block in range(plan.layout.n_blocks) if block not in done]
    if not rows.in_parallel:
        yield from _stream_tasks(plan, rows, survey, sink, left)
        return
    for block in left:
        span = survey.span(*plan.layout.span(block))
        part, dropped = rows.narrowed(*span), survey.dropped_within(*span)
        if isinstance(rows, DaskRows):
            call = delayed(put_computed, pure=False)
            yield call(plan, sink, block, part.X, part.y, span[0], dropped)
        else:
            yield call_later(put_rows, plan, sink, block, part, span, dropped)


def _stream_tasks(
    plan: WritePlan, rows: Source, survey: Survey, sink: Sink, left: list[int]
) -> Iterator[Any]:
    """Read the stream here, from the first block that is left, and pass filled blocks on."""
    if not left:
        return
    layout, wanted = plan.layout, set(left)
    first = survey.source_row(layout.span(left[0])[0])
    batches = keep_rows(rows.read(first, survey.n_rows), first, survey.dropped)
    blocks, sizes = range(left[0], layout.n_blocks), iter(layout.sizes()[left[0] :])
    for block, run in zip(blocks, cut(batches, sizes), strict=True):
        if block in wanted:
            X, y = fill(plan, block, run)
            yield call_later(put_filled, sink, block, X, y)
            del X, y
        else:
            for _ in run:
                pass


def run_blocks(
    phase: str,
    plan: WritePlan,
    tasks: Iterable[Any],
    n_done: int,
    progress: Any,
    client: Client | None,
    at_once: int | None = None,
) -> None:
    """Run tasks of blocks that return their numbers of rows, and report those as progress."""
    layout = plan.layout
    with (
        out_of_memory(phase, layout),
        track(phase, layout.n_rows, "rows", progress=progress) as report,
    ):
        report.advance(min(n_done * layout.block_rows, layout.n_rows))
        for number, rows in enumerate(run_tasks(tasks, client, at_once=at_once)):
            report.advance(rows)
            if number == 0:
                _check_room(plan, n_done + 1)


@contextmanager
def out_of_memory(phase: str, layout: Layout) -> Iterator[None]:
    """Say of workers that die over blocks how large those are, and what can be done."""
    try:
        yield
    except WorkerDiedError as error:
        raise OutOfMemoryError(
            f"a worker died while {phase}, most likely for want of memory; each of its threads "
            f"holds about four blocks of {format_bytes(layout.block_bytes)}: give workers more "
            "memory and call the same again, which keeps what is written, or begin anew with a "
            "smaller block_size= and overwrite=True."
        ) from error


def _check_room(plan: WritePlan, written: int) -> None:
    """After the first block its compressed size is known: refuse early what will not fit."""
    free = plan.location.free_bytes()
    left = plan.layout.n_blocks - written
    if free is None or left < 1 or not plan.location.exists("X"):
        return
    # Files of zarr chunks: a shard of dense rows is one, of sparse rows there are up to three.
    shards = [size for name, size in plan.location.sizes("X").items() if "c/" in name]
    blocks = max(1, len(shards) // (len(CSR_PARTS) if plan.layout.sparse else 1))
    needed = sum(shards) // blocks * left
    if needed > free:
        raise DataError(
            f"no space for {plan.location}: about {format_bytes(needed)} more are needed, "
            f"{format_bytes(free)} are free: make room and run the same ingest again to go on."
        )


def keep_rows(batches: Iterator[Batch], start: int, dropped: IntArray) -> Iterator[Batch]:
    """Leave out the dropped rows of a run of batches that begins with row `start`."""
    for batch in batches:
        stop = start + batch.X.shape[0]
        first, last = np.searchsorted(dropped, [start, stop])
        keep = np.ones(stop - start, bool)
        keep[dropped[first:last] - start] = False
        yield batch if first == last else batch.cut(keep)
        start = stop


def cut(batches: Iterator[Batch], sizes: Iterator[int]) -> Iterator[Iterator[Batch]]:
    """Cut a run of batches into runs of the given numbers of rows; each must be used up in turn."""
    left: list[Batch] = []
    for size in sizes:
        yield _take(batches, size, left)


def _take(batches: Iterator[Batch], size: int, left: list[Batch]) -> Iterator[Batch]:
    while size > 0:
        batch = left.pop() if left else next(batches, None)
        if batch is None:
            return
        rows = batch.X.shape[0]
        if rows > size:
            left.append(batch.cut(slice(size, None)))
            batch = batch.cut(slice(size))
        size -= min(rows, size)
        yield batch


def dense(X: Any, n_columns: int) -> Array:
    """Return rows as a dense array, whatever they came as."""
    rows: Array = X.toarray() if is_sparse(X) else unmasked(X)
    if rows.shape[1] != n_columns:
        raise wrong_width(rows.shape[1], n_columns)
    return rows


def wrong_width(found: int, wanted: int) -> DataError:
    """Say that rows have another number of columns than those before them."""
    return DataError(f"a batch has {found} columns where {wanted} were expected.")
