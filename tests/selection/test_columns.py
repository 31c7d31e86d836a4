from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfcdask.selection import columns
from rfcdask.selection.columns import ColumnCache, LikelyAtoms
from rfcdask.selection.objective import DenseGram


class Counting(DenseGram):
    """Remembers what was asked for."""

    def __init__(self, G: np.ndarray) -> None:
        super().__init__(G)
        self.asked: list[list[int]] = []

    def columns(self, atoms: np.ndarray) -> np.ndarray:
        self.asked.append([int(atom) for atom in atoms])
        return super().columns(atoms)


def gram(n: int) -> np.ndarray:
    A = np.random.default_rng(0).normal(size=(n, 2 * n))
    return A @ A.T


@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 2, 2)])
def test_a_gram_matrix_is_square(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"G must be a square matrix, but has shape"):
        DenseGram(np.zeros(shape))


def test_likely_columns_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BATCH", 4)
    G = gram(30)
    source = Counting(G)
    cache = ColumnCache(source)
    np.testing.assert_array_equal(cache.squared_norms, np.diag(G))
    scores = np.arange(30.0)
    np.testing.assert_array_equal(cache.column(2, scores), G[:, 2])
    assert source.asked == [[2, 27, 28, 29]]
    for atom in (28, 29, 27, 2, 28):
        np.testing.assert_array_equal(cache.column(atom, scores), G[:, atom])
    assert len(source.asked) == 1
    cache.column(0, scores)
    assert source.asked[1] == [0, 24, 25, 26]


def test_atoms_of_a_forecast_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched(DenseGram):
        def values(self, atoms: np.ndarray) -> np.ndarray:
            taken.append(len(atoms))
            return super().values(atoms)

    monkeypatch.setattr(columns, "SMALL_TILE", 4)
    monkeypatch.setattr(columns, "FRESH_BYTES", 1)
    taken: list[int] = []
    G = gram(40)
    likely = LikelyAtoms(Watched(G))
    for atoms in (np.arange(20), np.arange(10, 30), np.arange(0, 40, 2)):
        likely.change_to(atoms)
        assert set(likely.atoms) == set(atoms)
        np.testing.assert_array_equal(likely.G, G[np.ix_(likely.atoms, likely.atoms)])
    assert max(taken[1:]) == 4


def test_candidates_that_can_never_be_picked_are_not_fetched() -> None:
    source = Counting(gram(30))
    scores = np.full(30, -np.inf)
    scores[[4, 9]] = 1, 2
    ColumnCache(source).column(9, scores)
    assert source.asked == [[4, 9]]


def test_columns_in_use_give_products() -> None:
    G = gram(12)
    cache = ColumnCache(DenseGram(G))
    for atom in (7, 1):
        cache.column(atom, np.zeros(12))
    w = np.zeros(12)
    w[[1, 7]] = 0.5, 2
    np.testing.assert_allclose(cache.product(w), G @ w)


@settings(max_examples=50, deadline=None)
@given(
    wanted=st.lists(st.integers(0, 39), min_size=1, max_size=60),
    batch=st.integers(1, 9),
    room=st.integers(0, 12),
    seed=st.integers(0, 1000),
)
def test_any_order_within_any_budget(wanted: list[int], batch: int, room: int, seed: int) -> None:
    G = gram(40)
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BATCH", batch)
        source = Counting(G)
        cache = ColumnCache(source, budget=room * 8 * 40)
        for atom in wanted:
            np.testing.assert_array_equal(cache.column(atom, rng.normal(size=40)), G[:, atom])
            assert len(cache._ahead) <= max(batch, room)
    assert set(cache._used) == set(wanted)
    assert all(len(asked) <= batch for asked in source.asked)
    assert len(source.asked) <= len(set(wanted))


def forecasting(picks: list[int]) -> columns.Forecast:
    return lambda atoms, G: iter(picks)


def test_what_was_forecast_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BATCH", 4)
    monkeypatch.setattr(columns, "MIN_FORECAST_WORK", 0)
    source = Counting(gram(30))
    cache = ColumnCache(source)
    scores = np.arange(30.0)
    cache.column(29, scores, forecasting([29, 3, 29, 28, 5, 7]))
    assert source.asked == [[29, 3, 28, 5]]
    cache.column(3, scores, forecasting([]))
    assert len(source.asked) == 1
    cache.column(10, scores, forecasting([3, 28, 11]))  # known columns are not asked for again
    assert source.asked[1] == [10, 11]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 39), min_size=1, max_size=20),
    st.integers(2, 9),
    st.integers(0, 1000),
)
def test_a_forecast_sees_the_gram_of_its_atoms(wanted: list[int], batch: int, seed: int) -> None:
    G = gram(40)
    rng = np.random.default_rng(seed)
    seen = 0

    def forecast(atoms: np.ndarray, among: np.ndarray) -> Iterator[int]:
        nonlocal seen
        seen += 1
        assert len(set(atoms)) == len(atoms)
        assert set(cache._used) <= set(atoms)
        np.testing.assert_array_equal(among, G[np.ix_(atoms, atoms)])
        return iter(rng.permutation(atoms)[:batch].tolist())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BATCH", batch)
        patch.setattr(columns, "MIN_FORECAST_WORK", 0)
        cache = ColumnCache(DenseGram(G))
        for atom in wanted:
            column = cache.column(atom, rng.normal(size=40), forecast)
            np.testing.assert_array_equal(column, G[:, atom])
    assert seen >= 1


def test_cheap_columns_are_fetched_without_a_forecast() -> None:
    def never(atoms: np.ndarray, among: np.ndarray) -> Iterator[int]:
        raise AssertionError

    assert ColumnCache(DenseGram(gram(50))).column(3, np.zeros(50), never).shape == (50,)
