"""Lazy features know their rows, so that ridge and PCA evaluate a few of them at a time."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.features.evaluators import FeatureRows
from rfcdask.features.lazy import FeatureArray, small_chunks
from rfcdask.kernels.arrays import NotFiniteError
from rfcdask.kernels.hot_loop import CosineBlock
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
    assert isinstance(Z, FeatureArray)
    assert not isinstance(plain(Z), FeatureArray)
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


def test_features_changed_in_place_are_seen_as_changed() -> None:
    Z = FEATURES.transform(lazy(X, 100))
    Z[:, :20] = 0
    assert Z.unevaluated() is Z
    model = rf.Ridge(0.1).fit(Z, lazy(Y, 100))
    np.testing.assert_array_equal(model.coef_[:20], 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 120), st.integers(0, 120))
def test_any_slice_is_that_of_the_whole(start: int, stop: int) -> None:
    rows = FeatureRows(X[:100], FEATURES._evaluator(np.dtype("f4")), 40, np.dtype("f4"), "")
    whole = np.asarray(rows)
    assert whole.shape == rows.shape
    np.testing.assert_allclose(rows[start:stop], whole[start:stop], atol=1e-6)


def test_further_steps_see_plain_features() -> None:
    Z = FEATURES.transform(lazy(X, 100))
    assert isinstance(Z.blocks[0].compute(), np.ndarray)
    model = rf.PCA(2).fit(2 * Z)
    np.testing.assert_allclose(
        model.explained_variance_, 4 * rf.PCA(2).fit(Z).explained_variance_, rtol=1e-4
    )


ROWS_ONLY = {
    "new chunks": lambda Z: Z.rechunk({0: 170}),
    "new chunks by size": lambda Z: Z.rechunk((33, 40)),
    "same chunks": lambda Z: Z.rechunk({0: 100}),
    "joined": lambda Z: Z.rechunk(-1),
    "slice": lambda Z: Z[130:555],
    "slice of all columns": lambda Z: Z[:250, :],
    "steps": lambda Z: Z[::3],
    "backwards": lambda Z: Z[::-1],
    "no row": lambda Z: Z[5:5],
    "chunks of a slice": lambda Z: Z[50:].rechunk({0: 60})[10:],
}
OTHERS = {
    "persist": lambda Z: Z.persist(),
    "column chunks": lambda Z: Z.rechunk((100, 8)),
    "columns": lambda Z: Z[:, 3:9],
    "one column": lambda Z: Z[:, 3],
    "one row": lambda Z: Z[7],
    "chosen rows": lambda Z: Z[[5, 3, 600]],
    "mask": lambda Z: Z[da.from_array(Y > 0, chunks=100)],
    "new axis": lambda Z: Z[:, None],
    "blocks": lambda Z: Z.blocks[1:3],
    "copy": lambda Z: Z.copy(),
    "pickle": lambda Z: pickle.loads(cloudpickle.dumps(Z)),
    "sum": lambda Z: Z + da.ones(40, chunks=40),
    "sum from the left": lambda Z: da.ones((700, 40), chunks=(100, 40)) + Z,
    "product": lambda Z: np.ones((2, 700)) @ Z,
    "ufunc": lambda Z: np.exp(Z),
    "function": lambda Z: np.concatenate([Z, Z]),
    "transposed": lambda Z: Z.T,
    "another type": lambda Z: Z.astype(np.float64),
}


@pytest.mark.parametrize("name", [*ROWS_ONLY, *OTHERS])
def test_values_after_every_operation(name: str, refusing_scheduler: Any) -> None:
    step = (ROWS_ONLY | OTHERS)[name]
    with dask.config.set(scheduler=None if name == "persist" else refusing_scheduler):
        Z = step(FEATURES.transform(lazy(X, 100)))
    assert isinstance(Z, FeatureArray) == (name in ROWS_ONLY)
    expected = step(da.from_array(FEATURES.transform(X), chunks=(100, 40)))
    np.testing.assert_allclose(Z.compute(), expected.compute(), atol=1e-5)
    if not np.isnan(Z.shape).any():
        assert (Z.shape, Z.chunks, Z.dtype) == (expected.shape, expected.chunks, expected.dtype)


@pytest.mark.parametrize("name", [name for name in ROWS_ONLY if name != "no row"])
def test_other_chunks_and_fewer_rows_make_no_whole_block(name: str) -> None:
    Z = ROWS_ONLY[name](FEATURES.transform(lazy(X, 100)))
    assert all(isinstance(block, FeatureRows) for block in blocks_of(Z.unevaluated()))
    np.testing.assert_allclose(MODELS["pca"](Z), MODELS["pca"](plain(Z)), rtol=1e-4)


def blocks_of(array: Any) -> Any:
    return dask.compute(*array.to_delayed().ravel(), scheduler="synchronous")


def test_features_in_memory_are_not_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = FEATURES.transform(lazy(X, 100)).persist()
    monkeypatch.delattr(CosineBlock, "__call__")
    assert rf.PCA(3).fit(kept).n_components_ == 3
    assert rf.SGDRegressor(epochs=1).fit(kept, lazy(Y, 100)).n_iter_ == 1


LONG = da.random.default_rng(0).normal(size=(200_000, 4), chunks=(100_000, 4)).astype(np.float32)
WIDE = rf.RandomFeatures(200, gamma=0.1, random_state=0).fit(X[:, :4])
STEPS = {
    "train": lambda Z: rf.SGDClassifier(epochs=1, random_state=0, persist=False).fit(Z, side(Z)),
    "held out": lambda Z: rf.SGDClassifier(epochs=1, early_stopping=True, persist=False).fit(
        Z, side(Z)
    ),
    "penalties": lambda Z: rf.RidgeClassifier(alphas=[0.1, 1.0]).fit(Z, side(Z)),
    "score": lambda Z: fitted().score(Z, side(Z)),
    "predict": lambda Z: fitted().predict(Z).compute(),
    "scores": lambda Z: fitted().decision_function(Z).compute(),
}


def side(Z: Any) -> Any:
    return (LONG[: len(Z), 0] > 0).astype(np.int8)


def fitted() -> Any:
    model = rf.SGDClassifier()
    model.coef_, model.intercept_ = np.ones((1, 200)), np.zeros(1)
    model.classes_, model.n_features_in_ = np.arange(2), 200
    return model


@pytest.mark.parametrize("name", STEPS)
def test_peak_is_far_below_a_block_of_features(name: str) -> None:
    STEPS[name](WIDE.transform(LONG[:2000]))  # compiles
    with dask.config.set(scheduler="synchronous"):
        gc.collect()
        tracemalloc.start()
        STEPS[name](WIDE.transform(LONG))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 0.6 * 100_000 * 200 * 4


class Reads:
    """Counts how often each block of rows is read."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, block: Any) -> Any:
        self.calls += 1
        return block


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    st.integers(1, 5000),
    st.integers(1, 10**6),
)
def test_small_chunks_are_parts_of_the_given(sizes: list[int], width: int, most: int) -> None:
    with dask.config.set({"rfcdask.feature-block-bytes": most}):
        found = small_chunks(tuple(sizes), width)
    assert set(np.cumsum(sizes).tolist()) <= set(np.cumsum(found).tolist())
    assert sum(found) == sum(sizes)
    assert max(found) * width <= max(most, width)


