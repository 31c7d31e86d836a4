from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from rfcdask.kernels import Kernel, get_kernel, resolve_gamma
from tests.reference import KERNELS, exact_kernel, random_csr


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("gamma", [0.05, 0.7])
@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-7), ("float32", 1e-3)])
def test_exact_values(name: str, gamma: float, dtype: str, atol: float) -> None:
    # The loose bound is for rows that meet themselves: the root of a rounding error in ||D||^2.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5)).astype(dtype)
    Y = np.concatenate([X[:4], rng.normal(size=(12, 5)).astype(dtype)])
    found = get_kernel(name).exact(X, Y, gamma)
    assert found.dtype == dtype
    expected = exact_kernel(name, X, Y, gamma)
    np.testing.assert_allclose(found, expected, atol=atol)
    apart = expected < 0.999
    np.testing.assert_allclose(found[apart], expected[apart], atol=atol * 1e-2)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_pairs_of_rows(name: str, sparse: bool) -> None:
    rng = np.random.default_rng(1)
    X, Y = random_csr(rng, (20, 7)), random_csr(rng, (20, 7))
    expected = np.diag(exact_kernel(name, X.toarray(), Y.toarray(), 0.4))
    sides = (X, Y) if sparse else (X.toarray(), Y.toarray())
    np.testing.assert_allclose(get_kernel(name).exact_pairs(*sides, 0.4), expected, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_whole_matrix_in_tiles_and_csr(name: str) -> None:
    rng = np.random.default_rng(2)
    X, Y = random_csr(rng, (1100, 6)), random_csr(rng, (9, 6))
    expected = exact_kernel(name, X.toarray(), Y.toarray(), 0.3)
    kernel = get_kernel(name)
    np.testing.assert_allclose(kernel.matrix(X.toarray(), Y.toarray(), 0.3), expected, atol=1e-7)
    np.testing.assert_allclose(kernel.matrix(X, Y, 0.3), expected, atol=1e-7)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "bool", "float16"])
@pytest.mark.parametrize("sparse", [False, True])
def test_small_integers_do_not_wrap_around(name: str, dtype: str, sparse: bool) -> None:
    rng = np.random.default_rng(3)
    X = rng.integers(0, 200, (12, 4)).astype(dtype)
    Y = rng.integers(0, 200, (9, 4)).astype(dtype)
    expected = exact_kernel(name, X, Y, 0.01)
    kernel = get_kernel(name)
    sides = (sp.csr_array(X), sp.csr_array(Y)) if sparse and dtype != "float16" else (X, Y)
    np.testing.assert_allclose(kernel.exact(*sides, 0.01), expected, atol=2e-5)
    np.testing.assert_allclose(kernel.matrix(*sides, 0.01), expected, atol=2e-5)
    pairs = kernel.exact_pairs(sides[0][:9], sides[1], 0.01)
    np.testing.assert_allclose(pairs, np.diag(expected[:9]), atol=2e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_the_arguments_stay_as_they_are(name: str) -> None:
    X = np.random.default_rng(4).normal(size=(6, 3))
    before = X.copy()
    get_kernel(name).exact(X, X, 0.5)
    get_kernel(name).exact_pairs(X, X, 0.5)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("rbf", "rbf"),
        ("gaussian", "rbf"),
        ("laplace", "laplacian"),
        ("matern", "matern32"),
        ("matern-1/2", "matern12"),
        ("matern_3/2", "matern32"),
        ("matern0.5", "matern12"),
        ("matern-1.5", "matern32"),
        ("matern 2.5", "matern52"),
        ("matern52", "matern52"),
    ],
)
def test_spellings(spelled: str, name: str) -> None:
    assert get_kernel(spelled).name == name


@pytest.mark.parametrize("name", ["matern72", "RBF", "", "matern3.5", "poly"])
def test_unknown_kernels_are_refused_with_the_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"Unknown kernel .*rbf, laplacian, cauchy, matern12"):
        get_kernel(name)


def test_a_custom_kernel_may_lack_a_closed_form() -> None:
    own = Kernel("own", radius=lambda u, gamma: gamma * np.sqrt(u))
    assert get_kernel(own) is own
    assert not own.has_closed_form
    with pytest.raises(ValueError, match=r"'own' has no closed form; use target='candidates'"):
        own.exact(np.zeros((2, 2)), np.zeros((2, 2)), 1.0)
    with pytest.raises(ValueError, match=r"either radius= or warp="):
        Kernel("neither")


@pytest.mark.parametrize("sparse", [False, True])
def test_gamma_scale_is_that_of_scikit_learn(sparse: bool) -> None:
    X = random_csr(np.random.default_rng(5), (200, 9))
    svc = SVC(gamma="scale").fit(X.toarray(), np.arange(200) % 2)
    found = resolve_gamma("scale", get_kernel("rbf"), X if sparse else X.toarray())
    assert found == pytest.approx(svc._gamma, rel=1e-10)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("rule", ["scale", "median"])
