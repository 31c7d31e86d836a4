"""A source that is written anew between two calls or during one, or that would be replaced."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr

import rfcdask as rf
from rfcdask.data import DataError, StoreExistsError
from rfcdask.data.ingest.blocks import WriteBlock


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
