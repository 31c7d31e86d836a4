"""Predictions of fitted linear models, lazy on dask arrays, and their scores in bounded memory."""

from __future__ import annotations

import warnings
from functools import partial, reduce
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import dask.array as da
import numpy as np
from dask.delayed import delayed
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from rfcdask.data.sample import (
    check_container,
    columns_by_name,
    forget,
    gather,
    names_are_compared,
    without_word_of_names,
)
from rfcdask.display import count
from rfcdask.display.html import Facts, HTMLReprMixin
from rfcdask.execution.blocks import fold_blocks
from rfcdask.features.base import check_count
from rfcdask.features.lazy import FeatureArray
from rfcdask.kernels.arrays import Array, DaskArray, check_finite, feature_dtype, missing_labels
from rfcdask.kernels.seeds import draw_rows, seed_of, stream
from rfcdask.linear.counts import (
    ConfusionCounts,
    FoldCounts,
    NeverPredictedWarning,
    count_right,
    explained,
    merge_errors,
    never_predicted_message,
    sum_errors,
)
from rfcdask.linear.inputs import check_data, check_matrix
from rfcdask.linear.rows import (
    METHODS,
    Calibration,
    ClassPredictor,
    ClassProbabilities,
    LinearScores,
    RowFunction,
    check_total_weight,
    encode_labels,
    on_block,
)

SHOWN_CLASSES = 6
"""More classes than this are counted, not listed."""
SCORED_BLOCKS = 16
"""Blocks that are scored by one task, at most."""
FEWEST_ROWS = 5
"""Rows that each class must have: scikit-learn's own cross-validation wants as many."""
NOT_NEGATIVE = Interval(Real, 0, np.inf, closed="left")
COMMON_CONSTRAINTS: dict[str, Any] = {
    "fit_intercept": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "random_state": [
        Interval(Integral, 0, None, closed="left"),
        np.random.RandomState,
        np.random.Generator,
        None,
    ],
    "progress": "no_validation",
}
"""What scikit-learn checks of the parameters that linear models share."""


