"""Cosine features that were trained together with a linear model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rfcdask.features.base import Evaluator, FeatureMap
from rfcdask.kernels import Kernel
from rfcdask.kernels.arrays import Array, DaskArray, Matrix, RandomState
from rfcdask.kernels.hot_loop import CosineBlock

if TYPE_CHECKING:
    from distributed import Client


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
