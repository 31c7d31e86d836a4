from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.evaluation import metrics as evaluate
from rfcdask.kernels import Kernel
from rfcdask.kernels.arrays import NotFiniteError
from tests.reference import KERNELS, exact_kernel, random_csr


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "_TILE", 64)


def plain_error(kernel: str, gamma: float, X: np.ndarray, Z: np.ndarray) -> float:
    K = exact_kernel(kernel, X, X, gamma)
    return float(np.linalg.norm(Z.astype(np.float64) @ Z.T - K) / np.linalg.norm(K))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_over_all_rows(kernel: str, dtype: str) -> None:
    X = random_csr(np.random.default_rng(0), (203, 5), dtype, density=0.8).toarray()
    features = rf.RandomFeatures(150, kernel=kernel, gamma=0.3, random_state=0).fit(X)
    expected = plain_error(kernel, 0.3, X, features.transform(X))
    assert rf.kernel_error(features, X) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix, np.asfortranarray])
def test_other_forms_of_the_same_rows(make: type) -> None:
    X = random_csr(np.random.default_rng(1), (150, 6)).toarray()
    features = rf.RandomFeatures(100, gamma=0.3, random_state=0).fit(X)
    expected = rf.kernel_error(features, X, n_points=70, random_state=3)
    assert rf.kernel_error(features, make(X), n_points=70, random_state=3) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize("chunks", [(150, 6), (37, 6), (10, 2)])
@pytest.mark.parametrize("sparse", [False, True])
def test_dask_rows_give_the_same_number(chunks: tuple[int, int], sparse: bool) -> None:
    X = random_csr(np.random.default_rng(2), (150, 6)).toarray()
    features = rf.RandomFeatures(100, gamma=0.3, random_state=0).fit(X)
    lazy = da.from_array(X, chunks=chunks)
    if sparse:
        lazy = lazy.rechunk({1: -1}).map_blocks(
            sp.csr_array, dtype=X.dtype, meta=sp.csr_array(np.empty((0, 0)))
        )
    expected = rf.kernel_error(features, X, n_points=80, random_state=3)
    found = rf.kernel_error(features, lazy, n_points=80, random_state=3)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_sample_is_close_to_the_whole_and_follows_the_seed() -> None:
    X = np.random.default_rng(3).normal(size=(1500, 4))
    features = rf.RandomFeatures(50, random_state=0).fit(X)
    whole = rf.kernel_error(features, X)
    one, same, other = (
        rf.kernel_error(features, X, n_points=400, random_state=seed) for seed in (1, 1, 2)
    )
    assert one == same != other
    assert one == pytest.approx(whole, rel=0.2)


def test_small_integers() -> None:
    X = np.random.default_rng(4).integers(0, 255, (120, 8)).astype(np.uint8)
    features = rf.RandomFeatures(200, gamma=1e-5, random_state=0).fit(X)
    expected = plain_error("rbf", 1e-5, X, features.transform(X))
    assert rf.kernel_error(features, X) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n_points", [1, 0, -5, 2.5, "many", None, True])
def test_bad_numbers_of_points_are_refused(n_points: object) -> None:
    X = np.random.default_rng(5).normal(size=(30, 3))
    features = rf.RandomFeatures(10, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"n_points=.* must be a whole number of at least 2"):
        rf.kernel_error(features, X, n_points=n_points)


def test_bad_rows_are_named() -> None:
    X = np.random.default_rng(6).normal(size=(30, 3))
    features = rf.RandomFeatures(10, random_state=0).fit(X)
    X[17, 2] = np.nan
    with pytest.raises(NotFiniteError, match="NaN at row 17, column 2"):
        rf.kernel_error(features, X)


def test_a_kernel_without_closed_form_is_refused() -> None:
    X = np.random.default_rng(7).normal(size=(30, 3))
    own = Kernel("own", radius=lambda u, gamma: gamma * np.sqrt(u))
    features = rf.RandomFeatures(10, kernel=own, gamma=1.0, random_state=0).fit(X)
    with pytest.raises(ValueError, match="'own' has no closed form"):
        rf.kernel_error(features, X)


def test_whatever_transform_takes_is_taken() -> None:
    X = np.random.default_rng(0).normal(size=(80, 4))
    features = rf.RandomFeatures(30, random_state=0).fit(X)
    expected = rf.kernel_error(features, X, random_state=0)
    for form in (X.tolist(), sp.coo_matrix(X), sp.csc_array(X)):
        assert rf.kernel_error(features, form, random_state=0) == pytest.approx(expected, rel=1e-9)
    frame = pd.DataFrame(X, columns=list("abcd"))
    named = rf.RandomFeatures(30, random_state=0).fit(frame)
    assert rf.kernel_error(named, frame, random_state=0) == pytest.approx(expected, rel=1e-9)


def test_what_it_cannot_take_is_said() -> None:
    X = np.random.default_rng(0).normal(size=(80, 4))
    features = rf.RandomFeatures(30, random_state=0).fit(X)
    lazy = da.from_array(X, chunks=(20, 4))
    with pytest.raises(ValueError, match="unknown chunk sizes"):
        rf.kernel_error(features, lazy[lazy[:, 0] > 0])
    with pytest.raises(ValueError, match="3 features"):
        rf.kernel_error(features, X[:, :3])
    with pytest.raises(TypeError, match=r"needs a fitted feature map.*Pipeline has not"):
        rf.kernel_error(make_pipeline(features), X)
    with pytest.raises(TypeError, match="needs a fitted feature map"):
        rf.kernel_error(rf.RandomFeatures(3), X)
