"""Kernel classifier and regressor: what they learn, where, and from which rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import rfcdask as rf
from rfcdask.kernels.arrays import Array
from rfcdask.linear.kernel import stream
from rfcdask.linear.kernel.optimize import DivergedError
from rfcdask.linear.sgd import step
from tests.linear_data import blobs, lazy

QUICK: dict[str, Any] = {"gamma": 0.5, "epochs": 4, "random_state": 0}


def checkerboard(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Two classes that no linear model tells apart."""
    X = np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64)


def wave(n: int, seed: int = 0) -> tuple[Array, Array]:
    X = np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)
    return X, 1000 + 50 * np.sin(2 * X[:, 0]) * X[:, 1]


@pytest.fixture(scope="module")
def fitted() -> rf.KernelClassifier:
    return rf.KernelClassifier(40, gamma=1.0, epochs=10, random_state=0).fit(*checkerboard(3000))


def test_what_no_linear_model_sees_is_learned(fitted: rf.KernelClassifier) -> None:
    X, y = checkerboard(2000, seed=1)
    assert fitted.score(X, y) > 0.97
    assert fitted.predict_proba(X).shape == (2000, 2)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1, rtol=1e-5)
    assert np.array_equal(fitted.predict(X), fitted.classes_[(fitted.decision_function(X) > 0) * 1])


def test_learned_features_beat_fixed_ones() -> None:
    X, y = checkerboard(3000)
    fixed, learned = (
        rf.KernelClassifier(10, gamma=0.3, epochs=8, learn_features=learn, random_state=0)
        .fit(X, y)
        .score(*checkerboard(2000, seed=1))
        for learn in (False, True)
    )
    assert learned > fixed + 0.02


def test_a_width_is_chosen_when_none_is_given() -> None:
    X, y = checkerboard(2000)
    model = rf.KernelClassifier(40, epochs=8, random_state=0).fit(X * 1000, y)
    assert model.score(X * 1000, y) > 0.95
    assert model.gamma_ == model.trials_[-1]["gamma"]
    assert {trial["gamma"] for trial in model.trials_} >= {model.gamma_}


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge", "hinge"])
def test_every_loss_tells_many_classes_apart(loss: str) -> None:
    X, y = blobs(2000, 4, 5)
    names = np.array(["a", "b", "c", "d", "e"])[y]
    model = rf.KernelClassifier(30, **QUICK | {"gamma": 0.1}, loss=loss).fit(X, names)
    assert model.coef_.shape == (5, 30)
    exact = LinearDiscriminantAnalysis().fit(X, names)  # the best there is, for such classes
    assert model.score(X, names) > exact.score(X, names) - 0.04
    assert hasattr(model, "predict_proba") == (loss == "log_loss")


def test_numpy_dask_and_csr_give_one_model() -> None:
    X, y = checkerboard(1500)
    models = [
        rf.KernelClassifier(20, **QUICK).fit(rows, labels)
        for rows, labels in (
            (X, y),
            (lazy(X, 16384), lazy(y, 16384)),
            (sp.csr_array(X), y),
        )
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[0].features_.frequencies_, models[1].frequencies_)
    np.testing.assert_allclose(
        models[0].predict_proba(X), models[2].predict_proba(sp.csr_array(X)), atol=0.05
    )


def test_schedulers_give_the_same_model() -> None:
    X, y = checkerboard(2000)
    found = []
    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            model = rf.KernelClassifier(20, **QUICK).fit(lazy(X, 300), lazy(y, 300))
        found.append(model.coef_)
    np.testing.assert_array_equal(*found)


def test_a_cluster_gives_the_same_model(cluster_client: Any) -> None:
    X, y = checkerboard(2000)
    with dask.config.set(scheduler="threads"):
        local = rf.KernelClassifier(20, **QUICK).fit(X, y)
    far = rf.KernelClassifier(20, **QUICK).fit(
        lazy(X, 16384), lazy(y, 16384), client=cluster_client
    )
    np.testing.assert_allclose(far.coef_, local.coef_, atol=1e-4)


def test_predicting_is_lazy(fitted: rf.KernelClassifier, refusing_scheduler: Any) -> None:
    X, _ = checkerboard(500, seed=2)
    with dask.config.set(scheduler=refusing_scheduler):
        lazily = [
            getattr(fitted, name)(lazy(X, 100))
            for name in ("predict", "predict_proba", "decision_function")
        ]
        features = fitted.features_.transform(lazy(X, 100))
    assert [array.shape for array in lazily] == [(500,), (500, 2), (500,)]
    assert features.shape == (500, 40)
    assert lazily[1].dtype == np.float32
    np.testing.assert_allclose(lazily[1].compute(), fitted.predict_proba(X), rtol=1e-5)


