"""Nyström features: kernel values against landmark rows. The strong and costly competitor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from rfcdask._types import Array, DaskArray, IntArray, Matrix
from rfcdask.blocks import check_finite
from rfcdask.features.base import (
    GAMMA_ROWS,
    Evaluator,
    FeatureMap,
    check_choice,
    check_count,
    check_kernel_parameters,
)
from rfcdask.kernels import Kernel, get_kernel
from rfcdask.sparse import is_sparse
from rfcdask.threads import map_tiles

LANDMARKS = ("uniform", "rpcholesky")
_TILE = 256
_SMALLEST_EIGENVALUE = {4: 1e-6, 8: 1e-12}
"""Relative to the largest, by bytes of a kernel value: the inverse root blows its rounding up."""


@dataclass(frozen=True)
class NystroemBlock:
    """Kernel values against the landmarks times a normalisation."""

    landmarks: Matrix
    normalization: Array
    kernel: Kernel
    gamma: float
    dtype: np.dtype

    def __call__(self, X: Matrix, n_threads: int = 1, where: str = "") -> Array:
        """Evaluate on the rows of X, a tile at a time."""
        inside = self.normalization.dtype
        out = np.empty((X.shape[0], self.normalization.shape[1]), self.dtype)

        def fill(start: int) -> None:
            rows = X[start : start + _TILE]
            check_finite(rows, start, where)
            K = self.kernel.exact(rows.astype(inside, copy=False), self.landmarks, self.gamma)
            out[start : start + _TILE] = K @ self.normalization

        map_tiles(fill, range(0, X.shape[0], _TILE), n_threads)
        return out


def rpcholesky(
    kernel: Kernel, gamma: float, rows: Matrix, size: int, rng: np.random.Generator
) -> IntArray:
    """Choose `size` rows by randomly pivoted Cholesky: each in proportion to what is left of it.

    Parameters
    ----------
    kernel, gamma
        The kernel, with closed form; its diagonal is 1.
    rows : array or CSR of shape (m, p)
    size : int
        At most this many; fewer when the kernel matrix has lower numeric rank.
    rng : numpy.random.Generator
    """
    m = rows.shape[0]
    rows = rows.astype(np.float64, copy=False)  # rounding would hide what is left of a row
    left = np.ones(m)
    F = np.zeros((size, m))
    chosen: list[int] = []
    for k in range(size):
        if left.max() < 1e-10:
            break
        pivot = int(rng.choice(m, p=left / left.sum()))
        column = kernel.matrix(rows, rows[[pivot]], gamma)[:, 0]
        column -= F[:k].T @ F[:k, pivot]
        F[k] = column / np.sqrt(column[pivot])
        left = np.maximum(left - F[k] ** 2, 0)
        left[pivot] = 0
        chosen.append(pivot)
    return np.array(chosen, np.int64)


class NystroemFeatures(FeatureMap):
    """Nyström approximation of a kernel by landmark rows.

    At equal size it usually comes closer to the kernel than random features do. It pays with a
    product of J^2 more operations a row and with rows of the training data in the model.

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
        random_state: Any = None,
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

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Any) -> None:
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
        self.normalization_ = self._normalize(kernel)

    def _normalize(self, kernel: Kernel) -> Array:
        """Return the inverse square root of the landmarks' kernel matrix."""
        some = self.landmarks_.astype(np.float64)
        values, vectors = scipy.linalg.eigh(kernel.matrix(some, some, self.gamma_))
        smallest = _SMALLEST_EIGENVALUE[self.landmarks_.dtype.itemsize]
        values = np.maximum(values, smallest * values[-1])
        return np.asarray((vectors / np.sqrt(values)) @ vectors.T)

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
