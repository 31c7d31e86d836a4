"""svmlight text in memory to rows, and what is wrong with a line that is none.

scikit-learn's reader splits lines as Python objects: it holds the interpreter lock, keeps 16 bytes
per value and names no line. This one runs without the lock, so that threads read side by side, and
gives the same rows (the tests compare the two). Characters are compared by their codes: 9, 13 and
32 are blanks, 10 ends a line, 35 (#) begins a comment, 44 is a comma, 58 a colon, 48 to 57 digits.

Decimal text becomes float64 correctly rounded. Python's own ``float`` takes the lock and most of
the time of reading. Here short numbers go the way of Clinger (1990): both the digits and the power
of ten are exact in float64, so one operation rounds once. Longer ones go the way of Eisel and
Lemire (2021): a 128-bit product with a truncated power of five that is nearly always enough to
round correctly. What is left (more than 19 digits, ``nan``, subnormal values, a tie that cannot be
decided) is reported as slow and goes to Python, so every value is what ``float`` makes of the same
characters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from rfcdask.data.errors import DataError
from rfcdask.data.sources.files import python_float
from rfcdask.kernels.arrays import CSR, Array, FloatArray, IntArray
from rfcdask.kernels.compiled import compiled

LEAST_POWER, LARGEST_POWER = -342, 308
PARSED, SLOW = 0, 1

_EXACT_POWERS = np.array([10.0**k for k in range(23)])  # 10^22 is the last one without rounding
_ONE, _ZERO = np.uint64(1), np.uint64(0)
_MASK32 = np.uint64(0xFFFFFFFF)
_U32 = np.uint64(32)
_LOW9 = np.uint64(0x1FF)
_EXACT_LIMIT = np.uint64(2**53)
_HIDDEN = np.uint64(2**52)
_DIGITS = 19  # as many as always fit into 64 bits


def _five_power(q: int) -> tuple[int, int]:
    """Return the 128 leading bits of 5**q, reciprocals rounded up, as two words."""
    if q >= 0:
        value = 5**q
        shift = value.bit_length() - 128
        value = value >> shift if shift > 0 else value << -shift
    else:
        power = 5**-q
        value = (1 << (2 * power.bit_length() + 128)) // power + 1
        value >>= value.bit_length() - 128
    return value >> 64, value & (2**64 - 1)


_FIVES = np.array([_five_power(q) for q in range(LEAST_POWER, LARGEST_POWER + 1)], dtype=np.uint64)


@compiled()
def _product(a, b):  # type: ignore[no-untyped-def]
    """Return the high and the low word of a 64 by 64 bit product, from four of 32 by 32."""
    a0, a1 = a & _MASK32, a >> _U32
    b0, b1 = b & _MASK32, b >> _U32
    low, mid1, mid2 = a0 * b0, a0 * b1, a1 * b0
    carry = (low >> _U32) + (mid1 & _MASK32) + (mid2 & _MASK32)
    high = a1 * b1 + (mid1 >> _U32) + (mid2 >> _U32) + (carry >> _U32)
    return high, (carry << _U32) | (low & _MASK32)


@compiled()
def _leading_zeros(x):  # type: ignore[no-untyped-def]
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if x >> np.uint64(64 - step) == _ZERO:
            count += step
            x = x << np.uint64(step)
    return count


@compiled()
def _eisel_lemire(digits, power):  # type: ignore[no-untyped-def]
    """Return the bits of digits * 10**power and whether they are certain.

    digits * 10**power = digits * 5**power * 2**power: the power of two only moves the exponent, so
    the work is one product with a tabulated power of five, of which the top 54 bits are needed: 53
    for the mantissa and one to round by.
    """
    zeros = _leading_zeros(digits)
    word = digits << np.uint64(zeros)
    row = power - LEAST_POWER
    high, low = _product(word, _FIVES[row, 0])
    if high & _LOW9 == _LOW9:
        # All bits below the rounding bit are ones, so what the second word of the power adds may
        # carry into it. If even then the low word is all ones, a third word would have to decide.
        more, _ = _product(word, _FIVES[row, 1])
        low = low + more
        if low < more:
            high = high + _ONE
        if low == np.uint64(0xFFFFFFFFFFFFFFFF):
            return _ZERO, False
    upper = high >> np.uint64(63)  # whether the product has 128 bits, or one fewer
    shift = upper + np.uint64(9)
    mantissa = high >> shift
    # 217706 / 2^16 is log2(10) to enough digits for every power in the table; 1023 is the bias.
    exponent = ((217706 * power) >> 16) + 63 + np.int64(upper) - zeros + 1023
    if exponent <= 0 or exponent >= 2046:  # subnormal, infinite, or about to become so
        return _ZERO, False
    # The product may be exactly half way between two floats, seen as an odd mantissa with nothing
    # below it: whether it is a tie depends on bits that the truncated power does not have.
    if low <= _ONE and mantissa & np.uint64(3) == _ONE and (mantissa << shift) == high:
        return _ZERO, False
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa >= np.uint64(2**53):  # rounded up to the next power of two
        mantissa = _HIDDEN
        exponent += 1
    return (mantissa & ~_HIDDEN) | (np.uint64(exponent) << np.uint64(52)), True


@compiled()
def _read_digits(text, i, stop):  # type: ignore[no-untyped-def]
    """Read digits and a point; return where they end, their value, its power of ten, and if fine.

    More than 19 significant digits, or none, are left to Python; zeros beyond them cost nothing.
    """
    digits, power, n_digits = _ZERO, 0, 0
    seen = point = False
    while i < stop:
        c = text[i]
        if 48 <= c <= 57:
            seen = True
            if n_digits < _DIGITS:
                digits = digits * np.uint64(10) + np.uint64(c - 48)
                n_digits += digits != _ZERO  # zeros in front are no digits
                power -= point
            elif c != 48:
                return i, digits, power, False
            else:
                power += not point
        elif c == 46 and not point:
            point = True
        else:
            break
        i += 1
    return i, digits, power, seen


@compiled()
def _read_exponent(text, i, stop):  # type: ignore[no-untyped-def]
    """Read what follows the digits, an exponent or nothing; return it and whether it is one."""
    if i == stop:
        return 0, True
    if text[i] != 101 and text[i] != 69:
        return 0, False
    i += 1
    minus = False
    if i < stop and (text[i] == 45 or text[i] == 43):
        minus = text[i] == 45
        i += 1
    if i == stop or stop - i > 5:
        return 0, False
    exponent = 0
    while i < stop:
        if text[i] < 48 or text[i] > 57:
            return 0, False
        exponent = exponent * 10 + (text[i] - 48)
        i += 1
    return -exponent if minus else exponent, True


@compiled()
def parse_number(text, start, stop, bits, value):  # type: ignore[no-untyped-def]
    """Parse the characters ``text[start:stop]``; `bits` and `value` share one word of memory.

    Returns PARSED, with the number in ``value[0]``, or SLOW: ask Python.
    """
    signed = start < stop and (text[start] == 45 or text[start] == 43)
    negative = signed and text[start] == 45
    i, digits, power, seen = _read_digits(text, start + signed, stop)
    exponent, fine = _read_exponent(text, i, stop)
    if not (seen and fine):
        return SLOW
    power += exponent
    if digits == _ZERO:
        value[0] = -0.0 if negative else 0.0
        return PARSED
    if digits <= _EXACT_LIMIT and -22 <= power <= 22:
        exact = np.float64(digits)
        exact = exact / _EXACT_POWERS[-power] if power < 0 else exact * _EXACT_POWERS[power]
        value[0] = -exact if negative else exact
        return PARSED
    if power < LEAST_POWER or power > LARGEST_POWER:
        return SLOW
    found, certain = _eisel_lemire(digits, power)
    if not certain:
        return SLOW
    bits[0] = found | (np.uint64(1 if negative else 0) << np.uint64(63))
    return PARSED


LARGEST_INDEX = 2**31 - 2
_FINE, _NO_PAIR, _ORDER, _BEYOND, _BELOW, _NO_LABEL, _MANY_LABELS = range(7)


@dataclass(frozen=True)
class TextRows:
    """Rows of one piece of text; column numbers are as written."""

    labels: FloatArray
    indptr: IntArray
    indices: Array
    values: FloatArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.labels)

    def matrix(self, n_columns: int, first_index: int) -> CSR:
        """Return the rows as CSR; `first_index` is what the file calls the first column."""
        parts = (self.values, self.indices - np.int32(first_index), self.indptr)
        return sparse.csr_matrix(parts, shape=(len(self), n_columns))


class LineError(DataError):
    """A line that is not svmlight; `offset` is where in the piece of text."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


