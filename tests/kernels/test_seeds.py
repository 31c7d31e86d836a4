from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rfcdask.kernels.seeds import (
    draw_pairs,
    draw_parts,
    draw_rows,
    held_out_by_number,
    seed_of,
    stream,
)


@pytest.mark.parametrize("seed", [0, 7, np.int64(7), 2**40])
def test_an_integer_stands_for_itself(seed: int) -> None:
    assert seed_of(seed) == seed
    assert type(seed_of(seed)) is int


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_generators_give_one_reproducible_draw(make: type) -> None:
    generator = make(3)
    first, second = seed_of(generator), seed_of(generator)
    assert first != second
    assert first == seed_of(make(3))


def test_none_follows_the_global_seed() -> None:
    np.random.seed(5)  # noqa: NPY002 - scikit-learn's rule for random_state=None
    first = seed_of(None)
    np.random.seed(5)  # noqa: NPY002
    assert seed_of(None) == first


def test_bad_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"random_state=-1 must not be negative"):
        seed_of(-1)
    with pytest.raises(ValueError, match="seed"):
        seed_of("seed")


def test_streams_are_reproducible_and_differ_by_name_and_seed() -> None:
    same = [stream(1, "rows").random(4) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    others = [stream(1, "pairs"), stream(2, "rows"), stream(1, "row"), stream(1, "rowss")]
    for other in others:
        assert not np.isin(other.random(4), same[0]).any()


@pytest.mark.parametrize("n", [2, 3, 6])
def test_pairs_are_uniform_over_all_pairs(n: int) -> None:
    i, j = draw_pairs(n, 40_000, np.random.default_rng(0))
    assert (i < j).all()
    assert i.min() >= 0
    assert j.max() < n
    counts = np.zeros((n, n))
    np.add.at(counts, (i, j), 1)
    seen = counts[np.triu_indices(n, 1)]
    assert n == 2 or stats.chisquare(seen).pvalue > 1e-3


def test_pairs_of_a_billion_rows() -> None:
    n = 10**9
    i, j = draw_pairs(n, 50_000, np.random.default_rng(1))
    assert (i < j).all()
    # The larger of two is distributed as the larger of two uniform numbers, the smaller likewise.
    assert stats.kstest(j / n, lambda x: np.clip(x, 0, 1) ** 2).pvalue > 1e-3
    assert stats.kstest(i / n, lambda x: 1 - (1 - np.clip(x, 0, 1)) ** 2).pvalue > 1e-3


def test_rows_are_distinct_uniform_and_in_random_order() -> None:
    rng = np.random.default_rng(2)
    draws = np.array([draw_rows(7, 3, rng) for _ in range(6000)])
    assert all(len(set(draw)) == 3 for draw in draws.tolist())
    codes = draws @ [49, 7, 1]
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 7 * 6 * 5
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("size", [5, 6])
def test_asking_for_all_rows_gives_each_once(size: int) -> None:
    assert sorted(draw_rows(5, size, np.random.default_rng(3))) == [0, 1, 2, 3, 4]


def test_rows_of_a_billion_take_no_memory_for_the_rest() -> None:
    tracemalloc.start()
    rows = draw_rows(10**9, 10_000, np.random.default_rng(4))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(np.unique(rows)) == 10_000
    assert rows.max() < 10**9
    assert stats.kstest(rows / 10**9, "uniform").pvalue > 1e-3
    assert peak < 5 * 2**20


@given(st.integers(1, 60), st.lists(st.integers(0, 20), min_size=1, max_size=3), st.integers(0, 9))
def test_parts_are_the_drawn_rows_cut(n: int, sizes: list[int], seed: int) -> None:
    if sum(sizes) > n:
        n = sum(sizes)
    parts = draw_parts(n, sizes, np.random.default_rng(seed))
    assert [len(part) for part in parts] == sizes
    drawn = draw_rows(n, sum(sizes), np.random.default_rng(seed))
    assert np.concatenate(parts).tolist() == drawn[: sum(sizes)].tolist()
    assert len(set(drawn.tolist())) == len(drawn)


def test_rows_held_out_stay_the_same_over_versions() -> None:
    sampled, held = draw_parts(12, (4, 2), np.random.default_rng(0))
    assert (sampled.tolist(), held.tolist()) == ([2, 7, 4, 3], [0, 5])
    assert np.flatnonzero(held_out_by_number(0, 30, 0.2, 3)).tolist() == [8, 11, 13, 16, 26, 27]
