"""Data as people have them: units far apart, offsets, integers, empty blocks, odd labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import r2_score

import rfcdask as rf
from tests.linear_data import blobs, lazy

RNG = np.random.default_rng(0)
PLAIN = RNG.normal(size=(600, 5))
TARGET = PLAIN @ [1, 2, 3, 4, 5] + RNG.normal(size=600)


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("unit", [1e-8, 1e9])
def test_ridge_with_units_far_apart(alpha: float, unit: float) -> None:
    X = PLAIN * [unit, 1, 1, 1, 1]
    X[:, 0] += 5 * unit  # such as seconds since 1970
    exact = Ridge(alpha, solver="svd").fit(X, TARGET)
    found = rf.Ridge(alpha).fit(X, TARGET)
    np.testing.assert_allclose(found.coef_, exact.coef_, rtol=1e-7)
    several = rf.Ridge(alphas=[alpha, 10.0], random_state=0).fit(X, TARGET)
    assert min(step["held_out_error"] for step in several.path_) < 2


def test_dependent_columns_beside_one_of_another_unit() -> None:
    other = RNG.normal(size=(600, 1))
    X = np.c_[PLAIN, PLAIN[:, 0] + PLAIN[:, 1], 1e9 * other]
    found = rf.Ridge(0.0).fit(X, TARGET)
    expected = LinearRegression().fit(np.c_[PLAIN, other], TARGET)
    score = expected.score(np.c_[PLAIN, other], TARGET)
    assert found.score(X, TARGET) == pytest.approx(score, abs=1e-9)


def test_an_offset_beside_a_large_spread_in_float32() -> None:
    X = np.c_[PLAIN[:, 0] * 1e3, PLAIN[:, 1] * 0.5 + 3e3, PLAIN[:, 2]].astype(np.float32)
    y = 2.0 * X[:, 1] + PLAIN[:, 2]
    wide = X.astype(np.float64)
    np.testing.assert_allclose(
        rf.Ridge().fit(X, y).coef_, Ridge().fit(wide, y).coef_, rtol=1e-4, atol=1e-7
    )
    exact = PCA(svd_solver="full").fit(wide).explained_variance_
    np.testing.assert_allclose(rf.PCA().fit(X).explained_variance_, exact, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, ">f8", np.longdouble, np.uint8, np.float16])
def test_types_keep_their_digits_and_come_out_as_declared(dtype: Any) -> None:
    high = 1_700_000_000 if np.dtype(dtype).itemsize > 2 else 0
    X = (high + RNG.integers(0, 100, size=(500, 2))).astype(dtype)
    y = (X[:, 0].astype(float) - X[:, 0].astype(float).mean()) / 10 + X[:, 1].astype(float)
    chunked = da.from_array(X, chunks=(100, 2))
    for given in (X, chunked):
        model = rf.Ridge().fit(given, y)
        np.testing.assert_allclose(model.coef_, [0.1, 1.0], rtol=1e-3)
        assert model.score(given, y) > 0.999
        scaled = rf.Standardizer().fit(given)
        np.testing.assert_allclose(scaled.deviation_, X.astype(float).std(axis=0), rtol=1e-6)
        for lazily in (model.predict(chunked), rf.PCA().fit(given).transform(chunked)):
            assert lazily.compute().dtype == lazily.dtype


def filtered() -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return arrays whose first and third block a filter has left empty."""
    X, y = blobs(1000, 4, 2)
    kept = ~np.isin(np.arange(1000) // 200, [0, 2])
    mask = da.from_array(kept, chunks=200)
    A, b = lazy(X, 200)[mask], lazy(y, 200)[mask]
    A.compute_chunk_sizes()
    b.compute_chunk_sizes()
    assert A.chunks[0] == (0, 200, 0, 200, 200)
    return A, b, X[kept], y[kept]


def test_blocks_without_rows_change_nothing() -> None:
    A, b, X, y = filtered()
    same, labels = lazy(X, 200), lazy(y, 200)
    for make in (
        lambda: rf.SGDClassifier(random_state=0),
        lambda: rf.SGDRegressor(random_state=0),
        lambda: rf.Ridge(),
        lambda: rf.RidgeClassifier(),
    ):
        found, expected = make().fit(A, b), make().fit(same, labels)
        np.testing.assert_array_equal(found.coef_, expected.coef_)
        assert found.score(A, b) == expected.score(same, labels)
        assert found.predict(A).chunks[0] == A.chunks[0]
        np.testing.assert_array_equal(found.predict(A).compute(), expected.predict(same).compute())
        np.testing.assert_array_equal(
            make().partial_fit(A, b, **_known(found)).coef_,
            make().partial_fit(same, labels, **_known(found)).coef_,
        )
    for transformer in (rf.Standardizer(), rf.PCA()):
        Z = transformer.fit(A).transform(A)
        np.testing.assert_allclose(Z.compute(), transformer.fit(same).transform(X), atol=1e-6)


def _known(model: Any) -> dict[str, Any]:
    return {"classes": model.classes_} if hasattr(model, "classes_") else {}


def test_the_number_of_targets_stays() -> None:
    both = np.c_[TARGET, -TARGET]
    for first, then in ((both, TARGET), (TARGET, both)):
        model = rf.SGDRegressor(random_state=0).partial_fit(PLAIN, first)
        with pytest.raises(ValueError, match="give the same targets in every call"):
            model.partial_fit(PLAIN, then)
    with pytest.raises(ValueError, match=r"y has 2 target\(s\) per row and its predictions 1"):
        rf.Ridge().fit(PLAIN, TARGET).score(PLAIN, both)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
def test_determination_is_that_of_scikit_learn(offset: float) -> None:
    weights = RNG.uniform(0, 2, 600)
    both = np.c_[TARGET, TARGET**2] + offset
    model = rf.Ridge().fit(PLAIN + offset, both)
    found = model.score(lazy(PLAIN + offset, 70), both, sample_weight=weights)
    expected = r2_score(both, model.predict(PLAIN + offset), sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("value", [3.0, 0.1])
def test_determination_of_a_constant(value: float) -> None:
    y = np.full(600, value)
    assert rf.Ridge().fit(PLAIN, TARGET).score(PLAIN, y) == 0
    ones = rf.Ridge().fit(np.zeros((600, 1)) + PLAIN[:, :1], np.zeros(600))
    assert ones.score(PLAIN[:, :1], np.zeros(600)) == 1


@pytest.mark.parametrize("model", [rf.Ridge(), rf.RidgeClassifier()])
def test_weights_are_looked_at_in_scoring_too(model: Any) -> None:
    y = (TARGET > 0).astype(int)
    model.fit(PLAIN, y)
    wrong = np.ones(600)
    wrong[7] = -1
    with pytest.raises(ValueError, match=r"sample_weight is negative.*row 7"):
        model.score(PLAIN, y, sample_weight=wrong)
    nothing = da.zeros(600, chunks=100)
    X, labels = lazy(PLAIN, 100), lazy(y, 100)
    with pytest.raises(ValueError, match="weights are all zero"):
        model.score(X, labels, sample_weight=nothing)
    with pytest.raises(ValueError, match="weights are all zero"):
        model.fit(X, labels, sample_weight=nothing)


def test_constant_columns_become_zero() -> None:
    X = np.full((1001, 1), 0.1)
    scaled = rf.Standardizer().fit(X)
    assert scaled.deviation_.tolist() == [1.0]
    np.testing.assert_allclose(scaled.transform(X), 0, atol=1e-15)


def test_whitening_leaves_what_is_rounding_alone() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6))
        X = np.c_[X, X[:, 0]]
        pca = rf.PCA(whiten=True).fit(X)
        Z = pca.transform(X)
        assert np.abs(Z).max() < 10
        np.testing.assert_allclose(pca.inverse_transform(Z), X, atol=1e-9)


