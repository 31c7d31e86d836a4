"""Every format goes through a cluster of two processes and comes back bit for bit."""

from __future__ import annotations

import bz2
import gzip
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from data_helpers import chunk_sizes, dense_rows, same_bits, svmlight_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import rfcdask as rf
from rfcdask.data.ingest.blocks import WriteBlock

Source = tuple[Any, dict[str, Any]]
Form = Callable[[Path, np.ndarray, np.ndarray, Any], Source]
SETTINGS = settings(
    max_examples=5,
    deadline=None,
    # The folder is emptied for every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def labels_for(n: int) -> np.ndarray:
    return np.where(np.arange(n) % 2 == 0, -1, 1)


def as_svmlight(pack: Callable[[bytes], bytes], ending: str) -> Form:
    def form(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
        path = folder / f"rows.svm{ending}"
        path.write_bytes(pack(svmlight_text(X, y)))
        return path, {"n_columns": X.shape[1], "zero_based": False, "dtype": X.dtype}

    return form


def as_table(mark: str, ending: str) -> Form:
    def form(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
        lines = [mark.join([*(f"c{j}" for j in range(X.shape[1])), "label"])]
        lines += [mark.join(map(repr, [*a, int(b)])) for a, b in zip(X.tolist(), y, strict=True)]
        (folder / f"rows.{ending}").write_text("\n".join(lines) + "\n")
        return folder / f"rows.{ending}", {"dtype": X.dtype}

    return form


def as_parquet(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
    table = pa.table({**{f"c{j}": X[:, j] for j in range(X.shape[1])}, "label": y})
    pq.write_table(table, folder / "rows.parquet", row_group_size=draw(st.integers(1, 40)))
    return folder / "rows.parquet", {}


def as_npy(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
    np.save(folder / "X.npy", np.asarray(X, order=draw(st.sampled_from("CF"))))
    np.save(folder / "labels.npy", y)
    return folder / "X.npy", {"label": draw(st.sampled_from([str(folder / "labels.npy"), y]))}


def as_npz(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
    np.savez_compressed(folder / "both.npz", X=X, y=y)
    return folder / "both.npz", {}


def as_zarr(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
    group = zarr.create_group(folder / "in.zarr")
    chunks = (draw(st.integers(1, len(X))), draw(st.integers(1, X.shape[1])))
    group.create_array("X", data=X, chunks=chunks)
    group.create_array("y", data=y)
    return folder / "in.zarr", {}


def as_dask(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
    lazy = da.from_array(X, chunks=(draw(chunk_sizes(len(X))), draw(chunk_sizes(X.shape[1]))))
    return lazy, {"label": da.from_array(y, chunks=(draw(chunk_sizes(len(y))),))}


def as_dask_csr(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
    lazy = da.from_array(X, chunks=(draw(chunk_sizes(len(X))), -1))
    empty = sparse.csr_matrix((0, 0), dtype=X.dtype)
    return lazy.map_blocks(sparse.csr_matrix, meta=empty), {"label": y}


def as_several(ending: str) -> Form:
    def form(folder: Path, X: np.ndarray, y: np.ndarray, draw: Any) -> Source:
        edges = np.cumsum([0, *draw(chunk_sizes(len(X)))])
        for number, (a, b) in enumerate(pairwise(edges)):
            part = folder / str(number)
            part.mkdir()
            made, options = ONE_FILE[ending](part, X[a:b], y[a:b], draw)
            made.rename(folder / f"part{number}.{ending}")
        return str(folder / f"part*.{ending}"), options

    return form


ONE_FILE: dict[str, Form] = {
    "svm": as_svmlight(bytes, ""),
    "svm.gz": as_svmlight(gzip.compress, ".gz"),
    "csv": as_table(",", "csv"),
    "parquet": as_parquet,
}
TEXT = ("f8",)
SPARSE = ("f8", "f4", "i2")
EVERY = ("f8", "f4", "i2", "u1", "i8", "?")
# What writes the source, its types, and whether workers read it or this process streams it.
FORMS: dict[str, tuple[Form, tuple[str, ...], bool]] = {
    "svmlight": (ONE_FILE["svm"], TEXT, True),
    "svmlight.gz": (ONE_FILE["svm.gz"], TEXT, False),
    "svmlight.bz2": (as_svmlight(bz2.compress, ".bz2"), TEXT, False),
    "csv": (ONE_FILE["csv"], TEXT, False),
    "tsv": (as_table("\t", "tsv"), TEXT, False),
    "parquet": (as_parquet, EVERY, False),
    "npy": (as_npy, EVERY, True),
    "npz": (as_npz, EVERY, False),  # unpacked where it lies, by the process that removes it
    "zarr": (as_zarr, EVERY, True),
    "dask": (as_dask, EVERY, True),
    "dask csr": (as_dask_csr, SPARSE, True),
    "several svmlight": (as_several("svm"), TEXT, True),
    "several svmlight.gz": (as_several("svm.gz"), TEXT, False),
    "several csv": (as_several("csv"), TEXT, False),
    "several parquet": (as_several("parquet"), EVERY, False),
}


def refuse(self: WriteBlock, *block: Any) -> None:
    raise AssertionError("a block was written by the process that was to leave it to the workers")


def in_order(X: np.ndarray, y: np.ndarray) -> list[bytes]:
    return sorted(row.tobytes() + tag.tobytes() for row, tag in zip(X, y, strict=True))


@SETTINGS
@given(data=st.data(), block=st.integers(60, 1500), shuffle=st.booleans())
@pytest.mark.parametrize("name", FORMS)
def test_every_format(tmp_path, cluster, monkeypatch, name, data, block, shuffle):
    form, types, read_by_workers = FORMS[name]
    X = data.draw(dense_rows(types))
    if types != EVERY:
        X = X + np.zeros(1, X.dtype)  # a zero that is left out has lost its sign
    y = labels_for(len(X))
    folder = tmp_path / "example"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    source, options = form(folder, X, y, data.draw)
    with monkeypatch.context() as patch:
        if read_by_workers or shuffle:
            patch.setattr(WriteBlock, "__call__", refuse)
        ds = rf.ingest(
            source,
            folder / "out.zarr",
            block_size=block,
            client=cluster,
            shuffle=shuffle,
            random_state=1,
            **options,
        )
    got, labels = cluster.compute([ds.X, ds.y], sync=True)
    if shuffle:
        assert (got.dtype, labels.dtype) == (X.dtype, y.dtype)
        assert in_order(got, labels) == in_order(X, y)
    else:
        assert same_bits(got, X)
        assert same_bits(labels, y)


@SETTINGS
@given(data=st.data(), X=dense_rows(("f8", "f4", "i2")), block=st.integers(100, 2000))
def test_a_shuffle_by_workers_is_that_of_one_process(tmp_path, cluster, data, X, block):
    y = labels_for(len(X))
    lazy = da.from_array(X, chunks=(data.draw(chunk_sizes(X.shape[0])), -1))
    options = {"label": y, "block_size": block, "shuffle": True, "random_state": 1}
    there = rf.ingest(lazy, tmp_path / "a.zarr", client=cluster, overwrite=True, **options)
    here = rf.ingest(X, tmp_path / "b.zarr", overwrite=True, **options)
    assert same_bits(there.X.compute(), here.X.compute())
    assert same_bits(there.y.compute(), here.y.compute())


def test_labels_in_memory_travel_in_parts(tmp_path, cluster):
    """A task for one block of a file gets the labels of that block and no others."""
    import cloudpickle

    from rfcdask.data.sources import opened_source

    X, y = np.arange(40_000.0).reshape(20_000, 2), labels_for(20_000)
    np.save(tmp_path / "X.npy", X)
    with opened_source(str(tmp_path / "X.npy"), None, y) as rows:
        part = rows.narrowed(500, 600)
        assert len(cloudpickle.dumps(part)) < 5000
        (batch,) = part.read(500, 600)
        assert same_bits(batch.X, X[500:600])
        assert same_bits(batch.y, y[500:600])
    ds = rf.ingest(
        tmp_path / "X.npy", tmp_path / "a.zarr", label=y, client=cluster, block_size=9999
    )
    assert same_bits(ds.y.compute(), y)


def test_files_of_many_blocks(tmp_path, cluster):
    X = np.random.default_rng(0).standard_normal((3000, 7))
    y = labels_for(len(X))
    (tmp_path / "rows.svm").write_bytes(svmlight_text(X, y))
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress(svmlight_text(X, y)))
    for name in ("rows.svm", "rows.svm.gz"):
        ds = rf.ingest(
            tmp_path / name, tmp_path / f"{name}.zarr", block_size=20_000, client=cluster
        )
        assert len(ds.X.chunks[0]) > 5
        assert same_bits(cluster.compute(ds.X, sync=True), X)


@pytest.mark.parametrize("current", [True, False])
def test_a_frame_that_a_cluster_keeps_is_read_there(tmp_path, cluster, current):
    """It was looked for in this process, and the remedy of the message was what had been given."""
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    rows = pd.DataFrame({"n": np.arange(40.0), "c": list("ab") * 20, "kind": list("uvvu") * 10})
    lazy = dd.from_pandas(rows, npartitions=4)
    kept = cluster.persist(lazy)
    given = {} if current else {"client": cluster}
    plain = rf.ingest(rows, tmp_path / "plain.zarr", label="kind")
    encoder = rf.TableEncoder().fit(rows[["n", "c"]])
    with cluster.as_current() if current else nullcontext():
        found = rf.ingest(kept, tmp_path / "kept.zarr", label="kind", **given)
        assert rf.TableEncoder().fit(kept[["n", "c"]], **given).table_ == encoder.table_
        labels = cluster.persist(da.from_array(np.arange(40), chunks=10))
        np.save(tmp_path / "X.npy", np.zeros((40, 1)))
        of_file = rf.ingest(tmp_path / "X.npy", tmp_path / "y.zarr", label=labels, **given)
    with cluster.as_current():  # which the message names where there is no client=
        Z = encoder.transform(kept[["n", "c"]]).compute()
    assert same_bits(found.X.compute(), plain.X.compute())
    assert same_bits(found.y.compute(), plain.y.compute())
    assert same_bits(Z, encoder.transform(rows[["n", "c"]]))
    assert of_file.y.compute().tolist() == list(range(40))
    with pytest.raises(ValueError, match=r"give client= .*, or work within client.as_current\(\)"):
        encoder.transform(cluster.persist(lazy[["n", "c"]] * 1))
