"""Which columns of the Gram matrix a solver will ask for next.

A column costs a product over all candidates, and several at once cost little more than one. Which
will be needed is found by playing: G among the few hundred candidates with the highest scores is
cheap, and on it the solver takes its next steps as if there were no others. A wrong guess costs
time and never changes a pick, since every pick is made from whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.selection.objective import Objective

Play = Callable[[IntArray, Array], Iterator[int]]
"""Given some atoms and G among them, yield the next picks."""


class Pool:
    """G, roughly, among the atoms that may be next; what is known of the last ones is kept."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.atoms = np.empty(0, np.int64)
        self.values = self.G = np.empty((0, 0), objective.dtype)

    def change_to(self, atoms: IntArray) -> None:
        """Hold these atoms from now on, in an order of its own: fresh ones get places left free."""
        if len(atoms) != len(self.atoms):
            self.atoms, self.values = atoms.copy(), self.objective.values(atoms)
            self.G = self.objective.roughly(self.values, self.values)
            return
        places = np.flatnonzero(~np.isin(self.atoms, atoms))
        fresh = np.setdiff1d(atoms, self.atoms)
        values = self.objective.values(fresh)
        self.atoms[places], self.values[places] = fresh, values
        products = self.objective.roughly(values, self.values)
        self.G[places], self.G[:, places] = products, products.T
