from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rfcdask.selection import giga
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
def test_equals_its_definition_on_the_vectors(seed: int, target: str) -> None:
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


def test_reproduces_an_independent_solver(shared_data: Path) -> None:
    file = shared_data / "oracle" / "coreset_solvers.npz"
    if not file.exists():
        pytest.skip("no stored answers beside the checkout")
    with np.load(file) as stored:
        answers = dict(stored)
    R, t = oracle_problem(answers)
    G, c, norm2 = gram_form(R, t)
    for k, expected in zip(answers["iterations"], answers["giga_weights"], strict=True):
        found = giga(G, c, norm2, len(c), max_iterations=int(k)).weights
        assert np.linalg.norm(found - expected) <= 1e-8 * np.linalg.norm(expected)
        np.testing.assert_array_equal(np.flatnonzero(found), np.flatnonzero(expected))


def test_error_never_rises() -> None:
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
