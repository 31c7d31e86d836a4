"""Ridge, its classifier and PCA against scikit-learn on the whole array."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import sklearn.decomposition
import sklearn.linear_model
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.kernels.arrays import Array
from rfcdask.kernels.seeds import held_out_by_number
from rfcdask.linear.moments import Moments
from tests.linear_data import blobs, lazy

TOLERANCE = {np.float64: 1e-8, np.float32: 1e-4}


def relative(found: Array, wanted: Array) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def features(n: int = 3000, p: int = 40, dtype: Any = np.float64) -> Array:
    """Cosine features: correlated, with a mean that is not zero."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 4))
    Z = np.sqrt(2 / p) * np.cos(X @ rng.normal(size=(4, p)) + rng.uniform(0, 6.28, p))
    return (Z + 0.3).astype(dtype)


@st.composite
def chunkings(draw: Any, n: int) -> tuple[int, ...]:
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=6)))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("targets", [None, 3])
@pytest.mark.parametrize("weighted", [True, False])
def test_ridge_equals_scikit_learn(
    dtype: Any, intercept: bool, targets: int | None, weighted: bool
) -> None:
    Z = features(dtype=dtype)
    rng = np.random.default_rng(1)
    y = Z @ rng.normal(size=(Z.shape[1], targets or 1)) + 5 + 0.1 * rng.normal(size=(len(Z), 1))
    y = y[:, 0] if targets is None else y
    weights = rng.uniform(0, 2, len(Z)) if weighted else None
    exact = sklearn.linear_model.Ridge(alpha=0.7, fit_intercept=intercept, solver="cholesky")
    exact.fit(Z.astype(np.float64), y, sample_weight=weights)
    ours = rf.Ridge(0.7, fit_intercept=intercept).fit(lazy(Z, 701), lazy(y, 701), weights)
    assert ours.coef_.shape == exact.coef_.shape
    assert relative(ours.coef_, exact.coef_) < TOLERANCE[dtype]
    assert np.allclose(ours.intercept_, exact.intercept_, rtol=TOLERANCE[dtype], atol=1e-6)
    wanted = exact.score(Z.astype(np.float64), y, weights)
    assert ours.score(lazy(Z, 701), lazy(y, 701), weights) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5}])
def test_ridge_classifier_equals_scikit_learn(dtype: Any, classes: int, class_weight: Any) -> None:
    X, y = blobs(2000, 12, classes)
    X = X.astype(dtype)
    y[: len(y) // 2] = np.minimum(y[: len(y) // 2], 1)  # classes of unequal size
    exact = sklearn.linear_model.RidgeClassifier(
        alpha=2.0, class_weight=class_weight, solver="cholesky"
    ).fit(X.astype(np.float64), y)
    ours = rf.RidgeClassifier(2.0, class_weight=class_weight).fit(lazy(X, 333), lazy(y, 333))
    assert relative(ours.coef_, exact.coef_) < TOLERANCE[dtype]
    assert relative(ours.intercept_, exact.intercept_) < TOLERANCE[dtype]
    predicted = ours.predict(lazy(X, 333))
    assert isinstance(predicted, da.Array)
    assert np.mean(predicted.compute() == exact.predict(X)) > 0.999
    scores = ours.decision_function(lazy(X, 333))
    assert scores.shape == exact.decision_function(X).shape
    assert scores.chunks[0] == lazy(X, 333).chunks[0]
    assert scores.compute().dtype == scores.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("whiten", [True, False])
def test_pca_equals_scikit_learn(dtype: Any, whiten: bool) -> None:
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(1500, 10)) * np.arange(1, 11) + 3) @ rng.normal(size=(10, 10))
    X = X.astype(dtype)
    exact = sklearn.decomposition.PCA(4, whiten=whiten, svd_solver="full").fit(X.astype(float))
    ours = rf.PCA(4, whiten=whiten).fit(lazy(X, 400))
    tolerance = TOLERANCE[dtype]
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "mean_"):
        assert relative(getattr(ours, name), getattr(exact, name)) < tolerance, name
    assert relative(ours.singular_values_, exact.singular_values_) < tolerance
    assert ours.noise_variance_ == pytest.approx(exact.noise_variance_, rel=10 * tolerance)
    projected = ours.transform(lazy(X, 400))
    assert isinstance(projected, da.Array)
    assert projected.shape == (1500, 4)
    assert projected.dtype == dtype
    assert relative(projected.compute(), exact.transform(X.astype(float))) < 10 * tolerance
    back = ours.inverse_transform(projected).compute()
    assert relative(back, exact.inverse_transform(exact.transform(X.astype(float)))) < 1e-3


