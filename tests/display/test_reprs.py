"""Notebooks: what is fitted shows what was found, what is not shows what scikit-learn shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

import rfcdask as rf
from rfcdask.display import DARK, LIGHT
from rfcdask.display.html import Table
from rfcdask.kernels.arrays import Array
from tests.linear_data import blobs
from tests.pipeline.report.wellformed import read

ESTIMATORS: dict[str, Any] = {
    "random": rf.RandomFeatures(8, random_state=0),
    "compressed": rf.CompressedFeatures(8, n_candidates=50, refine=5, random_state=0),
    "unrefined": rf.CompressedFeatures(8, n_candidates=50, refine=0, random_state=0),
    "single": rf.CompressedFeatures(1, n_candidates=50, refine=0, random_state=0),
    "jl": rf.JLFeatures(8, n_candidates=50, random_state=0),
    "nystroem": rf.NystroemFeatures(8, random_state=0),
    "sgd": rf.SGDClassifier(epochs=3, early_stopping=True, random_state=0),
    "one epoch": rf.SGDClassifier(epochs=1, random_state=0),
    "regressor": rf.SGDRegressor(epochs=3, random_state=0),
    "ridge": rf.Ridge(alphas=[0.1, 1.0, 10.0]),
    "ridge classifier": rf.RidgeClassifier(),
    "pca": rf.PCA(2),
}
DRAWN = {"compressed", "unrefined", "single", "sgd", "regressor", "ridge", "pca"}


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    return blobs(300, 4, 3)


def own_part(html: str) -> str:
    return html[html.index('<div class="rfcdask"') :]


def _without_ids(html: str) -> str:
    """Leave out the numbers that every page counts up."""
    return re.sub(r"(sk-\w+-id-)\d+", r"\1", html)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_unfitted_shows_what_scikit_learn_shows(name: str) -> None:
    estimator = clone(ESTIMATORS[name])
    plain = estimator_html_repr(estimator)
    shown = estimator._repr_html_()
    assert "rfcdask" not in shown.replace("rfcdask.", "")
    assert _without_ids(shown) == _without_ids(plain)
    assert estimator._repr_mimebundle_().keys() == {"text/plain", "text/html"}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fitted_adds_facts_and_a_drawing(name: str, data: tuple[Array, Array]) -> None:
    estimator = clone(ESTIMATORS[name]).fit(*data)
    before = repr(clone(ESTIMATORS[name]))
    bundle = estimator._repr_mimebundle_()
    assert bundle["text/plain"] == repr(estimator) == before
    for html in (bundle["text/html"], estimator._repr_html_()):
        assert 'class="sk-top-container' in html  # scikit-learn's own box is still there
        assert html.startswith("<style>")
        part = read(own_part(html))
        assert ("svg" in [tag for tag, _ in part.elements]) == (name in DRAWN)
        assert any(text in ("4", "2 of 4 columns") for text in part.text)


def test_the_facts_are_those_of_the_fit(data: tuple[Array, Array]) -> None:
    features = clone(ESTIMATORS["compressed"]).fit(*data)
    shown = " ".join(read(own_part(features._repr_html_())).text)
    assert "8 of 50 candidates by giga" in shown
    assert "chosen: 8" in shown
    assert "after refinement" in shown
    assert f"{features.heldout_error_:.3g}"[:5] in shown
    assert "after refinement" not in clone(ESTIMATORS["unrefined"]).fit(*data)._repr_html_()
    pca = clone(ESTIMATORS["pca"]).fit(*data)
    assert f"{100 * pca.explained_variance_ratio_.sum():.1f}%" in pca._repr_html_()


def test_text_display_turns_it_off(data: tuple[Array, Array]) -> None:
    features = clone(ESTIMATORS["compressed"]).fit(*data)
    with config_context(display="text"):
        assert not hasattr(features, "_repr_html_")
        assert features._repr_mimebundle_().keys() == {"text/plain"}


def test_pipelines_still_show_their_steps(data: tuple[Array, Array]) -> None:
    pipe = make_pipeline(clone(ESTIMATORS["compressed"]), clone(ESTIMATORS["sgd"])).fit(*data)
    html = pipe._repr_html_()
    assert "CompressedFeatures" in html
    assert "SGDClassifier" in html


def test_saved_models_show_themselves_as_before(data: tuple[Array, Array], tmp_path: Path) -> None:
    for name in ("compressed", "sgd", "ridge", "pca", "nystroem"):
        estimator = clone(ESTIMATORS[name]).fit(*data)
        rf.save(estimator, tmp_path / name)
        again = rf.load(tmp_path / name)
        assert own_part(again._repr_html_()) == own_part(estimator._repr_html_())


def test_class_names_are_escaped_and_many_are_counted() -> None:
    X, codes = blobs(400, 4, 8)
    y = np.array([f"<script>{k}</script>" for k in range(8)])[codes]
    html = rf.RidgeClassifier().fit(X, y)._repr_html_()
    part = read(own_part(html))
    assert "script" not in [tag for tag, _ in part.elements]
    assert "and 2 more" in " ".join(part.text)


def test_results_of_tuning_and_comparison(data: tuple[Array, Array]) -> None:
    X, y = data
    tuned = rf.tune(X, y, gammas=[0.01, 0.1, 1.0], Cs=[1.0, 10.0], n_rows=200, random_state=0)
    page = read(tuned._repr_html_())
    shown = " ".join(page.text)
    assert shown.count(", gamma 0.") + shown.count(", gamma 1.") == 6  # one text per cell
    assert f"C {tuned.C:g}, gamma" in shown
    assert f"{100 * tuned.accuracy:.1f}" in page.text
    framed = [a for tag, a in page.elements if tag == "path" and a.get("stroke-width") == "2"]
    assert len(framed) == 1
    compared = rf.compare(X, y, ["random", "nystroem"], n_components=[5, 9], random_state=0)
    page = read(compared._repr_html_())
    assert sum(a.get("role") == "img" for tag, a in page.elements if tag == "svg") == 2
    assert "Nyström" in " ".join(page.text)
    single = rf.compare(X, y, ["random"], n_components=5, random_state=0)
    read(single._repr_html_())
    read(rf.Comparison([])._repr_html_())


def test_data_sets_show_themselves_as_text(tmp_path: Path) -> None:
    X, codes = blobs(50, 3, 2)
    y = np.array(["<b>one</b>", "two"])[codes]
    html = rf.ingest((X, y), tmp_path / "a.zarr")._repr_html_()
    page = read(html)
    assert "b" not in [tag for tag, _ in page.elements]
    assert "2 classes: <b>one</b>, two" in page.text


def test_paths_draw_themselves(data: tuple[Array, Array]) -> None:
    features = clone(ESTIMATORS["compressed"]).fit(*data)
    assert "<svg" in features.error_path_._repr_html_()
    read(f"<div>{features.error_path_._repr_html_()}</div>")
    read(f"<div>{features.refine_path_._repr_html_()}</div>")


def test_charts_follow_dark_notebooks(data: tuple[Array, Array]) -> None:
    html = clone(ESTIMATORS["sgd"]).fit(*data)._repr_html_()
    own = own_part(html)
    assert '[data-jp-theme-light="false"] .rfcdask' in own
    assert "currentColor" in own
    assert f"var(--rfcdask-0,{LIGHT[0]})" in own
    assert f"--rfcdask-0:{DARK[0]}" in own


def test_tables_of_names_are_escaped() -> None:
    rows = [{"method": "<i>m</i>", "value": 1234567, "part": 0.123456, "none": None}]
    page = read(Table(rows)._repr_html_())
    assert "i" not in [tag for tag, _ in page.elements]
    assert {"<i>m</i>", "1,234,567", "0.1235"} <= set(page.text)
