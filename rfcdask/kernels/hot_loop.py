"""The hot loop: the one place where cosine features are evaluated.

Per value the work is one entry of a matrix product and one cosine. Angles are kept in turns
(1 / 2 pi folded into frequencies and phases), so the range reduction is ``v - rint(v)`` and the
cosine an even polynomial on [-1/2, 1/2]. A tile of rows is multiplied into its place in the output
and turned into features there while it is still in cache; weights are folded into the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np

from rfcdask.kernels.arrays import Array, IntArray, Matrix, check_finite, is_sparse
from rfcdask.kernels.exact import Kernel, get_kernel
from rfcdask.kernels.frequencies import Fastfood, Frequencies, draw_candidates
from rfcdask.kernels.runtime import compiled, map_tiles, one_blas_thread

_TILE_BYTES = 1 << 20  # of the order of a second-level cache; measured, and flat around it


def _cosine_polynomial(degree: int) -> tuple[float, ...]:
    """Return coefficients in u = v^2 of cos(2 pi v) on |v| <= 1/2 (Chebyshev interpolation)."""
    from numpy.polynomial import Chebyshev, Polynomial

    series = Chebyshev.interpolate(
        lambda u: np.cos(2 * np.pi * np.sqrt(np.maximum(u, 0))), degree, domain=[0, 0.25]
    )
    return tuple(float(c) for c in series.convert(kind=Polynomial).coef)


# Largest error 1e-8 and 2e-15: below what float32 and float64 angles carry themselves.
_C32 = tuple(np.float32(c) for c in _cosine_polynomial(6))
_C64 = _cosine_polynomial(10)
_QUARTER32, _QUARTER64 = np.float32(0.25), 0.25
# Fused multiply-adds are allowed; reordering and "no NaN here" are not: NaN must come through.
_FUSE = {"contract", "nsz"}


@numba.njit(inline="always")
def _cosine32(v: Any) -> Any:
    v -= np.rint(v)
    u = v * v
    c = _C32
    return c[0] + u * (
        c[1] + u * (c[2] + u * (c[3] + u * (c[4] + u * (c[5] + u * c[6]))))
    )  # fmt: skip


@numba.njit(inline="always")
def _cosine64(v: Any) -> Any:
    v -= np.rint(v)
    u = v * v
    c = _C64
    high = c[6] + u * (c[7] + u * (c[8] + u * (c[9] + u * c[10])))
    return c[0] + u * (c[1] + u * (c[2] + u * (c[3] + u * (c[4] + u * (c[5] + u * high)))))


@compiled(fastmath=_FUSE, error_model="numpy")
def _cosine_in_place32(out: Array, phases: Array, scales: Array) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = scales[j] * _cosine32(out[i, j] + phases[j])


@compiled(fastmath=_FUSE, error_model="numpy")
def _cosine_in_place64(out: Array, phases: Array, scales: Array) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = scales[j] * _cosine64(out[i, j] + phases[j])


@compiled(fastmath=_FUSE, error_model="numpy")
def _cosine_and_sine32(turns: Array, phases: Array, cosine: Array, sine: Array) -> None:
    for i in range(turns.shape[0]):
        for j in range(turns.shape[1]):
            v = turns[i, j] + phases[j]
            cosine[i, j] = _cosine32(v)
            sine[i, j] = _cosine32(v - _QUARTER32)


@compiled(fastmath=_FUSE, error_model="numpy")
def cosine_in_place_and_sine32(values: Array, phases: Array, sine: Array) -> None:
    """Turn angles into cosines where they lie, and write the sines elsewhere: then SIMD applies."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            v = values[i, j] + phases[j]
            values[i, j] = _cosine32(v)
            sine[i, j] = _cosine32(v - _QUARTER32)


@compiled(fastmath=_FUSE, error_model="numpy")
def _cosine_and_sine64(turns: Array, phases: Array, cosine: Array, sine: Array) -> None:
    for i in range(turns.shape[0]):
        for j in range(turns.shape[1]):
            v = turns[i, j] + phases[j]
            cosine[i, j] = _cosine64(v)
            sine[i, j] = _cosine64(v - _QUARTER64)


def cosine_and_sine(turns: Array, phases: Array, cosine: Array, sine: Array) -> None:
    """Write cos and sin of ``2 pi (turns + phases)`` to `cosine` and `sine`."""
    fill = _cosine_and_sine32 if turns.dtype == np.float32 else _cosine_and_sine64
    fill(turns, phases, cosine, sine)