class LinearModel(HTMLReprMixin, BaseEstimator):
    """Base of the linear models; not for direct use."""

    coef_: Array
    intercept_: Any
    n_features_in_: int

    def _facts(self) -> Facts:
        found = [("columns", count(self.n_features_in_))]
        classes = getattr(self, "classes_", None)
        if classes is not None:
            names = ", ".join(str(name) for name in classes[:SHOWN_CLASSES])
            more = len(classes) - SHOWN_CLASSES
            found.append(("classes", names + (f" and {count(more)} more" if more > 0 else "")))
        return found

    def _validate_params(self) -> None:
        super()._validate_params()
        alphas = getattr(self, "alphas", None)
        for value in () if alphas is None else alphas:
            if not isinstance(value, Real) or value not in NOT_NEGATIVE:
                raise ValueError(f"alphas holds {value!r}; each alpha must be {NOT_NEGATIVE}.")
        if alphas is not None and not len(alphas):
            raise ValueError("alphas is empty; give at least one penalty.")

    _private: ClassVar[tuple[str, ...]] = ()
    """Names of what is learned besides attributes that end in an underscore."""

    def _forget(self) -> None:
        forget(self, *self._private)

    def _check_data(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[DaskArray, DaskArray, DaskArray | None]:
        """Return checked data to learn from, after a look at the parameters."""
        self._validate_params()
        return check_data(self, X, y, sample_weight, reset=reset)

    def _map_scores(self, X: Any, *, flat: bool) -> Array | DaskArray:
        """Return the scores of rows, of shape (n,) where that is asked for."""
        scores = LinearScores(self.coef_, self.intercept_, flat)
        return map_rows(self, X, self._of_rows(scores), None if flat else len(scores.coef))

    def _of_rows(self, function: RowFunction) -> Any:
        """Return a function of what `coef_` multiplies as a function of the rows of X."""
        return function


class LinearClassifierMixin(ClassifierMixin):
    """Scores, classes and accuracy of a model with `coef_`, `intercept_` and `classes_`."""

    def decision_function(self, X: Any) -> Array | DaskArray:
        """Return scores: one per row for two classes, else one per class; lazy on dask arrays."""
        check_is_fitted(self, "coef_")
        return self._map_scores(X, flat=len(self.coef_) == 1)

    def predict(self, X: Any) -> Array | DaskArray:
        """Return the class of each row; lazy on dask arrays."""
        check_is_fitted(self, "coef_")
        predictor = ClassPredictor(self.coef_, self.intercept_, self.classes_)
        return map_rows(self, X, self._of_rows(predictor), None, self.classes_.dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return the accuracy, computed block by block in bounded memory."""
        check_is_fitted(self, "coef_")
        arrays = _unevaluated(check_data(self, X, y, sample_weight))
        predictor = ClassPredictor(self.coef_, self.intercept_, self.classes_)
        count_block = partial(count_right, self._of_rows(predictor))
        fold = FoldCounts(count_block, ConfusionCounts.merge, arrays[2] is not None)
        parts = fold_blocks(arrays, fold, None, client, "scoring", group_size=SCORED_BLOCKS)
        counts = reduce(ConfusionCounts.merge, parts)
        accuracy = counts.accuracy()
        if missed := counts.never_predicted():
            said = never_predicted_message(self.classes_[missed].tolist())
            warnings.warn(said, NeverPredictedWarning, stacklevel=2)
        return accuracy

    @available_if(lambda self: self._has_probabilities())
    def predict_proba(self, X: Any) -> Array | DaskArray:
        """Return the probability of each class; lazy on dask arrays.

        They are those of the logistic model, or what :meth:`calibrate` made of the scores.
        """
        check_is_fitted(self, "coef_")
        calibration, softmax = getattr(self, "calibration_", None), len(self.coef_) > 1
        softmax = softmax and getattr(self, "multi_class", "multinomial") == "multinomial"
        function = ClassProbabilities(self.coef_, self.intercept_, softmax, calibration)
        return map_rows(self, X, self._of_rows(function), len(self.classes_))

    def calibrate(
        self,
        X: Any,
        y: Any,
        *,
        method: str = "sigmoid",
        n_rows: int = 100_000,
        random_state: Any = 0,
        client: Any = None,
    ) -> Self:
        """Learn probabilities from the scores of rows that the model did not learn from.

        Gives every classifier `predict_proba`; `predict` stays as it is, and another `fit` forgets
        the calibration.

        Parameters
        ----------
        X : array, CSR or dask array of shape (n, p)
        y : array or dask array of shape (n,)
        method : {"sigmoid", "isotonic"}
            Platt's sigmoid, or a staircase that never falls, for which a thousand rows are few.
        n_rows : int
            Rows whose scores are looked at, at most; they are drawn at random.
        random_state : int, RandomState, Generator or None
        client : distributed.Client, optional
            Where to compute: this client, else the current one, else local threads.
        """
        check_is_fitted(self, "coef_")
        if method not in METHODS:
            raise ValueError(f"method={method!r} must be one of {', '.join(METHODS)}.")
        check_count("n_rows", n_rows)
        matrix, column, _ = check_data(self, X, y, None)
        rng = stream(seed_of(random_state), "calibrate")
        rows = np.sort(draw_rows(matrix.shape[0], min(n_rows, matrix.shape[0]), rng))
        codes = encode_labels(np.asarray(gather(column, rows, client)), self.classes_)
        scores = np.asarray(gather(self.decision_function(matrix), rows, client), np.float64)
        flat = scores.reshape(len(rows), -1)
        self.calibration_ = fit_calibration(flat, codes, len(self.classes_), method)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _has_probabilities(self) -> bool:
        loss = getattr(self, "loss", None)
        if loss != "log_loss" and getattr(self, "calibration_", None) is None:
            other = "use loss='log_loss', or " if loss is not None else ""
            raise AttributeError(
                f"predict_proba is not defined for loss={loss!r}; {other}call calibrate(X, y) with "
                "rows held out."
            )
        return True

    def _check_classes(self, classes: Any, first: bool) -> None:
        """Learn the classes from the first call of `partial_fit`, and hold later ones to them."""
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all labels at once; use fit, or give a "
                "dict."
            )
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if first:
            found = np.unique(classes)
            if missing_labels(found).any():
                raise ValueError(f"classes={found.tolist()} holds a label that is no value.")
            self.classes_ = found
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={np.unique(classes).tolist()} differ from those of the first call, "
                f"{self.classes_.tolist()}; give all labels in the first call."
            )


def calibrate(model: Any, X: Any, y: Any, **options: Any) -> Any:
    """Give a fitted classifier, or a pipeline that ends in one, calibrated probabilities.

    Parameters
    ----------
    model : classifier of this package, or pipeline
    X, y
        Rows that it did not learn from, and their labels.
    **options
        ``method``, ``n_rows``, ``random_state`` and ``client`` of `RidgeClassifier.calibrate`.

    Returns
    -------
    The model, with `predict_proba`.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(600, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = rf.calibrate(rf.RidgeClassifier().fit(X[:300], y[:300]), X[300:], y[300:])
    >>> bool(model.predict_proba([[3.0, 0.0]])[0, 1] > 0.9)
    True
    """
    learner = model[-1] if isinstance(model, Pipeline) else model
    if not isinstance(learner, LinearClassifierMixin):
        raise TypeError(
            f"{type(learner).__name__} is no classifier of rfcdask: use "
            "sklearn.calibration.CalibratedClassifierCV for it."
        )
    rows = model[:-1].transform(X) if isinstance(model, Pipeline) and len(model) > 1 else X
    learner.calibrate(rows, y, **options)
    return model


class LinearRegressorMixin(RegressorMixin):
    """Predictions and R^2 of a model with `coef_` and `intercept_`."""

    coef_: Array
    intercept_: Any

    def predict(self, X: Any) -> Array | DaskArray:
        """Return the prediction for each row; lazy on dask arrays."""
        check_is_fitted(self, "coef_")
        return self._map_scores(X, flat=self.coef_.ndim == 1)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return R^2, computed block by block in bounded memory."""
        check_is_fitted(self, "coef_")
        arrays = _unevaluated(check_data(self, X, y, sample_weight))
        scores = LinearScores(self.coef_, self.intercept_)
        count_block = partial(sum_errors, self._of_rows(scores))
        fold = FoldCounts(count_block, merge_errors, arrays[2] is not None)
        parts = fold_blocks(arrays, fold, None, client, "scoring", group_size=SCORED_BLOCKS)
        errors = reduce(merge_errors, parts)
        check_total_weight(float(errors[0][0]))
        return float(np.mean(explained(errors)))

    def _flatten_outputs(self) -> None:
        """Give `coef_` and `intercept_` the shapes of a single target."""
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        return tags


def map_rows(
    estimator: Any, X: Any, function: RowFunction, width: int | None, dtype: Any = None
) -> Array | DaskArray:
    """Apply a function of the rows: at once to an array in memory, lazily to a dask array.

    `width` is the number of columns that come out; None means one value per row. Without a `dtype`
    it is that of features of such rows: float32 stays float32.
    """
    if not isinstance(X, da.Array):
        check_container(X)
        csr = "csr" if get_tags(estimator).input_tags.sparse else False
        options = {"dtype": "numeric", "accept_sparse": csr, "ensure_all_finite": False}
        X = validated(estimator, X, **options)
        check_finite(X)
        return function(X.astype(feature_dtype(X.dtype), copy=False))
    matrix = check_matrix(estimator, X, keep_empty=True)
    dtype = feature_dtype(X.dtype) if dtype is None else dtype
    if isinstance(matrix, FeatureArray):
        matrix = matrix.unevaluated()
    if not isinstance(function, LinearScores):  # large: one task holds it for all blocks
        function = delayed(function, pure=True, traverse=False)
    chunks, meta = (matrix.chunks[0], (width or 1,)), np.empty((0, 0), dtype)
    found = da.map_blocks(on_block, matrix, function, chunks=chunks, dtype=dtype, meta=meta)
    # A dropped axis would make Dask join blocks, and copy them even where there is one alone.
    return found[:, 0] if width is None else found


def validated(estimator: Any, X: Any, **options: Any) -> Any:
    """Return rows in memory as scikit-learn checks them, their columns as those of `fit`."""
    with without_word_of_names(names_are_compared(estimator, X)):
        return validate_data(estimator, columns_by_name(estimator, X), reset=False, **options)


def _unevaluated(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arrays with rows in the place of their features, which are evaluated in tiles."""
    X, *others = arrays
    return (X.unevaluated() if isinstance(X, FeatureArray) else X, *others)


def fit_calibration(
    scores: Array, codes: Array, n_classes: int, method: str, weights: Array | None = None
) -> Calibration:
    """Learn from scores of shape (n, outputs) and the number of each row's class."""
    counts = np.bincount(codes, minlength=n_classes)
    if counts.min() < FEWEST_ROWS:
        raise ValueError(
            f"Calibration needs {FEWEST_ROWS} rows of every class, and one has "
            f"{counts.min()}: give more rows."
        )
    frozen = FrozenEstimator(_ScoresAsRows(n_classes).fit(scores))
    fitted = CalibratedClassifierCV(frozen, method=method).fit(scores, codes, weights)
    (whole,) = fitted.calibrated_classifiers_
    parts = whole.calibrators
    if method == "sigmoid":
        slopes, offsets = np.array([(part.a_, part.b_) for part in parts], float).T
        return Calibration(method, slopes, offsets, np.arange(1, len(parts) + 1))
    corners = [(part.X_thresholds_, part.y_thresholds_) for part in parts]
    found, values = (np.concatenate(side).astype(float) for side in zip(*corners, strict=True))
    return Calibration(method, found, values, np.cumsum([len(x) for x, _ in corners]))


class _ScoresAsRows(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose rows are scores already, as scikit-learn's calibration wants it."""

    def __init__(self, n_classes: int = 2) -> None:
        self.n_classes = n_classes

    def fit(self, X: Array, y: Any = None) -> _ScoresAsRows:
        self.classes_ = np.arange(self.n_classes)
        self.n_features_in_ = X.shape[1]
        return self

    def decision_function(self, X: Array) -> Array:
        return X[:, 0] if X.shape[1] == 1 else X

    def predict(self, X: Array) -> Array:
        return X.argmax(1) if X.shape[1] > 1 else (X[:, 0] > 0).astype(int)
