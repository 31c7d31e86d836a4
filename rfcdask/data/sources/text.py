"""Files of text, plain or compressed, here or behind a URL: pieces of whole lines, and numbers.

Decimal text becomes float64 correctly rounded. Python's own ``float`` takes the interpreter lock
and most of the time of reading. Here short numbers go the way of Clinger (1990): both the digits
and the power of ten are exact in float64, so one operation rounds once. Longer ones go the way of
Eisel and Lemire (2021): a 128-bit product with a truncated power of five that is nearly always
enough to round correctly. What is left (more than 19 digits, ``nan``, subnormal values, a tie that
cannot be decided) is reported as slow and goes to Python, so every value is what ``float`` makes of
the same characters.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zipfile
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from fsspec.core import OpenFile
from fsspec.utils import infer_compression

from rfcdask.data.columns import first_names
from rfcdask.data.errors import DataError
from rfcdask.data.location import file_system, file_time, reaching
from rfcdask.data.sources.base import Batch, Source
from rfcdask.kernels.arrays import Array
from rfcdask.kernels.runtime import compiled
from rfcdask.persist.untrusted import check_zip, faults_as

PIECE_BYTES = 4 * 2**20
PACKED_BYTES = 2**16
"""Bytes of a compressed file that are unpacked at once."""
_UNREADABLE = (".zst", ".zstd", ".lz4", ".snappy", ".sz")
LINE_BYTES = 64 * 2**20
"""Most bytes of a line: a line is held in memory whole, and what has none may have no end."""


class FileSource(Source):
    """One or several files of one kind as one set of rows."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    @property
    def names(self) -> list[str]:
        return self.paths

    def identity(self) -> Any:
        return [file_facts(path) for path in self.paths]

    def require_content(self) -> None:
        """Refuse empty files."""
        for path in self.paths:
            if file_size(path) == 0:
                raise DataError(f"{path} is empty: give a file with rows.")


class Piece(NamedTuple):
    """A range of bytes of a plain file that begins and ends with a line."""

    path: str
    start: int
    stop: int
    rows: int = -1


def is_compressed(path: str) -> bool:
    """Whether the name ends like that of a compressed file."""
    return _packing(path) is not None


def _packing(path: str) -> str | None:
    """Return how a file is packed, by its name."""
    if path.lower().endswith(_UNREADABLE):
        raise DataError(
            f"{path} is packed in a way that is not read, as not every reader of it finds out "
            "when a file is cut short: unpack it, or pack it as gz, bz2 or xz."
        )
    found: str | None = infer_compression(path)
    return found


def open_file(path: str, packed: str | None = None) -> OpenFile:
    """Open a file, here or behind a URL, for reading bytes."""
    fs, name = file_system(path)
    return OpenFile(fs, name, "rb", compression=packed)


def file_facts(path: str) -> dict[str, Any]:
    """Return name, size and time of a file, to recognise it by."""
    fs, name = file_system(path)
    info = fs.info(name)
    if info["size"] is None:  # of a web server, which then gives no parts of the file either
        raise DataError(f"{path}: the server does not tell the file's size: copy it here first.")
    return {"path": path, "size": info["size"], "time": file_time(info)}


def file_size(path: str) -> int:
    """Return the size of a file in bytes."""
    return int(file_facts(path)["size"])


