"""Smaller blocks hold the same rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import layout, reader
from rfcdask.data.generators import SyntheticReader
from rfcdask.data.manifest import CheckedStore
from rfcdask.data.views import SLICE_AS_CHEAP, SmallerBlocksReader


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_pieces_hold_the_rows_of_the_blocks(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 20), "rows")
    base = SyntheticReader("higgs", n, 0, data.draw(st.integers(1, n), "block"))
    whole = SyntheticReader("higgs", n, 0, n)
    small = SmallerBlocksReader(base, data.draw(st.integers(1, n), "piece"))
    assert max(small.sizes) <= min(small.piece, base.block_rows)
    assert sum(small.sizes) == n
    pieces = range(len(small.sizes))
    np.testing.assert_array_equal(np.concatenate([small.block(i) for i in pieces]), whole.block(0))
    labels = np.concatenate([small.labels(i) for i in pieces])
    np.testing.assert_array_equal(labels, whole.labels(0))
    wanted = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5), "wanted")
    got = rf.Dataset(small, {}).rows(wanted)
    np.testing.assert_array_equal(got.X, whole.block(0)[wanted])
    np.testing.assert_array_equal(got.y, whole.labels(0)[wanted])


def test_few_rows_of_a_long_piece_are_fetched_one_by_one() -> None:
    n = 40 * SLICE_AS_CHEAP
    X = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    stored = rf.ingest(X, "memory://smaller.zarr", label=False, overwrite=True)
    small = SmallerBlocksReader(stored.reader, n)
    got, labels = small.rows(0, np.array([7, 3999]))
    np.testing.assert_array_equal(got, X[[7, 3999]])
    assert labels is None


def test_blocks_are_as_small_as_asked_for(tmp_path: Path) -> None:
    made = rf.synthetic("higgs", 50_000, dest=tmp_path / "s.zarr")
    small = made.with_smaller_blocks(row_bytes=1000, block_bytes=8_000_000)
    assert max(small.reader.sizes) <= 8000
    assert small.shape == made.shape
    assert rf.Dataset.split(small, 100, 0)[1].shape == (100, 28)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 2000), st.integers(1, 400), st.integers(1, 2**14))
def test_any_part_read_at_a_time_gives_the_same_rows(n: int, chunk: int, part: int) -> None:
    X = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as changed:
        changed.setattr(layout, "CHUNK_BYTES", chunk * 12)
        changed.setattr(reader, "PART_BYTES", part)
        stored = rf.ingest((X, np.arange(n)), f"{folder}/s.zarr", block_size="8 KiB")
        np.testing.assert_array_equal(stored.X.compute(), X)
        np.testing.assert_array_equal(stored.y.compute(), np.arange(n))


BLOCKS_LET_GO = """
import sys
from concurrent.futures import ThreadPoolExecutor
import psutil
import rfcdask as rf

reader = rf.open_dataset(sys.argv[1]).reader
with ThreadPoolExecutor(3) as pool:
    for _ in range(3):
        list(pool.map(lambda i: reader.block(i).sum(), range(len(reader.sizes))))
    before = psutil.Process().memory_info().rss
    held = list(pool.map(reader.block, [*range(len(reader.sizes))] * 8))
    with_them = psutil.Process().memory_info().rss
    size = sum(block.nbytes for block in held)
    del held
    after = psutil.Process().memory_info().rss
print(size >> 20, (with_them - before) >> 20, (after - before) >> 20)
"""


def test_memory_of_blocks_goes_back_to_the_system(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(400_000, 20)).astype(np.float32)
    rf.ingest(X, tmp_path / "s.zarr", label=False)
    command = [sys.executable, "-c", BLOCKS_LET_GO, str(tmp_path / "s.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size, more, kept = map(int, done.stdout.split())
    assert more > 0.8 * size > 150
    assert kept < 0.1 * size


def test_a_large_shard_is_read_in_equal_parts_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).normal(size=(9000, 4)).astype(np.float32)
    monkeypatch.setattr(layout, "READ_BYTES", 2**13)  # a block of 2**16 bytes in eight parts
    rf.ingest((X, X[:, 0]), tmp_path / "s.zarr", block_size=2**16)
    asked = []

    async def get(
        self: CheckedStore, key: str, prototype: object, byte_range: object = None
    ) -> object:
        found = await real(self, key, prototype, byte_range)
        if key.startswith(("X/c/", "y/c/")) and "Suffix" not in type(byte_range).__name__:
            asked.append((key, byte_range))
        return found

    real = CheckedStore.get
    monkeypatch.setattr(CheckedStore, "get", get)
    opened = rf.open_dataset(tmp_path / "s.zarr")
    assert zarr.open_array(tmp_path / "s.zarr" / "X").shards[0] == 8 * opened.reader.block_rows
    *full, last = opened.X.chunks[0]
    assert {*full} == {512}
    assert last <= 512
    np.testing.assert_array_equal(opened.X.compute(scheduler="sync"), X)
    np.testing.assert_array_equal(opened.y.compute(scheduler="sync"), X[:, 0])
    assert len(asked) == len({str(one) for one in asked})
    (tmp_path / "s.zarr" / "X" / "c" / "1" / "0").unlink()
    with pytest.raises(rf.data.DamagedStoreError, match="shard 1 of array X"):
        opened.X.blocks[9].compute(scheduler="sync")


@given(st.integers(1, 10**4), st.integers(1, 500), st.integers(1, 2**16))
def test_parts_of_a_shard_are_whole_chunks(chunk: int, chunks: int, row_bytes: int) -> None:
    part = layout.read_rows(chunk * chunks, chunk, row_bytes)
    assert part % chunk == 0
    assert (chunk * chunks) % part == 0
    assert part * row_bytes <= layout.READ_BYTES or part == chunk * chunks
