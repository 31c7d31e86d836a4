"""Training over blocks: their order, features kept or computed again, and bounded memory."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.execution.blocks import Blocks
from rfcdask.execution.executor import open_executor
from rfcdask.kernels.arrays import Array
from rfcdask.kernels.seeds import epoch_groups, held_out_rows, shuffle_rows
from rfcdask.linear.sgd import base, training
from rfcdask.linear.sgd.base import is_cheaper_to_keep, seconds_to_compute
from rfcdask.linear.sgd.step import (
    TrainingState,
    blocks_mixed,
    train_on_blocks,
)
from tests.linear_data import blobs, lazy


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 60), mixed=st.integers(1, 8), seed=st.integers(0, 9))
def test_an_epoch_visits_every_block_once_and_spreads_groups(n: int, mixed: int, seed: int) -> None:
    mixed = min(mixed, n)
    groups = epoch_groups(n, mixed, seed, 0)
    assert sorted(index for group in groups for index in group) == list(range(n))
    assert groups == epoch_groups(n, mixed, seed, 0)
    strata = [set(part.tolist()) for part in np.array_split(np.arange(n), mixed)]
    assert all(len(group) <= mixed for group in groups)
    assert all(sum(index in part for index in groups[0]) == 1 for part in strata)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 60), mixed=st.integers(1, 8), chains=st.integers(2, 5))
def test_chains_have_equally_many_groups_of_nearly_one_size(
    n: int, mixed: int, chains: int
) -> None:
    mixed = min(mixed, n)
    groups = epoch_groups(n, mixed, 3, 0, chains)
    assert sorted(index for group in groups for index in group) == list(range(n))
    sizes = [len(group) for group in groups]
    assert max(sizes) <= mixed
    assert max(sizes) - min(sizes) <= 1
    assert len(groups) % chains == 0 or sizes == [1] * n


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 9))
def test_rows_of_a_group_are_all_there_in_an_order_of_their_own(
    sizes: list[int], seed: int
) -> None:
    which, rows = shuffle_rows(sizes, seed, 1, 2)
    pairs = set(zip(which.tolist(), rows.tolist(), strict=True))
    assert pairs == {(b, r) for b, size in enumerate(sizes) for r in range(size)}
    again = shuffle_rows(sizes, seed, 1, 2)
    assert np.array_equal(again[1], rows)


def test_orders_differ_between_epochs_and_rows_held_out_do_not() -> None:
    assert epoch_groups(40, 8, 0, 0) != epoch_groups(40, 8, 0, 1)
    held = held_out_rows(100, 0.1, 3, 7)
    assert held.sum() == 10
    assert np.array_equal(held, held_out_rows(100, 0.1, 3, 7))


def test_large_blocks_are_not_mixed_beyond_the_budget() -> None:
    assert blocks_mixed(100, 2**20) == 8
    assert blocks_mixed(100, 2**26) == 2
    assert blocks_mixed(100, 2**31) == 1
    assert blocks_mixed(3, 2**20) == 3


EPOCHS = 4
N_BLOCKS = 10


class Work:
    """Features that count how often they are computed."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls = 0
        self.seconds = seconds

    def __call__(self, block: Array) -> Array:
        self.calls += 1
        time.sleep(self.seconds)
        return block + np.float32(0)

    def features(self) -> Any:
        meta = np.empty((0, 0), np.float32)
        return lazy(blobs(2000, 6, 2)[0], 200).map_blocks(self, meta=meta)


def train(persist: bool | str, work: Work) -> Any:
    with dask.config.set(scheduler="synchronous"):  # counts without a lock
        model = rf.SGDClassifier(epochs=EPOCHS, random_state=0, persist=persist)
        return model.fit(work.features(), blobs(2000, 6, 2)[1])


RECOMPUTED = EPOCHS * N_BLOCKS


@pytest.mark.parametrize("persist", [True, False])
def test_the_choice_can_be_set(persist: bool) -> None:
    work = Work()
    train(persist, work)
    assert work.calls == N_BLOCKS if persist else work.calls >= RECOMPUTED


@pytest.mark.parametrize(
    "model",
    [rf.SGDClassifier(alpha=1e-3, epochs=1), rf.KernelClassifier(5, gamma=0.1, epochs=1)],
    ids=["sgd", "kernel"],
)
def test_one_epoch_reads_each_block_once(model: Any) -> None:
    work = Work()
    with dask.config.set(scheduler="synchronous"):
        model.fit(work.features(), blobs(2000, 6, 2)[1])
    assert work.calls == N_BLOCKS  # also for the sample that comes before


def test_dear_features_are_kept() -> None:
    work = Work(seconds=0.02)  # against microseconds of reading 5 kB again
    train("auto", work)
    assert work.calls == N_BLOCKS + 2  # two to measure by


@pytest.mark.parametrize(("seconds", "kept"), [(0.0, False), (1.0, True)])
def test_the_measured_time_decides(
    seconds: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "seconds_to_compute", lambda executor, blocks: seconds)
    work = Work()
    train("auto", work)
    assert work.calls == N_BLOCKS if kept else work.calls >= RECOMPUTED


