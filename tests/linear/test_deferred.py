"""Features that are evaluated a few rows at a time, where ridge and PCA sum them up."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.features.deferred import DeferredRows, deferred
from rfcdask.kernels.arrays import NotFiniteError
from rfcdask.linear import moments

RNG = np.random.default_rng(8)
X = RNG.normal(size=(700, 5)).astype(np.float32)
Y = (np.sin(X[:, 0]) + 0.1 * RNG.normal(size=700)).astype(np.float64)
FEATURES = rf.RandomFeatures(40, gamma=0.2, random_state=0).fit(X)


def lazy(rows: Any, size: int) -> Any:
    return da.from_array(rows, chunks=(size, -1) if rows.ndim == 2 else size)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "TILE", 32)


def plain(Z: Any) -> Any:
    """Return the same features as an array that nobody knows the origin of."""
    return Z.map_blocks(np.asarray, dtype=Z.dtype)


MODELS = {
    "ridge": lambda Z: rf.Ridge(0.1).fit(Z, lazy(Y, Z.chunks[0][0])).coef_,
    "path": lambda Z: (
        rf.Ridge(alphas=[0.1, 1.0], random_state=0).fit(Z, lazy(Y, Z.chunks[0][0])).coef_
    ),
    "classifier": lambda Z: rf.RidgeClassifier(0.1).fit(Z, lazy(Y > 0, Z.chunks[0][0])).coef_,
    "pca": lambda Z: rf.PCA(3).fit(Z).explained_variance_,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_models_are_those_of_whole_blocks(name: str, sparse: bool) -> None:
    rows = lazy(X, 100)
    if sparse:
        rows = rows.map_blocks(sp.csr_matrix, dtype=X.dtype, meta=sp.csr_matrix((0, 0)))
    Z = FEATURES.transform(rows)
    assert deferred(Z) is not Z
    assert deferred(plain(Z)).name == plain(Z).name
    expected = MODELS[name](plain(Z))
    np.testing.assert_allclose(MODELS[name](Z), expected, rtol=2e-4, atol=1e-5)


def test_no_whole_block_of_features_is_made() -> None:
    long = da.random.default_rng(0).normal(size=(60_000, 4), chunks=(30_000, 4)).astype(np.float32)
    Z = rf.RandomFeatures(200, gamma=0.1, random_state=0).fit(X[:, :4]).transform(long)
    peaks = []
    for features in (Z, plain(Z)):
        with dask.config.set(scheduler="synchronous"):
            gc.collect()
            tracemalloc.start()
            rf.PCA(2).fit(features)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    block = 30_000 * 200 * 4
    assert peaks[0] < 0.3 * block
    assert peaks[1] > block


def test_on_a_cluster_too(cluster_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # workers have tiles of full size
    Z, y = FEATURES.transform(lazy(X, 100)), lazy(Y, 100)
    here = rf.Ridge(0.1).fit(Z, y)
    there = rf.Ridge(0.1).fit(Z, y, client=cluster_client)
    np.testing.assert_array_equal(here.coef_, there.coef_)


@pytest.mark.parametrize("row", [0, 31, 32, 77, 99])
def test_what_is_not_finite_is_named_by_block_and_row(row: int) -> None:
    broken = X.copy()
    broken[300 + row, 2] = np.nan
    Z = FEATURES.transform(lazy(broken, 100))
    with pytest.raises(NotFiniteError, match=f"NaN at row {row}, column 2 of block 3"):
        rf.Ridge(0.1).fit(Z, lazy(Y, 100))


@pytest.mark.parametrize("row", [5, 77])
def test_values_too_large_are_named_by_their_row_too(row: int) -> None:
    broken = X.copy()
    broken[300 + row] = 3e38
    fine = rf.RandomFeatures(40, gamma=1e4, random_state=0).fit(X)
    Z = fine.transform(lazy(broken, 100))
    with pytest.raises(ValueError, match=f"values at row {row} of block 3 too large"):
        rf.Ridge(0.1).fit(Z, lazy(Y, 100))


def test_features_changed_in_place_are_learned_from_as_they_are_now() -> None:
    Z = FEATURES.transform(lazy(X, 100))
    Z[:, :20] = 0
    assert deferred(Z) is Z
    model = rf.Ridge(0.1).fit(Z, lazy(Y, 100))
    np.testing.assert_array_equal(model.coef_[:20], 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 120), st.integers(0, 120))
def test_any_slice_is_that_of_the_whole(start: int, stop: int) -> None:
    rows = DeferredRows(X[:100], FEATURES._evaluator(np.dtype("f4")), 40, np.dtype("f4"), "")
    whole = np.asarray(rows)
    assert whole.shape == rows.shape
    np.testing.assert_allclose(rows[start:stop], whole[start:stop], atol=1e-6)


def test_further_steps_see_plain_features() -> None:
    Z = FEATURES.transform(lazy(X, 100))
    assert deferred(Z + 1).name != deferred(Z).name
    assert isinstance(Z.blocks[0].compute(), np.ndarray)
    model = rf.PCA(2).fit(2 * Z)
    np.testing.assert_allclose(
        model.explained_variance_, 4 * rf.PCA(2).fit(Z).explained_variance_, rtol=1e-4
    )
