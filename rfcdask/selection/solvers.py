"""The greedy solvers: GIGA, Frank-Wolfe and matching pursuit, in Gram form.

Each grows a sparse combination ``x = sum_j w_j R_j`` with w >= 0 towards the target t, one atom per
step. In Gram form a solver holds, besides the weights, ``q = G w``: the inner products of x with
every atom. With c, those of t, all it asks is a combination of these numbers, and one step costs
O(n_atoms) and one column of G.

References
----------
.. [1] Campbell, T. and Broderick, T. (2018). Bayesian coreset construction via greedy iterative
   geodesic ascent. ICML.
.. [2] Campbell, T. and Broderick, T. (2019). Automated scalable Bayesian inference via Hilbert
   coresets. JMLR.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rfcdask.kernels.arrays import Array, IntArray
from rfcdask.kernels.runtime import compiled
from rfcdask.selection.columns import DenseColumns, GramColumns


class GrowingNNLS:
    """Minimise ``||t - sum_j w_j R_j||`` over w >= 0 for the atoms entered so far.

    An active-set method (Lawson and Hanson) with one Cholesky factor of the Gram matrix of the
    atoms in the set. The factor grows by a row when an atom enters and is rotated back to
    triangular form when one leaves: O(s^2) for a set of s atoms either way, where solving anew
    would cost O(s^3).

    Parameters
    ----------
    capacity : int
        How many atoms there is room for at first.
    resolution : float
        Relative precision of G. The diagonal is raised by that share, else nearly dependent atoms
        would get weights made of rounding errors.

    Attributes
    ----------
    atoms : list of int
        The atoms with positive weight, in the order they entered.
    """

    def __init__(self, capacity: int = 64, resolution: float = 1e-15) -> None:
        self.atoms: list[int] = []
        self.resolution = resolution
        self._L = np.zeros((capacity, capacity))
        self._c = np.zeros(capacity)
        self._w = np.zeros(capacity)

    @property
    def weights(self) -> Array:
        """The weights of `atoms`."""
        return self._w[: len(self.atoms)].copy()

    def enter(self, atom: int, products: Array, squared_norm: float, correlation: float) -> bool:
        """Let an atom enter and solve anew; tell whether it kept a positive weight.

        Parameters
        ----------
        atom : int
        products : array
            Its products with `atoms`, in their order.
        squared_norm, correlation : float
            Its own diagonal entry of G, and its product with the target.
        """
        size = len(self.atoms)
        if size == len(self._c):
            self._grow()
        self._c[size], self._w[size] = correlation, 0.0
        products = np.asarray(products, np.float64)
        _append(self._L, size, products, squared_norm, self.resolution)
        self.atoms.append(atom)
        kept = _solve(self._L, self._c, self._w, size + 1)
        self.atoms = [name for name, keep in zip(self.atoms, kept, strict=True) if keep]
        return bool(kept[-1])

    def renamed(self, names: Mapping[int, int]) -> GrowingNNLS:
        """Return a copy whose atoms have other names."""
        other = deepcopy(self)
        other.atoms = [names[atom] for atom in self.atoms]
        return other

    def _grow(self) -> None:
        old = len(self._c)
        L = np.zeros((2 * old, 2 * old))
        L[:old, :old] = self._L
        self._L = L
        self._c = np.concatenate([self._c, np.zeros(old)])
        self._w = np.concatenate([self._w, np.zeros(old)])


@compiled(fastmath={"reassoc", "contract"})
def _append(L: Array, size: int, products: Array, squared_norm: float, jitter: float) -> None:
    """Add a row to the Cholesky factor; its diagonal is raised by the share `jitter`.

    What is left of the squared norm is the squared distance of the atom from the span of the
    others. Of a nearly dependent atom only rounding is left, possibly below zero: it is held above.
    """
    left = squared_norm * (1 + jitter)
    for i in range(size):
        value = products[i]
        for k in range(i):
            value -= L[i, k] * L[size, k]
        L[size, i] = value / L[i, i]
        left -= L[size, i] ** 2
    L[size, size] = np.sqrt(max(left, jitter * squared_norm))


@compiled(fastmath={"reassoc", "contract"})
def _unconstrained(L: Array, c: Array, size: int) -> Array:
    """Solve L L^T z = c."""
    z = np.empty(size)
    for i in range(size):
        value = c[i]
        for k in range(i):
            value -= L[i, k] * z[k]
        z[i] = value / L[i, i]
    for i in range(size - 1, -1, -1):
        z[i] /= L[i, i]
        value = z[i]
        for k in range(i):
            z[k] -= L[i, k] * value
    return z


@compiled(fastmath={"reassoc", "contract"})
def _remove(L: Array, size: int, gone: int) -> None:
    """Take a row and its column out of the Cholesky factor by Givens rotations.

    Without row `gone` the rows below reach one entry beyond the diagonal. Rotating columns i and
    i + 1 brings that entry to zero and leaves L L^T, which is all that is asked of L, as it is.
    """
    for i in range(gone, size - 1):
        for k in range(i + 2):
            L[i, k] = L[i + 1, k]
    for i in range(gone, size - 1):
        a, b = L[i, i], L[i, i + 1]
        r = np.hypot(a, b)
        cosine, sine = a / r, b / r
        for row in range(i, size - 1):
            x, y = L[row, i], L[row, i + 1]
            L[row, i] = cosine * x + sine * y
            L[row, i + 1] = cosine * y - sine * x


@compiled()
def _solve(L: Array, c: Array, w: Array, size: int) -> Array:
    """Move w to the best non-negative point, dropping what hits zero; return who stayed.

    From w, which is feasible, go towards the unconstrained solution z. Where that leaves the
    positive orthant, stop at the first weight that reaches zero, drop its atom, and solve again for
    the others: the error falls with each round, and there are at most as many as atoms.
    """
    order = np.arange(size)
    kept = np.ones(size, np.bool_)
    while size > 0:
        z = _unconstrained(L, c, size)
        reach, first = 1.0, -1
        for i in range(size):
            if z[i] <= 0:
                share = w[i] / (w[i] - z[i]) if w[i] > 0 else 0.0
                if share < reach or first < 0:
                    reach, first = share, i
        for i in range(size):
            w[i] += reach * (z[i] - w[i])
        if first < 0:
            break
        kept[order[first]] = False
        _remove(L, size, first)
        for i in range(first, size - 1):
            order[i], c[i], w[i] = order[i + 1], c[i + 1], w[i + 1]
        size -= 1
    return kept


_MIN_GAIN = 1e-14
"""The fall of the squared relative error that a step must bring, just above float64's rounding."""
_PARALLEL = 1e-12  # squared sine below which an atom points along x as far as rounding can tell


