"""Steps of preconditioned, averaged stochastic gradient descent: numpy and numba, without Dask.

A step takes a mini-batch of rows B, drawn from several blocks, and moves the coefficients by

    W <- W - eta_t P (Z_B^T D_B / |B| + alpha W)

with D the slopes of the loss and P a preconditioner. It is applied to the gradient, once per batch,
and therefore costs about as much as the gradient itself. The mean of the iterates, with later ones
counting more, is kept beside W (Shamir and Zhang, 2013).

Random features of one kernel are strongly correlated: the spectrum of Z^T Z / n falls over many
orders of magnitude and plain gradient descent crawls along its small directions. Steps in the
geometry of ``P = (H + delta I)^-1``, with H the second moment estimated on a few thousand rows,
reach the accuracy of an exact solver within a few epochs (compare Ma and Belkin, *Diving into the
shallows*, 2017, who flatten the top of the spectrum). Up to `FULL_FEATURES` features P is the whole
matrix; beyond, the leading directions only.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import numpy as np
import scipy.linalg

from rfcdask.kernels.arrays import CSR, Array, is_sparse
from rfcdask.kernels.runtime import compiled
from rfcdask.linear.sgd.losses import Targets, slopes_of_heads

AVERAGE_POWER = 8.0
"""Power with which the running mean prefers late iterates."""
FULL_FEATURES = 1024
"""Up to this many features the preconditioner is a full matrix."""
LEADING_DIRECTIONS = 512
"""Leading directions that are flattened beyond that."""
SMALLEST_EIGENVALUE = 1e-5
"""Directions below this part of the largest eigenvalue are left as they are."""


class StepParameters(NamedTuple):
    """What the steps of a run have in common."""

    loss: int
    epsilon: float
    n_outputs: int  # of one model; several may stand side by side
    penalties: Array  # (columns of W,)
    eta: float
    n_steps: float  # until eta has fallen to zero; 0 means unknown: eta / sqrt(1 + t / 200)
    batch_size: int
    curvature: float  # of losses whose slopes grow with the miss, else 0
    constant: float  # value of the column behind the intercept: 1, or 0 for none


class Preconditioner(NamedTuple):
    """``P g = full @ g``, or ``base * g - basis @ (drop * (basis.T @ g))`` when that is empty."""

    full: Array  # (J + 1, J + 1) or (0, 0), float32
    basis: Array  # (J + 1, k) float32
    drop: Array  # (k, 1) float32
    base: float
    spread: float  # mean of z^T P z over rows: the noise that one row brings


@compiled()
def run_steps(
    Z: Array,
    targets: Targets,
    W: Array,
    mean: Array,
    step: int,
    params: StepParameters,
    P: Preconditioner,
) -> tuple[int, int, float]:
    """Take one step for each mini-batch of rows, changing W and mean in place.

    Parameters
    ----------
    Z : array of shape (n, J)
        Rows in the order in which they are learned from, float32.
    targets, W, mean, step, params, P
        What is known of the rows, the model and its mean, and how steps are taken.

    Returns
    -------
    step : int
        The number of steps taken since the beginning.
    bad : int
        Position of the first row whose score is not finite, or -1.
    loss : float
        Summed loss of the rows, each at the moment it was seen.
    """
    n, last = Z.shape
    one = W.shape[1] == 1
    slopes = np.zeros((params.batch_size, W.shape[1]), np.float32)
    gradient, w = np.zeros(W.shape, np.float32), np.empty(W.shape, np.float32)
    constant = np.float32(params.constant)
    loss = 0.0
    for start in range(0, n, params.batch_size):
        stop = min(start + params.batch_size, n)
        rows, D = Z[start:stop], slopes[: stop - start]
        for j in range(last + 1):
            for k in range(W.shape[1]):
                w[j, k] = np.float32(W[j, k])
        scores = _scores_of_one_output(rows, w) if one else np.dot(rows, w[:last])
        for i in range(stop - start):
            for k in range(W.shape[1]):
                scores[i, k] += constant * w[last, k]
        bad = first_not_finite(scores)
        if bad >= 0:
            return step, start + bad, loss
        loss += slopes_of(scores, targets, start, stop, params, D)
        products = _gradient_of_one_output(rows, D) if one else np.dot(rows.T, D)
        _mean_gradient(products, D, constant, gradient)
        add_penalty(gradient, W, params.penalties)
        move = _precondition(P, gradient)
        eta = learning_rate(params, step) * (stop - start) / params.batch_size
        if params.curvature > 0:
            weights = targets.weights[start:stop]
            _shorten(move, gradient, rows, D, weights, eta * params.curvature, params.constant)
        advance(W, mean, move, eta, (AVERAGE_POWER + 1) / (step + 1 + AVERAGE_POWER))
        step += 1
    return step, -1, loss


# Sums over a row may be cut into lanes; the cut is the same every time, and NaN comes through.
@compiled(fastmath={"reassoc", "contract"})
def _scores_of_one_output(rows: Array, w: Array) -> Array:
    """Return ``rows @ w[:-1]`` of one output, for which BLAS is no faster."""
    out = np.empty((rows.shape[0], 1), np.float32)
    for i in range(rows.shape[0]):
        total = np.float32(0)
        for j in range(rows.shape[1]):
            total += rows[i, j] * w[j, 0]
        out[i, 0] = total
    return out


@compiled(fastmath={"contract"})
def _gradient_of_one_output(rows: Array, slopes: Array) -> Array:
    """Return ``rows^T slopes`` of one output; rows with nothing to be learned are left out."""
    out = np.zeros(rows.shape[1], np.float32)
    for i in range(rows.shape[0]):
        slope = slopes[i, 0]
        if slope != 0:
            for j in range(rows.shape[1]):
                out[j] += rows[i, j] * slope
    return out.reshape(-1, 1)


@compiled()
def first_not_finite(scores: Array) -> int:
    """Return the first row with a score that is not finite, or -1."""
    for i in range(scores.shape[0]):
        for k in range(scores.shape[1]):
            if not np.isfinite(scores[i, k]):
                return i
    return -1


@compiled()
def slopes_of(
    scores: Array, targets: Targets, start: int, stop: int, params: StepParameters, out: Array
) -> float:
    """Write the slopes of the loss at the scores of some rows, and return the summed loss."""
    k, epsilon = params.n_outputs, params.epsilon
    return slopes_of_heads(scores, targets, start, params.loss, epsilon, k, out)


@compiled()
def _mean_gradient(products: Array, slopes: Array, constant: float, out: Array) -> None:
    """Write the mean of ``rows^T slopes``, and below it that of the constant column."""
    n, last = np.float32(slopes.shape[0]), products.shape[0]
    for k in range(products.shape[1]):
        total = np.float32(0)
        for i in range(slopes.shape[0]):
            total += slopes[i, k]
        out[last, k] = constant * total / n
    for j in range(last):
        for k in range(products.shape[1]):
            out[j, k] = products[j, k] / n


@compiled()
def add_penalty(gradient: Array, W: Array, penalties: Array) -> None:
    """Add the slope of the penalty, which leaves the intercepts alone."""
    for j in range(W.shape[0] - 1):  # the last row is the intercept
        for k in range(W.shape[1]):
            gradient[j, k] += np.float32(penalties[k] * W[j, k])


@compiled()
def _precondition(P: Preconditioner, gradient: Array) -> Array:
    if P.full.shape[0]:
        return np.dot(P.full, gradient)
    inside = np.dot(P.basis.T, gradient)
    for i in range(inside.shape[0]):
        for k in range(inside.shape[1]):
            inside[i, k] *= P.drop[i, 0]
    move: Array = np.dot(P.basis, inside)
    base = np.float32(P.base)
    for j in range(move.shape[0]):
        for k in range(move.shape[1]):
            move[j, k] = base * gradient[j, k] - move[j, k]
    return move


@compiled()
def _shorten(
    move: Array,
    gradient: Array,
    rows: Array,
    slopes: Array,
    weights: Array,
    curvature: float,
    constant: float,
) -> None:
    """Let no step pass the minimum of the batch's own parabola along it.

    A row that is unlike those the preconditioner was estimated on may be moved much too far, and
    where slopes grow with the miss, the next step would be longer still.
    """
    last = rows.shape[1]
    change = np.dot(rows, move[:last])
    for k in range(move.shape[1]):
        gain, bend = 0.0, 0.0
        for j in range(move.shape[0]):
            gain += gradient[j, k] * move[j, k]
        for i in range(rows.shape[0]):
            if slopes[i, k] != 0:
                bend += curvature * weights[i] * (change[i, k] + constant * move[last, k]) ** 2
        bend /= rows.shape[0]
        if gain < bend:
            share = np.float32(gain / bend)
            for j in range(move.shape[0]):
                move[j, k] *= share


@compiled()
def learning_rate(params: StepParameters, step: int) -> float:
    """Return the size of a step: it falls to zero, or slowly where nobody knows the end."""
    if params.n_steps > 0:
        return params.eta * max(1.0 - step / params.n_steps, 0.0)
    return float(params.eta / np.sqrt(1.0 + step / 200.0))


@compiled()
def advance(W: Array, mean: Array, move: Array, eta: float, share: float) -> None:
    """Take a step, and let it count in the mean."""
    for j in range(W.shape[0]):
        for k in range(W.shape[1]):
            W[j, k] -= eta * move[j, k]
            mean[j, k] += share * (W[j, k] - mean[j, k])


def preconditioner_rows(n_features: int) -> int:
    """Return how many rows make a sound estimate of the preconditioner."""
    if n_features <= FULL_FEATURES:
        return max(4096, 10 * n_features)
    return 4 * LEADING_DIRECTIONS + 1024


def fit_preconditioner(
    Z: Array, weights: Array, alpha: float, intercept: bool, whole: bool = False
) -> Preconditioner:
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
    whole : bool
        Whether these are all rows there are, so that there are no others to be wrong about.

    Notes
    -----
    A fifth of the rows is kept out of H and shows how large rows really are in the new geometry.
    Where that is much more than on the rows H was made of (too few of them), damping grows.
    """
    rows = np.ones((len(Z), Z.shape[1] + 1))
    rows[:, :-1] = Z
    rows[:, -1] = float(intercept)
    rows *= np.sqrt(weights)[:, None]
    split = len(rows) if whole else max(1, len(rows) - len(rows) // 5)
    values, basis, rest = _spectrum(rows[:split])
    held_out = rows[split:] if split < len(rows) else rows
    inside = np.square(held_out @ basis)
    outside = np.maximum(np.square(held_out).sum(1) - inside.sum(1), 0.0).mean()
    inside = inside.mean(0)
    damping = max(alpha, SMALLEST_EIGENVALUE * values[-1], np.finfo(float).tiny)
    for _ in range(12):
        inverse = 1.0 / (values + damping)
        base = inverse[0] if rest else 0.0
        spread = float(inside @ inverse + base * outside)  # the mean of z^T P z
        expected = float(values @ inverse) + rest * base
        if spread <= 2.0 * max(expected, 1.0):
            break
        damping *= 4.0
    return _pack(basis, inverse, base, spread)


def _spectrum(rows: Array) -> tuple[Array, Array, float]:
    """Return leading eigenvalues (ascending) and vectors of the second moment; what is left."""
    m, n_features = rows.shape
    if n_features <= FULL_FEATURES + 1:
        # Half of a symmetric product, and the driver that is faster where all vectors are wanted.
        moment = scipy.linalg.blas.dsyrk(1.0 / m, rows.T, lower=1)
        values, basis = scipy.linalg.eigh(moment, driver="evd", overwrite_a=True)
        return np.maximum(values, 0.0), basis, 0.0
    rows = rows[: 4 * LEADING_DIRECTIONS]
    kept = min(LEADING_DIRECTIONS, len(rows))
    gram = rows @ rows.T / len(rows)
    values, left = scipy.linalg.eigh(gram, subset_by_index=[len(rows) - kept, len(rows) - 1])
    good = values > SMALLEST_EIGENVALUE**2 * values[-1]
    values, left = values[good], left[:, good]
    basis = rows.T @ (left / np.sqrt(values * len(rows)))
    return values, basis, max(float(np.trace(gram) - values.sum()), 0.0)


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


POWER_STEPS = 30
"""Steps of the power method: the first digits of the largest eigenvalue are enough."""


class DiagonalPreconditioner(NamedTuple):
    """``P g = diagonal * g``, for wide CSR rows, which never become dense.

    With tens of thousands of columns the second moment of the rows is no matrix that fits in
    memory. Its diagonal is: steps go along ``P = c (h + delta)^(-1/2)``, with h the mean square of
    each column estimated on a few thousand rows, as in AdaGrad (Duchi, Hazan and Singer, 2011), so
    that rare columns are learned as fast as frequent ones. ``delta`` is what one more value in the
    column would add, and c makes the largest eigenvalue of ``P^(1/2) H P^(1/2)`` one, as it is for
    the full matrix: the same learning rates fit both.
    """

    diagonal: Array  # (J + 1, 1) float32
    spread: float  # mean of z^T P z over rows: the noise that one row brings


def stays_sparse(X: Any) -> TypeGuard[CSR]:
    """Tell whether rows are CSR with more columns than a full preconditioner has."""
    return is_sparse(X) and int(X.shape[1]) > FULL_FEATURES


def fit_diagonal(Z: CSR, weights: Array, intercept: bool) -> DiagonalPreconditioner:
    """Estimate the preconditioner from sampled rows and their sample weights."""
    m = Z.shape[0]
    rows = Z.astype(np.float64)
    squares = rows.multiply(rows).T @ weights.astype(np.float64) / m
    squares = np.append(squares, intercept * weights.mean())
    typical = float(np.mean(rows.data**2)) if rows.nnz else 1.0
    P = 1.0 / np.sqrt(squares + max(typical / m, 1e-30))
    P[-1] *= intercept
    root, scale = np.sqrt(P), np.sqrt(weights / m)
    direction = root.copy()
    largest = 1.0
    for _ in range(POWER_STEPS):
        v = root * direction / max(float(np.linalg.norm(direction)), 1e-30)
        scores = (rows @ v[:-1] + intercept * v[-1]) * scale
        direction = root * np.append(rows.T @ (scores * scale), intercept * (scores @ scale))
        largest = max(float(np.linalg.norm(direction)), 1e-30)
    P /= largest
    diagonal = np.ascontiguousarray(P[:, None], np.float32)
    return DiagonalPreconditioner(diagonal, float(squares @ P))


def run_sparse_steps(
    Z: CSR,
    targets: Targets,
    W: Array,
    mean: Array,
    step: int,
    params: StepParameters,
    P: DiagonalPreconditioner,
) -> tuple[int, int, float]:
    """Do what :func:`rfcdask.linear.sgd.optimizer.run_steps` does, on CSR rows in float32."""
    arrays = np.asarray(Z.indptr), np.asarray(Z.indices), np.asarray(Z.data)
    found: tuple[int, int, float] = _run(*arrays, targets, W, mean, step, params, P.diagonal)
    return found


@compiled()
def _run(  # type: ignore[no-untyped-def]
    indptr, indices, data, targets, W, mean, step, params, diagonal
):
    n, last, n_outputs = len(indptr) - 1, W.shape[0] - 1, W.shape[1]
    slopes = np.zeros((params.batch_size, n_outputs), np.float32)
    scores = np.zeros((params.batch_size, n_outputs), np.float32)
    gradient = np.zeros(W.shape, np.float32)
    constant = np.float32(params.constant)
    loss = 0.0
    for start in range(0, n, params.batch_size):
        stop = min(start + params.batch_size, n)
        D, S = slopes[: stop - start], scores[: stop - start]
        for i in range(start, stop):
            S[i - start] = constant * W[last]
            for place in range(indptr[i], indptr[i + 1]):
                for k in range(n_outputs):
                    S[i - start, k] += data[place] * W[indices[place], k]
        bad = first_not_finite(S)
        if bad >= 0:
            return step, start + bad, loss
        loss += slopes_of(S, targets, start, stop, params, D)
        gradient[:] = 0
        share = np.float32(1.0 / (stop - start))
        for i in range(start, stop):
            for k in range(n_outputs):
                slope = D[i - start, k] * share
                if slope != 0:
                    gradient[last, k] += constant * slope
                    for place in range(indptr[i], indptr[i + 1]):
                        gradient[indices[place], k] += data[place] * slope
        add_penalty(gradient, W, params.penalties)
        gradient *= diagonal
        eta = learning_rate(params, step) * (stop - start) / params.batch_size
        advance(W, mean, gradient, eta, (AVERAGE_POWER + 1) / (step + 1 + AVERAGE_POWER))
        step += 1
    return step, -1, loss
