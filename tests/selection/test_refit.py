from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from rfcdask.selection.solvers import GrowingNNLS
from tests.reference import feature_products, gram_form


def objective(R: np.ndarray, t: np.ndarray, w: np.ndarray) -> float:
    return float(np.sum((t - w @ R) ** 2))


def nonnegative_weights(G: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the w >= 0 that minimises ``w.G w - 2 c.w``, entering atoms in the given order.

    An atom that leaves and would be wanted again at the end enters again, until none does.
    """
    solver = GrowingNNLS(max(len(c), 1))
    norms = np.sqrt(np.maximum(np.diag(G), 1e-300))
    for atom in range(len(c)):
        solver.enter(atom, G[solver.atoms, atom], G[atom, atom], c[atom])
    for _ in range(3 * len(c)):
        w = np.zeros(len(c))
        w[solver.atoms] = solver.weights
        wanted = (c - G @ w) / norms
        wanted[solver.atoms] = 0
        atom = int(np.argmax(wanted))
        if wanted[atom] <= 1e-9 * float(np.max(np.abs(c) / norms)):
            break
        solver.enter(atom, G[solver.atoms, atom], G[atom, atom], c[atom])
    w = np.zeros(len(c))
    w[solver.atoms] = solver.weights
    return w


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_equals_scipy(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    R = feature_products(seed, 40, 500)
    R /= np.linalg.norm(R, axis=1, keepdims=True)
    t = R.sum(axis=0) + noise * rng.normal(size=500)
    G, c, _ = gram_form(R, t)
    expected, _ = nnls(R.T, t)
    found = nonnegative_weights(G, c)
    assert objective(R, t, found) <= objective(R, t, expected) * (1 + 1e-7) + 1e-9 * (t @ t)
    np.testing.assert_allclose(found, expected, atol=1e-4 * expected.max())
    if noise:
        assert (expected == 0).any()


def test_a_target_without_any_positive_correlation() -> None:
    np.testing.assert_array_equal(nonnegative_weights(np.eye(3), -np.ones(3)), np.zeros(3))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_atoms=st.integers(1, 25),
    dimension=st.integers(3, 60),
    capacity=st.integers(1, 8),
    skew=st.floats(0, 2),
)
def test_growing_keeps_the_best_weights_of_those_who_stayed(
    seed: int, n_atoms: int, dimension: int, capacity: int, skew: float
) -> None:
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(n_atoms, dimension)) + skew
    t = rng.normal(size=dimension) + skew
    G, c, norm2 = gram_form(R, t)
    solver = GrowingNNLS(capacity)
    best = norm2
    for atom in rng.permutation(n_atoms):
        kept = solver.enter(int(atom), G[solver.atoms, atom], G[atom, atom], c[atom])
        assert kept == (int(atom) in solver.atoms)
        assert len(set(solver.atoms)) == len(solver.atoms)
        w = solver.weights
        assert (w > 0).all()
        mine = G[np.ix_(solver.atoms, solver.atoms)]
        ridge = mine + solver.resolution * np.diag(np.diag(mine))
        # What stayed solves its own equations, and no step made the fit worse.
        scale = np.abs(ridge) @ w + np.abs(c[solver.atoms])
        if len(w) and np.linalg.cond(ridge) < 1e6:
            np.testing.assert_array_less(np.abs(ridge @ w - c[solver.atoms]), 1e-8 * scale + 1e-300)
        now = norm2 - 2 * w @ c[solver.atoms] + w @ ridge @ w
        assert now <= best * (1 + 1e-9) + 1e-9 * norm2
        best = now


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n_atoms=st.integers(1, 20), dimension=st.integers(25, 60))
def test_any_problem_meets_the_optimality_conditions(
    seed: int, n_atoms: int, dimension: int
) -> None:
    rng = np.random.default_rng(seed)
    R, t = rng.normal(size=(n_atoms, dimension)), rng.normal(size=dimension)
    G, c, norm2 = gram_form(R, t)
    w = nonnegative_weights(G, c)
    slope = c - G @ w
    scale = np.sqrt(np.diag(G) * norm2)
    assert (w >= 0).all()
    assert (slope <= 1e-5 * scale).all()
    assert (np.abs(slope[w > 0]) <= 1e-5 * scale[w > 0]).all()


def test_a_copy_of_an_atom_does_no_harm() -> None:
    R = feature_products(0, 10, 100)
    R[7] = R[2]
    t = R.sum(axis=0)
    G, c, _ = gram_form(R, t)
    w = nonnegative_weights(G, c)
    assert np.isfinite(w).all()
    expected, residual = nnls(R.T, t)
    assert np.sqrt(objective(R, t, w)) <= residual + 1e-5 * np.linalg.norm(t)
    assert w[2] + w[7] == pytest.approx(expected[2] + expected[7], rel=1e-3)
