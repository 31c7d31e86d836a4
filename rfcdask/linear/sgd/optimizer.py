"""The inner loop of stochastic gradient descent, in numba, without Dask and without the GIL.

A step takes a mini-batch of rows B, drawn from several blocks, and moves the coefficients by

    W <- W - eta_t P (Z_B^T D_B / |B| + alpha W)

with D the slopes of the loss and P a preconditioner (:mod:`rfcdask.linear.sgd.preconditioner`). It
is applied to the gradient, once a batch, and therefore costs about as much as the gradient itself.
The mean of the iterates, with later ones counting more, is kept beside W (Shamir and Zhang, 2013).
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from rfcdask.kernels.types import Array
from rfcdask.linear.sgd.losses import SQUARED, classification_slopes, regression_slopes

MIX = 8
"""Most blocks whose rows are mixed in one group; part of the kernel's type, so a constant."""

LATER_COUNTS_MORE = 8.0
"""Power with which the running mean prefers late iterates."""


class Group(NamedTuple):
    """Rows of several blocks in the order in which they are learned from."""

    blocks: tuple[Array, ...]  # exactly MIX arrays, padded with the last
    which: Array  # (n,) block of each row
    rows: Array  # (n,) row within its block
    codes: Array  # (n,) class of each row; empty for regression
    targets: Array  # (n, outputs); empty for classification
    weights: Array  # (n,) float32


class Pace(NamedTuple):
    """How far a step goes."""

    loss: int
    epsilon: float
    alpha: float
    eta: float
    horizon: float  # steps until eta reaches zero; 0 means unknown: eta / sqrt(1 + t / 200)
    batch: int
    constant: float  # value of the column behind the intercept: 1, or 0 for none


class Preconditioner(NamedTuple):
    """``P g = full @ g``, or ``base * g - basis @ (drop * (basis.T @ g))`` when that is empty."""

    full: Array  # (J + 1, J + 1) or (0, 0), float32
    basis: Array  # (J + 1, k) float32
    drop: Array  # (k, 1) float32
    base: float
    spread: float  # mean of z^T P z over rows: the noise that one row brings


@numba.njit(cache=True, nogil=True)
def descend(
    group: Group, W: Array, mean: Array, step: int, pace: Pace, P: Preconditioner
) -> tuple[int, int, float]:
    """Take all steps of one group, changing W and mean in place.

    Returns
    -------
    step : int
        The number of steps taken since the beginning.
    bad : int
        Position of the first row whose score is not finite, or -1.
    loss : float
        Summed loss of the rows, each at the moment it was seen.
    """
    n = group.rows.size
    one = W.shape[1] == 1
    buffer = np.full((0 if one else pace.batch, W.shape[0]), np.float32(pace.constant))
    slopes = np.zeros((pace.batch, W.shape[1]), np.float32)
    loss = 0.0
    for start in range(0, n, pace.batch):
        stop = min(start + pace.batch, n)
        Z, D = buffer[: stop - start], slopes[: stop - start]
        if one:
            scores = _scores_of_one(group, start, stop, W, pace.constant)
        else:
            _gather(group, start, stop, Z)
            scores = np.dot(Z, W.astype(np.float32))
        bad = _first_not_finite(scores)
        if bad >= 0:
            return step, start + bad, loss
        loss += _slopes(scores, group, start, stop, pace, D)
        gradient = _gradient_of_one(group, start, D, pace.constant) if one else np.dot(Z.T, D)
        gradient /= np.float32(stop - start)
        _add_penalty(gradient, W, pace.alpha)
        move = _precondition(P, gradient)
        eta = _eta(pace, step) * (stop - start) / pace.batch
        _advance(W, mean, move, eta, (LATER_COUNTS_MORE + 1) / (step + 1 + LATER_COUNTS_MORE))
        step += 1
    return step, -1, loss


# Sums over a row may be cut into lanes; the cut is the same every time, and NaN comes through.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _scores_of_one(group: Group, start: int, stop: int, W: Array, constant: float) -> Array:
    """Return the scores of one output, from the rows where they lie: a copy would cost more."""
    w = W[:, 0].astype(np.float32)
    last = w.size - 1
    out = np.empty((stop - start, 1), np.float32)
    for i in range(start, stop):
        block = group.blocks[group.which[i]]
        row = group.rows[i]
        total = np.float32(0)
        for j in range(last):
            total += np.float32(block[row, j]) * w[j]
        out[i - start, 0] = total + np.float32(constant) * w[last]
    return out


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _gradient_of_one(group: Group, start: int, slopes: Array, constant: float) -> Array:
    """Return ``Z^T slopes`` of one output; rows on which nothing is to be learned are left out."""
    last = group.blocks[0].shape[1]
    out = np.zeros(last + 1, np.float32)
    for i in range(slopes.shape[0]):
        slope = slopes[i, 0]
        if slope == 0:
            continue
        block = group.blocks[group.which[start + i]]
        row = group.rows[start + i]
        for j in range(last):
            out[j] += np.float32(block[row, j]) * slope
        out[last] += np.float32(constant) * slope
    return out.reshape(-1, 1)


@numba.njit(cache=True, nogil=True)
def _gather(group: Group, start: int, stop: int, out: Array) -> None:
    for i in range(start, stop):
        block = group.blocks[group.which[i]]
        row = group.rows[i]
        for j in range(block.shape[1]):
            out[i - start, j] = block[row, j]


@numba.njit(cache=True, nogil=True)
def _first_not_finite(scores: Array) -> int:
    for i in range(scores.shape[0]):
        for k in range(scores.shape[1]):
            if not np.isfinite(scores[i, k]):
                return i
    return -1


@numba.njit(cache=True, nogil=True)
def _slopes(scores: Array, group: Group, start: int, stop: int, pace: Pace, out: Array) -> float:
    weights = group.weights[start:stop]
    if pace.loss >= SQUARED:
        targets = group.targets[start:stop]
        return regression_slopes(scores, targets, weights, pace.loss, pace.epsilon, out)
    return classification_slopes(scores, group.codes[start:stop], weights, pace.loss, out)


@numba.njit(cache=True, nogil=True)
def _add_penalty(gradient: Array, W: Array, alpha: float) -> None:
    for j in range(W.shape[0] - 1):  # the last row is the intercept
        for k in range(W.shape[1]):
            gradient[j, k] += np.float32(alpha * W[j, k])


@numba.njit(cache=True, nogil=True)
def _precondition(P: Preconditioner, gradient: Array) -> Array:
    move: Array
    if P.full.shape[0]:
        move = np.dot(P.full, gradient)
    else:
        inside = np.dot(P.basis.T, gradient) * P.drop
        move = np.float32(P.base) * gradient - np.dot(P.basis, inside)
    return move


@numba.njit(cache=True, nogil=True)
def _eta(pace: Pace, step: int) -> float:
    if pace.horizon > 0:
        return pace.eta * max(1.0 - step / pace.horizon, 0.0)
    return float(pace.eta / np.sqrt(1.0 + step / 200.0))


@numba.njit(cache=True, nogil=True)
def _advance(W: Array, mean: Array, move: Array, eta: float, share: float) -> None:
    for j in range(W.shape[0]):
        for k in range(W.shape[1]):
            W[j, k] -= eta * move[j, k]
            mean[j, k] += share * (W[j, k] - mean[j, k])
