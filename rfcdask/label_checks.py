"""Labels as people give them: columns, lists and objects, some of them missing."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from rfcdask._types import Array, DaskArray


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
