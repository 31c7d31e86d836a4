"""Columns of the Gram matrix on demand, fetched in batches of the candidates likely to be next."""

from __future__ import annotations

import math
from itertools import islice
from typing import Protocol

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.selection.forecast import Play, Pool
from rfcdask.selection.objective import Objective

BATCH = 32
"""Columns a fetch: wide enough for a fast matrix product, narrow enough to be mostly used."""

WORTH_PLAYING = 100_000_000
"""Multiplications a batch below which it is fetched faster than thought about."""
PATIENCE = 3
"""Steps played for each column of a batch before fewer are fetched."""


class DenseGram:
    """A Gram matrix that is already there."""

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
        """Return the atoms' numbers, by which entries are found."""
        return atoms[:, None]

    def roughly(self, A: Array, B: Array) -> Array:
        """Return some entries."""
        return np.asarray(self.G[np.ix_(A[:, 0], B[:, 0])])


class Columns(Protocol):
    """Where a solver gets columns of G."""

    n_atoms: int
    dtype: np.dtype
    squared_norms: Array

    def column(self, atom: int, scores: Array, play: Play | None = None) -> Array:
        """Return one column."""

    def product(self, weights: Array) -> Array:
        """Return G w, in float64."""


class WholeColumns:
    """Columns of a matrix that is there as a whole."""

    def __init__(self, G: Array) -> None:
        self.G, self.n_atoms, self.dtype = G, len(G), G.dtype
        self.squared_norms = np.diag(G).astype(np.float64)

    def column(self, atom: int, scores: Array, play: Play | None = None) -> Array:
        """Return one column, which is a row too."""
        return np.asarray(self.G[atom])

    def product(self, weights: Array) -> Array:
        """Return G w."""
        chosen = np.flatnonzero(weights)
        return np.asarray(weights[chosen] @ self.G[chosen])


class ColumnCache:
    """Keeps the columns fetched so far within a budget; columns in use are never dropped.

    Parameters
    ----------
    objective : Objective
    budget : int
        Bytes that columns fetched ahead, and not used so far, may take.
    """

    def __init__(self, objective: Objective, budget: int = 2**30) -> None:
        self.objective = objective
        self.n_atoms, self.dtype = objective.n_atoms, objective.dtype
        self.squared_norms = objective.squared_norms()
        self._used: dict[int, Array] = {}
        self._ahead: dict[int, Array] = {}
        self._pool = Pool(objective)
        self._among_used: Array = np.empty((0, 0), self.dtype)  # of the first atoms in use
        self._room = max(BATCH, budget // max(1, 8 * self.n_atoms))

    def column(self, atom: int, scores: Array, play: Play | None = None) -> Array:
        """Return one column; when it is missing, fetch those likely to be asked for next with it.

        Parameters
        ----------
        atom : int
        scores : array of shape (n_atoms,)
            How good each atom is as the next pick; minus infinity says never.
        play : callable, optional
            Plays the solver's next steps; without it the atoms with the highest scores are next.
        """
        if atom not in self._used:
            if atom not in self._ahead:
                self._fetch(self._likely(atom, scores, play))
                self._forget(atom)
            self._used[atom] = self._ahead.pop(atom)
        return self._used[atom]

    def entry(self, row: int, column: int) -> float:
        """Return one entry of a column that is in use."""
        return float(self._used[column][row])

    def used(self, atoms: IntArray) -> Array:
        """Return columns in use side by side, ``(n_atoms, len(atoms))``."""
        return np.stack([self._used[int(atom)] for atom in atoms], axis=1)

    def product(self, weights: Array) -> Array:
        """Return G w anew from the columns of the atoms that carry weight, in float64."""
        total = np.zeros(self.n_atoms)
        for atom in np.flatnonzero(weights):
            total += weights[atom] * self._used[int(atom)]
        return total

    def _likely(self, atom: int, scores: Array, play: Play | None) -> IntArray:
        """Return the atom and others whose columns are likely to be needed next, and missing."""
        wanted = scores.copy()
        wanted[list(self._used)] = -np.inf
        wanted[atom] = np.inf
        if play is None or BATCH * self.n_atoms * self.objective.n_terms < WORTH_PLAYING:
            wanted[list(self._ahead)] = -np.inf
            return _highest(wanted, BATCH)
        self._pool.change_to(_highest(wanted, self._pool_size()))
        missing = {atom: None}
        for pick in islice(play(*self._among()), PATIENCE * BATCH):
            if pick not in self._used and pick not in self._ahead:
                missing[pick] = None
            if len(missing) == BATCH:
                break
        return np.array(list(missing))

    def _pool_size(self) -> int:
        """Return a number of atoms among which G costs half as much as a batch of columns."""
        return min(self.n_atoms, math.isqrt(BATCH * self.n_atoms))

    def _among(self) -> tuple[IntArray, Array]:
        """Return the atoms in use and in the pool, and G among them."""
        used = np.fromiter(self._used, np.int64, len(self._used))
        atoms, n, known = np.concatenate([used, self._pool.atoms]), len(used), len(self._among_used)
        G = np.empty((len(atoms), len(atoms)), self.dtype)
        G[:known, :known] = self._among_used
        for k, column in enumerate(self._used.values()):
            first = n if k < known else 0
            np.take(column, atoms[first:], out=G[k, first:], mode="clip")
        G[:known, known:n] = G[known:n, :known].T
        G[n:, :n] = G[:n, n:].T
        G[n:, n:] = self._pool.G
        self._among_used = G[:n, :n].copy()
        return atoms, G

    def _fetch(self, atoms: IntArray) -> None:
        for atom, column in zip(atoms, self.objective.columns(atoms).T, strict=True):
            self._ahead[int(atom)] = column.copy()  # a piece of memory of its own, to be let go

    def _forget(self, atom: int) -> None:
        """Drop the oldest columns fetched ahead and never used, all but the one asked for."""
        for oldest in list(self._ahead):
            if len(self._ahead) <= self._room:
                break
            if oldest != atom:
                del self._ahead[oldest]


def _highest(scores: Array, size: int) -> IntArray:
    """Return the places of the highest scores above minus infinity, in ascending order."""
    size = min(size, len(scores))
    places = np.sort(np.argpartition(-scores, size - 1)[:size])
    return np.asarray(places[scores[places] > -np.inf])
