"""Which classes there are, how many of each in every block, and what that says of the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from rfcdask.data.label_checks import missing_labels
from rfcdask.execution.blocks import Blocks, consecutive_groups, stream_folds
from rfcdask.execution.executor import Executor
from rfcdask.kernels.types import Array, DaskArray
from rfcdask.linear.inputs import as_column, not_finite

FOLDED = 8
"""Blocks counted by one task: labels are small, and threads that wait for a store should share."""
MOST_CLASSES = 10_000
"""More distinct labels than this are taken for numbers that somebody meant to regress on."""
KEEP_BYTES = 2**25
"""Codes of labels up to this size are kept: reading them again costs more than they weigh."""


@dataclass(frozen=True)
class Labels:
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

    @property
    def totals(self) -> Array:
        """Rows of each class."""
        total: Array = self.counts.sum(0)
        return total

    def require_two(self) -> None:
        """Raise unless there is something to tell apart."""
        if len(self.classes) < 2:
            raise ValueError(
                f"y holds only one class ({self.classes.tolist()[0]!r}); a classifier needs rows "
                "of at least two classes."
            )


def read_labels(runner: Executor, y: DaskArray, keep: bool = False) -> Labels:
    """Read y once, block by block; with `keep`, remember the class of each row if that is small."""
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; a classifier needs one label for each row.")
    blocks = Blocks(y)
    starts = np.concatenate([[0], np.cumsum(blocks.rows)]).astype(np.int64)
    groups = consecutive_groups(len(blocks), FOLDED)
    counter = _BlockCounter(starts, keep and y.shape[0] <= KEEP_BYTES)
    found = [entry for part in stream_folds(runner, blocks, groups, counter, ()) for entry in part]
    try:
        classes = np.unique(np.concatenate([values for values, _, _ in found]))
    except TypeError:
        raise ValueError(
            "y mixes labels that cannot be compared; make them all strings or all numbers, for "
            "instance y.astype(str)."
        ) from None
    check_classification_targets(np.tile(classes, 3))  # each class has several rows, it may think
    counts = np.zeros((len(found), len(classes)), np.int64)
    for row, (values, amounts, _) in zip(counts, found, strict=True):
        row[np.searchsorted(classes, values)] = amounts
    dtype = np.min_scalar_type(len(classes) - 1)
    if not counter.keep or y.shape[0] * dtype.itemsize > KEEP_BYTES:
        return Labels(classes, counts)
    codes = [np.searchsorted(classes, values).astype(dtype)[at] for values, _, at in found]
    return Labels(classes, counts, np.concatenate(codes))


def to_learn_from(labels: Labels, y: DaskArray, X: DaskArray) -> tuple[DaskArray, Array]:
    """Return the column to learn from and its classes: codes in memory where they were kept."""
    if labels.codes is None:
        return y, labels.classes
    return as_column(labels.codes, X, "y"), np.arange(len(labels.classes))


@dataclass(frozen=True)
class _BlockCounter:
    """Counts the labels of one block; picklable, as workers need it."""

    starts: Array
    keep: bool

    def __call__(self, state: Any, block: tuple[Any, ...], index: int) -> Any:
        y = np.asarray(block[0])
        missing = missing_labels(y)
        if missing.any():
            raise not_finite("y", index, int(np.argmax(missing)), int(self.starts[index]), -1)
        try:
            values, amounts = np.unique(y, return_counts=True)
        except TypeError:
            raise ValueError(
                f"y mixes labels that cannot be compared (block {index}); make them all strings "
                "or all numbers, for instance y.astype(str)."
            ) from None
        if len(values) > MOST_CLASSES:
            raise ValueError(
                f"y has more than {MOST_CLASSES} distinct labels in block {index}. "
                "Unknown label type: continuous; use a regressor, or group the labels."
            )
        places = None
        if self.keep:
            places = np.searchsorted(values, y).astype(np.min_scalar_type(len(values)))
        return (*state, (values, amounts, places))


def encode(y: Array, classes: Array) -> Array:
    """Return the number of each label among the sorted classes.

    Raises
    ------
    ValueError
        When a label is not among them.
    """
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    wrong = classes[codes] != y
    if np.any(wrong):
        strange = np.unique(np.asarray(y)[wrong])[:5].tolist()
        raise ValueError(
            f"y holds labels {strange} that the model was not fitted on "
            f"(it knows {_few(classes)}); fit on all labels, or leave such rows out."
        )
    return codes.astype(np.int64)


def _few(classes: Array) -> str:
    shown = ", ".join(repr(value) for value in classes[:6].tolist())
    return shown + (", ..." if len(classes) > 6 else "")


def class_weights(spec: Any, labels: Labels) -> Array:
    """Return one factor a class."""
    if spec is None:
        return np.ones(len(labels.classes))
    if isinstance(spec, str) and spec == "balanced":
        totals = labels.totals
        return np.asarray(totals.sum() / (len(totals) * totals))
    made = np.asarray(
        compute_class_weight(spec, classes=labels.classes, y=labels.classes), np.float64
    )
    if not (np.isfinite(made).all() and (made >= 0).all() and made.any()):
        raise ValueError(
            f"class_weight={spec!r} must give finite factors of at least 0, and some above 0."
        )
    return made


def disorder(counts: Array, groups: list[list[int]]) -> float:
    """Return how far groups of blocks are from the class mix of the whole, from 0 to 1.

    Half the mean total variation distance between the two, weighted by rows; rows in random
    order give about ``sqrt(classes / rows of a group)``, rows sorted by class nearly 1.
    """
    whole = counts.sum(0) / max(counts.sum(), 1)
    distance = 0.0
    for group in groups:
        part = counts[group].sum(0)
        distance += 0.5 * np.abs(part - part.sum() * whole).sum()
    return float(distance / max(counts.sum(), 1))
