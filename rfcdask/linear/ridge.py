"""Ridge regression and classification, exact, from one pass over blocks larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from rfcdask._types import Array, DaskArray
from rfcdask.linear.accumulate import Fold, collect, matrix_and_weights
from rfcdask.linear.inputs import as_labels, check_target, require_y
from rfcdask.linear.labels import Labels, class_weights, read_labels
from rfcdask.linear.moments import Moments
from rfcdask.linear.predictor import (
    Classes,
    Flattened,
    LinearScores,
    accuracy,
    determination,
    map_rows,
    score_dtype,
)
from rfcdask.linear.ridge_solve import check_alphas, choose, solve
from rfcdask.linear.runners import open_runner
from rfcdask.seeds import seed_of


class _RidgeModel(BaseEstimator):
    """What both models share: from moments to coefficients, and adding moments up."""

    moments_: Moments
    coef_: Array
    intercept_: Any

    def _learn(self, parts: tuple[Moments, Moments], before: Moments | None = None) -> None:
        """Choose alpha on the rows held out where there are several, then use all rows."""
        train, held_out = parts
        self.alpha_ = float(self.alpha)
        self.path_: list[dict[str, float]] = []
        if self.alphas is not None:
            alphas = check_alphas(self.alphas)
            self.alpha_, self.path_ = choose(train, held_out, alphas, self.fit_intercept)
        moments = train.merge(held_out)
        self._solve(moments if before is None else before.merge(moments))

    def _solve(self, moments: Moments) -> None:
        self.moments_ = moments
        coef, intercept = solve(moments, self.alpha_, self.fit_intercept)
        self.coef_, self.intercept_ = coef.T, intercept

    def _check_parameters(self) -> float:
        """Return the share of rows to hold out, after checking everything."""
        check_alphas([self.alpha])
        if self.alphas is None:
            return 0.0
        check_alphas(self.alphas)
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction={self.validation_fraction!r} must lie between 0 and 1."
            )
        return float(self.validation_fraction)

    def merge(self, other: Any) -> Self:
        """Add the rows another model of the same kind was fitted on; returns this model.

        Only the sums travel, so stores in two places or the data of two days give the model of
        all their rows. The penalty stays as it was.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        if not np.array_equal(getattr(self, "classes_", 0), getattr(other, "classes_", 0)):
            raise ValueError("Both models must know the same classes to be merged.")
        self._set_from(self.moments_.merge(other.moments_))
        return self

    def _set_from(self, moments: Moments) -> None:
        self._solve(moments)


class Ridge(RegressorMixin, _RidgeModel):
    """Linear least squares with a penalty, equal to scikit-learn's, in one pass.

    The pass sums ``Z^T Z`` and ``Z^T y``; everything else happens on these sums, which stay in
    `moments_`: rows can be added later and models of two stores merged.

    Parameters
    ----------
    alpha : float
        Penalty on ``||coef||^2`` beside the *sum* of squares, as in scikit-learn.
    alphas : sequence of float, optional
        Try all of these, from one factorisation, and keep the one with the smallest squared
        error on rows held out; the model is then solved on all rows.
    fit_intercept : bool
        Whether to learn an intercept, which is not penalised.
    validation_fraction : float
        Part of the rows held out when there are several `alphas`.
    random_state : int, RandomState or None
        Seed of the choice of rows to hold out.
    progress : bool, str or callable, optional
        See :func:`rfcdask.progress.track`.

    Attributes
    ----------
    coef_ : array of shape (n_features,) or (n_targets, n_features)
    intercept_ : float or array of shape (n_targets,)
    alpha_ : float
        The penalty used.
    path_ : list of dict
        Held-out error of each of `alphas`.
    moments_ : Moments
        Sums over all rows seen so far.

    Examples
    --------
    >>> import dask.array as da, rfcdask as rf
    >>> X = da.random.default_rng(0).normal(size=(1000, 3), chunks=(100, 3))
    >>> rf.Ridge(alpha=1e-6).fit(X, X @ [1.0, 2.0, 3.0] + 4).coef_.round(3).tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        alphas: Sequence[float] | None = None,
        fit_intercept: bool = True,
        validation_fraction: float = 0.1,
        random_state: Any = 0,
        progress: Any = None,
    ) -> None:
        self.alpha = alpha
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Sum over all rows and solve.

        Parameters
        ----------
        X : array or dask array of shape (n, p)
        y : array or dask array of shape (n,) or (n, n_targets)
        sample_weight : float, array or dask array of shape (n,), optional
        client : distributed.Client, optional
            Where to compute: this client, else the current one, else local threads.
        """
        self._learn(self._sum(X, y, sample_weight, client, reset=True))
        return self._flatten()

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Add more rows and solve again; the result is that of one `fit` on all rows."""
        before = getattr(self, "moments_", None)
        self._learn(self._sum(X, y, sample_weight, client, reset=before is None), before)
        return self._flatten()

    def predict(self, X: Any) -> Array | DaskArray:
        """Return the prediction for each row; lazy on dask arrays."""
        check_is_fitted(self)
        intercept = np.asarray(self.intercept_)
        if self.coef_.ndim == 1:
            return map_rows(self, X, Flattened(self.coef_, intercept), None, score_dtype(X))
        return map_rows(
            self, X, LinearScores(self.coef_, intercept), len(self.coef_), score_dtype(X)
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return R^2, computed block by block in bounded memory."""
        check_is_fitted(self)
        model = LinearScores(self.coef_, np.asarray(self.intercept_))
        return determination(self, model, X, y, sample_weight, client)

    def _sum(
        self, X: Any, y: Any, sample_weight: Any, client: Any, reset: bool
    ) -> tuple[Moments, Moments]:
        held_out = self._check_parameters()
        require_y(y, self)
        matrix, weights, starts = matrix_and_weights(self, X, sample_weight, reset)
        target = check_target(y, matrix, self)
        self.one_target_ = target.ndim == 1
        self.seed_ = seed_of(self.random_state)
        fold = Fold(
            1 if target.ndim == 1 else int(target.shape[1]),
            starts,
            weights is not None,
            held_out,
            self.seed_,
        )
        return collect(matrix, (target, weights), fold, client, self.progress)

    def _flatten(self) -> Self:
        if self.one_target_:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self

    def _set_from(self, moments: Moments) -> None:
        self._solve(moments)
        self._flatten()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class RidgeClassifier(ClassifierMixin, _RidgeModel):
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
        with open_runner(client) as runner:
            labels = read_labels(runner, column)
        labels.require_two()
        self.classes_ = labels.classes
        fold = self._fold(labels, starts, weights is not None, held_out)
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
        check_is_fitted(self)
        if len(self.coef_) == 1:
            flat = Flattened(self.coef_, self.intercept_)
            return map_rows(self, X, flat, None, score_dtype(X))
        scores = LinearScores(self.coef_, self.intercept_)
        return map_rows(self, X, scores, len(self.classes_), score_dtype(X))

    def predict(self, X: Any) -> Array | DaskArray:
        """Return the class of each row; lazy on dask arrays."""
        check_is_fitted(self)
        model = Classes(self.coef_, self.intercept_, self.classes_)
        return map_rows(self, X, model, None, self.classes_.dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return the accuracy, computed block by block in bounded memory."""
        check_is_fitted(self)
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
