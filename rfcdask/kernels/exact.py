"""Exact values and spectral draws of each kernel.

A shift-invariant kernel is the Fourier transform of a probability density Q (Bochner): features
``cos(w . x + b)`` with w drawn from Q approximate it. A kernel here is a pair of formulas, its
value as a function of x - y and a way from standard normal vectors to draws from Q.

==================  ================================  =========================================
kernel              value for D = x - y               frequencies
==================  ================================  =========================================
rbf                 exp(-g ||D||^2)                   N(0, 2g I)
laplacian           exp(-g ||D||_1)                   each coordinate Cauchy(scale g)
cauchy              prod 1 / (1 + g^2 D_i^2)          each coordinate Laplace(scale g)
matern12, 32, 52    Matern of order nu, length 1/g    g z sqrt(2 nu / chi2(2 nu)), one chi2 each
==================  ================================  =========================================

Every value comes from a sum over coordinates of x - y: of squares (rbf, matern), of absolute values
(laplacian) or of ``log1p(d**2)`` (cauchy), for all pairs of two sets of rows or for rows side by
side, dense or CSR. A CSR block is never made dense.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy import special

from rfcdask.kernels.arrays import CSR, LEAST_SQUARE, Array, Matrix, is_sparse, vary
from rfcdask.kernels.runtime import compiled, map_tiles, one_blas_thread

Sum = Literal["squares", "absolutes", "log1p"]
# Sums of many terms may be reordered, else the loops below do not vectorise; NaN must survive.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}
Profile = Callable[[Array, float], Array]
_TILE = 512
_SMALLEST32 = 1e-15
"""Beyond this gamma, or one over it, sums of squares of typical data leave float32."""


def _inverse_root(spread: float) -> float:
    return 1 / math.sqrt(spread)


def _inverse(spread: float) -> float:
    return 1 / spread


def _matern_gamma(spread: float) -> float:
    return math.sqrt(2 / spread)


@dataclass(frozen=True)
class Kernel:
    """A shift-invariant kernel: how to draw its frequencies and, where known, its exact value.

    Parameters
    ----------
    name : str
        What messages and saved models call it.
    radius : callable, optional
        ``(uniforms, gamma) -> lengths``: a radial kernel's frequencies are standard normal vectors
        times these lengths. Exactly one of `radius` and `warp` is given.
    warp : callable, optional
        ``(normals, gamma) -> frequencies``, coordinate by coordinate.
    distance : {"squares", "absolutes", "log1p"}, optional
        The sum over coordinates that `profile` takes.
    profile : callable, optional
        ``(sums, gamma) -> values``, which may overwrite its argument; without it the kernel has
        no closed form and only its random features can be compared with.
    scaled : bool
        Whether the coordinates are multiplied by gamma before the sum is taken.
    gamma_of_spread : callable
        ``(sum of the columns' variances) -> gamma`` for ``gamma="scale"``.
    """

    name: str
    radius: Profile | None = None
    warp: Profile | None = None
    distance: Sum = "squares"
    profile: Profile | None = field(default=None, repr=False)
    scaled: bool = False
    gamma_of_spread: Callable[[float], float] = field(default=_inverse_root, repr=False)

    def __post_init__(self) -> None:
        if (self.radius is None) == (self.warp is None):
            raise ValueError(f"Kernel {self.name!r} needs either radius= or warp=, and not both.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A kernel of this package travels, and is copied, as its name.
        if KERNELS.get(self.name) is self:
            return get_kernel, (self.name,)
        return super().__reduce_ex__(protocol)

    @property
    def has_closed_form(self) -> bool:
        """Whether exact values are known."""
        return self.profile is not None

    def frequencies(self, normals: Array, uniforms: Array, gamma: float) -> Array:
        """Turn standard normal vectors ``(n, p)`` and uniforms ``(n,)`` into draws from Q."""
        if self.warp is not None:
            return self.warp(normals, gamma)
        assert self.radius is not None
        return normals * self.radius(uniforms, gamma)[:, None]

    def exact(self, X: Matrix, Y: Matrix, gamma: float) -> Array:
        """Return the kernel matrix ``(n, m)`` in the dtype of X, or float of it for integers."""
        X, Y = _as_floats(X), _as_floats(Y)
        if X.dtype == np.float32 and not _SMALLEST32 < gamma < 1 / _SMALLEST32:
            # Sums of squares of such data are beyond float32; the values of the kernel are not.
            return self.exact(X.astype(np.float64), Y, gamma).astype(np.float32)
        return self._apply(pairwise(self.distance, *self._scale(X, Y, gamma)), gamma)

    def exact_pairs(self, X: Matrix, Y: Matrix, gamma: float) -> Array:
        """Return the kernel of row i of X with row i of Y, in float64."""
        return self._apply(rowwise(self.distance, *self._scale(X, Y, gamma)), gamma)

    def matrix(self, X: Matrix, Y: Matrix, gamma: float) -> Array:
        """Return `exact` computed in row tiles side by side, whatever the number of threads."""
        X, Y = _as_floats(X), _as_floats(Y)
        out = np.empty((X.shape[0], Y.shape[0]), X.dtype)

        def fill(start: int) -> None:
            out[start : start + _TILE] = self.exact(X[start : start + _TILE], Y, gamma)

        map_tiles(fill, range(0, X.shape[0], _TILE))
        return out

    def _scale(self, X: Matrix, Y: Matrix, gamma: float) -> tuple[Matrix, Matrix]:
        X, Y = _as_floats(X), _as_floats(Y)
        if not self.scaled:
            return X, Y
        return X * X.dtype.type(gamma), Y * Y.dtype.type(gamma)

    def _apply(self, sums: Array, gamma: float) -> Array:
        if self.profile is None:
            raise ValueError(
                f"Kernel {self.name!r} has no closed form; use target='candidates', or give it "
                "profile=."
            )
        return self.profile(sums, gamma)


def _as_floats(X: Matrix) -> Matrix:
    """Return X in float: differences of unsigned integers would wrap around."""
    return X.astype(np.result_type(X.dtype, np.float32), copy=False)


def _exp_minus(sums: Array, gamma: float) -> Array:
    sums *= -gamma
    return np.asarray(np.exp(sums, out=sums))


def _exp_scaled(sums: Array, gamma: float) -> Array:
    np.negative(sums, out=sums)
    return np.asarray(np.exp(sums, out=sums))


_FAR = 1e4  # from here on every Matern kernel is zero; infinity times zero would be NaN


def _matern_profile(sums: Array, gamma: float, nu: float) -> Array:
    r = np.sqrt(sums, out=sums)
    r *= gamma * np.sqrt(2 * nu)
    np.minimum(r, _FAR, out=r)
    decay = np.exp(-r)
    if nu == 0.5:
        return np.asarray(decay)
    if nu == 1.5:
        return np.asarray((1 + r) * decay)
    return np.asarray((1 + r + r * r / 3) * decay)


def _rbf_radius(uniforms: Array, gamma: float) -> Array:
    return np.full(uniforms.shape, np.sqrt(2 * gamma))


def _matern_radius(uniforms: Array, gamma: float, nu: float) -> Array:
    # scipy.special.chdtri takes the upper tail, so small uniforms keep their digits.
    return np.asarray(gamma * np.sqrt(2 * nu / special.chdtri(2 * nu, uniforms)))


def _cauchy_draw(normals: Array, gamma: float) -> Array:
    return np.asarray(gamma * np.sign(normals) / np.tan(np.pi * special.ndtr(-np.abs(normals))))


def _laplace_draw(normals: Array, gamma: float) -> Array:
    tail = np.log(2) + special.log_ndtr(-np.abs(normals))
    return np.asarray(-gamma * np.sign(normals) * tail)


def _matern(nu: float) -> Kernel:
    return Kernel(
        f"matern{round(2 * nu)}2",
        radius=partial(_matern_radius, nu=nu),
        profile=partial(_matern_profile, nu=nu),
        gamma_of_spread=_matern_gamma,
    )


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel("rbf", radius=_rbf_radius, profile=_exp_minus, gamma_of_spread=_inverse),
        Kernel("laplacian", warp=_cauchy_draw, distance="absolutes", profile=_exp_minus),
        Kernel("cauchy", warp=_laplace_draw, distance="log1p", profile=_exp_scaled, scaled=True),
        _matern(0.5),
        _matern(1.5),
        _matern(2.5),
    )
}  # fmt: skip
ALIASES = {"gaussian": "rbf", "laplace": "laplacian", "matern": "matern32"}
_MATERN_SPELLINGS = re.compile(r"matern[-_ ]?(?:([135])/?2|([012])\.5)")


def get_kernel(kernel: str | Kernel) -> Kernel:
    """Return the kernel of that name, or the given one.

    Raises
    ------
    ValueError
        When no kernel has that name; the message lists the names.
    """
    if isinstance(kernel, Kernel):
        return kernel
    known = KERNELS.get(_canonical_name(str(kernel)))
    if known is None:
        raise ValueError(
            f"Unknown kernel {kernel!r}: choose one of {', '.join(KERNELS)}, or pass a "
            "rfcdask.kernels.Kernel."
        )
    return known


def _canonical_name(name: str) -> str:
    spelled = _MATERN_SPELLINGS.fullmatch(name)  # matern-1/2, matern1.5, matern52 ...
    if spelled:
        twice_nu = int(spelled[1]) if spelled[1] else 2 * int(spelled[2]) + 1
        return f"matern{twice_nu}2"
    return ALIASES.get(name, name)


def resolve_gamma(gamma: float | str, kernel: Kernel, rows: Matrix) -> float:
    """Return gamma as a number, from the sampled `rows` when it is given as a rule.

    ``"scale"`` makes the kernel as wide as the data: for rbf it is scikit-learn's
    ``1 / (n_features * X.var())``. ``"median"`` puts the median distance of two rows at the
    kernel's length (for rbf ``1 / (2 median^2)``).
    """
    if isinstance(gamma, str):
        if gamma not in ("scale", "median"):
            raise ValueError(f"Unknown gamma {gamma!r}: use 'scale', 'median' or a number above 0.")
        rule = _gamma_of_scale if gamma == "scale" else _gamma_of_median
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return check_gamma(gamma, rule(kernel, rows))
    if not _is_positive(gamma):
        raise ValueError(f"gamma={gamma!r} must be a finite number above 0, 'scale' or 'median'.")
    return float(gamma)


def check_gamma(rule: str, found: float) -> float:
    """Return the gamma that a rule found, or raise where squares of X left none."""
    if not _is_positive(found):
        raise ValueError(
            f"gamma={rule!r} gives {found}: the values of X are too large or too small to be "
            "squared; scale X first (rfcdask.Standardizer)."
        )
    return found


def _is_positive(gamma: Any) -> bool:
    is_number = isinstance(gamma, Real) and not isinstance(gamma, bool)
    return is_number and 0 < float(gamma) < np.inf


def _gamma_of_scale(kernel: Kernel, rows: Matrix) -> float:
    entries = rows.shape[0] * rows.shape[1]
    if is_sparse(rows) and not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    values = rows.data if is_sparse(rows) else rows
    mean = values.sum(dtype=np.float64) / entries
    if is_sparse(rows):
        variance = np.square(values, dtype=np.float64).sum() / entries - mean**2
    else:
        variance = float(np.var(values, dtype=np.float64))
    if variance < LEAST_SQUARE and vary(rows):
        return np.inf
    if variance <= 1e-14 * mean**2 < np.inf:
        raise ValueError(
            "gamma='scale' needs data that vary, but all sampled values of X are constant; "
            "give gamma as a number."
        )
    if kernel.distance == "absolutes":
        return float(1 / (rows.shape[1] * np.sqrt(variance)))
    return float(kernel.gamma_of_spread(rows.shape[1] * variance))


def _gamma_of_median(kernel: Kernel, rows: Matrix) -> float:
    some = rows[: min(1000, rows.shape[0])].astype(np.float64)
    kind: Sum = "absolutes" if kernel.distance == "absolutes" else "squares"
    with one_blas_thread():  # all that is drawn hangs on the last bits of gamma
        sums = pairwise(kind, some, some)[np.triu_indices(some.shape[0], 1)]
    middle = float(np.median(sums))
    largest = float(np.max(sums, initial=0.0))
    if largest < LEAST_SQUARE and kind == "squares" and vary(some):
        return np.inf
    if middle <= 1e-14 * largest < np.inf or middle == 0:
        raise ValueError(
            "gamma='median' needs rows that differ, but at least half of the sampled pairs of "
            "rows are constant (identical); give gamma as a number."
        )
    if kernel.distance == "absolutes":
        return 1 / middle
    return float(kernel.gamma_of_spread(2 * middle))


def pairwise(kind: Sum, X: Matrix, Y: Matrix) -> Array:
    """Return the sum over coordinates for each row of X with each row of Y, ``(n, m)``."""
    if is_sparse(X) or is_sparse(Y):
        return _pairwise_csr(kind, _as_csr(X), _as_csr(Y))
    if kind == "squares":
        return _pairwise_squares(X, Y)
    out = np.empty((X.shape[0], Y.shape[0]), X.dtype)
    _pairwise_dense(kind == "log1p", np.ascontiguousarray(X), np.ascontiguousarray(Y, X.dtype), out)
    return out


def rowwise(kind: Sum, X: Matrix, Y: Matrix) -> Array:
    """Return the sum over coordinates for row i of X with row i of Y, ``(n,)``, in float64."""
    if is_sparse(X) or is_sparse(Y):
        return _rowwise_csr(kind, _as_csr(X) - _as_csr(Y))
    D = X - Y
    if kind == "squares":
        return np.asarray(np.einsum("ij,ij->i", D, D, dtype=np.float64))
    terms = np.abs(D) if kind == "absolutes" else np.log1p(D * D)
    return np.asarray(terms.sum(axis=1, dtype=np.float64))


def _as_csr(X: Matrix) -> CSR:
    """Return X as CSR without duplicate entries; the arrays of the given one stay as they are."""
    out = sp.csr_array(X)
    if not out.has_canonical_format:
        out = out.copy()
        out.sum_duplicates()
    return out


def _squared_norms(X: Matrix) -> Array:
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
    return np.asarray(np.einsum("ij,ij->i", X, X))


def _pairwise_squares(X: Array, Y: Array) -> Array:
    # Only differences matter: rows far from the origin would lose their digits in |x|^2 + |y|^2.
    middle = Y.mean(axis=0, dtype=np.float64)
    return _squares_of_differences(X - middle, Y - middle, X.dtype)


def _squares_of_differences(X: Matrix, Y: Matrix, dtype: np.dtype) -> Array:
    """Return ``|x|^2 + |y|^2 - 2 x.y`` in `dtype`, from rows in float64.

    In float32 one row far off, or a cluster away from the others, would cost all digits.
    """
    out = X @ Y.T
    out = np.asarray(out.todense()) if is_sparse(out) else out
    out *= -2
    out += _squared_norms(X)[:, None]
    out += _squared_norms(Y)[None, :]
    np.maximum(out, 0, out=out)
    with np.errstate(over="ignore"):  # infinitely far in float32 is far enough for every kernel
        return np.asarray(out, dtype)


def _pairwise_csr(kind: Sum, X: CSR, Y: CSR) -> Array:
    if kind == "squares":
        exact = np.float64
        return _squares_of_differences(X.astype(exact), Y.astype(exact), X.dtype)
    out = np.empty((X.shape[0], Y.shape[0]), X.dtype)
    parts = (X.data, X.indices, X.indptr, Y.data, Y.indices, Y.indptr)
    _pairwise_sparse(kind == "log1p", *parts, out)
    return out


def _rowwise_csr(kind: Sum, D: CSR) -> Array:
    if kind == "squares":
        D.data **= 2
    elif kind == "absolutes":
        np.abs(D.data, out=D.data)
    else:
        D.data = np.log1p(D.data**2)
    return np.asarray(D.sum(axis=1, dtype=np.float64)).reshape(-1)


@compiled(fastmath=_REORDER)
def _pairwise_dense(log1p: bool, X: Array, Y: Array, out: Array) -> None:
    n, p = X.shape
    one = X.dtype.type(1)
    for i in range(n):
        for j in range(Y.shape[0]):
            if not log1p:
                total = X.dtype.type(0)
                for k in range(p):
                    total += abs(X[i, k] - Y[j, k])
                out[i, j] = total
            else:
                # A product and one logarithm at the end; it overflows where the kernel is zero.
                product = np.float64(1)
                for k in range(p):
                    d = X[i, k] - Y[j, k]
                    product *= one + d * d
                out[i, j] = np.log(product)


@compiled()
def _pairwise_sparse(
    log1p: bool,
    x: Array,
    x_columns: Array,
    x_start: Array,
    y: Array,
    y_columns: Array,
    y_start: Array,
    out: Array,
) -> None:
    for i in range(len(x_start) - 1):
        for j in range(len(y_start) - 1):
            a, a_end, b, b_end = x_start[i], x_start[i + 1], y_start[j], y_start[j + 1]
            total = 0.0
            while a < a_end or b < b_end:
                if b == b_end or (a < a_end and x_columns[a] < y_columns[b]):
                    d = np.float64(x[a])
                    a += 1
                elif a == a_end or y_columns[b] < x_columns[a]:
                    d = np.float64(y[b])
                    b += 1
                else:
                    d = np.float64(x[a]) - y[b]
                    a += 1
                    b += 1
                total += np.log1p(d * d) if log1p else abs(d)
            out[i, j] = total
