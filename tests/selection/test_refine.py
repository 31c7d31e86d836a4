from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rfcdask.kernels import get_kernel
from rfcdask.kernels import runtime as threads
from rfcdask.selection import refine as module
from rfcdask.selection.candidates import RowTarget
from rfcdask.selection.refine import (
    CentredCSR,
    FeatureParameters,
    RefineResult,
    RowsWithTarget,
    centred,
    heldout_error,
    refine,
)
from tests.reference import exact_kernel, random_csr

F32 = np.dtype(np.float32)
GAMMA = 0.15


def start(p: int, n: int, paired: bool, seed: int = 0) -> FeatureParameters:
    rng = np.random.default_rng(seed)
    W = np.sqrt(2 * GAMMA) * rng.normal(size=(p, n)) / (2 * np.pi)
    scales = np.sqrt((1 if paired else 2) / n) * rng.uniform(0.7, 1.3, n)
    phases = rng.uniform(-0.5, 0.5, n)
    return FeatureParameters(*(a.astype(np.float32) for a in (W, phases, scales)), paired)


def some_rows(
    m: int, p: int, seed: int, *, sparse: bool = False, labels: bool = False
) -> RowsWithTarget:
    rng = np.random.default_rng(seed)
    X = random_csr(rng, (m, p), "float32", density=0.7)
    X = X if sparse else X.toarray()
    y = 0.5 * rng.normal(size=(m, 2)) if labels else None
    target = RowTarget(X, get_kernel("rbf"), GAMMA, labels=y, dtype=F32, budget=2**28)
    origin = np.linspace(-0.4, 0.5, p, dtype=np.float32)
    return RowsWithTarget(CentredCSR(X, origin) if sparse else X, target)


def in_float64(X: np.ndarray | CentredCSR) -> np.ndarray:
    return (
        X.rows.toarray() - X.origin.astype(float) if isinstance(X, CentredCSR) else X.astype(float)
    )


def plain_loss(parameters: list[np.ndarray], paired: bool, X: np.ndarray, T: np.ndarray) -> float:
    """Return the mean of (Z Z^T - T)^2 over pairs of different rows, in float64."""
    turns, phases, scales = parameters
    angles = 2 * np.pi * (X @ turns + phases)
    Z = scales * np.cos(angles)
    if paired:
        Z = np.hstack([Z, scales * np.sin(angles)])
    E = Z @ Z.T - T
    np.fill_diagonal(E, 0)
    return float(np.sum(E**2)) / len(X) ** 2


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("paired", [False, True])
def test_gradient_equals_finite_differences(paired: bool, sparse: bool, labels: bool) -> None:
    rows = some_rows(150, 5, 1, sparse=sparse, labels=labels)
    features = start(5, 7, paired)
    found = module._gradient(features, rows, np.arange(150))
    X = in_float64(rows.X)
    T = exact_kernel("rbf", X, X, GAMMA)
    if labels:
        T += rows.target.labels @ rows.target.labels.T
    parameters = [np.array(value, np.float64) for value in features.arrays()]
    for k, gradient in enumerate(found):
        expected = np.empty(parameters[k].shape)
        for place in np.ndindex(*expected.shape):
            losses = []
            for step in (1e-5, -1e-5):
                moved = [value.copy() for value in parameters]
                moved[k][place] += step
                losses.append(plain_loss(moved, paired, X, T))
            expected[place] = (losses[0] - losses[1]) / 2e-5
        # Turning a pair changes nothing: there the difference is of rounded losses.
        rounding = 4 * np.finfo(float).eps * plain_loss(parameters, paired, X, T) / 2e-5
        atol = 2e-4 * np.abs(expected).max() + rounding
        np.testing.assert_allclose(gradient, expected, atol=atol)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_heldout_error_is_the_relative_error_over_pairs(paired: bool, sparse: bool) -> None:
    rows = some_rows(300, 5, 2, sparse=sparse)
    features = start(5, 20, paired)
    X = in_float64(rows.X)
    T = exact_kernel("rbf", X, X, GAMMA)
    parameters = [np.array(value, np.float64) for value in features.arrays()]
    off = T - np.diag(np.diag(T))
    expected = np.sqrt(plain_loss(parameters, paired, X, T) * 300**2 / np.sum(off**2))
    assert heldout_error(features, rows.X, rows.whole_target()) == pytest.approx(expected, rel=1e-5)


