from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rfcdask.selection import frank_wolfe
from tests.reference import feature_products, gram_form, oracle_problem


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
def test_equals_its_definition_on_the_vectors(seed: int) -> None:
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


def test_reproduces_an_independent_solver(shared_data: Path) -> None:
    file = shared_data / "oracle" / "coreset_solvers.npz"
    if not file.exists():
        pytest.skip("no stored answers beside the checkout")
    with np.load(file) as stored:
        answers = dict(stored)
    R, t = oracle_problem(answers)
    G, c, norm2 = gram_form(R, t)
    for k, expected in zip(answers["iterations"], answers["frank_wolfe_weights"], strict=True):
        found = frank_wolfe(G, c, norm2, len(c), max_iterations=int(k)).weights
        assert np.linalg.norm(found - expected) <= 1e-8 * np.linalg.norm(expected)
        np.testing.assert_array_equal(np.flatnonzero(found), np.flatnonzero(expected))


def test_error_falls_and_weights_stay_on_the_polytope() -> None:
    R = feature_products(3, 150, 600)
    path = frank_wolfe(*gram_form(R, R.sum(axis=0)), 60)
    assert (np.diff(path.errors) < 0).all()
    norms = np.linalg.norm(R, axis=1)
    for state in path.states:
        assert state.weights @ norms[state.atoms] == pytest.approx(norms.sum())


def test_candidates_without_length_do_not_count_for_the_polytope() -> None:
    R = feature_products(4, 20, 200)
    R[[2, 9]] = 0
    path = frank_wolfe(*gram_form(R, R.sum(axis=0)), 8)
    norms = np.linalg.norm(R, axis=1)
    assert path.weights @ norms == pytest.approx(norms.sum())
    assert not path.weights[[2, 9]].any()
