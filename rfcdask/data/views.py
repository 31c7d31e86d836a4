"""Readers on top of readers: some columns, standardized or projected ones, splits, smaller blocks.

The projection is the very sparse one of Li, Hastie and Church (2006), by which 10^6 columns become
a few hundred: entries are ``sqrt(s)/sqrt(k)`` times +1, 0 or -1 with probabilities ``1/2s``,
``1 - 1/s`` and ``1/2s``, where ``s`` is the square root of the number of columns. Inner products of
projected rows are unbiased; the matrix has ``k * sqrt(columns)`` non-zeros and is never dense.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import zarr
from scipy import sparse

from rfcdask.data.errors import DataError
from rfcdask.data.layout import codecs
from rfcdask.data.location import Location
from rfcdask.data.manifest import Manifest
from rfcdask.data.reader import Reader, float_type, open_checked
from rfcdask.kernels.arrays import CSR, Array, FloatArray, IntArray, is_sparse
from rfcdask.kernels.seeds import draw_parts
from rfcdask.persist.untrusted import require_memory

UNIT = 4096
"""Rows whose split is drawn together."""
MOST_ROWS = 10**9
"""numpy draws hypergeometric numbers below this."""
SLICE_AS_CHEAP = 100
"""Reading a slice is as cheap as reading a list of about one row in so many."""


def standardized(X: Array, mean: FloatArray, deviation: FloatArray, dtype: np.dtype[Any]) -> Array:
    """Return rows with the mean taken off and the deviation divided out, in `dtype`."""
    values = X.astype(dtype)
    rounded = mean.astype(dtype)
    values -= rounded
    # Of a mean far from zero float32 keeps too few digits; what it left out follows.
    rest = mean - rounded
    if np.any(np.abs(rest) > 1e-4 * deviation):
        values -= rest.astype(dtype)
    values /= deviation.astype(dtype)
    return values


@dataclass(frozen=True)
class View:
    """A reader that gives what another one gives, but for what a subclass changes."""

    base: Reader

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.base.sizes

    @property
    def n_columns(self) -> int:
        return self.base.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.base.dtype

    @property
    def label_dtype(self) -> np.dtype[Any] | None:
        return self.base.label_dtype

    @property
    def n_targets(self) -> int | None:
        return self.base.n_targets

    @property
    def run_rows(self) -> int:
        return self.base.run_rows

    @property
    def row_bytes(self) -> int:
        return self.base.row_bytes

    def block(self, block: int) -> Any:
        return self._apply(self.base.block(block))

    def labels(self, block: int) -> Array:
        return self.base.labels(block)

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        X, y = self.base.rows(block, local)
        return self._apply(X), y

    def _apply(self, X: Any) -> Any:
        """Return rows, changed each on its own."""
        raise NotImplementedError


@dataclass(frozen=True)
class StandardReader(View):
    """Blocks with the mean taken off each column and the deviation divided out."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return float_type(self.base.dtype)

    def _apply(self, X: Array) -> Array:
        return standardized(X, np.asarray(self.mean), np.asarray(self.deviation), self.dtype)


@dataclass(frozen=True)
class ColumnsReader(View):
    """Blocks with some of the columns, in an order of their own."""

    columns: tuple[int, ...]

    @property
    def n_columns(self) -> int:
        return len(self.columns)

    def _apply(self, X: Any) -> Any:
        return X[:, self.columns]


@dataclass(frozen=True)
class ProjectedReader(View):
    """Blocks projected to fewer, dense columns; a process draws the projection once."""

    n_components: int
    seed: int

    @property
    def projection(self) -> SparseProjection:
        """The matrix, drawn from the seed."""
        return draw_projection(self.base.n_columns, self.n_components, self.seed)

    @property
    def n_columns(self) -> int:
        return self.n_components

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def row_bytes(self) -> int:
        return self.n_components * self.dtype.itemsize

    def _apply(self, X: Any) -> Any:
        return self.projection.transform(X)


