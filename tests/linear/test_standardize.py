from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.data import DataError
from rfcdask.linear.transform import wants_standardizing


@parametrize_with_checks([rf.Standardizer()])
def test_scikit_learns_rules(estimator: Any, check: Any) -> None:
    check(estimator)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 60), st.integers(1, 5), st.integers(1, 60), st.integers(0, 9))
def test_it_agrees_with_scikit_learn_for_any_chunks(n: int, p: int, chunk: int, seed: int) -> None:
    X = np.random.default_rng(seed).normal(3.0, 50.0, size=(n, p))
    X[:, 0] = 7.0
    lazy = da.from_array(X, chunks=(chunk, -1))
    found = rf.Standardizer().fit(lazy).transform(lazy)
    assert (found.shape, found.chunks[0]) == (lazy.shape, lazy.chunks[0])
    np.testing.assert_allclose(found.compute(), StandardScaler().fit_transform(X), atol=1e-9)


def test_the_transform_computes_nothing(refusing_scheduler: Any) -> None:
    lazy = da.ones((100, 3), chunks=(10, 3), dtype="float32")
    fitted = rf.Standardizer().fit(lazy)
    with dask.config.set(scheduler=refusing_scheduler):
        found = fitted.transform(lazy)
    assert (found.dtype, found.shape) == (np.float32, (100, 3))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    X = np.ones((10, 3))
    X[4, 2] = bad
    with pytest.raises(ValueError, match="column 2"):
        rf.Standardizer().fit(da.from_array(X, chunks=(4, 3)))
    with pytest.raises(ValueError, match="row 4, column 2"):
        rf.Standardizer().fit(np.ones((5, 3))).transform(X)


def test_a_store_standardizes_to_the_same_bits(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(5, 9, size=(500, 6)).astype("float32")
    store = rf.ingest(X, tmp_path / "x.zarr")
    mine = rf.Standardizer.of(store).transform(store.X)
    np.testing.assert_array_equal(mine.compute(), store.standardize().X.compute())


@pytest.mark.parametrize(
    ("values", "scale", "wanted"),
    [([0, 1], None, False), ([0, 255], 1 / 255, False), ([0, 255], None, True), ([-3, 0], 1, True)],
)
def test_columns_with_units_want_standardizing(
    values: list[int], scale: float | None, wanted: bool, tmp_path: Path
) -> None:
    X = np.array([values, values[::-1]] * 5)
    assert wants_standardizing(rf.ingest(X, tmp_path / "x.zarr", scale=scale)) is wanted


def test_lazy_rows_that_are_not_finite_are_named() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    standard = rf.Standardizer().fit(X)
    X[23, 1] = np.nan
    lazy = standard.transform(da.from_array(X, chunks=(20, 3)))
    with pytest.raises(ValueError, match=r"row 23.*column 1|column 1.*row 23"):
        lazy.compute(scheduler="sync")


def test_rows_as_they_are_are_refused_by_a_model_of_standardized_ones(
    tmp_path: Path,
) -> None:
    """Columns had the same names and other units, and half of the predictions were wrong."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 2)) * [1, 100] + [0, 500]
    table = pd.DataFrame(X, columns=["a", "b"]).assign(label=(X[:, 0] > 0).astype(int))
    table.to_csv(tmp_path / "t.csv", index=False)
    stored = rf.ingest(tmp_path / "t.csv", tmp_path / "t.zarr")
    train, test = stored.standardize().split(0.3, 0)
    model = rf.RidgeClassifier().fit(train.X, train.y)
    assert model.score(test.X, test.y) > 0.9
    with pytest.raises(DataError, match="are not standardized, as those of `fit` were"):
        model.predict(stored.X)
    rf.save(model, tmp_path / "m")
    rf.ingest(table[["b", "label", "a"]], tmp_path / "other.zarr")
    for rows in ("t.csv", "t.zarr", "other.zarr"):
        done = CliRunner().invoke(main, ["predict", str(tmp_path / "m"), str(tmp_path / rows)])
        assert done.exit_code == 2
        assert "are not standardized" in done.stderr
    raw = rf.RidgeClassifier().fit(stored.X, stored.y)
    with pytest.raises(DataError, match="are standardized, and those of `fit` were not"):
        raw.predict(test.X)
    # The remedy.
    pipeline = make_pipeline(rf.Standardizer.of(stored), model)
    assert pipeline.score(stored.X, stored.y) > 0.9


def test_a_store_of_standardized_rows_is_known_as_one(tmp_path: Path) -> None:
    """Its rows were refused by models of the same rows, and its models took rows as they are."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 2)) * [1, 100] + [0, 500]
    table = pd.DataFrame(X, columns=["a", "b"]).assign(label=(X[:, 0] > 0).astype(int))
    table.to_csv(tmp_path / "t.csv", index=False)
    data = rf.ingest(tmp_path / "t.csv", tmp_path / "t.zarr").standardize()
    rf.ingest(data, tmp_path / "s.zarr", shuffle=True, random_state=0)
    stored = rf.open_dataset(tmp_path / "s.zarr")
    assert "standardized" in repr(stored)
    again = rf.ingest(stored, tmp_path / "again.zarr")
    models = [rf.RidgeClassifier().fit(rows.X, rows.y) for rows in (data, stored, again)]
    for model in models:
        assert model.score(stored.X, stored.y) == model.score(data.X, data.y) > 0.9
        with pytest.raises(DataError, match="are not standardized"):
            model.predict(rf.open_dataset(tmp_path / "t.zarr").X)
    arguments = ["fit", f"{tmp_path}/s.zarr", f"{tmp_path}/m", "--method", "none"]
    done = CliRunner().invoke(main, [*arguments, "--learner", "ridge"])
    assert done.exit_code == 0, done.stderr
    for rows, code in (("again.zarr", 0), ("t.csv", 2), ("t.zarr", 2)):
        done = CliRunner().invoke(main, ["score", f"{tmp_path}/m", f"{tmp_path}/{rows}"])
        assert done.exit_code == code, done.stderr
        assert ("are not standardized" in done.stderr) == (code == 2)
