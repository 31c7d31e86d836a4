"""Opening a store: laziness, shapes, statistics, splits, standard columns, how it shows itself."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import dask
import numpy as np
import pyarrow as pa
import pytest
import zarr
from data_helpers import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.layout import plan_layout
from rfcdask.data.reader import Reader
from rfcdask.data.views import split_readers
from rfcdask.pipeline.run import fit_model


@pytest.fixture(scope="module")
def arrays():
    draw = np.random.default_rng(0)
    return draw.standard_normal((3000, 5)) * [1, 10, 0.1, 1, 1] + 3, np.arange(3000) % 3


@pytest.fixture(scope="module")
def path(tmp_path_factory, arrays):
    where = tmp_path_factory.mktemp("store") / "a.zarr"
    rf.ingest(arrays, where, block_size=20_000)
    return where


def test_nothing_is_computed_until_it_is_asked_for(path, refusing_scheduler):
    with dask.config.set(scheduler=refusing_scheduler):
        ds = rf.open_dataset(path)
        train, test = ds.standardize().split(0.3, random_state=0)
        for part in (ds, train, test):
            assert part.X.shape[0] == sum(part.X.chunks[0])
            assert part.y.shape == (part.X.shape[0],)
            repr(part), part._repr_html_(), part.classes, part.X[:10], part.y[:3]


def test_blocks_are_the_shards_and_graphs_stay_small(path):
    ds = rf.open_dataset(path)
    X = zarr.open_group(path)["X"]
    assert ds.X.chunks[0] == tuple(min(X.shards[0], 3000 - a) for a in range(0, 3000, X.shards[0]))
    assert len(ds.X.dask.layers) == 1
    assert len(dict(ds.X.dask)) == len(ds.X.chunks[0])
    # The path travels, not the rows.
    assert len(pickle.dumps(dict(ds.X.dask))) < 20_000


def test_shards_hold_whole_chunks_with_checksums(path):
    X = zarr.open_group(path)["X"]
    assert X.shards[0] % X.chunks[0] == 0
    assert X.shards[0] > X.chunks[0]
    sharding = json.loads((path / "X" / "zarr.json").read_text())["codecs"][0]["configuration"]
    assert [codec["name"] for codec in sharding["codecs"]] == ["bytes", "zstd", "crc32c"]
    assert [codec["name"] for codec in sharding["index_codecs"]] == ["bytes", "crc32c"]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 10**9),
    st.integers(1, 10**6),
    st.sampled_from(["u1", "f4", "f8"]),
    st.integers(1, 2**28),
)
def test_any_shape_is_cut_into_whole_chunks(rows, columns, dtype, size):
    layout = plan_layout(rows, columns, dtype, block_bytes=size)
    assert layout.block_rows % layout.chunk_rows == 0
    assert (layout.n_blocks - 1) * layout.block_rows < rows <= layout.n_blocks * layout.block_rows
    row_bytes = columns * np.dtype(dtype).itemsize
    assert layout.block_bytes <= max(size, row_bytes)


def test_common_shapes_have_blocks_and_chunks_of_good_size():
    for rows, columns, dtype in [(11_000_000, 28, "f4"), (10**7, 780, "u1"), (10**8, 250, "f4")]:
        layout = plan_layout(rows, columns, dtype)
        chunk = layout.chunk_rows * columns * np.dtype(dtype).itemsize
        assert 0.5 * 2**20 <= chunk <= 2**20
        assert 60 * 2**20 <= layout.block_bytes <= 64 * 2**20


def test_statistics_are_those_of_all_rows(path, arrays):
    attrs = rf.open_dataset(path).attrs
    X = arrays[0]
    np.testing.assert_allclose(attrs["mean"], X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(attrs["variance"], X.var(0), rtol=1e-12)
    assert attrs["min"] == X.min(0).tolist()
    assert attrs["max"] == X.max(0).tolist()
    expected = {"format": 2, "n_rows": 3000, "shuffled": False, "seed": None, "complete": True}
    assert expected.items() <= attrs.items()


def test_standard_columns(path, arrays):
    X = arrays[0]
    ds = rf.open_dataset(path).standardize()
    got = ds.X.compute()
    np.testing.assert_allclose(got, (X - X.mean(0)) / X.std(0), rtol=1e-9, atol=1e-9)
    assert got.dtype == ds.X.dtype
    with pytest.raises(rf.data.DataError, match="no column statistics"):
        ds.standardize()


def test_constant_columns_become_zero(tmp_path):
    X = np.column_stack([np.full(10, 7.0), np.arange(10.0)]).astype(np.float32)
    ds = rf.ingest(X, tmp_path / "a.zarr").standardize()
    got = ds.X.compute()
    assert got.dtype == np.float32
    assert np.all(got[:, 0] == 0)


def test_integers_stay_on_disk_and_are_scaled_lazily(tmp_path):
    X = np.random.default_rng(0).integers(0, 256, (300, 8), dtype=np.uint8)
    ds = rf.ingest(X, tmp_path / "a.zarr", scale=1 / 255, block_size=1000)
    assert zarr.open_group(tmp_path / "a.zarr")["X"].dtype == np.uint8
    assert ds.X.dtype == np.float32
    assert same_bits(ds.X.compute(), X.astype(np.float32) * np.float32(1 / 255))
    np.testing.assert_allclose(ds.mean, X.mean(0) / 255)
    np.testing.assert_allclose(ds.standardize().X.compute().std(0), 1, rtol=1e-5)


@pytest.mark.parametrize("test_size", [0.3, 700, 1, 2999, 1e-9])
def test_a_split_has_every_row_once(path, arrays, test_size):
    ds = rf.open_dataset(path)
    train, test = ds.split(test_size, random_state=3)
    n_test = test_size if isinstance(test_size, int) else int(np.ceil(test_size * 3000))
    assert len(test) == n_test
    assert len(train) == 3000 - n_test
    both = np.concatenate([train.X.compute(), test.X.compute()])
    assert both.shape == (3000, 5)
    assert np.array_equal(np.sort(both[:, 0]), np.sort(arrays[0][:, 0]))
    assert all(size > 0 for size in test.X.chunks[0])
    order = np.argsort(arrays[0][:, 0])
    rows = order[np.searchsorted(arrays[0][:, 0], test.X.compute()[:, 0], sorter=order)]
    assert np.array_equal(arrays[1][rows], test.y.compute())


def test_the_seed_decides_the_split(path):
    ds = rf.open_dataset(path)
    first, again, other = (ds.split(0.5, random_state=s)[1].X.compute() for s in (1, 1, 2))
    assert same_bits(first, again)
    assert not np.array_equal(first, other)
    for bad in (0, 3000, 1.0, 0.0, -0.5):
        with pytest.raises(rf.data.DataError, match="test_size"):
            ds.split(bad)


@dataclass(frozen=True)
class Numbers(Reader):
    """Six rows in blocks of 1, 2 and 3."""

    sizes: tuple[int, ...] = (1, 2, 3)
    n_columns: int = 1

    def block(self, block):
        return np.arange(self.sizes[block])[:, None] + sum(self.sizes[:block])


def test_the_split_does_not_depend_on_the_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("rfcdask.data.views.UNIT", 64)
    X = np.arange(1000.0)[:, None]
    parts = [
        rf.ingest(X, tmp_path / f"{size}.zarr", block_size=size).split(0.37, random_state=5)
        for size in (8000, 3000, 504, 40)
    ]
    for train, test in parts:
        assert same_bits(train.X.compute(), parts[0][0].X.compute())
        assert same_bits(test.X.compute(), parts[0][1].X.compute())
        wanted = np.arange(len(test))[::-7]
        assert same_bits(test.rows(wanted).X, test.X.compute()[wanted])
    assert len(parts[0][1]) == 370


def test_every_test_set_is_equally_likely(monkeypatch):
    monkeypatch.setattr("rfcdask.data.views.UNIT", 2)
    from math import comb

    from scipy.stats import chisquare

    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        part = split_readers(Numbers(), 2, seed)[1]
        rows = np.concatenate([part.block(b)[:, 0] for b in range(len(part.sizes))])
        counts[tuple(rows)] = counts.get(tuple(rows), 0) + 1
    assert len(counts) == comb(6, 2)
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_what_a_data_set_says_of_itself(path):
    ds = rf.open_dataset(path)
    shown = repr(ds)
    for words in ("3,000", "float64", "3 classes: 0, 1, 2", "as given"):
        assert words in shown
        assert words in ds._repr_html_()
    assert "<table>" in ds._repr_html_()
    assert "standardized" in repr(ds.standardize())


def test_many_classes_are_counted(tmp_path):
    X = np.arange(50.0)[:, None]
    assert "50 classes" in repr(rf.ingest((X, np.arange(50)), tmp_path / "a.zarr"))
    long = np.array(["a" * 900, "b" * 900])[np.arange(50) % 2]
    assert len(repr(rf.ingest((X, long), tmp_path / "d.zarr"))) < 600
    assert "regression" in repr(rf.ingest((X, X[:, 0] / 7), tmp_path / "b.zarr"))
    assert "none" in repr(rf.ingest(X, tmp_path / "c.zarr"))


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(rf.data.DataError, match="no zarr v3 group"):
        rf.open_dataset(tmp_path / "nothing.zarr")
    zarr.create_group(tmp_path / "other.zarr")
    with pytest.raises(rf.data.DataError, match=r"no rfcdask store: pass it to rfcdask\.ingest"):
        rf.open_dataset(tmp_path / "other.zarr")
    ds = rf.ingest(np.eye(3), tmp_path / "new.zarr")
    shutil.rmtree(tmp_path / "new.zarr" / "manifest")  # whatever a later version has instead
    group = zarr.open_group(tmp_path / "new.zarr")
    group.attrs["format"] = 99
    with pytest.raises(rf.data.DataError, match="format 99, this version reads up to 3: update"):
        rf.open_dataset(tmp_path / "new.zarr")
    assert ds.y is None


def test_an_existing_store_is_kept_unless_told_otherwise(tmp_path):
    rf.ingest(np.eye(3), tmp_path / "a.zarr")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        rf.ingest(np.eye(4), tmp_path / "a.zarr")
    assert rf.open_dataset(tmp_path / "a.zarr").X.shape == (3, 3)
    assert rf.ingest(np.eye(4), tmp_path / "a.zarr", overwrite=True).X.shape == (4, 4)


def test_a_folder_that_is_no_store_is_never_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis\.tex lies there"):
        rf.ingest(np.eye(3), tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"
    zarr.create_group(tmp_path / "other.zarr")
    with pytest.raises(FileExistsError, match="not ours"):
        rf.ingest(np.eye(3), tmp_path / "other.zarr")


@pytest.fixture
def orders(tmp_path):
    """Two stores of the same rows, with their columns in another order, and one that lacks one."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = (X[:, 0] > 0).astype(int)
    stores = []
    for number, places in enumerate(([0, 1, 2], [2, 0, 1], [1, 2])):
        path = tmp_path / f"{number}.csv"
        names = ",".join("abc"[place] for place in places)
        rows = np.column_stack([X[:, places], y])
        np.savetxt(path, rows, "%.17g", ",", header=f"{names},label", comments="")
        stores.append(rf.ingest(path, tmp_path / f"{number}.zarr", block_size="2kB"))
    return stores