@dataclass(frozen=True)
class SplitReader(View):
    """One part of a random split.

    Rows are drawn in units of fixed size, so which of them are test rows follows from the seed and
    the number of rows alone, whatever the blocks; a task draws only the units of its own block.
    """

    seed: int
    n_test: int
    test: bool

    @cached_property
    def _edges(self) -> list[int]:
        return [0, *np.cumsum(self.base.sizes).tolist()]

    @cached_property
    def _kept(self) -> list[tuple[int, int]]:
        """Number and size of the blocks of the base that give this part any row.

        The others are left out: empty chunks trip many Dask functions.
        """
        before = [self._count_before(edge) for edge in self._edges]
        sizes = [stop - start for start, stop in pairwise(before)]
        return [(block, size) for block, size in enumerate(sizes) if size]

    def _count_before(self, row: int) -> int:
        """Return how many of the base's rows before this one belong to the part."""
        unit, rest = divmod(row, UNIT)
        counts = unit_counts(self._edges[-1], self.n_test, self.seed)
        whole = int(counts[:unit].sum())
        found = whole if self.test else unit * UNIT - whole
        return found + (int((self._unit(unit) < rest).sum()) if rest else 0)

    def _unit(self, unit: int) -> IntArray:
        """Return the part's rows of one unit, counted from its start."""
        n_rows = self._edges[-1]
        size = min(UNIT, n_rows - unit * UNIT)
        held = int(unit_counts(n_rows, self.n_test, self.seed)[unit])
        rng = np.random.default_rng([self.seed, unit])
        test, train = draw_parts(size, (held, size - held), rng)
        return np.sort(test if self.test else train)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self._kept)

    def picks(self, block: int) -> IntArray:
        """Return the rows of the part's block, counted from the start of the base's block."""
        origin = self._kept[block][0]
        start, stop = self._edges[origin], self._edges[origin + 1]
        units = range(start // UNIT, -(-stop // UNIT))
        rows = np.concatenate([self._unit(unit) + unit * UNIT for unit in units])
        return rows[(rows >= start) & (rows < stop)] - start

    def block(self, block: int) -> Any:
        return self.base.block(self._kept[block][0])[self.picks(block)]

    def labels(self, block: int) -> Array:
        return self.base.labels(self._kept[block][0])[self.picks(block)]

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        return self.base.rows(self._kept[block][0], self.picks(block)[local])


@dataclass(frozen=True)
class SmallerBlocksReader(View):
    """Each block of the base in pieces of at most `piece` rows; a piece reads only its chunks."""

    piece: int

    @cached_property
    def _pieces(self) -> list[tuple[int, int, int]]:
        """Block of the base, first row within it, and rows of each piece."""
        return [
            (block, start, min(self.piece, size - start))
            for block, size in enumerate(self.base.sizes)
            for start in range(0, size, self.piece)
        ]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, _, size in self._pieces)

    @property
    def run_rows(self) -> int:
        """Neighbouring rows that cost as much to fetch as one."""
        return min(self.base.run_rows, self.piece)

    def block(self, block: int) -> Any:
        return self._whole(block)[0]

    def labels(self, block: int) -> Array:
        origin, start, size = self._pieces[block]
        return self.base.labels(origin)[start : start + size]

    def rows(self, block: int, local: IntArray) -> tuple[Any, Array | None]:
        origin, start, size = self._pieces[block]
        local = np.asarray(local)
        # Where many are wanted, the piece is read whole.
        if len(local) * SLICE_AS_CHEAP < size:
            return self.base.rows(origin, local + start)
        X, y = self._whole(block)
        return X[local], None if y is None else y[local]

    def _whole(self, block: int) -> tuple[Any, Array | None]:
        origin, start, size = self._pieces[block]
        return self.base.rows(origin, np.arange(start, start + size))


def split_readers(base: Reader, test_size: float, seed: int) -> tuple[SplitReader, SplitReader]:
    """Split the rows uniformly: every set of that many rows is equally likely to be the test set.

    How many test rows fall into each unit is a multivariate hypergeometric draw, and which ones a
    uniform choice within the unit; together that is a uniform subset of all rows.
    """
    n_test = count_test_rows(test_size, sum(base.sizes))
    return SplitReader(base, seed, n_test, test=False), SplitReader(base, seed, n_test, test=True)


@lru_cache(maxsize=16)
def unit_counts(n_rows: int, n_test: int, seed: int) -> IntArray:
    """Return how many test rows each unit of rows holds."""
    sizes = np.full(-(-n_rows // UNIT), UNIT)
    sizes[-1] = n_rows - UNIT * (len(sizes) - 1)
    generator = np.random.default_rng([seed, 2**32 - 1])
    return generator.multivariate_hypergeometric(sizes, n_test, method="marginals")


def count_test_rows(test_size: float, n_rows: int) -> int:
    """Return the number of test rows: a fraction is rounded up, as scikit-learn does."""
    if n_rows >= MOST_ROWS:
        raise DataError(f"{n_rows} rows cannot be split: fewer than {MOST_ROWS:,} can.")
    count = test_size if isinstance(test_size, int | np.integer) else np.ceil(test_size * n_rows)
    if not 0 < count < n_rows:
        raise DataError(
            f"test_size={test_size} leaves no row for one of the parts of {n_rows} rows: give a "
            "fraction between 0 and 1 or a number of rows below that."
        )
    return int(count)


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
        # Of dense rows scipy takes no float16.
        rows: Any = sparse.csr_matrix(X if is_sparse(X) else np.asarray(X, np.float32))
        if rows.shape[1] > self.n_columns:
            raise DataError(
                f"the rows have {rows.shape[1]} columns, but this projection was drawn for "
                f"{self.n_columns}."
            )
        rows.resize((rows.shape[0], self.n_columns))
        return np.asarray((rows.astype(np.float32) @ self.matrix).toarray())


@lru_cache(maxsize=4)
def draw_projection(n_columns: int, n_components: int, seed: int) -> SparseProjection:
    """Draw the matrix, once in a process; the same seed gives the same one."""
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
    arrays = [open_checked(location, manifest, f"projection/{name}") for name in names]
    require_memory(sum(array.nbytes for array in arrays), "it has")
    parts = tuple(np.asarray(array[:]) for array in arrays)
    matrix = sparse.csr_matrix(parts, shape=tuple(attrs["shape"]))
    matrix.check_format(full_check=True)  # an index beyond the end would read foreign memory
    return SparseProjection(matrix, int(attrs["seed"]))
