"""GIGA: greedy iterative geodesic ascent [1]_ in Gram form.

On the unit sphere, move x along the geodesic towards the atom whose direction there is closest to
that of the target, then scale x to the best length. One step costs one column of G.

References
----------
.. [1] Campbell, T. and Broderick, T. (2018). Bayesian coreset construction via greedy iterative
   geodesic ascent. ICML.
"""

from __future__ import annotations

import numba
import numpy as np

from rfcdask._types import Array
from rfcdask.selection.greedy import Greedy

_PARALLEL = 1e-12


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _angles(c: Array, q: Array, norms: Array, length: float, alignment: float) -> Array:
    """Return how near each atom's direction from x on the sphere is to the target's."""
    out = np.zeros_like(c)
    for j in range(len(c)):
        along = q[j] / (norms[j] * length)
        across2 = 1 - along * along
        if across2 > _PARALLEL:  # an atom along x itself has no direction on the sphere
            out[j] = (c[j] - alignment * q[j] / length) / (norms[j] * np.sqrt(across2))
    return out


class Giga(Greedy):
    """Greedy iterative geodesic ascent."""

    def _scores(self) -> Array:
        if not self.w.any():
            return np.asarray(self.c / self.norms)
        length = np.sqrt(self.w @ self.q)
        alignment = self.w @ self.c / length
        return np.asarray(_angles(self.c, self.q, self.norms, length, alignment))

    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        n, b = self.norms[atom], np.sqrt(self.norm2)
        w, q = self.w.copy(), self.q.copy()
        if not w.any():
            w[atom], q = 1.0, column.astype(np.float64)
        else:
            length = np.sqrt(w @ q)
            a, s, h = self.c[atom] / (n * b), w @ self.c / (length * b), q[atom] / (n * length)
            to_atom, stay = a - s * h, s - a * h
            w *= stay / length / (to_atom + stay)
            q *= stay / length / (to_atom + stay)
            w[atom] += to_atom / n / (to_atom + stay)
            q += (to_atom / n / (to_atom + stay)) * column
        best = (w @ self.c) / (w @ q)
        return w * best, q * best
