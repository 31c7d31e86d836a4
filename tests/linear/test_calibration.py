"""Probabilities from scores: those of scikit-learn's calibration, lazily, saved with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from tests.linear_data import blobs, lazy


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("k", [2, 3])
def test_probabilities_are_scikit_learns(method: str, k: int, tmp_path: Path) -> None:
    X, codes = blobs(900, 4, k, seed=1)
    X = X + 2 * np.random.default_rng(0).normal(size=X.shape)
    y = np.array(["ash", "birch", "cedar"])[codes]
    model = make_pipeline(
        rf.RandomFeatures(40, random_state=0), rf.SGDClassifier("hinge", random_state=0)
    ).fit(X[:300], y[:300])
    labels = model.predict(X)
    exact = CalibratedClassifierCV(FrozenEstimator(model), method=method)
    wanted = exact.fit(X[300:600], y[300:600]).predict_proba(X)
    assert not hasattr(model, "predict_proba")
    rf.calibrate(model, lazy(X[300:600], 70), lazy(y[300:600], 70), method=method)
    np.testing.assert_allclose(model.predict_proba(X), wanted, atol=1e-6)
    assert np.array_equal(model.predict(X), labels)
    rf.save(model, tmp_path / "model")
    again = rf.load(tmp_path / "model").predict_proba(lazy(X, 100))
    assert again.chunks == (((100,) * 9), (k,))
    np.testing.assert_allclose(again.compute(), model.predict_proba(X), atol=1e-9)
    if method == "sigmoid":  # steps of zero have no logarithm
        assert rf.metrics.evaluate(model, X[600:], y[600:])["neg_log_loss"] > -np.log(k)


def test_another_fit_forgets_the_calibration() -> None:
    X, y = blobs(300, 3, 2)
    model = rf.RidgeClassifier().fit(X, y).calibrate(X, y)
    assert model.predict_proba(X).shape == (300, 2)
    model.fit(X, y)
    assert not hasattr(model, "predict_proba")


def test_few_rows_of_many_are_enough() -> None:
    X, y = blobs(4000, 3, 2)
    model = rf.RidgeClassifier().fit(X, y)
    whole = model.calibrate(X, y).predict_proba(X)
    some = model.calibrate(X, y, n_rows=1000, random_state=1).predict_proba(X)
    assert 0 < np.abs(whole - some).max() < 0.1


def test_what_cannot_be_calibrated_is_named() -> None:
    X, y = blobs(300, 3, 2)
    model = rf.RidgeClassifier().fit(X, y)
    with pytest.raises(ValueError, match="method='platt' must be one of sigmoid, isotonic"):
        model.calibrate(X, y, method="platt")
    rare: Any = [np.flatnonzero(y == 0)[:50], np.flatnonzero(y == 1)[:3]]
    few = np.concatenate(rare)
    with pytest.raises(ValueError, match="5 rows of every class, and one has 3"):
        model.calibrate(X[few], y[few])
    with pytest.raises(TypeError, match="LinearRegression is no classifier of rfcdask"):
        rf.calibrate(LinearRegression(), X, y)


def test_a_damaged_calibration_is_refused(tmp_path: Path) -> None:
    X, y = blobs(300, 3, 2)
    model = rf.RidgeClassifier().fit(X, y).calibrate(X, y)
    model.calibration_ = model.calibration_._replace(ends=np.array([2]))
    rf.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="calibration_ does not fit the other arrays"):
        rf.load(tmp_path / "model")


@pytest.mark.parametrize("n_rows", [0, -5, 1.5, "many", True])
def test_rows_that_cannot_be_counted_are_refused(n_rows: Any) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = rf.RidgeClassifier().fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match=r"n_rows=.* must be a whole number of at least 1"):
        model.calibrate(X, X[:, 0] > 0, n_rows=n_rows)
