"""The greedy step's objective in Gram form: G = R R^T, c = R t and ||t||^2, never R itself.

R holds, for each candidate feature (or cosine-sine pair, an *atom*), its products over pairs of
rows: ``R_js = z_j(x_s) z_j(y_s)``. Solvers need single columns of G, the diagonal and c. They come
from the candidates' values on the gathered rows, tile by tile, in float32 products with float64
sums: from matrix products over single rows where all pairs of the rows count (`AllPairs`), from R
itself where pairs were sampled (`SampledPairs`), or from a matrix that is given (`DenseGram`).

Every quantity counts each unordered pair i < j once, and no row with itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np

from rfcdask.kernels.arrays import Array, IntArray
from rfcdask.kernels.runtime import compiled, map_tiles
from rfcdask.selection.candidates import (
    ROW_TILE,
    Candidates,
    PairTarget,
    RowTarget,
    add_rows,
    in_small_tiles,
    product,
    products_by_row,
    slices,
    sum_of_squares,
    take_rows,
    tile_number,
    weighted_by_row,
)

TARGET_ROWS = 256  # rows of the target that are multiplied at a time
_GRAM_COLUMNS = 512


class ProgressBar(Protocol):
    """Counts the units of a phase of work."""

    def advance(self, amount: float = 1) -> None:
        """Count `amount` more units as done."""


class _NoProgress:
    def advance(self, amount: float = 1) -> None:
        """Count nothing."""


Track = Callable[[str, float | None, str], AbstractContextManager[ProgressBar]]
"""Given the name of a phase, its number of units and their name, reports it while it runs."""


def untracked(phase: str, total: float | None, unit: str) -> AbstractContextManager[ProgressBar]:
    """Report nothing."""
    return nullcontext(_NoProgress())


class Objective(Protocol):
    """What solvers may ask of an objective."""

    n_atoms: int
    n_terms: int  # multiplications per entry of G, about
    dtype: np.dtype

    def squared_norms(self) -> Array:
        """Return the diagonal of G, ``(n_atoms,)``, in float64."""

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G, ``(n_atoms, len(atoms))``."""

    def values(self, atoms: IntArray) -> Array:
        """Return what `approximate_gram` multiplies, one row per atom."""

    def approximate_gram(self, A: Array, B: Array) -> Array:
        """Return G between atoms with these values, precise enough to forecast the next picks."""


def gram(objective: Objective) -> Array:
    """Return the whole of G, for tests and for small problems."""
    atoms = np.arange(objective.n_atoms)
    return np.hstack([objective.columns(atoms[part]) for part in slices(len(atoms), _GRAM_COLUMNS)])


def _never_one(atoms: IntArray) -> IntArray:
    """Return a single atom twice: BLAS multiplies by one vector in another way, in other bits."""
    return atoms if len(atoms) != 1 else np.repeat(atoms, 2)


