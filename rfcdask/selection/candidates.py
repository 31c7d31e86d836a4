"""Values of the candidate features on the gathered rows.

A candidate's values lie side by side in memory and candidates are kept in tiles: single candidates
are cheap to take, and tiles are multiplied fast.
"""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np

from rfcdask._types import Array, IntArray, Matrix
from rfcdask.blocks import CosineBlock
from rfcdask.selection.tiles import slices
from rfcdask.threads import available_cpus, map_tiles

TILE = 512
"""Candidates a tile."""
ROWS = 256
"""Rows evaluated at a time, while their values are in cache."""


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
        chosen = self.only(which)
        out = [np.empty((chosen.n_atoms, self.n_rows), self.dtype) for _ in range(self.n_parts)]
        for rows in slices(self.n_rows, ROWS):
            for part, values in zip(out, chosen.on_rows(rows), strict=True):
                _put_transposed(values, part[:, rows])
        return out

    def only(self, which: slice | IntArray) -> Candidates:
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
        return self._evaluate(tile) if self._kept is None else self._kept[number_of(tile)]

    def some(self, atoms: IntArray) -> list[Array]:
        """Return the parts of chosen atoms, ``(len(atoms), m)`` each."""
        if self._kept is None:
            return self._evaluate(atoms)
        kept = self._kept
        return [take_rows([tile[part] for tile in kept], atoms) for part in range(self.n_parts)]

    def tiles(self) -> Iterator[slice]:
        """Cut the atoms into tiles."""
        return slices(self.n_atoms, TILE)


def number_of(tile: slice) -> int:
    """Return the place of a tile among all."""
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


@numba.njit(cache=True, nogil=True)
def _put_transposed(values: Array, out: Array) -> None:
    """Write the transpose of `values` to `out`, a few columns at a time."""
    for start in range(0, values.shape[1], 16):
        for i in range(values.shape[0]):
            for j in range(start, min(start + 16, values.shape[1])):
                out[j, i] = values[i, j]