@pytest.mark.parametrize(
    "model",
    [
        rf.RidgeClassifier(),
        rf.SGDClassifier(epochs=1, random_state=0),
        rf.KernelClassifier(8, gamma=0.5, epochs=1, random_state=0),
        make_pipeline(rf.Standardizer(), rf.RidgeClassifier()),
        make_pipeline(rf.RandomFeatures(8, gamma=0.5, random_state=0), rf.RidgeClassifier()),
        make_pipeline(rf.PCA(3), rf.RidgeClassifier()),
    ],
    ids=lambda model: type(getattr(model, "steps", [[0, model]])[0][1]).__name__,
)
def test_models_know_the_columns_of_stores_by_name(orders, model, tmp_path):
    """Columns in another order were taken for each other, and the score was that of chance."""
    store, other, fewer = orders
    fitted = model.fit(store.X, store.y)
    rf.save(fitted, tmp_path / "model")
    for known in (fitted, rf.load(tmp_path / "model")):
        wanted = known.predict(store.X).compute()
        assert np.array_equal(known.predict(other.X).compute(), wanted)
        assert known.score(other.X, other.y) == known.score(store.X, store.y) > 0.6
        with pytest.raises(DataError, match="column 'a' is missing from X"):
            known.predict(fewer.X)
        assert np.array_equal(known.predict(store.X.compute()), wanted)  # arrays have no names
        found = rf.permutation_importance(known, other.X, other.y, random_state=0)
        assert found.names == ["a", "b", "c"]
        assert found.importances_mean.argmax() == 0