def test_features_are_a_fitted_map(fitted: rf.KernelClassifier) -> None:
    X, _ = checkerboard(200, seed=3)
    X = X.astype(np.float64)
    features = fitted.features_
    Z = np.sqrt(2 / 40) * np.cos(X @ features.frequencies_ + features.phases_)
    np.testing.assert_allclose(features.transform(X), Z, atol=1e-7)
    scores = Z @ fitted.coef_[0] + fitted.intercept_[0]
    np.testing.assert_allclose(fitted.decision_function(X), scores, atol=1e-6)
    assert list(features.get_feature_names_out()[:1]) == ["learnedfeatures0"]
    with pytest.raises(TypeError, match="fit a KernelClassifier"):
        features.fit(X)


def test_fixed_features_approximate_the_kernel() -> None:
    X, y = checkerboard(600)
    model = rf.KernelClassifier(3000, **QUICK | {"epochs": 1}, learn_features=False).fit(X, y)
    assert rf.kernel_error(model.features_, X, random_state=0) < 0.1


def test_a_selected_start_is_taken() -> None:
    X, y = checkerboard(1500)
    settings = QUICK | {"start": "selected", "n_candidates": 100, "n_rows": 300}
    model = rf.KernelClassifier(15, **settings).fit(X, y)
    assert model.coef_.shape == (1, 15)
    assert model.score(X, y) > 0.8


def test_saved_models_predict_the_same(fitted: rf.KernelClassifier, tmp_path: Path) -> None:
    X, y = checkerboard(300, seed=4)
    rf.save(fitted, tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.history_ == fitted.history_
    rf.save(fitted.features_, tmp_path / "features")
    again = rf.load(tmp_path / "features")
    np.testing.assert_array_equal(again.transform(X), fitted.features_.transform(X))
    loaded.partial_fit(X, y)
    assert loaded.score(X, y) > 0.9


def test_the_penalty_is_chosen_on_held_out_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 20)).astype(np.float32)
    y = (X[:, 0] + 2 * rng.normal(size=1500) > 0).astype(int)
    settings = QUICK | {"gamma": 0.05, "epochs": 30, "alphas": [0.0, 1e-2, 1e2]}
    assert rf.KernelClassifier(100, **settings).fit(X, y).alpha_ == 1e-2
    assert rf.KernelClassifier(20, **QUICK, alpha=1e-3).fit(X, y).alpha_ == 1e-3


def test_noise_is_not_learned_by_heart() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 5)), rng.integers(0, 2, 600)
    model = rf.KernelClassifier(200, gamma=0.5, epochs=60, random_state=0).fit(X, y)
    fresh = np.random.default_rng(1)
    proba = model.predict_proba(fresh.normal(size=(2000, 5)))
    sure = -np.log(np.maximum(proba[np.arange(2000), fresh.integers(0, 2, 2000)], 1e-12)).mean()
    assert sure < min(entry["held_out_loss"] for entry in model.history_) + 0.3


def test_rows_without_weight_change_little() -> None:
    X, y = checkerboard(1500)
    wrong = np.concatenate([y, 1 - y])
    weights = np.repeat([1.0, 0.0], 1500)
    model = rf.KernelClassifier(30, **QUICK | {"epochs": 8})
    model.fit(np.concatenate([X, X]), wrong, sample_weight=weights)
    assert model.score(X, y) > 0.93


def test_class_weights_move_the_border() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = (X[:, 0] + rng.normal(size=2000) > 1.5).astype(int)
    plain, balanced = (
        rf.KernelClassifier(20, **QUICK, class_weight=spec).fit(X, y).predict(X).mean()
        for spec in (None, "balanced")
    )
    assert balanced > plain + 0.1


class StopAfterError(Exception):
    """Stands for a crash."""


def test_an_interrupted_run_ends_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = checkerboard(3000)
    rows, labels = lazy(X, 100), lazy(y, 100)
    settings = QUICK | {"gamma": "tune", "epochs": 3, "checkpoint_every": 8}
    whole = rf.KernelClassifier(10, **settings).fit(rows, labels)
    calls = 0
    original = stream.train_group

    def fails(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise StopAfterError
        return original(*args)

    path = tmp_path / "run.npz"
    monkeypatch.setattr(stream, "train_group", fails)
    with pytest.raises(StopAfterError):
        rf.KernelClassifier(10, **settings, checkpoint=path).fit(rows, labels)
    monkeypatch.setattr(stream, "train_group", original)
    with pytest.raises(ValueError, match="belongs to another run"):
        rf.KernelClassifier(11, **settings, checkpoint=path).fit(rows, labels)
    resumed = rf.KernelClassifier(10, **settings, checkpoint=path).fit(rows, labels)
    assert not path.exists()
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    np.testing.assert_array_equal(resumed.frequencies_, whole.frequencies_)
    assert (resumed.history_, resumed.trials_) == (whole.history_, whole.trials_)


def test_rows_that_keep_coming_are_learned() -> None:
    X, y = checkerboard(4000)
    model = rf.KernelClassifier(30, gamma=1.0, random_state=0)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X, y)
    scores = []
    for start in range(0, 4000, 1000):
        part = slice(start, start + 1000)
        model.partial_fit(X[part], y[part], classes=[0, 1])
        scores.append(model.score(X, y))
    assert scores[-1] > max(scores[0], 0.9)
    with pytest.raises(ValueError, match="not fitted on"):
        model.partial_fit(X[:50], np.full(50, 7))


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("size", [1, 1e-4])
def test_a_fitted_regressor_learns_from_few_more_rows(
    loaded: bool, size: float, tmp_path: Path
) -> None:
    """Their mean and spread say nothing of the targets that it was fitted on."""
    X, y = wave(3000)
    y = y * size
    model = rf.KernelRegressor(60, gamma=1.0, epochs=20, random_state=0).fit(X, y)
    if loaded:
        rf.save(model, tmp_path / "model")
        model = rf.load(tmp_path / "model")
    largest = np.argsort(y)[-20:]
    for rows in (largest[:1], largest):
        model.partial_fit(X[rows], y[rows])
        assert model.score(X, y) > 0.97


