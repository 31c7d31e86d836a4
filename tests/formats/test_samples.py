"""Stores, models and run folders that earlier versions wrote still open and mean the same.

``make_samples.py`` wrote the archives: stores-1 before stores had a manifest, stores-2 with it.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import rfcdask as rf
from rfcdask.pipeline.settings import renamed
from tests.programs import run_cli

ARCHIVES = ("stores-1", "stores-2")
MAPS = ("random", "compressed", "jl", "nystroem", "standardizer", "pca")
MODELS = ("sgd", "sgd-regressor", "ridge", "ridge-classifier", "pipeline")


@pytest.fixture(scope="module", params=ARCHIVES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    with tarfile.open(Path(__file__).with_name(f"{request.param}.tar.xz")) as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "expected.npz") as stored:
        return dict(stored)


@pytest.mark.filterwarnings("ignore:.* was written by an earlier version:UserWarning")
def test_stores_open(folder: Path, expected: dict[str, np.ndarray]) -> None:
    store = rf.open_dataset(folder / "store.zarr")
    assert list(store.classes) == ["other", "same"]
    np.testing.assert_array_equal(store.X.compute(), expected["X"])
    np.testing.assert_array_equal(store.y.compute(), expected["y"])


def test_sparse_stores_open(tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).with_name("sparse-3.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    store = rf.open_dataset(tmp_path / "sparse.zarr")
    store.verify()
    with np.load(tmp_path / "expected.npz") as expected:
        np.testing.assert_array_equal(store.X.compute().toarray(), expected["X"])
        np.testing.assert_array_equal(store.y.compute(), expected["y"])


@pytest.mark.parametrize("name", MAPS + MODELS)
def test_models_load(folder: Path, expected: dict[str, np.ndarray], name: str) -> None:
    model = rf.load(folder / "models" / name)
    wanted = expected[name]
    found = getattr(model, "transform" if name in MAPS else "predict")(expected["X"][: len(wanted)])
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, wanted)


def rfcdask(*args: str, cwd: Path) -> None:
    done = run_cli(*args, cwd=cwd)
    assert done.returncode == 0, done.stderr


def test_finished_runs_are_read(folder: Path) -> None:
    rfcdask("report", "run/results.json", "again.html", cwd=folder)
    assert "</html>" in (folder / "again.html").read_text(encoding="utf-8")
    model = rf.load(folder / "run" / "model")
    assert model.predict(np.zeros((2, 28), np.float32)).shape == (2,)


def test_interrupted_runs_are_resumed(folder: Path) -> None:
    rfcdask("run", "--resume", "--out", "interrupted", cwd=folder)
    again, undisturbed = (
        json.loads((folder / name / "results.json").read_text()) for name in ("interrupted", "run")
    )
    before = renamed(undisturbed["settings"])  # settings that came later have their defaults
    assert {name: again["settings"][name] for name in before} == before
    # The rows held out are the same; how the penalty is chosen has changed since.
    counted = [np.sum(run["confusion"]["matrix"], axis=1) for run in (again, undisturbed)]
    np.testing.assert_array_equal(*counted)
    right = np.trace(again["confusion"]["matrix"]) / counted[0].sum()
    assert again["model"]["accuracy"] == pytest.approx(right)
