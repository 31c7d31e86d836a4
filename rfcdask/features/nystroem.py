"""Nyström features: kernel values against landmark rows. The strong and expensive competitor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rfcdask.features.base import (
    GAMMA_ROWS,
    Evaluator,
    FeatureMap,
    check_choice,
    check_count,
    check_kernel_parameters,
)
from rfcdask.features.evaluators import NystroemBlock, inverse_root, rpcholesky
from rfcdask.kernels import Kernel, get_kernel
from rfcdask.kernels.arrays import is_sparse
from rfcdask.kernels.types import DaskArray, Matrix, RandomState

if TYPE_CHECKING:
    from distributed import Client

LANDMARKS = ("uniform", "rpcholesky")


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

    _learned_last = "normalization_"

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
        self.n_components = n_components
        self.landmarks = landmarks
        self.kernel = kernel
        self.gamma = gamma
        self.n_rows = n_rows
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count("n_components", self.n_components)
        check_count("n_rows", self.n_rows, least=2)
        check_kernel_parameters(self.kernel, self.gamma)
        check_choice("landmarks", self.landmarks, LANDMARKS)
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
