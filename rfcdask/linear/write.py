"""Writing lazy rows, such as features or predictions, to a zarr store, block by block."""

from __future__ import annotations

import json
import os
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import google_crc32c
import numpy as np
import zarr
from dask.base import tokenize
from numcodecs.zstd import Zstd
from zarr.storage import MemoryStore

from rfcdask.data.errors import UnreachableError
from rfcdask.data.layout import ZSTD_LEVEL, codecs
from rfcdask.data.location import Location, require_shared
from rfcdask.data.sample import checked_blocks, one_column_block
from rfcdask.data.sources.dask_arrays import places_read, stored_facts
from rfcdask.execution.blocks import Blocks, first_rows, stream_folds
from rfcdask.execution.cluster import current_client
from rfcdask.execution.executor import open_executor
from rfcdask.execution.progress import track
from rfcdask.features.lazy import FeatureArray
from rfcdask.kernels.arrays import Array, DaskArray, as_csr, to_dense
from rfcdask.persist.files import (
    UNFINISHED,
    backup_of,
    discard,
    disk_errors,
    exclusive_lock,
    lock_path,
    refuse_links,
    refuse_others,
    replace_folder,
    require_flag,
    restore_backup,
)

FIXED_SIZE = "biufcSUmM"
"""Kinds of values whose bytes in memory are what zarr stores."""
_RECORDS = ".write"
"""Folder of an unfinished array that says what is written; it goes when the array is done."""
_MARK = "array.json"
_BEGUN = f"{_RECORDS}/{_MARK}"


def write_zarr(
    rows: DaskArray,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    client: Any = None,
    progress: Any = None,
) -> DaskArray:
    """Write a lazy array to a new zarr array, in bounded memory, and return it opened lazily.

    Each block becomes one chunk and is written whole by one task, so a task tried again writes
    the same bytes to the same place. Everything is written to ``PATH.unfinished`` and takes its
    name when it is whole; before that it has no metadata, and nobody can take it for an array.
    Called again after an interruption with the same array (its Dask name, shape, type, chunks, and
    the files of zarr arrays that it reads), it goes on with the blocks that are not there yet.

    Parameters
    ----------
    rows : dask array of shape (n,) or (n, k)
        Its row chunks must all have the same size but the last, which may be smaller.
    path : path
        Where the zarr array is made: a local path, or an fsspec URL, where it is written in place
        and what is replaced goes first.
    overwrite : bool
        Whether a zarr array that is there may be replaced; it stays until the new one is whole.
    client : distributed.Client, optional
        Where to compute: this client, else the current one, else local threads. Workers must see
        the same file system.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.
    """
    require_flag("overwrite", overwrite)
    if rows.dtype.kind not in FIXED_SIZE:
        raise TypeError(
            f"rows of dtype {rows.dtype} have no fixed size; use rows.astype(float), or "
            "rows.astype('U20') for text of at most 20 characters."
        )
    rows = one_column_block(checked_blocks(rows, "rows"))
    if isinstance(rows, FeatureArray) and not _are_even(rows.chunks[0]):
        rows = rows.in_blocks_of_rows()
    sizes = [int(size) for size in rows.chunks[0]]
    if not _are_even(rows.chunks[0]):
        raise ValueError(
            f"Row chunks of {sizes[:4]}... cannot become chunks of one size; use "
            f"rows.rechunk({{0: {max(sizes)}}}) first."
        )
    target = Location.to_write(path)
    require_shared(current_client(client), writes=path)
    refusal = FileExistsError(f"another process is writing {target}: wait for it.")
    with disk_errors(target), _locked(target, refusal):
        beside = Path(target.url + UNFINISHED)
        if target.is_local:
            restore_backup(beside, Path(target.url))
        array = _identity(rows)
        if _is_done(target, array):  # but for its records, when it was interrupted
            if target.is_local:  # and for what it replaced, which may be half removed
                discard(backup_of(beside))
            target.delete(_RECORDS, last=_MARK)
            return _opened(target, rows)
        _require_free(target, overwrite)
        _require_other_place(target, rows)
        work = _begin(target, array)
        _write_blocks(work, rows, sizes, client, progress)
        if _identity(rows) != array:
            raise ValueError(
                f"the zarr array that rows are read from was changed while {target} was written: "
                "call the same again, which begins anew."
            )
        if work != target:
            replace_folder(Path(work.url), Path(target.url))
        target.delete(_RECORDS, last=_MARK)
    return _opened(target, rows)


