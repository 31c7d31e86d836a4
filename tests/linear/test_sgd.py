"""Stochastic models against exact solvers, and what they promise about order and input."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import sklearn.linear_model
from sklearn.datasets import load_digits, make_classification
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import rfcdask as rf
from rfcdask.execution.executor import ClusterExecutor
from rfcdask.kernels.arrays import Array
from rfcdask.linear import inputs
from rfcdask.linear.sgd import step, training
from rfcdask.linear.sgd.losses import CLASSIFIER_LOSSES, classification_slopes, regression_slopes
from tests.linear_data import blobs, lazy


def digits(J: int = 200) -> tuple[Array, Array, Array, Array]:
    X, y = load_digits(return_X_y=True)
    Z = RBFSampler(gamma=0.002, n_components=J, random_state=0).fit_transform(X)
    Z = Z.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:1300], order[1300:]
    return Z[train], y[train], Z[test], y[test]


def test_few_rows_choose_one_penalty_whichever_are_held_out() -> None:
    rng = np.random.default_rng(0)
    w, rng = rng.normal(size=40) / np.sqrt(40), np.random.default_rng(1)
    X = rng.normal(size=(520, 40))
    y = (X @ w + 1.5 * rng.normal(size=520) > 0).astype(int)
    models = [
        rf.SGDClassifier(alphas=[0.3, 1e-4], epochs=20, random_state=seed).fit(X, y)
        for seed in range(0, 80, 10)
    ]
    assert {model.alpha_ for model in models} == {0.3}


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_as_accurate_as_liblinear(loss: str) -> None:
    Z, y, Z_test, y_test = digits()
    exact = LinearSVC(loss=loss, max_iter=20_000).fit(Z, y).score(Z_test, y_test)
    ours = rf.SGDClassifier(loss, random_state=0).fit(lazy(Z, 100), lazy(y, 100))
    assert ours.score(lazy(Z_test, 100), lazy(y_test, 100)) >= exact - 0.015


def objective(model: Any, Z: Array, y: Array, alpha: float, loss: str) -> float:
    scores = np.asarray(model.decision_function(Z), float)
    margin = np.where(y == 1, scores, -scores)
    if loss == "log_loss":
        cost = np.logaddexp(0, -margin)
    else:
        cost = np.maximum(1 - margin, 0) ** (2 if loss == "squared_hinge" else 1)
    return float(cost.mean() + alpha / 2 * np.sum(model.coef_**2))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss"])
def test_reaches_the_minimum_of_its_objective(loss: str) -> None:
    X, y = blobs(4000, 20, 2)
    Z = RBFSampler(gamma=0.02, n_components=60, random_state=0).fit_transform(X)
    alpha = 1e-3
    C = 1 / (alpha * len(y))
    if loss == "log_loss":
        exact = sklearn.linear_model.LogisticRegression(C=C, tol=1e-8, max_iter=5000).fit(Z, y)
    else:  # a large scaling leaves liblinear's intercept practically without penalty
        exact = LinearSVC(
            loss=loss, C=C, intercept_scaling=30, tol=1e-4, max_iter=1_000_000, dual=True
        ).fit(Z, y)
    ours = rf.SGDClassifier(loss, alpha=alpha, epochs=20, random_state=0).fit(lazy(Z, 500), y)
    best = objective(exact, Z, y, alpha, loss)
    assert objective(ours, Z, y, alpha, loss) < best * 1.01


def test_multinomial_is_near_logistic_regression() -> None:
    X, y = blobs(3000, 8, 4)
    exact = sklearn.linear_model.LogisticRegression(C=1.0, max_iter=2000).fit(X, y)
    ours = rf.SGDClassifier("log_loss", multi_class="multinomial", epochs=20, random_state=0)
    ours.fit(lazy(X, 250), y)
    assert np.abs(ours.predict_proba(X) - exact.predict_proba(X)).mean() < 0.01
    assert np.allclose(ours.predict_proba(lazy(X, 250)).compute().sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(("loss", "kind"), list(CLASSIFIER_LOSSES))
def test_slopes_are_the_derivatives_of_the_loss(loss: str, kind: str) -> None:
    code = CLASSIFIER_LOSSES[(loss, kind)]
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(6, 3))
    codes, weights = rng.integers(0, 3, 6), rng.uniform(0.5, 2, 6)
    slopes = np.zeros_like(scores)
    classification_slopes(scores, codes, weights, code, slopes)
    nothing = np.zeros_like(scores)
    for i, k in np.ndindex(scores.shape):
        moved = [scores.copy() for _ in range(2)]
        moved[0][i, k] += 1e-6
        moved[1][i, k] -= 1e-6
        up, down = (classification_slopes(m, codes, weights, code, nothing) for m in moved)
        assert slopes[i, k] == pytest.approx((up - down) / 2e-6, abs=1e-5)


@pytest.mark.parametrize("code", [5, 6])
def test_slopes_of_regression_losses(code: int) -> None:
    rng = np.random.default_rng(0)
    scores, targets, weights = rng.normal(size=(9, 1)), rng.normal(size=(9, 1)), np.ones(9)
    slopes, nothing = np.zeros_like(scores), np.zeros_like(scores)
    regression_slopes(scores, targets, weights, code, 0.5, slopes)
    for i in range(9):
        up, down = scores.copy(), scores.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        rise = regression_slopes(up, targets, weights, code, 0.5, nothing)
        rise -= regression_slopes(down, targets, weights, code, 0.5, nothing)
        assert slopes[i, 0] == pytest.approx(rise / 2e-6, abs=1e-5)


@pytest.mark.parametrize("targets", [None, 2])
def test_regression_reaches_ridge(targets: int | None) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 30)) * np.geomspace(1, 1e-2, 30)  # badly scaled on purpose
    y = X @ rng.normal(size=(30, targets or 1)) * 20 + 7 + 0.1 * rng.normal(size=(4000, 1))
    y = y[:, 0] if targets is None else y
    ours = rf.SGDRegressor(epochs=10, random_state=0).fit(lazy(X, 400), lazy(y, 400))
    exact = sklearn.linear_model.Ridge(alpha=1.0).fit(X, y)
    assert ours.coef_.shape == exact.coef_.shape
    assert ours.score(lazy(X, 400), lazy(y, 400)) > exact.score(X, y) - 1e-3
    assert ours.predict(lazy(X, 400)).shape == y.shape


def test_huber_does_not_mind_outliers() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 5))
    y = X @ np.arange(5.0)
    y[::20] += 500
    robust = rf.SGDRegressor("huber", epochs=10, random_state=0).fit(lazy(X, 300), y)
    assert np.abs(robust.coef_ - np.arange(5.0)).max() < 0.1


@pytest.mark.parametrize("place", ["synchronous", "one thread", "four threads", "cluster"])
def test_the_same_bits_wherever_it_runs(place: str, cluster_client: Any) -> None:
    X, y = blobs(3000, 10, 3)
    X, y = lazy(X, 170), lazy(y, 170)
    reference = rf.SGDClassifier(epochs=5, random_state=3).fit(X, y)
    setting: dict[str, Any] = {
        "synchronous": {"scheduler": "synchronous"},
        "one thread": {"num_workers": 1},
        "four threads": {"num_workers": 4},
        "cluster": {},
    }[place]
    client = cluster_client if place == "cluster" else None
    with dask.config.set(setting):
        other = rf.SGDClassifier(epochs=5, random_state=3).fit(X, y, client=client)
    assert np.array_equal(other.coef_, reference.coef_)
    assert np.array_equal(other.intercept_, reference.intercept_)
    assert other.history_ == reference.history_
    assert other.score(X, y, client=client) == reference.score(X, y)
    different = rf.SGDClassifier(epochs=5, random_state=4).fit(X, y)
    assert not np.array_equal(different.coef_, reference.coef_)


@pytest.mark.parametrize("classes", [2, 3, 300])
@pytest.mark.parametrize("text", [False, True])
def test_labels_are_read_once_where_they_are_small(
    classes: int, text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).normal(size=(2000, 6)).astype(np.float32)
    y = np.digitize(X[:, 0], np.quantile(X[:, 0], np.linspace(0, 1, classes + 1)[1:-1]))
    reads: list[int] = []

    def read(block: Array) -> Array:
        reads.append(len(block))
        return np.array([f"class {label}" for label in block]) if text else block

    labels = lazy(y, 250).map_blocks(read, dtype="U9" if text else y.dtype, meta=y[:0])
    found, times = [], []
    for size in (inputs.KEEP_BYTES, len(y) - 1, 0):
        monkeypatch.setattr(inputs, "KEEP_BYTES", size)
        reads.clear()
        found.append(rf.SGDClassifier(epochs=3, random_state=0).fit(lazy(X, 250), labels))
        times.append(sum(reads) // len(y))
    assert times[0] == 1
    assert min(times[1:]) >= 4
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].coef_, other.coef_)
        np.testing.assert_array_equal(found[0].classes_, other.classes_)


@pytest.mark.parametrize("persist", ["auto", True, False])
def test_a_current_client_is_used_and_may_keep_features(
    persist: bool | str, cluster_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    call = ClusterExecutor.call

    def recorded(self: ClusterExecutor, *args: Any) -> Any:
        calls.append(len(args))
        return call(self, *args)

    monkeypatch.setattr(ClusterExecutor, "call", recorded)
    X, y = blobs(2000, 6, 3)
    features = rf.RandomFeatures(30, random_state=0).fit(X)
    Z, labels = features.transform(lazy(X, 150)), lazy(y, 150)
    here = rf.SGDClassifier(alpha=1e-4, epochs=5, random_state=0).fit(Z, labels)
    before = set(cluster_client.futures)
    with cluster_client.as_current():
        model = rf.SGDClassifier(alpha=1e-4, epochs=5, random_state=0, persist=persist)
        there = model.fit(Z, labels)
    assert np.array_equal(there.coef_, here.coef_)
    # Rows of 14 blocks, the preconditioner, and two groups in each of five epochs.
    assert len(calls) == 14 + 1 + 5 * 2
    cluster_client.nthreads()  # a round trip, after which all releases have been sent
    assert set(cluster_client.futures) <= before  # nothing is left on the workers


def test_building_predictions_computes_nothing(refusing_scheduler: Any) -> None:
    X, y = blobs(500, 6, 3)
    model = rf.SGDClassifier("log_loss", random_state=0).fit(X, y)
    Z = lazy(X, 100)
    with dask.config.set(scheduler=refusing_scheduler):
        predicted, scores = model.predict(Z), model.decision_function(Z)
        shares = model.predict_proba(Z)
    assert predicted.shape == (500,)
    assert scores.shape == shares.shape == (500, 3)
    assert scores.chunks == ((100,) * 5, (3,))
    assert np.array_equal(predicted.compute(), model.predict(X))
    assert scores.compute().dtype == scores.dtype == np.float32
    assert np.allclose(scores.compute(), model.decision_function(X), atol=1e-5)


def test_strings_weights_and_classes() -> None:
    X, codes = blobs(3000, 10, 3)
    y = np.array(["ash", "birch", "cedar"])[codes]
    model = rf.SGDClassifier(epochs=5, random_state=0).fit(lazy(X, 300), lazy(y, 300))
    assert model.classes_.tolist() == ["ash", "birch", "cedar"]
    assert set(model.predict(lazy(X, 300)).compute()) <= set(model.classes_)
    weights = np.where(codes == 0, 0.0, 1.0)
    blind = rf.SGDClassifier(epochs=5, random_state=0).fit(lazy(X, 300), lazy(y, 300), weights)
    assert np.mean(blind.predict(X) == "ash") < 0.02
    weighted = rf.SGDClassifier(epochs=5, random_state=0, class_weight={"ash": 0.0}).fit(X, y)
    assert np.mean(weighted.predict(X) == "ash") < 0.02


def test_balanced_weights_find_the_rare_class() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(6000) < 0.03).astype(int)
    X = (rng.normal(size=(6000, 5)) + y[:, None]).astype(np.float32)
    plain = rf.SGDClassifier(epochs=5, random_state=0).fit(lazy(X, 500), y)
    fair = rf.SGDClassifier(epochs=5, random_state=0, class_weight="balanced").fit(lazy(X, 500), y)
    found = [np.mean(m.predict(X)[y == 1]) for m in (plain, fair)]
    assert found[1] > 0.7 > found[0]


def test_early_stopping_ends_when_nothing_improves() -> None:
    X, y = blobs(4000, 5, 2)
    model = rf.SGDClassifier(epochs=50, early_stopping=True, random_state=0).fit(lazy(X, 400), y)
    assert model.n_iter_ < 50
    assert all("held_out_loss" in entry for entry in model.history_)
    assert model.score(X, y) > LinearSVC().fit(X, y).score(X, y) - 0.01


def test_partial_fit_learns_from_pieces_and_after_loading(tmp_path: Any) -> None:
    X, y = blobs(8000, 10, 3)
    model = rf.SGDClassifier(epochs=5, random_state=0)
    for start in range(0, 8000, 1000):
        model.partial_fit(X[start : start + 1000], y[start : start + 1000], classes=[0, 1, 2])
    whole = rf.SGDClassifier(epochs=5, random_state=0).fit(X, y)
    assert model.score(X, y) > whole.score(X, y) - 0.01
    rf.save(model, tmp_path / "m")
    again = rf.load(tmp_path / "m")
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.partial_fit(X, y).score(X, y) > whole.score(X, y) - 0.01
    with pytest.raises(ValueError, match="differ from those of the first call"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"labels \[7\] that the model was not fitted on"):
        model.partial_fit(X[:5], np.full(5, 7))


def test_many_features_use_leading_directions_only() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)
    Z = RBFSampler(gamma=0.5, n_components=1100, random_state=0).fit_transform(X)
    Z = Z.astype(np.float32)
    model = rf.SGDClassifier(alpha=1e-4, epochs=5, random_state=0)
    model.fit(lazy(Z[:2500], 500), y[:2500])
    assert model._preconditioner.full.size == 0
    exact = LinearSVC().fit(Z[:2500], y[:2500]).score(Z[2500:], y[2500:])
    assert model.score(Z[2500:], y[2500:]) > exact - 0.02


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss"])
def test_dependent_columns_do_not_diverge(loss: str) -> None:
    """Along a direction that rows do not have, only the penalty moves: no step may overshoot."""
    X, y = make_classification(2000, 8, n_informative=5, n_redundant=2, n_classes=3, random_state=0)
    model = rf.SGDClassifier(loss, random_state=0).fit(X, y)
    exact = LinearSVC().fit(X, y)
    assert model.score(X, y) > exact.score(X, y) - 0.02


def test_sorted_data_trains_as_well_or_warns() -> None:
    X, y = blobs(12_000, 10, 4)
    order = np.argsort(y, kind="stable")
    shuffled = rf.SGDClassifier(epochs=5, random_state=0).fit(lazy(X, 300), lazy(y, 300))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # 8 blocks from far apart hold all classes: no complaint
        ordered = rf.SGDClassifier(epochs=5, random_state=0).fit(
            lazy(X[order], 300), lazy(y[order], 300)
        )
    assert ordered.score(X, y) > shuffled.score(X, y) - 0.01
    many, labels = blobs(4000, 10, 20)
    order = np.argsort(labels, kind="stable")
    with pytest.warns(UserWarning, match="shuffle=True"):
        rf.SGDClassifier(random_state=0, epochs=1).fit(lazy(many[order], 100), labels[order])


def test_a_pipeline_fits_on_dask_and_numpy_arrays() -> None:
    X, y = blobs(3000, 6, 3)
    names = np.array(["a", "b", "c"])[y]
    pipe = make_pipeline(
        rf.CompressedFeatures(40, n_candidates=200, n_rows=400, refine=20, random_state=0),
        rf.SGDClassifier(epochs=5, random_state=0),
    )
    pipe.fit(lazy(X, 250), lazy(names, 250))
    predicted = pipe.predict(lazy(X, 250))
    assert isinstance(predicted, da.Array)
    plain = LinearSVC().fit(X, names).score(X, names)
    assert pipe.score(lazy(X, 250), lazy(names, 250)) > plain - 0.02
    assert pipe.fit(X, names).score(X, names) > plain - 0.02


def test_representations_show_what_was_set() -> None:
    assert repr(rf.SGDClassifier(epochs=3)) == "SGDClassifier(epochs=3)"
    assert "Ridge(alpha=2.0)" in repr(rf.Ridge(2.0))
    assert "SGDClassifier" in rf.SGDClassifier()._repr_html_()


def test_the_geometry_of_steps_is_found_in_many_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that have nothing in common: one of them says nothing of steps on the others."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 8 * 4200)
    X = np.zeros((len(y), 8), np.float32)
    X[np.arange(len(y)), np.arange(len(y)) // 4200] = 2 * y - 1 + 0.5 * rng.normal(size=len(y))
    monkeypatch.setattr(step, "GROUP_BYTES", 1)  # as blocks of gigabytes: none are mixed
    model = rf.SGDClassifier("squared_hinge", random_state=0).fit(lazy(X, 4200), lazy(y, 4200))
    assert model.score(X, y) > 0.95
    monkeypatch.setattr(training, "SAMPLED_BLOCKS", 1)
    monkeypatch.setattr(step, "CURVATURE", {})  # nor are steps that go too far shortened
    with pytest.raises(ValueError, match="diverged"):
        rf.SGDClassifier("squared_hinge", random_state=0).fit(lazy(X, 4200), lazy(y, 4200))
