"""Bringing X, y and weights into one shape: aligned row blocks, checked before any work begins."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from itertools import chain
from numbers import Real
from typing import Any

import dask.array as da
import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import get_tags
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data

from rfcdask.data.sample import (
    check_container,
    check_dask_matrix,
    checked_blocks,
    columns_by_name,
    lazy_column,
    names_are_compared,
    without_word_of_names,
)
from rfcdask.execution.blocks import (
    Blocks,
    consecutive_groups,
    first_rows,
    fold_blocks,
    stream_folds,
)
from rfcdask.execution.dask_internals import memory_of_machine
from rfcdask.execution.executor import Executor
from rfcdask.features.lazy import FeatureArray
from rfcdask.kernels.arrays import Array, DaskArray, check_finite, feature_dtype, is_sparse
from rfcdask.linear.moments import AddBlock, Moments
from rfcdask.linear.rows import (
    check_total_weight,
    count_labels,
    distinct_labels,
    require_few_classes,
    to_numbers,
)

BLOCK_BYTES = 2**24
"""Size of the blocks into which an array in memory is cut."""
LABEL_BLOCKS = 8
"""Blocks of labels read by one task: they are small, and waiting for a store should be shared."""
COPIES = 3
"""Such matrices at a time, at least: the sum so far, a part, and what the solver makes of it."""
KEEP_BYTES = 2**25
"""Codes of labels up to this size are kept: reading them again costs more than they weigh."""


def check_data(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    reset: bool = False,
    columns: bool = True,
) -> tuple[DaskArray, DaskArray, DaskArray | None]:
    """Return X, labels or targets as `estimator` takes them, and weights, in the same row blocks.

    With `reset` the estimator learns from them, else they must have the columns it knows; unless
    `columns` are another step's business.
    """
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    matrix = check_matrix(estimator, X, reset=reset, columns=columns)
    weights = _check_sample_weight(sample_weight, matrix)
    check_y = _check_labels if is_classifier(estimator) else _check_targets
    return matrix, check_y(_align(y, matrix, "y")), weights


def check_matrix(
    estimator: Any,
    X: Any,
    *,
    reset: bool = False,
    keep_empty: bool = False,
    columns: bool = True,
) -> DaskArray:
    """Return X as a two-dimensional dask array with one block of columns, as `estimator` takes it.

    Blocks without rows, as filters leave them, are left out unless they are to be kept.
    """
    check_container(X)
    compared = columns and not reset and names_are_compared(estimator, X)
    X = columns_by_name(estimator, X, reset=reset) if columns else X
    if isinstance(X, da.Array):
        whole = X.in_blocks_of_rows() if isinstance(X, FeatureArray) else X
        matrix = check_dask_matrix(whole)
        matrix = matrix if keep_empty else _drop_empty_blocks(matrix)
    else:
        csr = "csr" if get_tags(estimator).input_tags.sparse else False
        name = type(estimator).__name__
        options = {"dtype": "numeric", "accept_sparse": csr, "ensure_all_finite": False}
        rows = check_array(X, estimator=name, input_name="X", **options)
        check_finite(rows)
        rows = rows.astype(feature_dtype(rows.dtype), copy=False)
        size = int(np.clip(BLOCK_BYTES // max(rows.shape[1] * rows.dtype.itemsize, 1), 256, 16384))
        matrix = da.from_array(rows, chunks=(size, -1), name=False, asarray=not is_sparse(rows))
    if columns:
        with without_word_of_names(compared):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
    return matrix


def _drop_empty_blocks(array: DaskArray) -> DaskArray:
    if all(array.chunks[0]):
        return array
    return array.blocks[[index for index, size in enumerate(array.chunks[0]) if size]]


def _align(values: Any, X: DaskArray, name: str) -> DaskArray:
    """Return labels, targets or weights as a dask array with the row chunks of X."""
    values = lazy_column(values)
    check_container(values, name)
    if is_sparse(values):
        raise ValueError(f"{name} is a sparse matrix; give {name}.toarray().ravel().")
    lazy = isinstance(values, da.Array)
    if not lazy:
        values = np.asarray(values)
        values = (
            values.astype(object) if values.dtype.kind == "T" else values
        )  # numpy's StringDType
    else:
        values = checked_blocks(values, name)
        values = _drop_empty_blocks(values) if 0 not in X.chunks[0] else values
    if values.ndim == 0 or values.shape[0] != X.shape[0]:
        length = values.shape[0] if values.ndim else "no"
        raise ValueError(
            f"{name} has {length} rows and X has {X.shape[0]}: give one entry of {name} for each "
            "row."
        )
    if not lazy:
        return da.from_array(values, chunks=(X.chunks[0], *values.shape[1:]), name=False)
    return values.rechunk({0: X.chunks[0]} | ({1: -1} if values.ndim == 2 else {}))


def _check_sample_weight(weights: Any, X: DaskArray) -> DaskArray | None:
    if weights is None:
        return None
    weights = lazy_column(weights)
    check_container(weights, "sample_weight")
    if not isinstance(weights, da.Array) and not is_sparse(weights):
        weights = np.asarray(weights)
        weights = to_numbers(weights, "sample_weight") if weights.dtype.kind == "O" else weights
        weights = np.full(X.shape[0], weights) if weights.ndim == 0 else weights
        check_total_weight(float(np.any(weights)))
    column = _align(weights, X, "sample_weight")
    if column.ndim != 1 or column.dtype.kind not in "fiubO":
        raise ValueError(
            f"sample_weight has shape {column.shape} and dtype {column.dtype}; give one real "
            "number for each row."
        )
    return _as_numbers(column, "sample_weight")


def _check_labels(y: DaskArray) -> DaskArray:
    """Return labels of any kind; a single column of them is made flat."""
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; pass y.ravel().",
            DataConversionWarning,
            stacklevel=5,
        )
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; a classifier needs one label for each row.")
    return y


def _check_targets(y: DaskArray) -> DaskArray:
    """Return numbers, one or several for each row."""
    if y.ndim > 2:
        raise ValueError(f"y has shape {y.shape}; give one target for each row.")
    if y.dtype.kind in "cmM":  # of which numpy would drop a part, or the unit
        raise ValueError(
            f"y has dtype {y.dtype}, but real numbers are needed; give for instance the seconds "
            "since a date."
        )
    if 0 in y.shape[1:]:
        raise ValueError(f"y has shape {y.shape}; give one target for each row.")
    return _as_numbers(y, "y")


def _as_numbers(values: DaskArray, name: str) -> DaskArray:
    """Return numbers as they are, and others as float64, lazily."""
    if values.dtype.kind in "fiub":
        return values
    meta = np.empty((0,) * values.ndim)
    return da.map_blocks(to_numbers, values, what=name, dtype=float, meta=meta)


@dataclass(frozen=True)
class ClassLabels:
    """The classes of y and their counts in each block.

    Attributes
    ----------
    classes : array of shape (k,)
        Sorted.
    counts : array of shape (n_blocks, k)
        Rows of each class in each block.
    codes : array of shape (n,) or None
        The class of each row, in as few bytes as will do, where that was asked for and is small.
    """

    classes: Array
    counts: Array
    codes: Array | None = None

    @classmethod
    def known(cls, classes: Array) -> ClassLabels:
        """Return classes without a look at y."""
        return cls(classes, np.ones((1, len(classes)), np.int64))

    def for_training(self, y: DaskArray, X: DaskArray) -> tuple[DaskArray, Array]:
        """Return the column to learn from and its classes: codes in memory where they were kept."""
        if self.codes is None:
            return y, self.classes
        return _align(self.codes, X, "y"), np.arange(len(self.classes))

    def weights(self, class_weight: Any) -> Array:
        """Return the factor of each class for scikit-learn's `class_weight`."""
        if class_weight is None:
            return np.ones(len(self.classes))
        if isinstance(class_weight, str) and class_weight == "balanced":
            totals = self.counts.sum(0)
            return np.asarray(totals.sum() / (len(totals) * totals))
        for value in class_weight.values():
            if not isinstance(value, Real):
                raise ValueError(f"class_weight={class_weight!r} holds {value!r}: give numbers.")
        made = compute_class_weight(class_weight, classes=self.classes, y=self.classes)
        made = np.asarray(made, np.float64)
        if not (np.isfinite(made).all() and (made >= 0).all() and made.any()):
            raise ValueError(
                f"class_weight={class_weight!r} must give finite factors of at least 0, and some "
                "above 0."
            )
        return made

    def disorder(self, groups: list[list[int]]) -> float:
        """Return how far groups of blocks are from the class mix of the whole, from 0 to 1.

        Half the mean total variation distance between the two, weighted by rows; rows in random
        order give about ``sqrt(classes / rows of a group)``, rows sorted by class nearly 1.
        """
        whole = self.counts.sum(0) / max(self.counts.sum(), 1)
        distance = 0.0
        for group in groups:
            part = self.counts[group].sum(0)
            distance += 0.5 * np.abs(part - part.sum() * whole).sum()
        return float(distance / max(self.counts.sum(), 1))


