"""Numbers as people read them; what is missing or not a number becomes a dash."""

from __future__ import annotations

import math
from typing import Any

NONE = "\u2013"
LARGEST = 1e100
UNITS = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "kiB"))


def finite(value: Any) -> float | None:
    """Return a number, or None for anything that is none one could draw or name."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) <= LARGEST else None


def number(value: Any) -> str:
    """Return a number with three digits that count: 0.0123, 1.23, 12.3, 1,230."""
    found = finite(value)
    if found is None:
        return NONE
    size = abs(found)
    if found == 0:
        return "0"
    if size < 1e-4 or size >= 1e15:
        return f"{found:.2e}".replace("e-0", "e-").replace("e+", "e")
    if size >= 999.5:
        return f"{found:,.0f}"
    return f"{found:.{max(0, 2 - math.floor(math.log10(size)))}f}"


def count(value: Any) -> str:
    """Return a whole number with separators."""
    found = finite(value)
    return NONE if found is None else f"{found:,.0f}"


def share(value: Any, digits: int = 1) -> str:
    """Return a part of one as percent."""
    found = finite(value)
    return NONE if found is None else f"{100 * found:.{digits}f}%"


def size(value: Any) -> str:
    """Return bytes with a unit."""
    found = finite(value)
    if found is None:
        return NONE
    factor, unit = _unit(found)
    return f"{number(found / factor)} {unit}" if factor > 1 else f"{found:,.0f} B"


def seconds(value: Any) -> str:
    """Return a duration in the units one would say it in."""
    found = finite(value)
    if found is None:
        return NONE
    if found < 0.0995:
        return f"{1000 * found:.2g} ms" if found > 0 else "0 s"
    if found < 59.5:
        return f"{found:.1f} s" if found < 9.95 else f"{found:.0f} s"
    minutes, rest = divmod(round(found), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def estimated_time(seconds: float) -> str:
    """Return a duration that is only an estimate, in one unit and few digits."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.1f} h" if hours < 48 else f"{math.ceil(hours / 24)} days"


def micros(value: Any) -> str:
    """Return microseconds."""
    found = finite(value)
    return NONE if found is None else f"{number(found)} µs"


def tick(value: float) -> str:
    """Return a short label for an axis."""
    if value and abs(value) < 1e-4:
        return f"{value:.0e}".replace("e-0", "e-")
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.6g}M"
    return f"{value:,.6g}"


def percent_tick(value: float) -> str:
    """Return a part of one as a short label in percent."""
    return f"{100 * value:.6g}%"


def size_tick(value: float) -> str:
    """Return bytes as a short label."""
    factor, unit = _unit(value)
    return f"{value / factor:.3g} {unit}"


def _unit(value: float) -> tuple[int, str]:
    return next(((factor, unit) for factor, unit in UNITS if value >= factor), (1, "B"))
