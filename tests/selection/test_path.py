from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import rfcdask.selection as path
from rfcdask.kernels import get_kernel
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.selection import Path, columns, frank_wolfe, giga, pursuit, run_solver
from rfcdask.selection.candidates import Candidates, RowTarget
from rfcdask.selection.columns import ColumnCache
from rfcdask.selection.objective import AllPairs, DenseGram, gram
from rfcdask.selection.solvers import SOLVERS, check_solver
from tests.reference import feature_products, gram_form

FUNCTIONS = {"giga": giga, "frank-wolfe": frank_wolfe, "pursuit": pursuit}
Solve = Callable[..., Path]


def solved(name: str, R: np.ndarray, t: np.ndarray, size: int, refit: bool) -> Path:
    G, c, norm2 = gram_form(R, t)
    return run_solver(SOLVERS[name](ColumnCache(DenseGram(G)), c, norm2), size, refit=refit)


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("name", SOLVERS)
def test_exactly_as_many_distinct_features_as_asked_for(name: str, refit: bool) -> None:
    R = feature_products(0, 200, 800)
    found = solved(name, R, R.sum(axis=0), 70, refit)
    assert found.complete
    last = found.states[-1]
    assert len(np.unique(last.atoms)) == len(last.atoms) == 70
    assert (last.weights > 0).all()
    assert np.count_nonzero(found.weights) == 70
    np.testing.assert_array_equal(found.weights[last.atoms], last.weights)
    assert "70 of 200 candidates, error 0." in repr(found)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(SOLVERS)),
    refit=st.booleans(),
    noise=st.sampled_from([0.1, 1.0]),
    seed=st.integers(0, 10**6),
    n_atoms=st.integers(2, 60),
    n_pairs=st.integers(5, 200),
    share=st.floats(0.05, 1),
)
def test_every_state_tells_its_true_error_and_errors_fall(
    name: str, refit: bool, noise: float, seed: int, n_atoms: int, n_pairs: int, share: float
) -> None:
    R = feature_products(seed, n_atoms, n_pairs)
    t = R.sum(axis=0) + noise / np.sqrt(n_atoms) * np.random.default_rng(seed).normal(size=n_pairs)
    found = solved(name, R, t, max(1, int(share * n_atoms)), refit)
    assert (np.diff(found.sizes) > 0).all()
    for state in found.states:
        assert len(np.unique(state.atoms)) == len(state.atoms)
        direct = np.linalg.norm(t - state.weights @ R[state.atoms]) / np.linalg.norm(t)
        assert state.error**2 == pytest.approx(direct**2, rel=1e-7, abs=1e-9)
    # Refitted weights are the best but for a ridge of one in a million.
    assert (np.diff(found.errors**2) <= 2e-6).all()


@pytest.mark.parametrize("solve", FUNCTIONS.values())
def test_ties_go_to_the_lowest_index(solve: Solve) -> None:
    R = feature_products(1, 40, 300)
    R = np.concatenate([R, R])
    G, c, norm2 = gram_form(R, R.sum(axis=0))
    # Products of equal rows may differ in their last bits; make them the same numbers.
    G, c = np.tile(G[:40, :40], (2, 2)), np.tile(c[:40], 2)
    found = solve(G, c, norm2, 15)
    assert (found.states[-1].atoms < 40).all()


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("name", SOLVERS)
def test_candidates_without_length_are_never_picked(name: str, refit: bool) -> None:
    R = feature_products(2, 30, 300)
    R[[0, 5, 29]] = 0
    R[7] *= 1e-9
    found = solved(name, R, R.sum(axis=0), 30, refit)
    assert not found.weights[[0, 5, 7, 29]].any()
    assert np.isfinite(found.weights).all()
    assert not found.complete


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("name", SOLVERS)
def test_fewer_features_at_the_numeric_floor(name: str, refit: bool) -> None:
    R = feature_products(3, 50, 400)
    found = solved(name, R, 3.0 * R[8], 20, refit)
    if name == "frank-wolfe":  # its weights have a length of their own, so it cannot stop there
        return
    assert not found.complete
    assert found.sizes.tolist() == [1]
    assert found.errors[0] == pytest.approx(0, abs=2e-3)


