"""All metrics of a fitted model in one pass over rows, and the models that maps are judged by."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.array as da
import numpy as np
from dask.delayed import delayed
from sklearn.base import BaseEstimator, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from rfcdask import linear  # whose models are imported when they are made
from rfcdask.data.sample import (
    check_container,
    columns_by_name,
    names_are_compared,
    names_in_store,
    without_word_of_names,
)
from rfcdask.display import count
from rfcdask.display.html import Table, render_repr
from rfcdask.execution.blocks import fold_blocks
from rfcdask.kernels.arrays import Array, is_sparse
from rfcdask.linear import OF_NUMBERS, SCORERS, check_scoring
from rfcdask.linear.counts import (
    ClassCounts,
    FoldCounts,
    NeverPredictedWarning,
    count_classes,
    merge_errors,
    never_predicted_message,
    target_errors,
)
from rfcdask.linear.inputs import check_data
from rfcdask.linear.predict import LinearClassifierMixin
from rfcdask.linear.rows import dense
from rfcdask.linear.scorers import class_values, target_values

if TYPE_CHECKING:
    from distributed import Client

GROUP = 8
"""Blocks that are counted by one task, at most."""


@dataclass(frozen=True)
class Evaluation:
    """What was measured of a model.

    Attributes
    ----------
    values : dict
        For classes ``accuracy``, ``balanced_accuracy``, ``precision_macro``, ``recall_macro``,
        ``f1_macro``, ``f1_weighted``, ``roc_auc`` and ``average_precision`` (of several classes the
        mean of each against the rest), and where there are probabilities ``log_loss`` and
        ``brier_score``. For numbers ``r2``, ``mean_absolute_error``, ``mean_squared_error`` and
        ``root_mean_squared_error``, means over targets.
    n_rows : int
    labels : array of shape (k,), or None for numbers
    confusion : array of shape (k, k), or None
        Weight of the rows of each class (rows) that were predicted as each class.
    targets : dict
        The metrics of each target, where there are several.
    """

    values: dict[str, float]
    n_rows: int
    labels: Array | None = None
    confusion: Array | None = None
    never_predicted: list[Any] = field(default_factory=list)
    targets: dict[str, list[float]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """Return a value, or by the name of a scorer a number that is larger for better models."""
        if name in self.values:
            return self.values[name]
        value, sign = SCORERS.get(name, ("", 1))
        if value not in self.values:
            there = [n for n, (kept, _) in SCORERS.items() if kept in self.values]
            raise KeyError(
                f"{name!r} was not measured; there are {', '.join(there)}"
                + (", and log loss needs probabilities." if "accuracy" in self.values else ".")
            )
        return sign * self.values[value]

    @property
    def per_class(self) -> Table:
        """Recall, precision, F1 and rows of each class."""
        if self.labels is None or self.confusion is None:
            return Table([])
        true, given, right = self.confusion.sum(1), self.confusion.sum(0), self.confusion.diagonal()
        return Table(
            [
                {
                    "class": label,
                    "rows": n,
                    "predicted": m,
                    "recall": hit / n if n else 0.0,
                    "precision": hit / m if m else 0.0,
                    "f1": 2 * hit / (n + m) if n + m else 0.0,
                }
                for label, n, m, hit in zip(
                    self.labels.tolist(), true.tolist(), given.tolist(), right.tolist(), strict=True
                )
            ]
        )

    def warning(self) -> str | None:
        """Return a sentence about classes that are never predicted, None without such."""
        return never_predicted_message(self.never_predicted) if self.never_predicted else None

    def __repr__(self) -> str:
        parts = [f"{name}={value:.4g}" for name, value in self.values.items()]
        return f"Evaluation({', '.join(parts)}, n_rows={self.n_rows})"

    def _repr_html_(self) -> str:
        facts = [("rows", count(self.n_rows))]
        facts += [(name.replace("_", " "), f"{v:.4f}") for name, v in self.values.items()]
        problems = [text] if (text := self.warning()) else []
        tables = [("Each class", self.per_class)] if self.labels is not None else []
        return render_repr(title="Evaluation", facts=facts, problems=problems, tables=tables)


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    client: Client | None = None,
    progress: Any = None,
) -> Evaluation:
    """Measure a fitted model on rows, all metrics in one pass over their blocks.

    A class with rows that is never predicted is warned of with `NeverPredictedWarning`.

    Parameters
    ----------
    model : fitted classifier or regressor, or a pipeline that ends in one
        Of this package, or of scikit-learn.
    X : array, CSR or dask array of shape (n, p)
    y : array or dask array of shape (n,) or (n, targets)
        A dask array needs the row chunks of X.
    sample_weight : array or dask array of shape (n,), optional
    client : distributed.Client, optional
        Where to compute: this client, else the current one, else local threads.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> y = (X[:, 0] > 1).astype(int)
    >>> found = rf.metrics.evaluate(rf.RidgeClassifier().fit(X, y), X, y)
    >>> found["roc_auc"] > 0.99
    True
    """
    found = measured(model, X, y, sample_weight=sample_weight, client=client, progress=progress)
    if said := found.warning():
        warnings.warn(said, NeverPredictedWarning, stacklevel=2)
    return found


def measured(
    model: Any,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    client: Client | None = None,
    progress: Any = None,
) -> Evaluation:
    """Measure like :func:`evaluate`, and leave it to the caller to say what is wrong."""
    if isinstance(model, Pipeline) and len(model) > 1 and hasattr(model[0], "spec_of_table"):
        X, model = model[0].transform(X), model[1:]
    learner = model[-1] if isinstance(model, Pipeline) else model
    named = hasattr(X, "columns") or names_in_store(X) is not None
    X = columns_of_model(model, X)
    matrix, column, weights = check_data(learner, X, y, sample_weight, columns=False)
    with without_word_of_names(named):
        return _measured_rows(model, matrix, column, weights, client, progress)


def columns_of_model(model: Any, X: Any) -> Any:
    """Return rows with the columns of a model's first step; frames in another order are refused.

    Blocks have no names: from here on columns go by position.
    """
    check_container(X)
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    first = next(step for step in steps if step not in (None, "passthrough"))
    found = columns_by_name(first, X)
    if hasattr(X, "columns") and isinstance(first, BaseEstimator):
        with without_word_of_names(names_are_compared(first, X)):
            validate_data(first, found, reset=False, skip_check_array=True)
    return found


def _measured_rows(
    model: Any, matrix: Any, column: Any, weights: Any, client: Any, progress: Any
) -> Evaluation:
    learner = model[-1] if isinstance(model, Pipeline) else model
    if isinstance(model, Pipeline) and len(model) > 1 and _is_ours(model):
        matrix = model[:-1].transform(matrix)  # once for all that is asked of the learner
        model = learner
    arrays: list[Any]
    if is_classifier(learner):
        is_linear = isinstance(learner, LinearClassifierMixin)
        scored = _score_method(learner)
        arrays = [column, None if is_linear else _lazily(model, "predict", matrix)]
        arrays += [_lazily(model, scored, matrix) if scored else None]
        proba = hasattr(learner, "predict_proba") and scored != "predict_proba"
        arrays += [_lazily(model, "predict_proba", matrix) if proba else None]
        there = tuple(array is not None for array in arrays)
        count_block: Any = partial(
            count_classes, there, np.asarray(learner.classes_), scored == "predict_proba"
        )
        merge: Any = ClassCounts.merge
    else:
        arrays = [column, _lazily(model, "predict", matrix)]
        count_block, merge = target_errors, merge_errors
    given = [array for array in arrays if array is not None]
    counts = count_blocks([*given, weights], count_block, merge, client, progress)
    n_rows = int(matrix.shape[0])
    return _of_classes(counts, n_rows) if is_classifier(learner) else _of_targets(counts, n_rows)


def count_blocks(
    arrays: Sequence[Any],
    count: Callable[..., Any],
    merge: Callable[[Any, Any], Any],
    client: Client | None,
    progress: Any = None,
    label: str = "scoring",
    group_size: int = GROUP,
) -> Any:
    """Count every block with ``count(*arrays of the block, weights)`` and merge all counts.

    The last of the arrays are weights, or None.
    """
    fold = FoldCounts(count, merge, arrays[-1] is not None)
    parts = fold_blocks(arrays, fold, None, client, label, group_size=group_size, progress=progress)
    known = [part for part in parts if part is not None]
    if not known:
        raise ValueError("There are no rows to measure anything on.")
    return reduce(merge, known)


def _is_ours(model: Any) -> bool:
    """Tell whether all steps of a model take dask arrays."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    return all(type(step).__module__.startswith("rfcdask.") for step in steps)


