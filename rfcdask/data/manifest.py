"""What a finished store is bound by: the size and a checksum of every file, in one record.

zarr keeps a CRC32C of every chunk behind its bytes, and of the index at the end of every shard, and
compares them as it decodes. The manifest holds those very numbers: whoever reads a shard has only
to look whether they are the ones that were written: nothing is computed twice. That a chunk agrees
with itself says that it was not damaged; that it agrees with the manifest says that it is the one
that belongs there.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import google_crc32c
import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import WrapperStore

from rfcdask.data.errors import DamagedStoreError, DataError
from rfcdask.data.location import Location
from rfcdask.kernels.arrays import Array, Matrix, is_sparse
from rfcdask.kernels.seeds import hash_rows
from rfcdask.persist.chunks import Packing, is_chunk
from rfcdask.persist.files import refuse_others
from rfcdask.persist.untrusted import faults_as, rights_said

KEY = "manifest/zarr.json"
_PARTS = ("zarr.json", "manifest", "X", "y", "targets", "projection")
"""Where it lies: the attributes of an empty zarr group, which other readers of zarr understand."""
REMEDY = "restore it from a copy or ingest the data again"
_ABSENT = np.uint64(2**64 - 1)
_REMEMBERED = 4096
"""Shards whose index is kept for reading single chunks; about a kilobyte each."""
PIECE_ROWS = 8192
"""Rows that are hashed at once."""


def damage_as(what: str) -> AbstractContextManager[None]:
    """Say of every fault in the block that a part of a store is damaged."""
    return faults_as(
        lambda why: DamagedStoreError(f"{what} is damaged ({why}): {REMEDY}."), DataError
    )


@dataclass(frozen=True)
class Seal:
    """What binds one shard: its size, and the checksums of its index and of each of its chunks."""

    size: int
    index: int
    chunks: tuple[int, ...]


def seal_of(data: Any, n_chunks: int, *, deep: bool = False) -> Seal:
    """Return the seal of the bytes of a whole shard; a ValueError says what is wrong with them.

    With `deep` the bytes of the chunks are compared with their checksums too.
    """
    values = np.frombuffer(data, np.uint8)
    starts, lengths, index = _parse_index(values[-index_bytes(n_chunks) :], n_chunks)
    here = np.flatnonzero(starts != _ABSENT)
    stops = (starts + lengths)[here]
    if len(here) and (lengths[here].min() < 4 or stops.max() > len(values) or stops.min() < 4):
        raise ValueError("its index points outside")
    sums = np.zeros(n_chunks, "<u4")
    last = stops.astype(np.int64)[:, None] + np.arange(-4, 0)
    sums[here] = values[last].view("<u4")[:, 0]
    for chunk, stop in zip(here if deep else (), stops.tolist(), strict=False):
        if google_crc32c.value(values[int(starts[chunk]) : stop - 4]) != sums[chunk]:
            raise ValueError(f"the checksum of its chunk {chunk} does not match")
    return Seal(len(values), index, tuple(sums.tolist()))


def index_bytes(n_chunks: int) -> int:
    """Return the size of the index at the end of a shard."""
    return 16 * n_chunks + 4


def _parse_index(tail: Array, n_chunks: int) -> tuple[Array, Array, int]:
    """Return where the chunks of a shard begin, how long they are, and the index's checksum."""
    if len(tail) != index_bytes(n_chunks):
        raise ValueError(f"it has {len(tail)} bytes where its index alone has more")
    found = _stored_sum(tail)
    if google_crc32c.value(tail[:-4]) != found:
        raise ValueError("the checksum of its index does not match")
    places = tail[:-4].view("<u8").reshape(n_chunks, 2)
    return places[:, 0], places[:, 1], found


def _stored_sum(values: Array) -> int:
    return int.from_bytes(values[-4:].tobytes(), "little")