class DenseGram:
    """A Gram matrix that is given as a whole."""

    n_terms = 0

    def __init__(self, G: Array) -> None:
        self.G = np.asarray(G, np.result_type(G, np.float32))
        if self.G.ndim != 2 or self.G.shape[0] != self.G.shape[1]:
            raise ValueError(f"G must be a square matrix, but has shape {self.G.shape}.")
        self.n_atoms, self.dtype = self.G.shape[0], self.G.dtype

    def squared_norms(self) -> Array:
        """Return the diagonal."""
        return np.diag(self.G).astype(np.float64)

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns."""
        return self.G[:, atoms]

    def values(self, atoms: IntArray) -> Array:
        """Return the indices of the atoms, by which entries are found."""
        return atoms[:, None]

    def approximate_gram(self, A: Array, B: Array) -> Array:
        """Return some entries."""
        return np.asarray(self.G[np.ix_(A[:, 0], B[:, 0])])


class AllPairs:
    """All pairs of m rows: ``2 G = sum_AB (A B^T)^2 - D D^T`` with D the sum of squared parts.

    For one part per atom, ``(sum_i z_ji z_ki)^2`` is the sum of ``R_js R_ks`` over all ordered
    pairs of rows, i with itself included. The latter add up to ``sum_i z_ji^2 z_ki^2``, and what is
    left counts each pair twice. So m rows give m (m - 1) / 2 pairs for the price of m products.
    Where an atom is a cosine A and a sine B, R_js is a sum of two products and its square has the
    four terms (A, A), (A, B), (B, A), (B, B).

    Parameters
    ----------
    candidates : Candidates
        Their values on the m rows.
    """

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.n_atoms, self.dtype = candidates.n_atoms, candidates.dtype
        self.n_terms = (candidates.n_parts**2 + 1) * candidates.n_rows
        self._squares: list[Array] | None = None
        if candidates.room_for_squares:
            self._squares = map_tiles(self._squares_of, candidates.tiles())

    def _squares_of(self, tile: slice) -> Array:
        if self._squares is not None:
            return self._squares[tile_number(tile)]
        return _squared_parts(self.candidates.parts(tile))

    def squared_norms(self) -> Array:
        """Return the diagonal of G."""
        return np.concatenate(map_tiles(self._tile_norms, self.candidates.tiles()))

    def _tile_norms(self, tile: slice) -> Array:
        parts = self.candidates.parts(tile)
        total = sum(products_by_row(a, b) ** 2 for a in parts for b in parts)
        # In float64: where few rows carry most of an atom, the difference is small beside both.
        D = np.asarray(sum(part.astype(np.float64) ** 2 for part in parts))
        return np.asarray(0.5 * (total - products_by_row(D, D)))

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G."""
        chosen = self.candidates.parts_of(_never_one(atoms))
        chosen_squares = _squared_parts(chosen)
        out = np.empty((len(chosen_squares), self.n_atoms), self.dtype)

        def fill(tile: slice) -> None:
            parts = self.candidates.parts(tile)
            squares = product(self._squares_of(tile), chosen_squares)
            for number, (a, b) in enumerate((a, b) for a in parts for b in chosen):
                _put_halves(product(a, b), squares, out[:, tile], number > 0)

        map_tiles(fill, self.candidates.tiles())
        return out[: len(atoms)].T

    def values(self, atoms: IntArray) -> Array:
        """Return the parts of some atoms, one after the other."""
        parts = self.candidates.parts_of(atoms)
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def approximate_gram(self, A: Array, B: Array) -> Array:
        """Return G between atoms with such values, as if their squares were uncorrelated.

        ``D D^T`` is replaced by the product of the row means of D, times m. That saves half the
        products, for an error in the order of ``1 / m`` of the norms; with paired phases, where
        ``cos^2 + sin^2`` makes D the same everywhere, there is none.
        """
        left, right = (np.split(side, self.candidates.n_parts, axis=1) for side in (A, B))
        sizes, others = (products_by_row(side, side) for side in (A, B))

        def block(rows: slice, columns: slice) -> Array:
            total = np.outer(sizes[rows], others[columns] / -self.candidates.n_rows)
            for a in left:
                for b in right:
                    total += np.square(a[rows] @ b[columns].T)
            return 0.5 * total

        return in_small_tiles(block, (len(A), len(B)), self.dtype)

    def correlations(self, target: RowTarget, track: Track = untracked) -> tuple[Array, float]:
        """Return c and ||t||^2 for a target given as a matrix over the rows."""
        c = np.zeros(self.n_atoms)
        norm2 = 0.0
        m = self.candidates.n_rows
        with track("correlating candidates", m, "rows") as bar:
            for rows in slices(m, TARGET_ROWS):
                norm2 += self._add_correlations(target, rows, c)
                bar.advance(rows.stop - rows.start)
        return c, norm2

    def _add_correlations(self, target: RowTarget, rows: slice, c: Array) -> float:
        """Add what a block of rows gives to c, and return its part of ||t||^2."""
        # Half the diagonal block and all that lies right of it: each pair once. `own` is a view,
        # and its squares are those of halves: twice their sum is what the pairs i < j in it have.
        block = target.block(rows, slice(rows.start, self.candidates.n_rows))
        own = block[:, : rows.stop - rows.start]
        np.fill_diagonal(own, 0)
        own *= 0.5

        def add(tile: slice) -> None:
            for part in self.candidates.parts(tile):
                c[tile] += products_by_row(part[:, rows], part[:, rows.start :] @ block.T)

        map_tiles(add, self.candidates.tiles())
        return 2 * sum_of_squares(own) + sum_of_squares(block[:, rows.stop - rows.start :])


