"""Non-negative least squares over a growing set of atoms, in Gram form.

An active-set method (Lawson and Hanson) with one Cholesky factor of the Gram matrix of the atoms in
the set. The factor grows by a row when an atom enters and is rotated back to triangular form when
one leaves: O(s^2) for a set of s atoms either way, where solving anew would cost O(s^3).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import numpy as np

from rfcdask.kernels.arrays import Array
from rfcdask.kernels.compiled import compiled


class GrowingNNLS:
    """Minimise ``||t - sum_j w_j R_j||`` over w >= 0 for the atoms entered so far.

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
