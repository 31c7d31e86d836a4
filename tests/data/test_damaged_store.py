"""A damaged or lost part of a store is seen and named."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import DamagedStoreError


@pytest.fixture
def stored(tmp_path):
    X = np.random.default_rng(0).standard_normal((1000, 4))
    return rf.ingest((X, np.arange(1000) % 2), tmp_path / "a.zarr", block_size=8000)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damaged_byte_is_seen(tmp_path, stored, data):
    shards = sorted((tmp_path / "a.zarr").glob("[Xy]/c/**/*"))
    shards = [shard for shard in shards if shard.is_file()]
    shard = data.draw(st.sampled_from(shards))
    whole = shard.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    shard.write_bytes(whole[:place] + flipped + whole[place + 1 :])
    try:
        array = stored.X if shard.relative_to(tmp_path / "a.zarr").parts[0] == "X" else stored.y
        with pytest.raises(DamagedStoreError, match=r"chunk|shard"):
            array.compute(scheduler="sync")
    finally:
        shard.write_bytes(whole)
    stored.X.compute()


def test_a_damaged_chunk_is_named(tmp_path, stored):
    shard = tmp_path / "a.zarr/X/c/2/0"
    layout = stored.reader
    whole = bytearray(shard.read_bytes())
    whole[len(whole) // 2] ^= 1
    shard.write_bytes(whole)
    with pytest.raises(DamagedStoreError) as caught:
        stored.X.compute()
    first = 2 * layout.block_rows
    found = re.search(
        r"chunk (\d+) of array X \(rows (\d+) to (\d+), in shard 2\)", str(caught.value)
    )
    chunk, start, stop = map(int, found.groups())
    assert start == chunk * layout.run_rows
    assert first <= start <= stop < first + layout.block_rows
    with pytest.raises(DamagedStoreError, match=f"chunk {chunk} of array X"):
        stored.rows([start])
    # Rows of other chunks can still be fetched.
    other = first if start != first else first + layout.block_rows - 1
    assert stored.rows([other]).X.shape == (1, 4)


def test_a_lost_shard_is_not_taken_for_zeros(tmp_path, stored):
    (tmp_path / "a.zarr/X/c/1/0").unlink()
    with pytest.raises(DamagedStoreError, match=r"shard 1 of array X \(rows .*\) is missing"):
        stored.X.compute()
    shard = tmp_path / "a.zarr/y/c/0"
    shard.write_bytes(shard.read_bytes()[:-7])
    with pytest.raises(DamagedStoreError, match="array y"):
        stored.y.compute()
