"""Each solver against its definition, written down plainly on the vectors themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

from rfcdask.selection import frank_wolfe, giga, pursuit, run_solver
from rfcdask.selection.columns import ColumnCache
from rfcdask.selection.objective import DenseGram
from rfcdask.selection.solvers import Giga
from tests.reference import feature_products, gram_form, oracle_problem


def plain_giga(R: np.ndarray, t: np.ndarray, iterations: int) -> np.ndarray:
    """Return GIGA's weights from its definition, on the vectors themselves.

    The atom whose direction on the sphere, seen from x, is closest to that of the target; then
    the best combination of x and that atom, which is the geodesic step with its best length.
    """
    norms = np.linalg.norm(R, axis=1)
    A, b = R / norms[:, None], t / np.linalg.norm(t)
    first = int(np.argmax(A @ b))
    w = np.zeros(len(R))
    w[first] = (R[first] @ t) / norms[first] ** 2
    for _ in range(iterations - 1):
        x = w @ R
        along = x / np.linalg.norm(x)
        towards = b - (b @ along) * along
        directions = A - np.outer(A @ along, along)
        lengths = np.linalg.norm(directions, axis=1)
        scores = directions @ (towards / np.linalg.norm(towards)) / np.maximum(lengths, 1e-300)
        scores[lengths < 1e-6] = -np.inf
        atom = int(np.argmax(scores))
        keep, add = np.linalg.lstsq(np.stack([x, R[atom]], axis=1), t, rcond=None)[0]
        w *= keep
        w[atom] += add
    return w


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("target", ["sum", "other"])
def test_giga_equals_its_definition(seed: int, target: str) -> None:
    R = feature_products(seed, 80, 500)
    t = R.sum(axis=0)
    if target == "other":
        t = t + 0.05 * np.random.default_rng(seed).normal(size=500)
    for iterations in (1, 2, 3, 10, 40):
        found = giga(*gram_form(R, t), 80, max_iterations=iterations)
        expected = plain_giga(R, t, iterations)
        assert found.iterations == iterations
        np.testing.assert_allclose(found.weights, expected, rtol=1e-8, atol=1e-8 * expected.max())
        residual = np.linalg.norm(t - expected @ R) / np.linalg.norm(t)
        assert found.errors[-1] == pytest.approx(residual, rel=1e-6)


@pytest.mark.parametrize("solver", [giga, frank_wolfe])
def test_an_independent_solver_agrees(solver: Any, shared_data: Path) -> None:
    file = shared_data / "oracle" / "coreset_solvers.npz"
    if not file.exists():
        pytest.skip("no stored answers beside the checkout")
    with np.load(file) as stored:
        answers = dict(stored)
    R, t = oracle_problem(answers)
    G, c, norm2 = gram_form(R, t)
    for k, expected in zip(
        answers["iterations"], answers[f"{solver.__name__}_weights"], strict=True
    ):
        found = solver(G, c, norm2, len(c), max_iterations=int(k)).weights
        assert np.linalg.norm(found - expected) <= 1e-8 * np.linalg.norm(expected)
        np.testing.assert_array_equal(np.flatnonzero(found), np.flatnonzero(expected))


def test_error_of_giga_never_rises() -> None:
    R = feature_products(3, 150, 600)
    path = giga(*gram_form(R, R.sum(axis=0)), 60)
    assert (np.diff(path.errors) < 0).all()
    assert path.errors[-1] < 0.4 * path.errors[0]


def test_a_target_along_one_atom_is_reached_at_once() -> None:
    R = feature_products(4, 30, 200)
    path = giga(*gram_form(R, 2.5 * R[11]), 5)
    np.testing.assert_array_equal(np.flatnonzero(path.weights), [11])
    assert path.weights[11] == pytest.approx(2.5)
    assert not path.complete
    assert path.errors[-1] == pytest.approx(0, abs=1e-7)


def test_a_target_that_points_away_from_all_atoms_gets_none() -> None:
    R = np.abs(feature_products(5, 10, 50))
    path = giga(*gram_form(R, -R.sum(axis=0)), 3)
    assert path.states == []
    assert not path.complete
    assert not path.weights.any()
    assert repr(path) == "Path(0 of 10 candidates)"


def plain_frank_wolfe(R: np.ndarray, t: np.ndarray, iterations: int) -> np.ndarray:
    """Return Frank-Wolfe's weights from its definition, on the vectors themselves."""
    norms = np.linalg.norm(R, axis=1)
    sigma = norms.sum()
    w = np.zeros(len(R))
    for k in range(iterations):
        x = w @ R
        atom = int(np.argmax(R @ (t - x) / norms))
        vertex = np.zeros(len(R))
        vertex[atom] = sigma / norms[atom]
        step = vertex @ R - x
        share = 1.0 if k == 0 else np.clip(step @ (t - x) / (step @ step), 0, 1)
        w = (1 - share) * w + share * vertex
    return w


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_frank_wolfe_equals_its_definition(seed: int) -> None:
    R = feature_products(seed, 80, 500)
    t = R.sum(axis=0)
    norms = np.linalg.norm(R, axis=1)
    for iterations in (1, 2, 3, 10, 60):
        found = frank_wolfe(*gram_form(R, t), 80, max_iterations=iterations)
        expected = plain_frank_wolfe(R, t, iterations)
        np.testing.assert_allclose(found.weights, expected, rtol=1e-8, atol=1e-8 * expected.max())
        assert found.weights @ norms == pytest.approx(norms.sum())  # on the polytope's face
        residual = np.linalg.norm(t - expected @ R) / np.linalg.norm(t)
        assert found.errors[-1] == pytest.approx(residual, rel=1e-6)


