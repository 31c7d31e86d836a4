"""The objective over all pairs of the gathered rows, from matrix products over single rows."""

from __future__ import annotations

import numba
import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.progress import track
from rfcdask.selection.candidates import Candidates, number_of
from rfcdask.selection.sums import products_by_row
from rfcdask.selection.target import RowTarget
from rfcdask.selection.tiles import in_parts, product, slices
from rfcdask.threads import map_tiles

TARGET_ROWS = 256
"""Rows of the target that are multiplied at a time."""


class AllPairs:
    """All pairs of m rows: ``2 G = sum_AB (A B^T)^2 - D D^T`` with D the sum of squared parts."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.n_atoms, self.dtype = candidates.n_atoms, candidates.dtype
        self.n_terms = (candidates.n_parts**2 + 1) * candidates.n_rows
        self._squares: list[Array] | None = None
        if candidates.room_for_squares:
            self._squares = map_tiles(self._squares_of, candidates.tiles())

    def _squares_of(self, tile: slice) -> Array:
        if self._squares is not None:
            return self._squares[number_of(tile)]
        return _sum_of_squares(self.candidates.parts(tile))

    def squared_norms(self) -> Array:
        """Return the diagonal of G."""
        return np.concatenate(map_tiles(self._tile_norms, self.candidates.tiles()))

    def _tile_norms(self, tile: slice) -> Array:
        parts = self.candidates.parts(tile)
        total = sum(products_by_row(a, b) ** 2 for a in parts for b in parts)
        D = np.asarray(sum(part.astype(np.float64) ** 2 for part in parts))
        return np.asarray(0.5 * (total - products_by_row(D, D)))

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G."""
        chosen = self.candidates.some(atoms)
        chosen_squares = _sum_of_squares(chosen)
        out = np.empty((len(atoms), self.n_atoms), self.dtype)

        def fill(tile: slice) -> None:
            parts = self.candidates.parts(tile)
            squares = product(self._squares_of(tile), chosen_squares)
            for number, (a, b) in enumerate((a, b) for a in parts for b in chosen):
                _put_halves(product(a, b), squares, out[:, tile], number > 0)

        map_tiles(fill, self.candidates.tiles())
        return out.T

    def values(self, atoms: IntArray) -> Array:
        """Return the parts of some atoms, one after the other."""
        parts = self.candidates.some(atoms)
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def roughly(self, A: Array, B: Array) -> Array:
        """Return G between atoms with such values, as if their squares were uncorrelated.

        That saves half the products, for a mistake in the order of ``1 / m`` of the norms; with
        paired phases, where D is the same everywhere, there is none.
        """
        left, right = (np.split(side, self.candidates.n_parts, axis=1) for side in (A, B))
        sizes, others = (products_by_row(side, side) for side in (A, B))

        def block(rows: slice, columns: slice) -> Array:
            total = np.outer(sizes[rows], others[columns] / -self.candidates.n_rows)
            for a in left:
                for b in right:
                    total += np.square(a[rows] @ b[columns].T)
            return 0.5 * total

        return in_parts(block, (len(A), len(B)), self.dtype)

    def correlations(self, target: RowTarget) -> tuple[Array, float]:
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
        # Half the diagonal block and all that lies right of it: each pair once.
        block = target.block(rows, slice(rows.start, self.candidates.n_rows))
        own = block[:, : rows.stop - rows.start]
        np.fill_diagonal(own, 0)
        own *= 0.5

        def add(tile: slice) -> None:
            for part in self.candidates.parts(tile):
                c[tile] += products_by_row(part[:, rows], part[:, rows.start :] @ block.T)

        map_tiles(add, self.candidates.tiles())
        return 2 * _sum_squares(own) + _sum_squares(block[:, rows.stop - rows.start :])


def _sum_of_squares(parts: list[Array]) -> Array:
    return np.asarray(sum(part * part for part in parts))


@numba.njit(cache=True, nogil=True)
def _put_halves(products: Array, squares: Array, out: Array, add: bool) -> None:
    """Write ``(products^2 - squares) / 2`` to `out`, transposed; to add, leave out the squares."""
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            value = products[i, j] * products[i, j]
            if add:
                out[j, i] += 0.5 * value
            else:
                out[j, i] = 0.5 * (value - squares[i, j])


def _sum_squares(block: Array) -> float:
    return float(np.einsum("ij,ij->", block, block, dtype=np.float64))
