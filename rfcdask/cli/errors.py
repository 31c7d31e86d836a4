"""From exceptions to one sentence on stderr and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from rfcdask.persist.untrusted import redacted

OK, FAILED, BAD_INPUT, NO_FIT, UNFINISHED = 0, 1, 2, 3, 4
INTERRUPTED, READER_GONE, TERMINATED = 130, 141, 143
_BAD_INPUT = (
    ValueError,
    TypeError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_CODES = {
    "UnfinishedError": UNFINISHED,
    "UnfinishedStoreError": UNFINISHED,
    "UnfinishedRunError": UNFINISHED,
    "UnreachableError": FAILED,
    "PlanError": NO_FIT,
    "DestinationError": BAD_INPUT,
}
"""Codes of errors by the names of their classes, whose modules need not be imported for it."""
_LOST = {
    "FutureCancelledError",
    "FuturesCancelledError",
    "CommClosedError",
    "ClusterLostError",
    "NoWorkersError",
}
_RESUME, _DEBUG = "rfcdask.resume", "rfcdask.debug"


class UnfinishedError(RuntimeError):
    """Something was interrupted earlier and can be resumed; becomes exit code 4."""


class ReaderGoneError(Exception):
    """Whoever read stdout went away: the end of the work, and no error to speak of."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, as make, Snakemake and batch systems send it."""


def on_interrupt(how_to_resume: str) -> None:
    """Say what Ctrl-C should tell the user from now on, such as ``rfcdask run --resume DIR``."""
    click.get_current_context().meta[_RESUME] = how_to_resume


def keep_traceback(ctx: click.Context) -> None:
    """Show tracebacks from now on (``--debug``)."""
    ctx.meta[_DEBUG] = True


@contextmanager
def reported(ctx: click.Context) -> Iterator[None]:
    """Turn what the block raises into a message and an exit code."""
    _open_closed_streams()
    try:
        with _terminable(), _plain_warnings():
            yield
            sys.stdout.flush()
    except (click.exceptions.Exit, click.ClickException, click.Abort):
        raise
    except KeyboardInterrupt as stop:
        _say(ctx.meta.get(_RESUME, "Interrupted: call the same command again to go on."))
        ctx.exit(TERMINATED if isinstance(stop, TerminatedError) else INTERRUPTED)
    except (ReaderGoneError, BrokenPipeError) as error:
        if not isinstance(error, ReaderGoneError) and not _stdout_is_broken():
            _fail(ctx, error)
        _forget_stdout()
        ctx.exit(READER_GONE)
    except Exception as error:
        _fail(ctx, error)


def _fail(ctx: click.Context, error: Exception) -> None:
    code = exit_code(error)
    debug = bool(ctx.meta.get(_DEBUG))
    if debug:
        _say("".join(traceback.format_exception(error)).rstrip())
    lost = not _LOST.isdisjoint(_class_names(error))
    text = _lost(ctx, error) if lost else sentence(error, expected=code != FAILED)
    _say(f"Error: {text}", fg="red")
    for note in getattr(error, "__notes__", ()) if code != FAILED else ():
        _say(note)
    if code == FAILED and not debug:
        _say("Call again with --debug for the traceback.")
    ctx.exit(code)


def _class_names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def exit_code(error: BaseException) -> int:
    """Return the exit code that stands for an exception."""
    known = [code for name, code in _CODES.items() if name in _class_names(error)]
    return known[0] if known else BAD_INPUT if isinstance(error, _BAD_INPUT) else FAILED


def sentence(error: BaseException, *, expected: bool = True) -> str:
    """Return an error as one line; an unexpected one with its kind."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}."
    text = " ".join(str(error).split())
    if not text:
        return type(error).__name__
    return text if expected or isinstance(error, MemoryError) else f"{type(error).__name__}: {text}"


def _lost(ctx: click.Context, error: BaseException) -> str:
    """Say that the scheduler went away, and how to go on; Dask's own words name tasks."""
    said = "The connection to the Dask scheduler was lost, and with it the work under way."
    if type(error).__module__.startswith("rfcdask."):
        said = " ".join(str(error).split())
    told: str = ctx.meta.get(_RESUME, "call the same command again to go on.")
    how = told.removeprefix("Interrupted").lstrip(":; ")
    return f"{said} {how[:1].upper()}{how[1:]}"


def _say(text: str, **style: Any) -> None:
    with suppress(OSError):  # nobody may be reading stderr either
        click.secho(redacted(text), err=True, **style)


def _open_closed_streams() -> None:
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


def _stdout_is_broken() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _forget_stdout() -> None:
    """Keep the interpreter from complaining at its end about what it cannot write."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that workers end and temporary files go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one line, without the line of source that raised it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _say(f"Warning: {' '.join(str(message).split())}", fg="yellow")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