@dataclass(frozen=True)
class CosineBlock:
    """Weighted cosine features of n frequencies, ready to be evaluated on a block of rows."""

    turns: Array | None  # frequencies over 2 pi, (p, n); None where `structure` stands for them
    phases: Array  # over 2 pi, (n,)
    scales: Array  # what each cosine is multiplied with, (n,)
    paired: bool = False  # each frequency yields its cosine and its sine (all cosines first)
    structure: Fastfood | None = None  # the product form of `turns`, used in their stead

    @classmethod
    def make(
        cls,
        frequencies: Array,
        phases: Array,
        scales: Array,
        dtype: np.dtype,
        *,
        paired: bool = False,
        structure: Fastfood | None = None,
    ) -> CosineBlock:
        """Fold 1 / 2 pi into frequencies and phases and round to `dtype` once."""
        if structure is not None:
            structure = structure.scaled(np.full(len(phases), 0.5 / np.pi)).astype(dtype)
        b = np.asarray(phases, np.float64) / (2 * np.pi)
        with np.errstate(over="ignore"):
            turns = np.ascontiguousarray(frequencies / (2 * np.pi), dtype)
        if not np.isfinite(turns).all():
            raise ValueError(
                f"Frequencies are too large for {dtype}, as those for values of X near 0 are; "
                "scale X first (rfcdask.Standardizer), or lower gamma."
            )
        return cls(
            turns,
            (b - np.rint(b)).astype(dtype),
            np.asarray(scales, dtype),
            paired,
            structure,
        )

    @cached_property
    def fastest(self) -> int:
        """The place of the largest frequency, whose angles overflow first."""
        if self.turns is None:
            return 0
        return int(np.argmax(np.einsum("ij,ij->j", self.turns, self.turns)))

    @property
    def n_outputs(self) -> int:
        """The number of feature columns."""
        return len(self.phases) * (2 if self.paired else 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        parts = [self.turns, self.phases, self.scales]
        return sum(part.nbytes for part in parts if part is not None)

    def take(self, which: slice | IntArray) -> CosineBlock:
        """Return the features of some of the frequencies (dense form only)."""
        assert self.turns is not None
        turns = np.ascontiguousarray(self.turns[:, which])
        return CosineBlock(turns, self.phases[which], self.scales[which], self.paired)

    def __call__(self, X: Matrix, n_threads: int = 1, where: str = "") -> Array:
        """Evaluate the features on the rows of X, ``(rows, n_outputs)``.

        Raises
        ------
        NotFiniteError
            When X holds NaN or infinity.
        """
        out = np.empty((X.shape[0], self.n_outputs), self.phases.dtype)
        if n_threads == 1:
            with one_blas_thread():
                for rows in self._tiles(X.shape[0]):
                    self._fill(X, rows, out, where)
        else:
            map_tiles(
                lambda rows: self._fill(X, rows, out, where), self._tiles(X.shape[0]), n_threads
            )
        return out

    def _tiles(self, n_rows: int) -> Iterator[slice]:
        width = len(self.phases) * self.phases.dtype.itemsize
        height = max(16, _TILE_BYTES // max(width, 1))
        for start in range(0, n_rows, height):
            yield slice(start, min(start + height, n_rows))

    def _fill(self, X: Matrix, rows: slice, out: Array, where: str) -> None:
        tile = out[rows]
        turns = np.empty((len(tile), len(self.phases)), out.dtype) if self.paired else tile
        with np.errstate(invalid="ignore", over="ignore"):  # what it warns of is refused below
            self._project(X[rows], turns)
        self._check_angles(X, rows, turns, where)
        if self.paired:
            half = len(self.phases)
            cosine_and_sine(turns, self.phases, tile[:, :half], tile[:, half:])
            tile[:, :half] *= self.scales
            tile[:, half:] *= self.scales
        elif out.dtype == np.float32:
            _cosine_in_place32(tile, self.phases, self.scales)
        else:
            _cosine_in_place64(tile, self.phases, self.scales)

    def _check_angles(self, X: Matrix, rows: slice, turns: Array, where: str) -> None:
        """Raise where an angle is not finite, or most of a row's have lost their fraction."""
        # A row with NaN or infinity has no finite angle, so one column tells for all of X. From
        # 1 / eps on angles are whole turns, and all cosines 1. Single fast frequencies may do that.
        most = 1 / np.finfo(turns.dtype).eps
        if not len(self.phases) or np.all(np.abs(turns[:, self.fastest]) < most):
            return
        known = np.mean(np.abs(turns) < most, axis=1) >= 0.5
        known &= np.isfinite(turns).all(axis=1)
        if not known.all():
            check_finite(X[rows], rows.start, where)
            raise ValueError(
                f"Input X has values at row {rows.start + int(np.argmin(known))}{where} too large "
                f"for angles in {turns.dtype}; scale X first (sklearn.preprocessing."
                "StandardScaler), or lower gamma."
            )

    def _project(self, X: Matrix, turns: Array) -> None:
        if self.structure is not None:
            rows = X.toarray() if is_sparse(X) else X
            self.structure.project(np.ascontiguousarray(rows, turns.dtype), turns)
            return
        assert self.turns is not None
        if is_sparse(X):
            turns[...] = X @ self.turns
        else:
            np.dot(np.ascontiguousarray(X, turns.dtype), self.turns, out=turns)


def draw_block(
    kernel: str | Kernel,
    gamma: float,
    p: int,
    n: int,
    sampling: str,
    phases: str,
    seed: int,
    dtype: np.dtype,
) -> CosineBlock:
    """Draw the evaluator of `n` unweighted frequencies from a seed."""
    drawn = draw_candidates(get_kernel(kernel), gamma, p, n, sampling, phases, seed)
    block = unweighted_block(drawn, phases, dtype)
    # The product form stands for the matrix, which would be large and never be used.
    return replace(block, turns=None) if block.structure is not None else block


def unweighted_block(drawn: Frequencies, phases: str, dtype: np.dtype) -> CosineBlock:
    """Return the evaluator of drawn frequencies, each with the same scale."""
    n = len(drawn.phases)
    paired = phases == "paired"
    scales = np.full(n, np.sqrt((1 if paired else 2) / n))
    return CosineBlock.make(
        drawn.vectors, drawn.phases, scales, dtype, paired=paired, structure=drawn.structure
    )