@pytest.mark.parametrize("method", ["none", "random"])
@pytest.mark.parametrize("standardize", [True, False])
def test_models_of_commands_know_their_columns_in_python_too(orders, method, standardize, tmp_path):
    """They were taken by position, without a word, where the commands go by name."""
    store, other, fewer = orders
    settings = {"method": method, "learner": "ridge", "standardize": standardize}
    settings |= {} if method == "none" else {"n_components": 8}
    fit_model(tmp_path / "0.zarr", tmp_path / "model", settings=settings)
    model = rf.load(tmp_path / "model")
    assert np.array_equal(model.predict(other.X).compute(), model.predict(store.X).compute())
    with pytest.raises(DataError, match="column 'a' is missing from X"):
        model.predict(fewer.X)


def test_more_rows_are_learned_by_name_too(orders):
    store, other, fewer = orders
    wanted = rf.Ridge().fit(store.X, store.y).partial_fit(store.X, store.y)
    found = rf.Ridge().fit(store.X, store.y).partial_fit(other.X, other.y)
    assert np.allclose(found.coef_, wanted.coef_, rtol=1e-12)
    small = rf.Ridge().fit(fewer.X, fewer.y)
    with pytest.warns(UserWarning, match="columns 'a' of X are left out"):
        small.predict(store.X)
    with pytest.raises(ValueError, match="the same columns to be merged: one has 'a', 'b', 'c'"):
        wanted.merge(rf.Ridge().fit(other.X, other.y))
    frame = pa.table(dict(zip(other.columns, other.X.compute().T, strict=True)))
    with pytest.raises(ValueError, match="the same columns to be merged: one has 'a', 'b', 'c'"):
        wanted.merge(rf.Ridge().fit(frame, other.y))
    scaler = rf.Standardizer.of(store)
    assert np.array_equal(scaler.transform(other.X).compute(), scaler.transform(store.X).compute())
    with pytest.raises(TypeError, match=r"X is a data set: give its rows and labels, dataset\.X"):
        rf.Ridge().fit(store, store.y)


