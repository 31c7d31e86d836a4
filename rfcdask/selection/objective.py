"""The greedy step's objective in Gram form: G = R R^T, c = R t and ||t||^2, never R itself.

R holds, for each candidate feature (or cosine-sine pair, an *atom*), its products over pairs of
rows. Solvers need single columns of G, the diagonal and c; they are computed here from the
candidates' values on the gathered rows, tile by tile, in float32 products with float64 sums.
The tiles are fixed, so the numbers do not depend on how many threads share the work.

Every quantity counts each unordered pair i < j once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from rfcdask._types import Array, IntArray, Matrix
from rfcdask.blocks import CosineBlock
from rfcdask.progress import track
from rfcdask.selection.sums import products_by_column, weighted_by_column
from rfcdask.selection.target import PairTarget, RowTarget
from rfcdask.threads import available_cpus, map_tiles

TILE = 512
"""Candidates a tile; columns of G come from products (TILE x rows) (rows x batch)."""
ROW_BLOCK = 2048
"""Rows whose products are summed in float32 before they are added up in float64."""


class Objective(Protocol):
    """What solvers may ask."""

    n_atoms: int
    dtype: np.dtype

    def squared_norms(self) -> Array:
        """Return the diagonal of G, ``(n_atoms,)``, in float64."""

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G, ``(n_atoms, len(atoms))``."""


