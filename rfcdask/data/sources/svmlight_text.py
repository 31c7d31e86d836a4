"""svmlight text in memory to rows, and what is wrong with a line that is none.

scikit-learn's reader splits lines as Python objects: it holds the interpreter lock, keeps 16 bytes
per value and names no line. This one runs without the lock, so that threads read side by side, and
gives the same rows (the tests compare the two). Characters are compared by their codes: 9, 13 and
32 are blanks, 10 ends a line, 35 (#) begins a comment, 44 is a comma, 58 a colon, 48 to 57 digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from scipy import sparse

from rfcdask.data.errors import DataError
from rfcdask.data.sources.decimal_text import PARSED, parse_number, python_float
from rfcdask.kernels.arrays import CSR, Array, FloatArray, IntArray

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


@numba.njit(cache=True, nogil=True)
def _is_space(c):  # type: ignore[no-untyped-def]
    return c == 32 or c == 9 or c == 13


@numba.njit(cache=True, nogil=True)
def _token_end(text, i, stop):  # type: ignore[no-untyped-def]
    """Return where the characters up to the next blank, comment or line end stop."""
    while i < stop and not _is_space(text[i]) and text[i] != 10 and text[i] != 35:
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _is_query(text, i, end):  # type: ignore[no-untyped-def]
    """Whether a token is ``qid:7``, which groups rows for ranking and is passed over."""
    if end - i < 5 or text[i + 3] != 58:
        return False
    return text[i] == 113 and text[i + 1] == 105 and text[i + 2] == 100


@numba.njit(cache=True, nogil=True)
def _skip_spaces(text, i, stop):  # type: ignore[no-untyped-def]
    while i < stop and _is_space(text[i]):
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _label_fault(text, start, end):  # type: ignore[no-untyped-def]
    """Return what is wrong with the first token of a line, before it is read as a number."""
    for j in range(start, end):
        if text[j] == 58:
            return _NO_LABEL
        if text[j] == 44:
            return _MANY_LABELS
    return _FINE


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
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
        _MANY_LABELS: f"several labels a row ({token}) are not supported: keep one",
    }[code]


def _shown(token: bytes) -> str:
    shown = token[:40].decode("utf-8", "replace")
    return repr(shown + "..." if len(token) > 40 else shown)
