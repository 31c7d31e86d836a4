"""How rows lie on disk: cut into shards (the blocks) of chunks, or into blocks of CSR.

A sparse store has below the group `X` a group for each block, `X/0`, `X/1` and so on, with the
arrays `indptr`, `indices` and `data` and the attributes that AnnData gives a CSR matrix. Rows are
in canonical form: columns ascend and none occurs twice; zeros that were given are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr
from dask.utils import parse_bytes
from scipy import sparse
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import MemoryStore

from rfcdask.data.errors import DataError
from rfcdask.kernels.arrays import CSR
from rfcdask.persist.chunks import CHUNK_BYTES as MOST_BYTES

FORMAT, SPARSE_FORMAT = 2, 3
"""Numbers of the store's layout: 2 has a manifest, 1 has none and is still read; 3 has CSR rows."""
BLOCK_BYTES = 64 * 2**20
CHUNK_BYTES = 768 * 2**10
READ_BYTES = 16 * 2**20
"""What is read of a shard at once: work on larger blocks could not be shared out evenly."""
SPARSE_BLOCK_BYTES = 16 * 2**20
SPARSE_BLOCK_ROWS, SPARSE_RUN_ROWS = 2**16, 2**12
"""Most rows of a sparse block, of which dense features will be made; and of a chunk of labels."""
CSR_PARTS = ("indptr", "indices", "data")
ZSTD_LEVEL = 1
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
    n_targets: int | None = None
    """Targets of a row where there are several."""
    compressor: str | None = "zstd"
    n_values: int | None = None
    """Values of all rows where they are stored as CSR; None where they are dense."""

    @property
    def sparse(self) -> bool:
        """Whether blocks are CSR."""
        return self.n_values is not None

    @property
    def label_array(self) -> str:
        """Name of the array of labels, or of several targets."""
        return "y" if self.n_targets is None else "targets"

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Shape of the labels of one row."""
        return () if self.n_targets is None else (self.n_targets,)

    @property
    def n_blocks(self) -> int:
        """How many shards there are."""
        return -(-self.n_rows // self.block_rows)

    @property
    def block_bytes(self) -> int:
        """Size of one uncompressed block of X."""
        if self.n_values is not None:
            return self.block_rows * csr_row_bytes(self.n_values / self.n_rows, self.dtype)
        return self.block_rows * self.n_columns * np.dtype(self.dtype).itemsize

    def chunk_rows_of(self, name: str) -> int:
        """Return the rows of a chunk of X; of labels, all that are read with a part of X.

        A chunk costs the more time the smaller it is, and a label has a byte or a few.
        """
        if name == "X":
            return self.chunk_rows
        row_bytes = self.n_columns * np.dtype(self.dtype).itemsize
        if self.sparse:
            return self.block_rows
        return read_rows(self.block_rows, self.chunk_rows, row_bytes)

    def chunks_of(self, name: str) -> int:
        """Return the chunks of a full shard of an array."""
        return self.block_rows // self.chunk_rows_of(name)

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
    n_targets: int | None = None,
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
    parts = -(-block_bytes // READ_BYTES)
    if chunks_per_block > parts:
        chunks_per_block -= chunks_per_block % parts
    chunks_in_all = -(-n_rows // chunk_rows)
    return Layout(
        n_rows=n_rows,
        n_columns=n_columns,
        dtype=np.dtype(dtype).str,
        block_rows=chunk_rows * min(chunks_per_block, chunks_in_all),
        chunk_rows=chunk_rows,
        label_dtype=None if label_dtype is None else np.dtype(label_dtype).str,
        n_targets=n_targets,
        compressor=compressor,
    )


def read_rows(block_rows: int, chunk_rows: int, row_bytes: int, label_bytes: int = 0) -> int:
    """Return the rows of the equal parts, of whole chunks, in which a shard is read.

    They have at most `READ_BYTES`. A shard that cannot be cut so is read whole, or in parts of
    which neither rows nor labels have more bytes than a chunk may have: a small file of zeros
    holds any number of chunks.
    """
    chunks, most = block_rows // chunk_rows, READ_BYTES // max(chunk_rows * row_bytes, 1)
    fits = MOST_BYTES // max(chunk_rows * max(row_bytes, label_bytes), 1)
    sizes = [size for size in range(1, min(chunks, fits) + 1) if not chunks % size]
    return chunk_rows * max([size for size in sizes if most // 4 < size <= most] or sizes or [1])


def csr_row_bytes(n_values: float, dtype: Any) -> int:
    """Return the bytes of a CSR row of so many values, with the numbers of their columns."""
    return int(n_values * (np.dtype(dtype).itemsize + 4)) + 4


def sparse_layout(layout: Layout, n_values: int, block_bytes: int) -> Layout:
    """Return the layout of the same rows as CSR, in blocks of `block_bytes` and at most 16 MiB."""
    row_bytes = csr_row_bytes(n_values / layout.n_rows, layout.dtype)
    wanted = max(1, min(block_bytes, SPARSE_BLOCK_BYTES) // row_bytes)
    run = min(SPARSE_RUN_ROWS, layout.n_rows, wanted)
    runs = min(wanted, SPARSE_BLOCK_ROWS, layout.n_rows + run - 1) // run
    return replace(layout, block_rows=run * runs, chunk_rows=run, n_values=n_values)


def size_in_bytes(block_size: Any) -> int:
    """Return the bytes that a `block_size` such as "64MB" stands for."""
    with suppress(ValueError, OverflowError, AttributeError, TypeError):
        if not isinstance(block_size, bool) and (size := parse_bytes(block_size)) >= 1:
            return int(size)
    raise DataError(f"block_size={block_size!r} is no size: give bytes, such as '64MB'.")


def whole_number(name: str, value: Any) -> int:
    """Return a whole number that was given as one."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise DataError(f"{name}={value!r} is no whole number.")
    return int(value)