class Candidates:
    """Values of all candidate atoms on some rows, kept when they fit, else computed again.

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
        self.n_atoms = len(block.phases)
        self.n_parts = 2 if block.paired else 1
        size = rows.shape[0] * block.n_outputs * np.dtype(dtype).itemsize
        self._kept: list[list[Array]] | None = None
        if size <= budget:
            self._kept = self._from_structure() if block.structure else self._tile_by_tile()

    def _tile_by_tile(self) -> list[list[Array]]:
        # A tile in one piece of memory is multiplied faster than columns of a wide matrix.
        return map_tiles(self._evaluate, self.tiles())

    def _from_structure(self) -> list[list[Array]]:
        """Evaluate all candidates by their product form, then cut them into tiles."""
        values = self.block(self.rows, available_cpus()).astype(self.dtype, copy=False)
        halves = np.split(values, self.n_parts, axis=1)
        return [[np.ascontiguousarray(half[:, tile]) for half in halves] for tile in self.tiles()]

    def _evaluate(self, which: slice | IntArray) -> list[Array]:
        """Evaluate some atoms: angles in the precision of the data, values in that of products."""
        values = self.block.take(which)(self.rows).astype(self.dtype, copy=False)
        return np.split(values, self.n_parts, axis=1)

    def parts(self, tile: slice) -> list[Array]:
        """Return the cosines, and with paired phases the sines, of a tile of atoms, ``(m, t)``."""
        return self._evaluate(tile) if self._kept is None else self._kept[tile.start // TILE]

    def some(self, atoms: IntArray) -> list[Array]:
        """Return the parts of chosen atoms, ``(m, len(atoms))`` each."""
        if self._kept is None:
            return [np.ascontiguousarray(part) for part in self._evaluate(atoms)]
        kept = self._kept
        return [_columns([tile[part] for tile in kept], atoms) for part in range(self.n_parts)]

    def tiles(self) -> Iterator[slice]:
        """Cut the atoms into tiles."""
        return _slices(self.n_atoms, TILE)


class AllPairs:
    """All pairs of m rows: ``2 G = sum_AB (A^T B)^2 - D^T D`` with D the sum of squared parts."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.n_atoms, self.dtype = candidates.n_atoms, candidates.dtype

    def squared_norms(self) -> Array:
        """Return the diagonal of G."""
        return np.concatenate(map_tiles(self._tile_norms, self.candidates.tiles()))

    def _tile_norms(self, tile: slice) -> Array:
        parts = self.candidates.parts(tile)
        total = sum(products_by_column(a, b) ** 2 for a in parts for b in parts)
        D = np.asarray(sum(part.astype(np.float64) ** 2 for part in parts))
        return np.asarray(0.5 * (total - products_by_column(D, D)))

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G."""
        chosen = self.candidates.some(atoms)
        chosen_squares = _sum_of_squares(chosen)
        out = np.empty((self.n_atoms, len(atoms)), self.candidates.dtype)

        def fill(tile: slice) -> None:
            parts = self.candidates.parts(tile)
            total = -_product(_sum_of_squares(parts), chosen_squares)
            for a in parts:
                for b in chosen:
                    total += _product(a, b) ** 2
            out[tile] = 0.5 * total

        map_tiles(fill, self.candidates.tiles())
        return out

    def correlations(self, target: RowTarget) -> tuple[Array, float]:
        """Return c and ||t||^2 for a target given as a matrix over the rows."""
        c = np.zeros(self.n_atoms)
        norm2 = 0.0
        m = self.candidates.rows.shape[0]
        with track("correlating candidates", m, "rows") as bar:
            for rows in _slices(m, ROW_BLOCK // 2):
                norm2 += self._add_correlations(target, rows, c)
                bar.advance(rows.stop - rows.start)
        return c, norm2

    def _add_correlations(self, target: RowTarget, rows: slice, c: Array) -> float:
        """Add what a block of rows gives to c, and return its part of ||t||^2."""
        m = self.candidates.rows.shape[0]
        # Half the diagonal block and all that lies right of it: each pair once.
        block = target.block(rows, slice(rows.start, m))
        own = block[:, : rows.stop - rows.start]
        np.fill_diagonal(own, 0)
        own *= 0.5

        def add(tile: slice) -> None:
            for part in self.candidates.parts(tile):
                c[tile] += products_by_column(part[rows], block @ part[rows.start :])

        map_tiles(add, self.candidates.tiles())
        return 2 * _sum_squares(own) + _sum_squares(block[:, rows.stop - rows.start :])


class SampledPairs:
    """S pairs of rows: R is the product of the candidates' values on both sides."""

    def __init__(self, first: Candidates, second: Candidates, budget: int) -> None:
        self.first, self.second = first, second
        self.n_atoms, self.dtype = first.n_atoms, first.dtype
        self.n_pairs = first.rows.shape[0]
        size = self.n_pairs * self.n_atoms * np.dtype(first.dtype).itemsize
        self._kept = map_tiles(self._multiply, first.tiles()) if size <= budget else None

    def _multiply(self, tile: slice) -> Array:
        sides = zip(self.first.parts(tile), self.second.parts(tile), strict=True)
        return np.asarray(sum(a * b for a, b in sides))

    def tile(self, tile: slice) -> Array:
        """Return the columns of R^T of a tile, ``(S, t)``."""
        return self._multiply(tile) if self._kept is None else self._kept[tile.start // TILE]

    def squared_norms(self) -> Array:
        """Return the diagonal of G."""

        def norms(tile: slice) -> Array:
            R = self.tile(tile)
            return products_by_column(R, R)

        return np.concatenate(map_tiles(norms, self.first.tiles()))

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G."""
        if self._kept is not None:
            chosen = _columns(self._kept, atoms)
        else:
            sides = zip(self.first.some(atoms), self.second.some(atoms), strict=True)
            chosen = np.asarray(sum(a * b for a, b in sides))
        out = np.empty((self.n_atoms, len(atoms)), self.first.dtype)

        def fill(tile: slice) -> None:
            out[tile] = _product(self.tile(tile), chosen)

        map_tiles(fill, self.first.tiles())
        return out

    def correlations(self, target: PairTarget) -> tuple[Array, float]:
        """Return c and ||t||^2 for a target given pair by pair; None stands for the row sums r."""
        t = self._row_sums() if target.values is None else target.values.astype(np.float64)
        t = t + target.extra

        def correlate(tile: slice) -> Array:
            return weighted_by_column(self.tile(tile), t)

        # Not t @ t: BLAS cuts long sums by the number of its threads.
        norm2 = float(np.einsum("i,i->", t, t))
        return np.concatenate(map_tiles(correlate, self.first.tiles())), norm2

    def _row_sums(self) -> Array:
        sums = map_tiles(lambda s: self.tile(s).sum(axis=1, dtype=np.float64), self.first.tiles())
        return np.asarray(np.sum(sums, axis=0))


def gram(objective: Objective) -> Array:
    """Return the whole of G, for tests and for small problems."""
    atoms = np.arange(objective.n_atoms)
    return np.hstack([objective.columns(atoms[part]) for part in _slices(len(atoms), TILE)])


def _columns(tiles: list[Array], atoms: IntArray) -> Array:
    """Return chosen columns of a matrix that is kept in tiles."""
    return np.stack([tiles[atom // TILE][:, atom % TILE] for atom in atoms], axis=1)


def _slices(n: int, step: int) -> Iterator[slice]:
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _sum_of_squares(parts: list[Array]) -> Array:
    return np.asarray(sum(part * part for part in parts))


def _sum_squares(block: Array) -> float:
    return float(np.einsum("ij,ij->", block, block, dtype=np.float64))


def _product(A: Array, B: Array) -> Array:
    """Return A^T B: products in the arrays' dtype, blocks of rows added up in float64."""
    total = np.zeros((A.shape[1], B.shape[1]))
    for rows in _slices(A.shape[0], ROW_BLOCK):
        total += A[rows].T @ B[rows]
    return total
