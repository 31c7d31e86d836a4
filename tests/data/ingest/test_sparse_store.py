"""Sparse rows stay sparse on disk: the same bits back, resumed, shuffled, and damage is named."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from data_helpers import flip, run_measured, same_bits, tree_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import rfcdask as rf
from rfcdask.data import DamagedStoreError, DataError
from rfcdask.data.ingest import blocks
from rfcdask.data.ingest.destination import Journal
from rfcdask.data.layout import Layout, encode_csr
from rfcdask.data.location import Location
from rfcdask.data.manifest import KEY, file_facts, read_manifest

SMALL = {"sparse": True, "block_size": 600}


def drawn(n_rows: int = 200, n_columns: int = 300):
    draw = np.random.default_rng(0)
    share = min(0.03, 20 / n_columns)
    X = sparse.random(n_rows, n_columns, share, format="csr", random_state=draw)
    X.data = np.round(100 * X.data).astype("f4")
    return sparse.csr_matrix(X), np.arange(n_rows) % 3


def same_csr(a, b) -> bool:
    return a.shape == b.shape and all(
        same_bits(getattr(a, name), getattr(b, name)) for name in ("indptr", "indices", "data")
    )


@st.composite
def csr_matrices(draw):
    """Any CSR: empty rows, zeros that are stored, columns in any order, several types."""
    n_rows, n_columns = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    dtype = draw(st.sampled_from(["f8", "f4", "i2", "u1", "i8"]))
    if np.dtype(dtype).kind != "f":
        numbers = st.integers(0, 100)
    row = st.lists(
        st.tuples(st.integers(0, n_columns - 1), numbers),
        max_size=6,
        unique_by=lambda pair: pair[0],
    )
    rows = draw(st.lists(row, min_size=n_rows, max_size=n_rows))
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([column for row in rows for column, _ in row], np.int32)
    values = np.array([value for row in rows for _, value in row], dtype)
    return sparse.csr_matrix((values, indices, indptr), shape=(n_rows, n_columns))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(X=csr_matrices(), block_size=st.integers(1, 400), lazy=st.booleans(), cut=st.integers(1, 9))
def test_any_csr_comes_back_bit_for_bit(tmp_path, X, block_size, lazy, cut):
    source = da.from_array(X, chunks=(cut, -1), asarray=False) if lazy else X
    stored = rf.ingest(
        source, tmp_path / "a.zarr", sparse=True, block_size=block_size, overwrite=True
    )
    wanted = X.copy()
    wanted.sort_indices()
    assert stored.sparse
    found = sparse.vstack([stored.reader.block(i) for i in range(len(stored.reader.sizes))], "csr")
    assert same_csr(found, wanted)
    np.testing.assert_array_equal(stored.X.compute().toarray(), X.toarray())
    order = np.arange(X.shape[0])[::-2]
    assert same_csr(stored.rows(order).X, wanted[order])
    assert stored.attrs["n_values"] == X.nnz


def test_svmlight_text_stays_sparse_by_itself(tmp_path):
    X, y = drawn(300, 60_000)
    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=False)
    stored = rf.ingest(tmp_path / "a.svm", tmp_path / "a.zarr", n_columns=60_000, block_size="1MB")
    wanted, labels = load_svmlight_file(str(tmp_path / "a.svm"), n_features=60_000)
    assert stored.sparse
    assert stored.attrs["format"] == 3
    np.testing.assert_array_equal(stored.X.compute().toarray(), wanted.toarray())
    np.testing.assert_array_equal(stored.y.compute(), labels)
    files = sum(path.stat().st_size for path in (tmp_path / "a.zarr").rglob("*") if path.is_file())
    assert files < 2 * (tmp_path / "a.svm").stat().st_size
    # Unless that is asked for; few columns and few rows stay dense.
    few = {"n_columns": 60_000, "overwrite": True}
    assert not rf.ingest(tmp_path / "a.svm", tmp_path / "b.zarr", sparse=False, **few).sparse
    assert not rf.ingest((X[:, :50], y), tmp_path / "b.zarr", overwrite=True).sparse
    assert not rf.ingest((X[:2], y[:2]), tmp_path / "b.zarr", overwrite=True).sparse


def test_files_of_scipy_are_read(tmp_path):
    X, y = drawn()
    sparse.save_npz(tmp_path / "a.npz", X)
    stored = rf.ingest(tmp_path / "a.npz", tmp_path / "a.zarr", **SMALL)
    assert same_csr(sparse.csr_matrix(stored.X.compute()), X)
    assert stored.y is None
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    np.savez(tmp_path / "b.npz", **parts, format="csr", y=y)  # as scipy before 1.0 wrote it
    both = rf.ingest(tmp_path / "b.npz", tmp_path / "b.zarr", **SMALL)
    np.testing.assert_array_equal(both.y.compute(), y)
    sparse.save_npz(tmp_path / "c.npz", X.tocsc())
    with pytest.raises(DataError, match=r"format 'csc': write it with .*tocsr"):
        rf.ingest(tmp_path / "c.npz", tmp_path / "c.zarr")
    parts["indices"] = X.indices + 10**6
    np.savez(tmp_path / "d.npz", **parts, format=b"csr")
    with pytest.raises(DataError, match=r"d\.npz"):
        rf.ingest(tmp_path / "d.npz", tmp_path / "d.zarr")
    assert not (tmp_path / "d.zarr").exists()


@pytest.mark.parametrize("kind", ["dia", "coo"])
def test_diagonals_of_scipy_are_no_rows(tmp_path, kind):
    """A file of diagonals has an array named data too, which was taken for the rows."""
    sparse.save_npz(tmp_path / "a.npz", sparse.eye_array(20, 6).asformat(kind))
    for label in (None, False):
        with pytest.raises(DataError, match=r"format DIA or COO: write it with .*tocsr"):
            rf.ingest(tmp_path / "a.npz", tmp_path / "a.zarr", label=label)


KILLED = """
import os, signal, sys
import rfcdask as rf
from rfcdask.data.ingest.destination import Journal
record = Journal.record
def kill(self, block, what):
    record(self, block, what)
    if block == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.record = kill
