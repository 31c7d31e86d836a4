"""Progress of long work behind one small protocol.

Everything that may take more than two seconds reports to a :class:`Reporter`. What is drawn is the
reporter's business: a bar on a terminal or in a notebook, plain lines in a log, nothing at all.
The choice is ``rfcdask.progress`` in Dask's configuration: ``auto`` (a bar where somebody can see
it, else nothing), ``plain`` (lines on stderr) or ``off``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import dask.config

QUIET_SECONDS = 2.0
"""Work shorter than this shows nothing."""


class Reporter(Protocol):
    """Receives what a phase of work says of itself."""

    def advance(self, amount: float = 1) -> None:
        """Count `amount` more units as done."""

    def note(self, text: str) -> None:
        """Show a short remark beside the bar."""


class SilentReporter:
    """Shows nothing."""

    def advance(self, amount: float = 1) -> None:
        """Count nothing."""

    def note(self, text: str) -> None:
        """Drop the remark."""


class LineReporter:
    """Writes a plain line to stderr at most every `every` seconds."""

    def __init__(self, phase: str, total: float | None, unit: str, every: float = 5.0) -> None:
        self.phase, self.total, self.unit, self.every = phase, total, unit, every
        self.done = 0.0
        self.started = time.monotonic()
        self._last = self.started + QUIET_SECONDS - every
        self._note = ""

    def advance(self, amount: float = 1) -> None:
        """Count, and print when the last line is old enough."""
        self.done += amount
        now = time.monotonic()
        if now - self._last >= self.every:
            self._last = now
            print(self._line(now), file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Keep the remark for the next line."""
        self._note = f" ({text})" if text else ""

    def _line(self, now: float) -> str:
        rate = self.done / max(now - self.started, 1e-9)
        line = f"{self.phase}: {self.done:,.0f}"
        if self.total:
            left = (self.total - self.done) / rate if rate > 0 else float("inf")
            line += (
                f" of {self.total:,.0f} {self.unit}, {rate:,.1f} {self.unit}/s, {left:.0f} s left"
            )
        else:
            line += f" {self.unit}, {rate:,.1f} {self.unit}/s"
        return line + self._note


class BarReporter:
    """Draws a rich progress bar once the work has lasted longer than two seconds."""

    def __init__(self, phase: str, total: float | None, unit: str) -> None:
        self.phase, self.total, self.unit = phase, total, unit
        self.done = 0.0
        self.started = time.monotonic()
        self._note = ""
        self._bar: Any = None
        self._task: Any = None

    def advance(self, amount: float = 1) -> None:
        """Count, and draw when two seconds have passed."""
        self.done += amount
        elapsed = time.monotonic() - self.started
        if self._bar is None and elapsed > QUIET_SECONDS:
            self._open()
        if self._bar is not None:
            rate = f"{self.done / elapsed:,.0f} {self.unit}/s"
            self._bar.update(self._task, completed=self.done, rate=rate, remark=self._note)

    def note(self, text: str) -> None:
        """Show the remark at the end of the bar."""
        self._note = text

    def close(self) -> None:
        """Take the bar down."""
        if self._bar is not None:
            self._bar.stop()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%" if self.total else ""),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[remark]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self.phase, total=self.total, rate="", remark="")


ReporterFactory = Callable[[str, "float | None", str], Reporter]


def _somebody_watches() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


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
        callable ``(phase, total, unit) -> Reporter`` brings its own. None asks the configuration.
    """
    reporter = _make_reporter(phase, total, unit, progress)
    try:
        yield reporter
    finally:
        if isinstance(reporter, BarReporter):
            reporter.close()


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
        return BarReporter(phase, total, unit)
    return SilentReporter()