@compiled()
def _is_space(c):  # type: ignore[no-untyped-def]
    return c == 32 or c == 9 or c == 13


@compiled()
def _token_end(text, i, stop):  # type: ignore[no-untyped-def]
    """Return where the characters up to the next blank, comment or line end stop."""
    while i < stop and not _is_space(text[i]) and text[i] != 10 and text[i] != 35:
        i += 1
    return i


@compiled()
def _is_query(text, i, end):  # type: ignore[no-untyped-def]
    """Whether a token is ``qid:7``, which groups rows for ranking and is passed over."""
    if end - i < 5 or text[i + 3] != 58:
        return False
    return text[i] == 113 and text[i + 1] == 105 and text[i + 2] == 100


@compiled()
def _skip_spaces(text, i, stop):  # type: ignore[no-untyped-def]
    while i < stop and _is_space(text[i]):
        i += 1
    return i


@compiled()
def _label_fault(text, start, end):  # type: ignore[no-untyped-def]
    """Return what is wrong with the first token of a line, before it is read as a number."""
    for j in range(start, end):
        if text[j] == 58:
            return _NO_LABEL
        if text[j] == 44:
            return _MANY_LABELS
    return _FINE


@compiled()
def _read_index(text, i, end, previous, least, largest):  # type: ignore[no-untyped-def]
    """Read the index of a pair; return it, the place of the colon, and what is wrong with it."""
    index = np.int64(0)
    j = i
    while j < end and 48 <= text[j] <= 57 and index <= LARGEST_INDEX:
        index = index * 10 + (text[j] - 48)
        j += 1
    if j < end and 48 <= text[j] <= 57:
        return index, j, _BEYOND
    if j == i or j + 1 >= end or text[j] != 58:
        return index, j, _NO_PAIR
    if index <= previous:
        return index, j, _ORDER
    if index > largest:
        return index, j, _BEYOND
    return index, j, _BELOW if index < least else _FINE