def test_without_room_nothing_is_kept_or_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> float:
        raise AssertionError("measured in vain")

    monkeypatch.setattr(base, "seconds_to_compute", refuse)
    work = Work()
    with dask.config.set({"rfcdask.persist-bytes": "10 kB"}):
        train("auto", work)
    assert work.calls >= RECOMPUTED
    monkeypatch.setattr("distributed.system.MEMORY_LIMIT", 100_000)  # a very small machine
    work = Work()
    train("auto", work)
    assert work.calls >= RECOMPUTED


def test_arrays_in_memory_and_single_passes_are_never_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any) -> float:
        raise AssertionError("measured in vain")

    monkeypatch.setattr(base, "seconds_to_compute", refuse)
    X, y = blobs(500, 6, 2)
    rf.SGDClassifier(epochs=5, random_state=0).fit(X, y)
    rf.SGDClassifier(epochs=1, random_state=0).fit(lazy(X, 100) + 1, y)


@given(
    passes=st.integers(2, 50),
    compute=st.floats(0, 1e3, allow_subnormal=False),
    fetch=st.floats(0, 1e3, allow_subnormal=False),
)
def test_the_cheaper_of_two_sums_is_taken(passes: int, compute: float, fetch: float) -> None:
    kept = compute + passes * fetch  # computed once, read in every pass
    again = passes * compute
    if abs(kept - again) > 1e-9 * (kept + again):
        assert is_cheaper_to_keep(passes, compute, fetch) == (kept < again)


def test_blocks_are_timed_where_they_are_computed(cluster_client: Any) -> None:
    blocks = Blocks(Work(seconds=0.03).features())
    for client in (None, cluster_client):
        with open_executor(client) as executor:
            assert seconds_to_compute(executor, blocks) >= 0.03


def test_what_fails_while_it_is_timed_is_told_by_the_training(cluster_client: Any) -> None:
    X, y = blobs(600, 4, 2)
    X[450, 2] = np.nan
    X[3, 1] = np.inf
    for client in (None, cluster_client):
        with pytest.raises(ValueError, match="X is NaN or infinite in block"):
            rf.SGDClassifier(epochs=5, random_state=0).fit(
                lazy(X, 100) * 2, lazy(y, 100), client=client
            )


@pytest.mark.parametrize("model", [rf.SGDClassifier, rf.SGDRegressor])
def test_every_choice_gives_the_same_bits(
    model: Any, cluster_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs(1500, 6, 3)
    # One worker may have kept blocks that the other learns from.
    Z = rf.RandomFeatures(40, random_state=0).fit(X).transform(lazy(X, 150))
    target = lazy(y, 150)
    wanted = model(epochs=5, random_state=0, persist=False).fit(Z, target)
    for persist, seconds in ((True, 0.0), ("auto", 0.0), ("auto", 1e3)):
        monkeypatch.setattr(base, "seconds_to_compute", lambda *args, s=seconds: s)
        for client in (None, cluster_client):
            found = model(epochs=5, random_state=0, persist=persist).fit(Z, target, client=client)
            assert np.array_equal(found.coef_, wanted.coef_)
            assert np.array_equal(found.intercept_, wanted.intercept_)
            assert found.history_ == wanted.history_


BENCHMARK = Path(__file__).resolve().parents[2] / "workflows" / "benchmarks" / "bench_memory.py"


class Living:
    """Counts arrays that are still in memory."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = self.made = 0

    def make(self, block: Array) -> Array:
        fresh = block + np.float32(0)
        with self.lock:
            self.made += 1
            self.now += 1
            self.most = max(self.most, self.now)
        weakref.finalize(fresh, self._gone)
        return fresh

    def _gone(self) -> None:
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("rows", [40, 400])
def test_a_slow_learner_holds_a_fixed_number_of_blocks(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living()
    X = da.random.default_rng(0).normal(size=(rows * 20, 4), chunks=(20, 4)).astype(np.float32)
    Z = X.map_blocks(living.make, meta=np.empty((0, 0), np.float32))
    y = np.arange(rows * 20) % 2

    def slow(*args: Any) -> TrainingState:
        time.sleep(0.02)
        return train_on_blocks(*args)

    monkeypatch.setattr(training, "train_on_blocks", slow)
    monkeypatch.setattr(training, "preconditioner_rows", lambda n_features: 200)
    rf.SGDClassifier(epochs=1, random_state=0, persist=False).fit(Z, y)
    assert living.made >= rows
    # eight in use, eight ahead, and what the pool's threads have just let go
    assert living.most <= 8 + 8 + 4
    assert living.now <= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slowness", [0, 10])
def test_peak_memory_of_one_and_eight_million_rows(slowness: int) -> None:
    peaks = [
        float(
            subprocess.run(
                [sys.executable, str(BENCHMARK), "--one", str(rows), str(slowness)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()[0]
        )
        for rows in (1_000_000, 8_000_000)
    ]
    print(f"slowness {slowness}: {peaks[0]:.0f} MiB and {peaks[1]:.0f} MiB")
    assert peaks[1] < 1.15 * peaks[0]
