"""How rows are cut into shards (the blocks), and shards into chunks (the price of one row)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from rfcdask.data.errors import DamagedStoreError

FORMAT = 2
"""Number of the store's layout: 2 has a manifest, 1 has none and is still read."""

BLOCK_BYTES = 64 * 2**20
CHUNK_BYTES = 768 * 2**10

COMPRESSORS = ("zstd", "lz4", "gzip", None)

NUMBERS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
NUMBERS = (*NUMBERS, "float16", "float32", "float64")
"""Types of zarr arrays that are read: numbers, never objects."""
CODECS = ("bytes", "transpose", "blosc", "gzip", "zstd", "crc32c", "sharding_indexed")
"""Codecs of zarr v3 that are read: none of them runs code of the file."""


@dataclass(frozen=True)
class Layout:
    """Shapes and types of the arrays of one store."""

    n_rows: int
    n_columns: int
    dtype: str
    block_rows: int
    chunk_rows: int
    label_dtype: str | None = None
    compressor: str | None = "zstd"

    @property
    def n_blocks(self) -> int:
        """How many shards there are."""
        return -(-self.n_rows // self.block_rows)

    @property
    def block_bytes(self) -> int:
        """Size of one uncompressed block of X."""
        return self.block_rows * self.n_columns * np.dtype(self.dtype).itemsize

    @property
    def chunks_a_block(self) -> int:
        """Chunks of a full shard."""
        return self.block_rows // self.chunk_rows

    def span(self, block: int) -> tuple[int, int]:
        """Return the first row of a block and the one after its last."""
        start = block * self.block_rows
        return start, min(start + self.block_rows, self.n_rows)

    def sizes(self) -> tuple[int, ...]:
        """Return the number of rows of each block."""
        return tuple(stop - start for start, stop in map(self.span, range(self.n_blocks)))


def plan_layout(
    n_rows: int,
    n_columns: int,
    dtype: Any,
    *,
    label_dtype: Any = None,
    compressor: str | None = "zstd",
    block_bytes: int = BLOCK_BYTES,
    chunk_bytes: int | None = None,
) -> Layout:
    """Cut rows into blocks of about `block_bytes` made of whole chunks of about `chunk_bytes`."""
    if chunk_bytes is None:
        chunk_bytes = min(CHUNK_BYTES, block_bytes // 8)
    row_bytes = n_columns * np.dtype(dtype).itemsize
    chunk_rows = min(max(1, chunk_bytes // row_bytes), n_rows)
    chunks_a_block = max(1, block_bytes // (row_bytes * chunk_rows))
    chunks_in_all = -(-n_rows // chunk_rows)
    return Layout(
        n_rows=n_rows,
        n_columns=n_columns,
        dtype=np.dtype(dtype).str,
        block_rows=chunk_rows * min(chunks_a_block, chunks_in_all),
        chunk_rows=chunk_rows,
        label_dtype=None if label_dtype is None else np.dtype(label_dtype).str,
        compressor=compressor,
    )


def create_arrays(group: zarr.Group, layout: Layout, names: Iterable[str]) -> None:
    """Make empty arrays; every later write covers one whole shard."""
    for name in names:
        if name == "X":
            _create(group, "X", (layout.n_columns,), layout.dtype, layout)
        elif layout.label_dtype is not None:
            _create(group, "y", (), layout.label_dtype, layout)


def _create(
    group: zarr.Group, name: str, columns: tuple[int, ...], dtype: str, layout: Layout
) -> None:
    group.create_array(
        name,
        shape=(layout.n_rows, *columns),
        dtype=np.dtype(dtype),
        chunks=(layout.chunk_rows, *columns),
        shards=(layout.block_rows, *columns),
        compressors=codecs(layout.compressor),
    )


def codecs(compressor: str | None) -> list[Any]:
    """Return the codecs behind the bytes: the compressor, then a checksum of what it wrote."""
    made: dict[str | None, list[Any]] = {
        "zstd": [ZstdCodec(level=1)],
        "lz4": [BloscCodec(cname="lz4", clevel=1)],
        "gzip": [GzipCodec(level=5)],
        None: [],
    }
    return [*made[compressor], Crc32cCodec()]


def check_zarr_metadata(
    document: Any, place: object, types: tuple[str, ...] = NUMBERS
) -> Mapping[str, Any]:
    """Refuse the metadata of a zarr array that holds anything but numbers behind known codecs.

    To be called before any chunk is read: data types and codecs of zarr are looked up by the names
    that the file gives, and some of those that can be installed run code from the file.

    Parameters
    ----------
    document : JSON value
        What `zarr.json` of the array holds.
    place : object
        What messages call the array.
    types : tuple of str
        Names of the data types that may be read.

    Returns
    -------
    mapping
        The document.
    """
    try:
        _check_document(document, types)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedStoreError(
            f"the metadata of {place} cannot be used ({str(error) or repr(error)}): restore them "
            "from a copy, or write the array again as plain numbers."
        ) from error
    found: Mapping[str, Any] = document
    return found


def _check_document(document: Any, types: tuple[str, ...]) -> None:
    if (document["zarr_format"], document["node_type"]) != (3, "array"):
        raise ValueError("it is no array of zarr format 3")
    if document["data_type"] not in types:
        raise ValueError(f"type {document['data_type']!r} is not read, only numbers are")
    shape = document["shape"]
    grid = document["chunk_grid"]["configuration"]["chunk_shape"]
    if document["chunk_grid"]["name"] != "regular" or len(grid) != len(shape):
        raise ValueError("its chunks are not of one shape")
    for length, least in [(n, 0) for n in shape] + [(n, 1) for n in grid]:
        if type(length) is not int or length < least:
            raise ValueError(f"it has shape {shape} in chunks of {grid}")
    for name in _codec_names(document["codecs"]):
        if name not in CODECS:
            raise ValueError(f"codec {name!r} is not among {', '.join(CODECS)}")
    if document.get("storage_transformers"):
        raise ValueError("it has storage transformers")


def _codec_names(codecs: Any) -> Iterable[Any]:
    """Give the names of codecs, and of those within shards."""
    for codec in codecs:
        yield codec if isinstance(codec, str) else codec["name"]
        inner = {} if isinstance(codec, str) else codec.get("configuration") or {}
        for key in ("codecs", "index_codecs"):
            yield from _codec_names(inner.get(key, ()))