def _score_method(learner: Any) -> str | None:
    methods = ("decision_function", "predict_proba")
    return next((name for name in methods if hasattr(learner, name)), None)


def _lazily(model: Any, method: str, X: Any) -> Any:
    """Return what a method gives for each row; other packages would read a dask array whole."""
    if _is_ours(model):
        return getattr(model, method)(X)
    like = np.asarray(_call_block(np.zeros((1, X.shape[1]), X.dtype), model, method))
    shape: dict[str, Any] = {"drop_axis": 1}
    if like.ndim == 2:
        shape = {"chunks": (X.chunks[0], (like.shape[1],))}
    held = delayed(model, pure=False, traverse=False)
    return da.map_blocks(_call_block, X, held, method, dtype=like.dtype, meta=like[:0], **shape)


def _call_block(block: Any, model: Any, method: str) -> Array:
    return np.asarray(getattr(model, method)(block if is_sparse(block) else dense(block)))


def _of_classes(counts: ClassCounts, n_rows: int, needed: str | None = None) -> Evaluation:
    """Return all metrics, or accuracy and the one that is needed."""
    true, predicted, weights = counts.confusion
    values, labels = class_values(counts, needed), np.union1d(true, predicted)
    matrix = np.zeros((len(labels), len(labels)), weights.dtype)
    matrix[np.searchsorted(labels, true), np.searchsorted(labels, predicted)] = weights
    return Evaluation(values, n_rows, labels, matrix, counts.confusion.never_predicted())


