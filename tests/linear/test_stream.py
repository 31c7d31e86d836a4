"""The stream of blocks: bounded, in order, the same everywhere."""

from __future__ import annotations

import threading
import time
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfcdask.kernels.types import Array
from rfcdask.linear.runners import ClusterRunner, ThreadRunner, open_runner
from rfcdask.linear.sgd.schedule import blocks_mixed, held_out_rows, plan_epoch, shuffled_rows
from rfcdask.linear.stream import (
    Blocks,
    consecutive_groups,
    stream_blocks,
    stream_folds,
    stream_groups,
)


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


def add_up(state: float, block: tuple[Any, ...], index: int) -> float:
    return float(state + block[0].sum())


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_slow_consumer_never_lets_blocks_pile_up(ahead: int) -> None:
    meter = Meter()
    X = numbered(40).map_blocks(meter.start, meta=np.empty((0, 0)))
    with open_runner() as runner:
        for _ in stream_blocks(runner, Blocks(X), range(40), ahead):
            time.sleep(0.005)  # the reader is far faster
            meter.finish()
    assert meter.started == 40
    assert meter.most <= ahead + 2  # one more may start between our count and the release


def test_groups_hold_their_blocks_and_a_few_ahead() -> None:
    meter = Meter()
    X = numbered(30).map_blocks(meter.start, meta=np.empty((0, 0)))
    groups = [[i, i + 10, i + 20] for i in range(10)]
    seen = []
    with open_runner() as runner:
        for number, handles in stream_groups(runner, Blocks(X), groups, 4):
            time.sleep(0.01)
            seen.append([int(runner.result(handle)[0][0, 0]) // 10 for handle in handles])
            assert seen[-1] == groups[number]
            meter.finish(3)
    assert meter.most <= 3 + 4 + 3
    assert len(seen) == 10


def test_results_come_in_the_order_asked_for_whatever_finishes_first() -> None:
    def slow_at_first(block: Array) -> Array:
        time.sleep(0.05 if block[0, 0] < 20 else 0.0)
        return block

    X = numbered(12).map_blocks(slow_at_first, dtype=float)
    order = [0, 7, 1, 11, 3]
    with open_runner() as runner:
        found = [(i, int(b[0][0, 0])) for i, b in stream_blocks(runner, Blocks(X), order)]
    assert found == [(i, i * 10) for i in order]


@pytest.mark.parametrize("place", ["sync", "threads", "cluster"])
def test_folds_are_the_same_everywhere(place: str, cluster_client: Any) -> None:
    X = numbered(23) + 1
    client = cluster_client if place == "cluster" else None
    scheduler = {"sync": "synchronous", "threads": "threads"}.get(place)
    with dask.config.set(scheduler=scheduler), open_runner(client) as runner:
        assert isinstance(runner, ClusterRunner if client else ThreadRunner)
        parts = list(stream_folds(runner, Blocks(X), consecutive_groups(23, 4), add_up, 0.0))
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
    with open_runner() as runner, pytest.raises(OSError, match="chunk 5"):
        list(stream_blocks(runner, Blocks(X), range(20)))
    assert threading.active_count() <= before


def test_what_all_blocks_share_is_computed_once(cluster_client: Any) -> None:
    calls: list[int] = []

    def costly() -> float:
        calls.append(1)
        return 2.0

    shared = dask.delayed(costly, pure=True)()
    X = da.map_blocks(lambda block, factor: block * factor, numbered(15), shared, dtype=float)
    with open_runner() as runner:
        for index, block in stream_blocks(runner, Blocks(X), range(15)):
            assert block[0][0, 0] == 20.0 * index
    assert len(calls) == 1
    with open_runner(cluster_client) as runner:
        for index, block in stream_blocks(runner, Blocks(X), range(15)):
            assert block[0][0, 0] == 20.0 * index


def test_blocks_persisted_on_a_cluster_are_streamed(cluster_client: Any) -> None:
    X = cluster_client.persist(numbered(6) + 1)
    with open_runner(cluster_client) as runner:
        found = [block[0][0, 0] for _, block in stream_blocks(runner, Blocks(X), [4, 0, 5])]
    assert found == [41.0, 1.0, 51.0]


def test_a_cluster_never_holds_more_than_the_window(cluster_client: Any) -> None:
    X = numbered(30) + 1
    with open_runner(cluster_client) as runner:
        for _ in stream_blocks(runner, Blocks(X), range(30), ahead=2):
            held = [key for key in cluster_client.futures if "block" in str(key)]
            assert len(held) <= 3
            time.sleep(0.01)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 60), mixed=st.integers(1, 8), seed=st.integers(0, 9))
def test_an_epoch_visits_every_block_once_and_spreads_groups(n: int, mixed: int, seed: int) -> None:
    mixed = min(mixed, n)
    groups = plan_epoch(n, mixed, seed, 0)
    assert sorted(index for group in groups for index in group) == list(range(n))
    assert groups == plan_epoch(n, mixed, seed, 0)
    strata = [set(part.tolist()) for part in np.array_split(np.arange(n), mixed)]
    assert all(len(group) <= mixed for group in groups)
    assert all(sum(index in part for index in groups[0]) == 1 for part in strata)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 9))
def test_rows_of_a_group_are_all_there_in_an_order_of_their_own(
    sizes: list[int], seed: int
) -> None:
    which, rows = shuffled_rows(sizes, seed, 1, 2)
    pairs = set(zip(which.tolist(), rows.tolist(), strict=True))
    assert pairs == {(b, r) for b, size in enumerate(sizes) for r in range(size)}
    again = shuffled_rows(sizes, seed, 1, 2)
    assert np.array_equal(again[1], rows)


def test_orders_differ_between_epochs_and_rows_held_out_do_not() -> None:
    assert plan_epoch(40, 8, 0, 0) != plan_epoch(40, 8, 0, 1)
    held = held_out_rows(100, 0.1, 3, 7)
    assert held.sum() == 10
    assert np.array_equal(held, held_out_rows(100, 0.1, 3, 7))


def test_large_blocks_are_not_mixed_beyond_the_budget() -> None:
    assert blocks_mixed(100, 2**20) == 8
    assert blocks_mixed(100, 2**26) == 2
    assert blocks_mixed(100, 2**31) == 1
    assert blocks_mixed(3, 2**20) == 3
