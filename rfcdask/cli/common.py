"""What the commands share: options, where the work is done, and how results are shown.

A command's file imports only click and this module at its head, and the rest of rfcdask inside the
function, after the arguments have been checked.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import click

from rfcdask.cli.errors import ReaderGoneError, keep_traceback, on_interrupt
from rfcdask.persist.untrusted import redacted

__all__ = [
    "emit",
    "json_option",
    "note",
    "on_interrupt",
    "output_options",
    "scheduler_options",
    "seed_option",
    "session",
    "show",
]

Function = TypeVar("Function", bound=Callable[..., Any])
_QUIET = "rfcdask.quiet"
_THREADS_A_WORKER = 4


def output_options(function: Function) -> Function:
    """Add ``--quiet`` and ``--debug``; they take effect by themselves."""

    def be_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_QUIET] = value

    def debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            keep_traceback(ctx)

    function = click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=debug,
        help="Show the traceback of an error.",
    )(function)
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=be_quiet,
        help="No progress and no remarks on stderr.",
    )(function)


def scheduler_options(function: Function) -> Function:
    """Add ``--scheduler`` and ``--threads``, passed on as `scheduler` and `threads`."""
    function = click.option(
        "--threads",
        type=click.IntRange(min=1),
        metavar="N",
        help="Threads to use on this machine.  [default: one a core]",
    )(function)
    return click.option(
        "--scheduler",
        metavar="ADDRESS|FILE",
        help="Dask scheduler to work on: tcp://... or tls://..., a scheduler file, 'local' for a "
        "cluster of processes here, or 'threads'.  [default: DASK_SCHEDULER_ADDRESS if set, else "
        "threads of this process]",
    )(function)


def json_option(function: Function) -> Function:
    """Add ``--json``, passed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        function
    )


def seed_option(function: Function) -> Function:
    """Add ``--seed``, passed on as `seed`; the same seed gives the same result."""
    return click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Seed.",
    )(function)


@contextmanager
def session(
    scheduler: str | None = None, threads: int | None = None, *, default: str = "threads"
) -> Iterator[Any]:
    """Connect to where the work is done and set up progress; yields a client or None.

    Parameters
    ----------
    scheduler, threads
        The values of the options of the same name.
    default : str
        Where to work when neither the option nor DASK_SCHEDULER_ADDRESS says.
    """
    where = named_scheduler(scheduler) or default
    size = _size(where, threads)
    from rfcdask.execution.cluster import connect

    with progress_on_stderr(), connect(where, **size) as client:
        yield client


def named_scheduler(scheduler: str | None) -> str | None:
    """Return the option's value, else what the environment and Dask's configuration say."""
    if scheduler:
        return scheduler
    if found := os.environ.get("DASK_SCHEDULER_ADDRESS"):
        return found
    import dask.config

    configured: str | None = dask.config.get("scheduler-address", None)
    return configured


def _size(where: str, threads: int | None) -> dict[str, Any]:
    if threads is None:
        return {}
    if where == "threads":
        return {"threads_per_worker": threads}
    if where == "local":
        workers = -(-threads // _THREADS_A_WORKER)
        return {"n_workers": workers, "threads_per_worker": -(-threads // workers)}
    raise click.UsageError(
        f"--threads is for work on this machine, but the scheduler {where} has its own workers."
    )


@contextmanager
def progress_on_stderr() -> Iterator[None]:
    """Show bars on a terminal, lines in a log, nothing with ``--quiet``."""
    import dask.config

    style = "off" if is_quiet() else "auto" if sys.stderr.isatty() else "plain"
    with dask.config.set({"rfcdask.progress": style}):
        yield


def is_quiet() -> bool:
    """Tell whether ``--quiet`` was given."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get(_QUIET))


def note(text: str) -> None:
    """Say something on stderr, unless ``--quiet``."""
    if not is_quiet():
        with suppress(OSError):  # nobody may be reading it, and the work goes on
            click.echo(redacted(text), err=True)


def emit(text: str, *, end: str = "\n") -> None:
    """Write data to stdout; when nobody reads it any more, the command ends without a word."""
    try:
        sys.stdout.write(text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None


def show(data: Any, text: str, as_json: bool) -> None:
    """Print a result: as JSON for machines, else as text."""
    emit(to_json(data) if as_json else redacted(text))


def to_json(data: Any) -> str:
    """Return strict JSON: numbers of numpy as numbers, what is not finite as null, no passwords."""
    return json.dumps(redacted(plain(data)), indent=1, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Return a value made of what JSON knows."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy arrays and numbers
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
