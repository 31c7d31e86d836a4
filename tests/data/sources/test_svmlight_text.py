"""svmlight text against scikit-learn's reader, and its numbers against Python's."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from data_helpers import dense_rows, svmlight_text
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from rfcdask.data.sources.svmlight import (
    LineError,
    parse_rows,
)
from rfcdask.data.sources.text import (
    PARSED,
    parse_number,
    plan_pieces,
    python_float,
    read_piece,
    stream_lines,
)


def parse(text: bytes, **limits):
    return parse_rows(np.frombuffer(text, np.uint8), **limits)


@settings(max_examples=150, deadline=None)
@given(dense_rows(("f8", "f4", "i2")), st.sampled_from([0, 1]))
def test_the_rows_are_scikit_learns(X, first):
    y = np.arange(len(X)) % 3 - 1
    text = svmlight_text(X, y, first)
    expected, labels = load_svmlight_file(
        io.BytesIO(text), n_features=X.shape[1], zero_based=first == 0
    )
    rows = parse(text)
    got = rows.matrix(X.shape[1], first)
    assert np.array_equal(got.toarray(), expected.toarray())
    assert np.array_equal(got.toarray(), X.astype(np.float64))
    assert np.array_equal(rows.labels, labels)


def test_what_scikit_learn_writes_is_read(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 7))
    dump_svmlight_file(X, np.arange(50), str(tmp_path / "a"), zero_based=False, comment="hello")
    expected, labels = load_svmlight_file(str(tmp_path / "a"))
    rows = parse((tmp_path / "a").read_bytes())
    assert np.array_equal(rows.matrix(7, 1).toarray(), expected.toarray())
    assert np.array_equal(rows.labels, labels)


def test_comments_blanks_queries_and_line_ends_are_skipped():
    text = b"# head\r\n\r\n 1 qid:7 1:2 \t 3:4 # tail 5:6\r\n   \n-1\n+1 2:.5"
    rows = parse(text)
    assert rows.labels.tolist() == [1, -1, 1]
    assert rows.matrix(3, 1).toarray().tolist() == [[2, 0, 4], [0, 0, 0], [0, 0.5, 0]]


@settings(max_examples=60, deadline=None)
@given(dense_rows(("i2",)), st.integers(1, 60), st.booleans())
def test_cutting_a_file_anywhere_gives_each_line_once(tmp_path_factory, X, size, ending):
    path = tmp_path_factory.mktemp("cut") / "rows.svm"
    text = svmlight_text(X, np.arange(len(X)))
    path.write_bytes(text if ending else text.rstrip(b"\n"))
    pieces = [read_piece(piece) for piece in plan_pieces(str(path), size)]
    assert b"".join(part.tobytes() for _, part in pieces) == path.read_bytes()
    labels = np.concatenate([parse_rows(part).labels for _, part in pieces])
    assert labels.tolist() == list(range(len(X)))
    for start, part in pieces:
        assert path.read_bytes()[start:].startswith(part.tobytes())
    streamed = b"".join(part.tobytes() for part in stream_lines(str(path), size))
    assert streamed == path.read_bytes()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"1 3", "expected index:value, found '3'"),
        (b"1 3:", "expected index:value, found '3:'"),
        (b"1 :3", "expected index:value"),
        (b"1 a:3", "expected index:value, found 'a:3'"),
        (b"1 -1:3", "expected index:value"),
        (b"1 1:2:3", "a number after the colon, found '2:3'"),
        (b"1 1:abc", "a number after the colon, found 'abc'"),
        (b"one 1:2", "a number as label, found 'one'"),
        (b"1 2:1 1:1", "indices must ascend"),
        (b"1 2:1 2:1", "indices must ascend"),
        (b"1 9:1", "beyond the largest index 8"),
        (b"1 99999999999999999999:1", "beyond"),
        (b"1:2 2:3", "the labels are missing"),
        (b"1,2 1:3", "several labels"),
    ],
)
def test_a_malformed_line_says_what_was_expected(line, words):
    text = b"1 1:1\n" + line + b"\n1 1:1\n"
    with pytest.raises(LineError, match=words) as caught:
        parse(text, largest=8)
    assert text[: caught.value.offset].count(b"\n") == 1


def test_the_first_of_two_faults_is_named():
    with pytest.raises(LineError, match="'x'") as caught:
        parse(b"1 1:x\n1 2\n")
    assert caught.value.offset == 4


# --- numbers, against Python's own float, bit for bit ---


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
