"""What all feature maps share (checks, the lazy transform, representation), and the learned map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import delayed
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from rfcdask.data.sample import (
    check_container,
    check_dask_matrix,
    columns_by_name,
    forget,
    gather_finite,
    names_are_compared,
    without_word_of_names,
)
from rfcdask.display import count, number
from rfcdask.display.html import Facts, HTMLReprMixin
from rfcdask.execution.blocks import given, lazy_on_dask
from rfcdask.features.lazy import FeatureArray
from rfcdask.kernels import Kernel, get_kernel, resolve_gamma
from rfcdask.kernels.arrays import (
    Array,
    DaskArray,
    IntArray,
    Matrix,
    RandomState,
    check_finite,
    feature_dtype,
    native,
)
from rfcdask.kernels.frequencies import check_sampling
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.kernels.runtime import available_cpus
from rfcdask.kernels.seeds import draw_rows, seed_of, stream

if TYPE_CHECKING:
    from distributed import Client

GAMMA_ROWS = 5000  # rows from which ``gamma="scale"`` and ``gamma="median"`` are computed
_THREADS_FROM_VALUES = 1 << 20
Evaluator = Callable[..., Array]
"""Given a block of rows (and `n_threads`, `where`), returns its features."""
EvaluatorRecipe = tuple[Callable[..., Evaluator], tuple[Any, ...]]
"""A function and its arguments that make an evaluator where it is needed."""


@lazy_on_dask
class FeatureMap(HTMLReprMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the feature maps; not for direct use.

    A map learns from a small sample of rows and is applied block by block. `transform` takes numpy
    arrays, CSR matrices and dask arrays with dense or CSR blocks; for dask arrays it is lazy.
    """

    _learned_last = "gamma_"
    """What a fit that went through has set; one that failed half-way has not."""

    def __init__(
        self, n_components: int, *, kernel: Any, gamma: float | str, random_state: RandomState
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, client: Client | None = None) -> Self:
        """Choose the features for the data.

        Parameters
        ----------
        X : array, CSR or dask array of shape (n_samples, n_features)
            Only a sample of the rows of a dask array is read.
        y : array of shape (n_samples,), optional
            Used by maps that look at labels, else ignored.
        client : distributed.Client, optional
            Where rows of a dask array are fetched: the given one, else the current one, else
            Dask's local scheduler.
        """
        forget(self)
        self._check_parameters()
        X = self._check_input(X, reset=True)
        self.seed_ = seed_of(self.random_state)
        self._fit(X, y, client)
        return self

    def transform(self, X: Any) -> Any:
        """Evaluate the features: numpy and CSR in, numpy out; dask in, lazy dask out.

        Parameters
        ----------
        X : array, CSR or dask array of shape (n_samples, n_features)

        Returns
        -------
        array or dask array of shape (n_samples, n_components)
            float32 for float32 data. A block with NaN or infinity raises when it is computed.
        """
        check_is_fitted(self, self._learned_last)
        X = self._check_input(X, reset=False)
        return self._transform_lazily(X) if isinstance(X, da.Array) else self._evaluate(X)

    def _evaluate(self, X: Matrix) -> Array:
        """Return the features of checked rows in memory."""
        many = X.shape[0] * self._n_features_out > _THREADS_FROM_VALUES
        threads = available_cpus() if many else 1
        return self._evaluator(feature_dtype(X.dtype))(X, n_threads=threads)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise on parameters that make no sense whatever the data."""

    def _check_counts(self, **least: int) -> None:
        """Raise unless these parameters are whole numbers of at least so much."""
        for name, lowest in least.items():
            check_count(name, getattr(self, name), lowest)

    def _check_choice(self, name: str, *choices: str) -> None:
        """Raise unless a parameter is one of the given words."""
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(f"Unknown {name} {value!r}: choose one of {', '.join(choices)}.")

    def _check_kernel(self) -> None:
        """Raise on an unknown kernel or an impossible gamma, before any data are read."""
        known = get_kernel(self.kernel)
        if not (isinstance(self.gamma, str) and self.gamma in ("scale", "median")):
            resolve_gamma(self.gamma, known, np.empty((0, 0)))

    def _check_draw(self) -> None:
        """Raise on what no frequencies can be drawn with."""
        self._check_kernel()
        check_sampling(self.sampling)
        self._check_choice("phases", "random", "paired")

    def _n_frequencies(self, name: str) -> int:
        """Return how many frequencies yield as many columns as a parameter says."""
        n_columns = int(getattr(self, name))
        if self.phases != "paired":
            return n_columns
        if n_columns % 2:
            raise ValueError(
                f"{name}={n_columns} must be even with phases='paired': each frequency yields a "
                "cosine and a sine."
            )
        return n_columns // 2

    @abstractmethod
    def _fit(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> None:
        """Learn from checked input; `seed_` is set."""

    @abstractmethod
    def _evaluator(self, dtype: np.dtype) -> Evaluator:
        """Return what evaluates a block of rows in that precision."""

    def _build(self, dtype: np.dtype) -> EvaluatorRecipe:
        """Return a function and its arguments that make the evaluator inside a graph."""
        return given, (self._evaluator(dtype),)

    @property
    @abstractmethod
    def _n_features_out(self) -> int:
        """The number of output columns."""

    def _transform_lazily(self, X: DaskArray) -> DaskArray:
        dtype = feature_dtype(X.dtype)
        make, arguments = self._build(dtype)
        # One task makes the evaluator; the blocks refer to it, so the graph holds it once.
        name = f"{type(self).__name__.lower()}-{tokenize(make, *arguments)}"
        evaluator = delayed(make, name=f"make-{name}", pure=True, traverse=False)(
            *arguments, dask_key_name=name
        )
        return FeatureArray.of(X, evaluator, self._n_features_out, dtype)

    def _check_input(self, X: Any, *, reset: bool) -> Matrix | DaskArray:
        check_container(X)
        n_dimensions = getattr(X, "ndim", 2)
        if n_dimensions != 2:
            raise ValueError(
                f"Expected 2D array, got {n_dimensions}D array instead. Reshape your data: "
                "X[:, None] if it has one column, X[None, :] if it is one row."
            )
        compared = not reset and names_are_compared(self, X)
        X = columns_by_name(self, X, reset=reset)
        with without_word_of_names(compared):
            X = self._check_rows(X, reset=reset)
        if reset and X.shape[0] < 2:
            raise ValueError(
                f"X has n_samples={X.shape[0]}, but a kernel compares rows: give at least 2."
            )
        return X

    def _check_rows(self, X: Any, *, reset: bool) -> Matrix | DaskArray:
        if isinstance(X, da.Array):
            X = check_dask_matrix(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        options = {"accept_sparse": "csr", "dtype": "numeric", "ensure_all_finite": False}
        X = native(validate_data(self, X, reset=reset, ensure_min_samples=1, **options))
        check_finite(X)
        return X

    def _stream(self, purpose: str) -> np.random.Generator:
        return stream(self.seed_, purpose)

    def _sample(
        self, X: Matrix | DaskArray, size: int, client: Client | None
    ) -> tuple[Matrix, IntArray]:
        """Return up to `size` distinct rows, in random order, and their numbers."""
        rows = draw_rows(X.shape[0], min(size, X.shape[0]), self._stream("rows"))
        found = gather_finite(X, rows, client)
        return found.astype(feature_dtype(found.dtype), copy=False), rows

    def _kernel_for(self, X: Matrix | DaskArray, client: Client | None) -> Kernel:
        """Set gamma; only a rule for it needs rows, and a number reads nothing."""
        rows: Matrix = np.empty((0, X.shape[1]))
        if isinstance(self.gamma, str):
            rows, _ = self._sample(X, GAMMA_ROWS, client)
        return self._resolve_kernel(rows)

    def _resolve_kernel(self, rows: Matrix) -> Kernel:
        kernel = get_kernel(self.kernel)
        self.gamma_ = resolve_gamma(self.gamma, kernel, rows)
        return kernel

    def _facts(self) -> Facts:
        if not hasattr(self, "gamma_"):
            return []
        return [
            ("features", count(self._n_features_out)),
            ("kernel", f"{get_kernel(self.kernel).name}, gamma {number(self.gamma_)}"),
            ("columns", count(self.n_features_in_)),
        ]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise unless a parameter is a whole number of at least `least`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")


class LearnedFeatures(FeatureMap):
    """The features of a fitted :class:`rfcdask.KernelClassifier` or ``KernelRegressor``.

    ``z_j(x) = sqrt(2 w_j / J) cos(frequencies_[:, j] . x + phases_[j])``: a map like every other,
    with a lazy `transform`, which any other learner may use. It comes fitted, as ``features_`` of
    the model that trained it.

    Parameters
    ----------
    n_components : int
    kernel, gamma, random_state
        Of the features from which the training began.

    Attributes
    ----------
    frequencies_ : array of shape (n_features_in_, J)
    phases_ : array of shape (J,)
    weights_ : array of shape (J,)
    gamma_ : float
    """

    _learned_last = "frequencies_"

    def __init__(
        self,
        n_components: int = 500,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | str = "scale",
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.random_state = random_state

    @classmethod
    def from_arrays(
        cls, frequencies: Array, phases: Array, weights: Array, **parameters: Any
    ) -> LearnedFeatures:
        """Return a fitted map of given features."""
        made = cls(len(phases), **parameters)
        made.frequencies_, made.phases_, made.weights_ = frequencies, phases, weights
        made.gamma_, made.n_features_in_ = float(made.gamma), frequencies.shape[0]
        return made

    def _check_parameters(self) -> None:
        self._check_kernel()

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> None:
        raise TypeError(
            "LearnedFeatures are not fitted by themselves: fit a KernelClassifier or a "
            "KernelRegressor and take its features_."
        )

    @property
    def _n_features_out(self) -> int:
        return len(self.weights_)

    def recipe(self) -> Callable[[np.dtype], Evaluator]:
        """Return what makes an evaluator of a precision, in a worker without this class too."""
        scales = np.sqrt(2 * self.weights_ / len(self.weights_))
        return partial(CosineBlock.make, self.frequencies_, self.phases_, scales)

    def _evaluator(self, dtype: np.dtype) -> Evaluator:
        return self.recipe()(dtype)