def test_pca_keeps_a_share_of_the_variance() -> None:
    X = features(800, 20)
    exact = sklearn.decomposition.PCA(0.9, svd_solver="full").fit(X)
    assert rf.PCA(0.9).fit(lazy(X, 100)).n_components_ == exact.n_components_


DTYPES = st.sampled_from([np.float32, np.float64])


@settings(max_examples=25, deadline=None)
@given(chunks=chunkings(500), dtype=DTYPES)
def test_chunks_do_not_matter_to_ridge(chunks: tuple[int, ...], dtype: Any) -> None:
    Z = features(500, 15, dtype)
    y = Z @ np.arange(15.0) + np.sin(np.arange(500))
    whole = sklearn.linear_model.Ridge(alpha=0.1, solver="cholesky").fit(Z.astype(float), y)
    parts = rf.Ridge(0.1).fit(lazy(Z, chunks), lazy(y, chunks))
    assert relative(parts.coef_, whole.coef_) < TOLERANCE[dtype]
    # The intercept is a small difference of terms as large as the coefficients.
    size = np.linalg.norm(whole.coef_)
    assert parts.intercept_ == pytest.approx(whole.intercept_, abs=TOLERANCE[dtype] * size)
    path = rf.Ridge(alphas=[1e-3, 1e3]).fit(lazy(Z, chunks), lazy(y, chunks))
    again = rf.Ridge(alphas=[1e-3, 1e3]).fit(Z, y)
    held = [e["held_out_error"] for e in path.path_]
    assert np.allclose(held, [e["held_out_error"] for e in again.path_], rtol=10 * TOLERANCE[dtype])


@settings(max_examples=25, deadline=None)
@given(chunks=chunkings(500), dtype=DTYPES, classes=st.integers(2, 5), balanced=st.booleans())
def test_chunks_do_not_matter_to_a_ridge_classifier(
    chunks: tuple[int, ...], dtype: Any, classes: int, balanced: bool
) -> None:
    Z, y = features(500, 15, dtype), np.sort(blobs(500, 2, classes)[1])
    setting = {"alpha": 0.5, "class_weight": "balanced" if balanced else None}
    whole = sklearn.linear_model.RidgeClassifier(solver="cholesky", **setting)
    whole.fit(Z.astype(float), y)
    parts = rf.RidgeClassifier(**setting).fit(lazy(Z, chunks), lazy(y, chunks))
    assert parts.classes_.tolist() == whole.classes_.tolist()
    assert parts.coef_.shape == (1 if classes == 2 else classes, 15)
    assert relative(parts.coef_, whole.coef_) < TOLERANCE[dtype]
    assert relative(parts.intercept_, whole.intercept_) < TOLERANCE[dtype]


@settings(max_examples=25, deadline=None)
@given(chunks=chunkings(500), dtype=DTYPES, whiten=st.booleans())
def test_chunks_do_not_matter_to_pca(chunks: tuple[int, ...], dtype: Any, whiten: bool) -> None:
    rng = np.random.default_rng(2)
    X = ((rng.normal(size=(500, 10)) * np.arange(1, 11) + 3) @ rng.normal(size=(10, 10))).astype(
        dtype
    )
    whole = sklearn.decomposition.PCA(4, whiten=whiten, svd_solver="full").fit(X.astype(float))
    parts = rf.PCA(4, whiten=whiten).fit(lazy(X, chunks))
    for name in ("components_", "explained_variance_", "singular_values_", "mean_"):
        assert relative(getattr(parts, name), getattr(whole, name)) < TOLERANCE[dtype], name
    projected = parts.transform(lazy(X, chunks))
    assert projected.chunks[0] == chunks
    assert projected.dtype == dtype
    assert relative(projected.compute(), whole.transform(X.astype(float))) < TOLERANCE[dtype]


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(0, 60), seed=st.integers(0, 99))
def test_moments_of_parts_merge_into_those_of_the_whole(cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z, Y, w = rng.normal(10, 1, (60, 5)), rng.normal(size=(60, 2)), rng.uniform(0, 1, 60)
    whole = Moments.of(Z, Y, w)
    merged = Moments.empty(5, 2)
    for part in (slice(None, cut), slice(cut, None)):
        if len(Z[part]):
            merged = merged.merge(Moments.of(Z[part], Y[part], w[part]))
    for one, other in zip(whole, merged, strict=True):
        assert np.allclose(one, other, rtol=1e-10, atol=1e-12)
    centred = Z - np.average(Z, axis=0, weights=w)
    assert np.allclose(whole.scatter, (w[:, None] * centred).T @ centred)


def test_large_means_do_not_destroy_float32() -> None:
    """Sums of squares about zero would lose everything here; about the mean they do not."""
    rng = np.random.default_rng(0)
    X = (1000 + rng.normal(size=(4000, 6))).astype(np.float32)
    y = X.astype(float) @ np.arange(6.0)
    exact = sklearn.linear_model.Ridge(1.0, solver="cholesky").fit(X.astype(float), y)
    assert relative(rf.Ridge(1.0).fit(lazy(X, 500), lazy(y, 500)).coef_, exact.coef_) < 1e-4


def test_the_best_alpha_is_chosen_on_rows_held_out() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 80))
    y = X[:, 0] + 3 * rng.normal(size=300)  # mostly noise: a strong penalty must win
    model = rf.Ridge(alphas=[1e-3, 1.0, 300.0], validation_fraction=0.3).fit(lazy(X, 50), y)
    assert model.alpha_ == 300.0
    away = held_out_by_number(0, 300, 0.3, 0)
    for entry in model.path_:
        exact = sklearn.linear_model.Ridge(entry["alpha"]).fit(X[~away], y[~away])
        error = np.mean((exact.predict(X[away]) - y[away]) ** 2)
        assert entry["held_out_error"] == pytest.approx(error, rel=1e-8)
    final = sklearn.linear_model.Ridge(300.0).fit(X, y)
    assert relative(model.coef_, final.coef_) < 1e-8