def read_labels(executor: Executor, y: DaskArray) -> ClassLabels:
    """Read y once, block by block; in this process, keep the class of each row if that is small."""
    blocks = Blocks(y)
    starts = np.concatenate([[0], np.cumsum(blocks.rows)]).astype(np.int64)
    groups = consecutive_groups(len(blocks), LABEL_BLOCKS)
    keep = executor.local and y.shape[0] <= KEEP_BYTES
    counter = partial(count_labels, starts=starts, keep=keep)
    found = list(chain.from_iterable(stream_folds(executor, blocks, groups, counter, ())))
    classes, _ = distinct_labels([values for values, _, _ in found])
    require_few_classes(classes)
    if classes.dtype.kind == "O" and not isinstance(classes[0], str):
        raise ValueError(
            f"y holds Python objects of type {type(classes[0]).__name__}. Unknown label type: "
            "unknown; give y.astype(int), or y.astype(str)."
        )
    check_classification_targets(np.tile(classes, 3))  # each class has several rows, it may think
    if len(classes) < 2:
        raise ValueError(
            f"y holds only one class ({classes.tolist()[0]!r}); a classifier needs rows of at "
            "least two classes."
        )
    counts = np.zeros((len(found), len(classes)), np.int64)
    for row, (values, amounts, _) in zip(counts, found, strict=True):
        row[np.searchsorted(classes, values)] = amounts
    dtype = np.min_scalar_type(len(classes) - 1)
    if not keep or y.shape[0] * dtype.itemsize > KEEP_BYTES:
        return ClassLabels(classes, counts)
    codes = [np.searchsorted(classes, values).astype(dtype)[at] for values, _, at in found]
    return ClassLabels(classes, counts, np.concatenate(codes))


