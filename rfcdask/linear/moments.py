"""Means and scatter of features and targets, and the ridge regressions that follow from them.

Moments of two sets of rows add up exactly (Chan, Golub and LeVeque, 1983), so blocks, stores and
days can be counted apart and merged. Everything is kept about the mean and in float64; products
of float32 rows are formed in float32, a few thousand rows at a time, and summed in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg

from rfcdask.features.evaluators import FeatureRows
from rfcdask.kernels.arrays import LEAST_SQUARE, Array, vary
from rfcdask.kernels.runtime import compiled
from rfcdask.kernels.seeds import held_out_by_number
from rfcdask.linear.rows import check_block_weights, dense, encode_labels, find_not_finite

TILE = 4096
"""Rows whose products are summed in the precision of the data."""
FEW = 64
"""Rows whose products with the targets are summed in the precision of the data."""
FAR = 10.0
"""Squared mean over variance from which rows are moved towards zero before they are squared."""
LEAST_SHARE = 1e-6
"""Squares of the columns over the penalty, below which it leaves a constant model."""
FAR_ALONE = 1000.0
"""The same for a single column."""


class Moments(NamedTuple):
    """First and second moments of rows (z, y).

    Attributes
    ----------
    rows : int
        Number of rows.
    weight : float
        Sum of their weights.
    mean : array of shape (J,)
    scatter : array of shape (J, J)
        Weighted sum of ``(z - mean) (z - mean)^T``.
    target_mean : array of shape (T,)
    cross : array of shape (J, T)
        Weighted sum of ``(z - mean) (y - target_mean)^T``.
    target_scatter : array of shape (T,)
        Weighted sums of squares of ``y - target_mean``.
    """

    rows: int
    weight: float
    mean: Array
    scatter: Array
    target_mean: Array
    cross: Array
    target_scatter: Array

    @classmethod
    def empty(cls, n_features: int, n_targets: int = 0) -> Self:
        """Return the moments of no rows."""
        return cls(
            0,
            0.0,
            np.zeros(n_features),
            np.zeros((n_features, n_features)),
            np.zeros(n_targets),
            np.zeros((n_features, n_targets)),
            np.zeros(n_targets),
        )

    @classmethod
    def of(cls, Z: Array | FeatureRows, Y: Array, weights: Array | None = None) -> Self:
        """Return the moments of some rows; Y of shape (n, T), where T may be 0."""
        weight = float(len(Z)) if weights is None else float(weights.sum(dtype=np.float64))
        if weight <= 0.0:
            return cls.empty(Z.shape[1], Y.shape[1])._replace(rows=len(Z))
        counted = np.ones(len(Z)) if weights is None else weights.astype(np.float64)
        target_mean = counted @ Y / weight
        shift = _shift(Z)
        # Powers of two change no digit, and let targets of any size be products in float32.
        powers = np.frexp(np.abs(Y - target_mean).max(axis=0, initial=0.0))[1]
        scatter, cross, total = _products(Z, shift, np.ldexp(Y - target_mean, -powers), weights)
        cross = np.ldexp(cross, powers)
        mean = total / weight
        scatter -= weight * np.outer(mean, mean)
        if not isinstance(Z, FeatureRows) and np.diag(scatter).max() < LEAST_SQUARE and vary(Z):
            scatter[np.diag_indices_from(scatter)] += np.finfo(float).tiny  # rows that vary
        spread = counted @ np.square(Y - target_mean)
        if shift is not None:
            mean += shift
        return cls(len(Z), weight, mean, scatter, target_mean, cross, spread)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows; neither is changed."""
        if self.mean.shape != other.mean.shape or self.cross.shape != other.cross.shape:
            raise ValueError(
                f"Moments of {self.cross.shape} features and targets cannot be merged with those "
                f"of {other.cross.shape}; both must come from the same feature map and targets."
            )
        weight = self.weight + other.weight
        if weight == 0.0:
            return self._replace(rows=self.rows + other.rows)
        share = other.weight / weight
        apart, target_apart = other.mean - self.mean, other.target_mean - self.target_mean
        between = self.weight * share
        scatter = np.multiply.outer(between * apart, apart)
        scatter += self.scatter
        scatter += other.scatter
        return Moments(
            self.rows + other.rows,
            weight,
            self.mean + share * apart,
            scatter,
            self.target_mean + share * target_apart,
            self.cross + other.cross + between * np.outer(apart, target_apart),
            self.target_scatter + other.target_scatter + between * target_apart**2,
        )


