"""The rows of one block: what is asked of them before learning, and what is made of them.

Scores, classes and probabilities are computed a few rows at a time.

Worker processes need these and no estimator: nothing here imports scikit-learn or Dask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from rfcdask.features.evaluators import FeatureRows
from rfcdask.kernels.arrays import (
    Array,
    Matrix,
    NotFiniteError,
    as_csr,
    check_finite,
    feature_dtype,
    is_sparse,
    missing_labels,
    to_dense,
)

TILE_ROWS = 2048
"""Rows whose features are in memory at a time."""

RowFunction = Callable[[Any], Array]


def on_block(block: Any, function: RowFunction, block_id: tuple[int, ...] | None = None) -> Array:
    """Return what a function makes of the rows of a block, in two dimensions."""
    try:
        found = np.concatenate([function(rows) for rows in tiles(block)])
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            for rows in tiles(block):
                check_finite(rows)
    except NotFiniteError as error:
        raise error.in_block(block_id[0] if block_id else 0) from None
    return found[:, None] if found.ndim == 1 else found


def tiles(block: Matrix | FeatureRows) -> Iterator[Any]:
    """Yield the rows of a block, or their features, a few at a time; one tile without any rows.

    Sparse rows stay as they are: of many columns a block would not fit in memory.
    """
    if is_sparse(block):
        rows = as_csr(block)
        yield rows.astype(feature_dtype(rows.dtype), copy=False)
        return
    if not isinstance(block, FeatureRows):
        yield dense(block)
        return
    for start in range(0, max(block.shape[0], 1), TILE_ROWS):
        yield block[start : start + TILE_ROWS]


class LinearScores:
    """``x -> coef x + intercept``, small enough to travel inside a graph."""

    def __init__(self, coef: Array, intercept: Any, flat: bool = False) -> None:
        self.coef, self.intercept = np.atleast_2d(coef), np.atleast_1d(intercept)
        self.flat = flat

    def __call__(self, X: Array) -> Array:
        """Return scores of shape (n, outputs), or (n,)."""
        scores = self.scores(X)
        with np.errstate(over="ignore"):
            rounded = scores.astype(X.dtype, copy=False)
        if not np.isfinite(rounded).all() or (scores.any() and not rounded.any()):
            raise ValueError(
                f"Predictions as large as {np.abs(scores).max():.2g} are no numbers of {X.dtype}; "
                "give X as float64, or fit on y divided by its size."
            )
        return rounded.ravel() if self.flat else rounded

    def scores(self, X: Array) -> Array:
        """Return scores of shape (n, outputs), in float64 where those of X are beyond float32."""
        with np.errstate(over="ignore", invalid="ignore"):
            coef = self.coef.T.astype(X.dtype)
            scores: Array = X @ coef + self.intercept.astype(X.dtype)
        if X.dtype != np.float64 and (self.coef.any() and not coef.any()):
            return np.asarray(X.astype(np.float64) @ self.coef.T + self.intercept)
        if not np.isfinite(scores).all():  # infinity would be a certain probability, NaN a class
            check_finite(X)
            return np.asarray(X.astype(np.float64) @ self.coef.T + self.intercept)
        return scores


class ClassPredictor(LinearScores):
    """The class with the largest score."""

    def __init__(self, coef: Array, intercept: Any, classes: Array) -> None:
        super().__init__(coef, intercept)
        self.classes = classes

    def codes(self, X: Array) -> Array:
        """Return the number of the class of each row."""
        scores = self.scores(X)
        codes: Array = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return codes

    def __call__(self, X: Array) -> Array:
        """Return labels of shape (n,)."""
        return np.asarray(self.classes[self.codes(X)])


class ClassProbabilities(LinearScores):
    """The probability of each class under a logistic model, or as it was calibrated."""

    def __init__(
        self, coef: Array, intercept: Any, softmax: bool, calibration: Calibration | None = None
    ) -> None:
        super().__init__(coef, intercept)
        self.softmax, self.calibration = softmax, calibration

    def __call__(self, X: Array) -> Array:
        """Return probabilities of shape (n, classes)."""
        scores = self.scores(X)
        if self.calibration is not None:
            return self.calibration(scores).astype(X.dtype)
        return probabilities_of(scores, self.softmax).astype(X.dtype, copy=False)


def probabilities_of(scores: Array, softmax: bool) -> Array:
    """Return the probabilities (n, classes) of logistic scores, all at once or against the rest."""
    if softmax:
        return np.asarray(scipy.special.softmax(scores, axis=1))
    share = scipy.special.expit(scores)
    if scores.shape[1] == 1:
        return np.hstack([1 - share, share])
    return np.asarray(share / np.maximum(share.sum(1, keepdims=True), 1e-30))


class OnFeatures:
    """``x -> function(features(x))``: a few rows at a time, never a block of features.

    `features` makes what evaluates them in a precision.
    """

    def __init__(self, features: Callable[[np.dtype], RowFunction], function: RowFunction) -> None:
        self.features, self.function = features, function

    @property
    def classes(self) -> Array:
        """The classes of a classifier."""
        assert isinstance(self.function, ClassPredictor)
        return self.function.classes

    def codes(self, X: Matrix) -> Array:
        """Return the number of the class of each row."""
        assert isinstance(self.function, ClassPredictor)
        return self._evaluate(X, self.function.codes)

    def __call__(self, X: Matrix) -> Array:
        """Return what the function makes of the features of each row."""
        return self._evaluate(X, self.function)

    def _evaluate(self, X: Matrix, function: RowFunction) -> Array:
        X = as_csr(X) if is_sparse(X) else np.asarray(X)
        check_finite(X)
        features = self.features(feature_dtype(X.dtype))
        starts = range(0, max(X.shape[0], 1), TILE_ROWS)
        return np.concatenate([function(features(X[i : i + TILE_ROWS])) for i in starts])


MAX_CLASSES = 10_000
"""More distinct labels than this are taken for numbers that somebody meant to regress on."""


def dense(block: Any) -> Array:
    """Return a block as the C-ordered, aligned float array the kernels read.

    Arrays that came over the network may start at any byte: numpy then takes other ways through
    a product, which end in other bits.
    """
    array = np.require(to_dense(block), requirements=["C_CONTIGUOUS", "ALIGNED"])
    return array.astype(feature_dtype(array.dtype), copy=False)


def encode_labels(y: Array, classes: Array) -> Array:
    """Return the number of each label among the sorted classes, or name labels that are not."""
    if np.result_type(classes, y).kind == "f" and classes.dtype.kind in "iu":
        _require_exact(classes)
    try:
        codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    except TypeError:  # Python objects of several types
        raise ValueError(
            f"y holds labels that cannot be compared with those of the model, such as "
            f"{classes[0]!r}; give labels of the type that it was fitted on."
        ) from None
    wrong = classes[codes] != y
    if np.any(wrong):
        strange = np.unique(np.asarray(y)[wrong])[:5].tolist()
        known = ", ".join(repr(value) for value in classes[:6].tolist())
        known += ", ..." if len(classes) > 6 else ""
        raise ValueError(
            f"y holds labels {strange} that the model was not fitted on "
            f"(it knows {known}); fit on all labels, or leave such rows out."
        )
    return codes.astype(np.int64)


def _require_exact(classes: Array) -> None:
    """Refuse to compare whole numbers with floats that cannot tell them apart."""
    if len(classes) and max(abs(int(classes[0])), abs(int(classes[-1]))) > 2**53:
        raise ValueError(
            "y is compared as floating point with classes beyond 2**53, where neighbours are the "
            f"same; give y as {classes.dtype}."
        )


def to_numbers(values: Array, what: str, block_id: tuple[int, ...] = (0,)) -> Array:
    """Return the values of a block in float64; raise where one is no number."""
    faults = (TypeError, ValueError, OverflowError)
    try:
        return values.astype(np.float64)
    except faults:
        for row, value in enumerate(values):
            with suppress(*faults):
                if np.asarray(value, object).astype(np.float64).ndim < values.ndim:
                    continue
            raise ValueError(
                f"{what} holds {str(value)[:40]!r} in block {block_id[0]}, row {row} of the block, "
                "which is no real number; remove or replace such rows first."
            ) from None
        raise


def check_block_weights(weights: Array, index: int) -> None:
    """Raise on sample weights of a block that are negative or no numbers."""
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(
            f"sample_weight is negative or not finite in block {index}, row "
            f"{int(np.argmax(wrong))} of the block; weights must be finite and at least 0."
        )


def weights_of_steps(values: Any, index: int) -> Array:
    """Return sample weights of a block in float32: none becomes 0 or infinite by rounding."""
    weights = np.asarray(values, np.float64)
    check_block_weights(weights, index)
    return np.where(weights > 0, np.clip(weights, 1e-37, 1e37), 0.0).astype(np.float32)


def check_total_weight(weight: float) -> None:
    """Raise when no row counts."""
    if not weight > 0:
        raise ValueError("Sample weights are all zero; some rows must count.")


def check_mean_weight(weight: float, n_rows: float) -> None:
    """Raise when the weights of all rows are too small or too large for steps in float32."""
    check_total_weight(weight)
    if not 1e-20 < weight / n_rows < 1e20:
        raise ValueError(
            f"The weights of rows and classes have a mean of {weight / n_rows:.3g}, and training "
            "needs one between 1e-20 and 1e20; divide them by their mean."
        )


def not_finite_error(
    name: str, index: int, row: int, first_row: int, column: int | None = None
) -> ValueError:
    """Return the error that says where a value of X or y is NaN or infinite."""
    where = "" if column is None else f", column {column}"
    return ValueError(
        f"{name} is NaN or infinite in block {index}, row {row} of the block "
        f"(row {first_row + row} of {name}{where}); remove or replace such rows before training."
    )


def find_not_finite(X: Array, y: Array | None, index: int, first_row: int) -> ValueError | None:
    """Return an error naming the first value of a block that is not finite, or None."""
    for name, array in (("X", X), ("y", y)):
        if array is None or array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        row, column = np.argwhere(~np.isfinite(array.reshape(len(array), -1)))[0]
        place = int(column) if array.ndim > 1 else None
        return not_finite_error(name, index, int(row), first_row, place)
    return None


def count_labels(state: Any, block: tuple[Any, ...], index: int, starts: Array, keep: bool) -> Any:
    """Add the labels of a block, how often each occurs, and where if they are to be kept."""
    y = np.asarray(block[0])
    missing = missing_labels(y)
    if missing.any():
        raise not_finite_error("y", index, int(np.argmax(missing)), int(starts[index]))
    values, amounts = distinct_labels([y], f" (block {index})")
    require_few_classes(values, f" in block {index}")
    places = None
    if keep:
        places = np.searchsorted(values, y).astype(np.min_scalar_type(len(values)))
    return (*state, (values, amounts, places))


def require_few_classes(classes: Array, where: str = "") -> None:
    """Raise where so many labels differ that they are most likely numbers."""
    if len(classes) > MAX_CLASSES:
        raise ValueError(
            f"y has more than {MAX_CLASSES} distinct labels{where}. Unknown label type: "
            "continuous; use a regressor, or group the labels."
        )


def distinct_labels(labels: list[Array], where: str = "") -> tuple[Array, Array]:
    """Return the distinct labels, sorted, and how often each occurs."""
    try:
        values, amounts = np.unique(np.concatenate(labels), return_counts=True)
    except TypeError:
        raise ValueError(
            f"y mixes labels that cannot be compared{where}; make them all strings or all "
            "numbers, for instance y.astype(str)."
        ) from None
    return values, amounts


METHODS = ("sigmoid", "isotonic")


class Calibration(NamedTuple):
    """How scores become probabilities: of each class against the rest, of two classes the second.

    Attributes
    ----------
    method : {"sigmoid", "isotonic"}
    scores, values : arrays
        For "sigmoid" slopes and offsets, one per class; for "isotonic" the corners of the
        staircase of all classes, one after another.
    ends : array of int
        Where the corners of each class end.
    """

    method: str
    scores: Array
    values: Array
    ends: Array

    def __call__(self, scores: Array) -> Array:
        """Return probabilities of shape (n, classes) of scores of shape (n, outputs)."""
        made = np.stack([self._of_class(k, column) for k, column in enumerate(scores.T)], axis=1)
        if made.shape[1] == 1:
            return np.hstack([1 - made, made])
        total = made.sum(1, keepdims=True)
        even = np.full_like(made, 1 / made.shape[1])  # of classes that are all impossible
        return np.clip(np.divide(made, total, out=even, where=total > 0), 0.0, 1.0)

    def _of_class(self, k: int, scores: Array) -> Array:
        scores = scores.astype(np.float64)
        if self.method == "sigmoid":
            return np.asarray(scipy.special.expit(-(self.scores[k] * scores + self.values[k])))
        part = slice(self.ends[k - 1] if k else 0, self.ends[k])
        return np.interp(scores, self.scores[part], self.values[part])


def check_sizes(samples: Sequence[Matrix], alpha: float, target: float) -> None:
    """Raise where columns or y are so large or small that steps in float32 would learn nothing."""
    if target > LARGEST_TARGET or 0 < target < SMALLEST:
        raise ValueError(
            f"y reaches {target:.2g}, too {'large' if target > 1 else 'small'} for steps in "
            "float32; divide y by its size first."
        )

    def row(found: Any) -> Array:
        return to_dense(found).astype(float).ravel()

    low = np.min([row(rows.min(axis=0)) for rows in samples], axis=0)
    high = np.max([row(rows.max(axis=0)) for rows in samples], axis=0)
    size, apart = np.maximum(-low, high).max(initial=0.0), (high - low).max(initial=0.0)
    if size > LARGEST or 0 < apart < max(SMALLEST, 1e-6 * np.sqrt(alpha)):
        said = (
            f"reach {size:.2g}, too large" if size > LARGEST else f"vary by {apart:.2g}, too little"
        )
        raise ValueError(
            f"Values of X {said} for steps in float32 with alpha={alpha:.2g}; scale the columns of "
            "X first (rfcdask.Standardizer), or lower alpha."
        )


LARGEST, SMALLEST, LARGEST_TARGET = 1e21, 1e-18, 1e36
"""Values whose squares, and one over them, are still numbers of float32; targets in reach of it."""
