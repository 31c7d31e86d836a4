"""What is read back equals what was given, bit for bit, for every format, type and chunking."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from data_helpers import chunk_sizes, dense_rows, same_bits, svmlight_text, tree_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import rfcdask as rf

COMPRESSORS = st.sampled_from(["zstd", "lz4", "gzip", None])
BLOCKS = st.integers(100, 2000)
QUICK = settings(
    max_examples=15,
    deadline=None,
    # The folder is emptied for every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder / "out.zarr", ignore_errors=True)
    return folder / "out.zarr"


def labels_for(n: int) -> np.ndarray:
    return np.where(np.arange(n) % 2 == 0, -1, 1)


def check(dataset: rf.Dataset, X: np.ndarray, y: np.ndarray | None, scheduler: str = "threads"):
    assert same_bits(dataset.X.compute(scheduler=scheduler), X)
    assert not np.isnan(dataset.X.chunks[0]).any()
    assert dataset.X.shape == X.shape
    if y is None:
        assert dataset.y is None
    else:
        assert same_bits(dataset.y.compute(scheduler=scheduler), y)
        assert dataset.classes.tolist() == sorted(set(y.tolist()))


@QUICK
@given(
    X=dense_rows(("f8", "f4", "f2", "i1", "u2", "i8", "u8", "?")), block=BLOCKS, codec=COMPRESSORS
)
def test_numpy_arrays(tmp_path, X, block, codec):
    y = labels_for(len(X))
    ds = rf.ingest((X, y), fresh(tmp_path), block_size=block, compressor=codec)
    check(ds, X, y)
    check(rf.open_dataset(tmp_path / "out.zarr"), X, y)


@QUICK
@given(data=st.data(), X=dense_rows(("f8", "f4", "i2")), block=BLOCKS)
def test_dask_arrays_of_any_chunking(tmp_path, data, X, block):
    rows = data.draw(chunk_sizes(X.shape[0]))
    columns = data.draw(chunk_sizes(X.shape[1]))
    y = labels_for(len(X))
    lazy = da.from_array(X, chunks=(rows, columns))
    labels = da.from_array(y, chunks=(data.draw(chunk_sizes(len(y))),))
    check(rf.ingest(lazy, fresh(tmp_path), label=labels, block_size=block), X, y)


@QUICK
@given(X=dense_rows(), block=BLOCKS, order=st.sampled_from("CF"))
def test_npy_and_npz_files(tmp_path, X, block, order):
    y = labels_for(len(X))
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    np.save(tmp_path / "labels.npy", y)
    np.savez_compressed(tmp_path / "both.npz", X=np.asarray(X, order=order), y=y)
    label = str(tmp_path / "labels.npy")
    check(rf.ingest(tmp_path / "X.npy", fresh(tmp_path), label=label, block_size=block), X, y)
    check(rf.ingest(tmp_path / "both.npz", fresh(tmp_path), block_size=block), X, y)


@QUICK
@given(data=st.data(), X=dense_rows(), block=BLOCKS)
def test_zarr_groups_of_any_chunking(tmp_path, data, X, block):
    y = labels_for(len(X))
    shutil.rmtree(tmp_path / "in.zarr", ignore_errors=True)
    group = zarr.create_group(tmp_path / "in.zarr")
    chunks = (data.draw(st.integers(1, len(X))), data.draw(st.integers(1, X.shape[1])))
    group.create_array("X", data=X, chunks=chunks)
    group.create_array("y", data=y)
    check(rf.ingest(tmp_path / "in.zarr", fresh(tmp_path), block_size=block), X, y)


@QUICK
@given(X=dense_rows(), block=BLOCKS, group_rows=st.integers(1, 40))
def test_parquet_files(tmp_path, X, block, group_rows):
    y = labels_for(len(X))
    table = pa.table({**{f"c{j}": X[:, j] for j in range(X.shape[1])}, "label": y})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=group_rows)
    check(rf.ingest(tmp_path / "rows.parquet", fresh(tmp_path), block_size=block), X, y)


@QUICK
@given(
    X=dense_rows(("f8", "f4")), block=BLOCKS, mark=st.sampled_from(",\t;|"), header=st.booleans()
)
def test_csv_files_hold_every_digit(tmp_path, X, block, mark, header):
    X = X.astype(np.float64)
    y = labels_for(len(X))
    names = [f"c{j}" for j in range(X.shape[1])]
    lines = [mark.join(["label", *names])] if header else []
    lines += [mark.join(map(repr, [int(b), *row])) for row, b in zip(X.tolist(), y, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    label = None if header else 0
    ds = rf.ingest(
        tmp_path / "rows.csv", fresh(tmp_path), label=label, block_size=block, dtype="f8"
    )
    check(ds, X, y)


@QUICK
@given(X=dense_rows(("f8", "f4")), block=BLOCKS, ending=st.sampled_from(["", ".gz", ".bz2", ".xz"]))
def test_svmlight_files_plain_and_packed(tmp_path, X, block, ending):
    X = X.astype(np.float64) + 0.0  # a zero that is left out has lost its sign
    y = labels_for(len(X))
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[ending]
    path = tmp_path / f"rows.svm{ending}"
    path.write_bytes(pack(svmlight_text(X, y)))
    ds = rf.ingest(
        path, fresh(tmp_path), n_columns=X.shape[1], block_size=block, dtype="f8", zero_based=False
    )
    check(ds, X, y)


def _holds(info: np.iinfo, X: np.ndarray) -> bool:
    return bool(info.min <= X.min() and X.max() <= info.max)


@QUICK
@given(X=dense_rows(("i8", "f8"), most_rows=20), block=BLOCKS)
def test_text_takes_the_smallest_exact_type(tmp_path, X, block):
    X = np.clip(X, -1e12, 1e12).astype(np.float64) + 0.0
    (tmp_path / "rows.svm").write_bytes(svmlight_text(X, labels_for(len(X))))
    ds = rf.ingest(
        tmp_path / "rows.svm",
        fresh(tmp_path),
        n_columns=X.shape[1],
        block_size=block,
        zero_based=False,
    )
    got = ds.X.compute()
    assert np.array_equal(got.astype(np.float64), X)
    if np.array_equal(X, np.rint(X)):
        types = "u1 u2 u4 u8" if X.min() >= 0 else "i1 i2 i4 i8"
        fits = [np.dtype(t) for t in types.split() if _holds(np.iinfo(t), X)]
        smallest = fits[0]
        assert got.dtype == smallest
    else:
        exact = np.array_equal(X.astype(np.float32).astype(np.float64), X)
        assert got.dtype == (np.float32 if exact else np.float64)


@QUICK
@given(X=dense_rows(("f4", "i2"), most_columns=5), block=BLOCKS)
def test_csr_matrices(tmp_path, X, block):
    y = labels_for(len(X))
    check(rf.ingest((sparse.csr_matrix(X), y), fresh(tmp_path), block_size=block), X + 0, y)


def test_twenty_writes_into_sharded_stores_never_differ(tmp_path):
    X = np.random.default_rng(0).standard_normal((2000, 9))
    y = labels_for(len(X))
    lazy = da.from_array(X, chunks=(277, 4))
    seen = set()
    for _ in range(20):
        path = fresh(tmp_path)
        ds = rf.ingest(lazy, path, label=y, block_size=25_000)
        assert same_bits(ds.X.compute(), X)
        seen.add(tuple(tree_bytes(path).items()))
    assert len(seen) == 1
    assert len(ds.X.chunks[0]) > 5
    assert ds.reader.run_rows < ds.reader.block_rows


@pytest.mark.parametrize("kind", ["text", "bool", "target", "float classes", "column"])
def test_labels_of_every_kind_come_back_as_given(tmp_path, kind):
    X = np.arange(40.0).reshape(20, 2)
    y = {
        "text": np.array(["rye", "oat", "wheat", "oat"] * 5),
        "bool": np.arange(20) % 2 == 0,
        "target": np.linspace(0, 1, 20),
        "float classes": np.array([1.0, 2.0] * 10),
        "column": np.arange(20).reshape(20, 1) % 4,
    }[kind]
    ds = rf.ingest((X, y), tmp_path / "a.zarr", block_size=64)
    assert same_bits(ds.y.compute(), y.reshape(-1))
    if kind == "target":
        assert ds.classes is None
        assert ds.attrs["task"] == "regression"
    else:
        assert ds.classes.tolist() == sorted(set(y.reshape(-1).tolist()))


def test_text_labels_from_csv_even_when_some_look_like_numbers(tmp_path):
    rows = [f"{i},{i % 5},{'7' if i % 3 else 'x'}" for i in range(100)]
    (tmp_path / "a.csv").write_text("a,b,class\n" + "\n".join(rows) + "\n")
    ds = rf.ingest(tmp_path / "a.csv", tmp_path / "a.zarr")
    assert ds.classes.tolist() == ["7", "x"]
    assert ds.y.compute().tolist() == ["7" if i % 3 else "x" for i in range(100)]


@pytest.mark.parametrize("ending", ["svm", "csv", "parquet", "npy"])
def test_several_files_or_a_glob_are_one_set(tmp_path, ending):
    X = np.random.default_rng(0).standard_normal((90, 3))
    y = labels_for(90)
    for part, span in enumerate([slice(0, 20), slice(20, 70), slice(70, 90)]):
        path = tmp_path / f"part{part}.{ending}"
        if ending == "svm":
            path.write_bytes(svmlight_text(X[span], y[span]))
        elif ending == "npy":
            np.save(path, X[span])
        else:
            columns = {**{f"c{j}": X[span, j] for j in range(3)}, "y": y[span]}
            table = pa.table(columns)
            if ending == "parquet":
                pq.write_table(table, path)
            else:
                from pyarrow import csv

                csv.write_csv(table, path)
    glob = rf.ingest(str(tmp_path / f"part*.{ending}"), tmp_path / "glob.zarr", block_size=500)
    files = [tmp_path / f"part{i}.{ending}" for i in range(3)]
    listed = rf.ingest(files, tmp_path / "list.zarr", block_size=500)
    for ds in (glob, listed):
        assert same_bits(ds.X.compute(), X)
        if ending != "npy":
            assert same_bits(ds.y.compute(), y)


def test_a_store_of_our_own_can_be_ingested_again(tmp_path):
    X = np.random.default_rng(0).integers(0, 255, (200, 4), dtype=np.uint8)
    y = np.array(["a", "b"] * 100)
    first = rf.ingest((X, y), tmp_path / "a.zarr", scale=0.5, block_size=100)
    again = rf.ingest(tmp_path / "a.zarr", tmp_path / "b.zarr", block_size=333)
    assert again.attrs["scale"] == 0.5
    assert same_bits(again.X.compute(), first.X.compute())
    assert again.y.compute().tolist() == y.tolist()
    train, _ = first.split(0.3, random_state=0)
    kept = rf.ingest(train, tmp_path / "c.zarr", block_size=100)
    assert same_bits(kept.X.compute(), train.X.compute())


def test_unknown_chunk_sizes_become_known(tmp_path):
    X = da.from_array(np.arange(60.0).reshape(20, 3), chunks=(6, 3))
    kept = X[X[:, 0] > 20]
    ds = rf.ingest(kept, tmp_path / "a.zarr")
    assert same_bits(ds.X.compute(), kept.compute())


@pytest.mark.parametrize("url", ["memory://round-trip.zarr", "file://{}/a.zarr", "{}/a.zarr"])
def test_any_fsspec_url_is_a_place_for_a_store(tmp_path, url):
    X = np.random.default_rng(0).standard_normal((500, 3))
    ds = rf.ingest(
        (X, labels_for(500)), url.format(tmp_path), block_size=2000, shuffle=True, random_state=0
    )
    again = rf.open_dataset(url.format(tmp_path))
    assert same_bits(again.X.compute(), ds.X.compute())
    assert np.array_equal(np.sort(again.X.compute(), axis=0), np.sort(X, axis=0))
    with pytest.raises(FileExistsError):
        rf.ingest((X, labels_for(500)), url.format(tmp_path))
