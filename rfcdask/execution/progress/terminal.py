"""Bars on a terminal."""

from __future__ import annotations

import threading
from typing import Any

from rfcdask.execution.progress.link import dashboard_link
from rfcdask.execution.progress.reporter import QUIET_SECONDS, Counter


class _Screen:
    """The one live display a terminal can have, shared by phases within phases."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._bars: Any = None
        self._open = 0

    def add(self, counter: Counter) -> Any:
        """Return the number of a new bar."""
        with self._lock:
            if self._bars is None:
                self._bars = _new_display()
                self._bars.start()
            self._open += 1
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
            self._open -= 1
            if not self._open:
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
        self._timer = threading.Timer(QUIET_SECONDS, self.show)
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
