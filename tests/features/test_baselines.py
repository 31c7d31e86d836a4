"""The maps to compare with: plain random features, their projections, and Nyström."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel

import rfcdask as rf

rng = np.random.default_rng(8)
X = rng.normal(size=(300, 6))
GAMMA = 0.1
K = rbf_kernel(X, gamma=GAMMA)


def test_random_features_are_the_documented_formula() -> None:
    for sampling in ("iid", "orthogonal", "halton", "sobol", "fastfood"):
        f = rf.RandomFeatures(40, gamma=GAMMA, sampling=sampling, random_state=1).fit(X)
        Z = np.sqrt(2 / 40) * np.cos(X @ f.frequencies_ + f.phases_)
        np.testing.assert_allclose(f.transform(X), Z, atol=1e-12)
        assert (f.weights_ == 1).all()


def test_paired_random_features_have_unit_norm() -> None:
    f = rf.RandomFeatures(40, gamma=GAMMA, phases="paired", random_state=1).fit(X)
    np.testing.assert_allclose(np.linalg.norm(f.transform(X), axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("projection", ["gaussian", "fast"])
def test_projected_products_are_unbiased(projection: str) -> None:
    """Over projections of the same features the products average to the features' own."""
    some = X[:20]
    seeds = range(60)
    drawn = []
    for seed in seeds:
        f = rf.JLFeatures(
            16, n_candidates=64, gamma=GAMMA, projection=projection, random_state=seed
        ).fit(X)
        plain = rf.RandomFeatures(64, gamma=GAMMA, random_state=seed).fit(X).transform(some)
        Z = f.transform(some)
        drawn.append((Z @ Z.T - plain @ plain.T).mean())
    assert abs(np.mean(drawn)) < 3 * np.std(drawn) / np.sqrt(len(drawn))
    assert np.std(drawn) > 0


@pytest.mark.parametrize("projection", ["gaussian", "fast"])
def test_projection_keeps_more_with_more_columns(projection: str) -> None:
    def error(n: int) -> float:
        f = rf.JLFeatures(n, n_candidates=2000, gamma=GAMMA, projection=projection, random_state=0)
        return rf.kernel_error(f.fit(X), X)

    assert error(1600) < 0.6 * error(100)


def test_nystroem_is_the_nystroem_formula() -> None:
    f = rf.NystroemFeatures(50, gamma=GAMMA, random_state=0).fit(X)
    L = f.landmarks_
    np.testing.assert_array_equal(L, X[f.landmark_rows_])
    C = rbf_kernel(X, L, gamma=GAMMA)
    expected = C @ np.linalg.solve(rbf_kernel(L, gamma=GAMMA) + 1e-12 * np.eye(50), C.T)
    Z = f.transform(X)
    np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-6)


def test_nystroem_is_as_good_as_scikit_learns() -> None:
    ours, theirs = [], []
    for seed in range(5):
        f = rf.NystroemFeatures(60, gamma=GAMMA, random_state=seed).fit(X)
        ours.append(rf.kernel_error(f, X))
        Z = Nystroem(gamma=GAMMA, n_components=60, random_state=seed).fit_transform(X)
        theirs.append(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.1)


def test_nystroem_with_all_rows_is_exact() -> None:
    for landmarks in ("uniform", "rpcholesky"):
        f = rf.NystroemFeatures(300, gamma=1.0, landmarks=landmarks, random_state=0).fit(X)
        assert rf.kernel_error(f, X) < 1e-6


def test_rpcholesky_finds_small_far_clusters() -> None:
    """Uniform landmarks miss a cluster of one row in a hundred; the pivots do not."""
    far = np.concatenate([X, 300 + 300 * np.eye(6)[:3]])
    errors = {}
    for landmarks in ("uniform", "rpcholesky"):
        f = rf.NystroemFeatures(40, gamma=0.005, landmarks=landmarks, random_state=3).fit(far)
        Z = f.transform(far[-3:])
        errors[landmarks] = np.abs((Z**2).sum(axis=1) - 1).max()
    assert errors["rpcholesky"] < 1e-6 < 0.5 < errors["uniform"]


def test_rpcholesky_takes_each_row_once() -> None:
    f = rf.NystroemFeatures(80, gamma=GAMMA, landmarks="rpcholesky", random_state=0).fit(X)
    assert len(np.unique(f.landmark_rows_)) == len(f.landmark_rows_) == 80


@pytest.mark.parametrize("landmarks", ["uniform", "rpcholesky"])
def test_nystroem_in_float32_does_not_blow_up_its_rounding(landmarks: str) -> None:
    # A wide kernel: most eigenvalues of the landmarks are far below what float32 can tell.
    X = np.random.default_rng(0).normal(size=(1500, 5)).astype(np.float32)
    for size in (20, 150):
        made = rf.NystroemFeatures(size, landmarks=landmarks, gamma=1e-3, random_state=0)
        features = made.fit(X)
        assert features.transform(X).dtype == np.float32
        assert features.transform(X).shape[1] == size
        assert rf.kernel_error(features, X, random_state=0) < 1e-4
    both = made.fit(X.astype(np.float64))
    assert rf.kernel_error(both, X.astype(np.float64), random_state=0) < 1e-8
    assert both.transform(X).dtype == np.float32
    assert rf.kernel_error(both, X, random_state=0) < 1e-6


@pytest.mark.parametrize("landmarks", ["uniform", "rpcholesky"])
def test_nystroem_says_that_fewer_features_come_out(landmarks: str) -> None:
    few = np.repeat(np.eye(6), 1 if landmarks == "uniform" else 10, axis=0)
    made = rf.NystroemFeatures(20, gamma=1.0, landmarks=landmarks, random_state=0)
    with pytest.warns(UserWarning, match="Only 6 of n_components=20 features come out of"):
        made.fit(few)
    assert made.transform(few).shape[1] == 6