def all_pairs(
    budget: int, m: int = 300, p: int = 5, n: int = 1200
) -> tuple[AllPairs, np.ndarray, float]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(m, p)).astype(np.float32)
    W, b = 0.6 * rng.normal(size=(p, n)), rng.uniform(0, 7, n)
    dtype = np.dtype(np.float32)
    block = CosineBlock.make(W, b, np.full(n, np.sqrt(2 / n)), dtype)
    objective = AllPairs(Candidates(block, X, dtype, budget))
    target = RowTarget(X, get_kernel("rbf"), 0.18, dtype=dtype, budget=2**30)
    return objective, *objective.correlations(target)


@pytest.mark.parametrize("solve", FUNCTIONS.values())
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_columns_on_demand_give_the_same_selection(
    solve: Solve, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, c, norm2 = all_pairs(2**30)
    whole = solve(gram(objective), c, norm2, 60)
    monkeypatch.setattr(columns, "BATCH", batch)
    monkeypatch.setattr(columns, "MIN_FORECAST_WORK", 0)
    again, c, norm2 = all_pairs(0)
    demanded = solve(again, c, norm2, 60)
    np.testing.assert_array_equal(demanded.states[-1].atoms, whole.states[-1].atoms)
    np.testing.assert_allclose(demanded.weights, whole.weights, rtol=1e-4)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_forecast_halves_what_is_fetched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, chosen = [], []
    for worth in (columns.MIN_FORECAST_WORK, math.inf):
        monkeypatch.setattr(columns, "MIN_FORECAST_WORK", worth)
        objective, c, norm2 = all_pairs(2**30, m=1000, p=10, n=2000)
        asked: list[int] = []
        fetch = objective.columns
        monkeypatch.setattr(
            objective, "columns", lambda atoms, a=asked, f=fetch: a.extend(atoms) or f(atoms)
        )
        found = run_solver(SOLVERS[name](ColumnCache(objective), c, norm2), 150, refit=False)
        assert len(asked) == len(set(asked))
        fetched.append(len(asked))
        chosen.append(found.states[-1].atoms)
    np.testing.assert_array_equal(*chosen)
    assert fetched[0] < 0.6 * fetched[1]


@pytest.mark.parametrize("name", SOLVERS)
def test_many_candidates_do_not_depend_on_blas_threads(name: str) -> None:
    # BLAS cuts the sums of long vectors by the number of its threads.
    rng = np.random.default_rng(5)
    A = rng.normal(size=(25_000, 30))

    class Products:
        n_atoms, n_terms, dtype = A.shape[0], A.shape[1], A.dtype

        def squared_norms(self) -> np.ndarray:
            return np.einsum("ij,ij->i", A, A)

        def columns(self, atoms: np.ndarray) -> np.ndarray:
            return np.einsum("ij,kj->ik", A, A[atoms])

        def values(self, atoms: np.ndarray) -> np.ndarray:
            return A[atoms]

        def approximate_gram(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
            return np.einsum("ij,kj->ik", A, B)

    t = np.einsum("ij,i->j", A, rng.random(len(A)))
    c = np.einsum("ij,j->i", A, t)
    norm2 = float(np.einsum("i,i->", t, t))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            solver = SOLVERS[name](ColumnCache(Products()), c, norm2)
            found.append(run_solver(solver, 12, refit=True))
    one, two = found
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.errors, two.errors)


@pytest.mark.parametrize("name", SOLVERS)
def test_the_last_state_is_where_the_solver_stopped(name: str) -> None:
    """Atoms may leave, so the last state need not be the largest that was seen."""
    shrunk = 0
    for seed in range(25):
        R = feature_products(seed, 50, 30)
        t = R.sum(axis=0) + 0.1 * np.random.default_rng(seed).normal(size=30)
        G, c, norm2 = gram_form(R, t)
        seen = [
            state
            for state in path._states(SOLVERS[name](ColumnCache(DenseGram(G)), c, norm2), 60, True)
            if state is not None
        ]
        shrunk += any(len(b.atoms) < len(a.atoms) for a, b in pairwise(seen))
        solver = SOLVERS[name](ColumnCache(DenseGram(G)), c, norm2)
        found = run_solver(solver, 50, refit=True, max_iterations=60)
        np.testing.assert_array_equal(found.states[-1].atoms, seen[-1].atoms)
        np.testing.assert_array_equal(found.states[-1].weights, seen[-1].weights)
    assert shrunk > 0


@pytest.mark.parametrize("name", SOLVERS)
def test_rounding_errors_are_cleared_when_no_step_helps(name: str) -> None:
    R = feature_products(12, 60, 300)
    G, c, norm2 = gram_form(R, R.sum(axis=0))
    solver = SOLVERS[name](ColumnCache(DenseGram(G)), c, norm2)
    for _ in range(5):
        solver.step()
    before = solver.error2
    q = 1.5 * c  # as if much had been added up wrong: no atom seems of any use
    if name == "giga":
        q = c * (solver.w @ G @ solver.w) / (solver.w @ c)
    solver._set_weights(solver.w, q)
    assert solver._try_step() is None
    assert solver.step() is not None
    np.testing.assert_allclose(solver.q, G @ solver.w, rtol=1e-9, atol=1e-12)
    assert solver.error2 < before


def test_a_larger_size_begins_as_a_smaller_one() -> None:
    R = feature_products(6, 120, 500)
    t = R.sum(axis=0)
    small, large = solved("giga", R, t, 20, refit=True), solved("giga", R, t, 50, refit=True)
    for mine, theirs in zip(small.states[:-1], large.states, strict=False):
        np.testing.assert_array_equal(mine.atoms, theirs.atoms)
        np.testing.assert_array_equal(mine.weights, theirs.weights)


def test_a_long_path_remembers_evenly_spaced_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path, "MAX_STATES", 10)
    R = feature_products(7, 100, 500)
    found = solved("giga", R, R.sum(axis=0), 35, refit=False)
    assert found.sizes.tolist() == [4, 8, 12, 16, 20, 24, 28, 32, 35]
    assert len(found.errors) == 9


