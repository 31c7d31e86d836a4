"""Models whose parts do not fit each other are refused when they are loaded, not at `predict`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

import rfcdask as rf
from rfcdask.persist import models as persist
from tests.persist.models import MAPS, edit, fitted, rows

X = rows(sparse=False, dtype="float64")
THREE, TWO = np.arange(len(X)) % 3, np.array(["no", "yes"])[np.arange(len(X)) % 2]
few = {"random_state": 0, "epochs": 1}
MODELS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: rf.SGDClassifier(**few).fit(X, THREE),
    "sgd-two": lambda: rf.SGDClassifier(**few).fit(X, TWO),
    "softmax": lambda: rf.SGDClassifier(loss="log_loss", multi_class="multinomial", **few).fit(
        X, TWO
    ),
    "sgd-regressor": lambda: rf.SGDRegressor(**few).fit(X, X[:, 0]),
    "sgd-targets": lambda: rf.SGDRegressor(**few).fit(X, X[:, :2]),
    "ridge": lambda: rf.Ridge().fit(X, X[:, 0]),
    "ridge-targets": lambda: rf.Ridge().fit(X, X[:, :2]),
    "ridge-classifier": lambda: rf.RidgeClassifier().fit(X, THREE),
    "kernel": lambda: rf.KernelClassifier(8, gamma=0.3, **few).fit(X, THREE),
    "kernel-regressor": lambda: rf.KernelRegressor(8, gamma=0.3, **few).fit(X, X[:, :2]),
    "standardizer": lambda: rf.Standardizer().fit(X),
    "pca": lambda: rf.PCA(2, whiten=True).fit(X),
    "standard-scaler": lambda: StandardScaler(with_mean=False).fit(X),
    "min-max-scaler": lambda: MinMaxScaler().fit(X),
    "robust-scaler": lambda: RobustScaler().fit(X),
} | {f"map-{name}": (lambda name=name: fitted(name)) for name in MAPS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, make in MODELS.items():
        rf.save(make(), folder / name)
    return folder


def state_of(model: Path) -> dict[str, Any]:
    return json.loads((model / "model.json").read_text())["state"]


def listed(value: float) -> dict[str, Any]:
    return {"value": {"list": [value] * X.shape[1], "dtype": "<f8"}}


def use(model: Any) -> None:
    (model.predict if hasattr(model, "predict") else model.transform)(X)


@pytest.mark.parametrize("name", MODELS)
def test_what_was_saved_is_loaded_and_works(folders: Path, name: str) -> None:
    use(rf.load(folders / name))


def require_own_error(model: Path) -> None:
    """It loads and works, or is refused with an error of the package."""
    try:
        loaded = rf.load(model)
    except persist.DamagedModelError:
        return
    if loaded.n_features_in_ == X.shape[1]:  # else scikit-learn says so
        use(loaded)


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_value_is_refused_or_not_needed(folders: Path, name: str) -> None:
    model = folders / name
    good = (model / "model.json").read_text()
    for learned in state_of(model):
        edit(model, lambda record, learned=learned: record["state"].pop(learned))
        require_own_error(model)
        with suppress(ValueError):
            rf.load(model)._repr_mimebundle_()
        (model / "model.json").write_text(good)


STRANGE = [None, True, -1, 0, 0.5, 10**6, 10**12, "x", [], [1, 2], float("nan"), float("inf")]


@pytest.mark.parametrize("name", MODELS)
def test_strange_scalars_are_refused_or_harmless(folders: Path, name: str) -> None:
    model = folders / name
    good = (model / "model.json").read_text()
    for learned in state_of(model):
        for value in STRANGE:
            edit(model, lambda r, k=learned, v=value: r["state"].update({k: {"value": v}}))
            require_own_error(model)
            if isinstance(value, float) and not np.isfinite(value):
                with pytest.raises(ValueError, match=r"model\.json is damaged"):
                    rf.load(model)
            (model / "model.json").write_text(good)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_shapes_that_do_not_fit_are_refused(folders: Path, data: st.DataObject) -> None:
    model = folders / data.draw(st.sampled_from(sorted(MODELS)))
    arrays = {k: v for k, v in state_of(model).items() if "array" in v}
    if not arrays:
        return
    name = data.draw(st.sampled_from(sorted(arrays)))
    shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=3)))
    good = (model / "model.json").read_text()
    value = {"array": "changed", "shape": list(shape), "dtype": arrays[name]["dtype"]}
    group = zarr.open_group(model / "arrays.zarr")
    written = persist._write_array(group, "changed", np.ones(shape, arrays[name]["dtype"]))
    assert written["shape"] == value["shape"]
    try:
        edit(model, lambda record: record["state"].update({name: written}))
        require_own_error(model)
    finally:
        del group["changed"]
        (model / "model.json").write_text(good)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("sgd", lambda s: s.pop("intercept_"), "intercept_ is missing"),
        ("sgd", lambda s: s.update(classes_={"strings": ["a"]}), "two or more different"),
        ("sgd", lambda s: s.update(classes_={"strings": ["a", "b"]}), "does not fit"),
        ("sgd-two", lambda s: s.update(classes_={"strings": ["a", "a"]}), "two or more"),
        ("sgd-two", lambda s: s.update(classes_={"strings": ["b", "a"]}), "sorted"),
        ("ridge", lambda s: s.update(intercept_={"value": float("nan")}), "not a finite number"),
        ("map-random", lambda s: s.update(n_features_in_={"value": 4}), "does not fit"),
        ("map-jl", lambda s: s.update(n_features_in_={"value": 10**12}), "more than the"),
        ("map-random", lambda s: s.update(gamma_={"value": "wide"}), "gamma_ is 'wide'"),
        ("robust-scaler", lambda s: s.update(scale_=listed(0.0)), "scale_ is zero"),
        ("robust-scaler", lambda s: s.update(scale_=listed(np.nan)), "not finite"),
        ("ridge", lambda s: s.update(coef_=listed(np.inf)), "not finite"),
        ("ridge", lambda s: s.update(intercept_={"value": 10**400}), "that no float holds"),
    ],
)
def test_what_is_wrong_is_said(
    folders: Path, name: str, change: Callable[[Any], Any], words: str
) -> None:
    model = folders / name
    good = (model / "model.json").read_text()
    try:
        edit(model, lambda record: change(record["state"]))
        with pytest.raises(persist.DamagedModelError, match=words):
            rf.load(model)
    finally:
        (model / "model.json").write_text(good)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scalars_that_are_not_finite_are_not_saved(tmp_path: Path, value: float) -> None:
    model = rf.Ridge().fit(X, X[:, 0])
    model.intercept_ = value
    with pytest.raises(ValueError, match="intercept_ holds values that are not finite; fit the"):
        rf.save(model, tmp_path / "m")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.arange(len(X)).astype("datetime64[D]"), r"holds datetime64\[D\], .*y\.astype\(str\)"),
        (np.array(["a", "a\0"] * len(X), object)[: len(X)], "text that ends in NUL"),
    ],
)
def test_classes_that_could_not_be_loaded_are_not_saved(
    tmp_path: Path, labels: Any, words: str
) -> None:
    model = rf.RidgeClassifier().fit(X, labels)
    with pytest.raises(ValueError, match=words):
        rf.save(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


PATH = ("sizes", "sampled", "heldout")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("history_", {"value": 3}),
        ("history_", {"value": []}),
        ("history_", {"value": [{"items": [["epoch", 1], ["loss", 10**400]]}]}),
        ("history_", {"strings": ["a"]}),
        ("history_", {"value": [{"items": [["epoch", 1.0]]}]}),
        ("history_", {"value": [{"items": [["epoch", [1.0]], ["loss", 1.0]]}] * 2}),
        ("moments_", {"value": "x"}),
        ("path_", {"value": 3}),
        ("path_", {"value": ["x"]}),
        ("path_", {"value": [{"items": [["alpha", 1.0]]}]}),
        ("n_iter_", {"value": None}),
        ("alpha_", {"value": "x"}),
        ("error_path_", {"value": 3}),
        ("error_path_", {"tuple": "ErrorPath", "fields": {k: {"value": "x"} for k in PATH}}),
        ("error_path_", {"tuple": "ErrorPath", "fields": {k: {"strings": ["x"]} for k in PATH}}),
        ("refine_path_", {"value": 3}),
        ("explained_variance_ratio_", {"value": None}),
        ("explained_variance_ratio_", {"strings": ["a"]}),
        ("gamma_", {"value": 10**30}),
    ],
)
def test_what_is_only_shown_is_looked_at_too(tmp_path: Path, key: str, value: Any) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    few = {"n_candidates": 20, "n_rows": 40, "refine": 0, "random_state": 0}
    learner = rf.SGDClassifier(epochs=1, random_state=0)
    chosen = rf.CompressedFeatures(4, **few)
    model: Any = {
        **dict.fromkeys(("history_", "n_iter_", "alpha_"), learner),
        **dict.fromkeys(("error_path_", "refine_path_"), chosen),
        "explained_variance_ratio_": rf.PCA(2),
        **dict.fromkeys(("moments_", "path_"), rf.Ridge()),
        "gamma_": rf.JLFeatures(4, random_state=0),
    }[key]
    rf.save(model.fit(X, X[:, 0] > 0), tmp_path / "model")
    edit(tmp_path / "model", lambda record: record["state"].update({key: value}))
    with pytest.raises(persist.DamagedModelError, match=key):
        rf.load(tmp_path / "model")


def test_numbers_within_a_calibration_or_a_list_are_finite_too(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    learner = rf.SGDClassifier(random_state=0).fit(X, X[:, 0] > 0)
    learner.calibrate(X, X[:, 0] > 0, method="isotonic")
    values = {"list": [float("nan")] * len(learner.calibration_.values), "dtype": "<f8"}
    rf.save(learner, tmp_path / "a")
    edit(
        tmp_path / "a",
        lambda r: r["state"]["calibration_"]["fields"].update(values={"value": values}),
    )
    with pytest.raises(persist.DamagedModelError, match="calibration_ does not fit"):
        rf.load(tmp_path / "a")
    rf.save(rf.KernelRegressor(4, random_state=0).fit(X, X[:, 0]), tmp_path / "b")
    edit(tmp_path / "b", lambda r: r["state"].update(target_mean_={"value": [float("nan")]}))
    with pytest.raises(persist.DamagedModelError, match="target_mean_ and target_scale_ do not"):
        rf.load(tmp_path / "b")
