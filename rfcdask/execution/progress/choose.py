"""Reporting a phase of work, to whoever is there to see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.config

from rfcdask.execution.progress.lines import LineReporter
from rfcdask.execution.progress.reporter import Reporter, SilentReporter


@contextmanager
def track(
    phase: str, total: float | None = None, unit: str = "steps", *, progress: Any = None
) -> Iterator[Reporter]:
    """Report a phase of work while the block runs.

    Parameters
    ----------
    phase : str
        What is being done, as the reader should see it.
    total : float, optional
        How many units there are, when known.
    unit : str
        What is counted.
    progress : bool, str or callable, optional
        ``False`` or ``"off"`` shows nothing, ``"plain"`` writes lines, ``True`` draws a bar; a
        callable ``(phase, total, unit) -> Reporter`` brings its own, which may have a ``close``.
        None asks the configuration.
    """
    reporter = _make_reporter(phase, total, unit, progress)
    try:
        yield reporter
    finally:
        close = getattr(reporter, "close", None)
        if close is not None:
            close()


def _make_reporter(phase: str, total: float | None, unit: str, progress: Any) -> Reporter:
    choice = dask.config.get("rfcdask.progress", "auto") if progress is None else progress
    if callable(choice):
        made: Reporter = choice(phase, total, unit)
        return made
    if choice == "plain":
        return LineReporter(phase, total, unit)
    if choice not in (True, False, "auto", "off"):
        raise ValueError(
            f"rfcdask: progress={choice!r} is not known; use one of auto, plain, off, True, False."
        )
    if choice is True or (choice == "auto" and _somebody_watches()):
        return _bar(phase, total, unit)
    return SilentReporter()


def _somebody_watches() -> bool:
    return sys.stderr.isatty() or _in_notebook()


def _in_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook, not merely one that could be."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def _bar(phase: str, total: float | None, unit: str) -> Reporter:
    if _in_notebook():
        from rfcdask.execution.progress.notebook import NotebookReporter

        return NotebookReporter(phase, total, unit)
    from rfcdask.execution.progress.terminal import BarReporter

    return BarReporter(phase, total, unit)
