"""Tuning: the settings of the grid that scikit-learn's own cross-validation would choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.svm import SVC

import rfcdask as rf
from rfcdask.evaluation.tuning import make_folds
from rfcdask.kernels.arrays import Array
from rfcdask.kernels.seeds import draw_rows, stream
from tests.linear_data import blobs, lazy


def digits() -> tuple[Array, Array]:
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def test_the_table_is_scikit_learns_cross_validation() -> None:
    X, y = digits()
    gammas, Cs = [0.01, 0.3], [0.1, 10.0]
    result = rf.tune(X, y, gammas=gammas, Cs=Cs, n_rows=400, folds=3, random_state=5)
    rows = draw_rows(len(X), 400, stream(5, "tune"))
    for row in result.table:
        scores = []
        for inside, held in make_folds(y[rows], 3, 5):
            train, test = rows[inside], rows[held]
            model = SVC(gamma=row["gamma"], C=row["C"]).fit(X[train], y[train])
            scores.append(model.score(X[test], y[test]))
        assert row["accuracy"] == pytest.approx(np.mean(scores), abs=3e-3)
    best = max(result.table, key=lambda row: row["accuracy"])
    assert (result.gamma, result.C) == (best["gamma"], best["C"])
    assert result.alpha == pytest.approx(1 / (result.C * len(X)))


@pytest.mark.parametrize("strategy", ["grid", "halving"])
def test_settings_found_are_near_the_best_on_rows_held_out(strategy: str) -> None:
    X, y = digits()
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:1200], order[1200:]
    result = rf.tune(X[train], y[train], strategy=strategy, Cs=[0.1, 1, 10], random_state=0)
    scores = {
        (row["gamma"], row["C"]): SVC(gamma=row["gamma"], C=row["C"])
        .fit(X[train], y[train])
        .score(X[test], y[test])
        for row in result.table
    }
    assert scores[(result.gamma, result.C)] > max(scores.values()) - 0.01
    sizes = sorted(set(result.table["n_rows"]))
    assert sizes == ([1200] if strategy == "grid" else [133, 400, 1200])
    if strategy == "halving":
        assert result.table["n_rows"].count(1200) == 3  # a ninth of 21 pairs


def test_chunks_and_clusters_do_not_matter(cluster_client: Any) -> None:
    X, codes = blobs(700, 6, 3)
    y = np.array(["a", "b", "c"])[codes]
    setting: dict[str, Any] = {"n_rows": 300, "folds": 3, "Cs": [1.0, 10.0], "random_state": 1}
    here = rf.tune(X, y, **setting)
    there = rf.tune(lazy(X, 97), lazy(y, 97), client=cluster_client, **setting)
    assert here.table.rows == there.table.rows
    assert (here.gamma, here.C) == (there.gamma, there.C)


def test_the_label_weight_is_chosen_by_accuracy() -> None:
    X, y = digits()
    result = rf.tune(
        X,
        y,
        gammas=[0.03],
        Cs=[10.0],
        n_rows=600,
        label_weights=(0.0, 1.0),
        n_components=20,
        random_state=0,
    )
    assert result.label_table is not None
    best = max(result.label_table, key=lambda row: row["accuracy"])
    assert result.label_weight == best["label_weight"] == 1.0
    plain = rf.tune(X, y, gammas=[0.03], Cs=[10.0], n_rows=200, random_state=0)
    assert plain.label_weight is None


def test_the_result_makes_a_pipeline_and_shows_itself() -> None:
    X, y = digits()
    result = rf.tune(X, y, gammas=[0.03], Cs=[10.0], n_rows=500, random_state=0)
    few = {"n_candidates": 300, "n_rows": 500, "refine": 20}
    pipeline = result.pipeline(60)
    pipeline[0].set_params(**few)
    fitted = pipeline.fit(X, y)
    assert fitted.score(X, y) > 0.9
    assert "gamma=0.03, C=10" in repr(result)
    assert "<table>" in result._repr_html_()


def test_bad_input_is_named() -> None:
    X, y = blobs(100, 3, 2)
    with pytest.raises(ValueError, match=r"gammas=\[-1\] must be positive"):
        rf.tune(X, y, gammas=[-1])
    with pytest.raises(ValueError, match=r"Cs=\[\] must be positive"):
        rf.tune(X, y, Cs=[])
    with pytest.raises(ValueError, match="strategy='guess'"):
        rf.tune(X, y, strategy="guess")
    with pytest.raises(ValueError, match="only one class"):
        rf.tune(X, np.ones(100))
    with pytest.raises(ValueError, match="labels of classes"):
        rf.tune(X, np.arange(100.0))
    with pytest.raises(ValueError, match="y has 9 rows"):
        rf.tune(X, y[:9])
    with pytest.raises(ValueError, match="at least 2 folds"):
        rf.tune(X, y, folds=1)


def test_a_class_with_few_rows_does_not_stop_it() -> None:
    X, y = blobs(120, 3, 2)
    y[:2] = 5
    assert rf.tune(X, y, gammas=[0.1], Cs=[1.0], random_state=0).accuracy > 0.5


@pytest.mark.slow
def test_mnist_within_a_few_tenths_of_the_best_of_the_grid(shared_data: Path) -> None:
    stored = np.load(shared_data / "datasets" / "mnist.npz")
    X, y = stored["X_train"].astype(np.float32) / 255, stored["y_train"]
    X_test, y_test = stored["X_test"].astype(np.float32) / 255, stored["y_test"]
    result = rf.tune(X, y, random_state=0)
    rows = draw_rows(len(X), 10_000, stream(0, "tune"))
    kernel = rf.kernels.get_kernel("rbf")
    scores = {}
    for gamma in sorted(set(result.table["gamma"])):
        inside = kernel.exact(X[rows], X[rows], gamma).astype(float)
        across = kernel.exact(X_test, X[rows], gamma).astype(float)
        for C in sorted(set(result.table["C"])):
            model = SVC(kernel="precomputed", C=C).fit(inside, y[rows])
            scores[(gamma, C)] = model.score(across, y_test)
    assert scores[(result.gamma, result.C)] >= max(scores.values()) - 0.003


def test_numbers_are_tuned_by_exact_kernel_ridge() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(300, 2))
    y = np.c_[np.sin(2 * X[:, 0]) + 5, X[:, 1] ** 2] + 0.05 * rng.normal(size=(300, 2))
    result = rf.tune(X, y, gammas=[0.01, 1.0], Cs=[1.0, 100.0], folds=3, random_state=1)
    assert (result.scoring, result.accuracy, result.gamma) == ("r2", None, 1.0)
    rows = draw_rows(300, 300, stream(1, "tune"))
    for row in result.table:
        scores = []
        for inside, held in make_folds(np.zeros(300, int), 3, 1):
            train, test = rows[inside], rows[held]
            model = KernelRidge(alpha=1 / row["C"], kernel="rbf", gamma=row["gamma"])
            model.fit(X[train], y[train] - y[train].mean(0))
            scores.append(r2_score(y[test], model.predict(X[test]) + y[train].mean(0)))
        assert row["r2"] == pytest.approx(np.mean(scores), abs=1e-6)
    assert "Mean r2 for each C and gamma" in result._repr_html_()
    fitted = result.pipeline(60).set_params(compressedfeatures__n_candidates=200).fit(X, y)
    assert fitted.score(X, y) > 0.9


def test_the_named_metric_is_what_tuning_makes_large() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.where(rng.uniform(size=400) < 0.1, "rare", "common")
    X[y == "rare", 0] += 1
    grid: dict[str, Any] = {"gammas": [0.5], "Cs": [0.01, 1.0], "random_state": 0, "folds": 3}
    plain = rf.tune(X, y, scoring="balanced_accuracy", **grid)
    balanced = rf.tune(X, y, scoring="balanced_accuracy", class_weight="balanced", **grid)
    assert balanced.score > plain.score + 0.05
    weighted = rf.tune(X, y, scoring="roc_auc", class_weight={"rare": 9.0}, **grid)
    assert weighted.score == max(weighted.table["roc_auc"])
    with pytest.raises(ValueError, match="scoring='recall' must be one for classes: accuracy"):
        rf.tune(X, y, scoring="recall", **grid)
    with pytest.raises(ValueError, match="'often', which is no class"):
        rf.tune(X, y, class_weight={"often": 1.0}, **grid)
    with pytest.raises(ValueError, match="needs probabilities"):
        rf.tune(X, y, scoring="neg_log_loss", **grid)
    with pytest.raises(ValueError, match="needs probabilities, which ridge models"):
        rf.compare(X, y, ["random"], n_components=5, scoring="neg_brier_score")


def test_a_gamma_given_twice_is_tried_once() -> None:
    """Its scores were put to other gammas, and a bad one was recommended."""
    X = np.random.default_rng(0).normal(size=(90, 3))
    y = (np.square(X).sum(1) > 2).astype(int)
    once, twice = (
        rf.tune(X, y, gammas=gammas, Cs=[1, 10], random_state=0)
        for gammas in ([0.01, 5.0], [0.01, 5.0, 0.01])
    )
    assert twice.table.rows == once.table.rows
    assert (twice.gamma, twice.C) == (once.gamma, once.C)


@pytest.mark.parametrize("weight", ["2", -1.0, float("nan")])
def test_weights_of_classes_that_are_none_are_refused(weight: Any) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    with pytest.raises(ValueError, match=r"class_weight=.*(give numbers|finite factors)"):
        rf.tune(X, y, class_weight={"yes": weight}, random_state=0)


def test_a_metric_that_rows_of_one_class_have_not_is_said() -> None:
    """It was a KeyError with a remedy for another case."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    rare = np.where(np.arange(60) < 2, "rare", "common")
    said = "scoring='roc_auc' cannot be measured on rows that are all of one class"
    with pytest.raises(ValueError, match=said):
        rf.tune(X, rare, gammas=[0.1], Cs=[1], scoring="roc_auc", random_state=0)
    model = rf.RidgeClassifier().fit(X, rare)
    with pytest.raises(ValueError, match=said):
        rf.permutation_importance(model, X[2:], rare[2:], scoring="roc_auc")
