"""Zarr sources from others: what they may declare, and how much of them is read at once."""

from __future__ import annotations

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
