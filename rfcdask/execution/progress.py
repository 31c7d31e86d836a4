"""Progress of long work behind one small protocol.

Everything that may take more than two seconds reports to a :class:`Reporter`. What is drawn is the
reporter's business (`progress_views`): a bar on a terminal or in a notebook, plain lines in a log,
nothing at all. The choice is ``rfcdask.progress`` in Dask's configuration: ``auto`` (a bar where
somebody can see it, else nothing), ``plain`` (lines on stderr) or ``off``.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import dask.config

from rfcdask.execution.cluster import current_client

QUIET_SECONDS = 2.0
"""Work shorter than this shows nothing."""


class Reporter(Protocol):
    """Receives what a phase of work says of itself."""

    def advance(self, amount: float = 1) -> None:
        """Count `amount` more units as done."""

    def note(self, text: str) -> None:
        """Show a short remark beside the bar."""


ReporterFactory = Callable[[str, "float | None", str], Reporter]
"""``(phase, total, unit) -> Reporter``"""


class SilentReporter:
    """Shows nothing."""

    def advance(self, amount: float = 1) -> None:
        """Count nothing."""

    def note(self, text: str) -> None:
        """Drop the remark."""


@contextmanager
def track(
    phase: str,
    total: float | None = None,
    unit: str = "steps",
    *,
    progress: bool | str | ReporterFactory | None = None,
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
    reporter = _chosen(progress)(phase, total, unit)
    try:
        yield reporter
    finally:
        close = getattr(reporter, "close", None)
        if close is not None:
            close()


def _chosen(progress: Any) -> ReporterFactory:
    from rfcdask.execution.progress_views import BarReporter, LineReporter, NotebookReporter

    choice = dask.config.get("rfcdask.progress", "auto") if progress is None else progress
    if callable(choice):
        made: ReporterFactory = choice
        return made
    if choice == "plain":
        return LineReporter
    if choice not in (True, False, "auto", "off"):
        raise ValueError(
            f"rfcdask: progress={choice!r} is not known; use one of auto, plain, off, True, False."
        )
    if choice is True or (choice == "auto" and _somebody_watches()):
        return NotebookReporter if _in_notebook() else BarReporter
    return lambda phase, total, unit: SilentReporter()


def _somebody_watches() -> bool:
    return sys.stderr.isatty() or _in_notebook()


def _in_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook, not merely one that could be."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def dashboard_link() -> str:
    """Return the address of the current client's dashboard, or nothing."""
    link = str(getattr(current_client(), "dashboard_link", None) or "")
    # A scheduler on this machine has pages to show only with bokeh.
    if "://127.0.0.1:" in link and importlib.util.find_spec("bokeh") is None:
        return ""
    return link


class Counter:
    """Counts units and time; what comes of it is drawn by `show`.

    Attributes
    ----------
    phase, total, unit
        What is done, how many units there are (None: not known), and of what.
    done : float
        Units done so far.
    remark : str
    """

    def __init__(self, phase: str, total: float | None, unit: str) -> None:
        self.phase, self.total, self.unit = phase, total, unit
        self.done = 0.0
        self.remark = ""
        self.started = time.monotonic()

    def advance(self, amount: float = 1) -> None:
        """Count, and draw once the work has lasted two seconds."""
        self.done += amount
        self._show_if_long()

    def note(self, text: str) -> None:
        """Keep a remark, and draw it once the work has lasted two seconds."""
        self.remark = text
        self._show_if_long()

    def close(self) -> None:
        """End the phase."""

    def show(self) -> None:
        """Draw the present state."""

    def _show_if_long(self) -> None:
        if self.elapsed >= QUIET_SECONDS:
            self.show()

    @property
    def elapsed(self) -> float:
        """Seconds since the phase began."""
        return time.monotonic() - self.started

    def speed(self) -> str:
        """Return units per second as text; slow work shows a digit more."""
        rate = self.done / max(self.elapsed, 1e-9)
        return f"{rate:,.{1 if rate < 1000 else 0}f} {self.unit}/s"

    def words(self) -> str:
        """Return what is done, how fast, and how many seconds are left where that is known."""
        of = f" of {self.total:,.0f}" if self.total else ""
        words = [f"{self.done:,.0f}{of} {self.unit}"]
        if self.done:
            words.append(self.speed())
        if self.done and self.total and self.done < self.total:
            left = (self.total - self.done) * self.elapsed / self.done
            words.append(f"{left:.0f} s left")
        return ", ".join(words)
