"""Reading blocks and single rows of a store: what a task carries is a path, never data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import zarr
from numcodecs.zstd import decompress
from scipy import sparse
from zarr.buffer.cpu import NDBuffer

from rfcdask.data.errors import DamagedStoreError
from rfcdask.data.layout import CSR_PARTS, csr_row_bytes
from rfcdask.data.location import Location
from rfcdask.data.manifest import (
    REMEDY,
    CheckedStore,
    Manifest,
    damage_as,
    known_manifest,
    read_chunks,
    same_manifest,
    shard_key,
)
from rfcdask.kernels.arrays import CSR, Array, IntArray
from rfcdask.kernels.runtime import mapped_array
from rfcdask.persist.chunks import CHUNK_BYTES, check_zarr, check_zstd, chunk_bytes


class Reader(Protocol):
    """Gives the blocks of a data set by number; small, picklable, the same on every worker."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each block."""

    @property
    def n_columns(self) -> int:
        """Columns of X."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of X."""

    @property
    def label_dtype(self) -> np.dtype[Any] | None:
        """Type of y; None without labels."""

    @property
    def n_targets(self) -> int | None:
        """Columns of y where a row has several targets."""

    @property
    def run_rows(self) -> int:
        """Neighbouring rows that cost as much to fetch as one of them."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory, on average where rows are sparse."""
        return self.n_columns * self.dtype.itemsize

    def block(self, block: int) -> Any:
        """Return the rows of one block, dense or CSR."""

    def labels(self, block: int) -> Array:
        """Return the labels of one block."""

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        """Return some rows of one block and their labels; `local` counts from the block's start."""


@dataclass(frozen=True)
class StoreReader:
    """Reads the shards of a zarr store; a large one in several blocks, each of its own chunks."""

    location: Location
    fingerprint: str
    """Changes with the content, so that a rewritten store is never mistaken for the old one: the
    digest of its manifest, which every process reads once."""
    sizes: tuple[int, ...]
    n_columns: int
    block_rows: int  # of a full block: a shard, or an equal part of one
    shard_rows: int
    run_rows: int  # of a chunk
    stored_dtype: str
    scale: float | None = None
    """Factor that every stored value is multiplied by when it is read."""
    stored_label_dtype: str | None = None
    n_targets: int | None = None
    """Columns of the array `targets`, which takes the place of `y` where there are several."""
    label_names: tuple[str, ...] | None = None
    """When labels are text, the store holds their positions in this list."""
    has_manifest: bool = False
    """Whether what is read is compared with a manifest; stores of format 1 have none."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of X as it is read."""
        stored = np.dtype(self.stored_dtype)
        return stored if self.scale is None else float_type(stored)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory."""
        return self.n_columns * self.dtype.itemsize

    @property
    def label_dtype(self) -> np.dtype[Any] | None:
        """Type of y as it is read."""
        if self.stored_label_dtype is None:
            return None
        if self.label_names is not None:
            return np.asarray(self.label_names).dtype
        return np.dtype(self.stored_label_dtype)

    def block(self, block: int) -> Any:
        """Read one block of X."""
        return self._scaled(self._read("X", block))

    def labels(self, block: int) -> Array:
        """Read the labels of one block."""
        return self._named(self._read(self._label_array, block), block)

    @property
    def _label_array(self) -> str:
        return "y" if self.n_targets is None else "targets"

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        """Fetch single rows of one block: only the chunks that hold them are read."""
        return self._scaled(self._read("X", block, local)), self._labels_of(block, local)

    def _labels_of(self, block: int, local: IntArray) -> Array | None:
        if self.stored_label_dtype is None:
            return None
        return self._named(self._read(self._label_array, block, local), block)

    def shard(self, block: int) -> int:
        """Return the number of the shard that a block lies in."""
        return block * self.block_rows // self.shard_rows

    def _scaled(self, stored: Array) -> Array:
        if self.scale is None:
            return stored
        values = stored.astype(self.dtype)
        values *= self.dtype.type(self.scale)
        return values

    def _named(self, stored: Array, block: int) -> Array:
        if self.label_names is None:
            return stored
        if stored.size and not 0 <= stored.min() <= stored.max() < len(self.label_names):
            raise DamagedStoreError(
                f"shard {self.shard(block)} of array y of {self.location} holds labels outside its "
                f"{len(self.label_names)} classes: {REMEDY}."
            )
        return np.asarray(self.label_names)[stored]

    def _read(self, name: str, block: int, local: IntArray | None = None) -> Array:
        array = open_array(self.location, name, self.fingerprint, self.has_manifest)
        try:
            if local is None:
                return self._read_rows(array, name, block)
            return np.asarray(_select(array, block * self.block_rows + local))
        except (OSError, MemoryError):
            raise  # of the file system, the network or the machine: nothing is known to be damaged
        except Exception as error:
            if self.has_manifest:
                same_manifest(self.location, self.fingerprint)
            raise _find_damage(self, name, block, error) from error

    def _read_rows(self, array: Any, name: str, block: int) -> Array:
        """Read a block into memory that the system gets back with the last reference.

        zarr holds all packed bytes of a block, and all its chunks decoded, before it copies them.
        A shard in a file is read chunk after chunk here, in three fifths of its CPU time.
        """
        start = block * self.block_rows
        out = mapped_array((self.sizes[block], *array.shape[1:]), array.dtype)
        key, chunk = shard_key(name, self.shard(block)), array.chunks[0]
        first = start - self.shard(block) * self.shard_rows
        seal = None
        if self.has_manifest and self.location.is_local and first % chunk == 0:
            seal = known_manifest(self.location, self.fingerprint).seal(key)
        if seal is None or not _is_packed_by_rows(array):
            rows = slice(start, start + len(out))
            array.get_basic_selection(rows, out=NDBuffer(out))  # type: ignore[arg-type]
            return out
        path, places = f"{self.location.url}/{key}", range(0, len(out), chunk)
        chunks = read_chunks(path, seal, first // chunk, len(places))
        for place, packed in zip(places, chunks, strict=True):
            part = out[place : place + chunk]
            if len(packed):
                check_zstd(packed, chunk_bytes(array), exact=True)
                values = np.frombuffer(decompress(packed), array.dtype.newbyteorder("<"))
                part[...] = values.reshape(array.chunks)[: len(part)]
            else:
                part[...] = array.fill_value
        return out


def _is_packed_by_rows(array: Any) -> bool:
    """Whether a shard is chunks of whole rows, packed as those of stores are by default."""
    first, *others = array.metadata.to_dict()["codecs"]
    if others or first["name"] != "sharding_indexed":
        return False
    if not array.chunks[1:] == array.shards[1:] == array.shape[1:]:
        return False  # in a wider shard, other chunks lie between those of rows
    codecs = first["configuration"]["codecs"]
    little = codecs[0].get("configuration", {}).get("endian", "little") == "little"
    return little and [codec["name"] for codec in codecs] == ["bytes", "zstd", "crc32c"]


def _select(array: Any, rows: IntArray) -> Any:
    if np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        # zarr is much faster at slices than at lists of neighbours.
        return array[int(rows[0]) : int(rows[0]) + len(rows)]
    return array.oindex[rows]


def float_type(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the floating type that holds a stored type's values: float32 where that is exact."""
    return np.dtype(np.result_type(stored, np.float32))


