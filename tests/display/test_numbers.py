"""Numbers as people read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rfcdask.display as numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.012345, "0.0123"), (1.2345, "1.23"), (12.345, "12.3"), (123.45, "123"),
     (1234.5, "1,234"), (1e-7, "1.00e-7"), (2e20, "2.00e20"), (-0.5, "-0.500"),
     (None, numbers.NONE), (float("nan"), numbers.NONE), ("x", numbers.NONE)],
)  # fmt: skip
def test_number(value: Any, shown: str) -> None:
    assert numbers.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 s"), (0.0042, "4.2 ms"), (0.25, "0.2 s"), (9.94, "9.9 s"), (31.2, "31 s"),
     (59.6, "1 min 00 s"), (101, "1 min 41 s"), (4000, "1 h 06 min"), (None, numbers.NONE)],
)  # fmt: skip
def test_seconds(value: Any, shown: str) -> None:
    assert numbers.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (900, "900 B"), (36_000, "35.2 kiB"), (980_000_000, "935 MiB"),
     (1_500_000_000, "1.40 GiB"), (3 * 2**50, "3.00 PiB"), (None, numbers.NONE)],
)  # fmt: skip
def test_size(value: Any, shown: str) -> None:
    assert numbers.size(value) == shown


@given(st.one_of(st.floats(), st.integers(), st.none(), st.text(), st.booleans()))
def test_anything_is_shown(value: Any) -> None:
    for show in (numbers.number, numbers.count, numbers.share, numbers.size, numbers.micros,
                 numbers.seconds):  # fmt: skip
        shown = show(value)
        assert shown
        assert "nan" not in shown
        assert "inf" not in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.123, "0.12 s"), (12.3, "12 s"), (600, "10 min"), (7200, "2.0 h"), (10**6, "12 days")],
)
def test_estimated_times(seconds: float, text: str) -> None:
    assert numbers.estimated_time(seconds) == text
