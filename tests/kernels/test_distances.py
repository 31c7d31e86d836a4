from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from rfcdask.kernels.exact import pairwise, rowwise
from tests.reference import random_csr

SUMS = ("squares", "absolutes", "log1p")


def by_definition(kind: str, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if kind == "squares":
        return cdist(X, Y, "sqeuclidean")
    if kind == "absolutes":
        return cdist(X, Y, "cityblock")
    return np.log1p((X[:, None] - Y[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 2e-6)])
def test_dense_pairs(kind: str, dtype: str, rtol: float) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(13, 9)).astype(dtype), rng.normal(size=(21, 9)).astype(dtype)
    found = pairwise(kind, X, Y)
    assert found.dtype == dtype
    expected = by_definition(kind, X, Y)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * expected.max())


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 2e-6)])
@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix])
def test_csr_pairs_equal_dense_pairs(kind: str, dtype: str, rtol: float, make: type) -> None:
    rng = np.random.default_rng(1)
    X, Y = make(random_csr(rng, (11, 17), dtype)), make(random_csr(rng, (6, 17), dtype))
    expected = by_definition(kind, X.toarray(), Y.toarray())
    found = pairwise(kind, X, Y)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * expected.max())
    np.testing.assert_allclose(pairwise(kind, X, Y.toarray()), expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 2e-6)])
def test_rows_side_by_side(kind: str, sparse: bool, dtype: str, rtol: float) -> None:
    rng = np.random.default_rng(2)
    X, Y = random_csr(rng, (15, 8), dtype), random_csr(rng, (15, 8), dtype)
    expected = np.diag(by_definition(kind, X.toarray(), Y.toarray()))
    before = X.copy()
    found = rowwise(kind, X, Y) if sparse else rowwise(kind, X.toarray(), Y.toarray())
    assert found.dtype == np.float64
    assert found.shape == (15,)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * expected.max())
    assert abs(X - before).nnz == 0


def test_squares_keep_their_digits_far_from_the_origin() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 6))
    far = X + 1e6
    expected = by_definition("squares", far, far)
    np.testing.assert_allclose(pairwise("squares", far, far), expected, rtol=1e-9, atol=1e-9)


def test_a_product_beyond_float64_means_infinitely_far() -> None:
    X, Y = np.zeros((1, 400)), np.full((1, 400), 1e3)
    assert np.exp(-pairwise("log1p", X, Y))[0, 0] == 0


def test_csr_with_duplicate_entries_counts_their_sum() -> None:
    X = sp.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    Y = sp.csr_array(np.zeros((1, 3)))
    assert pairwise("absolutes", X, Y)[0, 0] == 3
    assert pairwise("squares", X, Y)[0, 0] == 9


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(SUMS),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 12)),
    density=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_any_shape_and_density(
    kind: str, shape: tuple[int, int, int], density: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n, m, p = shape
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < density)
    Y = rng.normal(size=(m, p)) * (rng.random((m, p)) < density)
    expected = by_definition(kind, X, Y)
    np.testing.assert_allclose(pairwise(kind, X, Y), expected, atol=1e-12, rtol=1e-12)
    sparse = pairwise(kind, sp.csr_array(X), sp.csr_array(Y))
    np.testing.assert_allclose(sparse, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_float32_keeps_its_digits_beside_an_outlier(sparse: bool) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(50, 5)).astype(np.float32)
    X[:, 1] += 1000
    X[3, 0] = 1e6
    given = sp.csr_array(X) if sparse else X
    found = pairwise("squares", given, given)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition("squares", X, X), rtol=1e-5, atol=1e-5)


def test_duplicate_entries_of_the_caller_stay() -> None:
    parts = (np.array([1.0, 2.0, 4.0]), np.array([1, 1, 2]), np.array([0, 2, 3]))
    X = sp.csr_array(parts, shape=(2, 3))
    pairwise("squares", X, X)
    assert X.data.tolist() == [1, 2, 4]
    assert X.indptr.tolist() == [0, 2, 3]
