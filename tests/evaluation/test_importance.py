"""Importances of columns, against scikit-learn's permutation of the whole column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.inspection import permutation_importance
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.kernels.arrays import Array
from tests.linear_data import lazy


def rows(n: int = 2000) -> tuple[Array, Array]:
    X = np.random.default_rng(0).normal(size=(n, 4))
    return X, np.where(X[:, 2] + 0.5 * X[:, 0] > 0, "up", "down")


def test_importances_are_near_scikit_learns() -> None:
    X, y = rows()
    model = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
    wanted = permutation_importance(model, X, y, n_repeats=5, random_state=0)
    found = rf.permutation_importance(model, lazy(X, 300), lazy(y, 300), random_state=0)
    assert found.score == model.score(X, y)
    np.testing.assert_allclose(found.importances_mean, wanted.importances_mean, atol=0.01)
    assert found.importances.shape == wanted.importances.shape
    assert (found.importances_std < 0.02).all()


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=4))
def test_importances_do_not_depend_on_chunks(sizes: list[int]) -> None:
    X, y = rows(sum(sizes) + 100)
    model = rf.RidgeClassifier().fit(X, y)
    cut = ((*sizes, 100),)
    first, other = (
        rf.permutation_importance(
            model, lazy(X, 64).rechunk({0: chunks[0]}), y, n_repeats=2, random_state=1
        )
        for chunks in (cut, ((len(X),),))
    )
    np.testing.assert_allclose(first.importances, other.importances, atol=1e-12)


def test_importances_name_the_columns_of_a_pipeline() -> None:
    X, y = rows(400)
    frame = pd.DataFrame(X, columns=["age", "<script>", "height", "x"])
    model = make_pipeline(rf.Standardizer(), rf.RidgeClassifier()).fit(frame, y)
    found = rf.permutation_importance(model, X, y, scoring="roc_auc", random_state=0)
    assert found.table.rows[0]["column"] == "height"
    assert repr(found).startswith("PermutationImportance(roc_auc=")
    shown = found._repr_html_()
    assert "height" in shown
    assert "<script>" not in shown
    assert found.plot().get_xlabel() == "loss of roc auc"


def test_importances_of_numbers_and_wrong_names() -> None:
    X, _ = rows(300)
    model = rf.Ridge().fit(X, X[:, 1] * 3 + 1)
    found = rf.permutation_importance(model, X, X[:, 1] * 3 + 1, random_state=0)
    assert found.importances_mean[1] == pytest.approx(2, abs=0.3)  # twice the variance
    with pytest.raises(ValueError, match="scoring='accuracy' must be one for numbers"):
        rf.permutation_importance(model, X, X[:, 1], scoring="accuracy")
    with pytest.raises(ValueError, match="feature_names has 1 names for 4 columns"):
        rf.permutation_importance(model, X, X[:, 1], feature_names=["a"])


def table(n: int = 1500) -> tuple[pd.DataFrame, Array]:
    rng = np.random.default_rng(1)
    age = np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 10, n))
    city = rng.choice(["Oslo", "Bergen", "Rome"], n)
    frame = pd.DataFrame({"noise": rng.normal(size=n), "city": city, "age": age})
    return frame, np.where((city == "Oslo") ^ (age > 55) ^ np.isnan(age), "yes", "no")


def test_encoded_columns_are_mixed_up_by_source(tmp_path: Path) -> None:
    frame, y = table()
    model = make_pipeline(rf.TableEncoder(), rf.RidgeClassifier()).fit(frame, y)
    found = rf.permutation_importance(model, frame, y, random_state=0)
    # scikit-learn permutes the columns of the table before they are encoded.
    wanted = permutation_importance(model, frame, y, n_repeats=5, random_state=0)
    assert found.names == ["noise", "city", "age"]
    assert found.score == model.score(frame, y)
    np.testing.assert_allclose(found.importances_mean, wanted.importances_mean, atol=0.025)
    store = rf.ingest(frame.assign(y=y), tmp_path / "rows.zarr", label="y")
    by_name = rf.permutation_importance(
        model[1:],
        store.X,
        y,
        groups=rf.TableEncoder.of(store).sources(),
        feature_names=store.columns,
        random_state=0,
    )
    by_model = rf.permutation_importance(model, store.X, y, groups="source", random_state=0)
    lazily = rf.permutation_importance(
        model, dd.from_pandas(frame, npartitions=3), y, random_state=0
    )
    for other in (by_name, by_model, lazily):
        assert other.names == found.names
        np.testing.assert_allclose(other.importances, found.importances, atol=1e-12)
    alone = rf.permutation_importance(model, frame, y, groups={}, n_repeats=1, random_state=0)
    assert alone.names == ["noise", "city=Bergen", "city=Oslo", "city=Rome", "age", "age missing"]


@settings(max_examples=5, deadline=None)
@given(st.permutations(range(4)), st.integers(1, 4))
def test_groups_are_mixed_up_from_one_row(order: list[int], size: int) -> None:
    X, y = rows(200)
    X[:, order[:size]] = X[:, order[:1]]  # the same value in all columns of the group

    class Equal(HistGradientBoostingClassifier):
        def predict(self, X: Array) -> Array:
            assert (X[:, order[:size]] == X[:, order[:1]]).all()
            return super().predict(X)

    model = Equal(max_iter=1).fit(X, y)
    found = rf.permutation_importance(
        model, lazy(X, 70), y, groups={"same": order[:size]}, n_repeats=1, random_state=0
    )
    assert len(found.names) == 5 - size
    assert found.names[sum(k < min(order[:size]) for k in order[size:])] == "same"


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"a": ["x0", "x9"]}, "'a' has a column 'x9', which X has not"),
        ({"a": [0, 4]}, "'a' has a column 4, which X has not"),
        ({"a": ["x0"], "b": [0]}, "column 0 is in 'a' and 'b'"),
        ("source", "needs a pipeline that begins with a TableEncoder; of a store pass"),
    ],
)
def test_wrong_groups_are_named(groups: Any, said: str) -> None:
    X, y = rows(50)
    with pytest.raises(ValueError, match=said):
        rf.permutation_importance(rf.RidgeClassifier().fit(X, y), X, y, groups=groups)


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_gradients_are_those_of_finite_differences(classes: int) -> None:
    X = np.random.default_rng(0).normal(size=(300, 4)) * [1, 20, 0.1, 1] + 5
    value = np.sin(X[:, 0]) + (X[:, 1] - 5) / 20
    y = np.digitize(value, [0.0, 0.5][: classes - 1]) if classes else value
    kind: Any = rf.KernelClassifier if classes else rf.KernelRegressor
    model = make_pipeline(rf.Standardizer(), kind(20, gamma=0.1, epochs=1, random_state=0))
    model.fit(X, y)
    score = model.decision_function if classes else model.predict
    deviations, step = X.std(0), 1e-5
    slopes = np.stack(
        [
            (score(X + step * row) - score(X - step * row)).reshape(len(X), -1) / (2 * step)
            for row in np.diag(deviations)
        ]
    )
    sizes = np.sqrt(np.square(slopes).mean(2))
    weights = np.random.default_rng(1).random(len(X))
    found, grouped = (
        rf.permutation_importance(
            model,
            lazy(X, 70),
            y,
            gradient=True,
            n_repeats=1,
            random_state=0,
            sample_weight=weights,
            groups=groups,
        )
        for groups in (None, {"both": ["x0", "x3"]})
    )
    assert found.gradients is not None
    np.testing.assert_allclose(found.gradients, np.average(sizes, 1, weights), rtol=1e-6)
    both = np.average(np.hypot(sizes[0], sizes[3]), weights=weights)
    assert grouped.table["gradient"][grouped.table["column"].index("both")] == pytest.approx(both)


def test_gradients_of_other_models_are_refused() -> None:
    X, y = rows(60)
    with pytest.raises(ValueError, match="gradient=True needs a KernelClassifier"):
        rf.permutation_importance(rf.RidgeClassifier().fit(X, y), X, y, gradient=True)


def test_columns_of_a_frame_are_those_of_the_model() -> None:
    """In another order each was taken for another one."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=[*"abc"])
    y = (frame["a"] > 0).astype(int)
    model = rf.RidgeClassifier().fit(frame, y)
    assert rf.permutation_importance(model, frame, y, random_state=0).names == [*"abc"]
    for wrong in (frame[[*"cba"]], frame.rename(columns={"a": "z"})):
        with pytest.raises(ValueError, match="feature names should match"):
            rf.permutation_importance(model, wrong, y, random_state=0)


def test_names_that_the_model_knows_go_with_its_columns(tmp_path: Path) -> None:
    """Names of a frame in another order were given to the columns of the model."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=[*"abc"])
    y = np.where(frame["a"] > 0, "yes", "no")
    data = rf.ingest(frame.assign(label=y), tmp_path / "data")
    model = rf.RidgeClassifier().fit(data.X, data.y)
    encoded = make_pipeline(rf.TableEncoder(), rf.RidgeClassifier()).fit(frame, y)
    turned = frame[[*"cba"]]
    for known in (model, encoded):
        found = rf.permutation_importance(
            known, turned, y, random_state=0, feature_names=turned.columns
        )
        assert found.table.rows[0]["column"] == "a"
        assert found.names == [*"abc"]
    own = rf.permutation_importance(model, turned, y, random_state=0, feature_names=[*"xyz"])
    assert own.table.rows[0]["column"] == "x"
