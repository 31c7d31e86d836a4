"""Pipelines on disk: a folder a step, no pickle, and damage that is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import rfcdask as rf
from rfcdask.persist.models import describe

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)).astype("float32") * [1, 10, 100, 1000]
NAMES = np.array(["left", "right"])[(X[:, 0] ** 2 > 0.5).astype(int)]


def trained(seed: int = 0) -> Any:
    steps = (
        rf.Standardizer(),
        rf.RandomFeatures(30, random_state=seed),
        rf.SGDClassifier(random_state=seed),
    )
    return make_pipeline(*steps).fit(X, NAMES)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rf.save(trained(), tmp_path / "model", about={"rows": 300})
    return tmp_path / "model"


def test_a_loaded_pipeline_predicts_the_same_names(saved: Path) -> None:
    loaded = rf.load(saved)
    assert [name for name, _ in loaded.steps] == ["standardizer", "randomfeatures", "sgdclassifier"]
    predicted = loaded.predict(da.from_array(X, chunks=(90, -1)))
    assert isinstance(predicted, da.Array)
    np.testing.assert_array_equal(predicted.compute(), trained().predict(X))
    assert set(predicted.compute()) == {"left", "right"}


def test_it_says_what_it_is_without_its_arrays(saved: Path) -> None:
    shutil.rmtree(saved / "step-1" / "arrays.zarr")
    shown = describe(saved)
    assert shown["class"] == "Pipeline"
    assert shown["about"] == {"rows": 300}
    assert shown["steps"]["randomfeatures"]["parameters"]["n_components"] == 30
    with pytest.raises(ValueError, match="damaged"):
        rf.load(saved)


def test_a_step_alone_can_be_loaded(saved: Path) -> None:
    features = rf.load(saved / "step-1")
    assert features.transform(X).shape == (300, 30)


def test_a_step_of_another_pipeline_is_refused(saved: Path, tmp_path: Path) -> None:
    rf.save(trained(seed=1), tmp_path / "other")
    shutil.rmtree(saved / "step-2")
    shutil.copytree(tmp_path / "other" / "step-2", saved / "step-2")
    with pytest.raises(ValueError, match="another pipeline"):
        rf.load(saved)


def test_a_missing_step_is_named(saved: Path) -> None:
    shutil.rmtree(saved / "step-0")
    with pytest.raises(ValueError, match="step-0"):
        rf.load(saved)


def test_a_step_outside_the_folder_is_refused(saved: Path) -> None:
    from rfcdask.persist import models as persist

    record = json.loads((saved / "model.json").read_text())
    record["steps"][0]["folder"] = "../elsewhere"
    record.pop("checksum")
    record["checksum"] = persist._checksum(record)
    (saved / "model.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"damaged.*elsewhere"):
        rf.load(saved)


def test_steps_of_others_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    mixed = make_pipeline(OneHotEncoder(), rf.RandomFeatures(5, random_state=0)).fit(X)
    with pytest.raises(TypeError, match="OneHotEncoder"):
        rf.save(mixed, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
