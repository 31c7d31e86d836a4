"""The inverse second moment of the features, from a few thousand rows, as a preconditioner.

Random features of one kernel are strongly correlated: the spectrum of Z^T Z / n falls over many
orders of magnitude and plain gradient descent crawls along its small directions. Steps in the
geometry of ``P = (H + delta I)^-1``, with H estimated on a sample, reach the accuracy of an exact
solver within a few epochs (compare Ma and Belkin, *Diving into the shallows*, 2017, who flatten
the top of the spectrum). Up to `FULL` features P is the whole matrix; beyond, the leading
directions only.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from rfcdask.kernels.types import Array
from rfcdask.linear.sgd.optimizer import Preconditioner

FULL = 1024
"""Up to this many features the preconditioner is a full matrix."""
DIRECTIONS = 512
"""Leading directions that are flattened beyond that."""
FLOOR = 1e-5
"""Directions below this part of the largest eigenvalue are left as they are."""


def rows_wanted(n_features: int) -> int:
    """Return how many rows make a sound estimate."""
    return max(4096, 10 * n_features) if n_features <= FULL else 4 * DIRECTIONS + 1024


def make_preconditioner(Z: Array, weights: Array, alpha: float, intercept: bool) -> Preconditioner:
    """Estimate the preconditioner.

    Parameters
    ----------
    Z : array of shape (m, J)
        Sampled rows, in random order.
    weights : array of shape (m,)
        Their sample weights.
    alpha : float
        Strength of the penalty, a lower bound of the damping.
    intercept : bool
        Whether the last, constant column is learned.

    Notes
    -----
    A fifth of the rows is kept out of H and shows how large rows really are in the new geometry.
    Where that is much more than on the rows H was made of (too few of them), damping grows.
    """
    rows = np.ones((len(Z), Z.shape[1] + 1))
    rows[:, :-1] = Z
    rows[:, -1] = float(intercept)
    rows *= np.sqrt(weights)[:, None]
    split = max(1, len(rows) - len(rows) // 5)
    values, basis, rest = _spectrum(rows[:split])
    held_out = rows[split:] if split < len(rows) else rows
    damping = max(alpha, FLOOR * values[-1], np.finfo(float).tiny)
    for _ in range(12):
        inverse = 1.0 / (values + damping)
        base = inverse[0] if rest else 0.0
        spread = _mean_square(held_out, basis, inverse, base)
        expected = float(values @ inverse) + rest * base
        if spread <= 2.0 * max(expected, 1.0):
            break
        damping *= 4.0
    return _pack(basis, inverse, base, spread)


def _spectrum(rows: Array) -> tuple[Array, Array, float]:
    """Return leading eigenvalues (ascending) and vectors of the second moment; what is left."""
    m, n_features = rows.shape
    if n_features <= FULL + 1:
        values, basis = scipy.linalg.eigh(rows.T @ rows / m)
        return np.maximum(values, 0.0), basis, 0.0
    rows = rows[: 4 * DIRECTIONS]
    kept = min(DIRECTIONS, len(rows))
    gram = rows @ rows.T / len(rows)
    values, left = scipy.linalg.eigh(gram, subset_by_index=[len(rows) - kept, len(rows) - 1])
    good = values > FLOOR**2 * values[-1]
    values, left = values[good], left[:, good]
    basis = rows.T @ (left / np.sqrt(values * len(rows)))
    return values, basis, max(float(np.trace(gram) - values.sum()), 0.0)


def _mean_square(rows: Array, basis: Array, inverse: Array, base: float) -> float:
    """Return the mean of z^T P z."""
    inside = np.square(rows @ basis)
    outside = base * np.maximum(np.square(rows).sum(1) - inside.sum(1), 0.0)
    return float(np.mean(inside @ inverse + outside))


def _pack(basis: Array, inverse: Array, base: float, spread: float) -> Preconditioner:
    full, kept, drop = np.zeros((0, 0)), basis, (base - inverse)[:, None]
    if base == 0.0:
        full, kept, drop = (basis * inverse) @ basis.T, basis[:, :0], drop[:0]
    return Preconditioner(
        np.ascontiguousarray(full, np.float32),
        np.ascontiguousarray(kept, np.float32),
        np.ascontiguousarray(drop, np.float32),
        float(base),
        float(spread),
    )
