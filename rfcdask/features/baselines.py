"""The maps to compare with: random features, their random projection, and Nyström's."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rfcdask.features.base import GAMMA_ROWS, Evaluator, EvaluatorRecipe, FeatureMap
from rfcdask.features.evaluators import (
    NystroemBlock,
    build_projected,
    inverse_root,
    rpcholesky,
)
from rfcdask.kernels import Kernel, get_kernel
from rfcdask.kernels.arrays import DaskArray, Matrix, RandomState, is_sparse
from rfcdask.kernels.frequencies import Frequencies, draw_candidates
from rfcdask.kernels.hot_loop import draw_block, unweighted_block

if TYPE_CHECKING:
    from distributed import Client

_SHIP_BYTES = 1 << 20  # larger maps travel as their seed and are drawn again in one task


class RandomFeatures(FeatureMap):
    """Random Fourier features [1]_ of a shift-invariant kernel.

    ``z_j(x) = sqrt(2 / J) cos(w_j . x + b_j)``, so that ``z(x) . z(y)`` has the kernel as its
    expectation. The draw does not look at the data, except for gamma.

    Parameters
    ----------
    n_components : int, default=500
        The number of features J.
    kernel : {"rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52"} or Kernel
    gamma : float, "scale" or "median", default="scale"
        The kernel's width; as a rule, computed from a sample of the rows.
    sampling : {"iid", "orthogonal", "halton", "sobol", "fastfood"}, default="iid"
        How the frequencies depend on each other.
    phases : {"random", "paired"}, default="random"
        ``"paired"`` gives the cosine and the sine of each of J / 2 frequencies.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    frequencies_ : array of shape (n_features_in_, J)
    phases_ : array of shape (J,)
    weights_ : array of shape (J,)
        All ones.
    gamma_ : float

    References
    ----------
    .. [1] Rahimi, A. and Recht, B. (2007). Random features for large-scale kernel machines. NIPS.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> rf.RandomFeatures(20, random_state=0).fit_transform(X).shape
    (100, 20)
    """

    def __init__(
        self,
        n_components: int = 500,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | str = "scale",
        sampling: str = "iid",
        phases: str = "random",
        random_state: RandomState = None,
    ) -> None:
        super().__init__(n_components, kernel=kernel, gamma=gamma, random_state=random_state)
        self.sampling = sampling
        self.phases = phases

    _learned_last = "frequencies_"

    def _check_parameters(self) -> None:
        self._check_counts(n_components=1)
        self._check_draw()
        self._n_frequencies("n_components")

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> None:
        kernel = self._kernel_for(X, client)
        drawn = draw_candidates(kernel, *self._draw_arguments())
        self.frequencies_, self.phases_ = drawn.vectors, drawn.phases
        self.weights_ = np.ones(len(drawn.phases))

    def _draw_arguments(self) -> tuple[float, int, int, str, str, int]:
        n = self._n_frequencies("n_components")
        return self.gamma_, self.n_features_in_, n, self.sampling, self.phases, self.seed_

    @property
    def _n_features_out(self) -> int:
        return len(self.weights_) * (2 if self.phases == "paired" else 1)

    def _evaluator(self, dtype: np.dtype) -> Evaluator:
        if self.sampling == "fastfood":  # its product form is kept as the seed only
            return draw_block(self.kernel, *self._draw_arguments(), dtype)
        return unweighted_block(Frequencies(self.frequencies_, self.phases_), self.phases, dtype)

    def _build(self, dtype: np.dtype) -> EvaluatorRecipe:
        if self.frequencies_.nbytes <= _SHIP_BYTES and self.sampling != "fastfood":
            return super()._build(dtype)
        return draw_block, (self.kernel, *self._draw_arguments(), dtype)


class JLFeatures(FeatureMap):
    """Random features compressed by a Johnson-Lindenstrauss projection [1]_.

    All `n_candidates` features of every row are computed and projected to `n_components` columns,
    which costs `n_candidates` cosines per row however few columns come out. It is here to compare
    with; :class:`CompressedFeatures` evaluates only what it keeps.

    Parameters
    ----------
    n_components : int, default=500
        The number of output columns.
    n_candidates : int, default=5000
        The number of random features before the projection.
    projection : {"gaussian", "fast"}, default="gaussian"
        A dense Gaussian matrix, or random signs, a Walsh-Hadamard transform and a row sample.
    kernel, gamma, sampling, phases, random_state
        As in :class:`RandomFeatures`.

    Attributes
    ----------
    gamma_ : float
    n_components_ : int
        The number of output columns.
    seed_ : int
        The map is drawn from it whenever it is applied.

    References
    ----------
    .. [1] Hamid, R., Xiao, Y., Gittens, A. and DeCoste, D. (2014). Compact random feature maps.
       ICML.
    """

    def __init__(
        self,
        n_components: int = 500,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | str = "scale",
        n_candidates: int = 5000,
        projection: str = "gaussian",
        sampling: str = "iid",
        phases: str = "random",
        random_state: RandomState = None,
    ) -> None:
        super().__init__(n_components, kernel=kernel, gamma=gamma, random_state=random_state)
        self.n_candidates = n_candidates
        self.projection = projection
        self.sampling = sampling
        self.phases = phases

    _learned_last = "n_components_"

    def _check_parameters(self) -> None:
        self._check_counts(n_components=1, n_candidates=1)
        self._check_draw()
        self._check_choice("projection", "gaussian", "fast")
        self._n_frequencies("n_candidates")
        if self.n_components > self.n_candidates:
            raise ValueError(
                f"n_components={self.n_components} is more than n_candidates="
                f"{self.n_candidates}: a projection must shrink; raise n_candidates."
            )

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> None:
        self._kernel_for(X, client)
        self.n_components_ = int(self.n_components)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _evaluator(self, dtype: np.dtype) -> Evaluator:
        make, arguments = self._build(dtype)
        return make(*arguments)

    def _build(self, dtype: np.dtype) -> EvaluatorRecipe:
        n, p = self._n_frequencies("n_candidates"), self.n_features_in_
        drawn = (self.kernel, self.gamma_, p, n, self.sampling, self.phases, self.seed_)
        return build_projected, (self.projection, self.n_components_, drawn, self.seed_, dtype)


class NystroemFeatures(FeatureMap):
    """Nyström approximation of a kernel by landmark rows.

    At equal size it usually comes closer to the kernel than random features do. It pays with a
    product of J^2 more operations per row and with rows of the training data in the model.

    Parameters
    ----------
    n_components : int, default=500
        The number of landmarks J; fewer come out where X has fewer rows, or where
        ``landmarks="rpcholesky"`` finds that fewer reproduce the kernel of its rows.
    landmarks : {"uniform", "rpcholesky"}, default="uniform"
        Uniformly drawn rows, or rows chosen by randomly pivoted Cholesky [1]_ among `n_rows`.
    kernel : {"rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52"} or Kernel
    gamma : float, "scale" or "median", default="scale"
    n_rows : int, default=10_000
        Rows that ``landmarks="rpcholesky"`` chooses from.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    landmarks_ : array or CSR of shape (J, n_features_in_)
    landmark_rows_ : array of int of shape (J,)
        Their row numbers in X.
    normalization_ : array of shape (J, J)
    gamma_ : float

    References
    ----------
    .. [1] Chen, Y., Epperly, E., Tropp, J. and Webber, R. (2025). Randomly pivoted Cholesky.
       Communications on Pure and Applied Mathematics.
    """

    def __init__(
        self,
        n_components: int = 500,
        *,
        landmarks: str = "uniform",
        kernel: str | Kernel = "rbf",
        gamma: float | str = "scale",
        n_rows: int = 10_000,
        random_state: RandomState = None,
    ) -> None:
        super().__init__(n_components, kernel=kernel, gamma=gamma, random_state=random_state)
        self.landmarks = landmarks
        self.n_rows = n_rows

    _learned_last = "normalization_"

    def _check_parameters(self) -> None:
        self._check_counts(n_components=1, n_rows=2)
        self._check_kernel()
        self._check_choice("landmarks", "uniform", "rpcholesky")
        if not get_kernel(self.kernel).has_closed_form:
            raise ValueError(
                f"Nyström features need exact values, but kernel {get_kernel(self.kernel).name!r} "
                "has no closed form; use RandomFeatures."
            )

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> None:
        wanted = max(self.n_components, GAMMA_ROWS)
        if self.landmarks == "rpcholesky":
            wanted = max(wanted, self.n_rows)
        rows, numbers = self._sample(X, wanted, client)
        kernel = self._resolve_kernel(rows[:GAMMA_ROWS])
        size = min(self.n_components, rows.shape[0])
        if self.landmarks == "uniform":
            chosen = np.arange(size)
        else:
            chosen = rpcholesky(kernel, self.gamma_, rows, size, self._stream("landmarks"))
        self.landmarks_ = rows[chosen].copy()
        self.landmark_rows_ = numbers[chosen]
        self.normalization_ = inverse_root(kernel, self.gamma_, self.landmarks_)
        if self._n_features_out < self.n_components:
            enough = "" if size < self.n_components else ", whose kernel so few reproduce"
            warnings.warn(
                f"Only {self._n_features_out} of n_components={self.n_components} features come "
                f"out of {rows.shape[0]} rows{enough}. Give more rows, or fewer n_components.",
                UserWarning,
                stacklevel=3,
            )

    @property
    def _n_features_out(self) -> int:
        return int(self.normalization_.shape[1])

    def _evaluator(self, dtype: np.dtype) -> Evaluator:
        # A normalisation made for float64 blows up the rounding of float32 values.
        inside = np.result_type(dtype, self.landmarks_.dtype)
        landmarks = self.landmarks_.astype(inside)
        if not is_sparse(landmarks):
            landmarks = np.ascontiguousarray(landmarks)
        normalization = self.normalization_.astype(inside)
        return NystroemBlock(landmarks, normalization, get_kernel(self.kernel), self.gamma_, dtype)
