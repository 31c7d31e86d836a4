"""Early stopping, penalties and the state that is returned by the metric that `scoring` names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from sklearn.base import clone

import rfcdask as rf
from rfcdask.kernels.seeds import held_out_rows
from rfcdask.linear.kernel.optimize import Judgement
from rfcdask.linear.kernel.stream import BestState
from rfcdask.linear.scorers import HeldOutScore, as_lists
from rfcdask.linear.sgd import training
from tests.linear_data import blobs, lazy

CLASS_METRICS = {
    "accuracy": metrics.accuracy_score,
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "f1_macro": lambda y, p, **w: metrics.f1_score(y, p, average="macro", **w),
}


def rare_rows(n: int = 6000) -> tuple[Any, Any]:
    """Two classes, one of one row in twelve."""
    X, y = blobs(n, 5, 12, seed=3)
    return X, (y == 0).astype(int)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_counted_scores_are_those_of_scikit_learn(k: int, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(500, k if k > 2 else 1))
    y = rng.integers(0, k, 500)
    own = rng.random(500).astype(np.float32) + 0.5 if weighted else np.ones(500, np.float32)
    factors = np.linspace(1, 4, k)
    proba = 1 / (1 + np.exp(-outputs))
    proba = np.hstack([1 - proba, proba]) if k == 2 else proba / proba.sum(1, keepdims=True)
    predicted = outputs.argmax(1) if k > 2 else (outputs[:, 0] > 0).astype(int)
    weights = {"sample_weight": own}
    wanted = {name: metric(y, predicted, **weights) for name, metric in CLASS_METRICS.items()}
    wanted["neg_log_loss"] = -metrics.log_loss(y, proba, **weights)
    ranked = {"multi_class": "ovr"} if k > 2 else {}
    scores = proba if k > 2 else outputs[:, 0]
    wanted["roc_auc"] = metrics.roc_auc_score(y, scores, **weights, **ranked)
    for name, value in wanted.items():
        score = HeldOutScore.checked(name, factors, softmax=False, weighted=weighted)
        parts = [
            score.count(outputs[at], y[at], (own * factors[y])[at].astype(np.float32))
            for at in (slice(0, 200), slice(200, 500))
        ]
        parts[1] = score.restored(as_lists(parts[1]))
        assert score.value(score.merge(*parts)) == pytest.approx(value, rel=1e-6), name


def test_scores_of_numbers_are_in_the_units_of_the_targets() -> None:
    rng = np.random.default_rng(1)
    y, predicted = rng.normal(size=(2, 300, 2))
    mean, scale = np.array([5.0, -2.0]), np.array([10.0, 0.1])
    score = HeldOutScore("neg_mean_squared_error", mean=mean, scale=scale)
    found = score.value(score.count(predicted, y, np.ones(300)))
    assert found == pytest.approx(-metrics.mean_squared_error(y * scale, predicted * scale))


@pytest.mark.parametrize("scoring", ["roc_auc", "balanced_accuracy"])
def test_sgd_chooses_penalty_and_state_by_the_metric(scoring: str) -> None:
    X, y = rare_rows()
    given = {"alphas": [1e-5, 10.0], "early_stopping": True, "random_state": 0, "epochs": 8}
    model = rf.SGDClassifier(scoring=scoring, patience=3, **given).fit(lazy(X, 2000), lazy(y, 2000))
    scores = [entry["held_out_score"] for entry in model.history_]
    best = model.history_[int(np.argmax(scores))]
    assert model.alpha_ == best["alpha"]
    held = np.concatenate([held_out_rows(2000, 0.1, 0, i) for i in range(3)])
    again = CLASS_METRICS.get(scoring, metrics.roc_auc_score)
    given_scores = model.decision_function(X[held])
    shown = given_scores if scoring == "roc_auc" else (given_scores > 0).astype(int)
    # Rows of a group are judged when it was learned from, so the last state is not quite the same.
    assert again(y[held], shown) == pytest.approx(max(scores), abs=0.03)


def test_training_ends_by_the_metric_and_not_by_the_loss() -> None:
    """Accuracy stands still from the first epoch on, while the loss still falls."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += 4 * (2 * y - 1)
    given: dict[str, Any] = {"loss": "log_loss", "alpha": 1e-6, "early_stopping": True}
    given |= {"epochs": 30, "tol": 0.001, "random_state": 0}
    by_loss = rf.SGDClassifier(**given).fit(lazy(X, 1000), lazy(y, 1000))
    named = rf.SGDClassifier(scoring="accuracy", **given).fit(lazy(X, 1000), lazy(y, 1000))
    assert named.n_iter_ == 3 < by_loss.n_iter_
    assert named.history_[0]["held_out_score"] == 1.0
    # the first epoch was the best: its coefficients are returned, not those of the last
    first = rf.SGDClassifier(scoring="accuracy", patience=1, **given | {"epochs": 30})
    first.fit(lazy(X, 1000), lazy(y, 1000))
    assert np.array_equal(first.coef_, named.coef_)


