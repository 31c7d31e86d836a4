from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from dask._task_spec import Alias, convert_legacy_graph
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import sample
from rfcdask.data.sample import (
    gather,
    gather_finite,
    one_column_block,
    pick,
    require_known_rows,
    take_rows,
)
from rfcdask.kernels.arrays import NotFiniteError, to_dense
from rfcdask.kernels.seeds import draw_rows
from tests.reference import random_csr


@st.composite
def chunkings(draw: Callable[[Any], Any], n: int) -> tuple[int, ...]:
    """Any way to cut n rows into blocks, empty ones included."""
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=8)))
    return tuple(np.diff([0, *cuts, n]).tolist())


def as_sparse_blocks(X: da.Array, make: type) -> da.Array:
    return X.map_blocks(make, dtype=X.dtype, meta=make(np.empty((0, 0), X.dtype)))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    n=st.integers(1, 40),
    kind=st.sampled_from(["dense", "columns", "labels", "csr_array", "csr_matrix"]),
)
def test_gathered_rows_are_those_of_the_whole(data: st.DataObject, n: int, kind: str) -> None:
    chunks = data.draw(chunkings(n))
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=60)), np.int64)
    whole = random_csr(np.random.default_rng(n), (n, 5), "float32").toarray()
    if kind == "labels":
        whole = whole[:, 0]
        X = da.from_array(whole, chunks=(chunks,))
    elif kind == "columns":
        X = da.from_array(whole, chunks=(chunks, (2, 2, 1)))
    else:
        X = da.from_array(whole, chunks=(chunks, (5,)))
    if kind.startswith("csr"):
        X = as_sparse_blocks(X, getattr(sp, kind))
    with dask.config.set(scheduler="sync"):
        found = gather(X, rows)
    assert sp.issparse(found) == (kind.startswith("csr") and len(rows) > 0)
    np.testing.assert_array_equal(to_dense(found), whole[rows])
    assert found.dtype == whole.dtype


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_arrays_in_memory(make: type) -> None:
    X = random_csr(np.random.default_rng(5), (30, 4)).toarray()
    rows = np.array([3, 29, 3, 0])
    np.testing.assert_array_equal(to_dense(gather(make(X), rows)), X[rows])


@pytest.mark.parametrize("rows", [[-1], [4, 10], [0, 11]])
def test_rows_that_do_not_exist_are_named(rows: list[int]) -> None:
    X = np.zeros((10, 2))
    worst = next(row for row in rows if not 0 <= row < 10)
    for source in (X, da.from_array(X, chunks=3)):
        with pytest.raises(IndexError, match=f"Row {worst} is not in X, which has 10 rows"):
            gather(source, np.array(rows))


