"""A source that is written anew between two calls or during one, or that would be replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import traceback
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr

import rfcdask as rf
from rfcdask.data import DataError, StoreExistsError
from rfcdask.data.errors import UnreachableError
from rfcdask.data.ingest.blocks import WriteBlock
from rfcdask.data.sources.arrays import ArrayRows, NpzMember
from rfcdask.execution.progress import SilentReporter


def write_source(path, seed):
    X = np.random.default_rng(seed).standard_normal((400, 3))
    zarr.create_array(path, data=X, chunks=(50, 3), overwrite=True)
    return X


def after(call, number, then):
    """Return a method that does something else too when it is called for the nth time."""
    calls = []

    def called(self, *args):
        result = call(self, *args)
        calls.append(args)
        if len(calls) == number:
            then()
        return result

    return called


def stop():
    raise KeyboardInterrupt


@pytest.mark.parametrize("lazily", [da.from_zarr, zarr.open_array, str])
def test_a_source_that_is_written_anew_is_not_gone_on_with(tmp_path, monkeypatch, lazily):
    source, dest = str(tmp_path / "source.zarr"), tmp_path / "a.zarr"
    given = {"block_size": 1200, "label": False}
    write_source(source, 0)
    with monkeypatch.context() as patch:
        patch.setattr(WriteBlock, "__call__", after(WriteBlock.__call__, 3, stop))
        with pytest.raises(KeyboardInterrupt):
            rf.ingest(lazily(source), dest, **given)
    X = write_source(source, 1)
    with pytest.raises(StoreExistsError, match=r"the source differs.*overwrite=True"):
        rf.ingest(lazily(source), dest, **given)
    again = rf.ingest(lazily(source), dest, overwrite=True, **given)
    assert np.array_equal(again.X.compute(), X)


@pytest.mark.parametrize("lazily", [da.from_zarr, str])
def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, lazily):
    source, dest = str(tmp_path / "source.zarr"), tmp_path / "a.zarr"
    given = {"block_size": 1200, "label": False}
    write_source(source, 0)
    with monkeypatch.context() as patch:
        change = after(WriteBlock.__call__, 1, lambda: write_source(source, 1))
        patch.setattr(WriteBlock, "__call__", change)
        with pytest.raises(DataError, match=r"changed while it was read.*overwrite=True"):
            rf.ingest(lazily(source), dest, **given)
    again = rf.ingest(lazily(source), dest, overwrite=True, **given)
    assert np.array_equal(again.X.compute(), zarr.open_array(source)[:])


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_source_that_is_removed_while_it_is_read_is_refused(tmp_path, monkeypatch, shuffle):
    source, dest = str(tmp_path / "source.zarr"), tmp_path / "a.zarr"
    write_source(source, 0)
    read, calls = ArrayRows.read, []

    def gone(self, *span):
        calls.append(span)
        if len(calls) == 3:  # the first call is the survey's
            shutil.rmtree(source)
        return read(self, *span)

    given = {"block_size": 1200, "label": False, "shuffle": shuffle}
    with monkeypatch.context() as patch:
        patch.setattr(ArrayRows, "read", gone)
        with pytest.raises(DataError, match=r"changed while it was read.*overwrite=True"):
            rf.ingest(source, dest, **given)
    X = write_source(source, 1)
    again = rf.ingest(source, dest, overwrite=True, **given)
    assert np.array_equal(np.sort(again.X.compute(), axis=0), np.sort(X, axis=0))


@pytest.mark.parametrize("gone", [shutil.rmtree, lambda path: shutil.move(path, path + "-")])
def test_a_source_that_goes_while_it_is_looked_at_is_said_to_have_changed(tmp_path, gone):
    folder, dest = str(tmp_path / "texts"), tmp_path / "a.zarr"
    table = pd.DataFrame({"a": np.arange(400.0), "b": np.arange(400) % 3})

    def write():
        os.mkdir(folder)
        table.to_csv(f"{folder}/a.csv", index=False)

    def progress(phase, total, unit):
        if os.path.exists(folder):
            gone(folder)
        return SilentReporter()

    write()
    with pytest.raises(DataError, match=r"a\.csv was changed while it was read"):
        rf.ingest(f"{folder}/a.csv", dest, label="b", progress=progress)
    write()
    assert len(rf.ingest(f"{folder}/a.csv", dest, label="b", overwrite=True)) == 400


def test_a_source_whose_server_stops_is_not_said_to_have_changed(tmp_path):
    table = pd.DataFrame({"a": np.arange(400.0), "b": np.arange(400) % 3})
    table.to_csv(tmp_path / "a.csv", index=False)
    serve = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        Thread(target=server.serve_forever, daemon=True).start()

        def stop(survey):
            server.shutdown()
            server.server_close()

        source = f"http://me:word@127.0.0.1:{server.server_port}/a.csv"
        with pytest.raises(UnreachableError, match=r"call again.*stays") as caught:
            rf.ingest(source, tmp_path / "a.zarr", label="b", check=stop)
    assert "word" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("kind", ["name", "data set", "view", "lazy", "zarr"])
def test_a_store_behind_a_url_is_not_replaced_by_its_own_rows(kind):
    place = "memory://own-rows.zarr"
    X, y = np.random.default_rng(0).standard_normal((400, 3)), np.arange(400) % 2
    stored = rf.ingest((X, y), place, overwrite=True)
    sources = {
        "name": lambda: place,
        "data set": lambda: stored,
        "view": lambda: stored.standardize(),
        "lazy": lambda: (stored.split(0.5, random_state=0)[0].X * 2, None),
        "zarr": lambda: zarr.open_array(place + "/X", mode="r"),
    }
    with pytest.raises(DataError, match="choose another destination"):
        rf.ingest(sources[kind](), place, overwrite=True)
    assert np.array_equal(rf.open_dataset(place).X.compute(), X)


KILLED = """
import os, sys
import dask.dataframe as dd, rfcdask as rf
from rfcdask.data.ingest.blocks import WriteBlock
WriteBlock.__call__ = lambda *args: os._exit(9)
frame = dd.read_parquet(sys.argv[1])
rf.ingest(frame[frame.a > 0], sys.argv[2], label="b")
"""


def test_a_lazy_frame_of_parquet_is_gone_on_with_by_another_process(tmp_path):
    """Dask's name of such a frame is another one in each process."""
    source, dest = str(tmp_path / "t.parquet"), str(tmp_path / "a.zarr")
    table = pd.DataFrame({"a": np.arange(100.0), "b": np.arange(100) % 3})
    table.to_parquet(source)
    killed = subprocess.run([sys.executable, "-c", KILLED, source, dest], timeout=120)
    assert killed.returncode == 9
    assert os.path.exists(dest)
    frame = dd.read_parquet(source)
    with pytest.raises(StoreExistsError, match="the source differs"):
        rf.ingest(frame[frame.a > 1], dest, label="b")
    found = rf.ingest(frame[frame.a > 0], dest, label="b")
    whole = rf.ingest(frame[frame.a > 0], dest + "1", label="b")
    assert np.array_equal(found.X.compute(), whole.X.compute())
    assert len(found) == 99
    subprocess.run([sys.executable, "-c", KILLED, source, dest + "2"], timeout=120)
    (table + 1).to_parquet(source)
    frame = dd.read_parquet(source)
    with pytest.raises(StoreExistsError, match="the source differs"):
        rf.ingest(frame[frame.a > 0], dest + "2", label="b")