@pytest.mark.parametrize("scoring", ["roc_auc", "f1_macro"])
def test_a_run_that_was_interrupted_ends_with_the_same_state(
    scoring: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rare_rows(3000)
    data = lazy(X, 150), lazy(y, 150)
    given: dict[str, Any] = {"epochs": 4, "random_state": 0, "persist": False, "scoring": scoring}
    given |= {"early_stopping": True, "alphas": [1e-4, 1e-2]}
    monkeypatch.setattr(training, "blocks_mixed", lambda *_: 2)
    whole = rf.SGDClassifier(**given).fit(*data)
    calls = iter(range(100))

    def train(*args: Any) -> Any:
        if next(calls) == 14:  # the second epoch, after a checkpoint within it
            raise KeyboardInterrupt
        return original(*args)

    original = training.train_on_blocks
    path = tmp_path / "state.npz"
    model = rf.SGDClassifier(checkpoint=path, checkpoint_every=2, **given)
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_on_blocks", train)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data)
    assert path.exists()
    model.fit(*data)
    assert np.array_equal(model.coef_, whole.coef_)
    assert model.history_ == whole.history_


INTERRUPTED = {
    "accuracy": rf.KernelClassifier(10, epochs=3, random_state=0, scoring="accuracy"),
    "log_loss": rf.KernelClassifier(10, epochs=3, random_state=0, scoring="neg_log_loss"),
    "kernel_mse": rf.KernelRegressor(
        10, epochs=3, random_state=0, scoring="neg_mean_squared_error"
    ),
    "sgd_mse": rf.SGDRegressor(
        epochs=3, random_state=0, scoring="neg_mean_squared_error", early_stopping=True
    ),
    # The first epoch is the best, so that the second checkpoint is that of an early end.
    "sgd_ended_early": rf.SGDClassifier(
        epochs=5, random_state=0, scoring="accuracy", early_stopping=True, patience=1
    ),
    "kernel_ended_early": rf.KernelClassifier(
        10, epochs=5, random_state=0, scoring="accuracy", patience=1, step_size=0.5
    ),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_checkpoints_hold_scores_below_zero_and_an_early_end(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rare_rows(3000)
    data = lazy(X, 150), lazy(y, 150)
    whole = clone(INTERRUPTED[name]).fit(*data)
    model = clone(INTERRUPTED[name]).set_params(checkpoint=tmp_path / "state.npz")
    write = training.Checkpoint._write
    last = len(whole.history_) - ("early" not in name)

    def write_and_stop(self: Any, *args: Any, **about: Any) -> None:
        write(self, *args, **about)
        if list(about["position"]) == [last, 0]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Checkpoint, "_write", write_and_stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data)
    assert ("early" in name) == (len(whole.history_) < whole.epochs)
    model.fit(*data)
    assert model.history_ == whole.history_
    assert np.array_equal(model.coef_, whole.coef_)


def test_chains_judge_all_rows_held_out() -> None:
    X, y = rare_rows(4000)
    model = rf.SGDClassifier(
        chains=2, alphas=[1e-4, 1e-2], scoring="roc_auc", early_stopping=True, random_state=0
    ).fit(lazy(X, 500), lazy(y, 500))
    assert model.history_[-1]["held_out_score"] > 0.6


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "neg_log_loss"])
def test_kernel_classifier_returns_the_best_epoch(scoring: str) -> None:
    X, y = rare_rows(3000)
    model = rf.KernelClassifier(30, gamma=0.2, epochs=6, random_state=0, scoring=scoring)
    model.fit(lazy(X, 1000), lazy(y, 1000))
    scores = [entry["held_out_score"] for entry in model.history_]
    fewer = rf.KernelClassifier(30, gamma=0.2, epochs=6, random_state=0).fit(X, y)
    assert "held_out_score" not in fewer.history_[0]
    assert np.isfinite(scores).all()


def test_the_state_that_is_kept_has_the_best_score() -> None:
    start: Any = "start"
    best = BestState(start)
    for name, score in [("a", 0.7), ("b", 0.9), ("c", 0.8), ("d", 0.85)]:
        state: Any = name
        best.see(state, Judgement(np.array([0.1, 0.5]), np.ones(2), np.array([0.1, score])))
    assert (best.parameters, best.head, best.loss, best.since) == ("b", 1, -0.9, 2)


def test_regressors_stop_by_the_metric_of_several_targets() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3)).astype(np.float32)
    y = np.c_[X[:, 0], 100 * X[:, 1]]
    given: dict[str, Any] = {"scoring": "neg_mean_absolute_error", "random_state": 0}
    kernel = rf.KernelRegressor(20, gamma=0.1, epochs=3, **given).fit(X, y)
    linear = rf.SGDRegressor(early_stopping=True, **given).fit(X, y)
    for model in (kernel, linear):
        missed = np.abs(y - model.predict(X)).mean()
        best = max(entry["held_out_score"] for entry in model.history_)
        assert missed < -1.5 * best  # of the kernel model, features that stayed were better still


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (rf.SGDClassifier(scoring="r2"), "must be one for classes: accuracy"),
        (rf.SGDClassifier(scoring="neg_log_loss"), "needs probabilities: use loss='log_loss'"),
        (rf.SGDClassifier(alpha=0.1, scoring="f1_macro"), "pass early_stopping=True"),
        (rf.KernelClassifier(5, scoring="f1"), "must be one for classes"),
        (rf.KernelClassifier(5, scoring="roc_auc", validation_fraction=0), "holds no rows out"),
        (rf.KernelRegressor(5, scoring="accuracy"), "must be one for numbers: r2"),
    ],
)
def test_metrics_that_do_not_go_with_the_model_are_refused(model: Any, said: str) -> None:
    X, y = rare_rows(600)
    with pytest.raises(ValueError, match=said):
        model.fit(X, y)


def test_one_class_among_the_rows_held_out_is_said() -> None:
    X, _ = rare_rows(600)
    y = np.zeros(600, int)
    y[np.flatnonzero(~held_out_rows(600, 0.1, 0, 0))[0]] = 1
    model = rf.SGDClassifier(scoring="roc_auc", early_stopping=True, random_state=0)
    with pytest.raises(ValueError, match="all of one class: hold out more"):
        model.fit(X, y)