@pytest.mark.parametrize("model", [rf.RidgeClassifier(), rf.SGDClassifier(random_state=0)])
def test_no_class_for_a_row_with_nan(model: Any) -> None:
    model.fit(PLAIN, TARGET > 0)
    bad = PLAIN.copy()
    bad[130, 2] = np.nan
    with pytest.raises(ValueError, match="NaN at row 30, column 2"):
        model.predict(lazy(bad, 100)).compute()
    with pytest.raises(ValueError, match="NaN at row 30, column 2"):
        model.score(lazy(bad, 100), TARGET > 0)


@pytest.mark.parametrize("model", [rf.RidgeClassifier, rf.SGDClassifier])
def test_a_failed_first_piece_is_forgotten(model: Any) -> None:
    y = (TARGET > 0).astype(int)
    bad = PLAIN.copy()
    bad[5, 0] = np.nan
    found = model(random_state=0)
    with pytest.raises(ValueError, match="NaN"):
        found.partial_fit(bad, y, classes=[0, 1])
    with pytest.raises(NotFittedError):
        found.predict(PLAIN)
    found.partial_fit(PLAIN[:, :3], y, classes=[0, 1])
    assert found.coef_.shape == (1, 3)


@pytest.mark.parametrize("model", [rf.RidgeClassifier, rf.SGDClassifier])
def test_weights_of_classes(model: Any) -> None:
    y = (TARGET > 0).astype(int)
    for wrong in ({0: -1, 1: 1}, {0: np.nan, 1: 1}, {0: 0, 1: 0}):
        with pytest.raises(ValueError, match=r"class_weight=.* must give finite factors"):
            model(class_weight=wrong).fit(PLAIN, y)
    with pytest.raises(ValueError, match="needs all labels at once"):
        model(class_weight="balanced").partial_fit(PLAIN, y, classes=[0, 1])


