"""What Dask's configuration holds under ``rfcdask:``: sizes, times, and how progress is shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import dask.config
from dask.utils import format_bytes, parse_bytes, parse_timedelta

MOST_SECONDS = 1e9
"""A longer time is too long for the clocks of threads."""


def configured(name: str, default: Any) -> Any:
    """Return what is set, or the default."""
    if not isinstance(found := dask.config.get("rfcdask", {}), Mapping):
        raise ValueError(
            f"rfcdask={found!r} in Dask's configuration holds no settings: leave it out, or name "
            "one below it (DASK_RFCDASK__PROGRESS=plain in the environment)."
        )
    return dask.config.get(f"rfcdask.{name}", default)


def with_progress(progress: Any) -> AbstractContextManager[Any]:
    """Set how progress is shown within the block; None leaves it as it is."""
    configured("progress", None)  # where it can be set at all
    return dask.config.set({} if progress is None else {"rfcdask.progress": progress})


def configured_bytes(name: str, default: int) -> int:
    """Return a size in bytes."""
    return int(_configured(name, format_bytes(default), parse_bytes, "size", float("inf")))


def configured_seconds(name: str, default: str) -> float:
    """Return a time in seconds; ``null`` is one without end."""
    if configured(name, default) is None:
        return float("inf")
    return _configured(name, default, parse_timedelta, "time", MOST_SECONDS)


def _configured(name: str, default: str, read: Any, what: str, most: float) -> float:
    chosen = configured(name, default)
    found = as_number(chosen, read, most)
    if found is None:
        raise ValueError(
            f"rfcdask.{name}={chosen!r} in Dask's configuration is no {what} such as {default!r}."
        )
    return found


def as_number(value: Any, read: Any, most: float = float("inf")) -> float | None:
    """Return what Dask reads in a size or time, or None where it is none of at most `most`."""
    # Dask reads words without a number as one of a unit: "" as one byte.
    is_plain = type(value) in (int, float) or any(map(str.isdigit, str(value)))
    try:
        found = float(read(value)) if is_plain else -1.0
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError):
        found = -1.0
    return found if 0 <= found <= most and not isinstance(value, bool) else None
