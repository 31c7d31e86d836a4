"""The metrics that models can be judged by, made of what was counted of blocks of rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from rfcdask.kernels.arrays import Array
from rfcdask.linear import SCORERS, check_scoring
from rfcdask.linear.counts import (
    Bins,
    ClassCounts,
    ConfusionCounts,
    RankedScores,
    class_losses,
    explained,
    merge_errors,
    metric_of_ranks,
    rank_classes,
    target_errors,
)
from rfcdask.linear.rows import check_total_weight


def class_values(counts: ClassCounts, needed: str | None = None) -> dict[str, float]:
    """Return all metrics of classes, or accuracy and the one that is needed."""
    import sklearn.metrics as metrics
    from sklearn.exceptions import UndefinedMetricWarning

    true, predicted, weights = counts.confusion
    check_total_weight(float(weights.sum()))
    with warnings.catch_warnings():
        # Zero is the metric of a class that is never predicted; it is said in another place.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.filterwarnings("ignore", "y_pred contains classes not in y_true")
        known = {"sample_weight": weights, "zero_division": 0.0}
        ranks = [r for r in counts.ranks if all(r.totals())]
        ways: dict[str, tuple[Any, dict[str, Any]]] = {
            "balanced_accuracy": (metrics.balanced_accuracy_score, {"sample_weight": weights}),
            "precision_macro": (metrics.precision_score, {"average": "macro"} | known),
            "recall_macro": (metrics.recall_score, {"average": "macro"} | known),
            "f1_macro": (metrics.f1_score, {"average": "macro"} | known),
            "f1_weighted": (metrics.f1_score, {"average": "weighted"} | known),
        }
        values = {"accuracy": counts.confusion.accuracy()}
        for name, (metric, options) in ways.items():
            if needed in (None, name):
                values[name] = metric(true, predicted, **options)
        for name in _OF_RANKS if ranks else ():
            if needed in (None, name):
                values[name] = metric_of_ranks(getattr(metrics, f"{name}_score"), ranks, "macro")
    total, log, brier = counts.losses
    if total:
        values |= {"log_loss": log / total, "brier_score": brier / total}
    return {name: float(value) for name, value in values.items()}


def target_values(errors: Array) -> dict[str, Array]:
    """Return all metrics of numbers, of each target."""
    check_total_weight(float(errors[0][0]))
    squared = errors[3] / errors[0]
    return {
        "r2": explained(errors),
        "mean_absolute_error": errors[4] / errors[0],
        "mean_squared_error": squared,
        "root_mean_squared_error": np.sqrt(squared),
    }


_OF_RANKS, _OF_PROBABILITIES = ("roc_auc", "average_precision"), ("log_loss", "brier_score")
HELD_SCORES = 2**16
"""Different scores of rows held out that are kept for an area under a curve."""


@dataclass(frozen=True)
class HeldOutScore:
    """One metric of rows held out, counted block by block while a model learns.

    Attributes
    ----------
    name : str
        scikit-learn's name of the scorer.
    class_weights : array of shape (n_classes,)
        The factors that weights of rows were multiplied with; empty for numbers.
    softmax : bool or None
        How outputs become probabilities; None for a loss that has none.
    weighted : bool
        Whether rows have weights of their own.
    mean, scale : arrays
        What targets were standardised with.
    """

    name: str
    class_weights: Array = field(default_factory=lambda: np.ones(0))
    softmax: bool | None = None
    weighted: bool = False
    mean: Array | float = 0.0
    scale: Array | float = 1.0

    @classmethod
    def checked(cls, name: str, class_weights: Array, softmax: bool | None, **more: Any) -> Self:
        """Make one, unless it cannot be measured of such a model."""
        check_scoring(name, numbers=not len(class_weights))
        if SCORERS[name][0] in _OF_PROBABILITIES and softmax is None:
            raise ValueError(f"scoring={name!r} needs probabilities: use loss='log_loss'.")
        if not np.all(class_weights > 0):
            raise ValueError("scoring= needs weights above 0 of all classes.")
        return cls(name, class_weights, softmax, **more)

    def count(self, outputs: Array, targets: Array, weights: Array) -> Any:
        """Count some rows, of the codes of their classes or of their targets."""
        from rfcdask.linear.rows import probabilities_of

        given = weights.astype(np.float64) if self.weighted else None
        if not len(self.class_weights):
            outputs = np.asarray(outputs, np.float64).reshape(len(outputs), -1)
            return target_errors(
                targets * self.scale + self.mean, outputs * self.scale + self.mean, given
            )
        if given is not None:
            given = given / self.class_weights[targets]
        outputs, needed = outputs.reshape(len(targets), -1), SCORERS[self.name][0]
        predicted = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).astype(int)
        k, ranks, losses = len(self.class_weights), [], np.zeros(3)
        proba = None if self.softmax is None else probabilities_of(outputs, self.softmax)
        if needed in _OF_RANKS:
            ranked = outputs[:, 0] if k == 2 else outputs if proba is None else proba
            ranks = rank_classes(np.arange(k), targets, ranked, given, HELD_SCORES // k)
        if needed in _OF_PROBABILITIES and proba is not None:
            losses = class_losses(np.arange(k), targets, proba, given)
        return ClassCounts(ConfusionCounts.of(targets, predicted, given), ranks, losses)

    def merge(self, a: Any, b: Any) -> Any:
        """Return the counts of both sets of rows."""
        return a.merge(b) if isinstance(a, ClassCounts) else merge_errors(a, b)

    def value(self, counts: Any) -> float:
        """Return the metric, larger for better models."""
        value, sign = SCORERS[self.name]
        if not isinstance(counts, ClassCounts):
            return sign * float(np.mean(target_values(counts)[value]))
        found = class_values(counts, value)
        if value not in found:
            raise ValueError(
                f"scoring={self.name!r} cannot be measured on the rows held out, which are all of "
                "one class: hold out more of them with validation_fraction."
            )
        return sign * found[value]

    def restored(self, lists: Sequence[Any]) -> Any:
        """Return counts that `as_lists` has taken apart."""
        if not len(self.class_weights):
            return np.array(lists, np.float64)
        pairs, ranks, losses = lists
        return ClassCounts(
            ConfusionCounts(*map(np.array, pairs)),
            [
                RankedScores(tuple(tuple(map(_bins, level)) for level in levels), int(most))
                for levels, most in ranks
            ],
            np.array(losses, np.float64),
        )

    def require_whole(self, counts: Any, n_outputs: int) -> None:
        """Raise unless the rows of restored counts, with some more, have a value."""
        k = len(self.class_weights)
        targets = np.arange(k) if k else np.zeros((1, n_outputs))
        more = self.count(np.zeros((len(targets), n_outputs)), targets, np.ones(len(targets)))
        if k and [one.most for one in counts.ranks] != [one.most for one in more.ranks]:
            raise ValueError("it keeps another number of scores")
        self.value(self.merge(counts, more))


def _bins(lists: Sequence[Any]) -> Bins:
    return Bins(*(np.array(values, np.float64) for values in lists))


def as_lists(counts: Any) -> Any:
    """Return counts as lists of plain numbers, for JSON."""
    if isinstance(counts, list | tuple):
        return [as_lists(part) for part in counts]
    return counts.tolist() if isinstance(counts, np.ndarray) else counts


def merged(
    score: HeldOutScore | None, before: tuple[Any, ...], found: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the counts of all models after more rows; there may be none before, or none now."""
    if score and before and found:
        return tuple(map(score.merge, before, found))
    return before or tuple(found)