def test_a_checkpoint_of_other_labels_or_weights_is_refused(tmp_path: Path) -> None:
    X, y = lazy(PLAIN, 50), (TARGET > 0).astype(int)
    blocks = iter(range(10**6))

    def broken(block: np.ndarray) -> np.ndarray:
        if next(blocks) > 30:
            raise OSError("gone")
        return block

    settings: dict[str, Any] = {
        "checkpoint": tmp_path / "state.npz",
        "checkpoint_every": 2,
        "random_state": 0,
        "persist": False,
    }
    with pytest.raises(OSError, match="gone"):
        rf.SGDClassifier(**settings).fit(X.map_blocks(broken, meta=np.empty((0, 0))), y)
    assert (tmp_path / "state.npz").exists()
    three = y + (PLAIN[:, 1] > 0)
    for labels, weights in ((three, None), (1 - y, None), (y, np.ones(600))):
        with pytest.raises(ValueError, match="belongs to another run"):
            rf.SGDClassifier(**settings).fit(X, labels, sample_weight=weights)
    np.testing.assert_array_equal(
        rf.SGDClassifier(**settings).fit(X, y).coef_,
        rf.SGDClassifier(random_state=0, persist=False).fit(X, y).coef_,
    )


@pytest.mark.parametrize("seed", [0, None])
def test_a_checkpoint_that_is_none(seed: int | None, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    np.save(tmp_path / "array.npy", np.zeros(3))
    for junk in (b"PK\x03\x04" + b"0" * 50, b"", b"text", (tmp_path / "array.npy").read_bytes()):
        path.write_bytes(junk)
        with pytest.raises(ValueError, match="is not a checkpoint that can be read"):
            rf.SGDClassifier(checkpoint=path, random_state=seed).fit(PLAIN, TARGET > 0)


def test_saved_weights_of_classes_keep_their_keys(tmp_path: Path) -> None:
    y = (TARGET > 0).astype(int)
    for number, keys in enumerate(([0, 1], np.arange(2))):
        model = rf.RidgeClassifier(class_weight={keys[0]: 1, keys[1]: 2.5}).fit(PLAIN, y)
        rf.save(model, tmp_path / f"m{number}")
        again = rf.load(tmp_path / f"m{number}")
        assert again.class_weight == {0: 1, 1: 2.5}
        again.partial_fit(PLAIN, y)
    model = rf.SGDClassifier(checkpoint=tmp_path / "c.npz").fit(PLAIN, y)
    rf.save(model, tmp_path / "sgd")
    assert rf.load(tmp_path / "sgd").checkpoint is None  # a path of another machine or a stranger
    assert rf.load(tmp_path / "sgd").history_ == model.history_


def test_labels_of_two_kinds_in_two_blocks() -> None:
    y = np.array(["a", 1], object)[np.repeat([0, 1], 300)]
    with pytest.raises(ValueError, match="y mixes labels that cannot be compared"):
        rf.RidgeClassifier().fit(lazy(PLAIN, 300), da.from_array(y, chunks=300))


def test_huber_needs_a_width() -> None:
    for wrong in (-1, 0, "a", None):
        with pytest.raises(
            ValueError, match=r"'epsilon' .* must be a float in the range \(0.0, inf\)"
        ):
            rf.SGDRegressor("huber", epsilon=wrong).fit(PLAIN, TARGET)


def test_standardized_csr_blocks_are_plain_arrays() -> None:
    X = lazy(PLAIN, 100).map_blocks(sp.csr_matrix, dtype=float, meta=sp.csr_matrix((0, 0)))
    Z = rf.Standardizer().fit(X).transform(X)
    np.testing.assert_allclose((Z**2).mean(axis=0).compute(), 1)


def test_maps_and_models_of_scikit_learn_are_compared() -> None:
    X, y = blobs(500, 4, 3)
    maps = {"theirs": RBFSampler(random_state=0), "ours": rf.RandomFeatures(random_state=0)}
    table = rf.compare(X, y, maps, n_components=20, model=LogisticRegression(), random_state=0)
    assert np.isnan(table["kernel_error"][0])
    assert table["kernel_error"][1] > 0
    assert min(table["accuracy"]) > 0.5


@pytest.mark.parametrize("form", [np.asarray, lambda y: lazy(y, 100)])
def test_a_column_of_labels_is_made_flat(form: Any) -> None:
    X, y = blobs(500, 4, 3)
    column = form(y[:, None])
    asked: dict[str, Any] = {"n_components": 20, "random_state": 0}
    (flat,) = rf.compare(X, y, ["random"], **asked)["accuracy"]
    assert rf.compare(X, column, ["random"], **asked)["accuracy"] == [flat]
    tried: dict[str, Any] = {"gammas": [0.1], "Cs": [1.0], "n_rows": 200, "random_state": 0}
    assert rf.tune(X, column, **tried).accuracy == rf.tune(X, y, **tried).accuracy
    for call in (rf.compare, rf.tune):
        with pytest.raises(ValueError, match=r"y has shape \(500, 2\)"):
            call(X, np.c_[y, y])


def test_tuning_does_not_take_missing_labels_for_a_class() -> None:
    X, y = blobs(500, 4, 2)
    with pytest.raises(ValueError, match=r"y has no label in row \d+"):
        rf.tune(X, np.where(np.arange(500) % 7 == 0, np.nan, y), n_rows=300, random_state=0)
