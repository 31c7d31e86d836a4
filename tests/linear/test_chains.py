"""Chains: groups of blocks that are learned from side by side, and the mean of what they find."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.execution.blocks import Blocks
from rfcdask.execution.executor import open_executor
from rfcdask.linear.sgd import training
from rfcdask.linear.sgd.step import TrainingConfig, TrainingState, join_chains, train_on_blocks
from tests.linear_data import blobs, lazy

MODELS = {
    "sgd": lambda **more: rf.SGDClassifier(epochs=2, random_state=3, **more),
    "sgd-regressor": lambda **more: rf.SGDRegressor(epochs=2, random_state=3, **more),
    "kernel": lambda **more: rf.KernelClassifier(6, gamma=0.1, epochs=2, random_state=3, **more),
    "kernel-regressor": lambda **more: rf.KernelRegressor(
        6, gamma=0.1, epochs=2, random_state=3, **more
    ),
}


def data(rows: int = 170) -> tuple[Any, Any]:
    X, y = blobs(3000, 6, 2)
    return lazy(X, rows), lazy(y, rows)


@pytest.mark.parametrize("name", MODELS)
def test_workers_do_not_change_what_chains_find(name: str, cluster_client: Client) -> None:
    X, y = data()
    found = MODELS[name](chains=3).fit(X, y)
    with dask.config.set(scheduler="synchronous"):
        alone = MODELS[name](chains=3).fit(X, y)
    on_workers = MODELS[name](chains=3).fit(X, y, client=cluster_client)
    assert np.array_equal(found.coef_, alone.coef_)
    assert np.array_equal(found.coef_, on_workers.coef_)
    assert found.history_ == on_workers.history_
    one = MODELS[name]().fit(X, y)
    assert not np.array_equal(found.coef_, one.coef_)
    assert found.score(X, y) > one.score(X, y) - 0.02


def record(folder: Path, *args: Any) -> TrainingState:
    (folder / str(os.getpid())).touch()
    return train_on_blocks(*args)


def test_chains_run_on_different_workers(
    tmp_path: Path, cluster_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train_on_blocks", partial(record, tmp_path))
    X, y = data()
    features = rf.RandomFeatures(20, gamma=0.1, random_state=0).fit(X)
    model = MODELS["sgd"](chains=2).fit(features.transform(X), y, client=cluster_client)
    workers = cluster_client.run(os.getpid).values()
    assert {int(path.name) for path in tmp_path.iterdir()} == set(workers)
    monkeypatch.undo()
    assert np.array_equal(model.coef_, MODELS["sgd"](chains=2).fit(features.transform(X), y).coef_)


def test_a_chain_reads_its_blocks_by_itself(cluster_client: Client) -> None:
    X, y = data()
    blocks = Blocks(X.map_blocks(add, 1.0, dtype=X.dtype), y)
    before = set(cluster_client.futures)  # an error of another test may keep one alive
    with open_executor(cluster_client) as executor:
        handles = [executor.unread(blocks, index) for index in (2, 5)]
        task = executor.call(sum_of_blocks, 0.5, *handles)
        assert executor.result(task) == pytest.approx(0.5 + float((X.blocks[[2, 5]] + 1).sum()))
        assert len(set(cluster_client.futures) - before) == 1  # no block is a task of its own
        for handle in (*handles, task):
            executor.release(handle)
    kept = cluster_client.persist(X)
    with open_executor(cluster_client) as executor:  # blocks that are kept are not made again
        task = executor.call(sum_of_blocks, 0.5, executor.unread(Blocks(kept, y), 2))
        assert executor.result(task) == pytest.approx(0.5 + float(X.blocks[2].sum()))


def add(block: Any, number: float) -> Any:
    return block + number


def sum_of_blocks(start: float, *blocks: Any) -> float:
    return start + sum(float(X.sum()) for X, _ in blocks)


@settings(max_examples=30, deadline=None)
@given(
    taken=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    before=st.integers(0, 9),
    seed=st.integers(0, 9),
)
def test_the_mean_weighs_chains_by_their_steps(taken: list[int], before: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = TrainingConfig(0, 1, 1e-3, 1.0, 100.0, 16, 0, chains=len(taken))
    start = TrainingState(np.zeros((3, 1)), np.zeros((3, 1)), before, loss=2.0, rows=5.0)
    ends = [
        start._replace(W=rng.normal(size=(3, 1)), step=before + steps, loss=2.0 + k, rows=6.0 + k)
        for k, steps in enumerate(taken)
    ]
    found = join_chains(start, ends, config)
    expected = np.average([end.W for end in ends], axis=0, weights=taken)
    assert np.allclose(found.W, expected)
    assert found.loss == pytest.approx(2.0 + sum(range(len(taken))))
    assert found.rows == pytest.approx(5.0 + sum(1 + k for k in range(len(taken))))
    assert before + min(taken) <= found.step <= before + max(taken)


def test_chains_drop_penalties_where_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    from rfcdask.linear.sgd import base

    monkeypatch.setattr(base, "DECIDE_ROWS", 500)
    widths = []

    def seen(state: TrainingState, *args: Any) -> TrainingState:
        widths.append(state.W.shape[1])
        return train_on_blocks(state, *args)

    monkeypatch.setattr(training, "train_on_blocks", seen)
    alphas = {"alphas": [10.0, 1e-3, 1.0, 0.1], "early_stopping": True}
    model = MODELS["sgd"](chains=2, **alphas).fit(*data())
    assert widths[:2] == [4, 4]  # both chains of the first round
    assert widths[-2:] == [1, 1]
    assert model.alpha_ == 1e-3
