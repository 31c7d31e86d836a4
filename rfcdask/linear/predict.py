"""Linear scores of fitted models, lazy on dask arrays, and scoring in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import dask.array as da
import numpy as np
import scipy.special
from sklearn.utils.validation import validate_data

from rfcdask.execution.blocks import consecutive_groups, stream_folds
from rfcdask.execution.executor import Fold, open_executor
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import check_finite, feature_dtype
from rfcdask.kernels.types import Array, DaskArray
from rfcdask.linear.inputs import (
    as_labels,
    as_matrix,
    check_target,
    check_weights,
    dense,
    make_blocks,
    require_good_weights,
    require_weight,
)
from rfcdask.linear.labels import encode

RowFunction = Callable[[Array], Array]


def map_rows(
    estimator: Any, X: Any, function: RowFunction, width: int | None, dtype: Any
) -> Array | DaskArray:
    """Apply a function of the rows: at once to an array in memory, lazily to a dask array.

    `width` is the number of columns that come out; None means one value a row.
    """
    if not isinstance(X, da.Array):
        X = validate_data(estimator, X, reset=False, dtype="numeric")
        return function(X.astype(feature_dtype(X.dtype), copy=False))
    matrix = as_matrix(X, estimator, keep_empty=True)
    validate_data(estimator, matrix, reset=False, skip_check_array=True)
    meta = np.empty((0,) * (1 if width is None else 2), dtype)
    if width is None:
        return matrix.map_blocks(_on_block, function, drop_axis=1, dtype=dtype, meta=meta)
    chunks = (matrix.chunks[0], (width,))
    return matrix.map_blocks(_on_block, function, chunks=chunks, dtype=dtype, meta=meta)


def _on_block(block: Any, function: RowFunction) -> Array:
    return function(dense(block))


def score_dtype(X: Any) -> np.dtype[Any]:
    """Return the type of scores of X: float32 stays float32."""
    dtype = np.dtype(getattr(X, "dtype", np.float64))
    return feature_dtype(dtype) if dtype.kind in "biuf" else np.dtype(np.float64)


class LinearScores:
    """``x -> coef x + intercept``, small enough to travel inside a graph."""

    def __init__(self, coef: Array, intercept: Array) -> None:
        self.coef, self.intercept = np.atleast_2d(coef), np.atleast_1d(intercept)

    def __call__(self, X: Array) -> Array:
        """Return scores of shape (n, outputs)."""
        scores: Array = X @ self.coef.T.astype(X.dtype) + self.intercept.astype(X.dtype)
        return scores


class Flattened(LinearScores):
    """The same with a single column of scores made flat."""

    def __call__(self, X: Array) -> Array:
        """Return scores of shape (n,)."""
        return super().__call__(X).ravel()


class Classes(LinearScores):
    """The class with the largest score."""

    def __init__(self, coef: Array, intercept: Array, classes: Array) -> None:
        super().__init__(coef, intercept)
        self.classes = classes

    def codes(self, X: Array) -> Array:
        """Return the number of the class of each row."""
        scores = super().__call__(X)
        if not np.isfinite(scores).all():  # NaN would be some class too
            check_finite(X)
        codes: Array = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return codes

    def __call__(self, X: Array) -> Array:
        """Return labels of shape (n,)."""
        predicted: Array = self.classes[self.codes(X)]
        return predicted


class Probabilities(LinearScores):
    """The probability of each class under a logistic model."""

    def __init__(self, coef: Array, intercept: Array, softmax: bool) -> None:
        super().__init__(coef, intercept)
        self.softmax = softmax

    def __call__(self, X: Array) -> Array:
        """Return probabilities of shape (n, classes)."""
        scores = super().__call__(X)
        if self.softmax:
            return np.asarray(scipy.special.softmax(scores, axis=1))
        share = scipy.special.expit(scores)
        if scores.shape[1] == 1:
            return np.hstack([1 - share, share])
        return np.asarray(share / np.maximum(share.sum(1, keepdims=True), 1e-30))


class _CountRight:
    """Folds a block into (weight of rows predicted right, weight of all rows)."""

    def __init__(self, model: Classes) -> None:
        self.model = model

    def __call__(self, state: Any, block: tuple[Any, ...], index: int) -> tuple[float, float]:
        right = self.model.codes(dense(block[0])) == encode(
            np.asarray(block[1]), self.model.classes
        )
        weights = _weights_of(block, len(right), index)
        return state[0] + float(weights @ right), state[1] + float(weights.sum())


def _weights_of(block: tuple[Any, ...], n: int, index: int) -> Array:
    if len(block) < 3:
        return np.ones(n)
    weights = np.asarray(block[2], float)
    require_good_weights(weights, index)
    return weights


class _SumSquares:
    """Folds a block into weight, mean and squares of the targets, and squares of the misses."""

    def __init__(self, model: LinearScores) -> None:
        self.model = model

    def __call__(self, state: Array, block: tuple[Any, ...], index: int) -> Array:
        X, y = dense(block[0]), np.asarray(block[1], float)
        y = y[:, None] if y.ndim == 1 else y
        weights = _weights_of(block, len(X), index)
        weight = weights.sum()
        if weight == 0:
            return state
        miss = y - LinearScores.__call__(self.model, X)
        if not np.isfinite(miss).all():
            check_finite(X)
        mean = weights @ y / weight
        squares = weights @ (y - mean) ** 2
        return _joined(
            state, np.array([np.full(len(mean), weight), mean, squares, weights @ miss**2])
        )


def _joined(a: Array, b: Array) -> Array:
    """Return weight, mean and squares about it, and misses, of two sets of rows together."""
    weight = a[0] + b[0]
    share = np.divide(b[0], weight, out=np.zeros_like(weight), where=weight > 0)
    apart = b[1] - a[1]
    squares = a[2] + b[2] + a[0] * share * apart**2
    return np.array([weight, a[1] + share * apart, squares, a[3] + b[3]])


def _fold_all(X: Any, columns: tuple[Any, ...], fold: Fold, state: Any, client: Any) -> list[Any]:
    blocks = make_blocks(X, *columns)
    groups = consecutive_groups(len(blocks), 16)
    found = []
    with open_executor(client) as runner, track("scoring", float(sum(blocks.rows)), "rows") as bar:
        parts = stream_folds(runner, blocks, groups, fold, state)
        for group, part in zip(groups, parts, strict=True):
            found.append(part)
            bar.advance(sum(blocks.rows[index] for index in group))
    return found


def accuracy(
    estimator: Any, model: Classes, X: Any, y: Any, sample_weight: Any, client: Any
) -> float:
    """Return the share of rows whose class is right."""
    matrix = as_matrix(X, estimator)
    validate_data(estimator, matrix, reset=False, skip_check_array=True)
    columns = (as_labels(y, matrix), check_weights(sample_weight, matrix))
    parts = _fold_all(matrix, columns, _CountRight(model), (0.0, 0.0), client)
    total = sum(part[1] for part in parts)
    require_weight(total)
    return float(sum(part[0] for part in parts) / total)


def determination(
    estimator: Any, model: LinearScores, X: Any, y: Any, sample_weight: Any, client: Any
) -> float:
    """Return R^2, the mean over targets."""
    matrix = as_matrix(X, estimator)
    validate_data(estimator, matrix, reset=False, skip_check_array=True)
    columns = (check_target(y, matrix, estimator), check_weights(sample_weight, matrix))
    known, given = len(model.intercept), 1 if columns[0].ndim == 1 else columns[0].shape[1]
    if known != given:
        raise ValueError(
            f"y has {given} target(s) a row and the model predicts {known}; give all of them."
        )
    state = np.zeros((4, known))
    parts = _fold_all(matrix, columns, _SumSquares(model), state, client)
    weight, mean, spread, miss = reduce(_joined, parts)
    require_weight(float(weight[0]))
    # As scikit-learn has it: of a target that never changes all is explained, or nothing.
    constant = spread <= weight * (8 * np.finfo(float).eps * mean) ** 2
    explained = 1.0 - miss / np.where(constant, 1.0, spread)
    return float(np.mean(np.where(constant, (miss == 0).astype(float), explained)))
