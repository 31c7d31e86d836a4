"""What one block of rows, labels and weights is asked before it is learned from: numpy only."""

from __future__ import annotations

from typing import Any

import numpy as np

from rfcdask.kernels.arrays import Array, feature_dtype, missing_labels, to_dense

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
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
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


def check_block_weights(weights: Array, index: int) -> None:
    """Raise on sample weights of a block that are negative or no numbers."""
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(
            f"sample_weight is negative or not finite in block {index}, row "
            f"{int(np.argmax(wrong))} of the block; weights must be finite and at least 0."
        )


def check_total_weight(weight: float) -> None:
    """Raise when no row counts."""
    if not weight > 0:
        raise ValueError("Sample weights are all zero; some rows must count.")


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
    if len(values) > MAX_CLASSES:
        raise ValueError(
            f"y has more than {MAX_CLASSES} distinct labels in block {index}. "
            "Unknown label type: continuous; use a regressor, or group the labels."
        )
    places = None
    if keep:
        places = np.searchsorted(values, y).astype(np.min_scalar_type(len(values)))
    return (*state, (values, amounts, places))


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
