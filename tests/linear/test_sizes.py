"""Values near the ends of float32 and float64: learned from rightly, or refused with a remedy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

import rfcdask as rf
from rfcdask.data.errors import DataError

X = np.random.default_rng(0).normal(size=(400, 4))
Y = X[:, 0] + 0.1 * X[:, 1]
SIZES = [1e-300, 1e-160, 1e-40, 1e30, 1e160, 1e300]
SMALL = [
    rf.SGDRegressor(epochs=5, random_state=0),
    rf.KernelRegressor(20, epochs=40, random_state=0),
]
MAPS = [
    rf.RandomFeatures(8),
    rf.RandomFeatures(8, gamma="median"),
    rf.CompressedFeatures(8, n_candidates=50, refine=5),
]


@pytest.mark.parametrize("size", SIZES)
def test_standardizing_any_size_is_that_of_one(size: float) -> None:
    wanted = rf.Standardizer().fit_transform(X)
    np.testing.assert_allclose(rf.Standardizer().fit_transform(X * size), wanted, rtol=1e-7)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("model", [*SMALL, rf.Ridge(0.0)], ids=lambda m: type(m).__name__)
def test_columns_of_any_size_are_learned_or_refused(model: Any, size: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = model.fit(X * size, Y).score(X * size, Y)
        except ValueError as error:
            assert "scale" in str(error)  # noqa: PT017
            rows = rf.Standardizer().fit_transform(X * size)
            found = model.fit(rows, Y).score(rows, Y)
    assert found > 0.9


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("features", MAPS, ids=str)
def test_maps_of_any_size_are_those_of_one(features: Any, size: float) -> None:
    wanted = features.set_params(random_state=0).fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = features.fit_transform(X * size)
        except ValueError as error:
            assert "scale X first (rfcdask.Standardizer)" in str(error)  # noqa: PT017
            found = features.fit_transform(rf.Standardizer().fit_transform(X * size))
            wanted = features.fit_transform(rf.Standardizer().fit_transform(X))
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.parametrize("size", [1e-42, 1e-36, 1e-20, 1e20, 1e36])
def test_squares_beyond_float32_are_summed(size: float) -> None:
    rows = (X * size).astype("float32")
    theirs = Ridge(1e-200).fit(rows.astype(float), Y)
    mine = rf.Ridge(1e-200).fit(rows, Y)
    np.testing.assert_allclose(mine.coef_ * size, theirs.coef_ * size, atol=1e-6)
    wanted = PCA(2).fit(rows.astype(float)).components_
    np.testing.assert_allclose(rf.PCA(2).fit(rows).components_, wanted, atol=1e-4)


def test_a_constant_model_of_small_columns_is_said() -> None:
    with pytest.warns(UserWarning, match=r"alpha=1 leaves a constant model; scale X first"):
        rf.Ridge().fit(X * 1e-20, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rf.Ridge().fit(np.full((50, 3), 0.1), Y[:50])  # nothing varies, and nothing can be done


@pytest.mark.parametrize("size", [1e-300, 1e-60, 1e-25, 1e25, 1e60, 1e200])
@pytest.mark.parametrize("model", [*SMALL, rf.Ridge()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_targets_of_any_size_are_learned_or_refused(model: Any, size: float, kind: str) -> None:
    rows = X.astype(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            predicted = model.fit(rows, Y * size).predict(rows) / size
        except ValueError as error:
            assert any(word in str(error) for word in ("its size", "or y"))  # noqa: PT017
            predicted = model.fit(rows, Y).predict(rows)
    assert np.corrcoef(predicted, Y)[0, 1] > 0.9


def test_errors_too_small_to_square_are_not_perfect() -> None:
    model = rf.Ridge().fit(X, Y * 1e-200)
    with pytest.raises(ValueError, match="too small to square"):
        model.score(X, Y[::-1] * 1e-200)


def test_a_score_beyond_float32_is_no_class() -> None:
    rows = np.array([[1e38, 1e38], [-1e38, -1e38]], "float32")
    model = rf.RidgeClassifier().fit(rows / np.float32(1e38), [1, 0])
    model.coef_ = model.coef_ * 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(rows), [1, 0])
    with pytest.raises(ValueError, match="give X as float64"):
        model.decision_function(rows)
    assert np.isfinite(model.decision_function(rows.astype(float))).all()


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e200])
def test_a_store_without_deviations_says_so(tmp_path: Path, size: float) -> None:
    store = rf.ingest(X * size, tmp_path / "x.zarr", dtype="float64")
    for asked in (store.standardize, lambda: rf.Standardizer.of(store)):
        with pytest.raises(DataError, match=r"column 0 .*fit rfcdask.Standardizer on X"):
            asked()
    np.testing.assert_allclose(rf.Standardizer().fit(store.X).transform(store.X).std(0), 1.0)


def test_the_scale_of_a_store_may_have_no_square(tmp_path: Path) -> None:
    store = rf.ingest(X, tmp_path / "x.zarr", dtype="float64", scale=1e-200)
    np.testing.assert_allclose(store.standardize().X.std(0), 1.0)
    large = rf.ingest(X, tmp_path / "y.zarr", dtype="float64", scale=1e200)
    np.testing.assert_allclose(large.standardize().X.std(0), 1.0)


@pytest.mark.parametrize("size", [1e-300, 1e-160])
def test_small_numbers_of_a_table_are_refused(size: float) -> None:
    table = pd.DataFrame({"a": X[:, 0] * size, "b": X[:, 1]})
    with pytest.raises(DataError, match=r"column 'a' are too small .*columns=\{'a': 'drop'\}"):
        rf.TableEncoder().fit(table)
    assert rf.TableEncoder(columns={"a": "drop"}).fit_transform(table).shape == (400, 1)