@dataclass(frozen=True, eq=False)
class Shards:
    """The seals of all shards of one array, as arrays with a row for each shard."""

    sizes: Array
    index: Array
    chunks: Array

    @classmethod
    def of(cls, seals: Iterable[Seal]) -> Shards:
        """Put seals together."""
        sizes, index, chunks = zip(*map(astuple, seals), strict=True)
        return cls(
            np.array(sizes, np.int64), np.array(index, np.uint32), np.array(chunks, np.uint32)
        )

    def seal(self, block: int) -> Seal:
        """Return the seal of one shard."""
        sums = tuple(self.chunks[block].tolist())
        return Seal(int(self.sizes[block]), int(self.index[block]), sums)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; checksums as base64 of little-endian integers of 32 bits."""
        sums = {"index": self.index, "chunks": self.chunks}
        packed = {k: base64.b64encode(v.astype("<u4").tobytes()).decode() for k, v in sums.items()}
        return {"sizes": self.sizes.tolist(), **packed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Shards:
        """Rebuild what `to_json` wrote."""
        sizes = np.array(data["sizes"], np.int64)
        index, chunks = (
            np.frombuffer(base64.b64decode(data[name], validate=True), "<u4")
            for name in ("index", "chunks")
        )
        return cls(sizes, index, chunks.reshape(len(sizes), -1))


def shard_key(name: str, block: int) -> str:
    """Return the name of a shard's object within the store."""
    return f"{name}/c/{block}/0" if name in ("X", "targets") else f"{name}/c/{block}"


@dataclass(frozen=True, eq=False)
class Manifest:
    """All that a finished store consists of."""

    n_rows: int
    files: Mapping[str, tuple[int, str]]
    """Size and SHA-256 of every file that is no shard: metadata with all attributes, projection."""
    shards: Mapping[str, Shards]
    """Seals of the shards of `X` and of `y` or `targets`."""

    @property
    def digest(self) -> str:
        """What changes with anything that the manifest binds."""
        return _digest(self._content())

    def sizes(self) -> dict[str, int]:
        """Return the size of every file."""
        found = {name: size for name, (size, _) in self.files.items()}
        for name, shards in self.shards.items():
            found |= {shard_key(name, i): size for i, size in enumerate(shards.sizes.tolist())}
        return found

    def seal(self, key: str) -> Seal | None:
        """Return the seal of a shard by the name of its object; None when it is no shard."""
        name, _, place = key.partition("/c/")
        number = place.partition("/")[0]
        if name not in self.shards or not number.isdecimal():
            return None
        block = int(number)
        known = block < len(self.shards[name].sizes) and shard_key(name, block) == key
        return self.shards[name].seal(block) if known else None

    def check_file(self, key: str, data: bytes) -> None:
        """Refuse the bytes of a file that is no shard unless they are those that were written."""
        if file_facts(data) != self.files.get(key):
            raise ValueError("it is not what was written")

    def to_bytes(self) -> bytes:
        """Return the file."""
        content = self._content()
        attributes = content | {"digest": _digest(content)}
        document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        return json.dumps(document, indent=1).encode()

    def _content(self) -> dict[str, Any]:
        return {
            "version": 1,
            "n_rows": self.n_rows,
            "files": {name: list(facts) for name, facts in sorted(self.files.items())},
            "shards": {name: shards.to_json() for name, shards in sorted(self.shards.items())},
        }

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read the file; a ValueError, KeyError or TypeError says that it is damaged."""
        content = dict(json.loads(data)["attributes"])
        if content.pop("digest") != _digest(content):
            raise ValueError("its digest is that of another content")
        files = {name: (int(size), str(mark)) for name, (size, mark) in content["files"].items()}
        shards = {name: Shards.from_json(part) for name, part in content["shards"].items()}
        return cls(int(content["n_rows"]), files, shards)


def file_facts(data: Any) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file."""
    return len(data), hashlib.sha256(data).hexdigest()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(location: Location) -> Manifest | None:
    """Read the manifest of a store; None where there is none, as before there were any."""
    with damage_as(f"the manifest {location}/{KEY}"):
        try:
            data = location.read(KEY)
        except FileNotFoundError:
            return None
        return Manifest.from_bytes(data)


@lru_cache(maxsize=16)
def known_manifest(location: Location, digest: str) -> Manifest:
    """Return the manifest with this digest: read once per process, for all tasks."""
    return same_manifest(location, digest)


