"""Data for the tests of linear models, tuning and comparing."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from scipy import sparse

from rfcdask.kernels.arrays import Array


def blobs(n: int, p: int, classes: int, seed: int = 0) -> tuple[Array, Array]:
    """Rows around class centres, near enough to each other that nobody separates them all."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    centres = np.random.default_rng(99).normal(size=(classes, p))
    return (centres[y] + 1.2 * rng.normal(size=(n, p))).astype(np.float32), y


def lazy(array: Array, rows: Any) -> Any:
    return da.from_array(array, chunks=(rows, *[-1] * (array.ndim - 1)))


def text_like(
    n_rows: int, n_columns: int, n_classes: int, seed: int, words: int = 80
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Rows like those of texts: counts of words, of which few are frequent, weighted, of norm 1.

    Each class prefers some of the words; one label in twenty is wrong.
    """
    from sklearn.preprocessing import normalize  # not for every process that needs blobs

    draw = np.random.default_rng(seed)
    common = 1 / np.arange(1, n_columns + 1)
    shares = common * np.exp(0.6 * draw.normal(size=(n_classes, n_columns)))
    shares = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    y = draw.integers(0, n_classes, n_rows)
    drawn = [np.searchsorted(shares[k], draw.random(words)) for k in y]
    columns = np.minimum(np.concatenate(drawn), n_columns - 1)
    places = (columns, np.repeat(np.arange(n_rows), words))
    X = sparse.csr_matrix((np.ones(columns.size), places[::-1]), shape=(n_rows, n_columns))
    X.data = np.log1p(X.data) * np.log(1 + 1 / common[X.indices])
    X = sparse.csr_matrix(normalize(X).astype(np.float32))
    wrong = draw.random(n_rows) < 0.05
    return X, np.where(wrong, draw.integers(0, n_classes, n_rows), y)
