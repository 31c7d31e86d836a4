"""From exceptions to one sentence on stderr and an exit code."""

from __future__ import annotations

import os
import re
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
_BAD = (
    ValueError,
    TypeError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_LOST = (
    ("distributed.client", "FutureCancelledError"),
    ("distributed.client", "FuturesCancelledError"),
    ("distributed.comm.core", "CommClosedError"),
    ("rfcdask.execution.failures", "ClusterLostError"),
    ("rfcdask.execution.failures", "NoWorkersError"),
)
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
    if is_lost_cluster(error):
        text = f"{_lost(error)} {_how_to_go_on(ctx)}"
    else:
        text = sentence(error, expected=code != FAILED, command=ctx.invoked_subcommand)
    _say(f"Error: {text}", fg="red")
    if code == FAILED and not debug:
        _say("Call again with --debug for the traceback.")
    ctx.exit(code)


def exit_code(error: BaseException) -> int:
    """Return the exit code that stands for an exception."""
    if _is(error, "rfcdask.data.errors", "UnfinishedStoreError") or isinstance(
        error, UnfinishedError
    ):
        return UNFINISHED
    if _is(error, "rfcdask.data.errors", "UnreachableError"):
        return FAILED
    if type(error).__name__ == "PlanError":
        return NO_FIT
    expected = isinstance(error, _BAD) or _is(error, "rfcdask.persist.files", "DestinationError")
    return BAD_INPUT if expected else FAILED


def _is(error: BaseException, module: str, name: str) -> bool:
    """Tell whether an error is of a class, without importing the module for it."""
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and isinstance(error, found)


def sentence(error: BaseException, *, expected: bool = True, command: str | None = None) -> str:
    """Return an error as one line; an unexpected one with its kind."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}."
    text = " ".join(str(error).split())
    text = in_settings(text) if command == "run" else in_options(text)
    if not text:
        return type(error).__name__
    return text if expected or isinstance(error, MemoryError) else f"{type(error).__name__}: {text}"


_PYTHON_ONLY = "pass columns= with the names of the columns to take, or "
_FLAGS = {
    _PYTHON_ONLY: "",
    "overwrite=True": "--overwrite",
    "nan='drop'": "--drop-nan",
    "label=False": "--no-labels",
    "zero_based=True": "--zero-based",
    "header=True": "--header",
    "rfcdask.ingest(source, dest, shuffle=True)": "rfcdask ingest SOURCE DEST --shuffle",
    "(n_candidates)": "(--candidates)",
    "(n_components)": "(--components)",
    "(n_rows)": "(--sample-rows)",
    "(X.rechunk)": "(rfcdask ingest --block-size)",
    "rfcdask.ingest": "rfcdask ingest",
}
_OPTIONS = {
    "n_components": "components",
    "n_candidates": "candidates",
    "n_rows": "sample-rows",
    "n_columns": "columns",
    "block_size": "block-size",
    "label_weight": "label-weight",
    "test_size": "test-size",
    "threads_per_worker": "threads",
    "rows": "rows",
} | {
    name: name
    for name in [
        "label",
        "format",
        "task",
        "delimiter",
        "project",
        "scale",
        "dtype",
        "compressor",
        "kernel",
        "gamma",
        "alpha",
        "epochs",
        "loss",
        "folds",
        "strategy",
    ]
}
_ARGUMENT = re.compile(rf"(?<![\w/.])({'|'.join(_OPTIONS)})=('[^']*'|[\w.+-]*\w)?(?![\w=]*/)")


_SETTING = re.compile(r"(?<![\w/.-])([a-z_]+)=('[^']*'|[\w.+-]*\w)?(?![\w=]*/)")


def in_settings(text: str) -> str:
    """Return a message of the Python interface in the words of ``rfcdask run``.

    It has an option for the label and ``--set name=value`` for its settings; what else tells how to
    read a file is an option of ``rfcdask ingest``.
    """
    from dataclasses import fields

    from rfcdask.pipeline.settings import Settings

    known = {field.name for field in fields(Settings)}

    def said(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "").strip("'")
        if text[: found.start()].endswith("--set "):
            return found[0]
        if name == "overwrite":
            return "--overwrite"
        if name == "label" and value != "False":
            return f"--label {value}".rstrip()
        if name in known and name != "label":
            return f"--set {name}={value}"
        option = in_options(found[0])
        return found[0] if option == found[0] else f"{option} (of rfcdask ingest)"

    text = text.replace(_PYTHON_ONLY, "")
    return _SETTING.sub(said, text)


def in_options(text: str) -> str:
    """Return a message of the Python interface in the words of the command line."""
    for argument, option in _FLAGS.items():
        text = text.replace(argument, option)
    return _ARGUMENT.sub(
        lambda found: f"--{_OPTIONS[found[1]]} {(found[2] or '').strip(chr(39))}".rstrip(), text
    )


def is_lost_cluster(error: BaseException) -> bool:
    """Tell whether the scheduler went away while work was under way."""
    return any(_is(error, module, name) for module, name in _LOST)


def _lost(error: BaseException) -> str:
    """Return what a lost scheduler says of itself; Dask's own words for it are names of tasks."""
    if type(error).__module__.startswith("rfcdask."):
        return " ".join(str(error).split())
    return "The connection to the Dask scheduler was lost, and with it the work under way."


def _how_to_go_on(ctx: click.Context) -> str:
    told: str = ctx.meta.get(_RESUME, "call the same command again to go on.")
    how = told.removeprefix("Interrupted").lstrip(":; ")
    return how[:1].upper() + how[1:]


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
    before = warnings.showwarning

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _say(f"Warning: {' '.join(str(message).split())}", fg="yellow")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before