def test_frank_wolfe_stays_on_the_polytope() -> None:
    R = feature_products(3, 150, 600)
    path = frank_wolfe(*gram_form(R, R.sum(axis=0)), 60)
    assert (np.diff(path.errors) < 0).all()
    norms = np.linalg.norm(R, axis=1)
    for state in path.states:
        assert state.weights @ norms[state.atoms] == pytest.approx(norms.sum())


def test_polytope_without_candidates_of_no_length() -> None:
    R = feature_products(4, 20, 200)
    R[[2, 9]] = 0
    path = frank_wolfe(*gram_form(R, R.sum(axis=0)), 8)
    norms = np.linalg.norm(R, axis=1)
    assert path.weights @ norms == pytest.approx(norms.sum())
    assert not path.weights[[2, 9]].any()


def plain_pursuit(R: np.ndarray, t: np.ndarray, size: int) -> list[int]:
    """Return the atoms of non-negative matching pursuit, refitted by scipy, while none leaves."""
    norms = np.linalg.norm(R, axis=1)
    atoms: list[int] = []
    residual = t
    for _ in range(size):
        scores = R @ residual / norms
        scores[atoms] = -np.inf
        atoms.append(int(np.argmax(scores)))
        w, _ = nnls(R[atoms].T, t)
        atoms = [atom for atom, weight in zip(atoms, w, strict=True) if weight > 0]
        residual = t - w[w > 0] @ R[atoms]
    return atoms


@pytest.mark.parametrize("seed", range(4))
def test_pursuit_picks_what_its_definition_picks(seed: int) -> None:
    R = feature_products(seed, 100, 400)
    t = R.sum(axis=0)
    path = pursuit(*gram_form(R, t), 25, max_iterations=25)
    expected = plain_pursuit(R, t, 25)
    assert path.states[-1].atoms.tolist() == expected
    w, residual = nnls(R[expected].T, t)
    np.testing.assert_allclose(path.weights[expected], w, rtol=1e-3)
    assert path.errors[-1] == pytest.approx(residual / np.linalg.norm(t), rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_pursuit_is_not_worse_than_refitted_giga(seed: int) -> None:
    R = feature_products(seed, 300, 1000)
    G, c, norm2 = gram_form(R, R.sum(axis=0))
    ours = pursuit(G, c, norm2, 40)
    theirs = run_solver(Giga(ColumnCache(DenseGram(G)), c, norm2), 40, refit=True)
    assert len(ours.states[-1].atoms) == len(theirs.states[-1].atoms) == 40
    assert ours.errors[-1] < 1.03 * theirs.errors[-1]


def test_pursuit_lowers_the_error_with_positive_weights() -> None:
    R = feature_products(7, 200, 500)
    path = pursuit(*gram_form(R, R.sum(axis=0)), 80)
    assert path.sizes[-1] == 80
    assert (np.diff(path.errors) <= 0).all()
    for state in path.states:
        assert (state.weights > 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_sparse_target_is_found_and_the_floor_told(seed: int) -> None:
    rng = np.random.default_rng(seed)
    R = feature_products(seed, 60, 400)
    atoms = rng.choice(60, 4, replace=False)
    t = rng.uniform(1, 2, 4) @ R[atoms]
    path = pursuit(*gram_form(R, t), 30)
    assert path.errors[-1] < 1e-3
    last = path.states[-1]
    direct = np.linalg.norm(t - last.weights @ R[last.atoms]) / np.linalg.norm(t)
    # A weight of the solver that the state does not know of would show here.
    assert direct < 1e-3
