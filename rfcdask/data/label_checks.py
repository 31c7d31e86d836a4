"""Labels as people give them: columns, lists and objects, some of them missing."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from rfcdask.data.sample import refuse_dask_frame
from rfcdask.kernels.arrays import is_sparse
from rfcdask.kernels.types import Array, DaskArray, Matrix


def rows_and_labels(X: Any, y: Any) -> tuple[Matrix | DaskArray, Array | DaskArray]:
    """Return rows, CSR where they are sparse, and one label for each; what is lazy stays lazy."""
    refuse_dask_frame(X)
    refuse_dask_frame(y, "y")
    y = flat_labels(y)
    if not isinstance(X, da.Array):
        X = X.tocsr() if is_sparse(X) else np.asarray(X)
    if len(y) != X.shape[0]:
        raise ValueError(
            f"y has {len(y)} rows and X has {X.shape[0]}: give one label for each row."
        )
    return X, y


def flat_labels(y: Any) -> Array | DaskArray:
    """Return labels as an array of shape (n,); a single column of them is made flat."""
    y = y if isinstance(y, da.Array) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        return y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; give one label for each row.")
    return y


def missing_labels(y: Array) -> Array:
    """Return which labels are None, NaN or infinite."""
    if y.dtype.kind == "f":
        return ~np.isfinite(y)
    if y.dtype.kind != "O":
        return np.zeros(y.shape, bool)
    flags = [v is None or (isinstance(v, float) and not np.isfinite(v)) for v in y.ravel()]
    return np.array(flags, bool).reshape(y.shape)
