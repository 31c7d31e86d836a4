"""Frank-Wolfe on the polytope sum_j n_j w_j = sigma [1]_ in Gram form.

References
----------
.. [1] Campbell, T. and Broderick, T. (2019). Automated scalable Bayesian inference via Hilbert
   coresets. JMLR.
"""

from __future__ import annotations

import numpy as np

from rfcdask._types import Array
from rfcdask.selection.greedy import Greedy


class FrankWolfe(Greedy):
    """Frank-Wolfe with exact line search; the weights are not rescaled at the end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sigma = float(self.norms[self.alive].sum())

    def _scores(self) -> Array:
        return np.asarray((self.c - self.q) / self.norms)

    def _moved(self, atom: int, column: Array) -> tuple[Array, Array]:
        vertex = self.sigma / self.norms[atom]
        if not self.started:
            w = np.zeros_like(self.w)
            w[atom] = vertex
            return w, vertex * column.astype(np.float64)
        xx, xt = self.xx, self.xt
        vx, vt = vertex * self.q[atom], vertex * self.c[atom]
        width2 = self.sigma**2 - 2 * vx + xx
        gamma = np.clip((vt - vx - xt + xx) / width2, 0, 1) if width2 > 0 else 0.0
        w = (1 - gamma) * self.w
        w[atom] += gamma * vertex
        return w, (1 - gamma) * self.q + (gamma * vertex) * column