def raising_blocks(X: np.ndarray, chunk: int, allowed: set[int]) -> da.Array:
    """Return X in blocks of which only some may be computed."""

    def block(number: int) -> np.ndarray:
        if number not in allowed:
            raise AssertionError(f"block {number} was computed")
        return X[number * chunk : (number + 1) * chunk]

    parts = [
        da.from_delayed(dask.delayed(block)(k), (chunk, X.shape[1]), X.dtype)
        for k in range(len(X) // chunk)
    ]
    return da.concatenate(parts)


def test_only_touched_blocks_are_computed() -> None:
    X = np.arange(200.0).reshape(100, 2)
    lazy = raising_blocks(X, 5, allowed={0, 7, 19})
    rows = np.array([99, 36, 35, 0, 99, 4])
    np.testing.assert_array_equal(gather(lazy, rows), X[rows])


@pytest.mark.parametrize("touched", [1, 3, 8])
def test_one_task_for_each_touched_block(touched: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(block: np.ndarray, rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        return take_rows(block, rows)

    monkeypatch.setattr(sample, "take_rows", counted)
    X = da.from_array(np.zeros((80, 3)), chunks=(10, 3))
    rows = np.unique(np.random.default_rng(6).integers(0, 10 * touched, 300))
    picked = pick(X, rows)
    assert picked.numblocks == (touched, 1)
    assert picked.shape == (len(rows), 3)
    (optimised,) = dask.optimize(picked)
    graph = convert_legacy_graph(dict(optimised.__dask_graph__()))
    # Reading a block and taking its rows are one task; the rest only hands results on.
    assert sum(not isinstance(task, Alias) for task in graph.values()) == touched
    picked.compute(scheduler="sync")
    assert len(calls) == touched
    assert sum(calls) == len(rows)


def test_the_graph_does_not_grow_with_blocks_left_alone() -> None:
    X = da.zeros((10**9, 20), chunks=(10**5, 20))
    rows = np.sort(draw_rows(10**9, 50, np.random.default_rng(7)))
    (optimised,) = dask.optimize(pick(X, rows))
    assert len(dict(optimised.__dask_graph__())) <= 3 * 50


def test_building_the_graph_computes_nothing() -> None:
    lazy = raising_blocks(np.zeros((20, 2)), 5, allowed=set())
    picked = pick(lazy, np.array([0, 19]))
    with pytest.raises(AssertionError, match="was computed"):
        picked.compute(scheduler="sync")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_gathering_on_a_cluster(cluster_client: Client, make: type) -> None:
    whole = random_csr(np.random.default_rng(8), (103, 6)).toarray()
    X = da.from_array(whole, chunks=((50, 1, 30, 22), (6,)))
    X = X if make is np.asarray else as_sparse_blocks(X, make)
    rows = np.array([102, 0, 50, 51, 0, 99, 7])
    np.testing.assert_array_equal(to_dense(gather(X, rows, cluster_client)), whole[rows])


def test_only_touched_blocks_are_computed_on_a_cluster(cluster_client: Client) -> None:
    X = np.arange(60.0).reshape(30, 2)
    lazy = raising_blocks(X, 5, allowed={1, 4})
    np.testing.assert_array_equal(gather(lazy, np.array([24, 6]), cluster_client), X[[24, 6]])
    with pytest.raises(AssertionError, match="block 0 was computed"):
        gather(lazy, np.array([0]), cluster_client)


# --- what is refused --------------------------------------------------------------------------


def test_unknown_chunk_sizes_are_refused_with_the_remedy() -> None:
    X = da.from_array(np.arange(12.0).reshape(6, 2), chunks=2)
    unknown = X[X[:, 0] > 3]
    with pytest.raises(ValueError, match=r"X has unknown chunk sizes; call X.compute_chunk_sizes"):
        require_known_rows(unknown)
    with pytest.raises(ValueError, match=r"unknown chunk sizes"):
        pick(unknown, np.array([0]))
    with pytest.raises(ValueError, match=r"unknown chunk sizes"):
        gather(unknown, np.array([0]))
    with pytest.raises(ValueError, match=r"y has unknown chunk sizes; call y.compute"):
        require_known_rows(unknown[:, 0], "y")
    require_known_rows(X)


def test_columns_come_into_one_block_and_only_then() -> None:
    X = da.ones((6, 4), chunks=(2, 3))
    assert one_column_block(X).chunks == ((2, 2, 2), (4,))
    whole = X.rechunk((2, 4))
    assert one_column_block(whole) is whole
    assert one_column_block(X[:, 0]).ndim == 1


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_bad_values_are_named_by_their_row_in_the_whole(lazy: bool, make: type) -> None:
    X = np.ones((50, 3))
    X[33, 2] = np.nan
    X[40, 1] = np.inf
    source = da.from_array(X, chunks=(7, 3)) if lazy else make(X)
    if lazy and make is not np.asarray:
        source = as_sparse_blocks(source, make)
    with pytest.raises(NotFiniteError, match="infinity at row 40, column 1;"):
        gather_finite(source, np.array([5, 40, 33]))
    found = gather_finite(source, np.array([5, 49, 5]))
    np.testing.assert_array_equal(to_dense(found), X[[5, 49, 5]])


def test_rows_of_a_store_are_fetched_without_whole_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set's own lazy array gives single rows; values, types and order are those of X."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 255, (3000, 20)).astype(np.uint8)
    rf.ingest((values, rng.integers(0, 3, 3000)), tmp_path / "store.zarr")
    X = rf.open_dataset(tmp_path / "store.zarr").X
    rows = rng.integers(0, 3000, 40)
    expected = X.compute()[rows]

    def refuse(*_: object) -> None:
        raise AssertionError("a whole block was computed")

    monkeypatch.setattr(sample, "pick", refuse)
    found = gather(X, rows)
    assert found.dtype == X.dtype
    np.testing.assert_array_equal(found, expected)
