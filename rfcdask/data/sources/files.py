"""Files on disk or behind a URL, plain or compressed; text in pieces of whole lines."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import fsspec
import numpy as np
from fsspec.core import url_to_fs
from fsspec.utils import infer_compression

from rfcdask.data.columns import first_names
from rfcdask.data.errors import DataError
from rfcdask.data.location import file_time
from rfcdask.data.sources.base import Source
from rfcdask.kernels.arrays import Array
from rfcdask.persist.untrusted import faults_as

PIECE_BYTES = 4 * 2**20
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
    return infer_compression(path) is not None


def file_facts(path: str) -> dict[str, Any]:
    """Return name, size and time of a file, to recognise it by."""
    fs, name = url_to_fs(path)
    info = fs.info(name)
    return {"path": path, "size": info["size"], "time": file_time(info)}


def file_size(path: str) -> int:
    """Return the size of a file in bytes."""
    fs, name = url_to_fs(path)
    return int(fs.size(name))


def plan_pieces(path: str, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """Cut a plain file at about every `piece_bytes`; the cuts are moved to lines when read."""
    size = file_size(path)
    starts = range(0, size, piece_bytes)
    return [Piece(path, start, min(start + piece_bytes, size)) for start in starts]


def read_piece(piece: Piece) -> tuple[int, Array]:
    """Read the lines that begin within a piece; return where the first begins, and the text."""
    with fsspec.open(piece.path, "rb") as file:
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
    line: bytes = file.readline(LINE_BYTES + 1)
    if len(line) > LINE_BYTES:
        raise _endless(path)
    return line


def _endless(path: str) -> DataError:
    return DataError(
        f"{path} has a line of more than {LINE_BYTES // 2**20} MB, the most that is read: give "
        "text with one row per line, or pass format= if it is no text."
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
    with refusal:
        if infer_compression(path) == "zip":
            _require_one_file(path)
        with fsspec.open(path, "rb", compression="infer") as file:
            yield file


def _require_one_file(path: str) -> None:
    """Refuse a .zip archive of several files, of which only the first would be read."""
    with fsspec.open(path, "rb") as file, zipfile.ZipFile(file) as archive:
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


def count_lines(path: str, stop: int) -> int:
    """Return how many line ends there are before a byte of a plain file."""
    found = 0
    with fsspec.open(path, "rb") as file:
        while stop > 0 and (text := file.read(min(stop, PIECE_BYTES))):
            found += text.count(b"\n")
            stop -= len(text)
    return found