def run(
    paired: bool = False, steps: int = 60, unit: float | None = None, **kinds: bool
) -> RefineResult:
    return refine(
        start(5, 25, paired),
        some_rows(400, 5, 3, **kinds),
        some_rows(200, 5, 4, **kinds),
        n_steps=steps,
        frequency_unit=np.sqrt(2 * GAMMA) if unit is None else unit,
        rng=np.random.default_rng(5),
    )


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("paired", [False, True])
def test_moving_lowers_the_heldout_error(paired: bool, sparse: bool, labels: bool) -> None:
    kinds = {"sparse": sparse, "labels": labels}
    found = run(paired, **kinds)
    heldout = some_rows(200, 5, 4, **kinds)
    target = heldout.whole_target()
    before = heldout_error(start(5, 25, paired), heldout.X, target)
    assert found.error_before == before
    assert found.error_after == heldout_error(found.features, heldout.X, target)
    assert found.error_after == found.errors.min()
    assert found.steps.tolist() == [0, 10, 20, 30, 40, 50, 60]
    if not labels:  # random labels on other rows cannot be learned
        assert found.error_after < 0.8 * before
    assert found.error_after <= before


def test_never_worse_than_what_came_in() -> None:
    found = run(unit=1e3)  # steps of a thousand times the right size
    assert found.errors[1:].min() > found.error_before
    assert found.error_after == found.error_before
    for mine, given in zip(found.features.arrays(), start(5, 25, False).arrays(), strict=True):
        np.testing.assert_array_equal(mine, given)


def test_given_features_stay_as_they_are() -> None:
    features = start(5, 10, paired=False)
    before = [value.copy() for value in features.arrays()]
    rows = some_rows(60, 5, 6)
    rng = np.random.default_rng(0)
    refine(features, rows, rows, n_steps=5, frequency_unit=0.5, rng=rng)
    for now, then in zip(features.arrays(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_no_steps_return_what_was_given() -> None:
    features = start(5, 10, paired=False)
    rows = some_rows(60, 5, 6)
    found = refine(
        features, rows, rows, n_steps=0, frequency_unit=0.5, rng=np.random.default_rng(0)
    )
    assert found.features is features
    assert found.steps.tolist() == [0]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("paired", [False, True])
def test_no_bit_depends_on_the_number_of_threads(
    paired: bool, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "available_cpus", lambda count=count: count)
        with threadpool_limits(min(count, 2), user_api="blas"):
            results.append(run(paired, steps=20, sparse=sparse, labels=True))
    for other in results[1:]:
        np.testing.assert_array_equal(other.errors, results[0].errors)
        pairs = zip(other.features.arrays(), results[0].features.arrays(), strict=True)
        for mine, theirs in pairs:
            np.testing.assert_array_equal(mine, theirs)


def test_batches_are_smaller_than_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 50)
    sizes = []
    whole = module._gradient

    def watched(
        features: FeatureParameters, rows: RowsWithTarget, batch: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        sizes.append(len(batch))
        return whole(features, rows, batch)

    monkeypatch.setattr(module, "_gradient", watched)
    found = run(steps=40)
    assert sizes == [50] * 40
    assert found.error_after < found.error_before


def test_centring_moves_dense_rows_and_keeps_sparse_ones_sparse() -> None:
    X = 1e4 + np.random.default_rng(7).normal(size=(50, 3))
    moved, mean, move = centred(X)
    assert moved.dtype == np.float32
    np.testing.assert_allclose(mean, X.mean(axis=0))
    np.testing.assert_allclose(moved, X - X.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(move(X[:4] + 1), moved[:4] + 1, atol=1e-6)
    X = np.where(X > 1e4, X - 1e4, 0)
    sparse, mean, move = centred(sp.csr_array(X))
    assert isinstance(sparse, CentredCSR)
    assert sp.issparse(sparse.rows)
    assert sparse.rows.nnz == np.count_nonzero(X)
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(in_float64(sparse), X - X.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(in_float64(move(sp.csr_array(X[:4]))), X[:4] - mean, atol=1e-6)


@pytest.mark.parametrize("paired", [False, True])
def test_sparse_rows_are_refined_as_well_as_dense_ones(paired: bool) -> None:
    # Far from the origin, where frequencies and phases would pull against each other.
    X = random_csr(np.random.default_rng(8), (600, 12), "float32", density=0.6)
    X.data += 2
    found = []
    for rows in (X.toarray(), X):
        _, mean, move = centred(rows)
        given = start(12, 40, paired)
        features = FeatureParameters(
            given.turns, given.phases + mean @ given.turns, given.scales, paired
        )
        parts = [
            RowsWithTarget(
                move(part), RowTarget(part, get_kernel("rbf"), GAMMA, dtype=F32, budget=2**28)
            )
            for part in (rows[:400], rows[400:])
        ]
        rng = np.random.default_rng(5)
        unit = np.sqrt(2 * GAMMA)
        found.append(refine(features, *parts, n_steps=100, frequency_unit=unit, rng=rng))
    dense, sparse = found
    assert sparse.error_before == pytest.approx(dense.error_before, rel=1e-4)
    assert dense.error_after < 0.7 * dense.error_before
    assert sparse.error_after == pytest.approx(dense.error_after, rel=0.02)