@dataclass
class Greedy(ABC):
    """What all greedy solvers share: the state, its error, and when nothing more can be gained."""

    gram: GramColumns
    c: Array  # inner products of the atoms with the target
    norm2: float  # squared norm of the target
    w: Array = field(init=False)  # the weights, in float64
    q: Array = field(init=False)  # G w, in float64
    xx: float = field(init=False)  # inner product of x with itself
    xt: float = field(init=False)  # and with the target
    usable: Array = field(init=False)  # the atoms that do not vanish on all pairs
    norms: Array = field(init=False)  # lengths of the atoms, 1 for those that vanish

    def __post_init__(self) -> None:
        self.c = np.asarray(self.c, np.float64)
        if self.c.shape != (self.gram.n_atoms,):
            raise ValueError(
                f"c must have one entry for each of the {self.gram.n_atoms} candidates, but has "
                f"shape {self.c.shape}."
            )
        self._set_weights(np.zeros(self.gram.n_atoms), np.zeros(self.gram.n_atoms))
        norms2 = np.maximum(self.gram.squared_norms, 0)
        # Candidates that vanish on all pairs can never help; they are never picked.
        self.usable = norms2 > 1e-12 * float(norms2.max(initial=0.0))
        self.norms = np.sqrt(np.where(self.usable, norms2, 1.0))

    def _set_weights(self, w: Array, q: Array) -> None:
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
        # Rounding may make it negative; a step is judged by the difference of two of them.
        return (self.norm2 - 2 * self.xt + self.xx) / self.norm2

    def step(self) -> int | None:
        """Take one step; return the atom picked, or None when the numeric floor is reached.

        q is updated from step to step and never recomputed while steps help: recomputing costs one
        pass over all columns in use. Its rounding errors add up, though, until the scores name
        atoms that do not help. When a step brings nothing, q is computed anew from the weights and
        the step tried once more before the floor is declared.
        """
        atom = self._try_step()
        if atom is None and self.started:
            self._set_weights(self.w, self.gram.product(self.w))
            atom = self._try_step()
        return atom

    def _try_step(self) -> int | None:
        scores = self._scores()
        scores[~self.usable] = -np.inf
        atom = int(np.argmax(scores))  # the first of equals: ties go to the lowest index
        if not scores[atom] > 0:
            return None
        started, before, state = self.started, self.error2, (self.w, self.q)
        self._set_weights(*self._moved(atom, self.gram.column(atom, scores, self._forecast)))
        if started and not before - self._distance2 > _MIN_GAIN:
            self._set_weights(*state)
            return None
        return atom

    def _forecast(self, atoms: IntArray, G: Array) -> Iterator[int]:
        """Yield the next picks as if there were no other atoms; those with weight are given too."""
        restricted = self._restricted_to(atoms, G)
        while (pick := restricted._try_step()) is not None:
            yield int(atoms[pick])

    def _restricted_to(self, atoms: IntArray, G: Array) -> Self:
        """Return a copy of the solver that knows no other atoms; its steps leave this one alone."""
        part = copy(self)
        part.gram = DenseColumns(G)
        for name in ("c", "usable", "norms"):
            setattr(part, name, getattr(self, name)[atoms])
        part._set_weights(self.w[atoms], self.q[atoms])
        return part

    @abstractmethod
    def _scores(self) -> Array:
        """Return how good each atom is as the next pick; not above 0 means useless."""

    @abstractmethod
    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        """Return new w and q after the step towards the atom."""


