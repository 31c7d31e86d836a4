"""Mean, variance, minimum and maximum of every column, block by block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from rfcdask.kernels.types import Array, FloatArray

TILE_ROWS = 4096
"""Rows taken to float64 at once, so that the statistics of a block need no second block."""


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of the columns of some rows (float64)."""

    count: int
    mean: FloatArray
    m2: FloatArray
    minimum: FloatArray
    maximum: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Variance of each column, divided by the number of rows."""
        # The mean of equal values may be off by a bit, and the variance is then not quite zero.
        return np.where(self.minimum == self.maximum, 0.0, self.m2 / self.count)

    def attributes(self) -> dict[str, list[float | None]]:
        """Return what a store keeps; JSON knows no infinity, so None stands for it."""
        kept = {
            "mean": self.mean,
            "variance": self.variance,
            "min": self.minimum,
            "max": self.maximum,
        }
        return {
            name: [value if np.isfinite(value) else None for value in values.tolist()]
            for name, values in kept.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain lists; Python writes floats so that they come back bit for bit."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "m2": self.m2.tolist(),
            "min": self.minimum.tolist(),
            "max": self.maximum.tolist(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ColumnStats:
        """Rebuild what `to_json` wrote."""
        names = ("mean", "m2", "min", "max")
        return cls(data["count"], *(np.asarray(data[name], np.float64) for name in names))


def column_stats(X: Array) -> ColumnStats:
    """Return the statistics of a dense block, in tiles and with a stable update."""
    # Squares of values near the end of float64 overflow; the variance is then infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        return merge(_tile_stats(X[a : a + TILE_ROWS]) for a in range(0, len(X), TILE_ROWS))


def merge(parts: Iterable[ColumnStats]) -> ColumnStats:
    """Join the statistics of disjoint rows, in the given order (Chan, Golub, LeVeque)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return reduce(_join, parts)


def _tile_stats(tile: Array) -> ColumnStats:
    wide = tile.astype(np.float64)
    low, high = wide.min(axis=0), wide.max(axis=0)
    mean = wide.mean(axis=0)
    wide -= mean
    return ColumnStats(len(tile), mean, np.einsum("ij,ij->j", wide, wide), low, high)


def _join(a: ColumnStats, b: ColumnStats) -> ColumnStats:
    count = a.count + b.count
    delta = b.mean - a.mean
    return ColumnStats(
        count,
        a.mean + delta * (b.count / count),
        a.m2 + b.m2 + delta**2 * (a.count * b.count / count),
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )
