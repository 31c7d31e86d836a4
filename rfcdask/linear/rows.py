"""What is made of the rows of a block, a few at a time: scores, classes, probabilities and counts.

Worker processes need these and no estimator: nothing here imports scikit-learn or Dask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special

from rfcdask.features.evaluators import FeatureRows
from rfcdask.kernels.arrays import (
    Array,
    Matrix,
    NotFiniteError,
    as_csr,
    check_finite,
    feature_dtype,
    is_sparse,
)
from rfcdask.linear.checks import dense, encode_labels
from rfcdask.linear.counts import ConfusionCounts, target_errors

if TYPE_CHECKING:
    from rfcdask.linear.calibration import Calibration

TILE_ROWS = 2048
"""Rows whose features are in memory at a time."""

RowFunction = Callable[[Any], Array]


def on_block(block: Any, function: RowFunction, block_id: tuple[int, ...] | None = None) -> Array:
    """Return what a function makes of the rows of a block, in two dimensions."""
    try:
        found = np.concatenate([function(rows) for rows in tiles(block)])
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            for rows in tiles(block):
                check_finite(rows)
    except NotFiniteError as error:
        raise error.in_block(block_id[0] if block_id else 0) from None
    return found[:, None] if found.ndim == 1 else found


def tiles(block: Matrix | FeatureRows) -> Iterator[Any]:
    """Yield the rows of a block, or their features, a few at a time; one tile without any rows.

    Sparse rows stay as they are: of many columns a block would not fit in memory.
    """
    if is_sparse(block):
        rows = as_csr(block)
        yield rows.astype(feature_dtype(rows.dtype), copy=False)
        return
    if not isinstance(block, FeatureRows):
        yield dense(block)
        return
    for start in range(0, max(block.shape[0], 1), TILE_ROWS):
        yield block[start : start + TILE_ROWS]


class LinearScores:
    """``x -> coef x + intercept``, small enough to travel inside a graph."""

    def __init__(self, coef: Array, intercept: Any, flat: bool = False) -> None:
        self.coef, self.intercept = np.atleast_2d(coef), np.atleast_1d(intercept)
        self.flat = flat

    def __call__(self, X: Array) -> Array:
        """Return scores of shape (n, outputs), or (n,)."""
        scores: Array = X @ self.coef.T.astype(X.dtype) + self.intercept.astype(X.dtype)
        if not np.isfinite(scores).all():  # infinity would be a certain probability, NaN a class
            check_finite(X)
        return scores.ravel() if self.flat else scores


class ClassPredictor(LinearScores):
    """The class with the largest score."""

    def __init__(self, coef: Array, intercept: Any, classes: Array) -> None:
        super().__init__(coef, intercept)
        self.classes = classes

    def codes(self, X: Array) -> Array:
        """Return the number of the class of each row."""
        scores = super().__call__(X)
        codes: Array = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return codes

    def __call__(self, X: Array) -> Array:
        """Return labels of shape (n,)."""
        return np.asarray(self.classes[self.codes(X)])


class ClassProbabilities(LinearScores):
    """The probability of each class under a logistic model, or as it was calibrated."""

    def __init__(
        self, coef: Array, intercept: Any, softmax: bool, calibration: Calibration | None = None
    ) -> None:
        super().__init__(coef, intercept)
        self.softmax, self.calibration = softmax, calibration

    def __call__(self, X: Array) -> Array:
        """Return probabilities of shape (n, classes)."""
        scores = super().__call__(X)
        if self.calibration is not None:
            return self.calibration(scores).astype(scores.dtype)
        if self.softmax:
            return np.asarray(scipy.special.softmax(scores, axis=1))
        share = scipy.special.expit(scores)
        if scores.shape[1] == 1:
            return np.hstack([1 - share, share])
        return np.asarray(share / np.maximum(share.sum(1, keepdims=True), 1e-30))


class OnFeatures:
    """``x -> function(features(x))``: a few rows at a time, never a block of features.

    `features` makes what evaluates them in a precision.
    """

    def __init__(self, features: Callable[[np.dtype], RowFunction], function: RowFunction) -> None:
        self.features, self.function = features, function

    @property
    def classes(self) -> Array:
        """The classes of a classifier."""
        assert isinstance(self.function, ClassPredictor)
        return self.function.classes

    def codes(self, X: Matrix) -> Array:
        """Return the number of the class of each row."""
        assert isinstance(self.function, ClassPredictor)
        return self._evaluate(X, self.function.codes)

    def __call__(self, X: Matrix) -> Array:
        """Return what the function makes of the features of each row."""
        return self._evaluate(X, self.function)

    def _evaluate(self, X: Matrix, function: RowFunction) -> Array:
        X = as_csr(X) if is_sparse(X) else np.asarray(X)
        check_finite(X)
        features = self.features(feature_dtype(X.dtype))
        starts = range(0, max(X.shape[0], 1), TILE_ROWS)
        return np.concatenate([function(features(X[i : i + TILE_ROWS])) for i in starts])


def count_right(
    predictor: ClassPredictor, X: Any, y: Any, weights: Array | None
) -> ConfusionCounts:
    """Count the rows of a block by the numbers of true and predicted class."""
    predicted = np.concatenate([predictor.codes(rows) for rows in tiles(X)])
    true = encode_labels(np.asarray(y), predictor.classes)
    return ConfusionCounts.of(true, predicted, weights)


def sum_errors(scores: LinearScores, X: Any, y: Any, weights: Array | None) -> Array:
    """Sum the errors of predicted targets over the rows of a block."""
    predicted = np.concatenate([scores(rows) for rows in tiles(X)])
    return target_errors(y, predicted, weights)