def _squared_parts(parts: list[Array]) -> Array:
    return np.asarray(sum(part * part for part in parts))


class SampledPairs:
    """S pairs of rows: R is the product of the candidates' values on both sides.

    Parameters
    ----------
    first, second : Candidates
        The values on the first and on the second row of each pair; nothing of them is kept.
    budget : int
        Bytes that R may take; above that its tiles are computed whenever they are needed.
    """

    def __init__(self, first: Candidates, second: Candidates, budget: int) -> None:
        self.first, self.second = first, second
        self.n_atoms, self.dtype = first.n_atoms, first.dtype
        self.n_pairs = self.n_terms = first.n_rows
        size = self.n_pairs * self.n_atoms * np.dtype(first.dtype).itemsize
        self._kept = map_tiles(self._multiply, first.tiles()) if size <= budget else None

    def _multiply(self, which: slice | IntArray) -> Array:
        """Return rows of R; both sides are evaluated on a few pairs at a time."""
        first, second = self.first.subset(which), self.second.subset(which)
        out = np.empty((first.n_atoms, self.n_pairs), self.dtype)
        for pairs in slices(self.n_pairs, ROW_TILE):
            sides = zip(first.on_rows(pairs), second.on_rows(pairs), strict=True)
            for number, (a, b) in enumerate(sides):
                _put_products(a, b, out[:, pairs], number > 0)
        return out

    def tile(self, tile: slice) -> Array:
        """Return the rows of R of a tile, ``(t, S)``."""
        return self._multiply(tile) if self._kept is None else self._kept[tile_number(tile)]

    def squared_norms(self) -> Array:
        """Return the diagonal of G."""

        def norms(tile: slice) -> Array:
            R = self.tile(tile)
            return products_by_row(R, R)

        return np.concatenate(map_tiles(norms, self.first.tiles()))

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G."""
        chosen = self.values(_never_one(atoms))
        out = np.empty((len(chosen), self.n_atoms), self.dtype)

        def fill(tile: slice) -> None:
            out[:, tile] = product(chosen, self.tile(tile))

        map_tiles(fill, self.first.tiles())
        return out[: len(atoms)].T

    def values(self, atoms: IntArray) -> Array:
        """Return the rows of R of some atoms, ``(len(atoms), S)``."""
        return self._multiply(atoms) if self._kept is None else take_rows(self._kept, atoms)

    def approximate_gram(self, A: Array, B: Array) -> Array:
        """Return G between atoms with such rows of R."""
        return in_small_tiles(lambda a, b: A[a] @ B[b].T, (len(A), len(B)), self.dtype)

    def correlations(self, target: PairTarget) -> tuple[Array, float]:
        """Return c and ||t||^2 for a target given pair by pair; None stands for the row sums r."""
        t = self._sum_over_atoms() if target.values is None else target.values.astype(np.float64)
        t = t + target.label_products

        def correlate(tile: slice) -> Array:
            return weighted_by_row(self.tile(tile), t)

        # Not t @ t: BLAS cuts long sums by the number of its threads.
        norm2 = float(np.einsum("i,i->", t, t))
        return np.concatenate(map_tiles(correlate, self.first.tiles())), norm2

    def _sum_over_atoms(self) -> Array:
        sums = map_tiles(lambda tile: add_rows(self.tile(tile)), self.first.tiles())
        return np.asarray(np.sum(sums, axis=0))


@compiled()
def _put_halves(products: Array, squares: Array, out: Array, add: bool) -> None:
    """Write ``(products^2 - squares) / 2`` to `out`, transposed; to add, leave out the squares."""
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            value = products[i, j] * products[i, j]
            if add:
                out[j, i] += 0.5 * value
            else:
                out[j, i] = 0.5 * (value - squares[i, j])


@compiled()
def _put_products(a: Array, b: Array, out: Array, add: bool) -> None:
    """Write (or add) the products of a and b to `out`, transposed, a few columns at a time."""
    for start in range(0, a.shape[1], 16):
        for i in range(a.shape[0]):
            for j in range(start, min(start + 16, a.shape[1])):
                value = a[i, j] * b[i, j]
                out[j, i] = out[j, i] + value if add else value
