"""A run on sparse rows: a linear model on the columns, maps on projected ones, and predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import SGDClassifier

import rfcdask as rf
from tests.linear_data import text_like
from tests.programs import run_cli

SMALL = {"sizes": "8", "methods": "random", "method": "random", "n_rows": 300, "n_candidates": 40}
SETTINGS = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sparse")
    X, y = text_like(3000, 15_000, 2, seed=0)
    dump_svmlight_file(X, y, str(path / "text.svm"), zero_based=False)
    for command in (
        ["run", "text.svm", "--out", "run", *SETTINGS],
        ["ingest", "text.svm", "s.zarr"],
    ):
        done = run_cli(*command, cwd=path)
        assert done.returncode == 0, done.stderr
    return path


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
        done = run_cli("predict", "run/model", source, f"{source}.csv", cwd=folder)
        assert done.returncode == 0, done.stderr
        found.append((folder / f"{source}.csv").read_text())
    assert found[0] == found[1]
    assert found[0].count("\n") >= 3000


def test_a_linear_model_alone_is_fitted_on_sparse_columns(folder: Path) -> None:
    done = run_cli("fit", "s.zarr", "linear", "--method", "none", cwd=folder)
    assert done.returncode == 0, done.stderr
    stored = rf.open_dataset(folder / "s.zarr")
    model = rf.load(folder / "linear")
    assert model[-1].coef_.shape == (1, stored.shape[1])
    assert np.mean(model.predict(stored.X).compute() == stored.y.compute()) > 0.9


def test_sparse_rows_are_not_standardized(folder: Path) -> None:
    done = run_cli("fit", "s.zarr", "other", "--standardize", cwd=folder)
    assert done.returncode != 0
    assert "centring them would fill every zero" in done.stderr
