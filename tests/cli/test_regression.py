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
from sklearn.compose import TransformedTargetRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_score
from sklearn.preprocessing import StandardScaler

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.evaluation.evaluate import Judge
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


def test_compare_judges_with_ridge(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("--methods", "random,boosting", "--n-components", "20", "--json", "-q")
    words = ("compare", place / "s.zarr", "--scoring", "neg_mean_absolute_error", *few)
    found = json.loads(call(*words).stdout)
    assert {row["method"] for row in found} == {"random", "boosting"}
    assert all(row["neg_mean_absolute_error"] < 0 < row["r2"] for row in found)
    monkeypatch.setattr(Judge, "ridge", lambda self: Ridge())  # on the same features
    theirs = json.loads(call(*words).stdout)
    assert found[0]["r2"] == pytest.approx(theirs[0]["r2"], abs=0.01)


def test_tune_finds_what_kernel_ridge_and_ridge_reach(place: Path) -> None:
    tried = ("--n-rows", ROWS, "--gammas", "0.01,0.1", "--Cs", "1,10", "--strategy", "grid")
    words = ("tune", place / "s.zarr", "--out", place / "tuned.json", "--folds", "3", *tried)
    tuned = json.loads(call(*words, "--json", "-q").stdout)
    store = rf.open_dataset(place / "s.zarr")
    X, y = store.X.compute().astype(float), store.y.compute()
    X = StandardScaler().fit_transform(X) if tuned["standardize"] else X
    machine = KernelRidge(kernel="rbf", gamma=tuned["gamma"], alpha=1 / tuned["C"])
    centred = TransformedTargetRegressor(machine, transformer=StandardScaler(with_std=False))
    wanted = cross_val_score(centred, X, y, cv=KFold(3, shuffle=True, random_state=1)).mean()
    assert tuned["score"] == pytest.approx(wanted, abs=0.01)
    # a model of what was tuned, beside scikit-learn's ridge on its features
    how = ("--tuned", place / "tuned.json", "--method", "random", "--n-components", "100")
    call("fit", place / "s.zarr", place / "tuned", *how, "--learner", "ridge", "--overwrite", "-q")
    model, new = rf.load(place / "tuned"), pd.read_csv(place / "new.csv")
    given = new.drop(columns="value").to_numpy()
    Z, Z_new = (model[:-1].transform(rows) for rows in (store.X, given))
    theirs = Ridge(alpha=model[-1].alpha).fit(Z.compute(), y)
    scored = json.loads(call("score", place / "tuned", place / "new.csv", "--json").stdout)
    assert scored["score"] == pytest.approx(theirs.score(Z_new, new["value"]), abs=0.01)


def two_targets(n: int = 900) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    table = pd.DataFrame({"size": draw.lognormal(4, 0.5, n), "town": draw.choice(["A", "B"], n)})
    price = 50 * table["size"] * (1 + (table["town"] == "A")) + draw.normal(0, 300, n)
    return table.assign(price=price, rent=price / 300 + draw.normal(0, 1, n))


def test_several_targets_go_through_every_command(tmp_path: Path) -> None:
    table = two_targets()
    table.to_csv(tmp_path / "t.csv", index=False)
    table[["rent", "town", "price", "size"]].head(300).to_csv(tmp_path / "new.csv", index=False)
    call("ingest", tmp_path / "t.csv", tmp_path / "s.zarr", "--label", "price,rent", "--shuffle")
    call("ingest", tmp_path / "new.csv", tmp_path / "n.zarr", "--label", "rent", "--label", "price")
    how = ("--method", "none", "--learner", "ridge", "-q")
    call("fit", tmp_path / "t.csv", tmp_path / "m", "--label", "price,rent", *how)
    call("predict", tmp_path / "m", tmp_path / "new.csv", tmp_path / "p.csv", "-q")
    predicted = pd.read_csv(tmp_path / "p.csv")
    assert list(predicted) == ["predicted price", "predicted rent"]
    X = pd.get_dummies(table[["town", "size"]]).astype(float)
    theirs = Ridge().fit(StandardScaler().fit_transform(X), table[["price", "rent"]])
    wanted = theirs.score(StandardScaler().fit(X).transform(X.head(300)), table.iloc[:300, 2:])
    found = json.loads(call("score", tmp_path / "m", tmp_path / "new.csv", "--json").stdout)
    assert found["score"] == pytest.approx(wanted, abs=0.01)
    each = r2_score(table.iloc[:300, 2:], predicted, multioutput="raw_values")
    np.testing.assert_allclose(found["targets"]["r2"], each, atol=1e-4)
    assert found["target_names"] == ["price", "rent"]
    judged = ("--methods", "random,boosting", "--json", "-q")
    compared = json.loads(
        call("compare", tmp_path / "s.zarr", *judged, "--n-components", "30").stdout
    )
    assert all(0.5 < row["r2"] <= 1 for row in compared)
    tuned = ("tune", tmp_path / "s.zarr", "--n-rows", "200", "--folds", "2", "--gammas", "0.1")
    assert json.loads(call(*tuned, "--json", "-q").stdout)["scoring"] == "r2"
    few = ("--methods", "random", "--sizes", "20", "--epochs", "1", "--scheduler", "threads", "-q")
    call("run", tmp_path / "s.zarr", "--out", tmp_path / "run", *few)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["target"] for row in results["targets"]] == ["price", "rent"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "rent: Predicted against true values" in page


def test_targets_of_a_store_are_matched_by_name(tmp_path: Path) -> None:
    table = two_targets(400).drop(columns="town")
    swapped = table[["rent", "price", "size"]]
    for name, frame in (("a", table), ("b", swapped)):
        order = [column for column in frame if column != "size"]
        rf.ingest(frame, tmp_path / f"{name}.zarr", label=order)
    how = ("--method", "none", "--learner", "ridge", "-q")
    call("fit", tmp_path / "a.zarr", tmp_path / "m", *how)
    first, other = (
        json.loads(call("score", tmp_path / "m", tmp_path / f"{name}.zarr", "--json").stdout)
        for name in "ab"
    )
    np.testing.assert_allclose(first["targets"]["r2"], other["targets"]["r2"], rtol=1e-9)
    rf.ingest(table.drop(columns="rent"), tmp_path / "one.zarr", label="price")
    done = CliRunner().invoke(main, ["score", str(tmp_path / "m"), str(tmp_path / "one.zarr")])
    assert done.exit_code != 0
    assert "the targets 'price', 'rent'" in done.stderr
    assert "pass --label" not in done.stderr  # which a store does not take


def test_score_says_that_labels_are_of_another_type(tmp_path: Path) -> None:
    """The remedy was one of Python, y.astype(str), which nobody can type here."""
    table = two_targets(60).drop(columns="town")
    table["dear"] = table["price"] > table["price"].median()
    table.to_csv(tmp_path / "t.csv", index=False)
    stored = rf.ingest(table, tmp_path / "t.zarr", label="dear")
    rf.save(rf.RidgeClassifier().fit(stored.X, stored.y), tmp_path / "m")
    rows = [str(tmp_path / name) for name in ("m", "t.csv")]
    done = CliRunner().invoke(main, ["score", *rows, "--label", "dear"])
    assert done.exit_code == 2
    assert "'False', 'True', and those that the model learned False, True" in done.stderr


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