def _shift(Z: Array | FeatureRows) -> Array | None:
    """Return a point near the mean when rows lie so far from zero that squares would cancel."""
    few = Z[:256].astype(np.float64)
    mean, variance = few.mean(0), few.var(0)
    squares = mean**2
    near = squares.sum() <= FAR * max(variance.sum(), np.finfo(float).tiny)
    # A column may lie far off by itself, beside others that spread widely.
    near = near and bool(np.all(squares <= FAR_ALONE * variance))
    return None if near else mean.astype(Z.dtype)


def _products(
    Z: Array | FeatureRows, shift: Array | None, Y: Array, weights: Array | None
) -> tuple[Array, Array, Array]:
    """Return weighted sums of z z^T, z y^T and z over rows moved by `shift`; Y has mean zero."""
    scatter = np.zeros((Z.shape[1], Z.shape[1]))
    sums = np.zeros((Y.shape[1] + 1, Z.shape[1]))
    for start in range(0, len(Z), TILE):
        part = Z[start : start + TILE]
        if shift is not None:
            part = part - shift
        columns = np.ones((len(part), Y.shape[1] + 1), Z.dtype)
        columns[:, :-1] = Y[start : start + TILE]
        if weights is not None:
            root = np.sqrt(weights[start : start + TILE]).astype(Z.dtype)[:, None]
            part, columns = part * root, columns * root
        # numpy sees that both are one matrix and computes half (syrk); scipy's holds the GIL.
        products = part.T @ part
        if part.dtype == np.float32 and _leave_float32(products, part):
            part = part.astype(np.float64)
            products = part.T @ part
        scatter += products
        _add_cross(part, columns.astype(part.dtype, copy=False), sums)
    return scatter, sums[:-1].T, sums[-1]


def _leave_float32(products: Array, rows: Array) -> bool:
    """Tell whether squares of finite rows overflowed, or vanished although a column has values."""
    squares = np.diag(products)
    if not np.isfinite(squares).all():
        return bool(np.isfinite(rows).all())
    small = squares < 1e-30
    return bool(small.any() and rows[:, small].any())


@compiled(fastmath={"contract"})
def _add_cross(rows: Array, columns: Array, out: Array) -> None:
    """Add ``columns^T rows`` to `out`, in one pass over the rows."""
    few = np.empty((columns.shape[1], rows.shape[1]), rows.dtype)
    for start in range(0, len(rows), FEW):
        few[:] = 0
        for i in range(start, min(start + FEW, len(rows))):
            for k in range(columns.shape[1]):
                factor = columns[i, k]
                for j in range(rows.shape[1]):
                    few[k, j] += factor * rows[i, j]
        for k in range(columns.shape[1]):
            for j in range(rows.shape[1]):
                out[k, j] += few[k, j]


def check_squares(moments: Moments, alpha: float = 0.0) -> None:
    """Raise where rows vary by so little that squares lose it, warn where a penalty leaves none."""
    squares = float(np.trace(moments.scatter))
    if 0 < squares < LEAST_SQUARE * min(moments.weight, 1.0):
        raise ValueError(
            "X varies by less than 1e-145, which cannot be squared; scale X first "
            "(rfcdask.Standardizer)."
        )
    rounding = 1e-20 * moments.weight * float(moments.mean @ moments.mean)
    if rounding < squares < LEAST_SHARE * alpha:
        warnings.warn(
            f"The columns of X are so small that alpha={alpha:.2g} leaves a constant model; scale "
            "X first (rfcdask.Standardizer), or lower alpha.",
            UserWarning,
            stacklevel=4,
        )


def solve_ridge(moments: Moments, alpha: float, intercept: bool) -> tuple[Array, Array]:
    """Return coefficients of shape (J, T) and intercepts of shape (T,) for one penalty."""
    coef = _coefficients(*_normal_equations(moments, intercept), alpha)
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
    if _are_similar(units):
        return RidgePath(gram, cross).at(alpha)
    return np.asarray(RidgePath(penalized, scaled).at(0.0) / units[:, None])


def _units(gram: Array) -> Array:
    units = np.sqrt(np.maximum(np.diag(gram), 0.0))
    return np.where(units == 0, 1.0, units)


def _are_similar(units: Array) -> bool:
    """Tell whether columns are so alike in size that one eigendecomposition serves them all."""
    return bool(units.max() <= 1e3 * units.min())