def plan_pieces(path: str, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """Cut a plain file at about every `piece_bytes`; the cuts are moved to lines when read."""
    size = file_size(path)
    starts = range(0, size, piece_bytes)
    return [Piece(path, start, min(start + piece_bytes, size)) for start in starts]


def read_piece(piece: Piece) -> tuple[int, Array]:
    """Read the lines that begin within a piece; return where the first begins, and the text."""
    with open_file(piece.path) as file:
        start = piece.start
        if start > 0:
            file.seek(start - 1)
            start += len(_read_line(file, piece.path)) - 1
        if start >= piece.stop:
            return start, np.empty(0, np.uint8)
        file.seek(start)
        text = file.read(piece.stop - start)
        if not text.endswith(b"\n"):
            text += _read_line(file, piece.path)
    return start, np.frombuffer(text, np.uint8)


def _read_line(file: Any, path: str) -> bytes:
    """Read on to the end of a line; `readline` of a file behind a URL knows no limit."""
    line, part = bytearray(), b""
    while b"\n" not in part and (part := file.read(PACKED_BYTES)):
        line += part[: part.find(b"\n") + 1] or part
        if len(line) > LINE_BYTES:
            raise _endless(path)
    return bytes(line)


def _endless(path: str) -> DataError:
    return DataError(
        f"{path} has a line of more than {LINE_BYTES // 2**20} MB, the most that is read: give "
        "text with one row per line, or pass format= if it is no text."
    )


def require_utf8(path: str, head: bytes) -> None:
    """Refuse text in UTF-16 or UTF-32, whose every other byte is zero, as Excel writes it."""
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or 3 * head.count(0) > len(head):
        raise DataError(
            f"{path} holds zero bytes as text in UTF-16 does, and text is read as UTF-8: write it "
            "as UTF-8, as iconv -f UTF-16 -t UTF-8 does."
        )


@contextmanager
def open_text(path: str) -> Iterator[Any]:
    """Open a text file, decompressing it on the way; what is wrong with its bytes is said."""
    what = "the compressed file is cut short or damaged" if is_compressed(path) else "it is damaged"
    refusal = faults_as(
        lambda why: DataError(f"{path}: {what} ({why}): get it again."),
        DataError,
        FileNotFoundError,
    )
    with reaching(path), refusal:
        packed = _packing(path)
        if packed == "zip":
            _require_one_file(path)
        make = _DECODERS.get(packed)
        with open_file(path, None if make else packed) as file:
            yield io.BufferedReader(_Streams(file, make), PACKED_BYTES) if make else file


_DECODERS: dict[str | None, Callable[[], Any]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
    "lzma": lzma.LZMADecompressor,
}


class _Streams(io.RawIOBase):
    """What is packed with bz2 or xz, in one stream or several, as pbzip2 writes them.

    Python's own readers take a stream whose head is damaged, and all after it, for no part of the
    file, and end there without a word. Here only zeros may stand between streams and at the end.
    """

    def __init__(self, packed: Any, make: Callable[[], Any]) -> None:
        self._packed, self._make, self._decoder = packed, make, make()

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        text = b""
        while not text:
            given = b""
            if self._decoder.eof:
                given = self._decoder.unused_data.lstrip(b"\0")
                while not given and (more := self._packed.read(PACKED_BYTES)):
                    given = more.lstrip(b"\0")
                if not given:
                    return 0
                self._decoder = self._make()
            elif self._decoder.needs_input:
                given = self._packed.read(PACKED_BYTES)
                if not given:
                    raise EOFError("it ends in the middle of a stream")
            text = self._decoder.decompress(given, len(room))
        room[: len(text)] = text
        return len(text)


def _require_one_file(path: str) -> None:
    """Refuse a .zip archive of several files, of which only the first would be read."""
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        check_zip(archive)
        names = archive.namelist()
    if len(names) != 1:
        raise DataError(
            f"{path} holds {len(names)} files ({first_names(names, 3)}), and one is read of an "
            "archive: unpack it, and give the files that hold rows."
        )


def stream_lines(path: str, piece_bytes: int = PIECE_BYTES) -> Iterator[Array]:
    """Yield a file's text in pieces of whole lines, decompressing it on the way."""
    rest: list[bytes] = []
    with open_text(path) as file:
        while text := file.read(piece_bytes):
            whole, end, tail = text.rpartition(b"\n")
            if end:
                yield np.frombuffer(b"".join([*rest, whole, end]), np.uint8)
                rest.clear()
            rest.append(tail)
            if sum(map(len, rest)) > LINE_BYTES:
                raise _endless(path)
    if any(rest):
        yield np.frombuffer(b"".join(rest), np.uint8)


def python_float(text: str | bytes) -> float:
    """Return ``float(text)``, without the underscores that Python alone allows between digits."""
    if (b"_" if isinstance(text, bytes) else "_") in text:  # type: ignore[operator]
        raise ValueError(text)
    return float(text)


def is_number(text: str) -> bool:
    """Whether a field reads as a number."""
    try:
        python_float(text)
    except ValueError:
        return False
    return True


def count_lines(path: str, stop: int) -> int:
    """Return how many line ends there are before a byte of a plain file."""
    found = 0
    with open_file(path) as file:
        while stop > 0 and (text := file.read(min(stop, PIECE_BYTES))):
            found += text.count(b"\n")
            stop -= len(text)
    return found


LEAST_POWER, LARGEST_POWER = -342, 308


def between(batches: Iterator[Batch], start: int, stop: int) -> Iterator[Batch]:
    """Yield only the rows from `start` up to `stop` of a run of batches that begins with row 0."""
    place = 0
    for batch in batches:
        a, b = max(start - place, 0), min(stop - place, batch.X.shape[0])
        place += batch.X.shape[0]
        if a < b:
            yield batch.cut(slice(a, b))
        if place >= stop:
            return


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
