"""Plain answers from other libraries and from definitions, which tests compare with."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

KERNELS = ("rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52")
DRAWS = ("iid", "orthogonal", "halton", "sobol", "fastfood")


def exact_kernel(name: str, X: np.ndarray, Y: np.ndarray, gamma: float) -> np.ndarray:
    """Return the kernel matrix in float64 from scikit-learn, or from its definition."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if name == "rbf":
        return rbf_kernel(X, Y, gamma)
    if name == "laplacian":
        return laplacian_kernel(X, Y, gamma)
    if name == "cauchy":
        return np.prod(1 / (1 + gamma**2 * (X[:, None] - Y[None]) ** 2), axis=2)
    return Matern(length_scale=1 / gamma, nu=int(name[-2]) / 2)(X, Y)


def random_csr(
    rng: np.random.Generator, shape: tuple[int, int], dtype: str = "float64", density: float = 0.3
) -> sp.csr_array:
    """Return a sparse array with an empty row and an empty column."""
    dense = rng.normal(size=shape) * (rng.random(shape) < density)
    dense[shape[0] // 2] = 0
    dense[:, shape[1] // 2] = 0
    return sp.csr_array(dense.astype(dtype))


def feature_products(seed: int, n_atoms: int, n_pairs: int) -> np.ndarray:
    """Return R, the products of random cosine features over random pairs of rows."""
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(2, n_pairs, 4))
    W, b = rng.normal(size=(4, n_atoms)), rng.uniform(0, 2 * np.pi, n_atoms)
    return 2 / n_atoms * (np.cos(X @ W + b) * np.cos(Y @ W + b)).T


def gram_form(R: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return G, c and the squared norm of the target."""
    return R @ R.T, R @ t, float(t @ t)


def oracle_problem(answers: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return R and its sum for the stored problem of an independent solver."""
    X, W, b = answers["X"], answers["W"], answers["b"]
    Z = np.sqrt(2 / len(b)) * np.cos(X @ W + b)
    R = (Z[answers["i"]] * Z[answers["j"]]).T
    return R, R.sum(axis=0)
