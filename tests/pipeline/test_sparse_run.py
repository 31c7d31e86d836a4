"""A run on sparse rows: a linear model on the columns, maps on projected ones, and predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import SGDClassifier

import rfcdask as rf
from rfcdask.cli import main
from tests.linear_data import text_like
from tests.programs import run_cli

SMALL = {"sizes": "8", "methods": "random", "method": "random", "n_rows": 300, "n_candidates": 40}
SETTINGS = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sparse")
    X, y = text_like(2000, 15_000, 2, seed=0)
    dump_svmlight_file(X, y, str(path / "text.svm"), zero_based=False)
    done = run_cli("run", "text.svm", "--out", "run", *SETTINGS, cwd=path)  # on a local cluster
    assert done.returncode == 0, done.stderr
    assert call("ingest", path / "text.svm", path / "s.zarr").exit_code == 0
    return path


def call(*command: str | Path) -> Result:
    """Call a command on the threads of this process."""
    return CliRunner().invoke(main, [*map(str, command), "--scheduler", "threads"])


def test_the_linear_model_sees_all_columns(folder: Path) -> None:
    results = json.loads((folder / "run/results.json").read_text())
    assert results["data"]["sparse"]
    assert results["data"]["projected_columns"] == 500
    page = (folder / "run/report.html").read_text(encoding="utf-8")
    assert "500 projected columns" in page
    stored = rf.open_dataset(folder / "run/data.zarr")
    train, test = stored.split(results["data"]["test_rows"], random_state=0)
    theirs = SGDClassifier(random_state=0).fit(train.X.compute(), train.y.compute())
    wanted = theirs.score(test.X.compute(), test.y.compute())
    assert results["linear"]["accuracy"] >= wanted - 0.01


def test_text_and_store_get_the_same_predictions(folder: Path) -> None:
    found = []
    for source in ("text.svm", "s.zarr"):
        done = call("predict", folder / "run/model", folder / source, folder / f"{source}.csv")
        assert done.exit_code == 0, done.stderr
        found.append((folder / f"{source}.csv").read_text())
    assert found[0] == found[1]
    assert found[0].count("\n") >= 2000


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
