"""Plots: axes in, the same axes out; what is drawn is what was measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import rfcdask as rf
from rfcdask.kernels.arrays import Array
from tests.linear_data import blobs


@pytest.fixture(autouse=True)
def plt() -> Iterator[Any]:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    return blobs(300, 4, 3)


def both_ways(thing: Any, plt: Any, **more: Any) -> Any:
    """Draw into new axes and into given ones; return the latter."""
    made = thing.plot(**more)
    assert made.figure is not None
    _, ax = plt.subplots()
    assert thing.plot(ax=ax, **more) is ax
    ax.figure.canvas.draw()
    return ax


def test_compressed_features_draw_their_path(data: tuple[Array, Array], plt: Any) -> None:
    features = rf.CompressedFeatures(8, n_candidates=50, refine=5, random_state=0)
    with pytest.raises(NotFittedError):
        features.plot()
    features.fit(*data)
    ax = both_ways(features, plt)
    heldout, sampled, chosen, refined = ax.lines
    np.testing.assert_array_equal(heldout.get_ydata(), features.error_path_.heldout)
    np.testing.assert_array_equal(sampled.get_ydata(), features.error_path_.sampled)
    assert chosen.get_xdata()[0] == 8
    assert refined.get_ydata() == [features.heldout_error_]
    assert len(both_ways(features.error_path_, plt).lines) == 2
    assert features.refine_path_ is not None
    steps = both_ways(features.refine_path_, plt).lines[0].get_xdata()
    np.testing.assert_array_equal(steps, features.refine_path_.steps)


def test_models_draw_their_training(data: tuple[Array, Array], plt: Any) -> None:
    with pytest.raises(NotFittedError):
        rf.SGDClassifier().plot()
    model = rf.SGDClassifier(epochs=3, early_stopping=True, random_state=0).fit(*data)
    lines = both_ways(model, plt).lines
    assert lines[0].get_ydata().tolist() == [entry["loss"] for entry in model.history_]
    assert list(lines[1].get_ydata()) == [entry["held_out_loss"] for entry in model.history_]
    plain = rf.SGDRegressor(epochs=2, random_state=0).fit(*data)
    assert len(both_ways(plain, plt).lines) == 1


def test_ridge_draws_what_it_tried(data: tuple[Array, Array], plt: Any) -> None:
    tried = rf.Ridge(alphas=[10.0, 0.1, 1.0]).fit(*data)
    assert both_ways(tried, plt).lines[0].get_xdata().tolist() == [0.1, 1.0, 10.0]
    with pytest.raises(ValueError, match="give several alphas"):
        rf.RidgeClassifier().fit(*data).plot()


def test_pca_draws_what_it_explains(data: tuple[Array, Array], plt: Any) -> None:
    pca = rf.PCA(3).fit(data[0])
    drawn = both_ways(pca, plt).lines[0].get_ydata()
    np.testing.assert_allclose(drawn, np.cumsum(pca.explained_variance_ratio_))


def test_tuning_draws_its_grid(data: tuple[Array, Array], plt: Any) -> None:
    X, y = data
    tuned = rf.tune(X, y, gammas=[0.01, 0.1, 1.0], Cs=[1.0, 10.0], n_rows=200, random_state=0)
    ax = both_ways(tuned, plt)
    drawn = ax.collections[0].get_array()
    assert drawn.shape == (2, 3)
    best = [(row["gamma"], row["C"]) for row in tuned.table if row["accuracy"] == drawn.max()]
    assert (tuned.gamma, tuned.C) in best
    halved = rf.tune(
        X,
        y,
        gammas=[0.01, 0.1, 1.0],
        Cs=[1.0, 10.0],
        n_rows=270,
        strategy="halving",
        random_state=0,
    )
    assert both_ways(halved, plt).collections[0].get_array().shape == (2, 3)


def test_comparison_draws_all_or_one(data: tuple[Array, Array], plt: Any) -> None:
    X, y = data
    maps = {"mine": rf.RandomFeatures(5), "nystroem": rf.NystroemFeatures(5)}
    table = rf.compare(X, y, maps, n_components=[8, 4], random_state=0)
    _, axes = plt.subplots(1, 2)
    assert table.plot(axes) is axes
    for column in (None, "kernel_error", "model_bytes"):
        ax = both_ways(table, plt, column=column) if column else table.plot(ax=plt.subplots()[1])
        assert [line.get_label() for line in ax.lines] == ["mine", "Nyström"]
        rows = {row["n_components"]: row[column or "accuracy"] for row in table.rows[:2]}
        assert list(ax.lines[0].get_ydata()) == [rows[4], rows[8]]
    with pytest.raises(ValueError, match="column='speed' must be one of kernel_error, accuracy"):
        table.plot(column="speed")


def test_data_sets_draw_their_classes(tmp_path: Path, plt: Any) -> None:
    X, codes = blobs(500, 3, 3)
    y = np.array(["ash", "birch", "cedar"])[codes]
    dataset = rf.ingest((X, y), tmp_path / "a.zarr", block_size="2kB")
    assert dataset.X.numblocks[0] > 1
    ax = both_ways(dataset, plt)
    assert [bar.get_width() for bar in ax.patches] == np.bincount(codes).tolist()
    train, _ = dataset.split(0.2, random_state=0)
    assert sum(bar.get_width() for bar in train.plot().patches) == 400
    with pytest.raises(ValueError, match="no classes to count"):
        rf.ingest(X, tmp_path / "b.zarr").plot()


def test_plots_show_names_as_they_are(data: tuple[Array, Array], plt: Any) -> None:
    X, y = data
    maps = {"a $x$": rf.RandomFeatures(5), "_b": rf.RandomFeatures(5)}
    table = rf.compare(X, y, maps, n_components=[8, 4], random_state=0)
    texts = table.plot(column="accuracy").get_legend().get_texts()
    assert [text.get_text() for text in texts] == ["a $x$", "_b"]
    assert not any(text.get_parse_math() for text in texts)
    single = rf.compare(X, y, maps, n_components=4, random_state=0).plot(column="kernel_error")
    assert {text.get_text() for text in single.get_yticklabels()} == {"a $x$", "_b"}
    single.figure.canvas.draw()


def test_an_empty_comparison_has_no_plot() -> None:
    with pytest.raises(ValueError, match="nothing to draw: no row of the comparison has"):
        rf.Comparison([]).plot(column="accuracy")


def test_drawing_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, rfcdask.display.charts, rfcdask.display.html;"
        "assert 'matplotlib' not in sys.modules and 'jinja2' not in sys.modules;"
        "import rfcdask.pipeline.report.page, rfcdask.linear, rfcdask.features;"
        "page = rfcdask.pipeline.report.page.render({'format': 1, 'data': {}});"
        "assert 'matplotlib' not in sys.modules;"
        "rfcdask.display.charts.curve([1, 2], [3, 4], 'x', 'y').svg();"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
