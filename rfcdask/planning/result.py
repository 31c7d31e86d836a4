"""A plan: what work will take, shown before it begins."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from dask.utils import format_bytes

from rfcdask.display.charts import stacks
from rfcdask.display.html import aligned, render_repr


class PlanError(MemoryError):
    """Work that will not fit; says why and what to change."""


@dataclass(frozen=True)
class Plan:
    """What a piece of work will take; made by :func:`rfcdask.plan`.

    Attributes
    ----------
    blocks, tasks : int
        Blocks of rows, and tasks in all steps.
    bytes_read, bytes_written : int
        Uncompressed.
    peak_worker_bytes : int
        The most memory a worker process takes; 0 where the threads of this process do the work.
    peak_driver_bytes : int
        The most memory this process takes.
    seconds : float or None
        Expected time of all steps; None when nothing was measured (``probe=False``).
    steps : dict of str to float or None
        Expected seconds of each step.
    memory : dict
        The largest parts of both peaks, in bytes, by name.
    problems : list of str
        What will not fit, each with the remedy.
    settings : dict
        The numbers behind all this.
    """

    blocks: int
    tasks: int
    bytes_read: int
    bytes_written: int
    peak_worker_bytes: int
    peak_driver_bytes: int
    seconds: float | None
    steps: dict[str, float | None]
    memory: dict[str, dict[str, int]]
    problems: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether there is memory and room for it."""
        return not self.problems

    def check(self) -> None:
        """Raise when the work will not fit.

        Raises
        ------
        PlanError
            With all problems and their remedies.
        """
        if self.problems:
            raise PlanError(" ".join(self.problems))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and words, as for JSON."""
        return asdict(self) | {"fits": self.fits}

    def facts(self) -> list[tuple[str, str]]:
        """Return what a reader wants to know, as pairs of name and text."""
        workers = self.settings.get("workers", 0)
        shown = [("blocks", f"{self.blocks:,}"), ("tasks", f"{self.tasks:,}")]
        shown.append(("read", format_bytes(self.bytes_read)))
        if self.bytes_written:
            shown.append(("written", format_bytes(self.bytes_written)))
        if workers:
            peak = format_bytes(self.peak_worker_bytes)
            shown.append(("memory of a worker", f"up to {peak} ({workers} of them)"))
        shown.append(("memory of this process", f"up to {format_bytes(self.peak_driver_bytes)}"))
        for name, seconds in self.steps.items():
            if seconds is not None and len(self.steps) > 1:
                shown.append((f"time of {name}", f"about {readable_time(seconds)}"))
        if self.seconds is not None:
            shown.append(("time", f"about {readable_time(self.seconds)}"))
        shown.append(("fits", "yes" if self.fits else "no"))
        return shown

    def __repr__(self) -> str:
        wrong = (f"  ! {text}" for text in self.problems)
        return "\n".join([aligned("<rfcdask.Plan>", self.facts()), *wrong])

    def _repr_html_(self) -> str:
        return render_repr(title="rfcdask.Plan", facts=self.facts(), problems=self.problems)

    def plot(self, ax: Any = None) -> Any:
        """Draw the memory of both kinds of process by its parts; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
        peaks = {"worker": self.peak_worker_bytes, "driver": self.peak_driver_bytes}
        titles = {"worker": "a worker", "driver": "driver"}
        bars = {
            titles[kind]: {part: size / 1e9 for part, size in self.memory[kind].items()}
            for kind in titles
            if peaks[kind]
        }
        return stacks(bars, "GB at the peak").plot(ax)


def readable_time(seconds: float) -> str:
    """Return seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.1f} h" if hours < 48 else f"{math.ceil(hours / 24)} days"