@pytest.mark.parametrize("chunks", ["rows", "features"])
def test_cut_features_are_learned_from_as_whole_ones(chunks: str, tmp_path: Any) -> None:
    reads = Reads()
    rows = lazy(X, 350).map_blocks(reads, meta=np.empty((0, 0), X.dtype))
    whole = FEATURES.transform(rows)
    model = rf.SGDRegressor(epochs=2, random_state=0, persist=False).fit(whole, lazy(Y, 350))
    with dask.config.set({"rfcdask.feature-block-bytes": 40 * 4 * 50}):
        Z = FEATURES.transform(rows)
    assert Z.chunks == ((50,) * 14, (40,))
    y = lazy(Y, 350 if chunks == "rows" else 50)
    found = rf.SGDRegressor(epochs=2, random_state=0, persist=False).fit(Z, y)
    np.testing.assert_array_equal(found.coef_, model.coef_)
    assert found.score(Z, y) == model.score(whole, lazy(Y, 350))
    reads.calls = 0
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_array_equal(found.predict(Z), model.predict(whole))
        assert reads.calls == 4
        written = rf.linear.write_zarr(Z, tmp_path / "features.zarr")
        assert reads.calls == 6
        np.testing.assert_array_equal(written, Z)
        assert reads.calls == 8
