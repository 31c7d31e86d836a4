"""Plain lines, for logs and everything that is not a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress

from rfcdask.execution.progress.link import dashboard_link
from rfcdask.execution.progress.reporter import Counter

_told: set[str] = set()


class LineReporter(Counter):
    """Writes a plain line to stderr at most every `every` seconds."""

    def __init__(self, phase: str, total: float | None, unit: str, every: float = 5.0) -> None:
        super().__init__(phase, total, unit)
        self.every = every
        self._last = -every

    def note(self, text: str) -> None:
        """Keep the remark for the next line."""
        self.remark = text

    def show(self) -> None:
        """Print a line when the last one is old enough."""
        if self.elapsed - self._last >= self.every:
            self._last = self.elapsed
            _tell_the_link()
            say(self._line())

    def _line(self) -> str:
        of = f" of {self.total:,.0f}" if self.total else ""
        line = f"{self.phase}: {self.done:,.0f}{of} {self.unit}"
        if self.done:
            line += f", {self.speed()}"
        if self.left is not None:
            line += f", {self.left:.0f} s left"
        return f"{line} ({self.remark})" if self.remark else line


def _tell_the_link() -> None:
    """Print where the dashboard is, once."""
    link = dashboard_link()
    if link and link not in _told:
        _told.add(link)
        say(f"dashboard: {link}")


def say(text: str) -> None:
    """Write a line to stderr; where nobody reads it, the work goes on all the same."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)
