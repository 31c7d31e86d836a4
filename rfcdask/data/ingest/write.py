"""From batches of a source to one whole shard on disk: what a single task does."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from zarr.storage import MemoryStore

from rfcdask.data.errors import DataError
from rfcdask.data.ingest.journal import BlockRecord, Journal
from rfcdask.data.layout import Layout, create_arrays
from rfcdask.data.location import Location
from rfcdask.data.manifest import Seal, seal_of, shard_key
from rfcdask.data.projection import SparseProjection, load_projection
from rfcdask.data.sources.arrays import flat, say_bad
from rfcdask.data.sources.base import Batch, dense, keep_rows
from rfcdask.data.sources.labels import Labels
from rfcdask.data.stats import column_stats
from rfcdask.kernels.types import Array, IntArray
from rfcdask.persist.files import disk_errors


@dataclass(frozen=True)
class Plan:
    """Everything that is the same for all blocks of one ingest."""

    location: Location
    layout: Layout
    labels: Labels | None
    source_columns: int
    source_name: str
    projection_seed: int | None = None
    mark: int | None = None
    """The check of what was begun, which no other ingest of the same place has."""

    @property
    def projected(self) -> bool:
        """Whether rows are projected on their way."""
        return self.projection_seed is not None


_ENCODING = threading.Lock()
# The encoder holds two blocks beside the one it writes, and uses several threads by itself; one at
# a time in a process keeps memory low while other threads read the next blocks.

Sink = Callable[[int, Array, "Array | None"], None]
"""Takes a finished block: its number, its rows, its labels."""


@dataclass(frozen=True)
class WriteBlock:
    """Writes a block as one whole shard, then records it."""

    plan: Plan

    def __call__(self, block: int, X: Array, y: Array | None) -> None:
        """Write rows and labels; a shard that is there already is replaced."""
        location = self.plan.location
        with destination_errors(location):
            seals = {"X": self._write("X", block, X)}
            if y is not None:
                seals["y"] = self._write("y", block, y)
            labels = None if y is None else zlib.crc32(np.ascontiguousarray(y).tobytes())
            Journal(location).record(block, BlockRecord(column_stats(X), labels, seals))

    def _write(self, name: str, block: int, values: Array) -> Seal:
        layout = self.plan.layout
        with _ENCODING:
            shard = encode_shard(layout, name, block, values)
        require_same_ingest(self.plan)
        self.plan.location.write(shard_key(name, block), shard.data)
        return seal_of(shard, layout.chunks_a_block)


def require_same_ingest(plan: Plan) -> None:
    """Refuse to write where another ingest was begun, or this one was ended, meanwhile.

    A task that was sent to a cluster may outlive the process that sent it, and its lock.
    """
    mark = None
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        mark = json.loads(plan.location.read("zarr.json"))["attributes"]["check"]
    if mark != plan.mark:
        raise DataError(
            f"{plan.location} is no longer what this ingest began: another one writes or has "
            "written there."
        )


def encode_shard(layout: Layout, name: str, block: int, values: Array) -> Array:
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


def holds_block(location: Location, block: int, n_chunks: int) -> bool:
    """Whether a block has a record and its shards are, to the last byte, those of the record.

    Otherwise the record goes, so that the block is written again.
    """
    record = Journal(location).block(block)
    try:
        if record is not None and all(
            seal_of(location.read(shard_key(name, block)), n_chunks, deep=True) == seal
            for name, seal in record.seals.items()
        ):
            return True
    except (FileNotFoundError, ValueError):
        pass
    Journal(location).forget(block)
    return False


def put_rows(
    plan: Plan, sink: Sink, block: int, source: Any, span: tuple[int, int], dropped: IntArray
) -> int:
    """Read a block's rows from a part of a source and pass them to the sink."""
    batches = keep_rows(source.read(*span), span[0], dropped)
    return put_batches(plan, sink, block, batches)


def put_computed(
    plan: Plan, sink: Sink, block: int, X: Any, y: Any, first: int, dropped: IntArray
) -> int:
    """Pass rows that Dask computed to the sink."""
    batch = Batch(X, None if y is None else flat(y))
    return put_batches(plan, sink, block, keep_rows(iter([batch]), first, dropped))


def put_batches(plan: Plan, sink: Sink, block: int, batches: Iterable[Batch]) -> int:
    """Fill a block from batches and pass it to the sink."""
    X, y = fill(plan, block, batches)
    sink(block, X, y)
    return len(X)


def fill(plan: Plan, block: int, batches: Iterable[Batch]) -> tuple[Array, Array | None]:
    """Bring the rows of one block into memory as they will lie on disk."""
    layout = plan.layout
    start, stop = layout.span(block)
    X = np.empty((stop - start, layout.n_columns), layout.dtype)
    y = None if plan.labels is None else np.empty(stop - start, layout.label_dtype)
    place = 0
    for batch in batches:
        rows = convert(plan, batch.X, start + place)
        X[place : place + len(rows)] = rows
        if y is not None and plan.labels is not None:
            y[place : place + len(rows)] = plan.labels.encode(np.asarray(batch.y))
        place += len(rows)
    if place != stop - start:
        raise DataError(
            f"{plan.source_name} gave {place} rows where {stop - start} were found before: it "
            "changed meanwhile; ingest it again with overwrite=True."
        )
    return X, y


def convert(plan: Plan, X: Any, first: int) -> Array:
    """Project or densify rows, and bring them to the type on disk without loss of whole numbers."""
    rows = _projection(plan).transform(X) if plan.projected else dense(X, plan.source_columns)
    if rows.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise DataError(say_bad(plan.source_name, first + int(bad[0]), rows[bad[0]], None))
    wanted = np.dtype(plan.layout.dtype)
    if rows.dtype == wanted:
        return rows
    # A value too large for the type overflows here; the comparison below names it.
    with np.errstate(invalid="ignore", over="ignore"):
        cast = rows.astype(wanted)
    wrong = cast != rows if wanted.kind in "biu" else ~np.isfinite(cast)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{plan.source_name}, row {first + row}: column {column} is {rows[row, column]}, which "
            f"dtype={wanted} cannot hold: pass another dtype."
        )
    return cast


def _projection(plan: Plan) -> SparseProjection:
    return _load_projection(
        plan.location, plan.projection_seed, plan.source_columns, plan.layout.n_columns
    )


@lru_cache(maxsize=4)
def _load_projection(location: Location, *_drawn_from: int | None) -> SparseProjection:
    # What it was drawn from is part of the key: the store may be another one of the same name.
    return load_projection(location)


def destination_errors(location: Location) -> AbstractContextManager[None]:
    """Turn failures of the disk into sentences that say how to go on with an ingest."""
    return disk_errors(location, "run the same ingest again to go on from there", DataError)
