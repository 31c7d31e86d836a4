"""From values to places on an axis, with round numbers as ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 2.0, 3.0, 5.0, 7.0))


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis from values low..high to places start..stop."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value; values outside stay at the ends."""
        low, high, value = (self._measure(v) for v in (self.low, self.high, value))
        part = (value - low) / (high - low)
        return self.start + min(max(part, 0.0), 1.0) * (self.stop - self.start)

    def _measure(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def ticks(self, most: int = 5, binary: bool = False) -> list[float]:
        """Return up to `most` round numbers inside the axis; powers of two for bytes."""
        found: list[float] = []
        if self.log:
            found = (_binary_ticks if binary else _log_ticks)(self.low, self.high, most)
        return found or _linear_ticks(self.low, self.high, most)


def scale_for(
    values: Iterable[float],
    start: float,
    stop: float,
    *,
    log: bool = False,
    zero: bool = False,
    highest: float | None = None,
) -> Scale:
    """Return an axis that shows all values with a little room around them.

    Parameters
    ----------
    values
        What is to be shown.
    start, stop : float
        Places of the ends.
    log : bool
        Logarithmic, unless a value is not positive.
    zero : bool
        Begin a linear axis at 0.
    highest : float, optional
        No room is left beyond this value.
    """
    found = list(values) or [0.0, 1.0]
    low, high = min(found), max(found)
    if log and low > 0:
        room = max(0.06 * math.log10(high / low), 0.08 if high > low else 0.3)
        return Scale(low / 10**room, high * 10**room, start, stop, log=True)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    bottom = 0.0 if zero and low >= 0 else low - room
    top = high + room
    if highest is not None and high <= highest:
        top = max(min(top, highest), bottom + 1e-12)
    return Scale(bottom, top, start, stop)


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    found: list[float] = []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [d for d in decades if low <= 10.0**d <= high]
    every = max(1, -(-len(inside) // most))
    for steps in _STEPS:
        kept = inside[::every] if steps == (1.0,) else decades
        ticks = [s * 10.0**d for d in kept for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) > most:
            break
        found = ticks
    return [float(f"{value:.12g}") for value in found] if len(found) > 1 else []


def _binary_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    every = max(1, -(-(last - first + 1) // most))
    found = [2.0**k for k in range(first, last + 1) if k % every == 0]
    if len(found) > 1:
        return found
    unit = 1024.0 ** math.floor(math.log2(high) / 10)
    return [value * unit for value in _linear_ticks(low / unit, high / unit, most)]


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1.0, 2.0, 2.5, 5.0, 10.0) if s * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Return at most `most` evenly spread positions in a sequence, with first and last."""
    n = len(values)
    if n <= most:
        return list(range(n))
    return sorted({round(k * (n - 1) / (most - 1)) for k in range(most)})