def _of_targets(errors: Array, n_rows: int) -> Evaluation:
    each = target_values(errors)
    values = {name: float(np.mean(found)) for name, found in each.items()}
    several = errors.shape[1] > 1
    return Evaluation(
        values, n_rows, targets={k: v.tolist() for k, v in each.items()} if several else {}
    )


@dataclass(frozen=True)
class ModelCounts:
    """What is counted of rows in memory for one metric of a model of any package, or for all."""

    model: Any
    scoring: str | None = None

    def of(self, X: Any, y: Array, weights: Array | None = None) -> Any:
        """Count rows; what the metric has no use for is not asked of the model."""
        model, needed = self.model, SCORERS[self.scoring][0] if self.scoring else None
        predicted, y = np.asarray(model.predict(X)), np.asarray(y)
        if not is_classifier(model):
            return target_errors(y, predicted, weights)
        scored = _score_method(model)
        scores = proba = None
        if scored and needed in (None, "roc_auc", "average_precision"):
            scores = np.asarray(getattr(model, scored)(X))
        of_ranks = scores is not None and len(model.classes_) > 2
        needs_proba = of_ranks or needed in (None, "log_loss", "brier_score")
        if hasattr(model, "predict_proba") and needs_proba:
            proba = scores if scored == "predict_proba" else None
            proba = np.asarray(model.predict_proba(X)) if proba is None else proba
        parts = (y, predicted, scores, proba)
        there = tuple(part is not None for part in parts)
        given = [part for part in parts if part is not None]
        return count_classes(there, np.asarray(model.classes_), False, *given, weights)

    def merge(self, a: Any, b: Any) -> Any:
        """Return the counts of both sets of rows."""
        return a.merge(b) if isinstance(a, ClassCounts) else merge_errors(a, b)

    def evaluation(self, counts: Any, n_rows: int = 0) -> Evaluation:
        """Return the metrics of what was counted."""
        if not isinstance(counts, ClassCounts):
            return _of_targets(counts, n_rows)
        needed = SCORERS[self.scoring][0] if self.scoring else None
        found = _of_classes(counts, n_rows, needed)
        if needed is not None and needed not in found.values:
            raise ValueError(
                f"scoring={self.scoring!r} cannot be measured on rows that are all of one class, "
                "or without probabilities: give more rows of other classes, or choose another."
            )
        return found


def score_in_memory(model: Any, X: Any, y: Array, scoring: str) -> float:
    """Judge a model of any package by one metric on rows in memory."""
    counts = ModelCounts(model, scoring)
    return counts.evaluation(counts.of(X, y), len(y))[scoring]


def has_numbers(y: Array, scoring: str | None = None) -> bool:
    """Tell whether labels in memory are numbers to predict rather than classes.

    So they are if the metric says so, if a row has several, or if some are no whole numbers.
    """
    if scoring is not None:
        return scoring in OF_NUMBERS
    y = np.asarray(y)
    return y.ndim == 2 or (y.dtype.kind == "f" and bool((y != np.floor(y)).any()))


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
        compared = check_scoring(
            scoring, numbers=numbers, without_probabilities="ridge models of a comparison"
        )
        return cls(numbers, compared, class_weight)

    @property
    def _weighted(self) -> dict[str, Any]:
        return {} if self.numbers else {"class_weight": self.class_weight}

    def ridge(self) -> Any:
        """Return the linear model with which maps are judged."""
        return (linear.Ridge if self.numbers else linear.RidgeClassifier)(**self._weighted)

    def sgd(self, **parameters: Any) -> Any:
        """Return the linear model for sparse columns, of which there may be very many."""
        kind = linear.SGDRegressor if self.numbers else linear.SGDClassifier
        return kind(**self._weighted, **parameters)

    def kernel_model(self, n_components: int, **parameters: Any) -> Any:
        """Return the model whose features learn."""
        kind = linear.KernelRegressor if self.numbers else linear.KernelClassifier
        return kind(n_components, **self._weighted, **parameters)

    def boosting(self, n_targets: int, seed: int) -> Any:
        """Return scikit-learn's gradient boosting, one model for each target."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
        from sklearn.multioutput import MultiOutputRegressor

        kind = HistGradientBoostingRegressor if self.numbers else HistGradientBoostingClassifier
        model = kind(random_state=seed % 2**32, **self._weighted)
        return MultiOutputRegressor(model) if n_targets > 1 else model

    def scores(self, model: Any, X: Any, labels: Array) -> dict[str, float]:
        """Return accuracy or R2 of rows in memory, and the metric to judge by."""
        counts = ModelCounts(model, self.scoring)
        found = counts.evaluation(counts.of(X, labels))
        plain = "r2" if self.numbers else "accuracy"
        return {plain: found[plain], self.scoring: found[self.scoring]}
