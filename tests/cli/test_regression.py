"""Numbers to predict through every command, against scikit-learn on the same features."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler

import rfcdask as rf
from rfcdask.cli import main
from tests.customers import customers

ROWS, NEW = 1200, 400


def call(*words: Any) -> Any:
    done = CliRunner().invoke(main, list(map(str, words)))
    assert done.exit_code == 0, done.stderr
    return done


def houses() -> pd.DataFrame:
    """Columns on very different scales, as those of the California houses."""
    draw = np.random.default_rng(0)
    n = ROWS + NEW
    table = pd.DataFrame(
        {
            "income": draw.lognormal(1.2, 0.5, n),
            "age": draw.integers(1, 53, n),
            "rooms": draw.lognormal(1.6, 0.3, n),
            "people": draw.lognormal(7, 0.8, n),
            "latitude": draw.uniform(32, 42, n),
            "longitude": draw.uniform(-124, -114, n),
        }
    )
    near = np.exp(-((table["latitude"] - 34) ** 2 + (table["longitude"] + 118) ** 2) / 4)
    value = 0.4 * table["income"] + 2 * near + 0.01 * table["age"]
    return table.assign(value=value + draw.normal(0, 0.3, n))


def switches() -> pd.DataFrame:
    """Columns of 0 and 1, of which about a tenth are 1, as those of a9a."""
    draw = np.random.default_rng(1)
    X = (draw.random((ROWS + NEW, 40)) < 0.12).astype(int)
    table = pd.DataFrame(X, columns=[f"s{i}" for i in range(40)])
    return table.assign(value=X @ draw.normal(size=40) + draw.normal(0, 0.5, len(X)))


@pytest.fixture(scope="module", params=[houses, switches])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows to learn from, new rows, and a store."""
    folder = tmp_path_factory.mktemp("numbers")
    table = request.param()
    table.head(ROWS).to_csv(folder / "table.csv", index=False)
    table.tail(NEW).to_csv(folder / "new.csv", index=False)
    call("ingest", folder / "table.csv", folder / "s.zarr", "--label", "value", "-q")
    return folder


def test_fit_and_predict_are_those_of_ridge(place: Path) -> None:
    how = ("--method", "none", "--learner", "ridge", "-q")
    call("fit", place / "s.zarr", place / "model", *how)
    call("predict", place / "model", place / "new.csv", place / "out.csv", "-q")
    with open(place / "out.csv", newline="") as file:
        predicted = [float(row[0]) for row in list(csv.reader(file))[1:]]
    old, new = (pd.read_csv(place / name) for name in ("table.csv", "new.csv"))
    scaler = StandardScaler().fit(old.drop(columns="value"))
    theirs = Ridge().fit(scaler.transform(old.drop(columns="value")), old["value"])
    wanted = theirs.score(scaler.transform(new.drop(columns="value")), new["value"])
    assert r2_score(new["value"], predicted) == pytest.approx(wanted, abs=0.01)
    scored = json.loads(call("score", place / "model", place / "new.csv", "--json").stdout)
    assert scored["score"] == pytest.approx(r2_score(new["value"], predicted), abs=1e-5)


def test_run_beside_ridge_on_the_same_rows(place: Path) -> None:
    few = (
        "--methods",
        "random,boosting",
        "--sizes",
        "20",
        "--epochs",
        "1",
        "--scheduler",
        "threads",
    )
    call("run", place / "s.zarr", "--out", place / "run", *few, "-q")
    results = json.loads((place / "run" / "results.json").read_text())
    rows = results["data"]["test_rows"]
    train, test = rf.open_dataset(place / "s.zarr").split(rows, random_state=0)
    used = results["settings"]["standardize"]
    X, X_test = train.X.compute(), test.X.compute()
    if used:
        scaler = StandardScaler().fit(rf.open_dataset(place / "s.zarr").X.compute())
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    wanted = Ridge().fit(X, train.y.compute()).score(X_test, test.y.compute())
    assert results["scoring"] == "r2"
    assert results["linear"]["metrics"]["r2"] == pytest.approx(wanted, abs=0.01)
    assert results["model"]["metrics"]["r2"] >= results["linear"]["metrics"]["r2"]
    assert results["boosting"]["r2"] > 0.3
    assert len(results["points"]) == min(rows, 1000)
    page = (place / "run" / "report.html").read_text(encoding="utf-8")
    assert "Predicted against true values" in page


def test_tune_and_compare_judge_numbers(place: Path) -> None:
    tuned = json.loads(call("tune", place / "s.zarr", "--n-rows", "300", "--json", "-q").stdout)
    assert tuned["gamma"] > 0
    few = ("--methods", "random,boosting", "--n-components", "20", "--json", "-q")
    words = ("compare", place / "s.zarr", "--scoring", "neg_mean_absolute_error", *few)
    found = json.loads(call(*words).stdout)
    assert {row["method"] for row in found} == {"random", "boosting"}
    assert all(row["neg_mean_absolute_error"] < 0 < row["r2"] for row in found)


def test_probabilities_through_fit(tmp_path: Path) -> None:
    customers(0, 1500).to_csv(tmp_path / "t.csv", index=False)
    customers(1, 300).to_csv(tmp_path / "n.csv", index=False)
    how = ("--label", "status", "--method", "none", "--learner", "svm", "--calibration", "sigmoid")
    call("fit", tmp_path / "t.csv", tmp_path / "m", *how, "-q")
    call(
        "predict",
        tmp_path / "m",
        tmp_path / "n.csv",
        tmp_path / "p.csv",
        "--output",
        "probabilities",
        "-q",
    )
    found = pd.read_csv(tmp_path / "p.csv").select_dtypes("number").to_numpy()
    assert found.shape == (300, 3)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    new = customers(1, 300)
    wanted = rf.load(tmp_path / "m").predict_proba(new.drop(columns="status"))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
