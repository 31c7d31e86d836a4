"""Transformers that learn in one pass over blocks: standardizing, and principal components."""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import dask.array as da
import numpy as np
import scipy.linalg
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, RealNotInt
from sklearn.utils.extmath import svd_flip
from sklearn.utils.validation import check_is_fitted

from rfcdask.data import Dataset
from rfcdask.data.columns import ColumnStats, column_stats, merge_stats
from rfcdask.data.sample import (
    check_container,
    columns_by_name,
    forget,
    require_same_columns,
)
from rfcdask.data.views import standardized
from rfcdask.display import count, share
from rfcdask.display.charts import curve
from rfcdask.display.drawing import Chart
from rfcdask.display.html import Facts, HTMLReprMixin
from rfcdask.execution.blocks import first_rows, fold_blocks, lazy_on_dask
from rfcdask.kernels.arrays import (
    Array,
    DaskArray,
    FloatArray,
    IntArray,
    check_finite,
    feature_dtype,
    to_dense,
)
from rfcdask.linear.inputs import accumulate_moments, check_matrix
from rfcdask.linear.moments import Moments, check_squares
from rfcdask.linear.predict import map_rows, validated
from rfcdask.linear.rows import dense


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
        forget(self)
        matrix = check_matrix(self, X, reset=True)
        stats = _read_columns(matrix, np.zeros(matrix.shape[1], int), client)
        size = np.maximum(np.abs(stats.minimum), np.abs(stats.maximum))
        if not np.isfinite(size).all():
            raise ValueError(
                f"X holds NaN or infinity in column {int(np.argmin(np.isfinite(size)))}; leave "
                "such rows out."
            )
        powers = np.where(stats.has_deviation, 0, -np.frexp(size)[1])
        if powers.any():  # squares overflowed or vanished: read again what is close to 1
            stats = _read_columns(matrix, powers, client)
        deviation = np.ldexp(np.sqrt(stats.variance), -powers)
        return self._keep(np.ldexp(stats.mean, -powers), deviation)

    @classmethod
    def of(cls, dataset: Dataset) -> Standardizer:
        """Return one with the statistics that a store keeps: the same map as its `standardize`."""
        made = cls()
        made.n_features_in_ = dataset.shape[1]
        columns_by_name(made, dataset.X, reset=True)
        return made._keep(dataset.mean, dataset.deviation)

    def _keep(self, mean: FloatArray, deviation: FloatArray) -> Self:
        self.mean_, self.deviation_ = mean, np.where(deviation == 0, 1.0, deviation)
        return self

    def transform(self, X: Any) -> Any:
        """Standardize rows: numpy in, numpy out; dask in, lazy dask out; float32 stays float32."""
        check_is_fitted(self, "mean_")
        if not isinstance(X, da.Array):
            check_container(X)
            X = validated(self, X, dtype="numeric", ensure_all_finite=False)
            check_finite(X)
            return _standard(X, self.mean_, self.deviation_, feature_dtype(X.dtype))
        matrix = check_matrix(self, X, keep_empty=True)
        dtype = feature_dtype(matrix.dtype)
        known: dict[str, Any] = {
            "mean": self.mean_,
            "deviation": self.deviation_,
            "starts": first_rows(matrix),
        }
        return da.map_blocks(
            partial(_standard_block, **known, dtype=dtype),
            matrix,
            dtype=dtype,
            meta=np.empty((0, 0), dtype),
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _read_columns(matrix: DaskArray, powers: IntArray, client: Any) -> ColumnStats:
    """Return the statistics of columns, each multiplied by a power of two."""
    add = partial(_add_block, powers=powers)
    return merge_stats(list(fold_blocks([matrix], add, None, client, "column statistics")))


def _add_block(_: Any, block: tuple[Any, ...], index: int, powers: IntArray) -> ColumnStats:
    X = dense(block[0])
    return column_stats(np.ldexp(X.astype(float), powers) if powers.any() else X)


def _standard(X: Array, mean: FloatArray, deviation: FloatArray, dtype: Any) -> Array:
    """Do what a data set's `standardize` does."""
    return standardized(to_dense(X), mean, deviation, dtype)


def _standard_block(X: Array, block_id: tuple[int, ...], starts: IntArray, **known: Any) -> Array:
    number = block_id[0]
    check_finite(X, int(starts[number]), f" (block {number})")
    return _standard(X, **known)


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


@lazy_on_dask
class PCA(HTMLReprMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal component analysis in one pass; of kernel features, kernel PCA.

    Parameters
    ----------
    n_components : int, float or None
        How many components to keep; a part of the variance in (0, 1) to keep; or all.
    whiten : bool
        Divide each component by its standard deviation.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features)
    explained_variance_, explained_variance_ratio_, singular_values_ : array (n_components_,)
    noise_variance_ : float
        Mean variance of the components left out.
    mean_ : array of shape (n_features,)
    n_components_, n_samples_ : int
    moments_ : Moments
        Sums over all rows seen so far.

    Examples
    --------
    >>> import dask.array as da, rfcdask as rf
    >>> X = da.random.default_rng(0).normal(size=(1000, 5), chunks=(100, 5))
    >>> rf.PCA(2).fit_transform(X).shape
    (1000, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            None,
        ],
        "whiten": ["boolean"],
        "progress": "no_validation",
    }

    def __init__(
        self, n_components: int | float | None = None, *, whiten: bool = False, progress: Any = None
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.progress = progress

    def fit(self, X: Any, y: Any = None, *, client: Any = None) -> Self:
        """Sum over all rows and decompose; y is ignored, and `client` as in :meth:`Ridge.fit`."""
        forget(self)
        return self._add_rows(X, client, None)

    def partial_fit(self, X: Any, y: Any = None, *, client: Any = None) -> Self:
        """Add more rows; the result is that of one `fit` on all rows."""
        return self._add_rows(X, client, getattr(self, "moments_", None))

    def merge(self, other: PCA) -> Self:
        """Add the rows another PCA was fitted on; returns this one."""
        check_is_fitted(self, "mean_")
        check_is_fitted(other, "mean_")
        require_same_columns(self, other)
        return self._decompose(self.moments_.merge(other.moments_))

    def transform(self, X: Any) -> Array | DaskArray:
        """Return the components of each row; lazy on dask arrays."""
        check_is_fitted(self, "mean_")
        directions = self.components_ / self._scale()[:, None]
        function = partial(_project, mean=self.mean_, directions=directions)
        return map_rows(self, X, function, self.n_components_)

    def inverse_transform(self, X: Any) -> Array | DaskArray:
        """Return rows with these components, in the space of the features."""
        check_is_fitted(self, "mean_")
        return X @ (self._scale()[:, None] * self.components_) + self.mean_

    def _scale(self) -> Array:
        """Return what whitening divides by; a component that is rounding alone stays as it is."""
        if not self.whiten:
            return np.ones(self.n_components_)
        values = self.explained_variance_
        rounding = np.finfo(float).eps * len(self.mean_) * values.max(initial=0.0)
        return np.where(values > rounding, np.sqrt(values), 1.0)

    def plot(self, ax: Any = None) -> Any:
        """Draw what the first components explain on `ax`, or on new axes; returns the axes."""
        check_is_fitted(self, "mean_")
        return self._chart().plot(ax)

    def _chart(self) -> Chart:
        explained = np.cumsum(self.explained_variance_ratio_).tolist()
        numbers = list(range(1, len(explained) + 1))
        return curve(numbers, explained, "components", "explained variance", highest=1.0)

    def _facts(self) -> Facts:
        if not hasattr(self, "components_"):
            return []
        return [
            ("components", f"{count(self.n_components_)} of {count(len(self.mean_))} columns"),
            ("explained variance", share(float(self.explained_variance_ratio_.sum()))),
            ("rows", count(self.n_samples_)),
        ]

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def _add_rows(self, X: Any, client: Any, before: Moments | None) -> Self:
        self._validate_params()
        matrix = check_matrix(self, X, reset=before is None)
        if self.n_components is not None and self.n_components > matrix.shape[1]:
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={matrix.shape[1]}."
            )
        moments, _ = accumulate_moments(matrix, client=client, progress=self.progress)
        return self._decompose(moments if before is None else before.merge(moments))

    def _decompose(self, moments: Moments) -> Self:
        if moments.rows < 2:
            raise ValueError(f"PCA needs at least 2 rows; there is n_samples={moments.rows}.")
        check_squares(moments)
        self.moments_ = moments
        values, vectors = scipy.linalg.eigh(moments.scatter / (moments.rows - 1))
        values = np.maximum(values[::-1], 0.0)
        most = min(moments.rows, len(values))
        _, components = svd_flip(None, vectors.T[::-1], u_based_decision=False)
        k = self._count(values, most)
        total = values.sum()
        self.n_samples_, self.mean_ = moments.rows, moments.mean
        self.n_components_, self.components_ = k, components[:k]
        self.explained_variance_ = values[:k]
        self.explained_variance_ratio_ = values[:k] / total if total > 0 else np.zeros(k)
        self.singular_values_ = np.sqrt(values[:k] * (moments.rows - 1))
        self.noise_variance_ = float(values[k:most].mean()) if k < most else 0.0
        return self

    def _count(self, values: Array, most: int) -> int:
        """Return how many components to keep of those the rows can show."""
        if self.n_components is None:
            return most
        if self.n_components >= 1:
            if self.n_components > most:
                raise ValueError(
                    f"n_components={self.n_components} must be at most n_samples={most}."
                )
            return int(self.n_components)
        share = np.cumsum(values) / values.sum()
        return int(np.searchsorted(share, self.n_components, side="right")) + 1


def _project(X: Array, mean: Array, directions: Array) -> Array:
    return np.asarray((X - mean.astype(X.dtype)) @ directions.T.astype(X.dtype))
