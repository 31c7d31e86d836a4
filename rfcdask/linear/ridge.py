"""Ridge regression and classification, exact, from one pass over blocks larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from rfcdask.data.sample import require_same_columns
from rfcdask.display import count, number
from rfcdask.display.charts import curve
from rfcdask.display.drawing import Chart
from rfcdask.display.html import Facts
from rfcdask.execution.executor import open_executor
from rfcdask.kernels.arrays import DaskArray
from rfcdask.kernels.seeds import seed_of
from rfcdask.linear.inputs import ClassLabels, accumulate_moments, read_labels
from rfcdask.linear.moments import Moments, check_squares, choose_alpha, solve_ridge
from rfcdask.linear.predict import (
    COMMON_CONSTRAINTS,
    NOT_NEGATIVE,
    LinearClassifierMixin,
    LinearModel,
    LinearRegressorMixin,
)
from rfcdask.linear.rows import check_total_weight


class BaseRidge(LinearModel):
    """What both models share: from moments to coefficients, and adding moments up."""

    _parameter_constraints: ClassVar[dict[str, Any]] = COMMON_CONSTRAINTS | {
        "alpha": [NOT_NEGATIVE],
        "alphas": ["array-like", None],
    }
    moments_: Moments

    def merge(self, other: Any) -> Self:
        """Add the rows another model of the same kind was fitted on; returns this model.

        Only the sums travel, so stores in two places or the data of two days give the model of
        all their rows. The penalty stays as it was.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        if not np.array_equal(getattr(self, "classes_", 0), getattr(other, "classes_", 0)):
            raise ValueError("Both models must know the same classes to be merged.")
        require_same_columns(self, other)
        return self._solve(self.moments_.merge(other.moments_))

    def plot(self, ax: Any = None) -> Any:
        """Draw the held-out error of each of `alphas` on `ax`, or on new axes; returns the axes."""
        check_is_fitted(self, "moments_")
        chart = self._chart()
        if chart is None:
            raise ValueError("There is one alpha only and nothing to draw; give several alphas.")
        return chart.plot(ax)

    def _chart(self) -> Chart | None:
        if not self.path_:
            return None
        tried = sorted((entry["alpha"], entry["held_out_error"]) for entry in self.path_)
        alphas, errors = zip(*tried, strict=True)
        return curve(alphas, errors, "alpha", "held-out error", log=True)

    def _facts(self) -> Facts:
        if not hasattr(self, "moments_"):
            return []
        rows = ("rows", count(self.moments_.rows))
        return [*super()._facts(), rows, ("alpha", number(self.alpha_))]

    def _fit_moments(
        self,
        X: DaskArray,
        y: DaskArray,
        weights: DaskArray | None,
        client: Any,
        before: Moments | None,
        **classes: Any,
    ) -> Self:
        """Choose alpha on the rows held out where there are several, then use all rows."""
        self.seed_ = seed_of(self.random_state)
        train, held_out = accumulate_moments(
            X,
            y,
            weights,
            validation_fraction=0.0 if self.alphas is None else float(self.validation_fraction),
            seed=self.seed_,
            client=client,
            progress=self.progress,
            **classes,
        )
        self.alpha_ = float(self.alpha)
        self.path_: list[dict[str, float]] = []
        if self.alphas is not None:
            alphas = [float(alpha) for alpha in self.alphas]
            self.alpha_, self.path_ = choose_alpha(train, held_out, alphas, self.fit_intercept)
        moments = train.merge(held_out)
        check_total_weight(moments.weight)
        return self._solve(moments if before is None else before.merge(moments))

    def _solve(self, moments: Moments) -> Self:
        check_squares(moments, self.alpha_)
        self.moments_ = moments
        coef, self.intercept_ = solve_ridge(moments, self.alpha_, self.fit_intercept)
        self.coef_ = coef.T
        return self


class Ridge(LinearRegressorMixin, BaseRidge):
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
        See :func:`rfcdask.execution.progress.track`.

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
        self.alpha, self.alphas, self.fit_intercept = alpha, alphas, fit_intercept
        self.validation_fraction, self.random_state = validation_fraction, random_state
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
        self._forget()
        return self._add_rows(X, y, sample_weight, client, None)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Add more rows and solve again; the result is that of one `fit` on all rows."""
        return self._add_rows(X, y, sample_weight, client, getattr(self, "moments_", None))

    def _add_rows(
        self, X: Any, y: Any, sample_weight: Any, client: Any, before: Moments | None
    ) -> Self:
        matrix, targets, weights = self._check_data(X, y, sample_weight, reset=before is None)
        self.one_target_ = targets.ndim == 1
        return self._fit_moments(matrix, targets, weights, client, before)

    def _solve(self, moments: Moments) -> Self:
        super()._solve(moments)
        if self.one_target_:
            self._flatten_outputs()
        return self


class RidgeClassifier(LinearClassifierMixin, BaseRidge):
    """Ridge regression on labels of +1 and -1, one column per class, in one pass.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = BaseRidge._parameter_constraints | {
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

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
        self.alpha, self.alphas, self.fit_intercept = alpha, alphas, fit_intercept
        self.class_weight, self.validation_fraction = class_weight, validation_fraction
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Sum over all rows and solve; see :meth:`Ridge.fit`."""
        self._forget()
        matrix, column, weights = self._check_data(X, y, sample_weight, reset=True)
        with open_executor(client) as executor:
            labels = read_labels(executor, column)
        self.classes_ = labels.classes
        factors = labels.weights(self.class_weight)
        column, known = labels.for_training(column, matrix)
        return self._fit_moments(
            matrix, column, weights, client, None, classes=known, class_weights=factors
        )

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, client: Any = None
    ) -> Self:
        """Add more rows and solve again. The first call needs `classes`, all labels there are."""
        before = getattr(self, "moments_", None)
        self._check_classes(classes, before is None)
        matrix, column, weights = self._check_data(X, y, sample_weight, reset=before is None)
        factors = ClassLabels.known(self.classes_).weights(self.class_weight)
        return self._fit_moments(
            matrix, column, weights, client, before, classes=self.classes_, class_weights=factors
        )
