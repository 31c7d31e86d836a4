"""Bad luck in the middle of feature learning: what is killed and resumed ends undisturbed."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import rfcdask as rf
from rfcdask.linear.kernel.optimize import DivergedError
from rfcdask.linear.sgd.training import Checkpoint
from rfcdask.persist.files import DestinationError
from tests.linear.failing import data, dies_at_third_read

ROOT = str(Path(__file__).resolve().parents[2])


def model(**more: Any) -> rf.KernelClassifier:
    given = {"gamma": 0.1, "epochs": 3, "random_state": 1} | more
    return rf.KernelClassifier(10, **given)


def require_same(found: Any, wanted: Any) -> None:
    for name in ("frequencies_", "phases_", "coef_", "intercept_"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
    assert found.history_ == wanted.history_


@pytest.mark.timeout(300)
def test_the_only_worker_killed_while_features_learn(tmp_path: Path) -> None:
    X, y = data()
    at, meta = float(X[1700, 0].compute()), np.empty((0, 0), np.float32)
    patient = {"distributed.deploy.lost-worker-timeout": "5 minutes"}  # on a busy machine
    with (
        dask.config.set(patient),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        undisturbed = model().fit(X, y, client=client)
        before = client.run(os.getpid)
        Z = X.map_blocks(dies_at_third_read, marker=tmp_path, at=at, meta=meta)
        found = model().fit(Z, y, client=client)
        after = client.run(os.getpid)
    assert (tmp_path / "read-4").exists()
    assert set(before.values()) != set(after.values())  # a nanny started another worker
    require_same(found, undisturbed)


SCRIPT = """
import os, pathlib, signal, sys, numpy as np
sys.path.insert(0, {root!r})
import rfcdask as rf
from tests.linear.failing import data, first_time
folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
X, y = data()
seen = []
def count(block):
    if block.size:
        seen.append(1)
    if len(seen) > 65 and first_time(folder, "killed"):  # in the second of three epochs
        os.kill(os.getpid(), number)
    return block
