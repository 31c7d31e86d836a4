"""Bringing X, y and weights into one shape: aligned row blocks, checked before any work begins."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_array

from rfcdask.data.sample import one_column_block, refuse_dask_frame, require_known_rows, to_dense
from rfcdask.execution.blocks import Blocks
from rfcdask.kernels.arrays import feature_dtype
from rfcdask.kernels.types import Array, DaskArray

BLOCK_BYTES = 2**24
"""Size of the blocks into which an array in memory is cut."""


def as_matrix(X: Any, estimator: Any, *, keep_empty: bool = False) -> DaskArray:
    """Return X as a two-dimensional dask array with one block of columns.

    Blocks without rows, as filters leave them, are left out unless they are to be kept.
    """
    refuse_dask_frame(X)
    if isinstance(X, da.Array):
        matrix = _lazy_matrix(X)
        return matrix if keep_empty else _without_empty(matrix)
    name = type(estimator).__name__
    X = check_array(X, dtype="numeric", estimator=name, input_name="X")
    X = X.astype(feature_dtype(X.dtype), copy=False)
    rows = int(np.clip(BLOCK_BYTES // max(X.shape[1] * X.itemsize, 1), 256, 16384))
    return da.from_array(X, chunks=(rows, -1), name=False)


def _without_empty(array: DaskArray) -> DaskArray:
    if all(array.chunks[0]):
        return array
    return array.blocks[[index for index, size in enumerate(array.chunks[0]) if size]]


def _lazy_matrix(X: DaskArray) -> DaskArray:
    if X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimension(s) where rows and columns are expected; "
            "use X.reshape(-1, 1) for a single column."
        )
    require_known_rows(X)
    if 0 in X.shape:
        raise ValueError(f"X of shape {X.shape} is empty; a model needs rows and columns.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X holds {X.dtype}; a model needs real numbers (X.astype('float32')).")
    return one_column_block(X)


def as_column(values: Any, X: DaskArray, name: str) -> DaskArray:
    """Return labels, targets or weights as a dask array with the row chunks of X."""
    refuse_dask_frame(values, name)
    if isinstance(values, da.Array):
        return _lazy_column(values, X, name)
    array = np.asarray(values)
    if array.ndim == 0 or len(array) != X.shape[0]:
        raise ValueError(_wrong_length(name, array.shape, X.shape[0]))
    return da.from_array(array, chunks=(X.chunks[0], *array.shape[1:]), name=False)


def _lazy_column(values: DaskArray, X: DaskArray, name: str) -> DaskArray:
    require_known_rows(values, name)
    if 0 not in X.chunks[0]:
        values = _without_empty(values)
    if values.shape[0] != X.shape[0]:
        raise ValueError(_wrong_length(name, values.shape, X.shape[0]))
    if values.chunks[0] != X.chunks[0]:
        raise ValueError(
            f"The row chunks of {name} and X differ ({_chunks(values)} against {_chunks(X)}); "
            f"pass {name}.rechunk({{0: X.chunks[0]}})."
        )
    return values.rechunk({1: -1}) if values.ndim == 2 else values


def _wrong_length(name: str, shape: tuple[int, ...], n_rows: int) -> str:
    length = shape[0] if shape else "no"
    return f"{name} has {length} rows and X has {n_rows}: give one entry of {name} for each row."


def _chunks(array: DaskArray) -> str:
    sizes = [int(size) for size in array.chunks[0]]
    return str(sizes) if len(sizes) < 5 else f"[{sizes[0]}, {sizes[1]}, ...], {len(sizes)} blocks"


def check_weights(weights: Any, X: DaskArray) -> DaskArray | None:
    """Return the sample weights beside X, or None."""
    if weights is None:
        return None
    if not isinstance(weights, da.Array):
        weights = np.asarray(weights)
        weights = np.full(X.shape[0], weights) if weights.ndim == 0 else weights
        if not np.any(weights):
            raise ValueError("Sample weights are all zero; some rows must count.")
    column = as_column(weights, X, "sample_weight")
    if column.ndim != 1:
        raise ValueError(f"sample_weight has shape {column.shape}; give one number for each row.")
    return column


def require_y(y: Any, estimator: Any) -> None:
    """Raise when there is no y, in the words scikit-learn uses."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")


def as_labels(y: Any, X: DaskArray) -> DaskArray:
    """Return labels beside X; a single column of them is made flat."""
    column = as_column(y, X, "y")
    if column.ndim == 2 and column.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; pass y.ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
        return column[:, 0]
    return column


def check_target(y: Any, X: DaskArray, estimator: Any) -> DaskArray:
    """Return numeric targets beside X."""
    require_y(y, estimator)
    column = as_column(y, X, "y")
    if column.ndim > 2:
        raise ValueError(f"y has shape {column.shape}; give one target for each row.")
    if column.dtype.kind not in "fiub":
        column = column.astype(np.float64)
    return column


def require_good_weights(weights: Array, index: int) -> None:
    """Raise on negative weights and such that are no numbers."""
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(
            f"sample_weight is negative or not finite in block {index}, row "
            f"{int(np.argmax(wrong))} of the block; weights must be finite and at least 0."
        )


def require_weight(weight: float) -> None:
    """Raise when no row counts."""
    if not weight > 0:
        raise ValueError("Sample weights are all zero; some rows must count.")


def make_blocks(X: DaskArray, *columns: DaskArray | None) -> Blocks:
    """Return the row blocks of X and of the columns that are there."""
    return Blocks(X, *(column for column in columns if column is not None))


def dense(block: Any) -> Array:
    """Return a block as the C-ordered, aligned float array the kernels read.

    Arrays that came over the network may start at any byte: numpy then takes other ways through
    a product, which end in other bits.
    """
    array = np.require(to_dense(block), requirements=["C_CONTIGUOUS", "ALIGNED"])
    return array.astype(feature_dtype(array.dtype), copy=False)


class NotFiniteDataError(ValueError):
    """X or y holds NaN or infinity."""


def not_finite(name: str, index: int, row: int, first_row: int, column: int) -> NotFiniteDataError:
    """Return the error that says where a value is not finite."""
    where = f", column {column}" if column >= 0 else ""
    return NotFiniteDataError(
        f"{name} is NaN or infinite in block {index}, row {row} of the block "
        f"(row {first_row + row} of {name}{where}); remove or replace such rows before training."
    )


def locate(X: Array, y: Array | None, index: int, first_row: int) -> NotFiniteDataError | None:
    """Return an error naming the first value of a block that is not finite, or None."""
    for name, array in (("X", X), ("y", y)):
        if array is None or array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        rows = array.reshape(len(array), -1)
        row, column = np.argwhere(~np.isfinite(rows))[0]
        return not_finite(name, index, int(row), first_row, int(column) if array.ndim > 1 else -1)
    return None
