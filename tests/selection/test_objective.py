from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from rfcdask.kernels import get_kernel
from rfcdask.kernels import runtime as threads
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.selection import candidates as candidates_module
from rfcdask.selection.candidates import Candidates, PairTarget, RowTarget
from rfcdask.selection.objective import AllPairs, SampledPairs, gram
from tests.reference import exact_kernel

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
TOLERANCE = {F32: 1e-5, F64: 1e-10}
PLENTY = 2**30
GAMMA, M, P, N_ATOMS = 0.2, 83, 4, 230


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small problems into several ragged tiles."""
    monkeypatch.setattr(candidates_module, "TILE", 64)
    monkeypatch.setattr(candidates_module, "ROW_BLOCK", 32)
    monkeypatch.setattr(candidates_module, "SMALL_TILE", 16)


@dataclass
class Problem:
    """The rows, the candidates and R itself, over given pairs."""

    X: np.ndarray
    i: np.ndarray
    j: np.ndarray
    block: CosineBlock
    R: np.ndarray
    labels: np.ndarray

    @classmethod
    def make(cls, dtype: np.dtype, paired: bool, sampled: bool) -> Problem:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(M, P)).astype(dtype)
        W, b = np.sqrt(2 * GAMMA) * rng.normal(size=(P, N_ATOMS)), rng.uniform(0, 7, N_ATOMS)
        scale = np.sqrt((1 if paired else 2) / N_ATOMS)
        block = CosineBlock.make(W, b, np.full(N_ATOMS, scale), dtype, paired=paired)
        i, j = np.triu_indices(M, 1)
        if sampled:
            chosen = rng.integers(0, len(i), 500)
            i, j = i[chosen], j[chosen]
        angles = X.astype(np.float64) @ W + b
        parts = [scale * f(angles) for f in ((np.cos, np.sin) if paired else (np.cos,))]
        R = sum(part[i] * part[j] for part in parts).T
        return cls(X, i, j, block, R, rng.normal(size=(M, 3)))

    def objective(self, dtype: np.dtype, budget: int, sampled: bool) -> AllPairs | SampledPairs:
        if not sampled:
            return AllPairs(Candidates(self.block, self.X, dtype, budget))
        sides = [Candidates(self.block, self.X[side], dtype, 0) for side in (self.i, self.j)]
        return SampledPairs(*sides, budget)

    def t(self, target: str) -> np.ndarray:
        if target == "candidates":
            return self.R.sum(axis=0)
        exact = exact_kernel("rbf", self.X, self.X, GAMMA)[self.i, self.j]
        if target == "kernel":
            return exact
        return exact + np.sum(self.labels[self.i] * self.labels[self.j], axis=1)

    def target(self, name: str, found: AllPairs | SampledPairs, budget: int) -> object:
        labels = self.labels if name == "labels" else None
        kernel = None if name == "candidates" else get_kernel("rbf")
        if isinstance(found, AllPairs):
            return RowTarget(
                self.X,
                kernel,
                GAMMA,
                labels=labels,
                candidates=found.candidates,
                dtype=found.candidates.dtype,
                budget=budget,
            )
        values = None
        if kernel is not None:
            values = kernel.exact_pairs(self.X[self.i], self.X[self.j], GAMMA)
        extra = 0.0 if labels is None else np.sum(labels[self.i] * labels[self.j], axis=1)
        return PairTarget(values, extra)


@pytest.mark.parametrize("budget", [PLENTY, 0])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("sampled", [False, True])
def test_gram_equals_the_explicit_product(
    sampled: bool, dtype: np.dtype, paired: bool, budget: int
) -> None:
    problem = Problem.make(dtype, paired, sampled)
    found = problem.objective(dtype, budget, sampled)
    expected = problem.R @ problem.R.T
    norms = np.sqrt(np.diag(expected))
    scale = np.outer(norms, norms)
    assert np.max(np.abs(gram(found) - expected) / scale) < TOLERANCE[dtype]
    assert np.max(np.abs(found.squared_norms() / norms**2 - 1)) < TOLERANCE[dtype]
    some = np.array([200, 3, 64, 63])
    columns = found.columns(some)
    assert columns.dtype == dtype
    assert np.max(np.abs(columns - expected[:, some]) / scale[:, some]) < TOLERANCE[dtype]
    others = np.arange(7, 120)
    entries = found.approximate_gram(found.values(some), found.values(others))
    at = np.ix_(some, others)
    assert entries.dtype == dtype
    rough = 2 / len(problem.X) if not sampled and not paired else TOLERANCE[dtype]
    assert np.max(np.abs(entries - expected[at]) / scale[at]) < rough


@pytest.mark.parametrize("target", ["candidates", "kernel", "labels"])
@pytest.mark.parametrize("budget", [PLENTY, 0])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("sampled", [False, True])
def test_correlations_equal_the_explicit_product(
    sampled: bool, dtype: np.dtype, paired: bool, budget: int, target: str
) -> None:
    problem = Problem.make(dtype, paired, sampled)
    found = problem.objective(dtype, budget, sampled)
    c, norm2 = found.correlations(problem.target(target, found, budget))
    t = problem.t(target)
    assert norm2 == pytest.approx(t @ t, rel=TOLERANCE[dtype])
    scale = np.linalg.norm(problem.R, axis=1) * np.linalg.norm(t)
    assert np.max(np.abs(c - problem.R @ t) / scale) < TOLERANCE[dtype]


def test_target_of_candidates_has_the_row_sums_of_the_gram() -> None:
    problem = Problem.make(F64, paired=False, sampled=False)
    found = problem.objective(F64, PLENTY, sampled=False)
    c, norm2 = found.correlations(problem.target("candidates", found, PLENTY))
    G = gram(found)
    np.testing.assert_allclose(c, G.sum(axis=1), rtol=1e-9)
    assert norm2 == pytest.approx(G.sum(), rel=1e-9)


def test_angles_are_as_precise_as_the_data() -> None:
    rng = np.random.default_rng(1)
    X = 1e5 + rng.normal(size=(70, 2))  # float32 angles would be wrong in the second digit
    W, b = rng.normal(size=(2, 90)), np.zeros(90)
    block = CosineBlock.make(W, b, np.ones(90), F64)
    for budget in (PLENTY, 0):
        candidates = Candidates(block, X, F32, budget)
        for tile in candidates.tiles():
            values = candidates.parts(tile)[0]
            assert values.dtype == F32
            np.testing.assert_allclose(values.T, np.cos(X @ W[:, tile]), atol=1e-6)


@pytest.mark.parametrize("budget", [PLENTY, 0])
@pytest.mark.parametrize("paired", [False, True])
def test_parts_of_tiles_and_of_chosen_atoms_agree(budget: int, paired: bool) -> None:
    problem = Problem.make(F64, paired, sampled=False)
    candidates = Candidates(problem.block, problem.X, F64, budget)
    tiles = [candidates.parts(tile) for tile in candidates.tiles()]
    atoms = np.array([229, 0, 100])
    assert len(tiles) == 4
    for k, chosen in enumerate(candidates.parts_of(atoms)):
        whole = np.vstack([parts[k] for parts in tiles])
        np.testing.assert_allclose(chosen, whole[atoms], atol=1e-14)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("budget", [PLENTY, 0])
def test_no_bit_depends_on_the_number_of_threads(
    sampled: bool, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # tiles of full size, so that BLAS would use its threads
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(3000, 10)).astype(F32), rng.normal(size=(3000, 10))
    W, b = 0.3 * rng.normal(size=(10, 700)), rng.uniform(0, 7, 700)
    block = CosineBlock.make(W, b, np.full(700, 0.05), F32)
    i, j = rng.integers(0, 3000, (2, 15_000))
    problem = Problem(X, i, j, block, np.empty(0), y)
    atoms = np.arange(0, 700, 11)

    def answers() -> list[np.ndarray]:
        found = problem.objective(F32, budget, sampled)
        target = problem.target("labels", found, budget)
        rough = found.approximate_gram(found.values(atoms), found.values(np.arange(300)))
        return [found.columns(atoms), rough, found.squared_norms(), *found.correlations(target)]

    results = []
    for count, blas in ((1, 1), (2, 2), (5, 2)):
        monkeypatch.setattr(threads, "available_cpus", lambda count=count: count)
        monkeypatch.setattr(candidates_module, "available_cpus", lambda count=count: count)
        with threadpool_limits(blas, user_api="blas"):
            results.append(answers())
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)
