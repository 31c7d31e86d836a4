"""The shuffle is a uniform permutation of all rows, in bounded memory."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from data_helpers import chunk_sizes, run_measured
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

import rfcdask as rf
from rfcdask.data.ingest import shuffle
from rfcdask.data.ingest.shuffle import RowPermutation, _unit_counts


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 300).flatmap(chunk_sizes), st.integers(1, 40), st.integers(0, 2**40))
def test_every_place_is_taken_once(sizes, bucket, seed):
    n = sum(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "LEAST_BUCKET", bucket)
        _unit_counts.cache_clear()
        order = RowPermutation(n, seed)
        whole = order.buckets_of(0, n)
        places = np.concatenate([order.places(b) for b in range(order.n_buckets)])
        edges = np.cumsum([0, *sizes])
        parts = [order.buckets_of(a, b) for a, b in pairwise(edges.tolist())]
    assert np.array_equal(np.bincount(whole), np.diff([*range(0, n, bucket), n]))
    assert np.array_equal(np.sort(places), np.arange(n))
    assert np.array_equal(np.concatenate(parts), whole)


def permutation(order: RowPermutation) -> tuple[int, ...]:
    """The permutation that an order stands for, in memory."""
    buckets = order.buckets_of(0, order.n_rows)
    places = np.empty(order.n_rows, int)
    for bucket in range(order.n_buckets):
        places[buckets == bucket] = order.places(bucket)
    return tuple(np.argsort(places).tolist())


def test_every_permutation_of_five_rows_is_equally_likely(monkeypatch):
    """Buckets of 2, 2 and 1 rows, 120 permutations, each drawn about 50 times."""
    monkeypatch.setattr(shuffle, "LEAST_BUCKET", 2)
    _unit_counts.cache_clear()
    counts = dict.fromkeys(permutations(range(5)), 0)
    for seed in range(6000):
        counts[permutation(RowPermutation(5, seed))] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(20, 400), st.integers(1, 100), st.integers(60, 2000), st.integers(0, 2**30))
def test_the_store_holds_that_permutation_whatever_the_blocks(tmp_path, n, bucket, block, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "LEAST_BUCKET", bucket)
        _unit_counts.cache_clear()
        expected = permutation(RowPermutation(n, seed))
        ds = rf.ingest(
            np.arange(n)[:, None],
            tmp_path / "a.zarr",
            shuffle=True,
            random_state=seed,
            block_size=block,
            overwrite=True,
        )
        assert tuple(ds.X.compute()[:, 0].tolist()) == expected


@pytest.mark.parametrize("kind", ["array", "csv", "svm"])
def test_the_rows_stay_the_same_and_keep_their_labels(tmp_path, kind):
    X = np.arange(3000.0).reshape(1000, 3)
    y = np.arange(1000) % 7
    source = (X, y)
    if kind == "csv":
        source = tmp_path / "a.csv"
        rows = "".join(f"{a},{b},{c},{t}\n" for (a, b, c), t in zip(X, y, strict=True))
        source.write_text("a,b,c,y\n" + rows)
    if kind == "svm":
        source = tmp_path / "a.svm"
        rows = (f"{t} 1:{a} 2:{b} 3:{c}\n" for (a, b, c), t in zip(X, y, strict=True))
        source.write_text("".join(rows))
    ds = rf.ingest(source, tmp_path / "a.zarr", shuffle=True, random_state=0, block_size=2000)
    got, labels = ds.X.compute(), ds.y.compute()
    order = (got[:, 0] / 3).astype(int)
    assert sorted(order) == list(range(1000))
    assert not np.array_equal(order, np.arange(1000))
    assert np.array_equal(got, X[order])
    assert np.array_equal(labels, y[order])
    assert ds.attrs["shuffled"]
    assert ds.attrs["seed"] == 0
    assert not (tmp_path / "a.zarr" / ".ingest").exists()


def test_the_seed_decides_the_order_whoever_does_the_work(tmp_path, cluster):
    X = np.arange(2000.0).reshape(1000, 2)
    kept = {"shuffle": True, "block_size": 2000}
    here = rf.ingest(X, tmp_path / "a.zarr", random_state=5, **kept).X.compute()
    there = rf.ingest(X, tmp_path / "b.zarr", random_state=5, client=cluster, **kept).X.compute()
    blocks = rf.ingest(X, tmp_path / "d.zarr", random_state=5, shuffle=True).X.compute()
    other = rf.ingest(X, tmp_path / "c.zarr", random_state=6, **kept).X.compute()
    assert np.array_equal(here, there)
    assert np.array_equal(here, blocks)
    assert not np.array_equal(here, other)


def test_where_rows_go_does_not_depend_on_where_they_came_from(tmp_path):
    n = 40_000
    X = np.arange(n, dtype=np.int64)[:, None]
    ds = rf.ingest(X, tmp_path / "a.zarr", shuffle=True, random_state=1, block_size=40_000)
    came = ds.X.compute()[:, 0]
    table = np.histogram2d(came, np.arange(n), bins=16)[0]
    assert chi2_contingency(table).pvalue > 1e-3
    # Neighbours in a block are not neighbours afterwards, nor rows of one block together.
    assert abs(np.corrcoef(came[:-1], came[1:])[0, 1]) < 4 / np.sqrt(n)


SHUFFLE = """
import json, resource, sys, numpy as np, psutil, rfcdask as rf
source, dest, warm = sys.argv[1:]
rf.ingest(np.eye(100), warm, shuffle=True, block_size=10_000)
before = psutil.Process().memory_info().rss
rf.ingest(source, dest, shuffle=True, random_state=0)
print(json.dumps({"before": before}))
"""


@pytest.mark.slow
def test_two_million_rows_in_four_blocks_of_memory(tmp_path):
    n, block, step = 2_000_000, 64 * 2**20, 100_000
    path = tmp_path / "X.npy"
    X = np.lib.format.open_memmap(path, "w+", np.float64, (n, 28))
    for start in range(0, n, step):
        X[start : start + step] = np.random.default_rng(start).standard_normal((step, 28))
        X[start : start + step, 0] = np.arange(start, start + step)
    X.flush()
    peak, said = run_measured(SHUFFLE, path, tmp_path / "a.zarr", tmp_path / "warm.zarr")
    growth = peak - said["before"]
    print(f"\npeak {growth / block:.2f} blocks above {said['before'] / 2**20:.0f} MiB")
    ds = rf.open_dataset(tmp_path / "a.zarr")
    got = ds.X.compute()
    came = got[:, 0].astype(np.int64)
    assert np.array_equal(np.sort(came), np.arange(n))
    assert np.array_equal(got, X[came])
    table = np.histogram2d(came, np.arange(n), bins=50)[0]
    p = chi2_contingency(table).pvalue
    print(f"chi-squared p = {p:.3f} over 50 x 50 places")
    assert p > 1e-3
    assert growth <= 4 * block
