"""Draws of frequencies: independent, orthogonal, low-discrepancy or structured.

Every draw makes vectors whose marginal distribution is exactly standard normal; the kernel turns
them into frequencies. So every draw serves every kernel, and differs from the others only in how
its vectors depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from rfcdask.kernels.arrays import Array
from rfcdask.kernels.exact import Kernel
from rfcdask.kernels.runtime import compiled, one_blas_thread
from rfcdask.kernels.seeds import stream

SOBOL_MAX_COLUMNS = 21_199
"""``scipy.stats.qmc.Sobol.MAXDIM - 2``; scipy.stats takes long to import, and few draws need it."""


@dataclass(frozen=True)
class Fastfood:
    """Gaussian vectors as products of Hadamard, diagonal and permutation matrices.

    Block k is ``diag(lengths) H diag(gauss) P H diag(signs)``, d x d with d a power of two. Given
    signs and permutation, each row is linear in `gauss` with covariance d I, so it is exactly
    Gaussian; `lengths` replaces the norm that all rows of a block share by a chi draw of its own.
    """

    signs: Array  # (n_blocks, d), as the three that follow
    permutation: Array
    gauss: Array
    lengths: Array
    n_features_in: int  # the number of columns p; the d - p others are padding
    n_features_out: int  # the number of vectors wanted, at most n_blocks * d

    @classmethod
    def draw(cls, p: int, n: int, rng: np.random.Generator) -> Fastfood:
        """Draw enough blocks for `n` vectors of `p` coordinates."""
        d = padded_size(p)
        shape = (-(-n // d), d)
        signs = rng.integers(0, 2, shape) * 2.0 - 1.0
        permutation = rng.permuted(np.broadcast_to(np.arange(d), shape), axis=1)
        gauss = rng.standard_normal(shape)
        norms = np.linalg.norm(gauss, axis=1, keepdims=True) * np.sqrt(d)
        lengths = np.sqrt(rng.chisquare(d, shape)) / norms
        return cls(signs, permutation, gauss, lengths, p, n)

    def scaled(self, factor: Array) -> Fastfood:
        """Return the same vectors, the j-th times ``factor[j]``."""
        padded = np.ones(self.lengths.size)
        padded[: self.n_features_out] = factor
        lengths = self.lengths * padded.reshape(self.lengths.shape)
        return replace(self, lengths=lengths)

    def astype(self, dtype: np.dtype[np.floating]) -> Fastfood:
        """Return the same vectors in another precision."""
        parts = {name: getattr(self, name).astype(dtype) for name in ("signs", "gauss", "lengths")}
        return replace(self, **parts)

    def project(self, X: Array, out: Array) -> None:
        """Write the product of each row of X with each vector to `out`, O(log d) per value."""
        blocks, d = self.signs.shape
        work = np.empty((X.shape[0], d), out.dtype)
        for k in range(blocks):
            columns = slice(k * d, min((k + 1) * d, self.n_features_out))
            work[:, self.n_features_in :] = 0
            np.multiply(X, self.signs[k, : self.n_features_in], out=work[:, : self.n_features_in])
            hadamard_rows(work)
            work = work[:, self.permutation[k]]
            work *= self.gauss[k]
            hadamard_rows(work)
            width = columns.stop - columns.start
            np.multiply(work[:, :width], self.lengths[k, :width], out=out[:, columns])

    def matrix(self) -> Array:
        """Return the vectors themselves, ``(n_features_in, n_features_out)``."""
        out = np.empty((self.n_features_in, self.n_features_out))
        self.project(np.eye(self.n_features_in), out)
        return out


@dataclass(frozen=True)
class Frequencies:
    """Drawn frequencies and phases."""

    vectors: Array  # the frequencies w_j, a column each
    phases: Array  # b_j in [0, 2 pi)
    structure: Fastfood | None = None  # the product form of `vectors`, where that is cheaper


@dataclass(frozen=True)
class _Base:
    """Standard normal vectors ``(n, p)``, two uniforms each, and the structure if there is one."""

    normals: Array
    mixing: Array
    turns: Array
    structure: Fastfood | None = None


def _iid(p: int, n: int, rng: np.random.Generator) -> _Base:
    vectors, uniforms = rng.spawn(2)
    return _Base(vectors.standard_normal((n, p)), *_open_uniforms(uniforms, n))


def _orthogonal(p: int, n: int, rng: np.random.Generator) -> _Base:
    vectors, uniforms = rng.spawn(2)
    blocks = [_orthogonal_block(p, vectors) for _ in range(-(-n // p))]
    return _Base(np.concatenate(blocks)[:n], *_open_uniforms(uniforms, n))


def _orthogonal_block(p: int, rng: np.random.Generator) -> Array:
    with one_blas_thread():  # else the last bits depend on the number of threads
        q, r = np.linalg.qr(rng.standard_normal((p, p)))
    q *= np.sign(np.diag(r))  # without the signs Q is not uniform over the rotations
    return np.asarray(q.T * np.sqrt(rng.chisquare(p, p))[:, None])


def _fastfood(p: int, n: int, rng: np.random.Generator) -> _Base:
    vectors, uniforms = rng.spawn(2)
    structure = Fastfood.draw(p, n, vectors)
    return _Base(structure.matrix().T, *_open_uniforms(uniforms, n), structure)


def _halton(p: int, n: int, rng: np.random.Generator) -> _Base:
    from scipy.stats import qmc

    return _from_cube(qmc.Halton(p + 2, scramble=True, rng=rng).random(n))


def _sobol(p: int, n: int, rng: np.random.Generator) -> _Base:
    if p > SOBOL_MAX_COLUMNS:
        raise ValueError(
            f"sampling='sobol' goes up to {SOBOL_MAX_COLUMNS:,} columns and X has {p:,}; use "
            "sampling='halton' or 'orthogonal', or project X to fewer columns first."
        )
    from scipy.stats import qmc

    # Two coordinates of each point are the uniforms. Only whole powers of two are balanced: draw
    # one and keep its beginning.
    points = qmc.Sobol(p + 2, scramble=True, rng=rng).random_base2((n - 1).bit_length())
    return _from_cube(points[:n])


def _from_cube(points: Array) -> _Base:
    """Turn points of the unit cube into normals by the inverse of their distribution."""
    # Scrambled points may lie on 0 or 1, whose normals are infinite.
    points = np.clip(points, 2.0**-53, 1 - 2.0**-53)
    return _Base(special.ndtri(points[:, 2:]), points[:, 0], points[:, 1])


def _open_uniforms(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    u = np.clip(rng.random((n, 2)), 2.0**-53, 1 - 2.0**-53)
    return u[:, 0], u[:, 1]


DRAWS: dict[str, Callable[[int, int, np.random.Generator], _Base]] = {
    "iid": _iid,
    "orthogonal": _orthogonal,
    "halton": _halton,
    "sobol": _sobol,
    "fastfood": _fastfood,
}


def check_sampling(sampling: str) -> None:
    """Raise a ValueError that lists the draws when `sampling` is none of them."""
    if str(sampling) not in DRAWS:
        raise ValueError(f"Unknown sampling {sampling!r}: choose one of {', '.join(DRAWS)}.")


def draw_frequencies(
    kernel: Kernel, gamma: float, p: int, n: int, sampling: str, rng: np.random.Generator
) -> Frequencies:
    """Draw `n` frequencies of a kernel for data with `p` columns.

    Parameters
    ----------
    kernel : Kernel
    gamma : float
    p, n : int
        Columns of the data, and how many frequencies.
    sampling : {"iid", "orthogonal", "halton", "sobol", "fastfood"}
    rng : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    Frequencies
    """
    check_sampling(sampling)
    base = DRAWS[sampling](p, n, rng)
    vectors = kernel.frequencies(base.normals, base.mixing, gamma)
    structure = base.structure
    if structure is not None:
        # A warped coordinate is no longer linear in x: such kernels keep the plain matrix.
        structure = structure.scaled(kernel.radius(base.mixing, gamma)) if kernel.radius else None
    return Frequencies(np.ascontiguousarray(vectors.T), 2 * np.pi * base.turns, structure)


def draw_candidates(
    kernel: Kernel, gamma: float, p: int, n: int, sampling: str, phases: str, seed: int
) -> Frequencies:
    """Draw `n` frequencies from a seed; paired phases start at zero."""
    drawn = draw_frequencies(kernel, gamma, p, n, sampling, stream(seed, "frequencies"))
    return replace(drawn, phases=np.zeros(n)) if phases == "paired" else drawn


def padded_size(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


@compiled(fastmath={"contract", "nsz"})
def hadamard_rows(A: Array) -> None:
    """Apply the unnormalised Walsh-Hadamard transform to each row of `A`, in place.

    The number of columns must be a power of two.
    """
    n, d = A.shape
    for i in range(n):
        half = 1
        while half < d:
            for start in range(0, d, 2 * half):
                for k in range(start, start + half):
                    a, b = A[i, k], A[i, k + half]
                    A[i, k] = a + b
                    A[i, k + half] = a - b
            half *= 2
