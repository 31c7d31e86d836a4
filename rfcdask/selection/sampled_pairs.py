"""The objective over sampled pairs: R itself, one row of products for each candidate, in tiles."""

from __future__ import annotations

import numba
import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.selection.candidates import ROWS, Candidates, number_of, take_rows
from rfcdask.selection.sums import add_rows, products_by_row, weighted_by_row
from rfcdask.selection.target import PairTarget
from rfcdask.selection.tiles import in_parts, product, slices
from rfcdask.threads import map_tiles


class SampledPairs:
    """S pairs of rows: R is the product of the candidates' values on both sides."""

    def __init__(self, first: Candidates, second: Candidates, budget: int) -> None:
        self.first, self.second = first, second
        self.n_atoms, self.dtype = first.n_atoms, first.dtype
        self.n_pairs = self.n_terms = first.n_rows
        size = self.n_pairs * self.n_atoms * np.dtype(first.dtype).itemsize
        self._kept = map_tiles(self._multiply, first.tiles()) if size <= budget else None

    def _multiply(self, which: slice | IntArray) -> Array:
        """Return rows of R; both sides are evaluated on a few pairs at a time."""
        first, second = self.first.only(which), self.second.only(which)
        out = np.empty((first.n_atoms, self.n_pairs), self.dtype)
        for pairs in slices(self.n_pairs, ROWS):
            sides = zip(first.on_rows(pairs), second.on_rows(pairs), strict=True)
            for number, (a, b) in enumerate(sides):
                _put_products(a, b, out[:, pairs], number > 0)
        return out

    def tile(self, tile: slice) -> Array:
        """Return the rows of R of a tile, ``(t, S)``."""
        return self._multiply(tile) if self._kept is None else self._kept[number_of(tile)]

    def some(self, atoms: IntArray) -> Array:
        """Return the rows of R of chosen atoms, ``(len(atoms), S)``."""
        return self._multiply(atoms) if self._kept is None else take_rows(self._kept, atoms)

    def squared_norms(self) -> Array:
        """Return the diagonal of G."""

        def norms(tile: slice) -> Array:
            R = self.tile(tile)
            return products_by_row(R, R)

        return np.concatenate(map_tiles(norms, self.first.tiles()))

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G."""
        chosen = self.some(atoms)
        out = np.empty((len(atoms), self.n_atoms), self.dtype)

        def fill(tile: slice) -> None:
            out[:, tile] = product(chosen, self.tile(tile))

        map_tiles(fill, self.first.tiles())
        return out.T

    def values(self, atoms: IntArray) -> Array:
        """Return the rows of R of some atoms."""
        return self.some(atoms)

    def roughly(self, A: Array, B: Array) -> Array:
        """Return G between atoms with such rows of R."""
        return in_parts(lambda a, b: A[a] @ B[b].T, (len(A), len(B)), self.dtype)

    def correlations(self, target: PairTarget) -> tuple[Array, float]:
        """Return c and ||t||^2 for a target given pair by pair; None stands for the row sums r."""
        t = self._sum_over_atoms() if target.values is None else target.values.astype(np.float64)
        t = t + target.extra

        def correlate(tile: slice) -> Array:
            return weighted_by_row(self.tile(tile), t)

        # Not t @ t: BLAS cuts long sums by the number of its threads.
        norm2 = float(np.einsum("i,i->", t, t))
        return np.concatenate(map_tiles(correlate, self.first.tiles())), norm2

    def _sum_over_atoms(self) -> Array:
        sums = map_tiles(lambda tile: add_rows(self.tile(tile)), self.first.tiles())
        return np.asarray(np.sum(sums, axis=0))


@numba.njit(cache=True, nogil=True)
def _put_products(a: Array, b: Array, out: Array, add: bool) -> None:
    """Write (or add) the products of a and b to `out`, transposed, a few columns at a time."""
    for start in range(0, a.shape[1], 16):
        for i in range(a.shape[0]):
            for j in range(start, min(start + 16, a.shape[1])):
                value = a[i, j] * b[i, j]
                out[j, i] = out[j, i] + value if add else value
