"""Bars in a notebook: one HTML output that is updated in place, without widgets."""

from __future__ import annotations

from typing import Any

from rfcdask.display.html import render
from rfcdask.execution.progress.link import dashboard_link
from rfcdask.execution.progress.reporter import Counter

EVERY = 0.2
"""Seconds between two updates; each is a message to the browser."""


class NotebookReporter(Counter):
    """Shows a bar below the cell once the work has lasted two seconds, and leaves it there."""

    _depth = 0

    def __init__(self, phase: str, total: float | None, unit: str) -> None:
        super().__init__(phase, total, unit)
        self._handle: Any = None
        self._last = -EVERY
        self._outermost = NotebookReporter._depth == 0
        NotebookReporter._depth += 1

    def show(self) -> None:
        """Draw the bar, or bring it up to date when the last time is long enough ago."""
        if self.elapsed - self._last < EVERY:
            return
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
        words = [f"{self.done:,.0f}{f' of {self.total:,.0f}' if self.total else ''} {self.unit}"]
        if self.done:
            words.append(self.speed())
        if self.left:
            words.append(f"{self.left:.0f} s left")
        words += [self.remark] if self.remark else []
        return render(
            "progress",
            phase=self.phase,
            done=f"{self.done:.6g}",
            total=f"{self.total:.6g}" if self.total else "",
            words=", ".join(words),
            link=dashboard_link(),
        )