class Giga(Greedy):
    """Greedy iterative geodesic ascent [1]_.

    Scaled to length 1, x, the target and all atoms lie on the unit sphere. A step moves x along the
    great circle towards one atom, to where it is closest to the target, then scales x to its best
    length ``<x, t> / <x, x>``. The atom is the one whose direction, seen from x along the sphere,
    has the smallest angle with that of the target.
    """

    def _scores(self) -> Array:
        if not self.started:
            return np.asarray(self.c / self.norms)
        length = np.sqrt(self.xx)
        return np.asarray(_cosines_of_directions(self.c, self.q, self.norms, length, self.xt))

    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        n = float(self.norms[atom])
        keep, add = (0.0, 1.0) if not self.started else self._towards(atom, n)
        # <x, t> and <x, x> after the step follow from those before: no sum over the atoms.
        xt = keep * self.xt + add * self.c[atom]
        xx = keep**2 * self.xx + 2 * keep * add * self.q[atom] + (add * n) ** 2
        best = float(xt / xx)
        w, q = (keep * best) * self.w, (keep * best) * self.q
        w[atom] += add * best
        q += (add * best) * column
        return w, q

    def _towards(self, atom: int, n: float) -> tuple[float, float]:
        """Return the factor of x and the weight of the atom where the great circle is nearest to t.

        With a, s and h the cosines between atom and target, x and target, x and atom, the best
        point ``u x^ + v a^`` of the plane spanned by x and the atom (unit vectors) is the
        projection of the target: ``u + h v = s`` and ``h u + v = a``, so that u : v is
        ``s - a h : a - s h``. Its length does not matter here; dividing by the sum keeps the
        numbers of order 1. Both are at least 0 where the scores pick the atom, hence w >= 0.
        """
        length, b = np.sqrt(self.xx), np.sqrt(self.norm2)
        a, s, h = self.c[atom] / (n * b), self.xt / (length * b), self.q[atom] / (n * length)
        to_atom, stay = float(a - s * h), float(s - a * h)
        return stay / length / (to_atom + stay), to_atom / n / (to_atom + stay)


