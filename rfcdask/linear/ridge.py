"""Ridge regression, exact, from one pass over blocks larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from rfcdask.kernels.seeds import seed_of
from rfcdask.kernels.types import Array, DaskArray
from rfcdask.linear.accumulate import Fold, collect, matrix_and_weights
from rfcdask.linear.inputs import check_target, require_y
from rfcdask.linear.moments import Moments
from rfcdask.linear.predict import Flattened, LinearScores, determination, map_rows, score_dtype
from rfcdask.linear.ridge_base import RidgeModel


class Ridge(RegressorMixin, RidgeModel):
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
        check_is_fitted(self, "coef_")
        intercept = np.asarray(self.intercept_)
        if self.coef_.ndim == 1:
            return map_rows(self, X, Flattened(self.coef_, intercept), None, score_dtype(X))
        return map_rows(
            self, X, LinearScores(self.coef_, intercept), len(self.coef_), score_dtype(X)
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return R^2, computed block by block in bounded memory."""
        check_is_fitted(self, "coef_")
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
