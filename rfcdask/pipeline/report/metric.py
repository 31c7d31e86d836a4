"""The metric that methods are judged by: its words, its margins, and where results have it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from rfcdask.display.style import finite, number, share
from rfcdask.evaluation.scorers import SCORERS

Results = Mapping[str, Any]
_WORDS = {"r2": "R2", "roc_auc": "area under the ROC curve", "f1_macro": "mean F1"}
_SHARES = ("accuracy", "balanced_accuracy", "precision_macro", "recall_macro", "f1_macro")


class Metric(NamedTuple):
    """A metric by scikit-learn's name; larger is better."""

    scoring: str = "accuracy"

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> Metric:
        """Return the metric of some results; those of older versions have the accuracy."""
        found = results.get("scoring")
        return cls(found if found in SCORERS else "accuracy")

    @property
    def word(self) -> str:
        """The metric in a sentence."""
        value = SCORERS[self.scoring][0]
        return _WORDS.get(value, value.replace("_", " "))

    @property
    def best(self) -> str:
        """The metric of the best, in a sentence."""
        return "highest accuracy" if self.scoring == "accuracy" else f"best {self.word}"

    def words(self, of_accuracy: str, of_others: str) -> str:
        """Return the first of two phrases for the accuracy, else the second."""
        return of_accuracy if self.scoring == "accuracy" else of_others

    @property
    def is_share(self) -> bool:
        """Whether it is written in percent."""
        return self.scoring in _SHARES

    def value(self, section: Mapping[str, Any]) -> float | None:
        """Return the metric of a row of a comparison, or of a model with all its metrics."""
        if (found := finite(section.get(self.scoring))) is not None:
            return found
        name, sign = SCORERS[self.scoring]
        known = section.get("metrics")
        found = finite(known.get(name)) if isinstance(known, Mapping) else None
        return None if found is None else sign * found

    def show(self, value: float | None, digits: int = 2) -> str:
        """Write a value; of an error, which is negative here, its size."""
        if self.is_share or value is None:
            return share(value, digits)
        return number(-value if SCORERS[self.scoring][1] < 0 else value)

    def show_difference(self, value: float, digits: int = 1) -> str:
        """Write a difference of two values."""
        return f"{100 * value:.{digits}f} points" if self.is_share else number(value)

    def standard_error(self, value: float, rows: int) -> float:
        """Return how uncertain a value is that was measured on that many rows.

        For shares this is the binomial error, for R2 that of a squared correlation, and for a mean
        error that of normal residuals.
        """
        if not rows:
            return 0.0
        if self.scoring == "r2":
            return 2 * math.sqrt(max(value, 0.0) / rows) * max(1 - value, 0.0)
        if SCORERS[self.scoring][1] < 0:
            return abs(value) / math.sqrt(2 * rows)
        return math.sqrt(max(value * (1 - value), 0.0) / rows)

    def as_good(self, one: float, best: float, rows: int) -> bool:
        """Tell whether a difference is within the sampling error of the test rows.

        The error is that of a difference of two independent measurements. All methods are judged
        by the same rows, for which it is cautious.
        """
        margin = math.hypot(self.standard_error(one, rows), self.standard_error(best, rows))
        return best - one <= margin + 1e-12


def section(results: Results, name: str) -> dict[str, Any]:
    """Return a part of the results; empty where it is missing."""
    found = results.get(name)
    return dict(found) if isinstance(found, Mapping) else {}
