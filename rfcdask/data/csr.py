"""Sparse rows on disk: each block of a store is a CSR matrix of three plain zarr arrays.

Below the group `X` lies a group for each block, `X/0`, `X/1` and so on, with the arrays `indptr`,
`indices` and `data` and the attributes that AnnData gives a CSR matrix. Rows are in canonical form:
the columns of a row ascend and none occurs twice; zeros that were given are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from scipy import sparse
from zarr.storage import MemoryStore

from rfcdask.data.errors import DamagedStoreError
from rfcdask.data.layout import CSR_PARTS, Layout, codecs, csr_row_bytes
from rfcdask.data.manifest import REMEDY, same_manifest
from rfcdask.data.reader import StoreReader, open_array
from rfcdask.kernels.arrays import CSR, Array, IntArray


def encode_csr(layout: Layout, block: int, X: CSR) -> dict[str, bytes]:
    """Return the files of a block by their names in the store; the same rows, the same bytes."""
    kept: dict[str, Any] = {}
    root = zarr.create_group(store=MemoryStore(kept), zarr_format=3)
    place = f"X/{block}"
    marks = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(X.shape)}
    group = root.create_group(place, attributes=marks)
    for name in CSR_PARTS:
        values = np.asarray(getattr(X, name))
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=(max(1, len(values)),),
            compressors=codecs(layout.compressor),
        )
        # A chunk of zeros is written too: left out, it could not be told from a lost one.
        array.with_config({"write_empty_chunks": True})[:] = values
    return {name: data.to_bytes() for name, data in kept.items() if name.startswith(f"{place}/")}


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
        parts = {}
        for name in CSR_PARTS:
            place = f"X/{block}/{name}"
            array = open_array(self.location, place, self.fingerprint, self.has_manifest)
            parts[name] = np.asarray(array[:])
        shape = self.sizes[block], self.n_columns
        values, indices, indptr = (parts[name] for name in ("data", "indices", "indptr"))
        if (
            values.dtype != np.dtype(self.stored_dtype)
            or indices.dtype.kind + indptr.dtype.kind != "ii"
        ):
            raise ValueError(f"its arrays hold {values.dtype}, {indices.dtype} and {indptr.dtype}")
        rows = sparse.csr_matrix((values, indices, indptr), shape=shape)
        # An index beyond the end would read foreign memory.
        rows.check_format(full_check=True)
        return rows
