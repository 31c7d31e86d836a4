"""Sizes and times that Dask's configuration holds under ``rfcdask:``."""

from __future__ import annotations

from typing import Any

import dask.config
from dask.utils import format_bytes, parse_bytes, parse_timedelta

MOST_SECONDS = 1e9
"""A longer time is too long for the clocks of threads."""


def configured_bytes(name: str, default: int) -> int:
    """Return a size in bytes."""
    return int(_configured(name, format_bytes(default), parse_bytes, "size", float("inf")))


def configured_seconds(name: str, default: str) -> float:
    """Return a time in seconds; ``null`` is one without end."""
    if dask.config.get(f"rfcdask.{name}", default) is None:
        return float("inf")
    return _configured(name, default, parse_timedelta, "time", MOST_SECONDS)


def _configured(name: str, default: str, read: Any, what: str, most: float) -> float:
    chosen = dask.config.get(f"rfcdask.{name}", default)
    # Dask reads words without a number as one of a unit: "" as one byte.
    is_plain = type(chosen) in (int, float) or any(map(str.isdigit, str(chosen)))
    try:
        found = float(read(chosen)) if is_plain else -1.0
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError):
        found = -1.0
    if isinstance(chosen, bool) or not 0 <= found <= most:
        raise ValueError(
            f"rfcdask.{name}={chosen!r} in Dask's configuration is no {what} such as {default!r}."
        )
    return found