def test_gamma_follows_the_unit_of_the_data(name: str, rule: str) -> None:
    # Data in other units must give the same kernel values.
    X = np.random.default_rng(6).normal(size=(150, 4))
    kernel = get_kernel(name)
    K = kernel.exact(X, X, resolve_gamma(rule, kernel, X))
    scaled = kernel.exact(1000 * X, 1000 * X, resolve_gamma(rule, kernel, 1000 * X))
    np.testing.assert_allclose(scaled, K, atol=1e-6)
    assert 0.02 < np.median(K) < 0.8


def test_gamma_median_of_rbf_is_half_over_the_squared_median() -> None:
    X = np.random.default_rng(7).normal(size=(300, 5))
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(300, 1)]
    found = resolve_gamma("median", get_kernel("rbf"), X)
    assert found == pytest.approx(0.5 / np.median(squared), rel=1e-10)
    sparse = resolve_gamma("median", get_kernel("rbf"), sp.csr_array(X))
    assert sparse == pytest.approx(found, rel=1e-10)


@pytest.mark.parametrize("rule", ["scale", "median"])
def test_gamma_does_not_depend_on_blas_threads(rule: str) -> None:
    X = np.random.default_rng(9).normal(size=(1000, 300))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(resolve_gamma(rule, get_kernel("rbf"), X))
    assert found[0] == found[1]


def test_gamma_rules_on_small_integers() -> None:
    X = np.random.default_rng(8).integers(0, 256, (100, 6)).astype(np.uint8)
    for rule in ("scale", "median"):
        expected = resolve_gamma(rule, get_kernel("rbf"), X.astype(np.float64))
        assert resolve_gamma(rule, get_kernel("rbf"), X) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("gamma", [0, -1.0, np.nan, np.inf, 1j, None, [1.0], "wide"])
def test_impossible_gammas_are_refused(gamma: object) -> None:
    with pytest.raises(ValueError, match=r"gamma.*('scale', 'median'|'scale' or 'median')"):
        resolve_gamma(gamma, get_kernel("rbf"), np.eye(3))


@pytest.mark.parametrize("gamma", [2, 0.5, np.float32(0.5), np.int64(3)])
def test_a_number_stays(gamma: float) -> None:
    assert resolve_gamma(gamma, get_kernel("rbf"), np.eye(3)) == float(gamma)


@pytest.mark.parametrize("rule", ["scale", "median"])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_constant_data_are_refused(rule: str, make: type) -> None:
    with pytest.raises(ValueError, match=r"constant.*give gamma as a number"):
        resolve_gamma(rule, get_kernel("rbf"), make(np.full((10, 3), 2.5)))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("unit", [1e20, 1e-22])
def test_data_of_any_unit_have_the_kernel_of_their_shape(name: str, unit: float) -> None:
    X = np.random.default_rng(9).normal(size=(40, 3)).astype(np.float32)
    kernel, scaled = get_kernel(name), (X.astype(np.float64) * unit).astype(np.float32)
    gamma = resolve_gamma("scale", kernel, X)
    expected = kernel.exact(X, X, gamma)
    found = kernel.exact(scaled, scaled, resolve_gamma("scale", kernel, scaled))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_a_row_infinitely_far_is_like_no_other(name: str) -> None:
    X = np.array([[0.0, 1.0], [1e30, 0.0]], np.float32)
    np.testing.assert_array_equal(get_kernel(name).exact(X, X, 0.5), np.eye(2))


@pytest.mark.parametrize("rule", ["scale", "median"])
def test_values_beyond_squares_are_refused_with_the_remedy(rule: str) -> None:
    X = 1e200 * np.random.default_rng(0).normal(size=(50, 3))
    with pytest.raises(ValueError, match=r"too large or too small.*scale X"):
        resolve_gamma(rule, get_kernel("rbf"), X)


def test_gamma_of_duplicate_entries_is_that_of_their_sums() -> None:
    X = sp.random(200, 20, density=0.3, random_state=0, format="csr")
    halves = np.repeat(X.data, 2) * np.tile([3, -2], X.nnz)
    twice = sp.csr_matrix((halves, np.repeat(X.indices, 2), X.indptr * 2), shape=X.shape)
    kernel = get_kernel("rbf")
    found = resolve_gamma("scale", kernel, twice)
    assert found == pytest.approx(resolve_gamma("scale", kernel, X), rel=1e-12)
    assert twice.nnz == 2 * X.nnz  # as it was given


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_travel_by_name(name: str) -> None:
    kernel = get_kernel(name)
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    assert copy.deepcopy(kernel) is kernel


def test_a_kernel_of_ones_own_is_copied_as_it_is() -> None:
    own = Kernel("rbf", radius=np.multiply)  # not ours, whatever its name
    assert copy.deepcopy(own) == own