def test_rows_added_later_and_models_merged_equal_one_fit() -> None:
    Z, (_, y) = features(900, 12), blobs(900, 2, 3)
    whole = rf.RidgeClassifier().fit(lazy(Z, 100), y)
    later = rf.RidgeClassifier().partial_fit(Z[:200], y[:200], classes=[0, 1, 2])
    later.partial_fit(lazy(Z[200:], 90), y[200:])
    assert relative(later.coef_, whole.coef_) < 1e-10
    with pytest.raises(ValueError, match="differ from those of the first call"):
        later.partial_fit(Z, y, classes=[0, 1])
    left, right = rf.Ridge().fit(Z[:500], y[:500]), rf.Ridge().fit(Z[500:], y[500:])
    assert relative(left.merge(right).coef_, rf.Ridge().fit(Z, y).coef_) < 1e-10
    one, two = rf.PCA(3).fit(Z[:500]), rf.PCA(3).fit(Z[500:])
    both = rf.PCA(3).fit(Z)
    assert np.allclose(one.merge(two).explained_variance_, both.explained_variance_, rtol=1e-10)
    assert np.allclose(
        rf.PCA(3).partial_fit(Z[:500]).partial_fit(Z[500:]).components_, both.components_
    )


def test_dependent_columns_have_the_smallest_solution() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    X = np.hstack([X, X])
    y = X @ np.ones(6)
    assert np.allclose(rf.Ridge(0.0).fit(X, y).coef_, 1.0, atol=1e-6)


def test_every_scheduler_gives_the_same_bits(cluster_client: Any) -> None:
    import dask

    Z, (_, y) = features(1200, 20, np.float32), blobs(1200, 2, 3)
    models = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            models.append(rf.RidgeClassifier().fit(lazy(Z, 100), lazy(y, 100)))
    models.append(rf.RidgeClassifier().fit(lazy(Z, 100), lazy(y, 100), client=cluster_client))
    for model in models[1:]:
        assert np.array_equal(model.moments_.scatter, models[0].moments_.scatter)
        assert np.array_equal(model.coef_, models[0].coef_)


def test_blocks_that_start_at_an_odd_byte_give_the_same_bits() -> None:
    """As they do after a journey from one worker to another."""
    Z, (_, y) = features(500, 30, np.float32), blobs(500, 2, 2)

    def move(block: Array) -> Array:
        odd = np.empty(block.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(block.shape)
        odd[...] = block
        assert not odd.flags.aligned
        return odd

    whole = lazy(Z, -1)
    moved = whole.map_blocks(move, meta=np.empty((0, 0), np.float32))
    assert np.array_equal(rf.Ridge().fit(whole, y).coef_, rf.Ridge().fit(moved, y).coef_)
    models = [rf.SGDClassifier(random_state=0).fit(array, y) for array in (whole, moved)]
    assert np.array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("model", [rf.Ridge(), rf.RidgeClassifier(), rf.PCA(3)])
def test_saved_models_predict_and_learn_on(model: Any, tmp_path: Any) -> None:
    Z, (_, y) = features(300, 10), blobs(300, 2, 3)
    model.fit(Z, y)
    rf.save(model, tmp_path / "model")
    again = rf.load(tmp_path / "model")
    method = "transform" if isinstance(model, rf.PCA) else "predict"
    assert np.array_equal(getattr(again, method)(Z), getattr(model, method)(Z))
    assert np.array_equal(again.moments_.scatter, model.moments_.scatter)
    again.partial_fit(Z, y)
    assert again.moments_.rows == 600
