"""Data for the tests of linear models, tuning and comparing."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from rfcdask.kernels.arrays import Array


def blobs(n: int, p: int, classes: int, seed: int = 0) -> tuple[Array, Array]:
    """Rows around class centres, near enough to each other that nobody separates them all."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    centres = np.random.default_rng(99).normal(size=(classes, p))
    return (centres[y] + 1.2 * rng.normal(size=(n, p))).astype(np.float32), y


def lazy(array: Array, rows: Any) -> Any:
    return da.from_array(array, chunks=(rows, *[-1] * (array.ndim - 1)))
