"""What is saved comes back the same to the bit; what cannot be saved is refused."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import rfcdask as rf
from rfcdask.kernels import Kernel
from tests.persist.models import MAPS, fitted, rows


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_a_loaded_map_gives_the_same_bits(name: str, sparse: bool, tmp_path: Path) -> None:
    features = fitted(name, sparse=sparse)
    rf.save(features, tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert type(loaded) is type(features)
    assert loaded.get_params() == features.get_params()
    for X in (rows(sparse), rows(not sparse), rows(sparse, "float64")):
        np.testing.assert_array_equal(loaded.transform(X), features.transform(X))
    learned = {k: v for k, v in vars(features).items() if k.endswith("_")}
    assert {k for k in vars(loaded) if k.endswith("_")} == set(learned)
    for key, value in learned.items():
        same(getattr(loaded, key), value)


def same(mine: Any, theirs: Any) -> None:
    if sp.issparse(theirs):
        assert sp.issparse(mine)
        mine, theirs = mine.toarray(), theirs.toarray()
    assert np.asarray(mine).dtype == np.asarray(theirs).dtype or isinstance(theirs, tuple)
    assert type(mine) is type(theirs)
    if isinstance(theirs, tuple):
        for a, b in zip(mine, theirs, strict=True):
            same(a, b)
    else:
        np.testing.assert_array_equal(mine, theirs)


def test_feature_names_come_back(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rows(False), columns=list("abcde"))
    rf.save(rf.RandomFeatures(6, random_state=0).fit(X), tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list("abcde")
    assert loaded.transform(X).shape == (90, 6)
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(X.rename(columns={"a": "z"}))


@pytest.mark.parametrize("state", [np.random.RandomState(0), np.random.default_rng(0)])
def test_a_generator_is_replaced_by_the_seed_it_gave(state: Any, tmp_path: Path) -> None:
    features = rf.RandomFeatures(6, random_state=state).fit(rows(False))
    rf.save(features, tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert loaded.random_state is None
    assert loaded.seed_ == features.seed_
    np.testing.assert_array_equal(loaded.transform(rows(False)), features.transform(rows(False)))


def test_numpy_numbers_as_parameters(tmp_path: Path) -> None:
    features = rf.RandomFeatures(np.int64(6), gamma=np.float32(0.5), random_state=np.int64(1))
    rf.save(features.fit(rows(False)), tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert (loaded.n_components, loaded.gamma, loaded.random_state) == (6, 0.5, 1)


def test_the_record_says_what_wrote_it(saved: Path) -> None:
    record = json.loads((saved / "model.json").read_text())
    assert record["format"] == 1  # older versions read it too
    assert record["version"] == rf.__version__
    assert record["class"] == "CompressedFeatures"
    assert record["seed"] == 2


@pytest.mark.parametrize("name", MAPS)
def test_nothing_is_pickled(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("pickle was used")

    features = fitted(name)
    for function in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, function, refuse)
    rf.save(features, tmp_path / "model")
    rf.load(tmp_path / "model")
    monkeypatch.undo()
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert len(files) > 1
    for path in files:
        content = path.read_bytes()
        assert content[:1] != b"\x80"
        assert b"sklearn" not in content
        assert b"pickle" not in content


def test_others_may_read_a_saved_model(saved: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("obj", [object(), {"a": 1}, np.ones(3), None])
def test_other_objects_are_refused(obj: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Cannot save a .*; save one of RandomFeatures"):
        rf.save(obj, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_of_ones_own_is_refused(tmp_path: Path) -> None:
    own = Kernel("own", radius=lambda u, gamma: gamma * np.sqrt(u))
    features = rf.RandomFeatures(6, kernel=own, gamma=1.0, random_state=0).fit(rows(False))
    with pytest.raises(ValueError, match=r"kernel='own' is a kernel of your own"):
        rf.save(features, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_map_that_is_not_fitted_comes_back_so(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    rf.save(rf.RandomFeatures(6), tmp_path / "model")
    with pytest.raises(NotFittedError):
        rf.load(tmp_path / "model").transform(rows(False))
