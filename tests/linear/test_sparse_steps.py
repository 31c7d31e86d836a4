"""Training on wide CSR rows: the steps of the formula, and the accuracy of scikit-learn's SGD."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import SGDClassifier, SGDRegressor

import rfcdask as rf
from rfcdask.linear.sgd.losses import SQUARED, Targets
from rfcdask.linear.sgd.optimizer import (
    AVERAGE_POWER,
    StepParameters,
    fit_diagonal,
    run_sparse_steps,
)
from rfcdask.linear.sgd.step import take_rows
from tests.linear_data import text_like


def lazy(X, rows: int = 500):
    return da.from_array(X, chunks=(rows, -1), asarray=False)


def test_steps_are_those_of_the_formula():
    draw = np.random.default_rng(0)
    X = sparse.random(70, 40, 0.2, format="csr", random_state=draw, dtype=np.float64)
    y = draw.normal(size=(70, 2))
    weights = draw.random(70).astype(np.float32)
    P = fit_diagonal(X, weights, True)
    params = StepParameters(SQUARED, 0.1, 2, np.full(2, 0.01), 0.5, 20.0, 16, 0.0, 1.0)
    W, mean = np.zeros((41, 2)), np.zeros((41, 2))
    targets = Targets(np.zeros(0, np.int64), y, weights)
    step, bad, _ = run_sparse_steps(X.astype(np.float32), targets, W, mean, 0, params, P)
    assert (step, bad) == (5, -1)
    rows = np.hstack([X.toarray(), np.ones((70, 1))])
    w, average = np.zeros((41, 2)), np.zeros((41, 2))
    for t, start in enumerate(range(0, 70, 16)):
        Z, d = rows[start : start + 16], y[start : start + 16]
        slopes = (Z @ w - d) * weights[start : start + 16, None]
        gradient = Z.T @ slopes / len(Z) + 0.01 * np.vstack([w[:-1], np.zeros((1, 2))])
        w -= 0.5 * (1 - t / 20) * len(Z) / 16 * P.diagonal * gradient
        average += (AVERAGE_POWER + 1) / (t + 1 + AVERAGE_POWER) * (w - average)
    np.testing.assert_allclose(W, w, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mean, average, rtol=1e-4, atol=1e-6)


def test_largest_eigenvalue_becomes_one():
    draw = np.random.default_rng(1)
    X = sparse.random(300, 50, 0.3, format="csr", random_state=draw)
    weights = draw.random(300)
    P = fit_diagonal(X, weights, True)
    rows = np.hstack([X.toarray(), np.ones((300, 1))]) * np.sqrt(weights)[:, None]
    rows *= np.sqrt(P.diagonal[:, 0])
    assert np.linalg.eigvalsh(rows.T @ rows / 300)[-1] == pytest.approx(1, rel=1e-3)
    assert P.spread == pytest.approx(np.square(rows).sum() / 300, rel=1e-5)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_as_accurate_as_scikit_learn(n_classes):
    X, y = text_like(4000, 20_000, n_classes, seed=0)
    train, test = slice(0, 3000), slice(3000, None)
    model = rf.SGDClassifier(epochs=5, random_state=0).fit(lazy(X[train]), y[train])
    theirs = SGDClassifier(random_state=0).fit(X[train], y[train]).score(X[test], y[test])
    ours = model.score(lazy(X[test]), y[test])
    assert ours >= theirs - 0.01
    predicted = model.predict(lazy(X[test])).compute()
    assert np.mean(predicted == y[test]) == pytest.approx(ours)


def test_numbers_are_predicted():
    X, _ = text_like(3000, 5000, 2, seed=1)
    target = X @ np.random.default_rng(0).normal(size=5000)
    model = rf.SGDRegressor(epochs=20, random_state=0).fit(lazy(X[:2500]), target[:2500])
    theirs = SGDRegressor(random_state=0, max_iter=20, tol=None).fit(X[:2500], target[:2500])
    ours = model.score(lazy(X[2500:]), target[2500:])
    assert ours >= theirs.score(X[2500:], target[2500:]) - 0.01


def test_stores_stop_and_go_on(tmp_path: Path):
    """Rows of a store, held-out rows for early stopping, and the same model from a checkpoint."""
    X, y = text_like(2000, 3000, 2, seed=2)
    stored = rf.ingest((X, y), tmp_path / "a.zarr", sparse=True, block_size="100kB")
    options = {"epochs": 4, "random_state": 0, "early_stopping": True, "persist": False}
    model = rf.SGDClassifier(**options).fit(stored.X, stored.y)
    again = rf.SGDClassifier(checkpoint=tmp_path / "c", **options).fit(stored.X, stored.y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert "held_out_loss" in model.history_[0]
    assert model.score(stored.X, stored.y) > 0.9


def test_bad_values_are_named():
    X, y = text_like(1500, 2000, 2, seed=3)
    X.data[X.indptr[1203]] = np.inf
    column = X.indices[X.indptr[1203]]
    with pytest.raises(ValueError, match=rf"row 1203 of X, column {column}\)|column {column}"):
        rf.SGDClassifier(epochs=1, random_state=0).fit(lazy(X), y)


@pytest.mark.parametrize("sizes", [(7,), (7, 3, 9), (4, 5)])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_rows_of_blocks_come_in_their_order(sizes: tuple[int, ...], make):
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(size, 5)).astype(np.float32) for size in sizes]
    which = rng.integers(0, len(sizes), 50).astype(np.int8)
    which[which == 1] = len(sizes) - 1  # of one block, no row
    rows = rng.integers(0, np.array(sizes)[which])
    found = take_rows([make(block) for block in blocks], which, rows)
    expected = np.array([blocks[k][row] for k, row in zip(which, rows, strict=True)])
    np.testing.assert_array_equal(found if make is np.asarray else found.toarray(), expected)
