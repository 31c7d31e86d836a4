"""How rows are cut into shards (the blocks), and shards into chunks (the price of one row)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from dask.utils import parse_bytes
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from rfcdask.data.errors import DataError

FORMAT = 2
"""Number of the store's layout: 2 has a manifest, 1 has none and is still read."""
BLOCK_BYTES = 64 * 2**20
CHUNK_BYTES = 768 * 2**10
COMPRESSORS = ("zstd", "lz4", "gzip", None)


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
    def chunks_per_block(self) -> int:
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
    chunks_per_block = max(1, block_bytes // (row_bytes * chunk_rows))
    chunks_in_all = -(-n_rows // chunk_rows)
    return Layout(
        n_rows=n_rows,
        n_columns=n_columns,
        dtype=np.dtype(dtype).str,
        block_rows=chunk_rows * min(chunks_per_block, chunks_in_all),
        chunk_rows=chunk_rows,
        label_dtype=None if label_dtype is None else np.dtype(label_dtype).str,
        compressor=compressor,
    )


def size_in_bytes(block_size: Any) -> int:
    """Return the bytes that a `block_size` such as "64MB" stands for."""
    with suppress(ValueError, OverflowError, AttributeError, TypeError):
        if not isinstance(block_size, bool) and (size := parse_bytes(block_size)) >= 1:
            return int(size)
    raise DataError(f"block_size={block_size!r} is no size: give bytes, such as '64MB'.")


def create_arrays(group: zarr.Group, layout: Layout, names: Iterable[str]) -> None:
    """Make empty arrays; every later write covers one whole shard."""
    for name in names:
        columns = (layout.n_columns,) if name == "X" else ()
        dtype = layout.dtype if name == "X" else layout.label_dtype
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
