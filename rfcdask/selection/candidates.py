"""Values of the candidate features on the gathered rows, and what those kept shall reproduce.

The target is the kernel, the candidates' own sum, or either with products of labels added.

A candidate's values lie side by side in memory and candidates are kept in tiles: single candidates
are cheap to take, and tiles are multiplied fast.

Every product and every sum is cut into tiles by the shapes of its arrays alone, one tile is one
call on one BLAS thread, and tiles are added up in their order. So no bit of a selection depends on
the number of threads. Products are made in the dtype of the values
(float32, twice as fast and half as large) and long sums are added up in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.utils.multiclass import type_of_target

from rfcdask.kernels import Kernel
from rfcdask.kernels.arrays import Array, IntArray, Matrix
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.kernels.runtime import available_cpus, compiled, map_tiles, one_blas_thread

TILE = 512  # candidates per tile
ROW_TILE = 256  # rows evaluated at a time, while their values are in cache
ROW_BLOCK = 4096  # rows whose products are summed in float32 before they are added up in float64
_GATHERED, _SQUARE, _BLOCK = 256, 512, 1024  # rows per tile: gathered, own sum, exact kernel
SMALL_TILE = 128  # atoms per tile of a Gram matrix between a few hundred atoms
# Sums over a row may be cut into lanes; the cut is the same every time.
_LANES = {"reassoc", "contract"}


class Candidates:
    """Values of all candidate atoms on some rows, kept when they fit, else computed again.

    An *atom* is a cosine feature or, with paired phases, a cosine and a sine of one frequency that
    share a weight; its *parts* are these one or two rows of values.

    Parameters
    ----------
    block : CosineBlock
        The candidates, unweighted.
    rows : array or CSR of shape (m, p)
    dtype : dtype
        In what precision the values are kept and multiplied.
    budget : int
        Bytes the values may take; above that each tile is evaluated whenever it is needed.
    """

    def __init__(self, block: CosineBlock, rows: Matrix, dtype: np.dtype, budget: int) -> None:
        self.block, self.rows, self.dtype = block, rows, dtype
        self.n_atoms, self.n_rows = len(block.phases), rows.shape[0]
        self.n_parts = 2 if block.paired else 1
        size = self.n_rows * block.n_outputs * np.dtype(dtype).itemsize
        self.room_for_squares = 2 * size <= budget
        self._kept: list[list[Array]] | None = None
        if size <= budget:
            self._kept = self._from_structure() if block.structure else self._tile_by_tile()

    def _tile_by_tile(self) -> list[list[Array]]:
        return map_tiles(self._evaluate, self.tiles())

    def _from_structure(self) -> list[list[Array]]:
        """Evaluate all candidates by their product form, then cut them into tiles."""
        values = self.block(self.rows, available_cpus()).astype(self.dtype, copy=False)
        halves = np.split(values, self.n_parts, axis=1)
        return [[np.ascontiguousarray(half[:, tile].T) for half in halves] for tile in self.tiles()]

    def _evaluate(self, which: slice | IntArray) -> list[Array]:
        chosen = self.subset(which)
        out = [np.empty((chosen.n_atoms, self.n_rows), self.dtype) for _ in range(self.n_parts)]
        for rows in slices(self.n_rows, ROW_TILE):
            for part, values in zip(out, chosen.on_rows(rows), strict=True):
                _put_transposed(values, part[:, rows])
        return out

    def subset(self, which: slice | IntArray) -> Candidates:
        """Return some of the candidates, with nothing evaluated."""
        return Candidates(self.block.take(which), self.rows, self.dtype, -1)

    def on_rows(self, rows: slice) -> list[Array]:
        """Return all parts on some rows, ``(rows, n_atoms)`` each.

        Angles are as precise as the data, values as the products made of them.
        """
        values = self.block(self.rows[rows]).astype(self.dtype, copy=False)
        return np.split(values, self.n_parts, axis=1)

    def parts(self, tile: slice) -> list[Array]:
        """Return the cosines, and with paired phases the sines, of a tile of atoms, ``(t, m)``."""
        return self._evaluate(tile) if self._kept is None else self._kept[tile_number(tile)]

    def parts_of(self, atoms: IntArray) -> list[Array]:
        """Return the parts of chosen atoms, ``(len(atoms), m)`` each."""
        if self._kept is None:
            return self._evaluate(atoms)
        kept = self._kept
        return [take_rows([tile[part] for tile in kept], atoms) for part in range(self.n_parts)]

    def tiles(self) -> Iterator[slice]:
        """Cut the atoms into tiles."""
        return slices(self.n_atoms, TILE)


def slices(n: int, step: int) -> Iterator[slice]:
    """Cut n into pieces of `step`; the last may be shorter."""
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def tile_number(tile: slice) -> int:
    """Return the position of a tile of candidates among all tiles."""
    return int(tile.start) // TILE


def take_rows(tiles: list[Array], rows: IntArray) -> Array:
    """Return chosen rows of a matrix that is kept in tiles of rows."""
    height = len(tiles[0])
    out = np.empty((len(rows), tiles[0].shape[1]), tiles[0].dtype)

    def fill(places: slice) -> None:
        for place, row in enumerate(rows[places], places.start):
            out[place] = tiles[row // height][row % height]

    map_tiles(fill, slices(len(rows), 64))
    return out


def product(A: Array, B: Array) -> Array:
    """Return A B^T: products in the arrays' dtype, blocks of columns added up in float64.

    A single block has nothing to be added and stays in the arrays' dtype.
    """
    if A.shape[1] <= ROW_BLOCK:
        return np.asarray(A @ B.T)
    total = np.zeros((len(A), len(B)))
    for columns in slices(A.shape[1], ROW_BLOCK):
        total += A[:, columns] @ B[:, columns].T
    return total


def symmetric(block: Callable[[slice, slice], Array], n: int, step: int, dtype: np.dtype) -> Array:
    """Return a symmetric matrix from its blocks on and right of the diagonal, side by side.

    Parameters
    ----------
    block : callable
        Given slices of rows and columns, returns that part of the matrix.
    n : int
    step : int
        Rows per block, at most; the blocks have equal sizes.
    dtype : dtype
    """
    out = np.empty((n, n), dtype)
    cuts = list(slices(n, -(-n // -(-n // step))))

    def fill(at: tuple[slice, slice]) -> None:
        rows, columns = at
        out[rows, columns] = block(rows, columns)
        out[columns, rows] = out[rows, columns].T

    map_tiles(fill, [(a, b) for k, a in enumerate(cuts) for b in cuts[k:]])
    return out


def in_small_tiles(
    block: Callable[[slice, slice], Array], shape: tuple[int, int], dtype: np.dtype
) -> Array:
    """Return a matrix of a few hundred rows and columns from blocks computed side by side."""
    out = np.empty(shape, dtype)

    def fill(at: tuple[slice, slice]) -> None:
        out[at] = block(*at)

    rows, columns = (list(slices(n, SMALL_TILE)) for n in shape)
    map_tiles(fill, [(a, b) for a in rows for b in columns])
    return out


def products_by_row(A: Array, B: Array) -> Array:
    """Return ``sum_i A[j, i] B[j, i]`` for each row j, in float64."""
    out = np.zeros(len(A))
    _dot_rows(A, B, out)
    return out


def weighted_by_row(A: Array, t: Array) -> Array:
    """Return ``sum_i A[j, i] t[i]`` for each row j, in float64."""
    out = np.zeros(len(A))
    _dot_all(A, t, out)
    return out


def add_rows(A: Array) -> Array:
    """Return the sum of all rows of A, in float64."""
    out = np.zeros(A.shape[1])
    _add_rows(A, out)
    return out


def sum_of_squares(block: Array) -> float:
    """Return the sum of the squared entries of a matrix, in float64."""
    return float(np.einsum("ij,ij->", block, block, dtype=np.float64))


@compiled(fastmath=_LANES)
def _dot_rows(A: Array, B: Array, out: Array) -> None:
    for j in range(A.shape[0]):
        total = 0.0
        for i in range(A.shape[1]):
            total += np.float64(A[j, i]) * np.float64(B[j, i])
        out[j] = total


@compiled(fastmath=_LANES)
def _dot_all(A: Array, t: Array, out: Array) -> None:
    for j in range(A.shape[0]):
        total = 0.0
        for i in range(A.shape[1]):
            total += np.float64(A[j, i]) * t[i]
        out[j] = total


@compiled(fastmath={"contract"})
def _add_rows(A: Array, out: Array) -> None:
    for j in range(A.shape[0]):
        for i in range(A.shape[1]):
            out[i] += np.float64(A[j, i])


@compiled()
def _put_transposed(values: Array, out: Array) -> None:
    """Write the transpose of `values` to `out`, a few columns at a time."""
    for start in range(0, values.shape[1], 16):
        for i in range(values.shape[0]):
            for j in range(start, min(start + 16, values.shape[1])):
                out[j, i] = values[i, j]


class RowTarget:
    """A target over all pairs of the gathered rows, given as blocks of an m x m matrix.

    Parameters
    ----------
    rows : array or CSR of shape (m, p)
    kernel : Kernel or None
        None takes the candidates' own sum (the paper's target) from `candidates`.
    gamma : float
    labels : array of shape (m, n_outputs), optional
        Label columns already times ``sqrt(label_weight)``; their products are added.
    candidates : Candidates, optional
    dtype : dtype
    budget : int
        Bytes the whole matrix may take; above that blocks are computed each time.
    """

    def __init__(
        self,
        rows: Matrix,
        kernel: Kernel | None,
        gamma: float,
        *,
        labels: Array | None = None,
        candidates: Candidates | None = None,
        dtype: np.dtype,
        budget: int,
    ) -> None:
        self.rows, self.kernel, self.gamma, self.labels = rows, kernel, gamma, labels
        self.candidates, self.dtype = candidates, dtype
        self._matrix: Array | None = None
        size = rows.shape[0] ** 2 * np.dtype(dtype).itemsize
        if size <= budget:
            self._matrix = self._whole()
            self.candidates = None  # their values may go: no block is computed again

    def _whole(self) -> Array:
        """Compute the symmetric matrix: what lies right of the diagonal, then its mirror image."""
        m = self.rows.shape[0]
        if self.kernel is None:
            return symmetric(self._compute, m, _SQUARE, self.dtype)
        out = np.empty((m, m), self.dtype)
        for start in range(0, m, _BLOCK):
            rows, right = slice(start, min(start + _BLOCK, m)), slice(start, m)
            out[rows, right] = self._compute(rows, right)
            out[right, rows] = out[rows, right].T
        return out

    def block(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        """Return a writable block of the target matrix."""
        if self._matrix is None:
            return self._compute(rows, columns)
        if isinstance(rows, slice):
            return np.array(self._matrix[rows, columns])
        out = np.empty((len(rows), len(columns)), self.dtype)  # type: ignore[arg-type]
        _gather(self._matrix, rows, columns, out)
        return out

    def _compute(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        if self.kernel is not None:
            block = self.kernel.matrix(self.rows[rows], self.rows[columns], self.gamma)
            block = block.astype(self.dtype, copy=False)
        else:
            block = self._candidate_block(rows, columns)
        if self.labels is not None:
            with one_blas_thread():
                block += (self.labels[rows] @ self.labels[columns].T).astype(self.dtype)
        return block

    def _candidate_block(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        if isinstance(rows, slice) and isinstance(columns, slice):
            return self._product_of_candidates(rows, columns)
        index = np.arange(self.rows.shape[0])
        left = index[rows]
        out = np.empty((len(left), len(index[columns])), self.dtype)

        def fill(part: slice) -> None:
            out[part] = self._product_of_candidates(left[part], columns)

        map_tiles(fill, slices(len(left), _GATHERED))
        return out

    def _product_of_candidates(self, rows: slice | IntArray, columns: slice | IntArray) -> Array:
        """Add up the candidates' products, tile after tile."""
        assert self.candidates is not None
        parts = (part for tile in self.candidates.tiles() for part in self.candidates.parts(tile))
        return np.asarray(sum(part[:, rows].T @ part[:, columns] for part in parts))


