"""stdin, stdout and stderr as they were handed to a command: closed, full, or without a reader."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


class ReaderGoneError(Exception):
    """Whoever read stdout went away: the end of the work, and no error to speak of."""


class StdoutError(Exception):
    """What should be printed cannot be written to where stdout leads."""


class _Stdout:
    """stdout, whose failures are told from those of files."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        """Print some text."""
        return _checked(self._stream.write, text)

    def flush(self) -> None:
        """Print what is held back."""
        _checked(self._stream.flush)


def _checked(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except BrokenPipeError:
        raise ReaderGoneError from None
    except UnicodeEncodeError as error:
        letter = error.object[error.start : error.start + 1]
        raise StdoutError(
            f"stdout takes text as {error.encoding}, which has no {letter!a}: set the "
            "environment variable PYTHONIOENCODING=utf-8:surrogateescape, and call again."
        ) from None
    except OSError as error:
        raise StdoutError(
            f"stdout cannot be written ({error.strerror}), and what was printed is not whole: lead "
            "it to a place with room that may be written to, and call again."
        ) from error


@contextmanager
def checked_stdout() -> Iterator[None]:
    """Let what is printed within the block raise a `ReaderGoneError` or a `StdoutError`."""
    before = sys.stdout
    if before is None or isinstance(before, _Stdout):
        yield
        return
    sys.stdout = _Stdout(before)
    try:
        yield
    finally:
        sys.stdout = before


def open_closed_streams() -> None:
    """Give what the caller closed (``>&-``) to nobody.

    The next file to be opened would get the number of the closed one, and what is printed later,
    here or in a worker process, would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            if getattr(sys, name) is None:
                stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)


def forget_stdout() -> None:
    """Keep the interpreter from complaining at its end about what it cannot write."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
