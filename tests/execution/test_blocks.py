"""The stream of blocks: bounded, in order, the same everywhere."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import rfcdask as rf
from rfcdask.execution.blocks import (
    Blocks,
    consecutive_groups,
    fold_blocks,
    stream_folds,
    stream_groups,
)
from rfcdask.execution.executor import ClusterExecutor, Executor, ThreadExecutor, open_executor
from rfcdask.kernels.arrays import Array


class Meter:
    """Counts blocks that were started and not yet let go."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.alive = self.most = self.started = 0

    def start(self, block: Array) -> Array:
        with self.lock:
            self.started += 1
            self.alive += 1
            self.most = max(self.most, self.alive)
        return block

    def finish(self, count: int = 1) -> None:
        with self.lock:
            self.alive -= count


def numbered(n_blocks: int, rows: int = 5) -> da.Array:
    return da.from_array(np.arange(n_blocks * rows * 2.0).reshape(-1, 2), chunks=(rows, 2))


def stream_blocks(
    executor: Executor, blocks: Blocks, order: Sequence[int], ahead: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield each block with its number, brought to the caller."""
    groups = [(index,) for index in order]
    ahead = executor.threads if ahead is None else ahead
    for number, (handle,) in stream_groups(executor, blocks, groups, ahead):
        yield order[number], executor.result(handle)


def add_up(state: float, block: tuple[Any, ...], index: int) -> float:
    return float(state + block[0].sum())


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_slow_consumer_never_lets_blocks_pile_up(ahead: int) -> None:
    meter = Meter()
    X = numbered(40).map_blocks(meter.start, meta=np.empty((0, 0)))
    with open_executor() as executor:
        for _ in stream_blocks(executor, Blocks(X), range(40), ahead):
            time.sleep(0.005)  # the reader is far faster
            meter.finish()
    assert meter.started == 40
    assert meter.most <= ahead + 2  # one more may start between our count and the release


def test_groups_hold_their_blocks_and_a_few_ahead() -> None:
    meter = Meter()
    X = numbered(30).map_blocks(meter.start, meta=np.empty((0, 0)))
    groups = [[i, i + 10, i + 20] for i in range(10)]
    seen = []
    with open_executor() as executor:
        for number, handles in stream_groups(executor, Blocks(X), groups, 4):
            time.sleep(0.01)
            seen.append([int(executor.result(handle)[0][0, 0]) // 10 for handle in handles])
            assert seen[-1] == groups[number]
            meter.finish(3)
    assert meter.most <= 3 + 4 + 3
    assert len(seen) == 10


def test_blocks_come_in_the_order_asked_for() -> None:
    def slow_at_first(block: Array) -> Array:
        time.sleep(0.05 if block[0, 0] < 20 else 0.0)
        return block

    X = numbered(12).map_blocks(slow_at_first, dtype=float)
    order = [0, 7, 1, 11, 3]
    with open_executor() as executor:
        found = [(i, int(b[0][0, 0])) for i, b in stream_blocks(executor, Blocks(X), order)]
    assert found == [(i, i * 10) for i in order]


@pytest.mark.parametrize("place", ["sync", "threads", "cluster"])
def test_folds_are_the_same_everywhere(place: str, cluster_client: Any) -> None:
    X = numbered(23) + 1
    client = cluster_client if place == "cluster" else None
    scheduler = {"sync": "synchronous", "threads": "threads"}.get(place)
    with dask.config.set(scheduler=scheduler), open_executor(client) as executor:
        assert isinstance(executor, ClusterExecutor if client else ThreadExecutor)
        parts = list(stream_folds(executor, Blocks(X), consecutive_groups(23, 4), add_up, 0.0))
    values = np.asarray(X)
    wanted = [values[20 * i : 20 * (i + 1)].sum() for i in range(6)]
    assert parts == wanted


def test_work_that_fails_stops_the_stream_and_frees_the_pool() -> None:
    def broken(block: Array) -> Array:
        if block[0, 0] == 50:
            raise OSError("chunk 5 is damaged")
        return block

    X = numbered(20).map_blocks(broken, dtype=float)
    before = threading.active_count()
    with open_executor() as executor, pytest.raises(OSError, match="chunk 5"):
        list(stream_blocks(executor, Blocks(X), range(20)))
    assert threading.active_count() <= before


def test_what_all_blocks_share_is_computed_once(cluster_client: Any) -> None:
    calls: list[int] = []

    def costly() -> float:
        calls.append(1)
        return 2.0

    shared = dask.delayed(costly, pure=True)()
    X = da.map_blocks(lambda block, factor: block * factor, numbered(15), shared, dtype=float)
    with open_executor() as executor:
        for index, block in stream_blocks(executor, Blocks(X), range(15)):
            assert block[0][0, 0] == 20.0 * index
    assert len(calls) == 1
    with open_executor(cluster_client) as executor:
        for index, block in stream_blocks(executor, Blocks(X), range(15)):
            assert block[0][0, 0] == 20.0 * index


def test_blocks_persisted_on_a_cluster_are_streamed(cluster_client: Any) -> None:
    X = cluster_client.persist(numbered(6) + 1)
    with open_executor(cluster_client) as executor:
        found = [block[0][0, 0] for _, block in stream_blocks(executor, Blocks(X), [4, 0, 5])]
    assert found == [41.0, 1.0, 51.0]


def test_a_cluster_never_holds_more_than_the_window(cluster_client: Any) -> None:
    X = numbered(30) + 1
    with open_executor(cluster_client) as executor:
        for _ in stream_blocks(executor, Blocks(X), range(30), ahead=2):
            held = [key for key in cluster_client.futures if "block" in str(key)]
            assert len(held) <= 3
            time.sleep(0.01)


def leave_trace(folder: str, block: Array) -> Array:
    """Leave a file for each time that a block is computed."""
    Path(folder, f"{block[0, 0]:.0f}-{uuid.uuid4().hex}").touch()
    return block


def test_a_fold_computes_what_blocks_share_once(tmp_path: Path, cluster_client: Any) -> None:
    source = numbered(4, rows=10).map_blocks(partial(leave_trace, str(tmp_path)), dtype=float)
    X = source.rechunk((5, 2))  # two blocks of each
    with open_executor(cluster_client) as executor:
        found = list(stream_folds(executor, Blocks(X), [range(0, 3), range(3, 8)], add_up, 0.0))
    assert sum(found) == float(np.asarray(numbered(4, rows=10)).sum())
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["0", "20", "40", "60"]


def test_tasks_carry_small_maps_and_wait_for_large_ones() -> None:
    X = numbered(6)
    small, large = (rf.RandomFeatures(n, gamma=0.1, random_state=0).fit(X) for n in (10, 20_000))
    blocks = Blocks(small.transform(X).unevaluated())
    assert [*blocks.carried] == blocks.shared
    assert not Blocks(large.transform(X).unevaluated()).carried
    costly = da.map_blocks(np.multiply, X, dask.delayed(abs)(-2.0), dtype=float)
    assert Blocks(costly).shared
    assert not Blocks(costly).carried


@pytest.mark.parametrize(("n_blocks", "most", "runs"), [(14, 16, 14), (64, 8, 64), (65, 8, 33)])
def test_few_blocks_are_folded_apart(n_blocks: int, most: int, runs: int) -> None:
    found = list(fold_blocks([numbered(n_blocks)], add_up, 0.0, None, "adding", group_size=most))
    assert len(found) == runs
    assert sum(found) == float(np.asarray(numbered(n_blocks)).sum())
