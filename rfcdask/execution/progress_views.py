"""Three ways of showing progress: plain lines, a bar on a terminal, a bar in a notebook."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any

from rfcdask.display.html import render
from rfcdask.execution import progress
from rfcdask.execution.progress import Counter, dashboard_link

UPDATE_SECONDS = 0.2
"""Seconds between two updates in a notebook; each is a message to the browser."""

_links_told: set[str] = set()


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
        """Print a line when the last one is old enough, and once where the dashboard is."""
        if self.elapsed - self._last < self.every:
            return
        self._last = self.elapsed
        link = dashboard_link()
        if link and link not in _links_told:
            _links_told.add(link)
            _print(f"dashboard: {link}")
        _print(f"{self.phase}: {self.words()}{f' ({self.remark})' if self.remark else ''}")


def _print(text: str) -> None:
    """Write a line to stderr; where nobody reads it, the work goes on all the same."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


class _Screen:
    """The one live display a terminal can have, shared by phases within phases."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._bars: Any = None

    def add(self, counter: Counter) -> Any:
        """Return the number of a new bar."""
        with self._lock:
            if self._bars is None:
                self._bars = _new_display()
                self._bars.start()
            return self._bars.add_task(
                counter.phase, total=counter.total, speed="", remark="", link=dashboard_link()
            )

    def update(self, task: Any, counter: Counter) -> None:
        """Draw the state of a bar."""
        with self._lock:
            self._bars.update(
                task, completed=counter.done, speed=counter.speed(), remark=counter.remark
            )

    def remove(self, task: Any) -> None:
        """Take a bar down, and the display with the last of them."""
        with self._lock:
            self._bars.remove_task(task)
            if not self._bars.tasks:
                self._bars.stop()
                self._bars = None

    @property
    def bars(self) -> list[Any]:
        """The bars that are shown."""
        with self._lock:
            return [] if self._bars is None else list(self._bars.tasks)


SCREEN = _Screen()


def _new_display() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%", markup=False),
        TextColumn("{task.fields[speed]}", markup=False),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[remark]}", markup=False),
        TextColumn("{task.fields[link]}", style="dim", markup=False),
        console=Console(stderr=True),
        transient=True,
    )


class BarReporter(Counter):
    """Draws a bar once the work has lasted longer than two seconds, even where it says nothing."""

    def __init__(self, phase: str, total: float | None, unit: str) -> None:
        super().__init__(phase, total, unit)
        self._lock = threading.Lock()
        self._task: Any = None
        self._closed = False
        self._timer = threading.Timer(progress.QUIET_SECONDS, self.show)
        self._timer.daemon = True
        self._timer.start()

    def show(self) -> None:
        """Draw the bar."""
        with self._lock:
            if self._closed:
                return
            if self._task is None:
                self._task = SCREEN.add(self)
            SCREEN.update(self._task, self)

    def close(self) -> None:
        """Take the bar down."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._task is not None:
                SCREEN.remove(self._task)
                self._task = None


class NotebookReporter(Counter):
    """Shows a bar below the cell once the work has lasted two seconds, and leaves it there.

    It is one HTML output that is updated in place, without widgets.
    """

    _depth = 0

    def __init__(self, phase: str, total: float | None, unit: str) -> None:
        super().__init__(phase, total, unit)
        self._handle: Any = None
        self._last = -UPDATE_SECONDS
        self._outermost = NotebookReporter._depth == 0
        NotebookReporter._depth += 1

    def show(self) -> None:
        """Draw the bar, or bring it up to date when the last time is long enough ago."""
        if self.elapsed - self._last >= UPDATE_SECONDS:
            self._last = self.elapsed
            self._draw(self.html())

    def close(self) -> None:
        """Leave the finished bar of the outermost phase; inner ones give their place free."""
        NotebookReporter._depth -= 1
        if self._handle is not None:
            self._draw(self.html() if self._outermost else "")

    def _draw(self, html: str) -> None:
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))

    def html(self) -> str:
        """Return the bar and what stands beside it; everything given is shown as text."""
        return render(
            "progress",
            phase=self.phase,
            done=f"{self.done:.6g}",
            total=f"{self.total:.6g}" if self.total else "",
            words=f"{self.words()}, {self.remark}" if self.remark else self.words(),
            link=dashboard_link(),
        )