Z = X.map_blocks(count, meta=np.empty((0, 0), np.float32))
model = rf.KernelClassifier(
    10, gamma=0.1, epochs=3, random_state=1,
    checkpoint=folder / "run.ckpt", checkpoint_every=8,
)
rf.save(model.fit(Z, y), folder / "model")
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_process_goes_on_to_the_same_model(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", SCRIPT.format(root=ROOT), str(tmp_path), str(int(number))]
    first = subprocess.run(command, check=False, timeout=200, capture_output=True, text=True)
    assert first.returncode == -number, first.stderr
    assert not (tmp_path / "model").exists()
    assert (tmp_path / "run.ckpt").exists()
    subprocess.run(command, check=True, timeout=200)
    require_same(rf.load(tmp_path / "model"), model().fit(*data()))
    assert not (tmp_path / "run.ckpt").exists()


def test_a_full_disk_for_the_checkpoint_is_said(tmp_path: Path) -> None:
    """The limit on the size of files is that of this process, as a quota is."""
    path = tmp_path / "run.ckpt"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
        with pytest.raises(DestinationError, match=r"no space left for .*run\.ckpt.* make room"):
            model(checkpoint=path, checkpoint_every=1).fit(*data())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []
    model(checkpoint=path).fit(*data())  # the remedy


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_a_checkpoint_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.ckpt"
    path.write_bytes(content)
    for seed in (None, 1):
        with pytest.raises(ValueError, match=r"not a checkpoint that can be read.*; remove it to"):
            model(checkpoint=path, random_state=seed).fit(*data())
    assert path.read_bytes() == content
    path.unlink()
    model(checkpoint=path).fit(*data())


class StoppedError(Exception):
    """In the place of a kill."""


def interrupted(path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Leave a checkpoint of the middle of an epoch, and return what it holds."""
    write, calls = Checkpoint._write, []

    def write_twice(self: Any, *args: Any, **about: Any) -> None:
        write(self, *args, **about)
        calls.append(1)
        if len(calls) == 2:
            raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "_write", write_twice)
        with pytest.raises(StoppedError):
            kind().fit(*data())
    with np.load(path) as stored:
        return dict(stored)


def sgd(**more: Any) -> rf.SGDClassifier:
    return rf.SGDClassifier(epochs=3, random_state=1, alphas=[1e-3, 1e-2], **more)


def scored(**more: Any) -> rf.SGDClassifier:
    return sgd(loss="log_loss", early_stopping=True, scoring="roc_auc", **more)


def odd_counts(counts: list[Any]) -> Iterator[list[Any]]:
    """Change what was counted of rows for an area under the curve, one part at a time."""
    (pairs, ranks, losses), *others = counts
    (levels, most), *more = ranks
    yield [[pairs, [[levels, -1], *more], losses], *others]  # which was gone through for ever
    yield [[pairs, [[[[[["x"], [1.0], [1.0], [0.0, 0.0]]]], most], *more], losses], *others]
    yield [[pairs, [[[[[[0.5], [1.0, 2.0], [1.0], [0.0, 0.0]]]], most], *more], losses], *others]
    yield [[[pairs[0], ["x", *pairs[1][1:]], pairs[2]], ranks, losses], *others]
    yield [[[pairs[0][1:], *pairs[1:]], ranks, losses], *others]
    yield [[pairs, more, losses], *others]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [model, sgd, scored])
def test_a_checkpoint_is_not_believed(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of another size made compiled code write beyond their ends: the process crashed."""
    path = tmp_path / "run.ckpt"
    wanted = kind().fit(*data())

    def again() -> Any:
        return kind(checkpoint=path, checkpoint_every=1)

    good = interrupted(path, again, monkeypatch)
    about = json.loads(str(good["about"]))
    ways = itertools.cycle((lambda v: v[:1], lambda v: v[None], lambda v: v.astype(np.float16)))
    arrays = [name for name in good if name != "about"]
    changes = [{name: change(good[name])} for name, change in zip(arrays, ways, strict=False)]
    records = [("position", [9, 0]), ("position", [0, "a"]), ("history", [{}]), ("history", None)]
    records += [("position", [0, 10**6]), ("position", [0, 0.5])]
    records += [("step", -1), ("gamma", 0), ("gamma", float("nan")), ("loss", ["a", 1])]
    records += [("best", [9, 0.1, 0.1, 0]), ("best", [0, float("nan"), 0.1, 0])]
    records += [("run", about["run"] | {"seed": -1})]
    records += [("run", about["run"] | {"some_rows": odd}) for odd in ([[1, 2], [3]], [["a"]])]
    scalars = about.get("scalars", {})
    odd = odd_counts(scalars["counts"]) if scalars.get("counts") else ()
    records += [("scalars", scalars | {"counts": counts}) for counts in odd]
    for key, value in (("step", "a"), ("left", [5]), ("held_out_loss", [1.0] * 3), ("rows", {})):
        records.append(("scalars", scalars | {key: value}))
    records += [
        ("scalars", scalars | {"left": [0.0, 1.0]}),
        ("scalars", scalars | {"rows": 10**400}),
    ]
    changes += [
        {"about": np.array(json.dumps(about | {key: value}))}
        for key, value in records
        if key in about
    ]
    for change in changes:
        with path.open("wb") as file:
            np.savez(file, **(good | change))
        with pytest.raises(ValueError, match=r"is not a checkpoint that can be read .*; remove it"):
            again().set_params(random_state=None).fit(*data())
    with path.open("wb") as file:
        np.savez(file, **good)
    assert np.array_equal(again().fit(*data()).coef_, wanted.coef_)


@pytest.mark.parametrize("kind", [model, sgd])
@pytest.mark.parametrize("begun_with", [{"chains": 2}, {"scoring": "balanced_accuracy"}])
def test_a_checkpoint_of_other_chains_or_scoring_is_refused(
    tmp_path: Path, kind: Any, begun_with: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called again without them, it went on to a model that neither call has by itself."""
    path = tmp_path / "run.ckpt"
    here: dict[str, Any] = {"checkpoint": path, "checkpoint_every": 1}
    interrupted(path, lambda: kind(**here, **begun_with), monkeypatch)
    with pytest.raises(ValueError, match=r"belongs to another run \((chains|scoring) was"):
        kind(**here).fit(*data())
    wanted, found = kind(**begun_with).fit(*data()), kind(**here, **begun_with).fit(*data())
    assert np.array_equal(found.coef_, wanted.coef_)


@pytest.mark.parametrize("place", [0, 2999])
def test_labels_seen_only_once_are_a_class(place: int) -> None:
    X, y = data()
    labels = np.where(np.arange(3000) == place, 9, y.compute() % 2)
    found = model().fit(X, labels)
    assert found.classes_.tolist() == [0, 1, 9]
    assert found.coef_.shape == (3, 10)
    assert np.isfinite(found.predict_proba(X[:5].compute())).all()


@pytest.mark.parametrize("size", [1e8, 1e30])
@pytest.mark.parametrize("fraction", [0.0, 0.1])
def test_divergence_is_named_with_the_remedy(size: float, fraction: float) -> None:
    X, y = data()
    diverging = model(step_size=size, validation_fraction=fraction)
    with pytest.raises(DivergedError, match=r"Training diverged.*lower step_size"):
        diverging.fit(X, y)
    assert diverging.set_params(step_size=1.0).fit(X, y).score(X, y) > 0.8
