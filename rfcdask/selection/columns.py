"""Columns of the Gram matrix on demand, fetched in batches of the candidates likely to be next."""

from __future__ import annotations

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.selection.objective import Objective

BATCH = 64
"""Columns a fetch: wide enough for a fast matrix product, narrow enough to be mostly used."""


class DenseGram:
    """A Gram matrix that is already there."""

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
        self._room = max(BATCH, budget // max(1, 8 * self.n_atoms))

    def column(self, atom: int, scores: Array) -> Array:
        """Return one column; when it is missing, fetch those with the highest scores with it."""
        if atom not in self._used:
            if atom not in self._ahead:
                self._fetch(atom, scores)
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

    def _fetch(self, atom: int, scores: Array) -> None:
        wanted = scores.copy()
        wanted[[*self._used, *self._ahead]] = -np.inf
        wanted[atom] = np.inf
        size = min(BATCH, self.n_atoms)
        atoms = np.sort(np.argpartition(-wanted, size - 1)[:size])
        atoms = atoms[wanted[atoms] > -np.inf]
        columns = self.objective.columns(atoms)
        for k, name in enumerate(atoms):
            self._ahead[int(name)] = np.ascontiguousarray(columns[:, k])
        while len(self._ahead) > self._room:
            oldest = next(iter(self._ahead))
            if oldest == atom:
                break
            del self._ahead[oldest]
