"""Fetching a few rows: the right ones, one task a shard, few bytes."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from data_helpers import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import WrapperStore

import rfcdask as rf
from rfcdask.data.location import Location
from rfcdask.data.reader import open_array
from rfcdask.data.sample import choose_rows, gather, reader_of


class CountingStore(WrapperStore):
    """Counts the bytes that a store gives away."""

    def __init__(self, store, seen):
        super().__init__(store)
        self.seen = seen

    def _with_store(self, store):
        return type(self)(store, self.seen)

    async def get(self, key, prototype, byte_range=None):
        got = await super().get(key, prototype, byte_range)
        if got is not None:
            self.seen.append((key, len(got)))
        return got

    async def get_partial_values(self, prototype, key_ranges):
        got = await super().get_partial_values(prototype, key_ranges)
        self.seen.extend((key, len(b)) for (key, _), b in zip(key_ranges, got, strict=True) if b)
        return got


@pytest.fixture
def counted(monkeypatch):
    seen: list[tuple[str, int]] = []
    original = Location.store
    monkeypatch.setattr(
        Location,
        "store",
        lambda self, *, read_only=True: CountingStore(original(self, read_only=read_only), seen),
    )
    open_array.cache_clear()
    yield seen
    open_array.cache_clear()


def data_bytes(seen) -> int:
    return sum(size for key, size in seen if "/c/" in key)


def bytes_on_disk(path) -> int:
    return sum(file.stat().st_size for file in path.rglob("c/**/*") if file.is_file())


class CountTasks(dask.callbacks.Callback):
    def __init__(self):
        self.keys = []

    def _pretask(self, key, dsk, state):
        self.keys.append(key)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "a.zarr"
    X = np.random.default_rng(0).standard_normal((2000, 3))
    return rf.ingest((X, np.arange(2000) % 4), path, block_size=5000), X


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 1999), min_size=1, max_size=50))
def test_the_rows_come_in_the_order_asked_for(store, wanted):
    ds, X = store
    rows = ds.rows(wanted)
    assert same_bits(rows.X, X[wanted])
    assert np.array_equal(rows.y, np.array(wanted) % 4)
    assert rows.indices.tolist() == wanted


def test_at_most_one_task_a_shard(store):
    ds, X = store
    wanted = np.random.default_rng(1).integers(0, 2000, 1500)
    with CountTasks() as tasks, dask.config.set(scheduler="sync"):
        assert same_bits(ds.rows(wanted).X, X[wanted])
    assert len(tasks.keys) <= len(ds.X.chunks[0])
    with CountTasks() as tasks, dask.config.set(scheduler="sync"):
        ds.rows([5, 3, 4])
    assert len(tasks.keys) == 1


def test_single_rows_are_read_without_their_shards(store, counted):
    ds, X = store
    seen = counted
    assert same_bits(ds.rows([1, 1500]).X, X[[1, 1500]])
    assert data_bytes(seen) < 0.1 * bytes_on_disk(store_path(ds))


def store_path(ds):
    from pathlib import Path

    return Path(ds.reader.location.url)


def test_views_find_their_rows(store):
    ds, _ = store
    for view in (*ds.split(0.3, random_state=1), ds.standardize()):
        X, y = view.X.compute(), view.y.compute()
        wanted = np.random.default_rng(0).integers(0, len(view), 100)
        rows = view.rows(wanted)
        assert same_bits(rows.X, X[wanted])
        assert same_bits(rows.y, y[wanted])


def test_rows_through_a_cluster(store, cluster):
    ds, X = store
    assert same_bits(ds.rows([1999, 0, 7], client=cluster).X, X[[1999, 0, 7]])


def test_what_is_no_row_is_refused(store):
    ds, _ = store
    for wanted, words in (
        ([2000], "row 2000 is outside"),
        ([-1], "row -1"),
        ([0.5], "integers"),
        (np.empty(0, int), "at least one"),
        ([[1]], "one-dimensional"),
    ):
        with pytest.raises(rf.data.DataError, match=words):
            ds.rows(wanted)
    for count in (0, 2001):
        with pytest.raises(rf.data.DataError, match="cannot be sampled"):
            ds.sample(count)


def test_a_sample_is_uniform_without_repeats(store):
    from scipy.stats import chisquare

    ds, X = store
    counts = np.zeros(2000, int)
    for seed in range(200):
        rows = choose_rows(ds.reader, 100, seed, shuffled=False)
        assert len(set(rows.tolist())) == 100
        counts[rows] += 1
    assert chisquare(counts.reshape(20, 100).sum(axis=1)).pvalue > 1e-3
    sample = ds.sample(50, random_state=0)
    assert same_bits(sample.X, X[sample.indices])
    assert same_bits(sample.X, ds.sample(50, random_state=0).X)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2000), st.integers(0, 2**32))
def test_a_sample_of_a_shuffled_store_has_all_rows_asked_for(store, count, seed):
    ds, _ = store
    rows = choose_rows(ds.reader, count, seed, shuffled=True)
    assert len(set(rows.tolist())) == count
    assert rows.min() >= 0
    assert rows.max() < 2000


def test_a_sample_of_a_shuffled_store_reads_few_chunks(tmp_path, counted):
    X = np.random.default_rng(0).standard_normal((60_000, 4)).astype(np.float32)
    ds = rf.ingest(X, tmp_path / "a.zarr", shuffle=True, random_state=0, block_size=100_000)
    counted.clear()
    rows = ds.sample(500, random_state=1)
    assert data_bytes(counted) <= 0.05 * bytes_on_disk(tmp_path / "a.zarr")
    assert len(np.unique(rows.X, axis=0)) == 500
    assert same_bits(rows.X, ds.X.compute()[rows.indices])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shuffle", [True, False])
def test_5000_rows_of_higgs_shuffled_or_not(tmp_path, counted, shuffle):
    """Shuffled, a sample reads a twentieth; in any order, a shard is one task at most."""
    path = tmp_path / "higgs.zarr"
    if shuffle:
        ds = rf.synthetic("higgs", dest=path)  # independent draws are in random order
    else:
        made = rf.synthetic("higgs")
        ds = rf.ingest((made.X, made.y), path)
    assert ds.X.shape == (11_000_000, 28)
    assert ds.attrs["shuffled"] is shuffle
    counted.clear()
    with CountTasks() as sampling:
        rows = ds.sample(5000, random_state=0)
    share = data_bytes(counted) / bytes_on_disk(path)
    wanted = np.random.default_rng(0).integers(0, 11_000_000, 5000)
    with CountTasks() as tasks:
        found = ds.rows(wanted)
    shards = len(list((path / "X" / "c").iterdir()))
    print(f"\nshuffled {shuffle}: a sample reads {share:.2%} of {bytes_on_disk(path) / 1e9:.2f} GB")
    print(f"{len(sampling.keys)} tasks for it, {len(tasks.keys)} for random rows, {shards} shards")
    assert rows.X.shape == found.X.shape == (5000, 28)
    assert len(np.unique(rows.indices)) == 5000
    assert max(len(sampling.keys), len(tasks.keys)) <= shards == len(ds.X.chunks[0])
    if shuffle:
        assert share <= 0.05
    block = ds.X.blocks[3].compute()  # rows as a whole block has them, for those that lie in it
    start = sum(ds.X.chunks[0][:3])
    inside = (wanted >= start) & (wanted < start + len(block))
    assert inside.any()
    assert same_bits(found.X[inside], block[wanted[inside] - start])


def test_the_graph_of_a_lazy_array_says_its_reader(store):
    ds, _ = store
    assert reader_of(ds.X) == ds.reader
    assert reader_of(rf.open_dataset(store_path(ds)).X) == ds.reader
    assert reader_of(pickle.loads(pickle.dumps(ds.X))) == ds.reader
    for other in (ds.X + 1, ds.X[1:], ds.X.rechunk({0: 7}), ds.y, np.eye(3)):
        assert reader_of(other) is None
    strange = da.map_blocks(lambda reader: np.eye(3), reader=ds.reader, chunks=((3,), (3,)))
    assert reader_of(strange) is None


def renamed(X):
    name = f"renamed-{X.name}"
    layer = {(name, *key[1:]): key for key in flatten(X.__dask_keys__())}
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[X])
    return da.Array(graph, name, X.chunks, dtype=X.dtype)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.rechunk({0: 17}),
        lambda X: X.rechunk({1: 1}),
        lambda X: X[:],
        lambda X: X[0:],
        lambda X: da.concatenate([X[:5], X[5:]]),
        lambda X: X.persist(scheduler="sync"),
        renamed,
    ],
)
def test_changed_arrays_give_the_same_rows(store, change, caplog):
    ds, X = store
    wanted = np.random.default_rng(0).integers(0, len(X), 60)
    changed = change(ds.X)
    with caplog.at_level("INFO", logger="rfcdask"):
        found = gather(changed, wanted)
    assert same_bits(found, gather(ds.X, wanted))
    assert same_bits(found, X[wanted])
    if changed is not ds.X:
        assert "taken through the graph" in caplog.text
