"""Metrics by scikit-learn's names, streamed over the blocks of Dask arrays: ``rf.metrics``.

Beside them the distance of a feature map to the exact kernel.

Each block is counted where it lies, the counts are merged, and scikit-learn's own function makes
the metric of them: it is that of the whole arrays, whatever the chunks. Arrays in memory are given
to scikit-learn as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import sklearn.metrics

from rfcdask.data.sample import check_container, checked_blocks, gather_finite, require_known_rows
from rfcdask.evaluation.evaluate import Evaluation, count_blocks, evaluate
from rfcdask.features.base import FeatureMap, check_count
from rfcdask.kernels import Kernel, get_kernel
from rfcdask.kernels.arrays import Array, DaskArray, Matrix, RandomState
from rfcdask.kernels.runtime import map_tiles
from rfcdask.kernels.seeds import draw_rows, seed_of, stream
from rfcdask.linear import SCORERS
from rfcdask.linear.counts import (
    ConfusionCounts,
    NeverPredictedWarning,
    RankedScores,
    class_losses,
    explained,
    merge_errors,
    merge_ranks,
    metric_of_ranks,
    rank_classes,
    target_errors,
)
from rfcdask.linear.rows import check_total_weight
from rfcdask.selection.candidates import sum_of_squares

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "SCORERS",
    "Evaluation",
    "NeverPredictedWarning",
    "accuracy_score",
    "average_precision_score",
    "balanced_accuracy_score",
    "brier_score_loss",
    "confusion_matrix",
    "evaluate",
    "f1_score",
    "log_loss",
    "mean_absolute_error",
    "mean_squared_error",
    "precision_score",
    "r2_score",
    "recall_score",
    "roc_auc_score",
    "root_mean_squared_error",
]
Metric = Callable[..., Any]
Count = Callable[..., Any]
"""``count(*arrays of a block, weights or None) -> counts``"""


def _align(arrays: Mapping[str, Any]) -> list[DaskArray | None]:
    """Return all arrays as dask arrays with the row chunks of the first that is one."""
    for name, array in arrays.items():
        if isinstance(array, da.Array):
            require_known_rows(array, name)
    rows = next(array.chunks[0] for array in arrays.values() if isinstance(array, da.Array))
    return [None if array is None else _cut(name, array, rows) for name, array in arrays.items()]


def _cut(name: str, array: Any, rows: tuple[int, ...]) -> DaskArray:
    if array.ndim == 0 or array.shape[0] != sum(rows):
        raise ValueError(
            f"{name} has shape {array.shape}, but {sum(rows)} rows are there: give one entry for "
            "each row."
        )
    chunks = (rows, *array.shape[1:])
    return (
        checked_blocks(array, name).rechunk(chunks)
        if isinstance(array, da.Array)
        else da.from_array(array, chunks, name=False)
    )


def _flat(name: str, array: Any) -> Any:
    """Return an array, a single column of it flat: against a row it would make a matrix."""
    check_container(array, name)
    if array is None:
        return None
    found = array if isinstance(array, da.Array) else np.asarray(array)
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


def _require_one(arrays: Mapping[str, Any], *names: str) -> None:
    """Refuse several columns where each row has one entry."""
    for name in names:
        if arrays[name] is not None and arrays[name].ndim > 1:
            raise ValueError(
                f"{name} has shape {arrays[name].shape}: give one entry for each row, of several "
                "labels those of one column at a time."
            )


def _counted(arrays: Mapping[str, Any], count: Count, merge: Any, client: Any) -> Any:
    """Return the counts of all rows; the last of the arrays are weights, or None."""
    return count_blocks(_align(arrays), count, merge, client)


def _streamed(measure: Metric) -> Metric:
    """Return a metric that leaves arrays in memory to scikit-learn's function of its name."""
    original = getattr(sklearn.metrics, measure.__name__.lstrip("_"))
    signature = inspect.signature(original)

    def metric(y_true: Any, y_pred: Any, *, client: Any = None, **options: Any) -> Any:
        signature.bind(y_true, y_pred, **options)  # the message of a wrong name is Python's own
        weights = options.get("sample_weight")
        if not any(isinstance(array, da.Array) for array in (y_true, y_pred, weights)):
            for name, array in (("y_true", y_true), ("y_pred", y_pred)):
                check_container(array, name)
            return original(y_true, y_pred, **options)
        options.pop("sample_weight", None)
        given = {"y_true": y_true, "y_pred": y_pred, "sample_weight": weights}
        arrays = {name: _flat(name, array) for name, array in given.items()}
        _require_one(arrays, "sample_weight")
        return measure(arrays, client, original, **options)

    named = [p for p in signature.parameters.values() if p.default != "deprecated"]
    named = [p.replace(default=p.empty) if p.name == "y_proba" else p for p in named]
    extra = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
    metric.__signature__ = signature.replace(parameters=[*named, extra])  # type: ignore[attr-defined]
    metric.__name__ = metric.__qualname__ = original.__name__
    metric.__module__ = __name__
    metric.__doc__ = (
        f"{measure.__doc__}\n\n    Parameters are those of ``sklearn.metrics.{original.__name__}``"
        ", arrays or dask arrays, and\n    `client`: where to compute, else the current client, "
        "else local threads.\n    "
    )
    return metric


