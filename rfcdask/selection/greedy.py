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
    xx, xt : float
        Inner products of x with itself and with the target.
    """

    gram: Columns
    c: Array
    norm2: float
    w: Array = field(init=False)
    q: Array = field(init=False)
    xx: float = field(init=False)
    xt: float = field(init=False)

    def __post_init__(self) -> None:
        self.c = np.asarray(self.c, np.float64)
        if self.c.shape != (self.gram.n_atoms,):
            raise ValueError(
                f"c must have one entry for each of the {self.gram.n_atoms} candidates, but has "
                f"shape {self.c.shape}."
            )
        self._hold(np.zeros(self.gram.n_atoms), np.zeros(self.gram.n_atoms))
        norms2 = np.maximum(self.gram.squared_norms, 0)
        # Candidates that vanish on all pairs can never help; they are never picked.
        self.alive = norms2 > 1e-12 * float(norms2.max(initial=0.0))
        self.norms = np.sqrt(np.where(self.alive, norms2, 1.0))

    def _hold(self, w: Array, q: Array) -> None:
        self.w, self.q = w, q
        self.xx, self.xt = float(w @ q), float(w @ self.c)

    @property
    def started(self) -> bool:
        """Whether any atom carries weight."""
        return bool(self.w.any())

    @property
    def error2(self) -> float:
        """The squared relative distance of x from the target."""
        return max(self._distance2, 0.0)

    @property
    def _distance2(self) -> float:
        return (self.norm2 - 2 * self.xt + self.xx) / self.norm2

    def step(self) -> int | None:
        """Take one step; return the atom picked, or None when the numeric floor is reached.

        Rounding errors gather in q over many updates. When a step brings nothing, q is computed
        anew and the step tried once more before the floor is declared.
        """
        atom = self._try_step()
        if atom is None and self.started:
            self._hold(self.w, self.gram.product(self.w))
            atom = self._try_step()
        return atom

    def _try_step(self) -> int | None:
        scores = self._scores()
        scores[~self.alive] = NO_COLUMN
        atom = int(np.argmax(scores))  # the first of equals: ties go to the lowest index
        if not scores[atom] > 0:
            return None
        started, before, state = self.started, self.error2, (self.w, self.q)
        self._hold(*self._moved(atom, self.gram.column(atom, scores, self._play)))
        if started and not before - self._distance2 > _GAIN_FLOOR:
            self._hold(*state)
            return None
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
        for name in ("c", "alive", "norms"):
            setattr(part, name, getattr(self, name)[atoms])
        part._hold(self.w[atoms], self.q[atoms])
        return part

    @abstractmethod
    def _scores(self) -> Array:
        """Return how good each atom is as the next pick; not above 0 means useless."""

    @abstractmethod
    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        """Return new w and q after the step towards the atom."""
