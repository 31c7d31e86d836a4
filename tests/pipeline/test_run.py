"""What a run finds, against other ways to the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier as SklearnRidge
from sklearn.metrics import confusion_matrix

import rfcdask as rf
from rfcdask.execution.cluster import current_client
from rfcdask.pipeline import comparable, run_job
from tests.pipeline.helpers import SMALL, results_of


def parts(folder: Path, test_rows: int = 400) -> tuple[Any, Any]:
    """Split as the run does, from the store as it lies there."""
    return rf.open_dataset(folder / "data.zarr").split(test_rows, random_state=0)


def test_the_saved_model_gives_the_reported_confusion(whole: Path) -> None:
    results = results_of(whole)
    _, test = parts(whole)
    X, y = test.X.compute(), test.y.compute()
    model = rf.load(whole / "model")  # takes rows as they are in the store
    wanted = confusion_matrix(y, model.predict(X))
    assert results["confusion"] == {"labels": ["0", "1"], "matrix": wanted.tolist()}
    assert results["model"]["accuracy"] == pytest.approx(np.trace(wanted) / 400)
    assert results["model"]["path"] == "model"


def test_the_linear_baseline_is_that_of_scikit_learn(whole: Path) -> None:
    train, test = (part.standardize() for part in parts(whole))
    exact = SklearnRidge().fit(train.X.compute().astype(float), train.y.compute())
    wanted = exact.score(test.X.compute().astype(float), test.y.compute())
    assert results_of(whole)["linear"]["accuracy"] == pytest.approx(wanted, abs=2e-3)


def test_results_hold_every_section(whole: Path) -> None:
    results = results_of(whole)
    assert list(results) == [
        "format",
        "rfcdask",
        "created",
        "command",
        "seed",
        "scoring",
        "settings",
        "asked",
        "versions",
        "machine",
        "data",
        "plan",
        "kernel",
        "selection",
        "comparison",
        "boosting",
        "linear",
        "model",
        "confusion",
        "points",
        "targets",
        "importances",
        "warnings",
        "phases",
        "recommendation",
    ]
    data, selection = results["data"], results["selection"]
    assert (data["rows"], data["train_rows"], data["test_rows"]) == (2000, 1600, 400)
    assert sum(data["class_counts"]) == 2000
    assert data["blocks"] > 1
    assert selection["sizes"] == list(range(1, 17))
    assert len(selection["weights"]) == selection["chosen_size"] == 16
    assert selection["refined_heldout"] <= selection["heldout"][-1]
    compared = [(row["method"], row["n_components"]) for row in results["comparison"]]
    assert compared == [(method, size) for method in SMALL["methods"] for size in (8, 16)]  # type: ignore[attr-defined]
    assert [phase["name"] for phase in results["phases"]] == [
        "data",
        "plan",
        "sample",
        "linear",
        "kernel",
        "select",
        "compare",
        "train",
        "score",
    ]
    assert all(phase["peak_bytes"] > 50e6 for phase in results["phases"])
    assert results["kernel"]["rule"] == "median"
    assert "<html" in (whole / "report.html").read_text()


def test_learned_features_are_the_final_model(whole: Path) -> None:
    results = results_of(whole)
    model = rf.load(whole / "model")["learner"]
    assert isinstance(model, rf.KernelClassifier)
    assert results["model"]["method"] == "learned"
    assert results["model"]["gamma"] == model.gamma_ != results["kernel"]["gamma"]
    assert results["model"]["epochs"] == len(results["model"]["history"]) == 2
    rows = [row for row in results["comparison"] if row["method"] == "learned"]
    assert [row["kernel_error"] for row in rows] == [None, None]
    page = (whole / "report.html").read_text()
    assert "Learned features do not approximate the kernel" in page
    columns = results["importances"]["columns"]
    assert all(row["gradient"] > 0 for row in columns)
    assert "size of the gradient" in page


def test_workers_change_nothing_and_seeds_do(
    whole: Path, tmp_path: Path, cluster_client: Any
) -> None:
    other = run_job(None, tmp_path / "two", settings=SMALL, scheduler=cluster_client)
    assert other["machine"]["workers"] == 2
    assert comparable(other) == comparable(results_of(whole))
    few = {"methods": ["random"], "method": "random", "random_state": 1}
    seeded = run_job(None, tmp_path / "seed", settings=SMALL | few, scheduler="threads")
    wanted = [row for row in other["comparison"] if row["method"] == "random"]
    for row, before in zip(seeded["comparison"], wanted, strict=True):
        assert row["accuracy"] != before["accuracy"]


def test_few_rows_are_trained_on_without_the_cluster(
    tmp_path: Path, cluster_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = []
    fit = rf.KernelClassifier.fit

    def watched(model: Any, X: Any, y: Any, client: Any = None) -> Any:
        clients.append(current_client(client))
        return fit(model, X, y, client=client)

    monkeypatch.setattr(rf.KernelClassifier, "fit", watched)
    asked = SMALL | {"methods": ["learned"], "method": "learned", "sizes": [20]}
    run_job(None, tmp_path / "run", settings=asked, scheduler=cluster_client)
    assert clients == [None, None]  # of the comparison, and of the final model


def test_a_width_is_tuned_on_training_rows(tmp_path: Path) -> None:
    asked = {"gamma": "tune", "rows": 400, "methods": ["random"], "method": "random"}
    results = run_job(None, tmp_path / "run", settings=SMALL | asked, scheduler="threads")
    assert results["kernel"]["rule"] == "tuned"
    train = parts(tmp_path / "run", 80)[0].standardize()
    scale = 1 / (train.X.shape[1] * train.X.compute().var())
    assert 1 / 16 <= results["kernel"]["gamma"] / scale * (1 + 1e-6) <= 4.01


def test_comparable_leaves_only_what_must_agree(whole: Path) -> None:
    text = json.dumps(comparable(results_of(whole)))
    for word in ("seconds", "per_row", "per_second", "peak_bytes", "created", "path"):
        assert word not in text.replace('"path": "model"', "")
    assert '"kernel_error"' in text


@pytest.mark.parametrize(
    ("method", "learner"), [("nystroem", "ridge"), ("compressed-labels", "logistic")]
)
def test_other_methods_and_the_maps_users_get(method: str, learner: str, tmp_path: Path) -> None:
    asked = {"methods": [method], "method": method, "gamma": 0.02, "learner": learner}
    results = run_job(None, tmp_path / "run", settings=SMALL | asked, scheduler="threads")
    assert results["model"]["learner"] == learner
    assert results["kernel"] == {"name": "rbf", "gamma": 0.02, "rule": "given"}
    assert results["model"]["accuracy"] > results["linear"]["accuracy"] + 0.05
    features = rf.load(tmp_path / "run" / "model")["features"]
    assert features.gamma_ == 0.02
    assert features.get_params().get("label_weight", 0.3) == 0.3
    test = parts(tmp_path / "run")[1].standardize()
    error = rf.kernel_error(features, test.X.compute(), random_state=0)
    (row,) = [row for row in results["comparison"] if row["n_components"] == 16]
    assert row["kernel_error"] == pytest.approx(error, rel=1e-4)
