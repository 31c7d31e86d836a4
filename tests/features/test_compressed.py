"""Compression: what it returns, and that each of its steps does what it promises."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import rbf_kernel

import rfcdask as rf
from rfcdask.selection import columns as columns_module
from rfcdask.selection.columns import ColumnCache, SharedCandidates
from rfcdask.selection.objective import AllPairs, DenseGram, SampledPairs

rng = np.random.default_rng(42)
CENTRES = rng.normal(scale=2, size=(12, 10))
y = rng.integers(0, 12, 4000)
X = (CENTRES[y] + rng.normal(size=(4000, 10))).astype(np.float32)
GAMMA = 0.03


def fit(**settings: object) -> rf.CompressedFeatures:
    defaults = {"n_components": 60, "n_candidates": 800, "n_rows": 1000, "gamma": GAMMA}
    defaults |= {"random_state": 0, "refine": 0}
    return rf.CompressedFeatures(**(defaults | settings)).fit(X)


def error(features: object) -> float:
    return rf.kernel_error(features, X, n_points=1500, random_state=9)


def test_features_are_the_documented_formula() -> None:
    for settings in ({}, {"refine": 20}, {"n_pairs": 3000, "target": "candidates"}):
        f = fit(**settings)
        Z = np.sqrt(2 * f.weights_ / 800) * np.cos(X @ f.frequencies_ + f.phases_)
        np.testing.assert_allclose(f.transform(X), Z, atol=2e-5)


def test_paired_features_are_cosines_then_sines() -> None:
    f = fit(phases="paired", refine=20)
    assert f.frequencies_.shape == (10, 30)
    scale = np.sqrt(f.weights_ / 400)
    angles = X @ f.frequencies_ + f.phases_
    Z = np.hstack([scale * np.cos(angles), scale * np.sin(angles)])
    np.testing.assert_allclose(f.transform(X), Z, atol=2e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"solver": "frank-wolfe"},
        {"label_weight": 5.0, "n_candidates": 60},
        {"phases": "paired"},
    ],
)
def test_one_selection_gives_every_size(changes: dict[str, object]) -> None:
    settings = {"n_candidates": 200, "n_rows": 200, "refine": 5, "random_state": 0} | changes
    found = rf.CompressedFeatures(**settings).fit_sizes(X, y, sizes=(10, 40, 20))
    for size, (one, seconds) in zip((10, 40, 20), found, strict=True):
        alone = rf.CompressedFeatures(size, **settings).fit(X, y)
        assert one.get_params() == alone.get_params()
        for name in ("selected_", "weights_", "frequencies_", "phases_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(alone, name))
        assert one.heldout_error_ == alone.heldout_error_
        assert seconds > 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"solver": "frank-wolfe"}, {"solver": "giga"}),
        ({"n_pairs": None}, {"n_pairs": None, "label_weight": 0.3, "refine": 3}),
    ],
)
def test_selections_on_the_same_rows_share_columns(
    first: dict[str, object], second: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    for kind in (AllPairs, SampledPairs):
        for name in ("columns", "squared_norms"):
            monkeypatch.setattr(kind, name, counted(getattr(kind, name), asked))
    common = {"n_candidates": 300, "n_pairs": 2000, "n_rows": 200, "random_state": 0}

    def picked(settings: dict[str, object], shared: SharedCandidates | None) -> list[Any]:
        unfitted = rf.CompressedFeatures.paper(40, **(common | settings))
        maps = unfitted.fit_sizes(X, y, sizes=(15, 40), shared=shared)
        assert all(seconds > 0 for _, seconds in maps)
        return [(one.selected_.tolist(), one.weights_.tolist()) for one, _ in maps]

    shared = SharedCandidates()
    before = picked(first, shared), len(asked)
    together = picked(second, shared)
    more = len(asked) - before[1]
    assert (before[0], together) == (picked(first, None), picked(second, None))
    alone = len(asked) - before[1] - more - before[1]
    assert more < alone  # at the least the norms, which are asked for once
    other = picked(first, shared), picked(first | {"random_state": 1}, shared)
    assert other == (before[0], picked(first | {"random_state": 1}, None))


def test_columns_are_let_go_before_others_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[bool] = []
    monkeypatch.setattr(columns_module, "release_memory", lambda: given_back.append(True))
    shared, alive = SharedCandidates(), []

    def make() -> Any:
        assert given_back  # glibc would keep hundreds of MiB
        given_back.clear()
        alive.append([one() is not None for one in made])
        columns = ColumnCache(DenseGram(np.eye(3)))
        made.append(weakref.ref(columns))
        return columns

    made: list[Any] = []
    for rows in (np.zeros(2), np.zeros(2), np.ones(2)):
        shared.of((1.0, rows), make)
    assert alive == [[], [False]]
    shared.clear()
    assert [one() for one in made] == [None, None]


def counted(function: Any, asked: list[int]) -> Any:
    def counting(*args: Any) -> Any:
        asked.append(len(args))
        return function(*args)

    return counting


@pytest.mark.parametrize("solver", ["giga", "frank-wolfe", "pursuit"])
@pytest.mark.parametrize("refit", [True, False])
def test_exactly_j_distinct_features(solver: str, refit: bool) -> None:
    f = fit(solver=solver, refit=refit)
    assert len(np.unique(f.selected_)) == 60
    assert (f.weights_ > 0).all()
    assert f.transform(X).shape == (4000, 60)


def test_order_of_the_methods() -> None:
    """The paper beats plain features, the exact target with refit the paper, refinement that."""
    plain = error(rf.RandomFeatures(60, gamma=GAMMA, random_state=0).fit(X))
    paper = error(fit(n_pairs=20_000, target="candidates", refit=False))
    ours = error(fit())
    refined = error(fit(refine=150))
    assert paper < 0.75 * plain
    assert ours < 0.95 * paper
    assert refined < 0.7 * ours


@pytest.mark.parametrize("sampling", ["orthogonal", "halton", "sobol", "fastfood"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cauchy", "matern32"])
def test_every_draw_and_kernel_can_be_compressed(sampling: str, kernel: str) -> None:
    settings = {"kernel": kernel, "gamma": "median", "sampling": sampling, "refine": 20}
    compressed = fit(**settings)
    plain = rf.RandomFeatures(60, kernel=kernel, gamma="median", random_state=0).fit(X)
    assert error(compressed) < 0.9 * error(plain)


def test_refit_lowers_the_error_on_the_sampled_pairs() -> None:
    assert fit(refit=True).error_path_.sampled[-1] < fit(refit=False).error_path_.sampled[-1]


def test_error_path_is_what_smaller_maps_have() -> None:
    path = fit().error_path_
    np.testing.assert_array_equal(path.sizes, np.arange(1, 61))
    assert (np.diff(path.sampled) <= 1e-6).all()
    small = fit(n_components=20)
    assert path.sampled[19] == pytest.approx(small.error_path_.sampled[-1], rel=1e-6)
    assert path.heldout[19] == pytest.approx(small.heldout_error_, rel=1e-6)


def test_heldout_error_is_that_of_unseen_rows() -> None:
    f = fit(refine=50)
    fresh = X[rng.permutation(4000)[:1500]]
    K = rbf_kernel(fresh.astype(np.float64), gamma=GAMMA)
    Z = f.transform(fresh)
    E = Z @ Z.T - K
    np.fill_diagonal(E, 0)
    np.fill_diagonal(K, 0)
    assert np.linalg.norm(E) / np.linalg.norm(K) == pytest.approx(f.heldout_error_, rel=0.1)


def test_tol_keeps_the_first_size_that_is_good_enough() -> None:
    path = fit().error_path_
    tol = float(path.heldout[29])
    f = fit(tol=tol)
    first = int(path.sizes[np.argmax(path.heldout <= tol)])
    assert f.transform(X[:2]).shape == (2, first)
    assert f.heldout_error_ <= tol


def test_refinement_never_returns_worse() -> None:
    for seed in range(4):
        f = fit(refine=15, random_state=seed, n_rows=60, n_components=20)
        before = fit(refine=0, random_state=seed, n_rows=60, n_components=20)
        assert f.heldout_error_ <= before.heldout_error_ + 1e-6
        assert f.refine_path_ is not None
        assert f.heldout_error_ == pytest.approx(min(f.refine_path_.heldout), rel=1e-5)


def test_far_from_the_origin_in_float64() -> None:
    """Timestamps, say: a large offset must not drown the features in rounding."""
    near = fit(refine=30)
    defaults = {"n_candidates": 800, "n_rows": 1000, "gamma": GAMMA, "random_state": 0}
    far = rf.CompressedFeatures(60, refine=30, **defaults).fit(X.astype(np.float64) + 1e6)
    moved = rf.kernel_error(far, X.astype(np.float64) + 1e6, n_points=1500, random_state=9)
    assert moved < 1.15 * error(near)


def test_labels_help_a_linear_model() -> None:
    half = np.arange(4000) < 2000
    scores = {}
    y = X[:, 0] * X[:, 1] > 0  # two of ten columns matter, which the kernel cannot know
    for weight in (0.0, 1.0):
        f = rf.CompressedFeatures(
            15, gamma=GAMMA, n_candidates=800, label_weight=weight, refine=100, random_state=0
        ).fit(X[half], y[half])
        model = RidgeClassifier(alpha=1e-2).fit(f.transform(X[half]), y[half])
        scores[weight] = model.score(f.transform(X[~half]), y[~half])
    assert scores[1.0] > scores[0.0] + 0.1


def test_regression_targets_are_labels_too() -> None:
    target = np.sin(X[:, 0]) + X[:, 1] ** 2
    f = rf.CompressedFeatures(30, gamma=GAMMA, n_candidates=300, label_weight=1.0, refine=5)
    assert f.fit(X, target).transform(X[:3]).shape == (3, 30)


def test_paper_by_name_is_the_papers_setting() -> None:
    f = rf.CompressedFeatures.paper(70, solver="frank-wolfe", gamma=0.1)
    chosen = {"n_pairs": 20_000, "target": "candidates", "refit": False, "refine": 0}
    assert {name: f.get_params()[name] for name in chosen} == chosen
    assert (f.n_components, f.solver, f.gamma) == (70, "frank-wolfe", 0.1)


def test_a_small_memory_budget_gives_the_same_selection() -> None:
    import dask

    for settings in ({}, {"n_pairs": 3000, "target": "candidates"}):
        whole = fit(**settings)
        with dask.config.set({"rfcdask.selection-memory": "100kB"}):
            tiled = fit(**settings)
        np.testing.assert_array_equal(tiled.selected_, whole.selected_)


def test_fewer_features_with_a_warning_at_the_numeric_floor() -> None:
    few = np.random.default_rng(1).normal(size=(8, 3))
    features = rf.CompressedFeatures(500, refine=0, random_state=0)
    with pytest.warns(UserWarning, match="features would not lower it"):
        features.fit(few)
    assert 1 <= features.transform(few).shape[1] < 500


def test_labels_get_all_the_features_asked_for() -> None:
    """Labels no features reach: non-negative weights stop helping early, refinement does not."""
    noise = np.random.default_rng(2).integers(0, 2, 4000)
    settings = {"n_candidates": 400, "n_rows": 300, "gamma": GAMMA, "label_weight": 20.0}
    f = rf.CompressedFeatures(200, refine=5, random_state=0, **settings).fit(X, noise)
    assert len(np.unique(f.selected_)) == 200
    assert f.error_path_.sizes[-1] == 200
    assert f.error_path_.sizes[-2] < 199  # the last ones were filled up
    assert f.error_path_.heldout[-1] == pytest.approx(f.error_path_.heldout[-2], rel=1e-3)