def _label_metric(name: str, about: str) -> Metric:
    def measure(arrays: Any, client: Any, original: Metric, **options: Any) -> Any:
        _require_one(arrays, "y_true", "y_pred")
        found = _counted(arrays, ConfusionCounts.of, ConfusionCounts.merge, client)
        return original(found.true, found.predicted, sample_weight=found.weights, **options)

    measure.__name__, measure.__doc__ = name, about
    return _streamed(measure)


accuracy_score = _label_metric("accuracy_score", "Return the share of rows predicted right.")
balanced_accuracy_score = _label_metric(
    "balanced_accuracy_score", "Return the mean of the recalls of all classes."
)
confusion_matrix = _label_metric(
    "confusion_matrix", "Return how often each class (rows) was predicted as each class."
)
recall_score = _label_metric(
    "recall_score", "Return the share of the rows of a class that were found, or a mean of these."
)
precision_score = _label_metric(
    "precision_score", "Return the share of a class's predictions that are right, or a mean."
)
f1_score = _label_metric("f1_score", "Return the harmonic mean of precision and recall.")


def _classes(arrays: Mapping[str, Any], client: Any, labels: Any = None) -> Array:
    """Return the distinct labels of y_true, from a pass over it alone, or all that are given."""
    _require_one(arrays, "y_true")
    column = {"y_true": arrays["y_true"], "weights": None}
    lazy = isinstance(arrays["y_true"], da.Array)
    distinct = _counted(column, lambda y, _: np.unique(y), np.union1d, client) if lazy else None
    found = np.asarray(distinct) if lazy else np.unique(arrays["y_true"])
    if labels is None:
        return found
    known = np.unique(labels)
    strange = [label for label in found.tolist() if label not in {*known.tolist()}]
    if strange:  # numpy would compare numbers with text as text
        raise ValueError(f"y_true has labels {strange[:5]} that are not in labels={known}.")
    return known


def _ranked(arrays: Mapping[str, Any], classes: Array, client: Any) -> list[RankedScores]:
    """Return the ranks of each class against the rest; of two classes those of the second."""
    scores = arrays["y_pred"]
    width = scores.shape[1] if scores.ndim == 2 else 1
    if width != len(classes) and (scores.ndim == 2 or len(classes) > 2):
        raise ValueError(
            f"y_score has {width} column(s) and y_true {len(classes)} classes: give one "
            "score for each class, and labels= where y_true does not have all of them."
        )
    ranks: list[RankedScores] = _counted(
        arrays, partial(rank_classes, classes), merge_ranks, client
    )
    return ranks


