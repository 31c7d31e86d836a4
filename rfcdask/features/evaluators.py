"""What evaluates one block of rows for the maps that are more than cosines: numpy only.

Cosine features are evaluated by `CosineBlock` in the hot loop; here are their random projection
(RFM-JL) and the kernel values against landmark rows (Nyström).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from rfcdask.kernels import Kernel
from rfcdask.kernels.arrays import Array, IntArray, Matrix, check_finite
from rfcdask.kernels.frequencies import hadamard_rows, padded_size
from rfcdask.kernels.hot_loop import CosineBlock, draw_block
from rfcdask.kernels.runtime import map_tiles
from rfcdask.kernels.seeds import stream

DrawArguments = tuple[str | Kernel, float, int, int, str, str, int]
"""Kernel, gamma, columns, number of frequencies, sampling, phases and seed of a draw."""
_TILE = 256
_SMALLEST_EIGENVALUE = {4: 1e-6, 8: 1e-12}
"""Relative to the largest, by bytes of a kernel value: the inverse root blows its rounding up."""


@dataclass(frozen=True)
class GaussianProjection:
    """A dense Gaussian matrix, ``(n_in, n_out)``, entries N(0, 1 / n_out)."""

    matrix: Array

    @classmethod
    def draw(cls, n_in: int, n_out: int, dtype: np.dtype, seed: int) -> GaussianProjection:
        """Draw the matrix from a seed."""
        rng = stream(seed, "projection")
        return cls((rng.standard_normal((n_in, n_out)) / np.sqrt(n_out)).astype(dtype))

    def apply(self, Z: Array) -> Array:
        """Project the rows of Z."""
        return np.asarray(Z @ self.matrix)


@dataclass(frozen=True)
class HadamardProjection:
    """Random signs, a Walsh-Hadamard transform and a sample of its rows."""

    signs: Array
    kept: Array
    size: int

    @classmethod
    def draw(cls, n_in: int, n_out: int, dtype: np.dtype, seed: int) -> HadamardProjection:
        """Draw signs and rows from a seed."""
        rng = stream(seed, "projection")
        size = padded_size(max(n_in, n_out))
        signs = (rng.integers(0, 2, n_in) * 2.0 - 1.0) / np.sqrt(n_out)
        return cls(signs.astype(dtype), rng.choice(size, n_out, replace=False), size)

    def apply(self, Z: Array) -> Array:
        """Project the rows of Z."""
        work = np.zeros((Z.shape[0], self.size), Z.dtype)
        np.multiply(Z, self.signs, out=work[:, : Z.shape[1]])
        hadamard_rows(work)
        return work[:, self.kept]


@dataclass(frozen=True)
class ProjectedBlock:
    """Candidate features and their projection, evaluated a tile of rows at a time."""

    candidates: CosineBlock
    projection: GaussianProjection | HadamardProjection
    n_outputs: int

    def __call__(self, X: Matrix, n_threads: int = 1, where: str = "") -> Array:
        """Evaluate on the rows of X without ever holding all candidates of all rows."""
        out = np.empty((X.shape[0], self.n_outputs), self.candidates.phases.dtype)

        def fill(start: int) -> None:
            rows = X[start : start + _TILE]
            check_finite(rows, start, where)
            values = self.candidates(rows, where=where)
            out[start : start + _TILE] = self.projection.apply(values)

        map_tiles(fill, range(0, X.shape[0], _TILE), n_threads)
        return out

    def times(self, matrix: Array) -> ProjectedBlock:
        """Return what evaluates these columns times a matrix, ``Z (P M)``, without making them."""
        assert isinstance(self.projection, GaussianProjection)
        product = (self.projection.matrix @ matrix).astype(self.projection.matrix.dtype)
        return ProjectedBlock(self.candidates, GaussianProjection(product), matrix.shape[1])


def build_projected(
    projection: str, n_outputs: int, drawn: DrawArguments, seed: int, dtype: np.dtype
) -> ProjectedBlock:
    """Make the evaluator from seeds alone: it is too large to travel in a graph."""
    candidates = draw_block(*drawn, dtype)
    kind = GaussianProjection if projection == "gaussian" else HadamardProjection
    projected = kind.draw(candidates.n_outputs, n_outputs, dtype, seed)
    return ProjectedBlock(candidates, projected, n_outputs)


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


def inverse_root(kernel: Kernel, gamma: float, landmarks: Matrix) -> Array:
    """Return the inverse square root of the landmarks' kernel matrix, ``(J, J)``, in float64."""
    rows = landmarks.astype(np.float64)
    values, vectors = scipy.linalg.eigh(kernel.matrix(rows, rows, gamma))
    smallest = _SMALLEST_EIGENVALUE[landmarks.dtype.itemsize]
    values = np.maximum(values, smallest * values[-1])
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)


class FeatureRows:
    """Rows and what evaluates their features: slices of it are slices of the array of features.

    It is for whoever needs few rows of features at a time: a slice is evaluated while it is in the
    cache, and a whole block of features, many times as large as its rows, is never made.
    """

    def __init__(
        self, X: Matrix, evaluator: Callable[..., Array], width: int, dtype: np.dtype, where: str
    ) -> None:
        self.X, self.evaluator, self.where = X, evaluator, where
        self.shape, self.dtype = (int(X.shape[0]), width), dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | IntArray) -> Array:
        return self.evaluate(self.X[rows])

    def take(self, rows: slice | IntArray) -> FeatureRows:
        """Return some of the rows, not evaluated."""
        return FeatureRows(self.X[rows], self.evaluator, self.shape[1], self.dtype, self.where)

    def evaluate(self, X: Matrix) -> Array:
        """Return the features of some of the rows, or of rows of other blocks of the same map."""
        if isinstance(X, np.ndarray):  # from the network it may start at any byte: other bits
            X = np.require(X, requirements="A")
        try:
            return np.asarray(self.evaluator(X, where=self.where))
        except ValueError:
            self.require_finite()
            raise

    def require_finite(self) -> None:
        """Raise where features are not finite, with the row's place in the block."""
        check_finite(self.X, where=self.where)
        self.evaluator(self.X, where=self.where)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    def __sizeof__(self) -> int:
        return int(getattr(self.X, "nbytes", 0)) or object.__sizeof__(self)