@pytest.mark.filterwarnings("error:X (has|does not have valid) feature names")
@pytest.mark.parametrize(
    "model",
    [
        rf.RidgeClassifier(),
        rf.KernelClassifier(8, gamma=0.5, epochs=1, random_state=0),
        make_pipeline(rf.Standardizer(), rf.RidgeClassifier()),
        make_pipeline(rf.RandomFeatures(8, gamma=0.5, random_state=0), rf.RidgeClassifier()),
    ],
    ids=lambda model: type(getattr(model, "steps", [[0, model]])[0][1]).__name__,
)
def test_names_of_frames_and_of_stores_are_compared(orders, model):
    """Both have names, and still columns in another order were taken for each other."""
    pandas = pytest.importorskip("pandas")
    store, other, fewer = orders
    frames = [pandas.DataFrame(ds.X.compute(), columns=ds.columns) for ds in (store, other)]
    fitted = clone(model).fit(store.X, store.y)
    wanted = fitted.predict(store.X).compute()
    for frame in (*frames, *map(pa.table, frames)):
        assert np.array_equal(fitted.predict(frame), wanted)
        assert fitted.score(frame, store.y) == fitted.score(store.X, store.y)
        rf.permutation_importance(fitted, frame, store.y, random_state=0)
    with pytest.raises(DataError, match="column 'a' is missing from X"):
        fitted.predict(frames[0].rename(columns={"a": "A"}))
    fitted = clone(model).fit(frames[0], store.y)
    wanted = fitted.predict(frames[0])
    for dataset in (store, other):
        assert np.array_equal(fitted.predict(dataset.X).compute(), wanted)
    with pytest.raises(DataError, match="column 'a' is missing from X"):
        fitted.predict(fewer.X)
    with pytest.raises(ValueError, match="in the same order as they were in fit"):
        fitted.predict(frames[1])