def _are_even(sizes: tuple[int, ...]) -> bool:
    """Tell whether chunks have one size but the last, which may be smaller."""
    return all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]


def _opened(target: Location, rows: DaskArray) -> DaskArray:
    # Named after what was written: by itself Dask knows an array by its place and shape, and takes
    # what replaces it for the same.
    name = f"zarr-{tokenize(target.url, rows.name, rows.chunks)}"
    return da.from_zarr(zarr.open_array(store=target.store(), mode="r"), name=name)


def _require_free(target: Location, overwrite: bool) -> None:
    """Refuse to replace an array unless that was asked for, and anything else in any case."""
    if not target.exists():
        return
    ours = _is_array(target) or target.exists(".zarray") or not target.names("")
    if ours and not overwrite:
        raise FileExistsError(f"{target} exists already; choose another path or overwrite=True.")
    if target.is_local and _is_array(target):
        refuse_others(Path(target.url), ("zarr.json", "c"))
    if not ours and (target.is_local or not target.exists(_RECORDS)):
        raise FileExistsError(f"{target} exists and is no zarr array; choose another path.")


def _require_other_place(target: Location, rows: DaskArray) -> None:
    """Refuse to remove what the rows are read from: behind a URL what is replaced goes first."""
    if not target.is_local and target.exists() and any(map(target.overlaps, places_read(rows))):
        raise FileExistsError(f"the rows are read from {target} itself; choose another path.")


def _identity(rows: DaskArray) -> bytes:
    """Return what changes with the array, also when a zarr array behind it is written anew."""
    known = [rows.name, list(rows.shape), rows.dtype.str, list(rows.chunks[0]), stored_facts(rows)]
    return json.dumps(known).encode()


def _is_array(target: Location) -> bool:
    """Tell an array from a group, such as a store of rows, which has a file of the same name."""
    try:
        return bool(json.loads(target.read("zarr.json"))["node_type"] == "array")
    except UnreachableError:  # it may be one
        raise
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _is_done(target: Location, array: bytes) -> bool:
    """Tell whether this very array is there, with the records of an interrupted call."""
    return _is_array(target) and target.exists(_BEGUN) and target.read(_BEGUN) == array


def _locked(target: Location, refusal: Exception) -> Any:
    if not target.is_local:
        return nullcontext()
    place = Path(target.url)
    place.parent.mkdir(parents=True, exist_ok=True)
    return exclusive_lock(lock_path(Path(os.path.realpath(place))), refusal)


def _begin(target: Location, array: bytes) -> Location:
    """Return where to write, with what an earlier attempt wrote there of the very same array."""
    work = target.beside() if target.is_local else target
    if work.is_local:
        refuse_links(Path(work.url))
    if work.exists():
        if work.is_local and work.names("") and not work.exists(_RECORDS):
            raise FileExistsError(f"{work} lies in the way and is none of ours: move it away.")
        if not work.exists(_BEGUN) or work.read(_BEGUN) != array:
            # Interrupted, it is no array that lacks some of its chunks: zarr takes those for zeros.
            work.write(_BEGUN, b"")
            for metadata in ("zarr.json", ".zarray"):
                work.delete(metadata)
            work.clear(last=_RECORDS)
        work.sweep_partial_files()
    work.write(_BEGUN, array)
    return work


