"""What the run cost: time and memory a phase, and how good the plan was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rfcdask.report.measured import Results, section
from rfcdask.report.overview import total_seconds
from rfcdask.report.parts import facts, measure, note, part, table
from rfcdask.svg.markup import Markup, el
from rfcdask.svg.numbers import NONE, count, finite, number, seconds, size

PHASES = {
    "data": "bring the data to disk",
    "sample": "fetch a sample",
    "linear": "train a linear model",
    "kernel": "settle the kernel",
    "select": "choose features",
    "compare": "compare methods",
    "report": "write the report",
}
"""What a phase does, where its name does not say it."""
PLANNED = {"fit": "select", "transform": "transform", "train": "train"}
"""Which phase a step of a plan is about."""


def phases(results: Results) -> Markup | None:
    """Return time and memory of each phase; None when none was recorded."""
    found = [dict(phase) for phase in results.get("phases") or ()]
    if not found:
        return None
    longest = max((finite(phase.get("seconds")) or 0.0 for phase in found), default=0.0) or 1.0
    largest = max((finite(phase.get("peak_bytes")) or 0.0 for phase in found), default=0.0) or 1.0
    rows = [_phase(phase, longest, largest) for phase in found]
    body = table(("phase", "time", "peak memory", "rows a second"), rows, class_="plain bars")
    peak = max((finite(phase.get("peak_bytes")) or 0.0 for phase in found), default=0.0)
    said = f"Together {seconds(total_seconds(results))}"
    said += f"; the highest peak was {size(peak)}." if peak else "."
    return part("Time and memory", "costs", body, note(said))


def _phase(phase: Mapping[str, Any], longest: float, largest: float) -> tuple[Any, ...]:
    took, peak = finite(phase.get("seconds")), finite(phase.get("peak_bytes"))
    rows = finite(phase.get("rows"))
    speed = count(rows / took) if rows and took else NONE
    return (
        PHASES.get(str(phase.get("name")), phase.get("name", "?")),
        measure(seconds(took), (took or 0.0) / longest),
        measure(size(peak), (peak or 0.0) / largest),
        speed,
    )


def plan(results: Results) -> Markup | None:
    """Set what was planned against what was measured; None without a plan."""
    planned = section(results, "plan")
    if not planned:
        return None
    problems = [str(problem) for problem in planned.get("problems") or ()]
    return part(
        "Plan and measurement",
        "plan",
        _against_measured(results, planned),
        facts(_planned(planned), "facts brief"),
        el("ul", *(el("li", problem) for problem in problems)) if problems else None,
    )


def _against_measured(results: Results, planned: dict[str, Any]) -> Markup | None:
    """Compare with the phases that were planned; the others have no part in it."""
    steps = planned.get("steps") or PLANNED
    names = {PLANNED.get(str(step), str(step)) for step in steps}
    done = [phase for phase in results.get("phases") or () if phase.get("name") in names]
    took = [value for phase in done if (value := finite(phase.get("seconds"))) is not None]
    peaks = [value for phase in done if (value := finite(phase.get("peak_bytes"))) is not None]
    what = " and ".join(PHASES.get(str(phase["name"]), str(phase["name"])) for phase in done)
    rows = [
        _line(f"time to {what}", total(planned.get("seconds")), sum(took) or None, seconds),
        _line(
            "peak memory then, all processes",
            _planned_peak(results, planned),
            max(peaks, default=None),
            size,
        ),
    ]
    kept = [row for row in rows if row is not None]
    head = ("", "planned", "measured", "ratio")
    return table(head, kept, caption="Plan and measurement") if kept and done else None


def _planned_peak(results: Results, planned: dict[str, Any]) -> float | None:
    worker, driver = (finite(planned.get(f"peak_{who}_bytes")) for who in ("worker", "driver"))
    workers = finite(section(planned, "settings").get("workers"))
    if workers is None:
        workers = finite(section(results, "machine").get("workers"))
    return None if worker is None or workers is None else workers * worker + (driver or 0.0)


def _planned(planned: dict[str, Any]) -> list[tuple[str, str | None]]:
    shown = [
        ("blocks", "blocks", count),
        ("tasks", "tasks", count),
        ("to read", "bytes_read", size),
        ("to write", "bytes_written", size),
        ("time", "seconds", seconds),
        ("peak of a worker", "peak_worker_bytes", size),
        ("peak of the driver", "peak_driver_bytes", size),
    ]
    found = [(name, total(planned.get(key)), show) for name, key, show in shown]
    return [(name, show(value) if value is not None else None) for name, value, show in found]


def total(value: Any) -> float | None:
    """Return a number, or the sum of the numbers of each step."""
    if isinstance(value, Mapping):
        known = [v for v in map(finite, value.values()) if v is not None]
        return sum(known) if known else None
    return finite(value)


def _line(name: str, planned: Any, measured: Any, show: Any) -> tuple[str, ...] | None:
    if planned is None and measured is None:
        return None
    ratio = number(measured / planned) if planned and measured is not None else NONE
    return name, show(planned), show(measured), ratio