def test_columns_of_frames_whose_names_are_numbers_are_found_too(tmp_path):
    """Years, say: in another order they were taken for each other, without a word."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(200, 3)))
    y = frame[0] > 0
    for names in ([2021, 2022, 2023], [2, 0, 1]):
        years = frame.set_axis(names, axis=1)
        store = rf.ingest((years, y), tmp_path / f"{names[0]}.zarr")
        model = rf.RidgeClassifier().fit(store.X, store.y)
        for order in (names, names[::-1], sorted(names)):
            assert model.score(years[order], y) == model.score(store.X, store.y) > 0.9
    with pytest.raises(DataError, match="column '2' is missing from X"):
        model.predict(frame.set_axis([2021, 2022, 2023], axis=1))
    named = rf.ingest((frame.set_axis([*"abc"], axis=1), y), tmp_path / "named.zarr")
    model = rf.RidgeClassifier().fit(named.X, named.y)
    assert np.array_equal(model.predict(frame), model.predict(named.X).compute())  # only counted


def test_a_web_server_without_sizes_is_refused(tmp_path):
    """A listing of files as links has no sizes to compare: a raw TypeError came of it."""
    pytest.importorskip("aiohttp")
    rf.ingest(np.eye(3), tmp_path / "store.zarr")
    zarr.create_array(tmp_path / "plain.zarr", data=np.eye(3))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://me:hidden@127.0.0.1:{server.server_port}"
        with pytest.raises(DataError, match=r"\*\*\*@.*lists files without their sizes"):
            rf.open_dataset(f"{url}/store.zarr")
        with pytest.raises(DataError, match=r"lists files without their sizes|no file matches"):
            rf.ingest(f"{url}/plain.zarr", tmp_path / "copy.zarr", label=False)
        server.shutdown()


def test_a_server_that_refuses_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"ftp://me:hidden@127.0.0.1:{free.getsockname()[1]}/store.zarr"
        with pytest.raises(DataError, match=r"ftp://\*\*\*@127.* cannot be reached"):
            rf.open_dataset(url)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("http://127.0.0.1:9/a.zarr", {"nonsense": 1}, "unexpected keyword.*storage_options"),
        ("http://127.0.0.1:99999/a.zarr", None, "Port out of range"),
        ("http://me:hidden@[::1]:9/a.zarr", None, r"\*\*\*@\[::1\].* IPv6 server all parts"),
    ],
)
def test_addresses_and_options_that_no_file_system_can_use(url, options, words):
    pytest.importorskip("aiohttp")
    with pytest.raises(DataError, match=words):
        rf.open_dataset(url, storage_options=options)


def test_brackets_of_a_server_are_no_pattern(tmp_path):
    pytest.importorskip("aiohttp")
    with pytest.raises(DataError, match=r"cannot be reached \(Client"):
        rf.ingest("http://[0:0:0:0:0:0:0:1]:9/a.csv", tmp_path / "a.zarr")