@compiled()
def _gather(matrix: Array, rows: IntArray, columns: IntArray, out: Array) -> None:
    for i in range(len(rows)):
        row = matrix[rows[i]]
        for j in range(len(columns)):
            out[i, j] = row[columns[j]]


@dataclass(frozen=True)
class PairTarget:
    """A target over sampled pairs."""

    values: Array | None  # the kernel of each pair; None stands for the candidates' own sum
    label_products: Array | float = 0.0  # what the labels add


def label_columns(y: Array) -> Array:
    """Return centred label columns with mean squared row norm 1.

    Classes become one column each (one against the rest); numbers and 0-1 columns stay columns.
    No label may be missing.
    """
    y = np.asarray(y)
    kind = type_of_target(y, input_name="y")
    if kind.startswith(("continuous", "multilabel")):
        columns = y.reshape(len(y), -1).astype(np.float64)
    elif kind == "multiclass-multioutput":
        raise ValueError(
            f"label_weight needs one class per row, but y has shape {y.shape}; give one column, "
            "for example y[:, 0]."
        )
    else:
        classes, codes = np.unique(y, return_inverse=True)
        columns = np.eye(len(classes))[codes.reshape(-1)]
    columns = columns - columns.mean(axis=0)
    size = float(np.mean(np.sum(columns**2, axis=1)))
    if size == 0:
        raise ValueError(
            "label_weight needs labels that differ, but all sampled rows have the same y; "
            "set label_weight=0 or sample more rows with n_rows."
        )
    return np.asarray(columns / np.sqrt(size))
