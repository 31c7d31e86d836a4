"""Streamed metrics against scikit-learn's on the whole arrays."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rfcdask as rf
from rfcdask.linear.counts import RankedScores

LABELS = ("accuracy_score", "balanced_accuracy_score", "confusion_matrix")
AVERAGED = ("recall_score", "precision_score", "f1_score")
ERRORS = ("r2_score", "mean_absolute_error", "mean_squared_error", "root_mean_squared_error")


@st.composite
def rows_in_chunks(draw: Any) -> tuple[np.random.Generator, tuple[int, ...], bool]:
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=6))
    sizes = (*sizes, 12)
    return np.random.default_rng(draw(st.integers(0, 2**32))), sizes, draw(st.booleans())


def same(name: str, arrays: list[Any], chunks: tuple[int, ...], weights: Any, **more: Any) -> None:
    """The metric of the blocks, of other blocks of predictions, and of the whole arrays."""
    with warnings.catch_warnings(), dask.config.set(scheduler="sync"):
        warnings.simplefilter("ignore")
        wanted = getattr(sklearn.metrics, name)(*arrays, sample_weight=weights, **more)
        lazy = da.from_array(arrays[0], chunks=(chunks, *arrays[0].shape[1:]))
        second = da.from_array(arrays[1], chunks=(7, -1) if arrays[1].ndim == 2 else 7)
        found = getattr(rf.metrics, name)(lazy, second, sample_weight=weights, **more)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(
    rows_in_chunks(), st.sampled_from([2, 4]), st.sampled_from([None, "macro", "weighted", "micro"])
)
def test_metrics_of_labels_equal_scikit_learns(case: Any, k: int, average: Any) -> None:
    rng, chunks, weighted = case
    n = sum(chunks)
    names = np.array(["ash", "birch", "cedar", "doum"]) if average == "macro" else np.arange(4)
    y, predicted = names[rng.integers(0, k, n)], names[rng.integers(0, k, n)]
    weights = rng.uniform(0, 2, n) if weighted else None
    for name in LABELS:
        same(name, [y, predicted], chunks, weights)
    for name in AVERAGED:
        same(name, [y, predicted], chunks, weights, average=average)
    if k == 2:
        same("f1_score", [y, predicted], chunks, weights, pos_label=names[1])


@settings(max_examples=15, deadline=None)
@given(rows_in_chunks(), st.sampled_from([1, 3]), st.sampled_from([0.0, 1e3]))
def test_metrics_of_numbers_equal_scikit_learns(case: Any, k: int, shift: float) -> None:
    rng, chunks, weighted = case
    shape = (sum(chunks),) if k == 1 else (sum(chunks), k)
    y = rng.normal(size=shape) + shift
    arrays, weights = [y, y + rng.normal(size=shape)], None
    if weighted:
        weights = rng.uniform(0, 2, shape[0])
    for name in ERRORS:
        same(name, arrays, chunks, weights, multioutput="raw_values")
    same("r2_score", arrays, chunks, weights, multioutput="variance_weighted")
    if k > 1:
        same("mean_squared_error", arrays, chunks, weights, multioutput=np.arange(1.0, k + 1))


@settings(max_examples=15, deadline=None)
@given(rows_in_chunks(), st.booleans())
def test_metrics_of_two_classes_scores_are_exact(case: Any, ties: bool) -> None:
    rng, chunks, weighted = case
    n = sum(chunks)
    y = rng.permutation(np.arange(n) % 3 == 0).astype(int)
    proba = rng.uniform(size=n).round(1 if ties else 9)
    weights = rng.uniform(0.1, 2, n) if weighted else None
    names = ("roc_auc_score", "average_precision_score", "log_loss", "brier_score_loss")
    for name in names:
        same(name, [y, proba], chunks, weights)


@settings(max_examples=15, deadline=None)
@given(rows_in_chunks())
def test_metrics_of_several_classes_scores_are_exact(case: Any) -> None:
    rng, chunks, weighted = case
    n = sum(chunks)
    y = np.array(["a", "b", "c"])[rng.permutation(np.arange(n) % 3)]
    proba = rng.dirichlet(np.ones(3), n)
    weights = rng.uniform(0.1, 2, n) if weighted else None
    same("log_loss", [y, proba], chunks, weights)
    # By its definition: scikit-learn has it for several classes since 1.7.
    squares = ((proba - (y[:, None] == np.array(["a", "b", "c"]))) ** 2).sum(axis=1)
    found = rf.metrics.brier_score_loss(da.from_array(y, chunks), proba, sample_weight=weights)
    np.testing.assert_allclose(found, np.average(squares, weights=weights), rtol=1e-12)
    for average in ("macro", "weighted"):
        same("average_precision_score", [y, proba], chunks, weights, average=average)
        same("roc_auc_score", [y, proba], chunks, weights, average=average, multi_class="ovr")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 200), st.integers(2, 30), st.booleans())
def test_binned_areas_are_within_their_bound(
    seed: int, most: int, n_blocks: int, in_order: bool
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.uniform(size=4000) < rng.choice([0.02, 0.5])
    scores = np.where(rng.uniform(size=4000) < 0.2, 0.5, rng.normal(size=4000) + y)
    order = np.argsort(scores) if in_order else np.arange(4000)
    parts = np.array_split(order, n_blocks)
    ranked = RankedScores.of(scores[parts[0]], y[parts[0]], None, most)
    for part in parts[1:]:
        ranked = ranked.merge(RankedScores.of(scores[part], y[part], None, most))
    assert max(sum(len(p.scores) for p in level) for level in ranked.levels) <= 2 * most + 1
    auc_bound, precision_bound = ranked.error_bounds()
    labels, kept, weights = ranked.rows()
    for metric, bound in (
        (sklearn.metrics.roc_auc_score, auc_bound),
        (sklearn.metrics.average_precision_score, precision_bound),
    ):
        exact = metric(y, scores)
        assert abs(metric(labels, kept, sample_weight=weights) - exact) <= bound + 1e-12
    assert 0 < auc_bound <= 8 / most * (2 + np.log2(4000 / most))


def test_few_scores_are_ranked_without_bins() -> None:
    rng = np.random.default_rng(0)
    ranked = RankedScores.of(rng.normal(size=500), rng.uniform(size=500) < 0.5, None, 500)
    assert ranked.error_bounds() == (0.0, 0.0)


@pytest.mark.parametrize("k", [2, 3])
def test_evaluate_measures_what_scikit_learn_does(k: int) -> None:
    rng = np.random.default_rng(k)
    X = rng.normal(size=(900, 4)).astype(np.float32)
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + rng.normal(0, 0.5, 900), [0, 1][: k - 1])]
    lazy, column = da.from_array(X, chunks=(200, 4)), da.from_array(y, chunks=200)
    features = rf.RandomFeatures(30, random_state=0)
    for model in (
        make_pipeline(features, rf.SGDClassifier("log_loss", random_state=0)),
        HistGradientBoostingClassifier(max_iter=5),
    ):
        model.fit(X, y)
        found = rf.metrics.evaluate(model, lazy, column)
        metrics, predicted = sklearn.metrics, model.predict(X)
        proba = model.predict_proba(X).astype(float)
        proba /= proba.sum(1, keepdims=True)
        scores = model.decision_function(X)
        wanted = {
            "accuracy": metrics.accuracy_score(y, predicted),
            "balanced_accuracy": metrics.balanced_accuracy_score(y, predicted),
            "f1_macro": metrics.f1_score(y, predicted, average="macro"),
            "neg_log_loss": -metrics.log_loss(y, proba),
            "roc_auc": metrics.roc_auc_score(y, scores if k == 2 else proba, multi_class="ovr"),
        }
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, abs=1e-6), name
        assert np.array_equal(found.confusion, metrics.confusion_matrix(y, predicted))
        recalls = metrics.recall_score(y, predicted, average=None)
        assert [row["recall"] for row in found.per_class] == pytest.approx(recalls.tolist())


def test_evaluate_measures_several_targets() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.c_[X @ [1.0, 2, 3], rng.normal(size=300)]
    found = rf.metrics.evaluate(rf.Ridge().fit(X, y), X, y)
    predicted = rf.Ridge().fit(X, y).predict(X)
    assert found["r2"] == pytest.approx(sklearn.metrics.r2_score(y, predicted))
    assert found["neg_mean_absolute_error"] == pytest.approx(
        -sklearn.metrics.mean_absolute_error(y, predicted)
    )
    assert found.targets["r2"][0] == pytest.approx(1, abs=1e-3)
    with pytest.raises(KeyError, match="there are r2"):
        found["accuracy"]


def test_a_class_that_is_never_predicted_is_warned_of() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = np.where(rng.uniform(size=1000) < 0.02, "rare", np.where(X[:, 0] > 0, "left", "right"))
    model = rf.RidgeClassifier().fit(X, y)
    with pytest.warns(rf.metrics.NeverPredictedWarning, match="'rare' is never predicted"):
        model.score(X, y)
    with pytest.warns(rf.metrics.NeverPredictedWarning, match="class_weight='balanced'"):
        assert rf.metrics.evaluate(model, X, y).never_predicted == ["rare"]
    balanced = rf.RidgeClassifier(class_weight="balanced").fit(X, y)
    assert balanced.score(X, y) < model.score(X[y != "rare"], y[y != "rare"])


def test_metrics_refuse_what_they_cannot_measure() -> None:
    y = da.from_array(np.arange(6) % 3, chunks=3)
    scores = da.random.default_rng(0).uniform(size=(6, 3), chunks=(3, 3))
    with pytest.raises(ValueError, match="pass multi_class='ovr'"):
        rf.metrics.roc_auc_score(y, scores)
    with pytest.raises(ValueError, match="continuous numbers"):
        rf.metrics.accuracy_score(y, scores[:, 0])
    with pytest.raises(ValueError, match="y_pred has shape"):
        rf.metrics.accuracy_score(y, np.zeros(5))
    with pytest.raises(ValueError, match="all strings or all numbers"):
        rf.metrics.accuracy_score(y, np.array(list("abcabc")))
    with pytest.raises(TypeError, match="unexpected keyword argument 'wieghts'"):
        rf.metrics.accuracy_score(y, y, wieghts=1)


def test_what_has_no_metric_is_refused() -> None:
    y = da.arange(40, chunks=10) % 2
    for value in (np.nan, np.inf):
        for name in ("mean_squared_error", "mean_absolute_error", "r2_score"):
            with pytest.raises(ValueError, match="contain NaN or infinity"):
                getattr(rf.metrics, name)(y, da.full(40, value, chunks=10))
    with pytest.raises(ValueError, match=r"beyond 2\*\*53 are the same as floating point"):
        rf.metrics.accuracy_score(y + 2**53, (y * 0 + 2.0**53))


def test_evaluate_finds_the_columns_of_frames_by_name() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)) * [1, 5, 9], columns=["a", "b", "c"])
    y, other = (frame["a"] > 0).to_numpy(), frame[["c", "b", "a"]]
    models = (rf.RidgeClassifier(), make_pipeline(rf.Standardizer(), rf.RidgeClassifier()))
    for model in models:
        model.fit(frame, y)
        assert rf.metrics.evaluate(model, frame, y)["accuracy"] == model.score(frame, y)
        with pytest.raises(ValueError, match="feature names"):
            rf.metrics.evaluate(model, other, y)
    of_table = make_pipeline(rf.TableEncoder(), *(step for _, step in models[1].steps))
    of_table.fit(frame, y)
    for rows in (frame, other):
        assert rf.metrics.evaluate(of_table, rows, y)["accuracy"] == of_table.score(frame, y)


def test_evaluate_puts_the_columns_of_a_frame_in_the_order_of_a_store(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    y = (frame["a"] > 0).astype(int)
    store = rf.ingest(frame.assign(label=y), tmp_path / "rows.zarr")
    model = rf.RidgeClassifier().fit(store.X, store.y)
    assert rf.metrics.evaluate(model, frame[["b", "a"]], y)["accuracy"] == model.score(frame, y)


@pytest.mark.filterwarnings("error:X (has|does not have valid) feature names")
def test_evaluate_finds_the_columns_of_a_store_for_models_of_scikit_learn(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    y = (frame["a"] > 0).astype(int)
    store = rf.ingest(frame[["b", "a"]].assign(label=y), tmp_path / "rows.zarr")
    for model in (
        RidgeClassifier(),
        make_pipeline(StandardScaler(), rf.RidgeClassifier()),
        make_pipeline("passthrough", rf.RidgeClassifier()),
    ):
        model.fit(frame, y)
        for rows in (store.X, frame):
            assert rf.metrics.evaluate(model, rows, y)["accuracy"] == model.score(frame, y)


def test_a_rule_for_several_targets_that_is_none_is_refused() -> None:
    y = da.from_array(np.random.default_rng(0).normal(size=(20, 2)), chunks=(7, 2))
    with pytest.raises(ValueError, match="must be one of uniform_average, raw_values, variance"):
        rf.metrics.r2_score(y, y, multioutput="variance-weighted")
    with pytest.raises(ValueError, match="must be one of uniform_average, raw_values, or"):
        rf.metrics.mean_absolute_error(y, y, multioutput="variance_weighted")


def test_one_column_of_labels_is_measured_as_labels() -> None:
    rng = np.random.default_rng(0)
    y, shares, weights = rng.integers(0, 2, 90), rng.random(90), rng.random(90)
    predicted = (shares > 0.4).astype(int)
    for name in (*LABELS, *AVERAGED):
        same(name, [y[:, None], predicted], (40, 50), weights)
        same(name, [y, predicted[:, None]], (40, 50), weights)
    for name in ("roc_auc_score", "average_precision_score", "log_loss", "brier_score_loss"):
        same(name, [y[:, None], shares], (40, 50), weights)
        same(name, [y, shares[:, None]], (40, 50), weights)


def test_metrics_refuse_several_columns_where_one_is_measured() -> None:
    y = da.from_array(np.arange(40).reshape(20, 2) % 3, chunks=(7, 2))
    for name in (*LABELS, *AVERAGED, "roc_auc_score", "log_loss"):
        with pytest.raises(ValueError, match=r"y_true has shape \(20, 2\): give one entry"):
            getattr(rf.metrics, name)(y, y)
    with pytest.raises(ValueError, match=r"sample_weight has shape \(20, 2\): give one entry"):
        rf.metrics.accuracy_score(y[:, 0], y[:, 0], sample_weight=y)


def test_targets_are_compared_with_as_many_predictions() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    one, two = X[:, 0], X[:, :2]
    for name in ERRORS:
        for y, predicted in ((two, one), (one, two), (two, X)):
            with pytest.raises(ValueError, match=r"target\(s\) per row and its predictions"):
                getattr(rf.metrics, name)(da.from_array(y, chunks=20), predicted)
    model = rf.Ridge().fit(X, one)
    for measure in (model.score, lambda *rows: rf.metrics.evaluate(model, *rows)):
        with pytest.raises(ValueError, match=r"y has 2 target\(s\) per row and its predictions 1"):
            measure(X, two)
    with pytest.raises(ValueError, match=r"y has 2 target\(s\) per row and its predictions 1"):
        rf.permutation_importance(model, X, two)
    with pytest.raises(ValueError, match="give 2 weights"):
        rf.metrics.r2_score(da.from_array(two), two, multioutput=[1.0, 2.0, 3.0])


def test_scores_are_those_of_the_labels_that_are_named() -> None:
    y = da.from_array(np.arange(60) % 3, chunks=20)
    shares = da.from_array(np.random.default_rng(0).dirichlet(np.ones(3), 60), chunks=(20, 3))
    for labels in (["a", "b", "c"], [1, 2, 3]):
        for name, more in (("log_loss", {}), ("roc_auc_score", {"multi_class": "ovr"})):
            with pytest.raises(ValueError, match=r"y_true has labels .* that are not in labels="):
                getattr(rf.metrics, name)(y, shares, labels=labels, **more)
    with pytest.raises(ValueError, match="must be sorted, as the columns of y_score are"):
        rf.metrics.roc_auc_score(y, shares, labels=[2, 1, 0], multi_class="ovr")
    two = da.stack([1 - shares[:, 0], shares[:, 0]], axis=1).rechunk((20, 2))
    with pytest.raises(ValueError, match="two columns: give that of pos_label=0 alone"):
        rf.metrics.average_precision_score(y % 2, two, pos_label=0)


def test_only_scores_are_lazy() -> None:
    """The labels were in memory, and the error was a StopIteration."""
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 50), rng.random(50)
    lazy = da.from_array(p, chunks=13)
    for name in ("roc_auc_score", "average_precision_score", "log_loss", "brier_score_loss"):
        found = getattr(rf.metrics, name)(y, lazy)
        np.testing.assert_allclose(found, getattr(sklearn.metrics, name)(y, p), rtol=1e-12)


def test_one_score_for_three_classes_is_refused() -> None:
    """It was taken for that of the last class."""
    y, p = np.arange(30) % 3, da.from_array(np.linspace(0, 1, 30), chunks=7)
    with pytest.raises(ValueError, match=r"y_score has 1 column\(s\) and y_true 3 classes"):
        rf.metrics.roc_auc_score(y, p, multi_class="ovr")
    with pytest.raises(ValueError, match=r"y_score has 1 column\(s\) and y_true 3 classes"):
        rf.metrics.average_precision_score(y, p)


@pytest.mark.filterwarnings("ignore:R.2 score is not well-defined")
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("multioutput", ["raw_values", "uniform_average", "variance_weighted"])
def test_r2_of_targets_that_never_change(rows: int, multioutput: str) -> None:
    """`force_finite` was a TypeError, and R2 of one row 0 or 1 instead of NaN."""
    y = np.column_stack([np.full(rows, 2.0), np.full(rows, 3.0), np.arange(rows)])
    predicted = y + np.array([0.0, 1.0, 0.5])
    for finite in (True, False):
        options: dict[str, Any] = {"force_finite": finite, "multioutput": multioutput}
        with np.errstate(invalid="ignore", divide="ignore"):
            wanted = sklearn.metrics.r2_score(y, predicted, **options)
            found = rf.metrics.r2_score(da.from_array(y, chunks=(4, -1)), predicted, **options)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_labels_that_are_pythons_own_numbers() -> None:
    """As of a frame of several types; scikit-learn calls them unknown."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    for y in (X[:, 0] > 0, (X[:, 0] > 0).astype(int)):
        model, objects = rf.RidgeClassifier().fit(X, y), y.astype(object)
        assert rf.metrics.evaluate(model, X, objects).values == (
            rf.metrics.evaluate(model, X, y).values
        )
        lazy = da.from_array(objects, chunks=13)
        assert rf.metrics.accuracy_score(lazy, model.predict(X)) == model.score(X, objects)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_a_class_without_rows_weighs_nothing() -> None:
    """The weighted mean was NaN."""
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 50), rng.dirichlet(np.ones(3), 50)
    options: dict[str, Any] = {"multi_class": "ovr", "average": "weighted", "labels": [0, 1, 2]}
    found = rf.metrics.roc_auc_score(da.from_array(y, chunks=13), p, **options)
    assert found == pytest.approx(sklearn.metrics.roc_auc_score(y, p, **options), rel=1e-12)
