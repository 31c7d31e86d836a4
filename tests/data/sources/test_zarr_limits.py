"""Zarr sources from others: what they may declare, and how much of them is read at once."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
import zarr

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.sources import arrays
from rfcdask.persist import chunks


@pytest.mark.parametrize("shape", [(64, 10**10), (64, 10**7)])
@pytest.mark.parametrize("apart", [True, False])
def test_labels_of_zarr_that_declare_far_more_than_is_stored(tmp_path, shape, apart):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=np.ones((64, 4)))
    group.create_array("y", shape=shape, chunks=(64, 1000), dtype="f8")
    np.save(tmp_path / "a.npy", np.ones((64, 4)))
    source, label = ("a.npy", str(tmp_path / "a.zarr" / "y")) if apart else ("a.zarr", None)
    with pytest.raises(DataError, match=r"y is no zarr array of numbers .*it declares"):
        rf.ingest(str(tmp_path / source), tmp_path / "b.zarr", label=label)


def test_very_many_chunks_that_were_never_written(tmp_path):
    """They take no room and are all zeros, but each is looked for: minutes."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4, 100_001), chunks=(4, 1), dtype="f4")
    array[:, :2] = 1
    with pytest.raises(DataError, match=r"it declares 100,001 chunks and has 2\b"):
        rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr", label=False)


@pytest.mark.parametrize("shards", [None, (2, 1)])
def test_chunks_are_counted_by_those_that_are_there(tmp_path, monkeypatch, shards):
    """To look for each one that is declared took 15 s and 777 MB for 2^24 of them."""
    monkeypatch.setattr("zarr.core.array._shards_initialized", None)
    shape = (2**28, 1)
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=shape, chunks=(1, 1), dtype="u1", shards=shards
    )
    array[:2] = 1
    with pytest.raises(DataError, match=r"it declares 268,435,456 chunks and has 2\b"):
        rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr", label=False)


def test_a_long_text_that_stands_for_all_others(tmp_path):
    """Each row had a copy of it: more than 7 GB from 100 kB."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=np.ones((64, 4)))
    group.create_array("y", shape=(64,), dtype=str, chunks=(64,), fill_value="a" * 1001)
    with pytest.raises(DataError, match=r"its fill value has more than 1,000 characters"):
        rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr")


@pytest.mark.parametrize("kind", ["S1000", "U1000"])
def test_labels_of_one_length_are_read_in_small_batches(kind):
    """To count the different ones takes copies: 500,000 of S1000, in 2 MB, took 5.6 GB."""
    X = zarr.create_array({}, shape=(10**6, 1), chunks=(10, 1), dtype="u1")
    y = zarr.create_array({}, shape=(10**6,), chunks=(10,), dtype=kind, zarr_format=2)
    assert 16_000 * arrays._batch_rows(X, y) <= chunks.CHUNK_BYTES


def test_very_many_targets_are_refused(tmp_path):
    """A million that were declared and never written took two minutes."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=np.ones((4, 4)))
    group.create_array("y", shape=(4, 100_001), chunks=(4, 100_001), dtype="u1")
    with pytest.raises(DataError, match=r"y has shape \(4, 100001\): .* up to 100,000 targets"):
        rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr")


def test_very_many_dense_columns_are_written_if_asked_for(tmp_path, monkeypatch):
    """Zeros that are declared in a few bytes: 4,000,000 columns took a minute and 2.4 GB."""
    monkeypatch.setattr(sys.modules["rfcdask.data.ingest"], "WIDEST", 50)
    zarr.create_array(tmp_path / "a.zarr", shape=(4, 60), chunks=(4, 60), dtype="u1")
    source, dest = str(tmp_path / "a.zarr"), tmp_path / "b.zarr"
    with pytest.raises(DataError, match=r"a\.zarr has 60 columns, .* or n_columns=60 to have"):
        rf.ingest(source, dest)
    assert rf.ingest(source, dest, n_columns=60).shape == (4, 60)
    assert rf.ingest(source, dest, project=5, overwrite=True).shape == (4, 5)


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("labels", ["U100", "f8", "T"])
@pytest.mark.parametrize("shards", [None, (96, 6)])
def test_a_batch_of_zarr_rows_is_no_larger_than_a_chunk_may_be(
    tmp_path, monkeypatch, shards, labels
):
    sizes: list[int] = []
    read = arrays._read_span

    def measured(*given: Any) -> Any:
        batch = read(*given)
        size = 100 * len(batch.y) if batch.y.dtype.kind == "O" else batch.y.nbytes
        sizes.append(max(batch.X.nbytes, size))
        return batch

    monkeypatch.setattr(arrays, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(chunks, "TEXT_BYTES", 100)
    monkeypatch.setattr(arrays, "_read_span", measured)
    rows = np.random.default_rng(0).normal(size=(96, 6))
    y = (np.arange(96) % 3).astype(labels)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=rows, chunks=(96, 1) if shards is None else (16, 6), shards=shards)
    group.create_array("y", data=y, chunks=(10,))
    stored = rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr")
    assert 0 < max(sizes) <= 2000
    np.testing.assert_array_equal(stored.X.compute(), rows)


def test_texts_of_zarr_with_a_checksum_are_read(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=np.ones((64, 4)))
    codecs = [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]
    y = group.create_array("y", shape=(64,), dtype=str, chunks=(20,), compressors=codecs)
    y[:] = np.array(["a", "b"] * 32)
    stored = rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr")
    assert stored.y.compute().tolist() == ["a", "b"] * 32


def test_damaged_arrays_of_a_group_are_said_once(tmp_path, caplog):
    """Of two errors zarr raises one, and asyncio printed the other beside ours."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name in ("X", "y", "z"):
        group.create_array(name, data=np.ones(4))
        (tmp_path / "a.zarr" / name / "zarr.json").write_text('{"zarr_format": 3}')
    with pytest.raises(DataError, match=r"a\.zarr is no zarr group"):
        rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr")
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("key", ["zarr_format", "shape"])
@pytest.mark.parametrize(("number", "file"), [(2, ".zarray"), (3, "zarr.json")])
def test_labels_whose_metadata_lack_a_key_are_not_left_out(tmp_path, number, file, key):
    """The rows were written without labels, and nothing was said."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=number)
    group.create_array("X", data=np.ones((6, 2)))
    group.create_array("y", data=np.arange(6) % 2)
    path = tmp_path / "a.zarr" / "y" / file
    path.write_text(path.read_text().replace(f'"{key}"', '"other"'))
    with pytest.raises(DataError, match=r"a\.zarr is no zarr group, is damaged"):
        rf.ingest(str(tmp_path / "a.zarr"), tmp_path / "b.zarr")
