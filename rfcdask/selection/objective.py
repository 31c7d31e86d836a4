"""The greedy step's objective in Gram form: G = R R^T, c = R t and ||t||^2, never R itself.

R holds, for each candidate feature (or cosine-sine pair, an *atom*), its products over pairs of
rows. Solvers need single columns of G, the diagonal and c; they come from the candidates' values on
the gathered rows (`all_pairs`, `sampled_pairs`), tile by tile, in float32 products with float64
sums. The tiles are fixed, so the numbers do not depend on how many threads share the work.

Every quantity counts each unordered pair i < j once.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.selection.tiles import slices

_WIDTH = 512


class Objective(Protocol):
    """What solvers may ask."""

    n_atoms: int
    n_terms: int
    """Multiplications for one entry of G, roughly."""
    dtype: np.dtype

    def squared_norms(self) -> Array:
        """Return the diagonal of G, ``(n_atoms,)``, in float64."""

    def columns(self, atoms: IntArray) -> Array:
        """Return some columns of G, ``(n_atoms, len(atoms))``."""

    def values(self, atoms: IntArray) -> Array:
        """Return what `roughly` multiplies, a row for each of the atoms."""

    def roughly(self, A: Array, B: Array) -> Array:
        """Return G between atoms with such values, good enough to guess the next picks by."""


def gram(objective: Objective) -> Array:
    """Return the whole of G, for tests and for small problems."""
    atoms = np.arange(objective.n_atoms)
    return np.hstack([objective.columns(atoms[part]) for part in slices(len(atoms), _WIDTH)])
