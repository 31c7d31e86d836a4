"""Decimal text against Python's own float, bit for bit."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfcdask.data.sources.decimal_text import PARSED, parse_number, python_float


def parse_decimal(text: bytes) -> float:
    """Parse as the readers do: Python decides where the fast way is not certain."""
    word = np.zeros(1, np.uint64)
    value = word.view(np.float64)
    characters = np.frombuffer(text, np.uint8)
    if parse_number(characters, 0, len(text), word, value) == PARSED:
        return float(value[0])
    return python_float(text)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


@settings(max_examples=800, deadline=None)
@given(st.floats(allow_nan=False))
def test_every_float_written_in_full_comes_back(value):
    assert bits(parse_decimal(repr(value).encode())) == bits(value)


@settings(max_examples=600, deadline=None)
@given(
    st.from_regex(
        r"[+-]?([0-9]{1,22}(\.[0-9]{0,22})?|\.[0-9]{1,22})([eE][+-]?[0-9]{1,3})?", fullmatch=True
    )
)
def test_any_decimal_is_what_python_makes_of_it(text):
    assert bits(parse_decimal(text.encode())) == bits(float(text))


@settings(max_examples=400, deadline=None)
@given(st.integers(2**52, 2**53 - 1), st.integers(-60, 60))
def test_ties_between_two_floats_round_to_even(mantissa, exponent):
    from fractions import Fraction

    half = Fraction(2 * mantissa + 1) * Fraction(2) ** exponent / 2
    scaled = half * 10**70
    if scaled.denominator == 1:
        text = f"{scaled.numerator}e-70"
        assert bits(parse_decimal(text.encode())) == bits(float(text))


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993",
        "1e23",
        "-0",
        "0.000",
        "1e22",
        "5e-324",
        "2.2250738585072011e-308",
        "1.7976931348623157e308",
        "1e400",
        "-1e-400",
        "nan",
        "inf",
        "8.692932128906250000e-01",
        "1.00000000000000000000000",
        "123456789012345678900000",
        "0.000000000000000000000012345678901234567890",
    ],
)
def test_famous_numbers(text):
    assert bits(parse_decimal(text.encode())) == bits(float(text))


@pytest.mark.parametrize(
    "text", ["", "-", ".", "1e", "1.2.3", "abc", "1_000", "0x10", "1e5x", "--1"]
)
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_decimal(text.encode())
