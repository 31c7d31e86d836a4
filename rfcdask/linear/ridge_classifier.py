"""Ridge classification, exact, from one pass over blocks larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from rfcdask.execution.executor import open_executor
from rfcdask.kernels.seeds import seed_of
from rfcdask.kernels.types import Array, DaskArray
from rfcdask.linear.accumulate import Fold, collect, matrix_and_weights
from rfcdask.linear.inputs import as_labels, require_y
from rfcdask.linear.labels import Labels, class_weights, read_labels, to_learn_from
from rfcdask.linear.predict import (
    Classes,
    Flattened,
    LinearScores,
    accuracy,
    map_rows,
    score_dtype,
)
from rfcdask.linear.ridge_base import RidgeModel


class RidgeClassifier(ClassifierMixin, RidgeModel):
    """Ridge regression on labels of +1 and -1, one column a class, in one pass.

    Parameters
    ----------
    alpha, alphas, fit_intercept, validation_fraction, random_state, progress
        As in :class:`Ridge`.
    class_weight : dict, "balanced" or None
        Factors on the rows of each class.

    Attributes
    ----------
    coef_ : array of shape (n_classes, n_features), one row for two classes
    intercept_ : array of shape (n_classes,)
    classes_ : array of shape (n_classes,)
    alpha_, path_, moments_
        As in :class:`Ridge`.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        alphas: Sequence[float] | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        validation_fraction: float = 0.1,
        random_state: Any = 0,
        progress: Any = None,
    ) -> None:
        self.alpha = alpha
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Sum over all rows and solve; see :meth:`Ridge.fit`."""
        held_out = self._check_parameters()
        require_y(y, self)
        matrix, weights, starts = matrix_and_weights(self, X, sample_weight, reset=True)
        column = as_labels(y, matrix)
        with open_executor(client) as runner:
            labels = read_labels(runner, column, keep=runner.local)
        labels.require_two()
        self.classes_ = labels.classes
        column, known = to_learn_from(labels, column, matrix)
        fold = replace(self._fold(labels, starts, weights is not None, held_out), classes=known)
        self._learn(collect(matrix, (column, weights), fold, client, self.progress))
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        client: Any = None,
    ) -> Self:
        """Add more rows and solve again. The first call needs `classes`, all labels there are."""
        held_out = self._check_parameters()
        require_y(y, self)
        before = getattr(self, "moments_", None)
        if before is None:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self.classes_ = np.unique(classes)
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all labels at once; use fit, or give a dict."
            )
        matrix, weights, starts = matrix_and_weights(self, X, sample_weight, reset=before is None)
        column = as_labels(y, matrix)
        labels = Labels(self.classes_, np.ones((1, len(self.classes_)), np.int64))
        fold = self._fold(labels, starts, weights is not None, held_out)
        self._learn(collect(matrix, (column, weights), fold, client, self.progress), before)
        return self

    def decision_function(self, X: Any) -> Array | DaskArray:
        """Return scores: one a row for two classes, else one a class; lazy on dask arrays."""
        check_is_fitted(self, "coef_")
        if len(self.coef_) == 1:
            flat = Flattened(self.coef_, self.intercept_)
            return map_rows(self, X, flat, None, score_dtype(X))
        scores = LinearScores(self.coef_, self.intercept_)
        return map_rows(self, X, scores, len(self.classes_), score_dtype(X))

    def predict(self, X: Any) -> Array | DaskArray:
        """Return the class of each row; lazy on dask arrays."""
        check_is_fitted(self, "coef_")
        model = Classes(self.coef_, self.intercept_, self.classes_)
        return map_rows(self, X, model, None, self.classes_.dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return the accuracy, computed block by block in bounded memory."""
        check_is_fitted(self, "coef_")
        model = Classes(self.coef_, self.intercept_, self.classes_)
        return accuracy(self, model, X, y, sample_weight, client)

    def _fold(self, labels: Labels, starts: Array, weighted: bool, held_out: float) -> Fold:
        k = len(labels.classes)
        self.seed_ = seed_of(self.random_state)
        return Fold(
            k if k > 2 else 1,
            starts,
            weighted,
            held_out,
            self.seed_,
            labels.classes,
            class_weights(self.class_weight, labels),
        )