@compiled(error_model="numpy")
def _cosines_of_directions(c: Array, q: Array, norms: Array, length: float, xt: float) -> Array:
    """Return how near each atom's direction from x on the sphere is to the target's.

    The direction of an atom a^ from x^ is ``a^ - h x^`` with ``h = <a^, x^>``, of length
    ``sqrt(1 - h^2)``; that of the target is ``t - <t, x^> x^``. Their inner product is
    ``<t, a^> - <t, x^> h``. The length of the target's direction is the same for all atoms and
    left out. ``1 - h^2`` loses its digits as an atom comes near x: below `_PARALLEL` nothing but
    rounding is left of it, and such an atom, which has no direction from x, scores 0.
    """
    out = np.empty_like(c)
    slope = (xt / length) / length
    for j in range(len(c)):
        along = q[j] / (norms[j] * length)
        across2 = 1 - along * along
        cosine = (c[j] - slope * q[j]) / (norms[j] * np.sqrt(max(across2, _PARALLEL)))
        out[j] = cosine if across2 > _PARALLEL else 0.0
    return out


class FrankWolfe(Greedy):
    """Frank-Wolfe [2]_ on the polytope ``sum_j n_j w_j = sigma`` with ``sigma = sum_j n_j``.

    Its vertices are single atoms of length sigma. A step goes from x towards the vertex most
    correlated with ``t - x``, by exact line search; the weights are not rescaled at the end.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sigma = float(self.norms[self.usable].sum())

    def _scores(self) -> Array:
        return np.asarray((self.c - self.q) / self.norms)

    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        vertex = self.sigma / self.norms[atom]  # the atom's weight there
        if not self.started:
            w = np.zeros_like(self.w)
            w[atom] = vertex
            return w, vertex * column.astype(np.float64)
        # gamma = <v - x, t - x> / ||v - x||^2 for the vertex v, from inner products at hand.
        xx, xt = self.xx, self.xt
        vx, vt = vertex * self.q[atom], vertex * self.c[atom]
        width2 = self.sigma**2 - 2 * vx + xx
        gamma = np.clip((vt - vx - xt + xx) / width2, 0, 1) if width2 > 0 else 0.0
        w = (1 - gamma) * self.w
        w[atom] += gamma * vertex
        return w, (1 - gamma) * self.q + (gamma * vertex) * column


class Pursuit(Greedy):
    """Orthogonal matching pursuit with non-negative weights.

    Pick the atom most correlated with what is left of the target, then refit all weights. q is
    computed anew in every step, O(n_atoms s) for s atoms, which is what it costs more than GIGA. It
    is the strongest of the three for small sizes.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refit = GrowingNNLS(resolution=float(np.finfo(self.gram.dtype).eps))

    def _restricted_to(self, atoms: IntArray, G: Array) -> Self:
        part = super()._restricted_to(atoms, G)
        part.refit = self.refit.renamed({int(atom): k for k, atom in enumerate(atoms)})
        return part

    def _scores(self) -> Array:
        scores = np.asarray((self.c - self.q) / self.norms)
        scores[self.refit.atoms] = 0  # what is left is orthogonal to them up to rounding
        return scores

    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        products = column[self.refit.atoms]
        self.refit.enter(atom, products, self.norms[atom] ** 2, self.c[atom])
        w = np.zeros_like(self.w)
        w[self.refit.atoms] = self.refit.weights
        return w, self.gram.product(w)


SOLVERS: dict[str, type[Greedy]] = {"giga": Giga, "frank-wolfe": FrankWolfe, "pursuit": Pursuit}


def check_solver(solver: str) -> None:
    """Raise a ValueError that lists the solvers when `solver` is none of them."""
    if str(solver) not in SOLVERS:
        raise ValueError(f"Unknown solver {solver!r}: choose one of {', '.join(SOLVERS)}.")
