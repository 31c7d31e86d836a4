"""What models shall predict and how they are judged: the models that follow from it, and scores."""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils.multiclass import check_classification_targets

from rfcdask.evaluation.evaluate import ModelCounts, has_numbers
from rfcdask.evaluation.scorers import check_scoring
from rfcdask.kernels.arrays import Array
from rfcdask.linear import (
    KernelClassifier,
    KernelRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)


class Judge(NamedTuple):
    """What models predict, how they are judged, and the factors of classes that they learn with."""

    numbers: bool
    scoring: str
    class_weight: Any = None

    @classmethod
    def of(cls, labels: Array, scoring: str | None, class_weight: Any = None) -> Judge:
        """Tell from labels what they are; a metric that is given must go with them."""
        numbers = has_numbers(labels, scoring)
        if numbers and class_weight is not None:
            raise ValueError(f"class_weight={class_weight!r} is for classes, and y holds numbers.")
        if not numbers:
            check_classification_targets(labels)
        return cls(numbers, check_scoring(scoring, numbers=numbers), class_weight)

    @property
    def _weighted(self) -> dict[str, Any]:
        return {} if self.numbers else {"class_weight": self.class_weight}

    def ridge(self) -> Any:
        """Return the linear model with which maps are judged."""
        return (Ridge if self.numbers else RidgeClassifier)(**self._weighted)

    def sgd(self, **parameters: Any) -> Any:
        """Return the linear model for sparse columns, of which there may be very many."""
        return (SGDRegressor if self.numbers else SGDClassifier)(**self._weighted, **parameters)

    def kernel_model(self, n_components: int, **parameters: Any) -> Any:
        """Return the model whose features learn."""
        kind = KernelRegressor if self.numbers else KernelClassifier
        return kind(n_components, **self._weighted, **parameters)

    def boosting(self, n_targets: int, seed: int) -> Any:
        """Return scikit-learn's gradient boosting, one model for each target."""
        kind = HistGradientBoostingRegressor if self.numbers else HistGradientBoostingClassifier
        model = kind(random_state=seed % 2**32, **self._weighted)
        return MultiOutputRegressor(model) if n_targets > 1 else model

    def scores(self, model: Any, X: Any, labels: Array) -> dict[str, float]:
        """Return accuracy or R2 of rows in memory, and the metric to judge by."""
        counts = ModelCounts(model, self.scoring)
        found = counts.evaluation(counts.of(X, labels))
        plain = "r2" if self.numbers else "accuracy"
        return {plain: found[plain], self.scoring: found[self.scoring]}