def _write_blocks(
    work: Location, rows: DaskArray, sizes: list[int], client: Any, progress: Any
) -> None:
    """Write the blocks that are not there yet, and the metadata last.

    A block of rows whose features are several blocks is read once, and its features are made and
    written one block after another.
    """
    source = rows.unevaluated() if isinstance(rows, FeatureArray) else rows
    first = tuple(-(-start // max(sizes[0], 1)) for start in first_rows(source).tolist())
    fold = _WriteBlock(work, rows.shape, rows.dtype.str, sizes[0], work.read(_BEGUN), first)
    written = {index for index in range(len(sizes)) if fold.is_written(index)}
    left = [(k,) for k in range(source.numblocks[0]) if not written.issuperset(fold.parts(k))]
    with (
        open_executor(client) as executor,
        track("writing", float(rows.shape[0]), "rows", progress=progress) as reporter,
    ):
        reporter.advance(rows.shape[0] - sum(source.chunks[0][k] for (k,) in left))
        for count in stream_folds(executor, Blocks(source), left, fold, 0):
            reporter.advance(count)
    work.write("zarr.json", fold.metadata())


def encode_chunk(values: Array, shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """Return the bytes of a chunk as ``codecs("zstd")`` of zarr makes them.

    zarr itself copies a chunk four times, which takes longer than to compute features.
    """
    if values.shape != shape:  # the last chunk is filled up
        whole = np.zeros(shape, dtype)
        whole[: len(values)] = values
        values = whole
    stored = np.ascontiguousarray(values, dtype.newbyteorder("<"))
    packed = Zstd(level=ZSTD_LEVEL).encode(stored)
    return b"".join([packed, google_crc32c.value(packed).to_bytes(4, "little")])


def _as_declared(values: Array, dtype: np.dtype) -> Array:
    """Return values in the type that their Dask array tells, of which only floats may be rounded.

    Dask does not look whether blocks have it.
    """
    if values.dtype.newbyteorder("=") == dtype.newbyteorder("="):
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
    lost: Any = cast != values
    if dtype.kind in "fc" and values.dtype.kind in "biufc":
        lost = np.isfinite(values) & ~np.isfinite(cast)
    if np.any(lost):
        raise ValueError(
            f"a block of rows holds {values.dtype} where its Dask array says {dtype}, which cannot "
            "hold all of its values: give the dtype that it has, as map_blocks(..., dtype=...)."
        )
    return cast


@dataclass(frozen=True)
class _WriteBlock:
    """Writes the parts of one block to their places, then a record of each, and counts its rows."""

    place: Location
    shape: tuple[int, ...]
    dtype: str
    rows: int
    begun: bytes
    first: tuple[int, ...]
    """The number of the first part of each block."""

    def __call__(self, written: int, block: tuple[Any, ...], index: int) -> int:
        parts = self.parts(index)
        for number, part in enumerate(parts):
            rows = slice(number * self.rows, (number + 1) * self.rows)
            if len(parts) == 1 or not self.is_written(part):
                self._write(part, to_dense(as_csr(block[0])[rows]))
        return written + int(block[0].shape[0])

    def parts(self, index: int) -> range:
        """Return the numbers of the parts of a block."""
        return range(self.first[index], max(self.first[index + 1], self.first[index] + 1))

    def _write(self, index: int, values: Array) -> None:
        key = self._key(index)
        dtype = np.dtype(self.dtype)
        data = encode_chunk(_as_declared(values, dtype), (self.rows, *self.shape[1:]), dtype)
        # A task may outlive who sent it, and find that another array is written there by now.
        if self.place.read(_BEGUN) != self.begun:
            raise FileExistsError(f"another array is written to {self.place} meanwhile.")
        self.place.write(key, data)
        self.place.write(self._record(index), self._checksum(data))

    def is_written(self, index: int) -> bool:
        """Whether a block is there, to the last byte as it was written."""
        try:
            return self.place.read(self._record(index)) == self._checksum(
                self.place.read(self._key(index))
            )
        except FileNotFoundError:
            return False

    def metadata(self) -> bytes:
        """Return what says which array it is."""
        kept: dict[str, Any] = {}
        zarr.create_array(
            MemoryStore(kept),
            shape=self.shape,
            dtype=np.dtype(self.dtype),
            chunks=(self.rows, *self.shape[1:]),
            compressors=codecs("zstd"),
        )
        return bytes(kept["zarr.json"].to_bytes())

    def _key(self, index: int) -> str:
        return "/".join(["c", str(index), *("0" for _ in self.shape[1:])])

    def _record(self, index: int) -> str:
        return f"{_RECORDS}/{index:06d}"

    def _checksum(self, data: bytes) -> bytes:
        # Not CRC32C, which the data end with: of bytes and their own one it is always the same.
        return f"{len(data)} {zlib.crc32(data)}".encode()
