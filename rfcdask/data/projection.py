"""Very sparse random projection (Li, Hastie and Church, 2006): 10^6 columns become a few hundred.

The entries are ``sqrt(s)/sqrt(k)`` times +1, 0 or -1 with probabilities ``1/2s``, ``1 - 1/s`` and
``1/2s``, where ``s`` is the square root of the number of columns. Inner products of projected
rows are unbiased. The matrix has about ``k * sqrt(columns)`` non-zeros and is never dense.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from scipy import sparse

from rfcdask.data.errors import DataError
from rfcdask.data.layout import codecs
from rfcdask.data.location import Location
from rfcdask.data.manifest import Manifest
from rfcdask.data.reader import open_checked
from rfcdask.kernels.arrays import CSR, Array


@dataclass(frozen=True, eq=False)
class SparseProjection:
    """A drawn projection."""

    matrix: CSR  # what rows are multiplied with, (n_columns, n_components) in float32
    seed: int  # it was drawn from

    @property
    def n_columns(self) -> int:
        """Columns of the rows that go in."""
        return int(self.matrix.shape[0])

    @property
    def n_components(self) -> int:
        """Columns of the rows that come out."""
        return int(self.matrix.shape[1])

    def transform(self, X: Any) -> Array:
        """Project rows, dense or sparse, to dense float32 rows.

        Parameters
        ----------
        X : array or CSR of shape (n, n_columns)
            Rows; sparse ones may have fewer columns when their last ones are all zero.
        """
        rows: Any = sparse.csr_matrix(X)
        if rows.shape[1] > self.n_columns:
            raise DataError(
                f"the rows have {rows.shape[1]} columns, but this projection was drawn for "
                f"{self.n_columns}."
            )
        rows.resize((rows.shape[0], self.n_columns))
        return np.asarray((rows.astype(np.float32) @ self.matrix).toarray())


def draw_projection(n_columns: int, n_components: int, seed: int) -> SparseProjection:
    """Draw the matrix; the same seed gives the same one."""
    from sklearn.random_projection import SparseRandomProjection  # workers do without it

    model = SparseRandomProjection(n_components, random_state=np.random.RandomState(seed % 2**32))
    empty: Any = sparse.csr_matrix(np.zeros((1, 0), np.float32))
    empty.resize((1, n_columns))  # only the shape is looked at
    model.fit(empty)
    matrix = sparse.csr_matrix(model.components_.T.astype(np.float32))
    matrix.sort_indices()
    return SparseProjection(matrix, seed)


def save_projection(group: zarr.Group, projection: SparseProjection) -> None:
    """Write the matrix beside the rows, so that later versions need not draw it again."""
    folder = group.create_group("projection", overwrite=True)
    folder.attrs.update({"shape": list(projection.matrix.shape), "seed": projection.seed})
    for name in ("data", "indices", "indptr"):
        values = np.asarray(getattr(projection.matrix, name))
        array = folder.create_array(
            name, shape=values.shape, dtype=values.dtype, compressors=codecs("zstd")
        )
        # A chunk of zeros is a file too: one that is not there has been lost.
        array.with_config({"write_empty_chunks": True})[:] = values


def load_projection(location: Location, manifest: Manifest | None = None) -> SparseProjection:
    """Read the matrix from the store, compared with the manifest where there is one."""
    data = location.read("projection/zarr.json")
    if manifest is not None:
        manifest.check_file("projection/zarr.json", data)
    attrs = json.loads(data)["attributes"]
    names = ("data", "indices", "indptr")
    parts = tuple(
        np.asarray(open_checked(location, manifest, f"projection/{name}")[:]) for name in names
    )
    matrix = sparse.csr_matrix(parts, shape=tuple(attrs["shape"]))
    matrix.check_format(full_check=True)  # an index beyond the end would read foreign memory
    return SparseProjection(matrix, int(attrs["seed"]))