@_streamed
def roc_auc_score(
    arrays: Mapping[str, Any],
    client: Any,
    original: Metric,
    *,
    average: str | None = "macro",
    max_fpr: float | None = None,
    multi_class: str = "raise",
    labels: Any = None,
) -> Any:
    """Return the area under the ROC curve of two classes, or of each class against the rest.

    Exact while there are at most 1,048,576 different scores (divided by the number of classes);
    more are put into so many bins, which changes it by less than 1e-5 for each doubling of the
    rows. Scores of several classes need not add up to one.
    """
    classes = _classes(arrays, client, labels)
    if len(classes) > 2 and (multi_class != "ovr" or average not in ("macro", "weighted", None)):
        raise ValueError(
            f"y_true has {len(classes)} classes: pass multi_class='ovr', with average 'macro' or "
            "'weighted', for the mean of each class against the rest."
        )
    if labels is not None and list(labels) != classes.tolist():
        raise ValueError(f"labels={labels!r} must be sorted, as the columns of y_score are.")
    ranks = _ranked(arrays, classes, client)
    return metric_of_ranks(original, ranks, average, max_fpr=max_fpr)


@_streamed
def average_precision_score(
    arrays: Mapping[str, Any],
    client: Any,
    original: Metric,
    *,
    average: str | None = "macro",
    pos_label: Any = 1,
) -> Any:
    """Return the area under the curve of precision and recall; see `roc_auc_score`."""
    classes = _classes(arrays, client)
    if len(classes) <= 2:
        if pos_label not in classes:
            raise ValueError(
                f"pos_label={pos_label} is not a valid label: it should be one of {classes}."
            )
        if arrays["y_pred"].ndim > 1 and pos_label != classes[-1]:
            raise ValueError(
                f"y_score has two columns: give that of pos_label={pos_label!r} alone."
            )
        classes = np.array([*classes[classes != pos_label], pos_label])
    elif average not in ("macro", "weighted", None):
        raise ValueError(f"average={average!r} must be 'macro', 'weighted' or None.")
    return metric_of_ranks(original, _ranked(arrays, classes, client), average)


def _loss_of_probabilities(
    arrays: Mapping[str, Any], client: Any, classes: Array
) -> tuple[float, float, float]:
    scores = arrays["y_pred"]
    width = 2 if scores.ndim == 1 or scores.shape[1] == 1 else scores.shape[1]
    if width != len(classes):
        raise ValueError(
            f"y_proba has {width} classes and y_true {len(classes)}: give one probability for each"
            " class, and labels= where y_true does not have all of them."
        )
    weight, log, brier = _counted(arrays, partial(class_losses, classes), np.add, client)
    check_total_weight(float(weight))
    return float(weight), float(log), float(brier)


@_streamed
def log_loss(
    arrays: Mapping[str, Any],
    client: Any,
    original: Metric,
    *,
    normalize: bool = True,
    labels: Any = None,
) -> float:
    """Return the mean of the negative logarithm of the probability of the true class."""
    classes = _classes(arrays, client, labels)
    weight, log, _ = _loss_of_probabilities(arrays, client, classes)
    return log / weight if normalize else log


@_streamed
def brier_score_loss(
    arrays: Mapping[str, Any],
    client: Any,
    original: Metric,
    *,
    pos_label: Any = None,
    labels: Any = None,
    scale_by_half: bool | str = "auto",
) -> float:
    """Return the mean squared difference of probabilities and what happened."""
    classes = _classes(arrays, client, labels)
    two = len(classes) == 2
    if two and pos_label is not None and pos_label != classes[1]:
        raise ValueError(
            f"pos_label={pos_label!r} must be the later of both labels, {classes[1]!r}: give 1 - p."
        )
    weight, _, brier = _loss_of_probabilities(arrays, client, classes)
    halved = two if scale_by_half == "auto" else bool(scale_by_half)
    return brier / weight * (1 + two) / (1 + halved)