def accumulate_moments(
    X: DaskArray,
    y: DaskArray | None = None,
    weights: DaskArray | None = None,
    *,
    classes: Array | None = None,
    class_weights: Array | None = None,
    validation_fraction: float = 0.0,
    seed: int = 0,
    client: Any = None,
    progress: Any = None,
) -> tuple[Moments, Moments]:
    """Go once over all blocks and return the moments of rows learned from and held out.

    With `classes`, targets are one column per class of +1 and -1, or a single one for two classes.
    Features of a map are evaluated a few rows at a time.
    """
    n_targets = 0
    if y is not None:
        n_targets = 1 if y.ndim == 1 else int(y.shape[1])
    if classes is not None and len(classes) > 2:
        n_targets = len(classes)
    fold = AddBlock(
        n_targets,
        first_rows(X),
        weights is not None,
        validation_fraction,
        seed,
        classes,
        class_weights,
    )
    _require_room(X.shape[1], n_targets)
    rows = X.unevaluated() if isinstance(X, FeatureArray) else X
    nothing = Moments.empty(X.shape[1], n_targets)
    total = (nothing, nothing)
    for part in fold_blocks(
        (rows, y, weights),
        fold,
        (None, None),
        client,
        "summing",
        group_size=rows.numblocks[0],  # as few as may be: each is a J x J matrix that travels
        progress=progress,
    ):
        total = (total[0].merge(part[0] or nothing), total[1].merge(part[1] or nothing))
    return total


def _require_room(n_columns: int, n_targets: int) -> None:
    """Refuse columns whose products do not fit the memory, before any row is read."""
    need, memory = 8 * COPIES * n_columns * (n_columns + n_targets), memory_of_machine()
    if need > memory:
        raise MemoryError(
            f"{n_columns:,} columns make a matrix of {8 * n_columns**2 / 2**30:,.1f} GiB, of which "
            f"{COPIES} must fit in the {memory / 2**30:,.1f} GiB of memory: use a model that is "
            "trained by steps (SGDClassifier, SGDRegressor), or fewer columns."
        )