def choose_alpha(
    train: Moments, held_out: Moments, alphas: list[float], intercept: bool
) -> tuple[float, list[dict[str, float]]]:
    """Return the penalty with the smallest held-out error, and the error of each.

    Errors are mean squares over rows and targets, computed from the moments of the rows held out.
    """
    if train.weight == 0 or held_out.weight == 0:
        raise ValueError("Too few rows to hold some out; give one alpha instead of several.")
    gram, cross = _normal_equations(train, intercept)
    path = RidgePath(gram, cross) if _are_similar(_units(gram)) else None
    errors = []
    for alpha in alphas:
        coef = _coefficients(gram, cross, alpha) if path is None else path.at(alpha)
        error = _squared_error(held_out, coef, _intercept(train, coef, intercept))
        errors.append({"alpha": alpha, "held_out_error": error})
    best = min(errors, key=lambda entry: entry["held_out_error"])
    return best["alpha"], errors


class RidgePath:
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
        return np.asarray(self.basis @ (inverse[:, None] * self.inside))


def _squared_error(moments: Moments, coef: Array, intercept: Array) -> float:
    """Return the mean squared error of a model on the rows that the moments describe."""
    bias = moments.target_mean - moments.mean @ coef - intercept
    residual = (
        moments.target_scatter
        - 2.0 * np.einsum("jt,jt->t", coef, moments.cross)
        + np.einsum("jt,jt->t", coef, moments.scatter @ coef)
    )
    return float(np.mean(residual / moments.weight + bias**2))


def _normal_equations(moments: Moments, intercept: bool) -> tuple[Array, Array]:
    """Return Z^T Z and Z^T Y, about the means where there is an intercept."""
    if intercept:
        return moments.scatter, moments.cross
    gram = moments.scatter + moments.weight * np.outer(moments.mean, moments.mean)
    cross = moments.cross + moments.weight * np.outer(moments.mean, moments.target_mean)
    return gram, cross


def _intercept(moments: Moments, coef: Array, intercept: bool) -> Array:
    if not intercept:
        return np.zeros(coef.shape[1])
    return np.asarray(moments.target_mean - moments.mean @ coef)


Split = tuple[Moments | None, Moments | None]
"""Moments of the rows to learn from and of those held out; None stands for no rows yet."""


@dataclass(frozen=True)
class AddBlock:
    """Adds one block to the moments; a pure function that travels to the workers."""

    n_targets: int
    starts: Array
    weighted: bool
    validation_fraction: float
    seed: int
    classes: Array | None
    class_weights: Array | None

    def __call__(self, state: Split, block: tuple[Any, ...], index: int) -> Split:
        """Return the moments with those of one more block."""
        Z = block[0] if isinstance(block[0], FeatureRows) else dense(block[0])
        Y, weights = self._targets(block, len(Z), index)
        start = int(self.starts[index])
        try:
            return self._split(state, Z, Y, weights, start)
        except FloatingPointError:
            raise find_not_finite(np.asarray(Z), Y, index, start) or ValueError(
                f"Sums of squares overflow in block {index}; scale the columns of X, or y, down."
            ) from None

    def _split(
        self, state: Split, Z: Array | FeatureRows, Y: Array, weights: Array | None, start: int
    ) -> Split:
        if not self.validation_fraction:
            return _add(state[0], Z, Y, weights), state[1]
        held_out = held_out_by_number(start, len(Z), self.validation_fraction, self.seed)
        parts = []
        for old, rows in zip(state, (~held_out, held_out), strict=True):
            some = None if weights is None else weights[rows]
            taken = Z.take(rows) if isinstance(Z, FeatureRows) else Z[rows]
            parts.append(_add(old, taken, Y[rows], some) if rows.any() else old)
        return parts[0], parts[1]

    def _targets(self, block: tuple[Any, ...], n: int, index: int) -> tuple[Array, Array | None]:
        weights = np.asarray(block[-1], float) if self.weighted else None
        if weights is not None:
            check_block_weights(weights, index)
        if not self.n_targets:
            return np.zeros((n, 0)), weights
        y = np.asarray(block[1])
        if self.classes is None:
            return (y[:, None] if y.ndim == 1 else y).astype(float), weights
        codes = encode_labels(y, self.classes)
        signs = np.where(codes[:, None] == np.arange(len(self.classes)), 1.0, -1.0)
        if self.class_weights is not None and not np.all(self.class_weights == 1.0):
            factors = self.class_weights[codes]
            weights = factors if weights is None else weights * factors
        return signs[:, 1:] if self.n_targets == 1 else signs, weights


def _add(old: Moments | None, Z: Array | FeatureRows, Y: Array, weights: Array | None) -> Moments:
    with np.errstate(invalid="ignore", over="ignore"):
        new = Moments.of(Z, Y, weights)
    sums = (np.diag(new.scatter), new.cross, new.target_scatter)
    if not all(np.isfinite(part).all() for part in sums):
        raise FloatingPointError("sums are not finite")
    return new if old is None else old.merge(new)
