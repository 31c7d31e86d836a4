"""A comparison as the report reads it, and how far its accuracies can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rfcdask.svg.numbers import finite
from rfcdask.svg.styles import title_of

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """One method at one number of features; what was not measured is None."""

    method: str
    features: int
    error: float | None
    accuracy: float | None
    fit_seconds: float | None
    micros: float | None
    size: float | None

    @property
    def title(self) -> str:
        """The name of the method for people."""
        return title_of(self.method)

    @property
    def ours(self) -> bool:
        """Whether it is one of our own maps."""
        return self.method.startswith("compressed")

    @property
    def nystroem(self) -> bool:
        """Whether it is a Nyström map."""
        return self.method.startswith("nystroem")


def section(results: Results, name: str) -> dict[str, Any]:
    """Return a part of the results; empty where it is missing."""
    found = results.get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def comparison_of(results: Results) -> list[Measured]:
    """Return the rows of the comparison."""
    return [
        Measured(
            str(row.get("method", "?")),
            int(finite(row.get("n_components")) or 0),
            finite(row.get("kernel_error")),
            finite(row.get("accuracy")),
            finite(row.get("fit_seconds")),
            finite(row.get("microseconds_per_row")),
            finite(row.get("model_bytes")),
        )
        for row in results.get("comparison") or ()
    ]


def compared_rows(results: Results) -> int:
    """Return on how many held-out rows the methods were compared; 0 when nobody says.

    A comparison may look at fewer rows than the model is scored on: what it says itself counts
    first, then the setting, then the data.
    """
    said = [row.get("test_rows") for row in results.get("comparison") or ()]
    settings = section(results, "settings")
    said += [settings.get("compare_test_rows"), settings.get("n_test")]
    held = finite(section(results, "data").get("test_rows"))
    for value in said:
        rows = finite(value)
        if rows:
            return int(min(rows, held) if held else rows)
    return int(held or 0)


def standard_error(accuracy: float, rows: int) -> float:
    """Return the binomial standard error of an accuracy measured on that many rows."""
    return math.sqrt(max(accuracy * (1 - accuracy), 0.0) / rows) if rows else 0.0


def as_accurate(one: float, best: float, rows: int) -> bool:
    """Tell whether a difference is within the sampling error of the test rows.

    The error is that of a difference of two independent measurements. All methods are judged by
    the same rows, for which it is cautious.
    """
    margin = math.hypot(standard_error(one, rows), standard_error(best, rows))
    return best - one <= margin + 1e-12


def best_accuracy(rows: Iterable[Measured]) -> Measured | None:
    """Return the most accurate row."""
    known = [row for row in rows if row.accuracy is not None]
    return max(known, key=lambda row: row.accuracy or 0.0, default=None)
