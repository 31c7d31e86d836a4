"""Probabilities from scores, learned on rows held out by scikit-learn's own calibration.

What was learned is a few numbers for each class, so that it is saved with a model; no Dask here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.special
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from rfcdask.kernels.arrays import Array

METHODS = ("sigmoid", "isotonic")
FEWEST_ROWS = 5
"""Rows that each class must have: scikit-learn's own cross-validation wants as many."""


class Calibration(NamedTuple):
    """How scores become probabilities: of each class against the rest, of two classes the second.

    Attributes
    ----------
    method : {"sigmoid", "isotonic"}
    scores, values : arrays
        For "sigmoid" slopes and offsets, one per class; for "isotonic" the corners of the
        staircase of all classes, one after another.
    ends : array of int
        Where the corners of each class end.
    """

    method: str
    scores: Array
    values: Array
    ends: Array

    @classmethod
    def of(
        cls, scores: Array, codes: Array, n_classes: int, method: str, weights: Array | None = None
    ) -> Calibration:
        """Learn from scores of shape (n, outputs) and the number of each row's class."""
        counts = np.bincount(codes, minlength=n_classes)
        if counts.min() < FEWEST_ROWS:
            raise ValueError(
                f"Calibration needs {FEWEST_ROWS} rows of every class, and one has "
                f"{counts.min()}: give more rows."
            )
        frozen = FrozenEstimator(_ScoresAsRows(n_classes).fit(scores))
        fitted = CalibratedClassifierCV(frozen, method=method).fit(scores, codes, weights)
        (whole,) = fitted.calibrated_classifiers_
        parts = whole.calibrators
        if method == "sigmoid":
            slopes, offsets = np.array([(part.a_, part.b_) for part in parts], float).T
            return cls(method, slopes, offsets, np.arange(1, len(parts) + 1))
        corners = [(part.X_thresholds_, part.y_thresholds_) for part in parts]
        found, values = (np.concatenate(side).astype(float) for side in zip(*corners, strict=True))
        return cls(method, found, values, np.cumsum([len(x) for x, _ in corners]))

    def __call__(self, scores: Array) -> Array:
        """Return probabilities of shape (n, classes) of scores of shape (n, outputs)."""
        made = np.stack([self._of_class(k, column) for k, column in enumerate(scores.T)], axis=1)
        if made.shape[1] == 1:
            return np.hstack([1 - made, made])
        total = made.sum(1, keepdims=True)
        even = np.full_like(made, 1 / made.shape[1])  # of classes that are all impossible
        return np.clip(np.divide(made, total, out=even, where=total > 0), 0.0, 1.0)

    def _of_class(self, k: int, scores: Array) -> Array:
        scores = scores.astype(np.float64)
        if self.method == "sigmoid":
            return np.asarray(scipy.special.expit(-(self.scores[k] * scores + self.values[k])))
        part = slice(self.ends[k - 1] if k else 0, self.ends[k])
        return np.interp(scores, self.scores[part], self.values[part])


class _ScoresAsRows(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose rows are scores already, as scikit-learn's calibration wants it."""

    def __init__(self, n_classes: int = 2) -> None:
        self.n_classes = n_classes

    def fit(self, X: Array, y: Any = None) -> _ScoresAsRows:
        self.classes_ = np.arange(self.n_classes)
        self.n_features_in_ = X.shape[1]
        return self

    def decision_function(self, X: Array) -> Array:
        return X[:, 0] if X.shape[1] == 1 else X

    def predict(self, X: Array) -> Array:
        return X.argmax(1) if X.shape[1] > 1 else (X[:, 0] > 0).astype(int)