def same_manifest(location: Location, digest: str) -> Manifest:
    """Read the manifest and say so if the store was replaced since it was opened."""
    found = read_manifest(location)
    if found is None:
        raise DamagedStoreError(
            f"the manifest of {location} is missing where a task looks for it: {REMEDY}, and make "
            "sure that every worker sees the store under this path."
        )
    if found.digest != digest:
        raise DamagedStoreError(
            f"{location} is no longer the store that was opened: open it again with "
            "rfcdask.open_dataset."
        )
    return found


def _checked_chunk(sums: Mapping[int, int], value: Buffer, part: RangeByteRequest) -> Buffer:
    if sums.get(part.start) != _stored_sum(value.as_numpy_array()):
        raise ValueError("its checksum is not that of the chunk that was written here")
    return value


class BoundedStore(WrapperStore[Store]):
    """A zarr store that refuses chunks which would unpack to more than a chunk."""

    packing: Packing | None = None
    n_chunks, exact = 0, False  # no chunks of a shard: each is an object

    def bind(self, array: Any, *, exact: bool = False) -> None:
        """Take sizes from the array whose chunks are read; with `exact` each must state its own.

        The index must be where zarr puts it: chunks are found by it, here and by `read_chunks`.
        """
        self.packing, self.exact = Packing.of(array), exact
        if array.shards:
            pairs = zip(array.shards, array.chunks, strict=True)
            self.n_chunks = math.prod(n // m for n, m in pairs)
            told = array.metadata.to_dict()["codecs"][0]["configuration"]
            names = [codec["name"] for codec in told["index_codecs"]]
            order = told["index_codecs"][0].get("configuration", {}).get("endian", "little")
            if (told["index_location"], names, order) != ("end", ["bytes", "crc32c"], "little"):
                raise ValueError(
                    "its shards have no index at their end: write it again without shards"
                )

    def _with_store(self, store: Store) -> Self:
        copy = type(self)(store)
        vars(copy).update({**vars(self), "_store": store})
        return copy

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the bytes that were asked for; a ValueError says what is wrong with them."""
        value = await self._get_checked(key, prototype, byte_range)
        if value is None or self.packing is None or not is_chunk(key):
            return value
        data = value.as_numpy_array()
        places = [(0, len(data))]
        if isinstance(byte_range, SuffixByteRequest):  # an index
            places = []
        elif byte_range is None and self.n_chunks:  # a whole shard
            starts, sizes, _ = _parse_index(data[-index_bytes(self.n_chunks) :], self.n_chunks)
            here = starts < len(data)
            places = list(zip(starts[here].tolist(), sizes[here].tolist(), strict=True))
        for start, size in places:
            chunk = data[start : start + size]
            if self.packing.is_slow:  # not in the loop, where all other reading waits for it
                await asyncio.to_thread(self.packing.check, chunk)
            else:
                self.packing.check(chunk, exact=self.exact)
        return value

    async def _get_checked(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        return await self._store.get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return several parts, each of them checked."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]


class CheckedStore(BoundedStore):
    """A zarr store that gives nothing but what the manifest binds.

    Without a manifest it refuses shards that are missing or empty, which zarr takes for zeros.
    """

    def __init__(self, store: Store, manifest: Manifest | None = None) -> None:
        super().__init__(store)
        self._manifest = manifest
        self._sums: dict[str, dict[int, int]] = {}  # of each chunk of a shard, by its first byte

    async def _get_checked(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        value = await self._store.get(key, prototype, byte_range)
        if is_chunk(key) and (value is None or not len(value)):
            raise ValueError("it is missing" if value is None else "it is empty")
        if self._manifest is None or value is None:
            return value
        if isinstance(byte_range, RangeByteRequest) and (known := self._sums.get(key)):
            return _checked_chunk(known, value, byte_range)  # most calls end here
        seal = self._manifest.seal(key)
        if seal is None:
            if key not in self._manifest.files or byte_range is not None:
                if is_chunk(key):  # zarr would take what is not there for zeros
                    raise ValueError("it is not in the manifest")
                return None  # a file that somebody put there is no part of the store
            self._manifest.check_file(key, value.to_bytes())
        elif byte_range is None:
            if seal_of(value.as_numpy_array(), len(seal.chunks)) != seal:
                raise ValueError("it is not the shard that was written here")
        elif isinstance(byte_range, SuffixByteRequest):
            self._check_index(key, seal, value)
        elif isinstance(byte_range, RangeByteRequest):
            end = SuffixByteRequest(index_bytes(len(seal.chunks)))
            index = await self._store.get(key, prototype, end)
            if index is None:
                raise ValueError("it is missing")
            return _checked_chunk(self._check_index(key, seal, index), value, byte_range)
        else:
            raise ValueError("no part of a shard is read without a checksum")
        return value

    def _check_index(self, key: str, seal: Seal, value: Buffer) -> dict[int, int]:
        starts, _, found = _parse_index(value.as_numpy_array(), len(seal.chunks))
        if found != seal.index:
            raise ValueError("its index is not the one that was written here")
        while len(self._sums) >= _REMEMBERED:
            self._sums.pop(next(iter(self._sums)), None)
        self._sums[key] = sums = dict(zip(starts.tolist(), seal.chunks, strict=True))
        return sums


def beside(location: Location) -> Location:
    """Return where a store is written that is to replace one on a disk; files of others stay."""
    if location.exists("manifest"):  # which may be damaged: it is not asked
        keep_others(location)
    return location.beside()


def keep_others(location: Location) -> None:
    """Refuse to remove a store on a disk, whole or not, into which somebody put files of theirs."""
    if location.is_local:
        refuse_others(Path(location.url), _PARTS)


def read_chunks(path: str, seal: Seal, first: int, count: int) -> Iterator[Array]:
    """Yield the packed bytes of some chunks of a shard in a file, all that the seal says of them.

    A chunk that was never written, of zeros, gives no bytes. A ValueError says what is wrong.
    """
    if not os.path.isfile(path):
        raise ValueError("it is missing")
    n_index = index_bytes(len(seal.chunks))
    with rights_said(), open(path, "rb", buffering=0) as file:
        if (size := file.seek(0, os.SEEK_END)) != seal.size:
            raise ValueError(f"it has {size} bytes, and {seal.size} were written")
        file.seek(max(size - n_index, 0))
        tail = np.frombuffer(file.read(n_index), np.uint8)
        starts, lengths, found = _parse_index(tail, len(seal.chunks))
        if found != seal.index:
            raise ValueError("its index is not the one that was written here")
        for chunk in range(first, first + count):
            if starts[chunk] == _ABSENT:
                yield np.zeros(0, np.uint8)
                continue
            file.seek(min(int(starts[chunk]), size))
            data = np.frombuffer(file.read(min(int(lengths[chunk]), size)), np.uint8)
            sums = {_stored_sum(data), seal.chunks[chunk], google_crc32c.value(data[:-4])}
            if len(data) <= 4 or len(sums) > 1:
                raise ValueError("its checksum is not that of the chunk that was written here")
            yield data[:-4]


def content_checksum(blocks: Iterable[tuple[Matrix, Array]], scale: float | None = None) -> int:
    """Return a sum over rows and their labels that depends on neither order nor number type.

    The sum of two parts is the sum of their sums, modulo 2^64. `scale` is what stored whole
    numbers were multiplied by. It finds accidents; it is no defence against a forger.
    """
    total = 0
    for X, y in blocks:
        for start in range(0, X.shape[0], PIECE_ROWS):
            piece = X[start : start + PIECE_ROWS]
            dense = np.asarray(piece.toarray() if is_sparse(piece) else piece, np.float64)
            if scale:
                dense = np.rint(dense / scale)
            labels = np.asarray(y[start : start + PIECE_ROWS], np.float64)
            total += _sum_of_hashes(np.column_stack([dense, labels]))
    return total % 2**64


def _sum_of_hashes(values: Array) -> int:
    bits = (values + 0.0).view(np.uint64)  # one zero, not two
    columns = hash_rows(np.arange(values.shape[1], dtype=np.uint64), 1)
    entries = hash_rows(bits ^ columns, 2).sum(axis=1, dtype=np.uint64)
    return int(hash_rows(entries, 3).sum(dtype=np.uint64))
