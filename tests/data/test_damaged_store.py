"""A damaged or lost part of a store is seen and named."""

from __future__ import annotations

import json
import os
import re
import shutil
import tracemalloc
import warnings

import dask.array as da
import numpy as np
import pytest
import zarr
from data_helpers import as_format_1, edit_json, flip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import rfcdask as rf
from rfcdask.data import DamagedStoreError, DataError
from rfcdask.data.errors import UnreachableError
from rfcdask.data.location import Location
from rfcdask.data.manifest import Manifest, Seal, Shards
from rfcdask.data.reader import open_checked
from rfcdask.kernels import runtime
from rfcdask.linear import write_zarr


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damaged_byte_is_seen(tmp_path, stored, data):
    shards = sorted((tmp_path / "a.zarr").glob("[Xy]/c/**/*"))
    shards = [shard for shard in shards if shard.is_file()]
    shard = data.draw(st.sampled_from(shards))
    whole = shard.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    shard.write_bytes(whole[:place] + flipped + whole[place + 1 :])
    try:
        array = stored.X if shard.relative_to(tmp_path / "a.zarr").parts[0] == "X" else stored.y
        with pytest.raises(DamagedStoreError, match=r"chunk|shard"):
            array.compute(scheduler="sync")
    finally:
        shard.write_bytes(whole)
    stored.X.compute()


@pytest.mark.parametrize("compressor", ["gzip", "lz4", None])
def test_a_damaged_chunk_of_any_codec_is_named(tmp_path, compressor):
    """Of damaged gzip Python raises an OSError, which is none of the disk."""
    rows = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
    stored = rf.ingest(rows, tmp_path / "b.zarr", compressor=compressor)
    for name, call in {"X/c/0/0": stored.X.compute, "y/c/0": stored.y.compute}.items():
        for place in range(12, 60, 4):
            flip(tmp_path / "b.zarr" / name, place)
            with pytest.raises(DamagedStoreError, match="is damaged"):
                call()
            flip(tmp_path / "b.zarr" / name, place)
        call()


def test_a_damaged_chunk_is_named(tmp_path, stored):
    shard = tmp_path / "a.zarr/X/c/2/0"
    layout = stored.reader
    whole = bytearray(shard.read_bytes())
    whole[len(whole) // 2] ^= 1
    shard.write_bytes(whole)
    with pytest.raises(DamagedStoreError) as caught:
        stored.X.compute()
    first = 2 * layout.block_rows
    found = re.search(
        r"chunk (\d+) of array X \(rows (\d+) to (\d+), in shard 2\)", str(caught.value)
    )
    chunk, start, stop = map(int, found.groups())
    assert start == chunk * layout.run_rows
    assert first <= start <= stop < first + layout.block_rows
    with pytest.raises(DamagedStoreError, match=f"chunk {chunk} of array X"):
        stored.rows([start])
    # Rows of other chunks can still be fetched.
    other = first if start != first else first + layout.block_rows - 1
    assert stored.rows([other]).X.shape == (1, 4)


def test_a_lost_shard_is_not_taken_for_zeros(tmp_path, stored):
    (tmp_path / "a.zarr/X/c/1/0").unlink()
    with pytest.raises(DamagedStoreError, match=r"shard 1 of array X \(rows .*\) is missing"):
        stored.X.compute()
    shard = tmp_path / "a.zarr/y/c/0"
    shard.write_bytes(shard.read_bytes()[:-7])
    with pytest.raises(DamagedStoreError, match="array y"):
        stored.y.compute()


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """A store with everything that a store can have: shards, text labels, scale, projection."""
    X = np.random.default_rng(0).integers(0, 255, (200, 30)).astype("f4")
    y = np.where(X[:, 0] > 128, "up", "down")
    dest = tmp_path_factory.mktemp("rich") / "a.zarr"
    rf.ingest((X, y), dest, block_size=700, scale=0.5, project=3, random_state=0)
    return dest


def read_all(dest):
    """Everything that comes out of a store."""
    ds = rf.open_dataset(dest)
    X, y = ds.X.compute(scheduler="sync"), ds.y.compute(scheduler="sync")
    single = ds.reader.rows(2, np.array([5, 1]))
    return [X, y, *single, ds.classes, ds.mean, ds.variance, ds.projection.matrix.toarray()]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_changed_byte_changes_a_row(rich, data):
    files = [path for path in sorted(rich.rglob("*")) if path.is_file()]
    # Each kind of file is as likely as the many shards.
    kinds = sorted({re.sub(r"/c/.*", "/c", str(path.relative_to(rich))) for path in files})
    kind = data.draw(st.sampled_from(kinds))
    path = data.draw(
        st.sampled_from([p for p in files if str(p.relative_to(rich)).startswith(kind)])
    )
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:place])
    else:
        changed = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
        path.write_bytes(whole[:place] + changed + whole[place + 1 :])
    try:
        got = read_all(rich)
    except DamagedStoreError:
        got = None
    finally:
        path.write_bytes(whole)
    if got is not None:
        # Only white space of the manifest, and what zarr alone reads of it, are free.
        assert kind == "manifest/zarr.json"
        assert all(np.array_equal(a, b) for a, b in zip(got, read_all(rich), strict=True))


