"""Axes: every value inside, ticks round and few."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rfcdask.svg.scales import scale_for, thinned
from rfcdask.svg.styles import cut_apart, styles_for

SANE = st.floats(1e-9, 1e12)


@given(st.lists(SANE, min_size=1, max_size=20), st.booleans(), st.booleans())
def test_values_keep_their_order_inside_the_axis(
    values: list[float], log: bool, binary: bool
) -> None:
    scale = scale_for(values, 40, 340, log=log)
    places = [scale(value) for value in sorted(values)]
    assert places == sorted(places)
    assert 40 <= places[0] <= places[-1] <= 340
    ticks = scale.ticks(5, binary)
    assert 1 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))
    room = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - room <= tick <= scale.high + room for tick in ticks)


def test_ticks_are_round() -> None:
    assert scale_for([50, 1000], 0, 1, log=True).ticks(5) == [50, 100, 200, 500, 1000]
    assert scale_for([0.01, 10], 0, 1, log=True).ticks(5) == [0.01, 0.1, 1, 10]
    assert scale_for([0, 300], 0, 1, zero=True).ticks(5) == [0, 100, 200, 300]
    assert scale_for([36_000, 6_600_000], 0, 1, log=True).ticks(5, binary=True) == [
        2**16, 2**18, 2**20, 2**22,
    ]  # fmt: skip


def test_shares_do_not_reach_beyond_one() -> None:
    assert scale_for([0.9, 0.999], 0, 1, highest=1.0).high == 1.0
    assert scale_for([1.0, 1.0], 0, 1, highest=1.0)(1.0) == 1.0


def test_a_log_axis_needs_positive_values() -> None:
    assert not scale_for([0.0, 5.0], 0, 1, log=True).log
    assert math.isclose(scale_for([1.0, 100.0], 0, 1, log=True)(10.0), 0.5)


@given(st.integers(0, 1000), st.integers(2, 60))
def test_thinning_keeps_both_ends(n: int, most: int) -> None:
    kept = thinned([0.0] * n, most)
    assert len(kept) == min(n, most)
    assert kept == sorted(set(kept))
    assert not n or (kept[0], kept[-1]) == (0, n - 1)


@given(st.lists(st.text(max_size=30), unique=True, max_size=12))
def test_names_stay_apart(names: list[str]) -> None:
    found = cut_apart(names, 10)
    assert len(set(found)) == len(names)
    assert all(len(name) <= 10 for name in found)


def test_like_names_show_where_they_differ() -> None:
    names = [f"some species {k} of a family" for k in (1, 2)]
    assert cut_apart(names, 10) == ["…1 of a f…", "…2 of a f…"]
    assert cut_apart(["a" * 20 + "b", "a" * 20 + "c"], 10) == ["1", "2"]


def test_methods_of_ones_own_do_not_take_our_colours() -> None:
    styles = styles_for(["compressed", "mine", "nystroem", "yours"])
    assert len({style.colour for style in styles.values()}) == 4