def _error_metric(name: str, about: str, values: Callable[..., Array]) -> Metric:
    def measure(
        arrays: Any,
        client: Any,
        original: Metric,
        *,
        multioutput: Any = "uniform_average",
        **options: Any,
    ) -> Any:
        rule = multioutput if isinstance(multioutput, str) else ""
        rules = ["uniform_average", "raw_values", *["variance_weighted"] * (name == "r2_score")]
        if rule and rule not in rules:
            raise ValueError(f"multioutput={rule!r} must be one of {', '.join(rules)}, or weights.")
        errors = _counted(arrays, target_errors, merge_errors, client)
        check_total_weight(float(errors[0][0]))
        if name == "r2_score" and arrays["y_true"].shape[0] == 1:
            return original([0.0], [0.0])  # of one row it is NaN, with scikit-learn's own warning
        found = values(errors, **options)
        if rule == "raw_values":
            return found
        weights = None if rule else multioutput
        if weights is not None and np.shape(weights) != errors[0].shape:
            raise ValueError(f"multioutput={weights!r}: give {errors.shape[1]} weights, or a rule.")
        if rule == "variance_weighted" and errors[2].any():
            weights = errors[2]
        return float(np.average(found, weights=weights))

    measure.__name__, measure.__doc__ = name, about
    return _streamed(measure)


r2_score = _error_metric(
    "r2_score", "Return the share of the variance of targets that is explained.", explained
)
mean_absolute_error = _error_metric(
    "mean_absolute_error", "Return the mean absolute error.", lambda sums: sums[4] / sums[0]
)
mean_squared_error = _error_metric(
    "mean_squared_error", "Return the mean squared error.", lambda sums: sums[3] / sums[0]
)
root_mean_squared_error = _error_metric(
    "root_mean_squared_error",
    "Return the root of the mean squared error.",
    lambda sums: np.sqrt(sums[3] / sums[0]),
)
_TILE = 512


def kernel_error(
    feature_map: Any,
    X: Any,
    *,
    n_points: int = 10_000,
    random_state: RandomState = None,
    client: Client | None = None,
) -> float:
    """Return ``||Z Z^T - K||_F / ||K||_F`` on a random sample of rows, with K the exact kernel.

    Parameters
    ----------
    feature_map : fitted feature map
    X : array, CSR or dask array of shape (n_samples, n_features)
    n_points : int, default=10_000
        How many rows to draw; all of them when there are fewer.
    random_state : int, RandomState, Generator or None
    client : distributed.Client, optional
        Where rows of a dask array are fetched.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> features = rf.RandomFeatures(4000, random_state=0).fit(X)
    >>> rf.kernel_error(features, X, random_state=0) < 0.1
    True
    """
    check_count("n_points", n_points, least=2)
    if not hasattr(feature_map, "gamma_") or not hasattr(feature_map, "kernel"):
        raise TypeError(
            f"kernel_error needs a fitted feature map with kernel and gamma_, which "
            f"{type(feature_map).__name__} has not; of a pipeline, pass the map alone and the rows "
            "as it sees them."
        )
    evaluate = feature_map.transform
    if isinstance(feature_map, FeatureMap):
        X, evaluate = feature_map._check_input(X, reset=False), feature_map._evaluate
    drawn = draw_rows(X.shape[0], min(n_points, X.shape[0]), stream(seed_of(random_state), "error"))
    rows = gather_finite(X, drawn, client)
    Z = np.asarray(evaluate(rows))
    kernel, gamma = get_kernel(feature_map.kernel), feature_map.gamma_
    rows = rows.astype(np.float64)

    def squares(start: int) -> tuple[float, float]:
        return _tile_squares(kernel, gamma, rows, Z, start)

    sums = np.array(map_tiles(squares, range(0, rows.shape[0], _TILE)))
    wrong, whole = sums.sum(axis=0)
    return float(np.sqrt(wrong / whole))


def _tile_squares(
    kernel: Kernel, gamma: float, rows: Matrix, Z: Array, start: int
) -> tuple[float, float]:
    """Return the sums of (Z Z^T - K)^2 and of K^2 over a tile of rows; K is symmetric."""
    stop = min(start + _TILE, Z.shape[0])
    K = kernel.exact(rows[start:stop], rows[start:], gamma)
    E = Z[start:stop] @ Z[start:].T - K
    twice = 2 * sum_of_squares(E) - sum_of_squares(E[:, : stop - start])
    return twice, 2 * sum_of_squares(K) - sum_of_squares(K[:, : stop - start])
