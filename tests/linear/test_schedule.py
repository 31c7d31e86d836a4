"""The order in which blocks and rows are learned from."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rfcdask.linear.sgd.step import blocks_mixed, epoch_groups, held_out_rows, shuffle_rows


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 60), mixed=st.integers(1, 8), seed=st.integers(0, 9))
def test_an_epoch_visits_every_block_once_and_spreads_groups(n: int, mixed: int, seed: int) -> None:
    mixed = min(mixed, n)
    groups = epoch_groups(n, mixed, seed, 0)
    assert sorted(index for group in groups for index in group) == list(range(n))
    assert groups == epoch_groups(n, mixed, seed, 0)
    strata = [set(part.tolist()) for part in np.array_split(np.arange(n), mixed)]
    assert all(len(group) <= mixed for group in groups)
    assert all(sum(index in part for index in groups[0]) == 1 for part in strata)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 9))
def test_rows_of_a_group_are_all_there_in_an_order_of_their_own(
    sizes: list[int], seed: int
) -> None:
    which, rows = shuffle_rows(sizes, seed, 1, 2)
    pairs = set(zip(which.tolist(), rows.tolist(), strict=True))
    assert pairs == {(b, r) for b, size in enumerate(sizes) for r in range(size)}
    again = shuffle_rows(sizes, seed, 1, 2)
    assert np.array_equal(again[1], rows)


def test_orders_differ_between_epochs_and_rows_held_out_do_not() -> None:
    assert epoch_groups(40, 8, 0, 0) != epoch_groups(40, 8, 0, 1)
    held = held_out_rows(100, 0.1, 3, 7)
    assert held.sum() == 10
    assert np.array_equal(held, held_out_rows(100, 0.1, 3, 7))


def test_large_blocks_are_not_mixed_beyond_the_budget() -> None:
    assert blocks_mixed(100, 2**20) == 8
    assert blocks_mixed(100, 2**26) == 2
    assert blocks_mixed(100, 2**31) == 1
    assert blocks_mixed(3, 2**20) == 3
