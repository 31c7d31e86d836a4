"""Steps of stochastic gradient descent on wide CSR rows, which never become dense; without Dask.

With tens of thousands of columns the second moment of the rows is no matrix that fits in memory.
Its diagonal is: steps go along ``P = c (h + delta)^(-1/2)``, with h the mean square of each column
estimated on a few thousand rows, as in AdaGrad (Duchi, Hazan and Singer, 2011), so that rare
columns are learned as fast as frequent ones. ``delta`` is what one more value in the column would
add, and c makes the largest eigenvalue of ``P^(1/2) H P^(1/2)`` one, as it is for the full matrix:
the same learning rates fit both.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import numpy as np

from rfcdask.kernels.arrays import CSR, Array, is_sparse
from rfcdask.kernels.compiled import compiled
from rfcdask.linear.sgd.losses import Targets
from rfcdask.linear.sgd.optimizer import (
    AVERAGE_POWER,
    FULL_FEATURES,
    StepParameters,
    add_penalty,
    advance,
    first_not_finite,
    learning_rate,
    slopes_of,
)

POWER_STEPS = 30
"""Steps of the power method: the first digits of the largest eigenvalue are enough."""


class DiagonalPreconditioner(NamedTuple):
    """``P g = diagonal * g``."""

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
