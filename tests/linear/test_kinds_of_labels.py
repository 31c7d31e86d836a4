"""Labels, targets and weights that are no plain numbers: taken rightly, or refused with a place."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import rfcdask as rf

X = np.random.default_rng(0).normal(size=(60, 3))
LAZY = da.from_array(X, chunks=(20, 3))
CLASSES = (X[:, 0] > 0).astype(int)
REGRESSORS = [rf.Ridge(), rf.SGDRegressor(epochs=1), rf.KernelRegressor(4, epochs=1)]
CLASSIFIERS = [rf.RidgeClassifier(), rf.SGDClassifier(epochs=1), rf.KernelClassifier(4, epochs=1)]


def _with(value: Any, of: Any) -> Any:
    made = np.asarray(of).astype(object)
    made[25] = value
    return made


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("value", [pd.NA, "abc", 1j, 10**400], ids=str)
def test_targets_that_are_no_numbers_have_a_place(model: Any, value: Any) -> None:
    y = da.from_array(_with(value, X[:, 0]), chunks=20)
    with pytest.raises(ValueError, match=r"y holds .* in block 1, row 5 .*no real number"):
        model.fit(LAZY, y)
    with pytest.raises(ValueError, match="y has shape"):
        model.fit(X, np.zeros((60, 0)))


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_missing_labels_of_pandas_have_a_place(model: Any) -> None:
    text = pd.Series(_with(pd.NA, np.where(CLASSES, "a", "b")), dtype="string")
    days = np.where(CLASSES, np.datetime64("2020-01-01"), np.datetime64("2021-01-01"))
    days[25] = np.datetime64("NaT")
    for y in (text, days):
        with pytest.raises(ValueError, match=r"y is NaN .*row 25 of y"):
            model.fit(X, y)


def test_labels_that_are_objects_have_a_remedy() -> None:
    y = CLASSES.astype(object)
    with pytest.raises(ValueError, match=r"objects of type int.*give y.astype\(int\)"):
        rf.RidgeClassifier().fit(X, y)
    assert rf.RidgeClassifier().fit(X, y.astype(int)).score(X, y.astype(int)) > 0.9


@pytest.mark.skipif(not hasattr(np, "dtypes"), reason="strings of numpy 2")
def test_strings_of_numpy_2_are_labels() -> None:
    kind = getattr(np.dtypes, "StringDType", None)
    if kind is None:
        pytest.skip("strings of numpy 2")
    y = np.array(np.where(CLASSES, "yes", "no"), dtype=kind())
    assert rf.RidgeClassifier().fit(X, y).score(X, y) > 0.9
    lazy = da.from_array(y, chunks=20)  # as dask.array.from_zarr reads text
    for model in (*CLASSIFIERS, rf.CompressedFeatures(5, n_candidates=20, label_weight=0.5)):
        model.fit(LAZY, lazy)
    for model in CLASSIFIERS:
        assert model.classes_.tolist() == ["no", "yes"]
        assert model.score(LAZY, lazy) == model.score(X, y)
        found = rf.metrics.evaluate(model, LAZY, lazy)
        assert found["accuracy"] == model.score(X, y)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_weights_that_are_no_numbers_are_refused(model: Any) -> None:
    ones = np.ones(60)
    with pytest.raises(ValueError, match="sample_weight is a masked array"):
        model.fit(X, CLASSES, sample_weight=np.ma.masked_array(ones, mask=ones * (X[:, 0] > 1)))
    for value in (pd.NA, "abc"):
        with pytest.raises(ValueError, match=r"sample_weight holds .* no real number"):
            model.fit(X, CLASSES, sample_weight=_with(value, ones))
    with pytest.raises(ValueError, match=r"class_weight=.* holds 'a'"):
        model.__class__(class_weight={0: "a", 1: 2.0}).fit(X, CLASSES)


@pytest.mark.parametrize("model", CLASSIFIERS[1:], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_weights_beyond_float32_have_a_remedy(model: Any, size: float) -> None:
    weights = np.full(60, size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="divide them by their mean"):
            model.fit(X, CLASSES, sample_weight=weights)
    model.fit(X, CLASSES, sample_weight=weights / weights.mean())


@pytest.mark.parametrize("lazy", [False, True])
def test_text_of_pandas_is_evaluated(lazy: bool) -> None:
    """Text as Python objects, which a frame has, ended in an AttributeError."""
    y = np.where(X[:, 0] > 0.5, "yes", "no")
    model = rf.RidgeClassifier().fit(X, y)
    given = da.from_array(y.astype(object), chunks=20) if lazy else pd.Series(y.astype(object))
    found = rf.metrics.evaluate(model, LAZY if lazy else X, given)
    wanted = rf.metrics.evaluate(model, X, y)
    assert found.values == wanted.values
    assert found.warning() == wanted.warning()


@pytest.mark.parametrize("objects", [True, False])
def test_labels_of_another_type_than_those_of_fit_are_refused(objects: bool) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    numbers = (X[:, 0] > 0).astype(int)
    text = numbers.astype(str).astype(object if objects else str)
    for known, found in ((numbers, text), (text, numbers)):
        with pytest.raises(ValueError, match="y holds labels"):
            rf.RidgeClassifier().fit(X, known).score(X, found)
