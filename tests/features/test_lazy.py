"""Lazy transform: nothing is computed early, and what is declared is what comes out."""

from __future__ import annotations

from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import rfcdask as rf
from tests.features.test_contract import MAPS

ROWS = 211
X = np.random.default_rng(5).normal(size=(ROWS, 6)).astype(np.float32)
FITTED = {name: clone(features).fit(X) for name, features in MAPS.items()}


@pytest.mark.parametrize("name", MAPS)
def test_building_computes_nothing(name: str, refusing_scheduler: Any) -> None:
    blocks = da.from_array(X, chunks=(50, 6)).map_blocks(
        refusing_scheduler, dtype=X.dtype, meta=X[:0]
    )
    with dask.config.set(scheduler=refusing_scheduler):
        Z = FITTED[name].transform(blocks)
        assert Z.shape == (ROWS, FITTED[name]._n_features_out)
        with pytest.raises(AssertionError, match="something was computed"):
            Z.compute()


chunkings = st.lists(st.integers(1, 90), min_size=1, max_size=12).map(
    lambda sizes: tuple(np.diff(np.unique(np.minimum([0, *np.cumsum(sizes), ROWS], ROWS))))
)


@settings(deadline=None, max_examples=25)
@given(chunks=chunkings, name=st.sampled_from(sorted(MAPS)), sparse=st.booleans())
def test_declared_is_what_comes_out(chunks: tuple[int, ...], name: str, sparse: bool) -> None:
    lazy = da.from_array(X, chunks=(chunks, (6,)))
    if sparse:
        lazy = lazy.map_blocks(sp.csr_array)
    Z = FITTED[name].transform(lazy)
    with dask.config.set(scheduler="threads"):
        blocks = dask.compute(*Z.to_delayed().ravel())
    assert Z.chunks[0] == chunks
    assert [block.shape for block in blocks] == [(n, Z.shape[1]) for n in chunks]
    assert all(block.dtype == Z.dtype == np.float32 for block in blocks)
    np.testing.assert_allclose(np.vstack(blocks), FITTED[name].transform(X), atol=3e-4)


@pytest.mark.parametrize("name", MAPS)
def test_few_tasks_a_block(name: str) -> None:
    lazy = da.from_array(X, chunks=(10, 6))
    Z = FITTED[name].transform(lazy)
    before, after = (len(dict(found.__dask_graph__())) for found in dask.optimize(lazy, Z))
    assert after <= before + 2  # blocks are looked at and evaluated by the tasks that read them


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_graph_of_criteo_shape_is_small(dtype: type) -> None:
    rows, columns = 51_882_752, 250
    big = da.zeros((rows, columns), dtype=dtype, chunks=(100_000, columns))
    sample = np.random.default_rng(0).normal(size=(300, columns)).astype(dtype)
    for features in (
        rf.CompressedFeatures(500, n_candidates=600, refine=0, refit=False, random_state=0),
        rf.RandomFeatures(500, random_state=0),
        rf.JLFeatures(500, random_state=0),
    ):
        Z = features.fit(sample).transform(big)
        assert Z.shape == (rows, 500)
        assert len(cloudpickle.dumps(Z.__dask_graph__())) < 5_000_000
        assert len(cloudpickle.dumps(dict(Z.__dask_graph__()))) < 5_000_000


def test_column_chunks_are_joined() -> None:
    lazy = da.from_array(X, chunks=(40, 2))
    for name in ("random", "compressed"):
        Z = FITTED[name].transform(lazy)
        np.testing.assert_allclose(Z.compute(), FITTED[name].transform(X), atol=1e-6)
    fitted = clone(MAPS["compressed"]).fit(lazy)
    np.testing.assert_array_equal(fitted.selected_, FITTED["compressed"].selected_)


def test_bad_block_is_named_when_computed() -> None:
    broken = X.copy()
    broken[123, 4] = np.inf
    Z = FITTED["compressed"].transform(da.from_array(broken, chunks=(50, 6)))
    Z[:100].compute()
    with pytest.raises(ValueError, match=r"infinity at row 23, column 4 of block 2"):
        Z.compute()


@pytest.mark.parametrize("make", [rf.RandomFeatures, rf.JLFeatures])
def test_a_number_for_gamma_reads_no_rows(make: Any, refusing_scheduler: Any) -> None:
    blocks = da.from_array(X, chunks=(50, 6)).map_blocks(
        refusing_scheduler, dtype=X.dtype, meta=X[:0]
    )
    fitted = make(10, gamma=0.3, random_state=0).fit(blocks)
    np.testing.assert_array_equal(
        fitted.transform(X), make(10, gamma=0.3, random_state=0).fit(X).transform(X)
    )
    with pytest.raises(AssertionError, match="something was computed"):
        make(10, gamma="median", random_state=0).fit(blocks)


@pytest.mark.parametrize("name", [*MAPS, "PCA", "Standardizer"])
def test_no_data_frame_is_made_of_a_lazy_array(name: str, refusing_scheduler: Any) -> None:
    X = da.random.default_rng(0).normal(size=(300, 6), chunks=(50, 6))
    made = clone(MAPS[name]) if name in MAPS else getattr(rf, name)()
    features = made.set_output(transform="pandas")
    Z = features.fit_transform(X)
    assert isinstance(Z, da.Array)
    with dask.config.set(scheduler=refusing_scheduler):
        again = features.transform(X)
    assert isinstance(again, da.Array)
    frame = features.transform(X.compute())
    assert list(frame.columns) == features.get_feature_names_out().tolist()
    np.testing.assert_allclose(frame, again.compute(), atol=1e-5)
