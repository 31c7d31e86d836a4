"""The maps that do not look at the data: random features, and their random projection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rfcdask.features.base import (
    Evaluator,
    EvaluatorRecipe,
    FeatureMap,
    atoms_of,
    check_choice,
    check_count,
    check_kernel_parameters,
)
from rfcdask.features.evaluators import build_projected
from rfcdask.kernels import Kernel
from rfcdask.kernels.frequencies import Frequencies, check_sampling, draw_candidates
from rfcdask.kernels.hot_loop import draw_block, unweighted_block
from rfcdask.kernels.types import DaskArray, Matrix, RandomState

if TYPE_CHECKING:
    from distributed import Client

PHASES = ("random", "paired")
PROJECTIONS = ("gaussian", "fast")
_SHIP_BYTES = 1 << 20
"""Larger maps travel as their seed and are drawn again in one task."""


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

    _learned_last = "frequencies_"

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
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.sampling = sampling
        self.phases = phases
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count("n_components", self.n_components)
        check_kernel_parameters(self.kernel, self.gamma)
        check_sampling(self.sampling)
        check_choice("phases", self.phases, PHASES)
        atoms_of("n_components", self.n_components, self.phases == "paired")

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Client | None) -> None:
        kernel = self._kernel_for(X, client)
        drawn = draw_candidates(kernel, *self._draw_arguments())
        self.frequencies_, self.phases_ = drawn.vectors, drawn.phases
        self.weights_ = np.ones(len(drawn.phases))

    def _draw_arguments(self) -> tuple[float, int, int, str, str, int]:
        n = atoms_of("n_components", self.n_components, self.phases == "paired")
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

    _learned_last = "n_components_"

    def __init__(
        self,
        n_components: int = 500,
        *,
        n_candidates: int = 5000,
        projection: str = "gaussian",
        kernel: str | Kernel = "rbf",
        gamma: float | str = "scale",
        sampling: str = "iid",
        phases: str = "random",
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.n_candidates = n_candidates
        self.projection = projection
        self.kernel = kernel
        self.gamma = gamma
        self.sampling = sampling
        self.phases = phases
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count("n_components", self.n_components)
        check_count("n_candidates", self.n_candidates)
        check_kernel_parameters(self.kernel, self.gamma)
        check_sampling(self.sampling)
        check_choice("phases", self.phases, PHASES)
        check_choice("projection", self.projection, PROJECTIONS)
        atoms_of("n_candidates", self.n_candidates, self.phases == "paired")
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
        n = atoms_of("n_candidates", self.n_candidates, self.phases == "paired")
        p = self.n_features_in_
        drawn = (self.kernel, self.gamma_, p, n, self.sampling, self.phases, self.seed_)
        return build_projected, (self.projection, self.n_components_, drawn, self.seed_, dtype)
