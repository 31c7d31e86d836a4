"""Synthetic data: the same whatever the blocks, and learnable by kernel machines only."""

from __future__ import annotations

import dask
import numpy as np
import pytest
from data_helpers import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC, LinearSVC

import rfcdask as rf
from rfcdask.data.generators import UNIT


def dense(X):
    return X.toarray() if hasattr(X, "toarray") else X


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(["higgs", "criteo"]), st.integers(1, 3 * UNIT), st.integers(1, 4 * 2**20))
def test_rows_do_not_depend_on_blocks_or_on_how_many_there_are(kind, rows, size):
    one = rf.synthetic(kind, rows=rows, random_state=3, block_size=size)
    more = rf.synthetic(kind, rows=rows + 1000, random_state=3)
    assert one.X.shape[0] == rows == len(one.y)
    X, Y = one.X.compute(), more.X[:rows].compute()
    assert (X != Y).sum() == 0
    assert same_bits(one.y.compute(), more.y[:rows].compute())


def test_the_full_shapes_are_lazy(refusing_scheduler):
    with dask.config.set(scheduler=refusing_scheduler):
        higgs, criteo = rf.synthetic("higgs"), rf.synthetic("criteo")
        assert higgs.X.shape == (11_000_000, 28)
        assert criteo.X.shape == (51_882_752, 1_000_000)
        assert repr(criteo)
        assert sum(criteo.X.chunks[0]) == 51_882_752


def test_single_rows_and_a_cluster_give_the_same(cluster):
    ds = rf.synthetic("higgs", rows=40_000, random_state=1, block_size=2**21)
    X = ds.X.compute()
    wanted = [39_999, 0, 8192, 20_000]
    assert same_bits(ds.rows(wanted).X, X[wanted])
    assert same_bits(cluster.compute(ds.X, sync=True), X)
    assert ds.sample(100, random_state=0).X.shape == (100, 28)


def test_criteo_has_39_skewed_non_zeros_a_row():
    X = rf.synthetic("criteo", rows=20_000).X.compute()
    assert np.all(np.diff(X.indptr) == 39)
    np.testing.assert_allclose(np.asarray(X.multiply(X).sum(axis=1)), 1, rtol=1e-5)
    assert X.has_sorted_indices
    counts = np.sort(np.bincount(X.indices, minlength=10**6))[::-1]
    assert counts[:100].sum() > 0.3 * X.nnz
    assert (counts == 1).sum() > 10_000


@pytest.mark.parametrize("kind", ["higgs", "criteo"])
def test_a_kernel_machine_learns_what_a_linear_one_cannot(kind):
    ds = rf.synthetic(kind, rows=6000, random_state=0)
    X, y = ds.X.compute(), ds.y.compute()
    gamma = 1 / 28 if kind == "higgs" else 1.0
    train, test = slice(0, 3000), slice(3000, 6000)
    linear = LinearSVC().fit(X[train], y[train]).score(X[test], y[test])
    kernel = SVC(gamma=gamma).fit(X[train], y[train]).score(X[test], y[test])
    assert 0.4 < y.mean() < 0.6
    assert linear < 0.55
    assert kernel > 0.8


def test_as_a_store(tmp_path):
    ds = rf.synthetic(
        "higgs", rows=30_000, random_state=2, dest=tmp_path / "a.zarr", block_size=2**20
    )
    assert same_bits(ds.X.compute(), rf.synthetic("higgs", rows=30_000, random_state=2).X.compute())
    assert ds.attrs["shuffled"]  # independent rows: any of them are a uniform sample
    assert ds.classes.tolist() == [0, 1]


def test_what_cannot_be_made_is_refused(tmp_path):
    for arguments, options, words in (
        (("iris",), {}, "one of higgs, criteo"),
        (("higgs",), {"rows": 0}, "at least one row"),
        (("higgs",), {"rows": 1e6}, r"rows=1000000\.0 is no whole number"),
        (("higgs",), {"project": 5}, "project need a store"),
        (("criteo",), {"rows": 10, "dest": tmp_path / "a.zarr"}, "pass project=250"),
    ):
        with pytest.raises(rf.data.DataError, match=words):
            rf.synthetic(*arguments, **options)


def test_sizes_of_blocks_may_be_written_in_words() -> None:
    words = rf.synthetic("higgs", rows=40_000, block_size="2 MiB")
    assert words.X.chunks == rf.synthetic("higgs", rows=40_000, block_size=2**21).X.chunks
    with pytest.raises(ValueError, match="block_size=0 is no size: give bytes, such as '64MB'"):
        rf.synthetic("higgs", rows=100, block_size=0)
