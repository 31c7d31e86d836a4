"""The shuffle is a uniform permutation of all rows, in bounded memory."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from data_helpers import chunk_sizes, run_measured
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

import rfcdask as rf
from rfcdask.data.layout import Layout
from rfcdask.data.location import Location
from rfcdask.data.shuffle import ScatterBlock, gather_block, pieces_of, scatter_counts
from rfcdask.data.write import Plan


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 200).flatmap(chunk_sizes), st.integers(0, 2**40))
def test_every_place_is_taken_once(sizes, seed):
    counts = scatter_counts(sizes, seed)
    assert counts.sum(axis=1).tolist() == list(sizes)
    assert counts.sum(axis=0).tolist() == list(sizes)


def test_every_permutation_of_five_rows_is_equally_likely(tmp_path, monkeypatch):
    """Blocks of 2, 2 and 1 rows, 120 permutations, each drawn about 30 times."""
    runs: dict[str, bytes] = {}
    monkeypatch.setattr(
        Location, "write", lambda self, name, data: runs.update({name: bytes(data)})
    )
    monkeypatch.setattr(Location, "read", lambda self, name, a, b: runs[name][a:b])
    found: dict[int, list[int]] = {}
    monkeypatch.setattr(
        "rfcdask.data.shuffle.WriteBlock.__call__",
        lambda self, block, X, y: found.update({block: X[:, 0].tolist()}),
    )
    layout = Layout(n_rows=5, n_columns=1, dtype="<i8", block_rows=2, chunk_rows=1)
    plan = Plan(Location.of(tmp_path), layout, None, 1, "test")
    counts = dict.fromkeys(permutations(range(5)), 0)
    for seed in range(3600):
        drawn = scatter_counts((2, 2, 1), seed)
        for block in range(3):
            ScatterBlock(plan, seed)(block, np.arange(5)[2 * block : 2 * block + 2, None], None)
        for block in range(3):
            gather_block(plan, seed, block, pieces_of(drawn, block))
        counts[tuple(found[0] + found[1] + found[2])] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


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
    other = rf.ingest(X, tmp_path / "c.zarr", random_state=6, **kept).X.compute()
    assert np.array_equal(here, there)
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