@pytest.mark.parametrize("loaded", [False, True])
def test_settings_of_the_next_call_hold(loaded: bool, tmp_path: Path) -> None:
    X, y = checkerboard(600)

    def next_call(**changed: Any) -> rf.KernelClassifier:
        model = rf.KernelClassifier(10, **QUICK, alphas=[1.0, 1e-3]).fit(X, y)
        assert model.alpha_ == 1e-3
        if loaded:
            rf.save(model, tmp_path / str(changed))
            model = rf.load(tmp_path / str(changed))
        return model.set_params(**changed).partial_fit(X, y)

    as_before = next_call()
    assert as_before.alpha_ == 1e-3  # what rows held out had chosen
    changes = {"loss": "hinge", "alpha": 0.1, "batch_size": 7, "step_size": 0.1}
    for name, value in (changes | {"learn_features": False}).items():
        more = {"alphas": None} if name == "alpha" else {}
        other = next_call(**{name: value}, **more)
        assert not np.array_equal(other.coef_, as_before.coef_), name
        assert other.alpha_ == (value if name == "alpha" else 1e-3)


def test_damaged_units_of_targets_are_refused(tmp_path: Path) -> None:
    model = rf.KernelRegressor(10, **QUICK).fit(*wave(300))
    model.target_scale_ = np.zeros(1)
    rf.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="target_mean_ and target_scale_ do not fit"):
        rf.load(tmp_path / "model")


@pytest.mark.parametrize("kind", ["numpy", "dask", "csr"])
def test_values_that_are_not_finite_are_found(kind: str) -> None:
    X, y = checkerboard(600)
    X[400, 1] = np.nan
    rows = {"numpy": X, "dask": lazy(X, 150), "csr": sp.csr_array(X)}[kind]
    with pytest.raises(ValueError, match="NaN") as caught:
        rf.KernelClassifier(10, **QUICK).fit(rows, y if kind != "dask" else lazy(y, 150))
    if kind == "dask":
        assert "row 400, column 1" in str(caught.value)
        assert "block 2" in str(caught.value)


def test_bad_input_is_named() -> None:
    X, y = checkerboard(200)
    with pytest.raises(ValueError, match="only one class"):
        rf.KernelClassifier(10, **QUICK).fit(X, np.zeros(200))
    with pytest.raises(ValueError, match="n_components"):
        rf.KernelClassifier(0).fit(X, y)
    with pytest.raises(ValueError, match="gamma"):
        rf.KernelClassifier(gamma="narrow").fit(X, y)
    with pytest.raises(ValueError, match="kernel"):
        rf.KernelClassifier(10, kernel="sinc", gamma=1.0).fit(X, y)
    with pytest.raises(DivergedError, match="lower step_size"), np.errstate(all="ignore"):
        rf.KernelRegressor(10, **QUICK, step_size=1e30).fit(X, y)
    with pytest.raises(ValueError, match="y is NaN or infinite in block 0, row 7"):
        rf.KernelRegressor(10, **QUICK).fit(X, np.where(np.arange(200) == 7, np.nan, 1.0))


def test_sorted_rows_are_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = checkerboard(1000)
    order = np.argsort(y, kind="stable")
    monkeypatch.setattr(step, "GROUP_BYTES", 1)  # as if a single block filled a group
    with pytest.warns(UserWarning, match="ordered by class"):
        rf.KernelClassifier(10, **QUICK | {"epochs": 1}).fit(
            lazy(X[order], 100), lazy(y[order], 100)
        )


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_regression_in_the_units_of_y(loss: str) -> None:
    X, y = wave(3000)
    model = rf.KernelRegressor(40, **QUICK | {"epochs": 10}, loss=loss).fit(X, y)
    assert model.score(*wave(1000, seed=1)) > 0.95
    assert model.coef_.shape == (40,)
    assert isinstance(model.intercept_, float)


def test_several_targets_at_once() -> None:
    X, y = wave(2000)
    both = np.stack([y, -y / 1e6], axis=1)
    model = rf.KernelRegressor(40, **QUICK | {"epochs": 10}).fit(X, both)
    assert model.predict(X).shape == (2000, 2)
    assert model.score(X, both) > 0.9


def test_models_show_themselves(fitted: rf.KernelClassifier) -> None:
    assert "40" in fitted._repr_html_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fitted.plot().get_ylabel() == "mean loss"
