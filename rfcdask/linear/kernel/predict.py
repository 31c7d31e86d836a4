"""Functions of features as functions of rows: a few rows at a time, never a block of features."""

from __future__ import annotations

import numpy as np

from rfcdask.features.learned import LearnedFeatures
from rfcdask.kernels.arrays import Array, Matrix, as_csr, check_finite, feature_dtype, is_sparse
from rfcdask.linear.predict import ClassPredictor, RowFunction

TILE_ROWS = 2048
"""Rows whose features are in memory at a time."""


class OnFeatures:
    """``x -> function(features(x))``."""

    def __init__(self, features: LearnedFeatures, function: RowFunction) -> None:
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
        features = self.features.evaluator(feature_dtype(X.dtype))
        starts = range(0, max(X.shape[0], 1), TILE_ROWS)
        return np.concatenate([function(features(X[i : i + TILE_ROWS])) for i in starts])