def create_arrays(group: zarr.Group, layout: Layout, names: Iterable[str]) -> None:
    """Make empty arrays; every later write covers one whole shard."""
    for name in names:
        if name == "X" and layout.sparse:
            shape = [layout.n_rows, layout.n_columns]
            marks = {"shape": shape, "block_rows": layout.block_rows, "dtype": layout.dtype}
            group.create_group(name, attributes=marks)
            continue
        columns = (layout.n_columns,) if name == "X" else layout.label_shape
        group.create_array(
            name,
            shape=(layout.n_rows, *columns),
            dtype=np.dtype(layout.dtype if name == "X" else layout.label_dtype),
            chunks=(layout.chunk_rows_of(name), *columns),
            shards=(layout.block_rows, *columns),
            compressors=codecs(layout.compressor),
        )


def group_file(attrs: dict[str, Any]) -> bytes:
    """Return the file of a zarr group with these attributes."""
    kept: dict[str, Any] = {}
    zarr.create_group(store=MemoryStore(kept), zarr_format=3, attributes=attrs)
    data: bytes = kept["zarr.json"].to_bytes()
    return data


def codecs(compressor: str | None) -> list[Any]:
    """Return the codecs behind the bytes: the compressor, then a checksum of what it wrote."""
    made: dict[str | None, list[Any]] = {
        "zstd": [ZstdCodec(level=ZSTD_LEVEL)],
        "lz4": [BloscCodec(cname="lz4", clevel=1)],
        "gzip": [GzipCodec(level=5)],
        None: [],
    }
    return [*made[compressor], Crc32cCodec()]


def encode_csr(layout: Layout, block: int, X: CSR) -> dict[str, memoryview]:
    """Return the files of a block by their names in the store; the same rows, the same bytes."""
    kept: dict[str, Any] = {}
    root = zarr.create_group(store=MemoryStore(kept), zarr_format=3)
    place = f"X/{block}"
    marks = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(X.shape)}
    group = root.create_group(place, attributes=marks)
    for name in CSR_PARTS:
        values = np.asarray(getattr(X, name))
        chunks, packed = (max(1, len(values)),), codecs(layout.compressor)
        array = group.create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=chunks, compressors=packed
        )
        # A chunk of zeros is written too: left out, it could not be told from a lost one.
        array.with_config({"write_empty_chunks": True})[:] = values
    found = {name: data for name, data in kept.items() if name.startswith(f"{place}/")}
    return {name: data.as_numpy_array().data for name, data in found.items()}


def canonical(X: Any) -> CSR:
    """Return rows as CSR with ascending columns, of which repeated ones are added up."""
    given = sparse.csr_matrix(X)
    # Made anew, it finds out by itself in which order it is, and takes the smaller numbers.
    parts = (given.data, given.indices, given.indptr)
    rows = sparse.csr_matrix(parts, shape=given.shape)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows
