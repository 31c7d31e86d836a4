"""Feature maps side by side: the table says what was measured, on rows nobody saw."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier as SklearnRidge
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.evaluation.compare import Split, measure, model_bytes
from rfcdask.evaluation.evaluate import Judge
from rfcdask.features import METHODS
from rfcdask.kernels.arrays import Array
from rfcdask.kernels.seeds import draw_rows, stream
from tests.linear_data import blobs, lazy


def digits() -> tuple[Array, Array]:
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


def test_all_methods_on_real_digits() -> None:
    X, y = (array[:900] for array in digits())
    lazily: dict[str, Any] = {"n_candidates": 200, "random_state": 0}
    Z, labels = lazy(X, 300), lazy(y, 300)
    refined = ["compressed", "compressed-labels", "learned"]
    others = [name for name in METHODS if name not in refined]
    table = rf.compare(Z, labels, others, n_components=[20, 80], **lazily)
    table.rows += rf.compare(Z, labels, refined, n_components=20, **lazily).rows
    assert len(table) == 2 * len(METHODS) - len(refined)
    assert table.columns == [
        "method",
        "n_components",
        "kernel_error",
        "accuracy",
        "fit_seconds",
        "microseconds_per_row",
        "model_bytes",
    ]
    found = {(row["method"], row["n_components"]): row for row in table}
    for method in others:
        assert found[(method, 80)]["kernel_error"] < found[(method, 20)]["kernel_error"]
        assert found[(method, 80)]["accuracy"] > found[(method, 20)]["accuracy"]
    assert found[("compressed", 20)]["kernel_error"] < found[("random", 20)]["kernel_error"]
    for name in ("compressed-labels", "learned"):
        assert found[(name, 20)]["accuracy"] > found[("random", 20)]["accuracy"]
    assert np.isnan(found[("learned", 20)]["kernel_error"])  # they approximate no kernel
    assert all(row["model_bytes"] > 0 and row["microseconds_per_row"] > 0 for row in table)


@pytest.mark.parametrize("kind", ["classes", "two classes", "numbers", "targets"])
def test_a_projected_map_is_scored_as_if_its_columns_were_made(kind: str) -> None:
    X, y = digits()
    wanted: Any = {"two classes": y % 2, "numbers": y / 3, "targets": np.c_[y / 3, y / 7]}.get(
        kind, y
    )
    data = Split(X[:600], wanted[:600], X[600:], wanted[600:])
    judge = Judge.of(wanted, None)
    fitted = rf.JLFeatures(30, n_candidates=400, gamma=0.02, random_state=0).fit(data.X)
    made = []
    fitted.transform = lambda rows: made.append(len(rows)) or rf.JLFeatures.transform(fitted, rows)
    row = measure("jl", 30, fitted, 0.0, None, data, judge, 0, n_points=50)
    model = judge.ridge().fit(rf.JLFeatures.transform(fitted, data.X), data.y)
    Z = rf.JLFeatures.transform(fitted, data.test)
    assert row[judge.scoring] == pytest.approx(model.score(Z, data.labels), abs=1e-3)
    assert made[0] == 600  # of the rows held out they are made to take the time, and no more
    assert len(data.test) in made[1:5]
    assert len(made) == 5


def test_figures_are_those_of_the_map_on_rows_held_out() -> None:
    X, y = digits()
    table = rf.compare(X, y, ["random"], n_components=50, gamma=0.02, random_state=3)
    n, held = len(X), len(X) // 5
    drawn = draw_rows(n, n, stream(3, "compare"))
    test, train = np.sort(drawn[:held]), np.sort(drawn[held:])
    features = rf.RandomFeatures(50, gamma=0.02, random_state=3).fit(X[train])
    exact = SklearnRidge().fit(features.transform(X[train]).astype(float), y[train])
    (row,) = table
    wanted = exact.score(features.transform(X[test]).astype(float), y[test])
    assert row["accuracy"] == pytest.approx(wanted, abs=0.01)
    K = np.exp(-0.02 * np.square(X[test, None].astype(float) - X[None, test]).sum(-1))
    Z = features.transform(X[test]).astype(float)
    error = np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)
    assert row["kernel_error"] == pytest.approx(error, rel=1e-4)
    assert row["model_bytes"] == 64 * 50 * 4 + 2 * 50 * 4


def test_learned_features_are_judged_with_their_own_model() -> None:
    X, y = (array[:700] for array in digits())
    drawn = draw_rows(700, 700, stream(1, "compare"))
    test, train = np.sort(drawn[:140]), np.sort(drawn[140:])
    own = rf.KernelClassifier(15, gamma=0.02, random_state=1).fit(X[train], y[train])
    (row,) = rf.compare(X, y, ["learned"], n_components=15, gamma=0.02, random_state=1)
    assert row["accuracy"] == pytest.approx(own.score(X[test], y[test]))
    maps = {"mine": rf.KernelClassifier(gamma=0.02, random_state=1)}
    ridge = SklearnRidge()
    (row,) = rf.compare(X, y, maps, n_components=15, model=ridge, random_state=1)
    ridge.fit(own.features_.transform(X[train]), y[train])
    assert row["accuracy"] == ridge.score(own.features_.transform(X[test]), y[test])


def test_further_rows_confirm_an_accuracy() -> None:
    X, y = digits()
    data = Split(X[:500], y[:500], X[500:800], y[500:800])
    features = rf.RandomFeatures(30, random_state=0).fit(X[:500])
    more = (X[800:1300], y[800:1300])
    judge = Judge(False, "accuracy", None)
    row = measure("random", 30, features, 1.0, None, data, judge, 0, n_points=100, more=more)
    exact = SklearnRidge().fit(features.transform(X[:500]), y[:500])
    for name, part in (("accuracy", data[2:]), ("confirmed_accuracy", more)):
        assert row[name] == pytest.approx(
            exact.score(features.transform(part[0]), part[1]), abs=0.01
        )
    assert row["confirmed_rows"] == 500


def test_own_maps_and_models_strings_and_a_cluster(cluster_client: Any) -> None:
    X, codes = blobs(600, 5, 3)
    y = np.array(["ash", "birch", "cedar"])[codes]
    maps = {"few": rf.RandomFeatures(random_state=0), "nys": rf.NystroemFeatures(5)}
    table = rf.compare(
        lazy(X, 90),
        lazy(y, 90),
        maps,
        n_components=30,
        model=rf.SGDClassifier(epochs=5, random_state=0),
        client=cluster_client,
        random_state=0,
    )
    assert table["method"] == ["few", "nys"]
    assert min(table["accuracy"]) > 0.5


def test_the_table_shows_and_draws_itself() -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    X, y = blobs(200, 4, 2)
    table = rf.compare(X, y, ["random", "nystroem"], n_components=[5, 10], random_state=0)
    assert "kernel_error" in repr(table)
    assert len(repr(table).splitlines()) == 5
    assert "<td>nystroem</td>" in table._repr_html_()
    assert table.to_frame().shape == (4, 7)
    axes = table.plot()
    assert [len(ax.lines) for ax in axes] == [2, 2]
    assert axes[0].lines[0].get_xdata().tolist() == [5, 10]
    plt.close("all")


def test_repeats_give_means_and_their_spread() -> None:
    X, y = digits()
    asked: dict[str, Any] = {"n_components": [10, 30], "n_candidates": 100, "gamma": 0.02}
    table = rf.compare(X, y, ["random", "giga"], repeats=3, random_state=5, **asked)
    single = [rf.compare(X, y, ["random", "giga"], random_state=5 + k, **asked) for k in range(3)]
    assert len(table) == 4
    for column in ("kernel_error", "accuracy"):
        values = np.array([one[column] for one in single])
        assert (values.std(axis=0) > 0).all()
        np.testing.assert_allclose(table[column], values.mean(axis=0))
        np.testing.assert_allclose(table[f"{column}_spread"], values.std(axis=0, ddof=1))
    axes = table.plot()
    assert [len(ax.containers) for ax in axes] == [2, 2]  # error bars
    axes[0].figure.clear()


def test_sparse_rows_give_the_figures_of_dense_ones() -> None:
    X, y = digits()
    asked: dict[str, Any] = {"n_components": 20, "n_candidates": 60, "random_state": 0}
    methods = ["random", "jl", "compressed", "nystroem"]
    dense = rf.compare(X, y, methods, **asked)
    sparse = rf.compare(sp.csr_array(X), y, methods, **asked)
    for column in ("kernel_error", "accuracy"):
        np.testing.assert_allclose(sparse[column], dense[column], atol=0.01)


def test_bad_input_is_named() -> None:
    X, y = blobs(100, 4, 2)
    for wrong in (0, 1.5, "2"):
        with pytest.raises(ValueError, match=r"repeats=.* must be a whole number"):
            rf.compare(X, y, ["random"], repeats=wrong)
    with pytest.raises(ValueError, match="n_test=0 must be a whole number of at least 2"):
        rf.compare(X, y, ["random"], n_test=0)
    with pytest.raises(ValueError, match="n_rows=1 must be a whole number of at least 2"):
        rf.compare(X, y, ["random"], n_rows=1)
    with pytest.raises(ValueError, match="'magic' is not in the list of random, jl"):
        rf.compare(X, y, ["magic"])
    with pytest.raises(ValueError, match="'random' is not in the list"):
        rf.compare(X, y, "random")
    with pytest.raises(ValueError, match="y has 99 rows and X has 100"):
        rf.compare(X, y[:99])
    with pytest.raises(ValueError, match="Unknown label type"):
        rf.compare(X, np.linspace(0, 1, 100), ["random"], scoring="accuracy")
    X[40, 2] = np.nan
    with pytest.raises(ValueError, match="row 40, column 2"):
        rf.compare(X, y, ["random"], n_components=5, random_state=0)


def test_model_bytes_of_maps_from_elsewhere() -> None:
    from sklearn.kernel_approximation import RBFSampler

    fitted = RBFSampler(n_components=10, random_state=0).fit(np.zeros((2, 3)))
    assert model_bytes(fitted) == (3 * 10 + 10) * 8


def test_lazy_rows_are_read_block_by_block() -> None:
    X, y = digits()
    largest: list[int] = []

    def watch(block: Array) -> Array:
        largest.append(len(block))
        return block

    Z = lazy(X, 100).map_blocks(watch, meta=np.empty((0, 0), np.float32))
    assert isinstance(Z, da.Array)
    rf.compare(Z, y, ["random"], n_components=10, n_rows=300, n_test=100, random_state=0)
    assert max(largest) == 100


def test_frames_of_several_types_are_compared() -> None:
    """numpy makes objects of them, and the error was numpy's own."""
    X = np.random.default_rng(0).normal(size=(80, 2))
    X[:, 1] = X[:, 1] > 0
    frame, y = pd.DataFrame(X, columns=["a", "b"]).astype({"b": bool}), X[:, 0] > 0
    options: dict[str, Any] = {"n_components": 5, "gamma": 0.5, "random_state": 0}
    wanted = rf.compare(X, y, ["random"], **options).rows[0]["kernel_error"]
    for rows in (frame, frame.convert_dtypes(), X.astype(object)):
        found = rf.compare(rows, y, ["random"], **options).rows[0]["kernel_error"]
        assert found == pytest.approx(wanted)
        assert rf.tune(rows, y, gammas=[0.1], Cs=[1], random_state=0).gamma == 0.1
    holed = frame.convert_dtypes()
    holed.loc[3, "b"] = pd.NA
    with pytest.raises(ValueError, match="Input X contains NaN at row 3, column 1"):
        rf.compare(holed, y, ["random"], **options)


def test_dates_are_for_a_table_encoder() -> None:
    """The error was numpy's or Python's own."""
    frame = pd.DataFrame({"a": np.arange(60.0), "when": pd.Timestamp("2020-01-01")})
    y = np.arange(60) % 2
    model = rf.RidgeClassifier().fit(frame.assign(when=0.0), y)
    for call in (
        lambda: rf.compare(frame, y, ["random"], n_components=5),
        lambda: rf.RidgeClassifier().fit(frame, y),
        lambda: rf.RandomFeatures(5).fit(frame),
        lambda: model.predict(frame),
    ):
        with pytest.raises(ValueError, match=r"a column of dates: put rfcdask.TableEncoder\(\)"):
            call()
    make_pipeline(rf.TableEncoder(), rf.RidgeClassifier()).fit(frame, y).score(frame, y)


def test_a_method_or_size_given_twice_is_measured_once() -> None:
    """They were taken for repeats, of which nothing varies."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    found = rf.compare(X, X[:, 0] > 0, ["random", "random"], n_components=[5, 5], random_state=0)
    assert len(found.rows) == 1
    assert "accuracy_spread" not in found.rows[0]
