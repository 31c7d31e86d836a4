"""Words for what was measured."""

from __future__ import annotations

from rfcdask.report.measured import Measured
from rfcdask.svg.numbers import count, micros, size

SAME_SPEED = 1.15
"""Two times a row whose ratio is below this count as the same: clocks are not better."""
_PLURALS = {
    "compressed": "compressed features",
    "compressed-labels": "compressed features with labels",
    "random": "plain random features (RFM)",
}


def name_of(row: Measured) -> str:
    """Return a method as it stands in a sentence."""
    return _PLURALS.get(row.method, row.title)


def verb(row: Measured, one: str = "is", many: str = "are") -> str:
    """Return the form of a verb that goes with the method's name."""
    return many if row.method in _PLURALS else one


def sized(row: Measured) -> str:
    """Return a method with its number of features."""
    name, n = name_of(row), count(row.features)
    return f"{n} {name}" if row.method in _PLURALS else f"{name} with {n} features"


def upper(sentence: str) -> str:
    """Return a sentence that begins with a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def times(ratio: float) -> str:
    """Return how many times one is the other."""
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:,.0f}"


def costs(row: Measured) -> str:
    """Return time a row and size in brackets, as far as they are known."""
    said = []
    if row.micros is not None:
        said.append(f"{micros(row.micros)} a row")
    if row.size is not None:
        said.append(size(row.size))
    return f" ({', '.join(said)})" if said else ""


def speed(one: Measured, other: Measured) -> str:
    """Say which of two is faster; with their sizes where these differ."""
    if not one.micros or not other.micros:
        return ""
    name = name_of if one.features == other.features else sized
    ratio = other.micros / one.micros
    if 1 / SAME_SPEED < ratio < SAME_SPEED:
        return f"{name(one)} and {name(other)} are equally fast a row"
    fast, slow = (one, other) if ratio > 1 else (other, one)
    return (
        f"{name(fast)} {verb(fast)} {times(max(ratio, 1 / ratio))} times faster a row than "
        f"{name(slow)} ({micros(fast.micros)} against {micros(slow.micros)})"
    )
