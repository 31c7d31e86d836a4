from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from rfcdask.selection import pursuit
from rfcdask.selection.columns import ColumnCache, DenseGram
from rfcdask.selection.giga import Giga
from rfcdask.selection.path import follow
from tests.reference import feature_products, gram_form


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
def test_picks_what_its_definition_picks(seed: int) -> None:
    R = feature_products(seed, 100, 400)
    t = R.sum(axis=0)
    path = pursuit(*gram_form(R, t), 25, max_iterations=25)
    expected = plain_pursuit(R, t, 25)
    assert path.states[-1].atoms.tolist() == expected
    w, residual = nnls(R[expected].T, t)
    np.testing.assert_allclose(path.weights[expected], w, rtol=1e-3)
    assert path.errors[-1] == pytest.approx(residual / np.linalg.norm(t), rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_not_worse_than_giga_with_refit(seed: int) -> None:
    R = feature_products(seed, 300, 1000)
    G, c, norm2 = gram_form(R, R.sum(axis=0))
    ours = pursuit(G, c, norm2, 40)
    theirs = follow(Giga(ColumnCache(DenseGram(G)), c, norm2), 40, refit=True)
    assert len(ours.states[-1].atoms) == len(theirs.states[-1].atoms) == 40
    assert ours.errors[-1] < 1.03 * theirs.errors[-1]


def test_error_never_rises_and_weights_stay_positive() -> None:
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
