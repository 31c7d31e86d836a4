"""What is wrong with the input is said in one sentence that names the place and the remedy."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone

import rfcdask as rf
from rfcdask.linear.accumulate import accumulate_moments
from tests.linear_data import blobs, lazy

MODELS = [
    rf.SGDClassifier(random_state=0, epochs=2),
    rf.SGDRegressor(random_state=0, epochs=2),
    rf.Ridge(),
    rf.RidgeClassifier(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 437, 999])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_not_finite_x_names_block_and_row(model: Any, value: float, row: int, kind: Any) -> None:
    X, y = blobs(1000, 5, 3)
    X = X.astype(kind)
    X[row, 3] = value
    block, within = divmod(row, 100)
    words = rf"X is NaN or infinite in block {block}, row {within} .*row {row} of X, column 3"
    with pytest.raises(ValueError, match=words):
        model.fit(lazy(X, 100), lazy(y, 100))


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite_y_names_block_and_row(model: Any, value: float) -> None:
    X, labels = blobs(1000, 5, 3)
    y = labels.astype(float)
    y[437] = value
    words = r"y is NaN or infinite in block 4, row 37 of the block \(row 437 of y"
    with pytest.raises(ValueError, match=words):
        model.fit(lazy(X, 100), lazy(y, 100))


def test_not_finite_rows_stop_training_on_a_cluster(cluster_client: Any) -> None:
    X, y = blobs(1000, 5, 3)
    X[437, 3] = np.nan
    for model in MODELS:
        with pytest.raises(ValueError, match="block 4, row 37"):
            model.fit(lazy(X, 100), lazy(y, 100), client=cluster_client)


def test_pca_names_the_row() -> None:
    X, _ = blobs(1000, 5, 3)
    X[437, 3] = np.nan
    with pytest.raises(ValueError, match="block 4, row 37"):
        rf.PCA(2).fit(lazy(X, 100))


def test_feature_maps_name_the_row_too() -> None:
    X, y = blobs(1000, 5, 3)
    features = rf.RandomFeatures(20, random_state=0).fit(X)
    X[437, 3] = np.nan
    with pytest.raises(ValueError, match="row 37, column 3 of block 4"):
        rf.SGDClassifier(epochs=5, random_state=0).fit(
            features.transform(lazy(X, 100)), lazy(y, 100)
        )


@pytest.mark.parametrize("model", [MODELS[0], MODELS[3]], ids=lambda m: type(m).__name__)
def test_labels(model: Any) -> None:
    X, y = blobs(300, 5, 2)
    with pytest.raises(ValueError, match=r"only one class \(1\); a classifier needs"):
        model.fit(lazy(X, 100), np.ones(300, int))
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(lazy(X, 100), np.linspace(0, 1, 300))
    model.fit(lazy(X, 100), lazy(y, 100))
    with pytest.raises(ValueError, match=r"labels \[5\] that the model was not fitted on"):
        model.score(lazy(X, 100), lazy(np.where(y == 1, 5, y), 100))
    with pytest.raises(ValueError, match="cannot be compared"):
        model.fit(lazy(X, 100), lazy(np.array(["a", 1] * 150, object), 100))
    with pytest.raises(ValueError, match=r"one label for each row"):
        model.fit(X, np.zeros((300, 2)))


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_shapes_and_chunks(model: Any) -> None:
    X, y = blobs(300, 5, 2)
    Z = lazy(X, 100)
    cut = clone(model).fit(Z, lazy(y, 60))
    same = clone(model).fit(Z, lazy(y, 100))
    assert np.array_equal(cut.predict(X), same.predict(X))
    with pytest.raises(ValueError, match="y has 299 rows and X has 300"):
        model.fit(Z, y[:299])
    with pytest.raises(ValueError, match="sample_weight has 10 rows and X has 300"):
        model.fit(Z, lazy(y, 100), np.ones(10))
    with pytest.raises(ValueError, match="sample_weight has 200 rows"):
        model.fit(Z, lazy(y, 100), lazy(np.ones(200), 100))
    with pytest.raises(ValueError, match=r"negative or not finite in block 1, row 5"):
        model.fit(Z, lazy(y, 100), np.where(np.arange(300) == 105, -1.0, 1.0))
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.fit(Z, None)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        model.fit(Z[Z[:, 0] > 0], y)
    with pytest.raises(ValueError, match="1 dimension"):
        model.fit(Z[:, 0], y)
    with pytest.raises(ValueError, match="is empty"):
        model.fit(Z[:0], y[:0])
    with pytest.raises(ValueError, match="real numbers"):
        model.fit(Z.astype(str), y)
    model.fit(Z, lazy(y, 100))
    with pytest.raises(ValueError, match="X has 4 features"):
        model.predict(Z[:, :4])


def test_columns_in_several_blocks_are_put_together() -> None:
    X, y = blobs(300, 6, 2)
    apart = da.from_array(X, chunks=(100, 2))
    one = rf.SGDClassifier(epochs=5, random_state=0).fit(apart, y)
    other = rf.SGDClassifier(epochs=5, random_state=0).fit(lazy(X, 100), y)
    assert np.array_equal(one.coef_, other.coef_)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"epochs": 0}, r"'epochs' parameter .* must be an int in the range \[1, inf\) .* Got 0"),
        ({"alpha": np.inf}, r"'alpha' .* in the range \[0.0, inf\)"),
        ({"alpha": -1}, r"'alpha' .* a float in the range \[0.0, inf\) or a str among {'auto'}"),
        ({"batch_size": 2.5}, r"'batch_size' .* an int in the range \[1, inf\)"),
        ({"eta0": 0}, r"'eta0' .* must be a float in the range \(0.0, inf\)"),
        ({"early_stopping": True, "validation_fraction": 2}, r"in the range \(0.0, 1.0\)"),
        ({"loss": "huber"}, "'loss' .* must be a str among {.*'hinge'.*}"),
        (
            {"loss": "squared_hinge", "multi_class": "multinomial"},
            "loss='squared_hinge' with multi_class='multinomial' is not known; there are",
        ),
        ({"persist": "maybe"}, "'persist' .*'auto'.* Got 'maybe'"),
        ({"checkpoint_every": 0}, "'checkpoint_every' parameter of SGDClassifier must be an int"),
    ],
)
def test_settings(setting: dict[str, Any], words: str) -> None:
    X, y = blobs(50, 3, 2)
    with pytest.raises(ValueError, match=words):
        rf.SGDClassifier(**setting).fit(X, y)


def test_probabilities_exist_for_log_loss_only() -> None:
    X, y = blobs(50, 3, 2)
    model = rf.SGDClassifier(epochs=5, random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        model.predict_proba(X)
    assert "use loss='log_loss'" in str(caught.value.__cause__)


@pytest.mark.parametrize("alphas", [[], [1.0, -2.0], [np.nan]])
def test_penalties(alphas: Any) -> None:
    X, y = blobs(50, 3, 2)
    with pytest.raises(ValueError, match="alpha"):
        rf.Ridge(alphas=alphas).fit(X, y)


@pytest.mark.parametrize("wanted", [0, 9, 1.5, "many"])
def test_components(wanted: Any) -> None:
    with pytest.raises(ValueError, match=r"n_components.* must be"):
        rf.PCA(wanted).fit(blobs(50, 3, 2)[0])


ALL_MODELS = [
    rf.KernelClassifier(8, epochs=1, random_state=0),
    rf.KernelRegressor(8, epochs=1, random_state=0),
    rf.SGDClassifier(epochs=1, loss="log_loss", random_state=0),
    rf.SGDRegressor(epochs=1, random_state=0),
    rf.Ridge(),
    rf.RidgeClassifier(),
    rf.PCA(2),
]


@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_values_are_named_by_row_and_column(model: Any, value: float) -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    fitted = clone(model).fit(X, y)
    X[157, 2] = value
    blocks = lazy(X, 50)
    calls = ("predict", "predict_proba", "decision_function", "transform")
    for name in (name for name in calls if hasattr(fitted, name)):
        with pytest.raises(ValueError, match="row 157, column 2;"):
            getattr(fitted, name)(X)
        with pytest.raises(ValueError, match="row 7, column 2 of block 3;"):
            getattr(fitted, name)(blocks).compute()
    with pytest.raises(ValueError, match="row 157, column 2;"):
        clone(model).fit(X, y)
    if hasattr(fitted, "score"):
        with pytest.raises(ValueError, match="row 7, column 2 of block 3;"):
            fitted.score(blocks, y)


def test_rows_held_out_do_not_shift_the_place() -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    X[157, 2] = np.nan
    blocks = lazy(X, 50)
    with pytest.raises(ValueError, match="row 157 of X, column 2"):
        accumulate_moments(blocks, da.zeros(200, chunks=50), validation_fraction=0.5, seed=1)
