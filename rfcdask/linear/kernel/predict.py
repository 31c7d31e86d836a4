"""Outputs of kernel models: features of a few rows at a time, never of a whole block."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from sklearn.utils.validation import validate_data

from rfcdask.features.base import FeatureMap
from rfcdask.kernels.arrays import as_csr, check_finite, feature_dtype, is_sparse
from rfcdask.kernels.types import Array, DaskArray, Matrix
from rfcdask.linear.inputs import as_matrix
from rfcdask.linear.predict import Classes, LinearScores, RowFunction

TILE_ROWS = 2048
"""Rows whose features are in memory at a time."""


class Evaluate:
    """``x -> function(features(x))``; stands for a linear model where one is expected."""

    def __init__(self, features: FeatureMap, function: LinearScores) -> None:
        self.features, self.function = features, function
        self.intercept = function.intercept

    def __call__(self, X: Matrix) -> Array:
        """Return what the function makes of the features of each row."""
        return self._tiles(X, self.function)

    def _tiles(self, X: Matrix, function: RowFunction) -> Array:
        X = as_csr(X) if is_sparse(X) else np.asarray(X)
        check_finite(X)
        dtype = feature_dtype(X.dtype)
        evaluate = self.features._evaluator(dtype)
        starts = range(0, max(X.shape[0], 1), TILE_ROWS)
        return np.concatenate([function(evaluate(X[i : i + TILE_ROWS])) for i in starts])


class EvaluateClasses(Evaluate):
    """The same for a classifier, as scoring takes it."""

    def __init__(self, features: FeatureMap, function: Classes) -> None:
        super().__init__(features, function)
        self.classes = function.classes

    def codes(self, X: Matrix) -> Array:
        """Return the number of the class of each row."""
        assert isinstance(self.function, Classes)
        return self._tiles(X, self.function.codes)


def map_matrix(
    estimator: Any, X: Any, model: Evaluate, width: int | None, dtype: Any
) -> Array | DaskArray:
    """Apply a model to rows: at once to arrays and CSR in memory, lazily to dask arrays."""
    if not isinstance(X, da.Array):
        X = validate_data(
            estimator,
            X,
            reset=False,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
        )
        return model(X.astype(feature_dtype(X.dtype), copy=False))
    matrix = as_matrix(X, estimator, keep_empty=True)
    validate_data(estimator, matrix, reset=False, skip_check_array=True)
    meta = np.empty((0,) * (1 if width is None else 2), dtype)
    # One task holds the model and the blocks refer to it, so the graph has it once.
    held = delayed(model, pure=True, traverse=False)
    if width is None:
        return matrix.map_blocks(_on_block, held, drop_axis=1, dtype=dtype, meta=meta)
    chunks = (matrix.chunks[0], (width,))
    return matrix.map_blocks(_on_block, held, chunks=chunks, dtype=dtype, meta=meta)


def _on_block(block: Any, model: Evaluate) -> Array:
    return model(block)
