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
    out = np.empty_like(c)
    slope = alignment / length
    for j in range(len(c)):
        along = q[j] / (norms[j] * length)
        across2 = 1 - along * along
        angle = (c[j] - slope * q[j]) / (norms[j] * np.sqrt(max(across2, _PARALLEL)))
        # an atom along x itself has no direction on the sphere
        out[j] = angle if across2 > _PARALLEL else 0.0
    return out


class Giga(Greedy):
    """Greedy iterative geodesic ascent."""

    def _scores(self) -> Array:
        if not self.started:
            return np.asarray(self.c / self.norms)
        length = np.sqrt(self.xx)
        return np.asarray(_angles(self.c, self.q, self.norms, length, self.xt / length))

    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        n = float(self.norms[atom])
        keep, add = (0.0, 1.0) if not self.started else self._towards(atom, n)
        xt = keep * self.xt + add * self.c[atom]
        xx = keep**2 * self.xx + 2 * keep * add * self.q[atom] + (add * n) ** 2
        best = float(xt / xx)
        w, q = (keep * best) * self.w, (keep * best) * self.q
        w[atom] += add * best
        q += (add * best) * column
        return w, q

    def _towards(self, atom: int, n: float) -> tuple[float, float]:
        """Return the factor of x and the weight of the atom where the geodesic is nearest to t."""
        length, b = np.sqrt(self.xx), np.sqrt(self.norm2)
        a, s, h = self.c[atom] / (n * b), self.xt / (length * b), self.q[atom] / (n * length)
        to_atom, stay = float(a - s * h), float(s - a * h)
        return stay / length / (to_atom + stay), to_atom / n / (to_atom + stay)
