"""A run on sparse rows: a linear model on the columns, maps on projected ones, and predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from distributed import Client
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import SGDClassifier

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.linear.sgd.base import auto_epochs
from rfcdask.persist.models import load
from rfcdask.pipeline import run_job
from tests.linear_data import text_like
from tests.pipeline.helpers import results_of

SMALL = {"sizes": "8", "methods": "random", "n_rows": 300, "n_candidates": 40, "epochs": 1}
SETTINGS = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]
VISITS = 80_000
"""A few percent of what a run has a linear model learn from: still fifty epochs here."""


@pytest.fixture(scope="module", autouse=True)
def fewer_visits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rfcdask.pipeline.training.SPARSE_VISITS", VISITS)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cluster_client: Client) -> Path:
    """Sparse rows as text and as a store, and a run on them that was free to choose."""
    path = tmp_path_factory.mktemp("sparse")
    X, y = text_like(2000, 15_000, 2, seed=0)
    dump_svmlight_file(X, y, str(path / "text.svm"), zero_based=False)
    run_job(str(path / "text.svm"), path / "run", settings=SMALL, scheduler=cluster_client)
    assert call("ingest", path / "text.svm", path / "s.zarr").exit_code == 0
    return path


def call(*command: str | Path) -> Result:
    """Call a command on the threads of this process."""
    return CliRunner().invoke(main, [*map(str, command), "--scheduler", "threads"])


def test_the_linear_model_sees_all_columns_and_is_saved(folder: Path) -> None:
    results = results_of(folder / "run")
    assert results["data"]["sparse"]
    assert results["data"]["projected_columns"] == 500
    stored = rf.open_dataset(folder / "run/data.zarr")
    train, test = stored.split(results["data"]["test_rows"], random_state=0)
    theirs = SGDClassifier(random_state=0).fit(train.X.compute(), train.y.compute())
    wanted = theirs.score(test.X.compute(), test.y.compute())
    model = results["model"]
    assert model["accuracy"] == results["linear"]["accuracy"] >= wanted - 0.01
    assert (model["method"], model["learner"]) == ("none", "sgd")
    aside = model["set_aside"]
    assert aside["accuracy"] < model["accuracy"]
    assert (aside["method"], aside["n_components"]) == ("learned", 8)
    saved = load(folder / "run/model")
    assert saved[-1].n_iter_ == auto_epochs(train.shape[0], VISITS) > 40  # not a few
    assert np.mean(saved.predict(test.X.compute()) == test.y.compute()) == model["accuracy"]
    assert results["recommendation"]["text"] == "Use a linear model on the raw columns."
    assert "It is the model that was saved." in results["recommendation"]["reason"]


def test_the_report_says_which_model_was_saved(folder: Path) -> None:
    page = (folder / "run/report.html").read_text(encoding="utf-8")
    assert "500 projected columns" in page
    assert "none: the linear model on the columns was better" in page
    assert "8 learned features, set aside" in page


def test_text_and_store_get_the_same_predictions(folder: Path) -> None:
    found = []
    for source in ("text.svm", "s.zarr"):
        done = call("predict", folder / "run/model", folder / source, folder / f"{source}.csv")
        assert done.exit_code == 0, done.stderr
        found.append((folder / f"{source}.csv").read_text())
    assert found[0] == found[1]
    assert found[0].count("\n") >= 2000


def test_a_map_that_was_asked_for_is_saved(folder: Path, tmp_path: Path) -> None:
    asked = (*SETTINGS, "--method", "random")
    said = call("run", folder / "s.zarr", "--out", tmp_path / "run", *asked)
    assert said.exit_code == 0, said.stderr
    assert "leave --method random out to save the better one" in said.stdout
    results = results_of(tmp_path / "run")
    assert results["model"]["method"] == "random"
    assert load(tmp_path / "run/model").named_steps["features"].n_components == 8


def test_a_replaced_model_is_scored_again(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Killed after the model was replaced, the run still knows which one it trained."""

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("rfcdask.pipeline.run.write_results", killed)
        with pytest.raises(KeyboardInterrupt):
            run_job(folder / "s.zarr", run, settings=SMALL, scheduler="threads")
    record = run / "phases/09-score.json"
    before = json.loads(record.read_text())["product"]
    record.unlink()
    found = run_job(folder / "s.zarr", run, resume=True, scheduler="threads")["model"]
    assert found["metrics"] == before["metrics"]
    assert found["set_aside"]["metrics"] == before["set_aside"]["metrics"]
    assert found["set_aside"]["accuracy"] < found["accuracy"]


def test_a_linear_model_alone_is_fitted_on_sparse_columns(folder: Path) -> None:
    done = call("fit", folder / "s.zarr", folder / "linear", "--method", "none")
    assert done.exit_code == 0, done.stderr
    stored = rf.open_dataset(folder / "s.zarr")
    model = rf.load(folder / "linear")
    assert model[-1].coef_.shape == (1, stored.shape[1])
    assert np.mean(model.predict(stored.X).compute() == stored.y.compute()) > 0.9


def test_sparse_rows_are_not_standardized(folder: Path) -> None:
    done = call("fit", folder / "s.zarr", folder / "other", "--standardize")
    assert done.exit_code != 0
    assert "centring them would fill every zero" in done.stderr
