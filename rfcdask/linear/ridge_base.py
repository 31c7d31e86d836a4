"""What ridge models share: from sums over rows to coefficients, and adding sums up."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from rfcdask.display.charts import Chart, curve
from rfcdask.display.html import Facts, HTMLReprMixin
from rfcdask.display.numbers import count, number
from rfcdask.kernels.types import Array
from rfcdask.linear.facts import model_facts
from rfcdask.linear.inputs import require_weight
from rfcdask.linear.moments import Moments
from rfcdask.linear.ridge_path import check_alphas, choose, solve


class RidgeModel(HTMLReprMixin, BaseEstimator):
    """What both models share: from moments to coefficients, and adding moments up."""

    moments_: Moments
    coef_: Array
    intercept_: Any

    def plot(self, ax: Any = None) -> Any:
        """Draw the held-out error of each of `alphas`; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
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
        return [*model_facts(self), rows, ("alpha", number(self.alpha_))]

    def _learn(self, parts: tuple[Moments, Moments], before: Moments | None = None) -> None:
        """Choose alpha on the rows held out where there are several, then use all rows."""
        train, held_out = parts
        self.alpha_ = float(self.alpha)
        self.path_: list[dict[str, float]] = []
        if self.alphas is not None:
            alphas = check_alphas(self.alphas)
            self.alpha_, self.path_ = choose(train, held_out, alphas, self.fit_intercept)
        moments = train.merge(held_out)
        require_weight(moments.weight)
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
