"""Solving ridge regression on moments: one penalty, or a whole path from one factorisation."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.linalg

from rfcdask.kernels.types import Array
from rfcdask.linear.moments import Moments


def check_alphas(alphas: Sequence[Any]) -> list[float]:
    """Return the penalties as numbers, or say which one is wrong."""
    values = list(alphas)
    if not values:
        raise ValueError("alphas is empty; give at least one penalty.")
    for value in values:
        real = isinstance(value, Real) and not isinstance(value, bool)
        if not real or not np.isfinite(float(value)) or float(value) < 0:
            raise ValueError(f"alpha={value!r} must be a finite number of at least 0.")
    return [float(value) for value in values]


def solve(moments: Moments, alpha: float, intercept: bool) -> tuple[Array, Array]:
    """Return coefficients of shape (J, T) and intercepts of shape (T,) for one penalty."""
    coef = _coefficients(*_system(moments, intercept), alpha)
    return coef, _intercept(moments, coef, intercept)


def _coefficients(gram: Array, cross: Array, alpha: float) -> Array:
    penalized = gram.copy()
    penalized[np.diag_indices_from(penalized)] += alpha
    # Columns in one unit: a large one must not make the others look as if they depended on it.
    units = _units(penalized)
    penalized /= units[:, None]
    penalized /= units
    scaled = cross / units[:, None]
    try:
        factor = scipy.linalg.cho_factor(penalized, lower=True)
        coef: Array = scipy.linalg.cho_solve(factor, scaled) / units[:, None]
        # A factor that barely exists solves nothing: tiny pivots mean columns that depend on
        # others, for which the smallest solution is the useful one.
        pivots = np.abs(np.diag(factor[0]))
        sound = pivots.min() > 1e-7 * pivots.max()
    except scipy.linalg.LinAlgError:
        sound = False
    if sound:
        return np.asarray(coef)
    if _alike(units):
        return Path(gram, cross).at(alpha)
    return np.asarray(Path(penalized, scaled).at(0.0) / units[:, None])


def _units(gram: Array) -> Array:
    units = np.sqrt(np.maximum(np.diag(gram), 0.0))
    return np.where(units == 0, 1.0, units)


def _alike(units: Array) -> bool:
    """Tell whether columns are so alike in size that one eigendecomposition serves them all."""
    return bool(units.max() <= 1e3 * units.min())


def choose(
    train: Moments, held_out: Moments, alphas: list[float], intercept: bool
) -> tuple[float, list[dict[str, float]]]:
    """Return the penalty with the smallest held-out error, and the error of each.

    Errors are mean squares over rows and targets, computed from the moments of the rows held out.
    """
    if train.weight == 0 or held_out.weight == 0:
        raise ValueError("Too few rows to hold some out; give one alpha instead of several.")
    gram, cross = _system(train, intercept)
    path = Path(gram, cross) if _alike(_units(gram)) else None
    errors = []
    for alpha in alphas:
        coef = _coefficients(gram, cross, alpha) if path is None else path.at(alpha)
        error = squared_error(held_out, coef, _intercept(train, coef, intercept))
        errors.append({"alpha": alpha, "held_out_error": error})
    best = min(errors, key=lambda entry: entry["held_out_error"])
    return best["alpha"], errors


class Path:
    """Ridge solutions for any penalty from one eigendecomposition."""

    def __init__(self, gram: Array, cross: Array) -> None:
        values, self.basis = scipy.linalg.eigh(gram)
        self.values = np.maximum(values, 0.0)
        self.inside = self.basis.T @ cross

    def at(self, alpha: float) -> Array:
        """Return the coefficients for one penalty."""
        floor = np.finfo(float).eps * len(self.values) * self.values[-1]
        shrunk = np.where(self.values > floor, self.values, 0.0) + alpha
        inverse = np.divide(1.0, shrunk, out=np.zeros_like(shrunk), where=shrunk > 0)
        coef: Array = self.basis @ (inverse[:, None] * self.inside)
        return coef


def squared_error(moments: Moments, coef: Array, intercept: Array) -> float:
    """Return the mean squared error of a model on the rows that moments describe."""
    bias = moments.target_mean - moments.mean @ coef - intercept
    residual = (
        moments.target_scatter
        - 2.0 * np.einsum("jt,jt->t", coef, moments.cross)
        + np.einsum("jt,jt->t", coef, moments.scatter @ coef)
    )
    return float(np.mean(residual / moments.weight + bias**2))


def _system(moments: Moments, intercept: bool) -> tuple[Array, Array]:
    return (moments.scatter, moments.cross) if intercept else moments.about_zero()


def _intercept(moments: Moments, coef: Array, intercept: bool) -> Array:
    if not intercept:
        return np.zeros(coef.shape[1])
    found: Array = moments.target_mean - moments.mean @ coef
    return found