@compiled()
def _scan(text, least, largest, labels, indptr, indices, values, starts, slow):  # type: ignore[no-untyped-def]
    """Fill the arrays; return rows, values, slow numbers, the error's code and its place.

    One loop over lines with one over their pairs within. Compiled code cannot call Python's float:
    a number that needs it is noted in `slow` as its target (a value, or minus one minus the row of
    a label) and its place, and the caller fills it in.
    """
    stop = len(text)
    bits = np.zeros(1, np.uint64)
    value = bits.view(np.float64)
    rows = filled = n_slow = i = 0
    while i < stop:
        i = _skip_spaces(text, i, stop)
        if i < stop and text[i] != 10 and text[i] != 35:
            end = _token_end(text, i, stop)
            fault = _label_fault(text, i, end)
            if fault != _FINE:
                return rows, filled, n_slow, fault, i
            starts[rows] = i
            if parse_number(text, i, end, bits, value) == PARSED:
                labels[rows] = value[0]
            else:
                slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = -1 - rows, i, end
                n_slow += 1
            previous = np.int64(-1)  # indices must ascend
            i = _skip_spaces(text, end, stop)
            while i < stop and text[i] != 10 and text[i] != 35:
                end = _token_end(text, i, stop)
                if previous >= 0 or not _is_query(text, i, end):
                    index, colon, fault = _read_index(text, i, end, previous, least, largest)
                    if fault != _FINE:
                        return rows, filled, n_slow, fault, i
                    if parse_number(text, colon + 1, end, bits, value) == PARSED:
                        values[filled] = value[0]
                    else:
                        slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = filled, colon + 1, end
                        n_slow += 1
                    indices[filled] = previous = index
                    filled += 1
                i = _skip_spaces(text, end, stop)
            rows += 1
            indptr[rows] = filled
        while i < stop and text[i] != 10:
            i += 1
        i += 1
    return rows, filled, n_slow, _FINE, 0


def parse_rows(text: Array, least: int = 0, largest: int = LARGEST_INDEX) -> TextRows:
    """Parse whole lines of svmlight text.

    Parameters
    ----------
    text : ndarray of uint8
        The characters; the last line may lack its end.
    least, largest : int
        Smallest and largest column number that may occur.
    """
    # Counting line ends and colons first bounds the sizes, so that nothing grows while scanning.
    n_lines = int(np.count_nonzero(text == 10)) + 1
    n_values = int(np.count_nonzero(text == 58))
    labels, starts = np.empty(n_lines), np.empty(n_lines, np.int64)
    indptr = np.zeros(n_lines + 1, np.int64)
    indices, values = np.empty(n_values, np.int32), np.empty(n_values)
    slow = np.empty((n_lines + n_values, 3), np.int64)
    rows, filled, n_slow, code, place = _scan(
        text, least, min(largest, LARGEST_INDEX), labels, indptr, indices, values, starts, slow
    )
    # Numbers left to Python come before the place of the error, and may hold an earlier one.
    for target, start, end in slow[:n_slow].tolist():
        number = _python_number(text[start:end].tobytes(), start, label=target < 0)
        if target < 0:
            labels[-1 - target] = number
        else:
            values[target] = number
    if code != _FINE:
        raise LineError(place, _reason(text, code, place, least, largest))
    return TextRows(
        labels[:rows], indptr[: rows + 1], indices[:filled], values[:filled], starts[:rows]
    )


def _python_number(token: bytes, place: int, *, label: bool) -> float:
    try:
        return python_float(token)
    except ValueError:
        what = "a number as label" if label else "a number after the colon"
        raise LineError(place, f"expected {what}, found {_shown(token)}") from None


def _reason(text: Array, code: int, place: int, least: int, largest: int) -> str:
    token = _shown(text[place : _token_end(text, place, len(text))].tobytes())
    return {
        _NO_PAIR: f"expected index:value, found {token}",
        _ORDER: f"indices must ascend, but {token} does not exceed the index before it",
        _BEYOND: f"{token} lies beyond the largest index {largest}: pass a larger n_columns",
        _BELOW: f"{token} has an index below {least}: pass zero_based=True",
        _NO_LABEL: f"expected a label first, found {token}: the labels are missing",
        _MANY_LABELS: f"several labels per row ({token}) are not supported: keep one",
    }[code]


def _shown(token: bytes) -> str:
    shown = token[:40].decode("utf-8", "replace")
    return repr(shown + "..." if len(token) > 40 else shown)