@pytest.mark.parametrize("solve", FUNCTIONS.values())
def test_max_iterations_stops_earlier(solve: Solve) -> None:
    R = feature_products(8, 60, 300)
    found = solve(*gram_form(R, R.sum(axis=0)), 50, max_iterations=3)
    assert found.iterations == 3
    assert 1 <= found.sizes[-1] <= 3
    assert found.complete


@pytest.mark.parametrize("solve", FUNCTIONS.values())
def test_bad_arguments_are_refused(solve: Solve) -> None:
    R = feature_products(9, 6, 50)
    G, c, norm2 = gram_form(R, R.sum(axis=0))
    with pytest.raises(ValueError, match=r"n_components=0 must be at least 1"):
        solve(G, c, norm2, 0)
    with pytest.raises(ValueError, match=r"n_components=7 is more than the 6 candidates"):
        solve(G, c, norm2, 7)
    with pytest.raises(ValueError, match=r"c must have one entry for each of the 6 candidates"):
        solve(G, c[:5], norm2, 2)
    with pytest.raises(ValueError, match=r"G must be a square matrix"):
        solve(G[:, :5], c, norm2, 2)
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=r"target_norm2=.* must be above 0"):
            solve(G, c, bad, 2)


def test_unknown_solvers_are_refused_with_the_names() -> None:
    with pytest.raises(
        ValueError, match=r"Unknown solver 'lasso': choose one of giga, frank-wolfe"
    ):
        check_solver("lasso")
    check_solver("pursuit")
