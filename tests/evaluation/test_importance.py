"""Importances of columns, against scikit-learn's permutation of the whole column."""

from __future__ import annotations

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