rf.ingest(sys.argv[1], sys.argv[2], sparse=True, block_size=600)
"""


def test_a_killed_ingest_goes_on(tmp_path):
    X, y = drawn()
    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=False)
    rf.ingest(tmp_path / "a.svm", tmp_path / "whole.zarr", **SMALL)
    command = [sys.executable, "-c", KILLED, tmp_path / "a.svm", tmp_path / "a.zarr"]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    written = {}
    record = Journal.record

    def note(self, block, what):
        written[block] = what
        record(self, block, what)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Journal, "record", note)
        rf.ingest(tmp_path / "a.svm", tmp_path / "a.zarr", **SMALL)
    assert 2 not in written
    assert tree_bytes(tmp_path / "a.zarr") == tree_bytes(tmp_path / "whole.zarr")


def test_chunks_of_the_source_do_not_matter(tmp_path):
    X, y = drawn()
    for number, rows in enumerate((200, 64, 7)):
        lazy = da.from_array(X, chunks=(rows, -1), asarray=False)
        rf.ingest((lazy, da.from_array(y, chunks=rows)), tmp_path / f"{number}.zarr", **SMALL)
    first, *others = (tree_bytes(tmp_path / f"{number}.zarr/X") for number in range(3))
    assert first == others[0] == others[1]


def test_repeated_columns_are_added_up(tmp_path):
    X = sparse.csr_matrix(([1.0, 2.0, 4.0], [2, 0, 2], [0, 3, 3]), shape=(2, 4))
    stored = rf.ingest(X, tmp_path / "a.zarr", sparse=True)
    np.testing.assert_array_equal(stored.X.compute().toarray(), [[2, 0, 5, 0], [0, 0, 0, 0]])
    assert stored.attrs["n_values"] == 2


def test_copies_parts_and_scales(tmp_path):
    X, y = drawn()
    stored = rf.ingest((X, y), tmp_path / "a.zarr", scale=0.5, **SMALL)
    assert same_csr(sparse.csr_matrix(stored.X.compute()), X * np.float32(0.5))
    copied = rf.ingest(stored, tmp_path / "b.zarr", sparse=True)
    assert same_csr(copied.X.compute(), stored.X.compute())
    back = rf.ingest(copied, tmp_path / "c.zarr")  # small, so it becomes dense
    np.testing.assert_array_equal(back.X.compute(), 0.5 * X.toarray())
    train, test = stored.split(50, random_state=0)
    assert (train.X.compute().sum() + test.X.compute().sum()) == pytest.approx(0.5 * X.sum())
    assert stored.take_columns([3, 1]).X.compute().shape == (200, 2)


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_ingest_that_failed_goes_on(tmp_path, monkeypatch, shuffle):
    X, y = drawn()
    options = {"shuffle": shuffle, "random_state": 3} | SMALL
    rf.ingest((X, y), tmp_path / "whole.zarr", **options)
    record, begun = Journal.record, []

    def fail_later(self, block, what):
        begun.append(block)
        if len(begun) > 3:
            raise KeyboardInterrupt
        record(self, block, what)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "record", fail_later)
        with pytest.raises(KeyboardInterrupt):
            rf.ingest((X, y), tmp_path / "a.zarr", **options)
    written = Journal(Location.of(tmp_path / "a.zarr")).recorded()
    assert written
    flip(tmp_path / f"a.zarr/X/{written[0]}/data/c/0")  # seen, and written anew
    rf.ingest((X, y), tmp_path / "a.zarr", **options)
    assert tree_bytes(tmp_path / "a.zarr") == tree_bytes(tmp_path / "whole.zarr")


def test_begun_before_there_was_a_choice(tmp_path, monkeypatch):
    """An unfinished dense ingest, whose survey counted no values, ends as a dense store."""
    X, y = drawn(40, 20_000)
    monkeypatch.setattr(sys.modules["rfcdask.data.ingest"], "SPARSE_BLOCK_BYTES", 1)
    save = Journal.save_survey
    monkeypatch.setattr(
        Journal, "save_survey", lambda self, found: save(self, replace(found, n_values=None))
    )
    with monkeypatch.context() as patched:
        patched.setattr(blocks.WriteBlock, "__call__", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            rf.ingest((X, y), tmp_path / "a.zarr", block_size="400kB")
    stored = rf.ingest((X, y), tmp_path / "a.zarr", block_size="400kB")
    assert not stored.sparse


def _interrupt(*_):
    raise KeyboardInterrupt


def test_shuffled_like_dense_rows(tmp_path):
    X, y = drawn(20_000, 30)
    dense = rf.ingest((X.toarray(), y), tmp_path / "d.zarr", shuffle=True, random_state=1)
    options = {"shuffle": True, "random_state": 1, "sparse": True, "block_size": "20kB"}
    stored = rf.ingest((X, y), tmp_path / "s.zarr", **options)
    assert len(stored.reader.sizes) > 5
    np.testing.assert_array_equal(stored.X.compute().toarray(), dense.X.compute())
    np.testing.assert_array_equal(stored.y.compute(), dense.y.compute())


@pytest.fixture
def stored(tmp_path):
    X, y = drawn()
    return rf.ingest((X, y), tmp_path / "a.zarr", **SMALL)


def damage(kind: str, store: Path) -> None:
    part = store / "X/2/indices/c/0"
    if kind == "flipped":
        flip(part)
    elif kind == "empty":
        part.write_bytes(b"")
    elif kind == "missing":
        part.unlink()
    elif kind == "swapped":
        shutil.copy(store / "X/3/indices/c/0", part)
    else:
        flip(store / "X/2/data/zarr.json")


@pytest.mark.parametrize("kind", ["flipped", "empty", "missing", "swapped", "metadata"])
def test_damage_is_found(tmp_path, stored, kind):
    damage(kind, tmp_path / "a.zarr")
    with pytest.raises(DamagedStoreError, match=r"block 2 of X \(rows|X/2/data/zarr.json"):
        stored.X.compute(scheduler="sync")
    with pytest.raises(DamagedStoreError, match="X/2/"):
        rf.open_dataset(tmp_path / "a.zarr").verify()
    assert stored.rows([0]).X.shape == (1, 300)  # other blocks can still be read


def forge(store: Path, block: int, X: sparse.csr_matrix) -> None:
    """Replace a block by rows that nobody checked, with a manifest that says they are right."""
    place = Location.of(store)
    manifest = read_manifest(place)
    files = encode_csr(Layout(1, 1, "<f4", 1, 1), block, X)
    for name, data in files.items():
        place.write(name, data)
    facts = {name: file_facts(data) for name, data in files.items()}
    place.write(KEY, replace(manifest, files={**manifest.files, **facts}).to_bytes())


@pytest.mark.parametrize("wrong", ["column", "negative", "descending", "short", "type"])
def test_forged_rows_are_refused(tmp_path, stored, wrong):
    X = stored.reader.block(1).copy()
    if wrong == "column":
        X.indices[3] = 10**6
    elif wrong == "negative":
        X.indices[3] = -5
    elif wrong == "descending":
        X.indptr[1] = X.indptr[2] + 7
    elif wrong == "short":
        X.indptr = X.indptr[:-1]
    else:
        X.data = X.data.astype("f8")
    forge(tmp_path / "a.zarr", 1, X)
    opened = rf.open_dataset(tmp_path / "a.zarr")
    with pytest.raises(DamagedStoreError, match="block 1 of X"):
        opened.X.compute(scheduler="sync")


def test_refusals_are_sentences(tmp_path, stored):
    X, y = drawn()
    with pytest.raises(DataError, match="centring them would fill every zero"):
        stored.standardize()
    with pytest.raises(DataError, match="the rows of X are dense"):
        rf.ingest((X.toarray(), y), tmp_path / "b.zarr", sparse=True)
    with pytest.raises(DataError, match="projected rows are dense"):
        rf.ingest((X, y), tmp_path / "b.zarr", sparse=True, project=5)
    with pytest.raises(DataError, match="sparse='no' is not one of"):
        rf.ingest((X, y), tmp_path / "b.zarr", sparse="no")
    X.data[7] = np.nan
    row, column = np.searchsorted(X.indptr, 7, side="right") - 1, X.indices[7]
    for source in (X, da.from_array(X, chunks=(50, -1), asarray=False)):
        with pytest.raises(DataError, match=f"row {row}: column {column} is nan"):
            rf.ingest((source, y), tmp_path / "b.zarr", **SMALL)
    left = rf.ingest((X, y), tmp_path / "c.zarr", nan="drop", **SMALL)
    assert left.shape == (199, 300)
    X.data[7] = 300
    with pytest.raises(DataError, match=f"row {row}: column {column} is 300.0.*dtype=uint8"):
        rf.ingest((X, y), tmp_path / "d.zarr", dtype="u1", **SMALL)


MEASURED = """
import sys
from rfcdask.cli import main
main(["ingest", *sys.argv[1:], "-q"], standalone_mode=False)
print("{}")
"""


@pytest.mark.slow
def test_wide_text_in_little_memory(tmp_path, monkeypatch):
    """27 MB of text that would be 8 GB of dense rows, by a command that has yet to be compiled."""
    draw = np.random.default_rng(0)
    with open(tmp_path / "a.svm", "w") as file:
        for row in range(20_000):
            columns = np.unique((50_000 ** draw.random(140)).astype(int))
            values = " ".join(
                f"{j}:{v:.5f}" for j, v in zip(columns, draw.random(len(columns)), strict=True)
            )
            file.write(f"{row % 2} {values}{' 50000:1' if row == 5 else ''}\n")
    size = (tmp_path / "a.svm").stat().st_size
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    peak, _ = run_measured(MEASURED, tmp_path / "a.svm", tmp_path / "a.zarr")
    files = sum(path.stat().st_size for path in (tmp_path / "a.zarr").rglob("*") if path.is_file())
    print(f"\n{size / 1e6:.0f} MB of text: {files / 1e6:.0f} MB, {peak / 1e6:.0f} MB of memory")
    assert files < 2 * size
    assert peak < 300 * 10**6
    data = rf.open_dataset(tmp_path / "a.zarr")
    X, y = load_svmlight_file(str(tmp_path / "a.svm"), zero_based=False)
    assert data.shape == X.shape == (20_000, 50_000)
    found = data.X.compute()
    assert same_bits(found.data, X.data)
    np.testing.assert_array_equal(found.indices, X.indices)
    np.testing.assert_array_equal(found.indptr, X.indptr)
    np.testing.assert_array_equal(data.y.compute(), y)
