"""Columns of mean 0 and variance 1, lazily, as a step of a pipeline that can be saved."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import dask.array as da
import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from rfcdask.data import Dataset
from rfcdask.data.columns import ColumnStats, column_stats, merge_stats
from rfcdask.data.views import standardized
from rfcdask.execution.blocks import fold_blocks, lazy_on_dask
from rfcdask.kernels.arrays import Array, FloatArray, check_finite, feature_dtype, to_dense
from rfcdask.linear.checks import dense
from rfcdask.linear.inputs import check_matrix


@lazy_on_dask
class Standardizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Takes the mean off each column and divides by its deviation; constant columns become 0.

    Attributes
    ----------
    mean_, deviation_ : arrays of shape (n_features_in_,)

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> rf.Standardizer().fit_transform(X)
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    mean_: FloatArray
    deviation_: FloatArray

    def fit(self, X: Any, y: Any = None, *, client: Any = None) -> Self:
        """Read all rows once; y is ignored, and `client` as in :meth:`Ridge.fit`."""
        matrix = check_matrix(self, X, reset=True)
        stats = merge_stats(
            list(fold_blocks([matrix], _add_block, None, client, "column statistics"))
        )
        wrong = ~np.isfinite(stats.variance)
        if wrong.any():
            raise ValueError(
                f"X holds NaN or infinity in column {int(np.argmax(wrong))}, or values too large "
                "to square; leave such rows out."
            )
        return self._keep(stats.mean, stats.variance)

    @classmethod
    def of(cls, dataset: Dataset) -> Standardizer:
        """Return one with the statistics that a store keeps: the same map as its `standardize`."""
        made = cls()
        made.n_features_in_ = dataset.shape[1]
        return made._keep(dataset.mean, dataset.variance)

    def _keep(self, mean: FloatArray, variance: FloatArray) -> Self:
        deviation = np.sqrt(variance)
        deviation[deviation == 0] = 1.0
        self.mean_, self.deviation_ = mean, deviation
        return self

    def transform(self, X: Any) -> Any:
        """Standardize rows: numpy in, numpy out; dask in, lazy dask out; float32 stays float32."""
        check_is_fitted(self)
        if not isinstance(X, da.Array):
            X = validate_data(self, X, reset=False, dtype="numeric", ensure_all_finite=False)
            check_finite(X)
            return _standard(X, self.mean_, self.deviation_, feature_dtype(X.dtype))
        matrix = check_matrix(self, X, keep_empty=True)
        dtype = feature_dtype(matrix.dtype)
        function = partial(_standard, mean=self.mean_, deviation=self.deviation_, dtype=dtype)
        return da.map_blocks(function, matrix, dtype=dtype, meta=np.empty((0, 0), dtype))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _add_block(_: Any, block: tuple[Any, ...], index: int) -> ColumnStats:
    return column_stats(dense(block[0]))


def _standard(X: Array, mean: FloatArray, deviation: FloatArray, dtype: Any) -> Array:
    """Do what a data set's `standardize` does."""
    return standardized(to_dense(X), mean, deviation, dtype)


def wants_standardizing(dataset: Dataset) -> bool:
    """Tell whether columns have units of their own: some value lies outside -1 to 1.

    Images scaled to 0..1 and binary columns are worse off standardized; measurements are lost
    without it, because a kernel then sees only the column with the largest numbers.
    """
    if "min" not in dataset.attrs or "table" in dataset.attrs:  # an encoded table has no units
        return False
    factor = abs(float(dataset.attrs.get("scale") or 1.0))
    extremes = [*dataset.attrs["min"], *dataset.attrs["max"]]
    return any(value is None or abs(value) * factor > 1.0 for value in extremes)
