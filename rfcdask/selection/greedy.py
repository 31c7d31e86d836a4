"""What all greedy solvers share: the state, its error, and when nothing more can be gained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rfcdask._types import Array, IntArray
from rfcdask.selection.columns import Columns, WholeColumns

NO_COLUMN = -np.inf
_GAIN_FLOOR = 1e-14


@dataclass
class Greedy(ABC):
    """A sparse combination x = sum_j w_j R_j that grows towards t, one atom a step.

    Attributes
    ----------
    gram : Columns
    c : array of shape (n_atoms,)
        Inner products of the atoms with the target.
    norm2 : float
        Squared norm of the target.
    w, q : arrays of shape (n_atoms,)
        The weights and G w.
    """

    gram: Columns
    c: Array
    norm2: float
    w: Array = field(init=False)
    q: Array = field(init=False)

    def __post_init__(self) -> None:
        self.c = np.asarray(self.c, np.float64)
        if self.c.shape != (self.gram.n_atoms,):
            raise ValueError(
                f"c must have one entry for each of the {self.gram.n_atoms} candidates, but has "
                f"shape {self.c.shape}."
            )
        self.w = np.zeros(self.gram.n_atoms)
        self.q = np.zeros(self.gram.n_atoms)
        norms2 = np.maximum(self.gram.squared_norms, 0)
        # Candidates that vanish on all pairs can never help; they are never picked.
        self.alive = norms2 > 1e-12 * float(norms2.max(initial=0.0))
        self.norms = np.sqrt(np.where(self.alive, norms2, 1.0))

    @property
    def error2(self) -> float:
        """The squared relative distance of x from the target."""
        return max(float(self.norm2 - 2 * self.w @ self.c + self.w @ self.q) / self.norm2, 0.0)

    def step(self) -> int | None:
        """Take one step; return the atom picked, or None when the numeric floor is reached.

        Rounding errors gather in q over many updates. When a step brings nothing, q is computed
        anew and the step tried once more before the floor is declared.
        """
        atom = self._try_step()
        if atom is None and self.w.any():
            self.q = self.gram.product(self.w)
            atom = self._try_step()
        return atom

    def _try_step(self) -> int | None:
        scores = np.where(self.alive, self._scores(), NO_COLUMN)
        atom = int(np.argmax(scores))  # the first of equals: ties go to the lowest index
        if not scores[atom] > 0:
            return None
        before = self.error2
        w, q = self._moved(atom, self.gram.column(atom, scores, self._play))
        after = (self.norm2 - 2 * w @ self.c + w @ q) / self.norm2
        if self.w.any() and not before - after > _GAIN_FLOOR:
            return None
        self.w, self.q = w, q
        return atom

    def _play(self, atoms: IntArray, G: Array) -> Iterator[int]:
        """Yield the next picks as if there were no other atoms; those with weight are given too."""
        part = self._restricted_to(atoms, G)
        while (pick := part._try_step()) is not None:
            yield int(atoms[pick])

    def _restricted_to(self, atoms: IntArray, G: Array) -> Self:
        """Return a copy of the solver that knows no other atoms."""
        part = copy(self)
        part.gram = WholeColumns(G)
        for name in ("c", "w", "q", "alive", "norms"):
            setattr(part, name, getattr(self, name)[atoms])
        return part

    @abstractmethod
    def _scores(self) -> Array:
        """Return how good each atom is as the next pick; not above 0 means useless."""

    @abstractmethod
    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        """Return new w and q after the step towards the atom."""
