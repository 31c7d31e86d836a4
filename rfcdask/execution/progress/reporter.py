"""The protocol that all ways of showing progress follow, and the counting they share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

QUIET_SECONDS = 2.0
"""Work shorter than this shows nothing."""


class Reporter(Protocol):
    """Receives what a phase of work says of itself."""

    def advance(self, amount: float = 1) -> None:
        """Count `amount` more units as done."""

    def note(self, text: str) -> None:
        """Show a short remark beside the bar."""


ReporterFactory = Callable[[str, "float | None", str], Reporter]


class SilentReporter:
    """Shows nothing."""

    def advance(self, amount: float = 1) -> None:
        """Count nothing."""

    def note(self, text: str) -> None:
        """Drop the remark."""


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

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.done / max(self.elapsed, 1e-9)

    @property
    def left(self) -> float | None:
        """Expected seconds to the end; None when nobody can tell."""
        if not self.total or not self.done:
            return None
        return max(self.total - self.done, 0.0) / self.rate

    def speed(self) -> str:
        """Return units a second as text; slow work shows a digit more."""
        return f"{self.rate:,.{1 if self.rate < 1000 else 0}f} {self.unit}/s"
