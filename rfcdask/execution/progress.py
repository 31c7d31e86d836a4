"""Progress of long work behind one small protocol.

Everything that may take more than two seconds reports to a :class:`Reporter`. What is drawn is the
reporter's business: a bar on a terminal or in a notebook, plain lines in a log,
nothing at all. The choice is ``rfcdask.progress`` in Dask's configuration: ``auto`` (a bar where
somebody can see it, else nothing), ``plain`` (lines on stderr) or ``off``.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from rfcdask.execution.configuration import configured

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
    choice = configured("progress", "auto") if progress is None else progress
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
    from rfcdask.execution.cluster import current_client  # which reports its waits here

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
        from rfcdask.display.html import render

        return render(
            "progress",
            phase=self.phase,
            done=f"{self.done:.6g}",
            total=f"{self.total:.6g}" if self.total else "",
            words=f"{self.words()}, {self.remark}" if self.remark else self.words(),
            link=dashboard_link(),
        )
