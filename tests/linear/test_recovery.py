"""Killed workers, killed processes and tasks tried twice leave no trace in the result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import rfcdask as rf
from rfcdask.linear.sgd import base, training
from rfcdask.linear.sgd.step import (
    TrainingConfig,
    TrainingState,
    preconditioner_from,
    sample_rows,
    train_on_blocks,
)
from rfcdask.linear.sgd.training import Checkpoint
from rfcdask.persist.files import exclusive_lock, lock_path
from tests.linear.failing import data, dies_once, fails_once_a_block, flaky_train
from tests.linear_data import blobs, lazy


def model(**more: Any) -> Any:
    return rf.SGDClassifier(
        **{"alpha": 1e-3, "epochs": 3, "random_state": 1, "persist": False} | more
    )


@pytest.fixture(scope="module")
def mortal() -> Iterator[LocalCluster]:
    """Workers that a nanny starts again whenever they are killed."""
    patient = {"distributed.deploy.lost-worker-timeout": "5 minutes"}  # on a busy machine
    with (
        dask.config.set(patient),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


@pytest.mark.parametrize(("workers", "all_die"), [(2, False), (2, True), (1, True)])
def test_workers_killed_in_the_middle_of_an_epoch(
    workers: int, all_die: bool, tmp_path: Path, mortal: LocalCluster
) -> None:
    X, y = data()
    undisturbed = model().fit(X, y)
    doomed = float(X[1700, 0].compute())
    with Client(mortal, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        mortal.scale(workers)
        while len(client.ncores()) > workers:
            time.sleep(0.05)
        before = client.run(os.getpid)
        others = tuple(before.values()) if all_die else ()
        Z = X.map_blocks(
            dies_once, marker=tmp_path, at=doomed, others=others, meta=np.empty((0, 0), np.float32)
        )
        found = model().fit(Z, y, client=client)
        client.wait_for_workers(workers, timeout=60)
        after = client.run(os.getpid)
    assert (tmp_path / "killed").exists()
    assert set(before.values()) != set(after.values())  # a nanny started another worker
    assert np.array_equal(found.coef_, undisturbed.coef_)
    assert np.array_equal(found.intercept_, undisturbed.intercept_)


@pytest.mark.parametrize("learner", ["sgd", "ridge", "pca"])
def test_blocks_tried_again_change_nothing(
    learner: str, tmp_path: Path, cluster_client: Client
) -> None:
    X, y = data()
    Z = X.map_blocks(fails_once_a_block, marker=tmp_path, meta=np.empty((0, 0), np.float32))
    made = {"sgd": model(), "ridge": rf.RidgeClassifier(), "pca": rf.PCA(3)}[learner]
    attribute = "components_" if learner == "pca" else "coef_"
    undisturbed = np.copy(getattr(made.fit(X, y), attribute))
    assert np.array_equal(getattr(made.fit(Z, y, client=cluster_client), attribute), undisturbed)
    assert len(list(tmp_path.iterdir())) == 30  # each block has failed once


def test_steps_tried_again_never_train_twice(
    tmp_path: Path, cluster_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    X, y = data()
    undisturbed = model().fit(X, y)
    monkeypatch.setattr(training, "train_on_blocks", partial(flaky_train, tmp_path))
    found = model().fit(X, y, client=cluster_client)
    assert np.array_equal(found.coef_, undisturbed.coef_)
    assert len(list(tmp_path.iterdir())) == 3 * 4  # each of four groups in three epochs


def test_learning_changes_none_of_its_arguments() -> None:
    X, y = blobs(400, 5, 3)
    config = TrainingConfig(
        0, 3, 1e-3, 1.0, 100.0, 16, 0, classes=np.arange(3), class_weights=np.ones(3)
    )
    blocks = [(X[:200], y[:200]), (X[200:], y[200:])]
    samples = [sample_rows(config, i, 0.5, block) for i, block in enumerate(blocks)]
    P = preconditioner_from(config, *samples)
    before = TrainingState(np.ones((6, 3)), np.ones((6, 3)))
    first = train_on_blocks(before, config, P, (0, 1), 0, 0, *blocks)
    second = train_on_blocks(before, config, P, (0, 1), 0, 0, *blocks)
    assert np.all(before.W == 1)
    assert np.all(before.mean == 1)
    assert np.array_equal(first.W, second.W)
    assert not np.array_equal(first.W, before.W)
    assert first.step == second.step == 25


class InterruptedRunError(Exception):
    """Stands for anything that ends a run."""


@pytest.mark.parametrize("stop", [1, 3, 4, 6, 11])
@pytest.mark.parametrize("early", [False, True])
def test_resuming_from_any_checkpoint(
    stop: int, early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = data()
    more: dict[str, Any] = {"early_stopping": early, "tol": 0.0, "patience": 3}
    undisturbed = model(**more).fit(X, y)
    path = tmp_path / "deep" / "run.ckpt"
    calls = 0

    def interrupted(*args: Any) -> TrainingState:
        nonlocal calls
        calls += 1
        if calls > stop:
            raise InterruptedRunError
        return train_on_blocks(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_on_blocks", interrupted)
        with pytest.raises(InterruptedRunError):
            model(checkpoint=path, checkpoint_every=8, **more).fit(X, y)
    assert path.exists()
    calls = -100
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_on_blocks", interrupted)
        resumed = model(checkpoint=path, checkpoint_every=8, **more).fit(X, y)
    assert calls == -100 + 12 - stop  # nothing was trained on twice
    assert np.array_equal(resumed.coef_, undisturbed.coef_)
    assert resumed.history_ == undisturbed.history_
    assert not path.exists()


def test_penalties_that_were_dropped_stay_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "DECIDE_ROWS", 1500)  # half of the first of three epochs
    X, y = data()
    path, widths = tmp_path / "run.ckpt", []
    alphas = {"alphas": [10.0, 1e-3, 1.0, 0.1], "early_stopping": True, "patience": 9}
    undisturbed = model(**alphas).fit(X, y)

    def interrupted(state: TrainingState, *args: Any) -> TrainingState:
        widths.append(state.W.shape[1])
        if len(widths) == 7:
            raise InterruptedRunError
        return train_on_blocks(state, *args)

    monkeypatch.setattr(training, "train_on_blocks", interrupted)
    with pytest.raises(InterruptedRunError):
        model(checkpoint=path, checkpoint_every=8, **alphas).fit(X, y)
    resumed = model(checkpoint=path, checkpoint_every=8, **alphas).fit(X, y)
    assert widths[:6] == [12, 12, 6, 6, 6, 3]  # three classes: four, two and one penalty
    assert set(widths[6:]) == {3}
    assert resumed.alpha_ == undisturbed.alpha_ == 1e-3
    assert np.array_equal(resumed.coef_, undisturbed.coef_)


SCRIPT = """
import sys, pathlib, numpy as np
sys.path.insert(0, {root!r})
import rfcdask as rf
from tests.linear.failing import data, dies_once
marker, out = map(pathlib.Path, sys.argv[1:3])
X, y = data()
doomed = float(X[1700, 0].compute())
seen = []
def count(block):
    seen.append(1)
    if len(seen) > 75:
        block = dies_once(block, marker, float(block[0, 0]))
    return block
