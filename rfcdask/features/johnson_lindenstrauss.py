"""Random features projected at random to fewer columns (RFM-JL): a baseline blind to the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rfcdask._types import Array, DaskArray, Matrix
from rfcdask.blocks import CosineBlock, check_finite, draw_block
from rfcdask.features.base import (
    Evaluator,
    FeatureMap,
    atoms_of,
    check_choice,
    check_count,
    check_kernel_parameters,
)
from rfcdask.features.random import PHASES
from rfcdask.frequencies import check_sampling
from rfcdask.hadamard import hadamard_rows, padded_size
from rfcdask.kernels import Kernel
from rfcdask.seeds import stream
from rfcdask.threads import map_tiles

PROJECTIONS = ("gaussian", "fast")
_TILE = 256


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


def build_projected(
    projection: str, n_outputs: int, drawn: tuple[Any, ...], seed: int, dtype: np.dtype
) -> ProjectedBlock:
    """Make the evaluator from seeds alone: it is too large to travel in a graph."""
    kernel, gamma, p, n, sampling, phases, draw_seed = drawn
    candidates = draw_block(kernel, gamma, p, n, sampling, phases, draw_seed, dtype)
    kind = GaussianProjection if projection == "gaussian" else HadamardProjection
    projected = kind.draw(candidates.n_outputs, n_outputs, dtype, seed)
    return ProjectedBlock(candidates, projected, n_outputs)


class JLFeatures(FeatureMap):
    """Random features compressed by a Johnson-Lindenstrauss projection [1]_.

    All `n_candidates` features of every row are computed and projected to `n_components` columns,
    which costs `n_candidates` cosines a row however few columns come out. It is here to compare
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
        random_state: Any = None,
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

    def _fit(self, X: Matrix | DaskArray, y: Any, client: Any) -> None:
        self._kernel_for(X, client)
        self.n_components_ = int(self.n_components)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _evaluator(self, dtype: np.dtype) -> Evaluator:
        make, arguments = self._build(dtype)
        evaluator: ProjectedBlock = make(*arguments)
        return evaluator

    def _build(self, dtype: np.dtype) -> Any:
        n = atoms_of("n_candidates", self.n_candidates, self.phases == "paired")
        p = self.n_features_in_
        drawn = (self.kernel, self.gamma_, p, n, self.sampling, self.phases, self.seed_)
        return build_projected, (self.projection, self.n_components_, drawn, self.seed_, dtype)
