"""Smaller blocks hold the same rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import layout, manifest, reader
from rfcdask.data.generators import SyntheticReader
from rfcdask.data.manifest import Seal, read_chunks, seal_of
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
@given(
    st.integers(2, 2000),
    st.integers(1, 400),
    st.sampled_from(["f4", "f8", "i2", "u1"]),
    st.sampled_from(["zstd", "zstd", "lz4", None]),
    st.booleans(),
)
def test_blocks_of_any_shards_are_the_rows(
    n: int, chunk: int, dtype: str, compressor: str | None, targets: bool
) -> None:
    X = np.random.default_rng(0).integers(0, 200, (n, 3)).astype(dtype)
    X[n // 2 :] = 0  # chunks of zeros
    y = np.arange(2.0 * n).reshape(n, 2) if targets else np.arange(n)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as changed:
        changed.setattr(layout, "CHUNK_BYTES", chunk * 12)
        place, given = f"{folder}/s.zarr", {"block_size": "8 KiB", "compressor": compressor}
        stored = rf.ingest((X, y), place, task="regression", **given)
        np.testing.assert_array_equal(stored.X.compute(), X)
        np.testing.assert_array_equal(stored.y.compute(), y)
        np.testing.assert_array_equal(zarr.open_array(f"{place}/X", mode="r")[:], X)


def test_chunks_of_zeros_that_were_never_written(tmp_path: Path) -> None:
    """Stores of earlier versions have them."""
    X = np.arange(12.0).reshape(6, 2)
    X[2:4] = 0
    packed = {"chunks": (2, 2), "shards": (6, 2), "compressors": layout.codecs("zstd")}
    zarr.create_array(tmp_path / "a", data=X, **packed)
    path = tmp_path / "a" / "c" / "0" / "0"
    seal = seal_of(path.read_bytes(), 3)
    found = list(read_chunks(str(path), seal, 0, 3))
    assert [len(one) > 0 for one in found] == [True, False, True]
    for size, words in ((0, "it has 0 bytes"), (None, "it is missing")):
        path.unlink() if size is None else path.write_bytes(b"")
        with pytest.raises(ValueError, match=words):
            list(read_chunks(str(path), seal, 0, 3))


def test_a_block_keeps_its_values_while_anything_refers_to_it(tmp_path: Path) -> None:
    X = np.arange(3_000_000, dtype=np.float32).reshape(-1, 2)  # 12 MB in one block
    rf.ingest(X, tmp_path / "s.zarr", label=False)
    store = rf.open_dataset(tmp_path / "s.zarr").reader
    part = store.block(0)[1000:1003]
    place = store.block(0).ctypes.data
    assert store.block(0).ctypes.data == place  # nobody has it any more
    others = [store.block(0) * 0 for _ in range(3)]
    np.testing.assert_array_equal(part, X[1000:1003])
    assert not any(map(np.any, others))


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
    asked: list[tuple[str, int]] = []

    def read_chunks(path: str, seal: Seal, first: int, count: int) -> Iterator[np.ndarray]:
        asked.extend((path, chunk) for chunk in range(first, first + count))
        return manifest.read_chunks(path, seal, first, count)

    monkeypatch.setattr(reader, "read_chunks", read_chunks)
    opened = rf.open_dataset(tmp_path / "s.zarr")
    assert zarr.open_array(tmp_path / "s.zarr" / "X").shards[0] == 8 * opened.reader.block_rows
    *full, last = opened.X.chunks[0]
    assert {*full} == {512}
    assert last <= 512
    np.testing.assert_array_equal(opened.X.compute(scheduler="sync"), X)
    np.testing.assert_array_equal(opened.y.compute(scheduler="sync"), X[:, 0])
    assert len(asked) == len({*asked}) == 2 * -(-9000 // 512)
    (tmp_path / "s.zarr" / "X" / "c" / "1" / "0").unlink()
    with pytest.raises(rf.data.DamagedStoreError, match="shard 1 of array X"):
        opened.X.blocks[9].compute(scheduler="sync")


@given(st.integers(1, 10**4), st.integers(1, 500), st.integers(1, 2**16))
def test_parts_of_a_shard_are_whole_chunks(chunk: int, chunks: int, row_bytes: int) -> None:
    part = layout.read_rows(chunk * chunks, chunk, row_bytes)
    is_large = chunk * chunks * row_bytes > layout.MOST_BYTES
    assert part % chunk == 0
    assert (chunk * chunks) % part == 0
    assert part * row_bytes <= layout.MOST_BYTES or part == chunk
    assert part * row_bytes <= layout.READ_BYTES or is_large or part == chunk * chunks