Z = X.map_blocks(count, meta=np.empty((0, 0), np.float32))
found = rf.SGDClassifier(
    alpha=1e-3, epochs=3, random_state=1, persist=False,
    checkpoint=marker / "run.ckpt", checkpoint_every=4,
).fit(Z, y)
np.save(out, found.coef_)
"""


def test_a_whole_process_killed_and_started_again(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", SCRIPT.format(root=root), str(tmp_path), str(tmp_path / "w")]
    first = subprocess.run(command, check=False, timeout=120)
    assert first.returncode == -signal.SIGKILL
    assert (tmp_path / "run.ckpt").exists()
    subprocess.run(command, check=True, timeout=120)
    undisturbed = model().fit(*data())
    assert np.array_equal(np.load(tmp_path / "w.npy"), undisturbed.coef_)
    assert not (tmp_path / "run.ckpt").exists()


def test_checkpoints_of_other_runs_and_broken_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    X, y = data()
    state = TrainingState(np.zeros((9, 3)), np.zeros((9, 3)))
    Checkpoint(path, {"seed": 1, "model": "SGDClassifier", "rows": 5}).save(state, 0, 1, [])
    with pytest.raises(ValueError, match="belongs to another run"):
        model(checkpoint=path).fit(X, y)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="not a checkpoint that can be read"):
        model(checkpoint=path).fit(X, y)
    state = TrainingState(np.full((9, 3), np.nan), np.zeros((9, 3)))
    Checkpoint(path, {"seed": 1}).save(state, 0, 1, [])
    with pytest.raises(ValueError, match=r"can be read \(it holds values that are not finite\)"):
        model(checkpoint=path).fit(X, y)
    assert path.exists()  # nobody's file is removed


def test_a_run_without_a_seed_is_resumed_with_the_seed_it_drew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = data()
    path = tmp_path / "run.ckpt"
    open_seed = rf.SGDClassifier(epochs=3, checkpoint=path, checkpoint_every=1, persist=False)

    def interrupted(*args: Any) -> TrainingState:
        if args[4] == 1:
            raise InterruptedRunError
        return train_on_blocks(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_on_blocks", interrupted)
        with pytest.raises(InterruptedRunError):
            open_seed.fit(X, y)
    resumed = open_seed.fit(X, y)
    whole = rf.SGDClassifier(epochs=3, random_state=resumed.seed_, persist=False).fit(X, y)
    assert np.array_equal(resumed.coef_, whole.coef_)


@pytest.mark.parametrize(
    "made",
    [
        lambda **more: model(**more),
        lambda **more: rf.KernelClassifier(8, gamma=0.1, epochs=3, random_state=1, **more),
        lambda **more: rf.KernelRegressor(8, gamma=0.1, epochs=3, random_state=1, **more),
    ],
    ids=["sgd", "kernel", "kernel-regressor"],
)
def test_a_checkpoint_knows_the_rows_it_learned_from(
    tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other X of the same shape, chunks and labels is refused; last bits may differ."""
    X, y = data()
    path = tmp_path / "run.ckpt"

    def interrupt(Z: da.Array) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "remove", _raise)
            with pytest.raises(InterruptedRunError):
                made(checkpoint=path, checkpoint_every=1).fit(Z, y)

    interrupt(X)
    for other in (-X, X + 0.5, X[::-1].rechunk(X.chunks)):
        with pytest.raises(ValueError, match=r"some rows of X are others now.*remove it, or give"):
            made(checkpoint=path, checkpoint_every=1).fit(other, y)
    interrupt(X * np.float32(1 + 1e-6))
    with monkeypatch.context() as earlier:
        earlier.setattr("rfcdask.linear.sgd.base.SOME_ROWS", "unknown")  # as older versions wrote
        Checkpoint(path, {}).remove()
        interrupt(X)
    made(checkpoint=path, checkpoint_every=1).fit(X, y)
    assert not path.exists()