@lru_cache(maxsize=256)
def open_array(location: Location, name: str, fingerprint: str, has_manifest: bool) -> Any:
    """Open an array once per process and content; what is read from it is checked."""
    manifest = known_manifest(location, fingerprint) if has_manifest else None
    return open_checked(location, manifest, name)


def open_checked(location: Location, manifest: Manifest | None, name: str) -> Any:
    """Open an array whose metadata and chunks are those of the manifest."""
    with damage_as(f"{location}/{name}/zarr.json"):
        data = location.read(f"{name}/zarr.json")
        if manifest is not None:
            manifest.check_file(f"{name}/zarr.json", data)
        store = CheckedStore(location.store(), manifest)
        array = zarr.open_array(store=store, path=name, mode="r", zarr_format=3)
        check_zarr(array, kinds="biuf")
        store.bind(array, exact=True)
        return array


def _find_damage(reader: StoreReader, name: str, block: int, error: Exception) -> DamagedStoreError:
    """Find the first chunk of a block that cannot be read, and say what can be done."""
    location, shard = reader.location, reader.shard(block)
    start = block * reader.block_rows
    stop = start + reader.sizes[block]
    if not location.exists(shard_key(name, shard)):
        return DamagedStoreError(
            f"shard {shard} of array {name} (rows {start} to {stop - 1}) is missing from "
            f"{location}: {REMEDY}."
        )
    array = open_array(location, name, reader.fingerprint, reader.has_manifest)
    rows = array.chunks[0]
    for first in range(start, stop, rows):
        last = min(first + rows, stop) - 1
        try:
            array[first : last + 1]
        except Exception as fault:
            return DamagedStoreError(
                f"chunk {first // rows} of array {name} (rows {first} to {last}, in shard "
                f"{shard}) of {location} is damaged ({fault}): {REMEDY}."
            )
    return DamagedStoreError(
        f"shard {shard} of array {name} of {location} is damaged ({error}): {REMEDY}."
    )


@dataclass(frozen=True)
class SparseReader(StoreReader):
    """Reads blocks of CSR; of a few rows, the whole block."""

    n_values: int = 0
    """Values that are stored, of all rows."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory, on average."""
        return csr_row_bytes(self.n_values / max(1, sum(self.sizes)), self.dtype)

    def block(self, block: int) -> Any:
        """Read one block of X as CSR."""
        try:
            rows = self._read_csr(block)
        except (OSError, MemoryError):
            raise  # of the file system, the network or the machine: nothing is known to be damaged
        except Exception as error:
            same_manifest(self.location, self.fingerprint)
            start = block * self.block_rows
            raise DamagedStoreError(
                f"block {block} of X (rows {start} to {start + self.sizes[block] - 1}) of "
                f"{self.location} is damaged ({error}): {REMEDY}."
            ) from error
        rows.data = self._scaled(rows.data)
        return rows

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        """Fetch single rows of one block."""
        y = self._labels_of(block, local)
        return self.block(block)[local], y

    def _read_csr(self, block: int) -> CSR:
        arrays = [
            open_array(self.location, f"X/{block}/{name}", self.fingerprint, self.has_manifest)
            for name in CSR_PARTS
        ]
        # Each is written as one chunk, whose size is bounded; of many that are alike, a small file
        # could make an array beyond all memory.
        if arrays[0].shape != (self.sizes[block] + 1,) or any(a.nchunks > 1 for a in arrays):
            raise ValueError("its arrays have other shapes than were written")
        if (size := sum(array.nbytes for array in arrays)) > CHUNK_BYTES:
            raise ValueError(f"its arrays have {size:,} bytes, at most {CHUNK_BYTES:,} are read")
        indptr, indices, values = (array[:] for array in arrays)
        whole = indices.dtype.kind + indptr.dtype.kind == "ii"
        if values.dtype != np.dtype(self.stored_dtype) or not whole:
            raise ValueError(f"its arrays hold {values.dtype}, {indices.dtype} and {indptr.dtype}")
        shape = self.sizes[block], self.n_columns
        rows = sparse.csr_matrix((values, indices, indptr), shape=shape)
        # An index beyond the end would read foreign memory.
        rows.check_format(full_check=True)
        return rows