def attributes(**values):
    return lambda store: edit_json(store / "zarr.json", lambda d: d["attributes"].update(values))


def metadata(name, **values):
    return lambda store: edit_json(store / name / "zarr.json", lambda d: d.update(values))


def swap(name, a, b):
    def change(store):
        first, second = (store / name / "c" / str(i) / "0" for i in (a, b))
        assert first.stat().st_size == second.stat().st_size
        one, two = first.read_bytes(), second.read_bytes()
        assert one[-50:-4] == two[-50:-4]  # the same index, to its checksum
        first.write_bytes(two)
        second.write_bytes(one)

    return change


def shard(change):
    return lambda store: change(store / "X/c/1/0")


CHANGES = {
    "rows": metadata("X", shape=[150, 4]),
    "dtype": metadata("X", data_type="int32"),
    "swapped": swap("X", 1, 3),
    "emptied": shard(lambda path: path.write_bytes(b"")),
    "truncated": shard(lambda path: path.write_bytes(path.read_bytes()[:-9])),
    "lengthened": shard(lambda path: path.write_bytes(path.read_bytes()[:5] + path.read_bytes())),
    "deleted": shard(os.unlink),
    "looped": shard(lambda path: (path.unlink(), path.symlink_to(path.name))),
    "renamed": attributes(classes=["north", "south"]),
    "reordered": attributes(classes=["up", "down"]),
    "string": attributes(classes="ud"),
    "scale": attributes(scale=0.25),
    "mean": attributes(mean=[0.0] * 4),
    "few": attributes(n_rows=10),
    "format": attributes(format=1),
    "newer": attributes(format=4),
    "no-y": lambda store: shutil.rmtree(store / "y"),
    "no-manifest": lambda store: shutil.rmtree(store / "manifest"),
    "codec": metadata("y", codecs=[{"name": "bytes"}]),
    "json": lambda store: (store / "X/zarr.json").write_text("{"),
    "null": lambda store: (store / "zarr.json").write_text("null"),
    "deep": lambda store: (store / "manifest/zarr.json").write_text("[" * 100_000),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A store without compression: all shards have the same size and the same index."""
    X = np.random.default_rng(0).standard_normal((200, 4)).astype("f4")
    dest = tmp_path_factory.mktemp("plain") / "a.zarr"
    y = np.where(X[:, 0] > 0, "up", "down")
    rf.ingest((X, y), dest, block_size=800, compressor=None, scale=0.5)
    return dest


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_refused(tmp_path, plain, change):
    store = tmp_path / "a.zarr"
    shutil.copytree(plain, store)
    CHANGES[change](store)
    with pytest.raises(DamagedStoreError, match=r"restore it from a copy|open it again") as caught:
        rf.open_dataset(store).X.compute()
    assert str(store) in str(caught.value)
    with pytest.raises(DamagedStoreError):
        rf.open_dataset(store).rows([30, 70])


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
def test_a_changed_projection_is_refused(tmp_path, rich, name):
    store = tmp_path / "a.zarr"
    shutil.copytree(rich, store)
    array = zarr.open_array(store / "projection" / name, mode="r+")
    array[:1] = array[:1] + 1
    with pytest.raises(DamagedStoreError):
        rf.open_dataset(store)


def test_a_stray_file_is_harmless(tmp_path, plain):
    store = tmp_path / "a.zarr"
    shutil.copytree(plain, store)
    (store / "X/c/1/notes.txt").write_text("mine")
    (store / "X/c/99").mkdir()
    (store / "X/c/99/0").write_text("not a shard")
    (store / "projection").mkdir()
    (store / "projection/zarr.json").write_text("{}")
    rf.open_dataset(store).verify()
    for a, b in zip(read_some(store), read_some(plain), strict=True):
        assert np.array_equal(a, b)


def read_some(store):
    ds = rf.open_dataset(store)
    assert ds.projection is None
    return ds.X.compute(), ds.y.compute()


def test_a_store_that_was_replaced_is_opened_again(tmp_path, plain):
    from rfcdask.data import manifest, reader

    store = tmp_path / "a.zarr"
    shutil.copytree(plain, store)
    before = rf.open_dataset(store)
    rf.ingest(np.eye(4), store, overwrite=True)
    reader.open_array.cache_clear()
    manifest.known_manifest.cache_clear()
    with pytest.raises(DamagedStoreError, match=r"open it again with rfcdask\.open_dataset"):
        before.X.compute()
    assert np.array_equal(rf.open_dataset(store).X.compute(), np.eye(4))


def test_verify_names_every_bad_file(tmp_path, plain):
    store = tmp_path / "a.zarr"
    shutil.copytree(plain, store)
    assert rf.open_dataset(store).verify() is None
    ds = rf.open_dataset(store)
    flip(store / "X/c/1/0")
    flip(store / "y/c/2")
    os.unlink(store / "X/c/0/0")
    for part in (ds, ds.split(0.5, random_state=0)[0], ds.standardize()):
        with pytest.raises(DamagedStoreError, match="3 of its") as caught:
            part.verify()
    for name in ("X/c/0/0 is missing", "X/c/1/0: the checksum of its chunk", "y/c/2: "):
        assert name in str(caught.value)
    with pytest.raises(DataError, match="not read from a store"):
        rf.synthetic("higgs", 100).verify()


def test_a_store_without_manifest_opens_with_a_note(tmp_path, plain):
    store = tmp_path / "old.zarr"
    shutil.copytree(plain, store)
    as_format_1(store)
    with pytest.warns(UserWarning, match=r"without a manifest.*'rfcdask ingest OLD NEW'"):
        old = rf.open_dataset(store)
    with pytest.raises(DataError, match=r"no manifest to compare .*'rfcdask ingest OLD NEW'"):
        old.verify()
    with pytest.warns(UserWarning, match="without a manifest"):
        new = rf.ingest(store, tmp_path / "new.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new.verify()
    whole = rf.open_dataset(plain)
    for ds in (old, new):
        assert np.array_equal(ds.X.compute(), whole.X.compute())
        assert np.array_equal(ds.y.compute(), whole.y.compute())


OLD = (
    "emptied",
    "truncated",
    "deleted",
    "looped",
    "rows",
    "string",
    "few",
    "no-y",
    "codec",
    "json",
)


@pytest.mark.parametrize("change", OLD)
@pytest.mark.filterwarnings("ignore:.*without a manifest")
def test_damage_without_a_manifest(tmp_path, plain, change):
    store = tmp_path / "old.zarr"
    shutil.copytree(plain, store)
    as_format_1(store)
    CHANGES[change](store)
    with pytest.raises(DamagedStoreError):
        rf.open_dataset(store).rows(range(200))


@pytest.mark.filterwarnings("ignore:.*without a manifest")
def test_labels_outside_the_classes_are_refused(tmp_path, plain):
    store = tmp_path / "old.zarr"
    shutil.copytree(plain, store)
    as_format_1(store)
    attributes(classes=["down"])(store)
    with pytest.raises(DamagedStoreError, match="labels outside its 1 classes"):
        rf.open_dataset(store).y.compute()


@pytest.mark.filterwarnings("ignore:.*without a manifest")
def test_long_classes_are_refused_before_arrays_are_made_of_them(tmp_path, plain, monkeypatch):
    store = as_format_1(shutil.copytree(plain, tmp_path / "old.zarr"))
    attributes(classes=[*map(str, range(100, 400)), "z" * 10**5])(store)
    tracemalloc.start()
    with pytest.raises(DamagedStoreError, match="more than 1,000 characters"):
        rf.open_dataset(store)
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
    monkeypatch.setattr("rfcdask.data.store.CHUNK_BYTES", 10_000)
    attributes(classes=["down", "u" * 1000])(store)
    with pytest.raises(DamagedStoreError, match="labels of a block take"):
        rf.open_dataset(store)


def test_sparse_blocks_have_no_more_bytes_than_a_chunk(tmp_path, monkeypatch):
    store = rf.ingest(sparse.eye_array(40, format="csr"), tmp_path / "a.zarr", sparse=True)
    monkeypatch.setattr("rfcdask.data.reader.CHUNK_BYTES", 400)
    with pytest.raises(DamagedStoreError, match="its arrays have 644 bytes, at most 400 are read"):
        store.X.compute()


def test_all_is_on_the_disk_before_the_mark(tmp_path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace

    def note_sync(handle):
        events.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    def note_replace(source, target):
        events.append(f"named {target}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    dest = tmp_path / "a.zarr"
    rf.ingest((np.eye(50), np.arange(50) % 2), dest, block_size=4000)
    mark = max(i for i, event in enumerate(events) if event == f"named {dest}/zarr.json")
    before = {event for event in events[:mark] if not event.startswith("named")}
    for path in dest.rglob("*"):
        assert str(path) in before, path
        assert max(i for i, event in enumerate(events) if event.endswith(str(path))) <= mark
    assert events[mark - 1].startswith(f"{dest}/zarr.json.")
    assert events[mark + 1 :] == [str(dest)]


def test_the_manifest_stays_small(tmp_path):
    """A store of 60 GB has some 80,000 chunks of X."""
    from rfcdask.data.layout import plan_layout

    layout = plan_layout(60 * 10**9 // 112, 28, "f4", label_dtype="u1")
    shards = {
        name: Shards.of(
            [Seal(60 * 2**20, 2**32 - 1, (2**32 - 1,) * layout.chunks_of(name))] * layout.n_blocks
        )
        for name in ("X", "y")
    }
    made = Manifest(layout.n_rows, {}, shards)
    assert len(made.to_bytes()) < 10**6
    assert Manifest.from_bytes(made.to_bytes()).digest == made.digest
    ds = rf.ingest(np.eye(40), tmp_path / "a.zarr", block_size=1000)
    import pickle

    assert len(pickle.dumps(ds.reader)) < 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"zarr_format": 2},
        {"node_type": "group"},
        {"data_type": "string"},
        {"data_type": {"name": "numpy.void"}},
        {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle"}]},
        {"codecs": [{"name": "sharding_indexed", "configuration": {"codecs": [{"name": "vlen"}]}}]},
        {"codecs": 3},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 4]}}},
        {"chunk_grid": {}},
        {"shape": [-1, 4]},
        {"shape": [10**6]},
        {"storage_transformers": [{"name": "x"}]},
    ],
)
def test_only_numbers_behind_known_codecs_are_read(tmp_path, plain, wrong):
    shutil.copytree(plain, tmp_path / "a.zarr")
    metadata, place = tmp_path / "a.zarr/X/zarr.json", Location.of(tmp_path / "a.zarr")
    document = json.loads(metadata.read_text())
    assert open_checked(place, None, "X").shape == (200, 4)
    metadata.write_text(json.dumps(document | wrong))
    with pytest.raises(DamagedStoreError, match=r"X/zarr\.json is damaged"):
        open_checked(place, None, "X")


def test_a_store_replaced_after_reading_is_said(tmp_path):
    dest = tmp_path / "a.zarr"
    store = rf.ingest(np.zeros((90, 2)), dest)
    store.X.compute()
    rf.ingest(np.ones((90, 2)), dest, overwrite=True)
    for read in (store.X.compute, store.verify, lambda: store.rows([3])):
        with pytest.raises(rf.data.DamagedStoreError, match=r"open it again with rfcdask\.open_"):
            read()


def test_want_of_memory_is_no_damage(tmp_path, monkeypatch):
    store = rf.ingest(np.zeros((90, 2)), tmp_path / "a.zarr")

    def mapped_array(shape, dtype):
        return runtime.mapped_array((2**44, *shape), dtype)

    monkeypatch.setattr("rfcdask.data.reader.mapped_array", mapped_array)
    with pytest.raises(MemoryError):
        store.X.compute()


def test_a_store_out_of_reach_is_not_called_damaged(monkeypatch):
    """Nor written by another, nor no array: whoever believed it would have thrown it away."""
    url, rows = "memory://out-of-reach", np.arange(60.0).reshape(20, 3)
    array = da.from_array(rows, chunks=(10, 3))
    store = rf.ingest(rows, f"{url}/a.zarr", block_size=100)
    write_zarr(array, f"{url}/b.zarr")
    asked = Location.read

    def read(self, name, *part):
        if name == broken[0] and broken.pop(0):
            raise UnreachableError(f"{self} cannot be reached (503 Slow Down).")
        return asked(self, name, *part)

    monkeypatch.setattr(Location, "read", read)
    for names, work in (
        (["X/c/1/0"], store.verify),
        (["zarr.json"], lambda: write_zarr(array, f"{url}/b.zarr", overwrite=True)),
        (["zarr.json"] * 2, lambda: rf.ingest(rows, f"{url}/c.zarr", block_size=100)),
    ):
        broken = [*names, ""]
        with pytest.raises(UnreachableError, match="503 Slow Down"):
            work()
    broken = [""]
    assert np.array_equal(rf.ingest(rows, f"{url}/c.zarr", block_size=100).X.compute(), rows)


def test_options_may_hold_dictionaries(tmp_path):
    options = {"client_kwargs": {"endpoint_url": "http://127.0.0.1"}}
    url = f"memory://{tmp_path}/options.zarr"
    assert rf.ingest(np.zeros((9, 2)), url, storage_options=options).X.compute().sum() == 0


def test_odd_arguments_of_a_data_set_are_named(tmp_path):
    dataset = rf.ingest((np.arange(30.0).reshape(10, 3), np.arange(10) % 2), tmp_path / "store")
    for call, name in (
        (lambda: dataset.sample(1.5), "n_rows=1.5"),
        (lambda: dataset.sample("a"), "n_rows='a'"),
        (lambda: dataset.split("a"), "test_size='a'"),
        (lambda: dataset.split(None), "test_size=None"),
        (lambda: dataset.project("a"), "n_components='a'"),
        (lambda: dataset.take_columns([9]), r"places=\[9\]"),
        (lambda: dataset.take_columns([]), r"places=\[\]"),
        (lambda: dataset.take_columns(["a"]), "places='a'"),
    ):
        with pytest.raises(DataError, match=name):
            call()
