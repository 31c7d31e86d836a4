"""The command line: ``rfcdask``, ``python -m rfcdask`` and ``dask rfc``.

Nothing heavy is imported here or at the head of a command's file, so that ``--help``, shell
completion and ``dask --help`` stay fast: a command is imported when it is called. Whatever it
raises becomes one sentence on stderr and an exit code here.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from rfcdask._version import __version__
from rfcdask.cli.streams import (
    ReaderGoneError,
    StdoutError,
    checked_stdout,
    forget_stdout,
    open_closed_streams,
)
from rfcdask.display import printable
from rfcdask.persist.untrusted import redacted

_ABOUT = """Kernel machines on data larger than memory.

\b
First:           rfcdask run
On your data:    rfcdask run data.csv
Step by step:    rfcdask ingest data.csv data.zarr
                 rfcdask fit data.zarr model
                 rfcdask predict model new.csv predicted.csv

Every command reads paths and writes paths. Data go to stdout, progress and errors to stderr.
What is seen under its final name is complete; a command that was stopped goes on when it is called
again. Some messages name parameters as Python does: n_rows=100 is --n-rows 100 here.
"""
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "All in one": {
        "run": ("run", "From data to a model and a report, in one go."),
    },
    "Data": {
        "ingest": ("stores", "Write files to a store of lazy blocks."),
        "fetch": ("stores", "Download a known data set into a store."),
        "synthesize": ("stores", "Make data of any size."),
        "info": ("stores", "Say what a store or a saved model holds."),
    },
    "Models": {
        "plan": ("run", "Say what a fit will cost, and whether it fits."),
        "tune": ("run", "Choose gamma and the penalty on a sample."),
        "fit": ("run", "Choose features and train a model on them."),
        "transform": ("predict", "Write the features of all rows."),
        "predict": ("predict", "Write the predicted labels of all rows."),
        "score": ("predict", "Measure a model on labelled rows."),
    },
    "Results": {
        "compare": ("run", "Measure feature maps side by side."),
        "report": ("run", "Write results as one HTML page."),
    },
}
"""The file of each command and its line in the list, which must not import it."""

EXIT_CODES = {
    0: "done",
    1: "the work failed",
    2: "bad usage or bad input",
    3: "refused: the plan does not fit the memory",
    4: "unfinished: an input or output was interrupted and can be resumed",
    130: "interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP, 141 when stdout lost its reader)",
}
COMPLETION = (
    'Shell completion: add  eval "$(_RFCDASK_COMPLETE=bash_source rfcdask)"  to ~/.bashrc '
    "(zsh_source, fish_source likewise)."
)

OK, FAILED, BAD_INPUT, NO_FIT, UNFINISHED = 0, 1, 2, 3, 4
READER_GONE = 141
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
    "StdoutError": BAD_INPUT,
}
"""Codes of errors by the names of their classes, whose modules need not be imported for it."""
_LOST = {
    "FutureCancelledError",
    "FuturesCancelledError",
    "CommClosedError",
    "ClusterLostError",
    "NoWorkersError",
}
_DROPPED = {"CancelledError", "OSError"}
_RESUME, _DEBUG = "rfcdask.resume", "rfcdask.debug"  # in the `meta` of click's context


# No shell expands it after an equals sign, and without one nobody does.
_HOME = re.compile(r"^((?:[\w-]+=){0,2})~/")


class Commands(click.Group):
    """The commands of :data:`SECTIONS`, in that order."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(context_settings={"help_option_names": ["-h", "--help"]}, **settings)
        click.version_option(__version__, prog_name="rfcdask", message="%(prog)s %(version)s")(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the workflow."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command by name."""
        for section in SECTIONS.values():
            if name in section:
                module = import_module(f"rfcdask.cli.{section[name][0]}")
                return getattr(module, name)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or name the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{meant}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, and the exit codes."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in section.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in EXIT_CODES.items()])

    def make_context(
        self, info_name: str | None, args: list[str], *more: Any, **extra: Any
    ) -> click.Context:
        """Read the arguments; the help and the version are printed here."""
        try:
            with checked_stdout():
                words = [
                    _HOME.sub(lambda found: found[1] + os.path.expanduser("~/"), word)
                    for word in args
                ]
                return super().make_context(info_name, words, *more, **extra)
        except (ReaderGoneError, StdoutError) as error:
            forget_stdout()
            if isinstance(error, ReaderGoneError):
                raise click.exceptions.Exit(READER_GONE) from None
            _say(f"Error: {error}", fg="red")
            raise click.exceptions.Exit(BAD_INPUT) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what goes wrong becomes one sentence and an exit code."""
        with reported(ctx):
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                from rfcdask.cli.options import RENAMED

                if error.option_name not in RENAMED:
                    raise
                said = f"{error.option_name} is called {RENAMED[error.option_name]} now."
                raise click.UsageError(said, error.ctx) from None


class UnfinishedError(RuntimeError):
    """Something was interrupted earlier and can be resumed; becomes exit code 4."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, as make, Snakemake and batch systems send it, or SIGHUP, of a closed terminal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def on_interrupt(how_to_resume: str) -> None:
    """Say what Ctrl-C should tell the user from now on, such as ``rfcdask run --resume DIR``."""
    click.get_current_context().meta[_RESUME] = how_to_resume


@contextmanager
def reported(ctx: click.Context) -> Iterator[None]:
    """Turn what the block raises into a message and an exit code."""
    open_closed_streams()
    try:
        with _terminable(), _plain_warnings(), _lost_in_one_sentence(ctx), checked_stdout():
            yield
            sys.stdout.flush()
    except (click.exceptions.Exit, click.ClickException, click.Abort):
        raise
    except KeyboardInterrupt as stop:
        _say(ctx.meta.get(_RESUME, "Interrupted: call the same command again to go on."))
        ctx.exit(128 + _number(stop))
    except ReaderGoneError:
        forget_stdout()
        ctx.exit(READER_GONE)
    except Exception as error:
        if isinstance(error, StdoutError):
            forget_stdout()
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
    if isinstance(error, FileNotFoundError) and error.errno and not _is_somewhere():
        return "the current folder was removed: change to another one, and call again."
    text = in_options(" ".join(str(error).split()))
    if not text:
        return type(error).__name__
    return text if expected or isinstance(error, MemoryError) else f"{type(error).__name__}: {text}"


def _is_somewhere() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


# Names of files and folders stay as they are: tables in parts have folders such as label=1/.
_ARGUMENT = re.compile(
    r"(?<![\w/.-])"
    r"(nan|task|label|header|sparse|overwrite|zero_based|class_weight|n_columns|project)="
    r"(?:'([\w-]+)'|(True|False)|(-?\d+))(?![\w/-]|\.\w)"
)
_REMEDIES = re.compile(
    r"(?<![\w/.-])(label|delimiter|format|block_size|n_columns|columns|project|sparse|scale)="
    r"(?=[ ,:;]|\.(?!\w)|$)"
)
_WORD = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_KINDS = re.compile(rf"\bcolumns=(\{{{_WORD}: {_WORD}(?:, {_WORD}: {_WORD})*\}})")


def in_options(text: str) -> str:
    """Return a message whose remedies are arguments of Python with those that can be typed."""

    def option(found: re.Match[str]) -> str:
        name, word, flag, number = found.groups()
        name = name.replace("_", "-")
        if flag:
            return f"--{'' if flag == 'True' else 'no-'}{name}"
        return f"--{name} {word or number}"

    def file_of_kinds(found: re.Match[str]) -> str:
        try:
            pairs = ast.literal_eval(found[1]).items()
        except (SyntaxError, ValueError):  # looks like it, and is the name of a file
            return found[0]
        line = ", ".join(
            f'{json.dumps(name, ensure_ascii=False)} = "{kind}"' for name, kind in pairs
        )
        return f"--columns spec.toml (a file of the line columns = {{{line}}})"

    text = _ARGUMENT.sub(option, _KINDS.sub(file_of_kinds, text))
    return _REMEDIES.sub(lambda found: "--" + found[1].replace("_", "-"), text)


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
        click.secho(printable(redacted(text)), err=True, **style)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack, so that workers end and temporary files go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    timers: list[threading.Timer] = []

    def stop(number: int, _: Any) -> None:
        raise TerminatedError(number)

    def again(lost: Any) -> None:
        """Send what struck where nothing can be raised, such as in a callback of the compiler."""
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            hook(lost)
            return
        timers.append(threading.Timer(0.05, os.kill, (os.getpid(), _number(lost.exc_value))))
        timers[-1].daemon = True
        timers[-1].start()

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # What was to be ignored, as nohup says of SIGHUP, stays so.
    caught = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in caught}
    hook, sys.unraisablehook = sys.unraisablehook, again
    try:
        yield
    finally:
        for timer in timers:  # one that struck later would end Python itself in the middle
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook


def _number(stop: BaseException) -> int:
    """Return the number of the signal behind an interrupt."""
    return stop.number if isinstance(stop, TerminatedError) else int(signal.SIGINT)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one line, without the line of source that raised it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _say(f"Warning: {in_options(' '.join(str(message).split()))}", fg="yellow")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def _lost_in_one_sentence(ctx: click.Context) -> Iterator[None]:
    """Keep Dask's client from logging tracebacks of a lost connection, unless for ``--debug``."""

    def is_wanted(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        lost = error is not None and not _class_names(error).isdisjoint(_DROPPED)
        return not lost or bool(ctx.meta.get(_DEBUG))

    log = logging.getLogger("distributed.client")
    log.addFilter(is_wanted)
    try:
        yield
    finally:
        log.removeFilter(is_wanted)


main = Commands(name="rfcdask", help=_ABOUT, epilog=COMPLETION)
"""The group behind the script ``rfcdask``."""
rfc = Commands(name="rfc", help=_ABOUT, epilog=COMPLETION)
"""The same under ``dask rfc``."""
