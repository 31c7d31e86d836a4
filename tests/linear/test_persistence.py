"""Features are kept or computed again, whichever is cheaper, and the model is the same."""

from __future__ import annotations

import time
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.execution.blocks import Blocks
from rfcdask.execution.executor import open_executor
from rfcdask.kernels.arrays import Array
from rfcdask.linear.sgd import training as persistence
from rfcdask.linear.sgd.training import is_cheaper_to_keep, seconds_to_compute
from tests.linear_data import blobs, lazy

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


def test_dear_features_are_kept() -> None:
    work = Work(seconds=0.02)  # against microseconds of reading 5 kB again
    train("auto", work)
    assert work.calls == N_BLOCKS + 2  # two to measure by


@pytest.mark.parametrize(("seconds", "kept"), [(0.0, False), (1.0, True)])
def test_the_measured_time_decides(
    seconds: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "seconds_to_compute", lambda executor, blocks: seconds)
    work = Work()
    train("auto", work)
    assert work.calls == N_BLOCKS if kept else work.calls >= RECOMPUTED


def test_without_room_nothing_is_kept_or_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> float:
        raise AssertionError("measured in vain")

    monkeypatch.setattr(persistence, "seconds_to_compute", refuse)
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

    monkeypatch.setattr(persistence, "seconds_to_compute", refuse)
    X, y = blobs(500, 6, 2)
    rf.SGDClassifier(random_state=0).fit(X, y)
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
            rf.SGDClassifier(random_state=0).fit(lazy(X, 100) * 2, lazy(y, 100), client=client)


@pytest.mark.parametrize("model", [rf.SGDClassifier, rf.SGDRegressor])
def test_every_choice_gives_the_same_bits(
    model: Any, cluster_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs(1500, 6, 3)
    # One worker may have kept blocks that the other learns from.
    Z = rf.RandomFeatures(40, random_state=0).fit(X).transform(lazy(X, 150))
    target = lazy(y, 150)
    wanted = model(random_state=0, persist=False).fit(Z, target)
    for persist, seconds in ((True, 0.0), ("auto", 0.0), ("auto", 1e3)):
        monkeypatch.setattr(persistence, "seconds_to_compute", lambda *args, s=seconds: s)
        for client in (None, cluster_client):
            found = model(random_state=0, persist=persist).fit(Z, target, client=client)
            assert np.array_equal(found.coef_, wanted.coef_)
            assert np.array_equal(found.intercept_, wanted.intercept_)
            assert found.history_ == wanted.history_