CUT = """
import sys
import rfcdask as rf
from rfcdask.data.sources import arrays

path, whole, calls = sys.argv[1], arrays.NpyFile.get, []

def cut_once_open(self):
    found = whole(self)
    calls.append(found)
    if len(calls) == 3:  # two look at the shape
        open(path, "r+b").truncate(200)
    return found

arrays.NpyFile.get = cut_once_open
rf.ingest(path, path + ".zarr", label=False)
"""


def test_a_npy_file_that_is_cut_while_it_is_read_is_said_to_have_changed(tmp_path):
    """It was mapped, and the process ended with a bus error and no word."""
    path = str(tmp_path / "X.npy")
    np.save(path, np.ones((4000, 3)))
    cut = subprocess.run([sys.executable, "-c", CUT, path], capture_output=True, timeout=120)
    assert cut.returncode == 1
    assert b"X.npy was changed while it was read" in cut.stderr


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "i2", "?"])
def test_npy_files_of_every_order_are_read_in_parts(tmp_path, monkeypatch, dtype, order):
    monkeypatch.setattr("rfcdask.data.sources.arrays.BATCH_BYTES", 100)
    X = np.arange(210).reshape(70, 3).astype(dtype)
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    found = rf.ingest(tmp_path / "X.npy", tmp_path / "a.zarr", label=False, block_size=500)
    assert np.array_equal(found.X.compute(), X)


def test_rows_and_labels_of_two_npz_archives_of_one_name_are_not_mixed(tmp_path, monkeypatch):
    path, unpack = tmp_path / "a.npz", NpzMember._unpack
    np.savez(path, X=np.ones((50, 3)), y=np.arange(50) % 2)
    np.savez(tmp_path / "b.npz", X=np.zeros((50, 3)), y=np.arange(50) % 3)

    def replaced(self, file):
        unpack(self, file)
        if self.member == "X":
            os.replace(tmp_path / "b.npz", path)

    monkeypatch.setattr(NpzMember, "_unpack", replaced)
    with pytest.raises(DataError, match=r"a\.npz was changed while it was read"):
        rf.ingest(path, tmp_path / "a.zarr")