@pytest.mark.parametrize(
    "made",
    [
        lambda **more: rf.SGDRegressor(epochs=3, random_state=1, **more),
        lambda **more: rf.KernelRegressor(8, gamma=0.1, epochs=3, random_state=1, **more),
        lambda **more: model(**more),
    ],
    ids=["sgd", "kernel", "classifier"],
)
def test_a_checkpoint_knows_the_targets_and_weights_it_learned_from(
    tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were not looked at, and the model was of the old ones and the new ones."""
    X, y = data()
    weights = 1.0 + da.arange(len(y), chunks=X.chunks[0]) % 3
    careful = made(checkpoint=tmp_path / "run.ckpt", checkpoint_every=1)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", _raise)
        with pytest.raises(InterruptedRunError):
            careful.fit(X, y, sample_weight=weights)
    others = [(y, weights[::-1].rechunk(weights.chunks))]
    if not isinstance(careful, rf.SGDClassifier):
        others += [(y * 1.1, weights), (y[::-1].rechunk(y.chunks), weights)]
    for changed in others:
        with pytest.raises(ValueError, match="some values of y or sample_weight are others now"):
            careful.fit(X, *changed)
    whole = made().fit(X, y, sample_weight=weights)
    assert np.array_equal(careful.fit(X, y, sample_weight=weights).coef_, whole.coef_)


def _raise(*_: Any) -> None:
    raise InterruptedRunError


def test_a_checkpoint_that_another_process_writes_is_said(tmp_path: Path) -> None:
    X, y = blobs(1000, 5, 2)
    place = tmp_path / "training.npz"
    model = rf.SGDClassifier(epochs=2, random_state=0, checkpoint=place)
    held = exclusive_lock(lock_path(place), RuntimeError("taken"))
    with held, pytest.raises(FileExistsError, match="another process is writing"):
        model.fit(lazy(X, 100), lazy(y, 100))
    assert not place.exists()
    model.fit(lazy(X, 100), lazy(y, 100))
    assert not lock_path(place).exists()


def test_going_on_from_the_last_checkpoint_chooses_the_same_penalty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rows held out said in the last epoch was not in the file that was written after it."""
    X, y = data()
    path = tmp_path / "run.ckpt"
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", _raise)
        with pytest.raises(InterruptedRunError):
            model(alpha="auto", checkpoint=path, checkpoint_every=1).fit(X, y)
    resumed = model(alpha="auto", checkpoint=path, checkpoint_every=1).fit(X, y)
    undisturbed = model(alpha="auto").fit(X, y)
    assert resumed.alpha_ == undisturbed.alpha_
    assert np.array_equal(resumed.coef_, undisturbed.coef_)
