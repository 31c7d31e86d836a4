"""The width of the kernel from which features begin to learn, chosen by short trials.

With many rows a narrower start than the best width of a fixed map is right, because the features
then move to where they are needed. No property of the rows tells how much narrower. So several
widths are tried on the same rows: a short training each, judged on rows held out; the better ones
go on to a training on more rows (successive halving).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rfcdask.kernels.arrays import Matrix
from rfcdask.kernels.distances import Sum, rowwise
from rfcdask.kernels.exact import Kernel
from rfcdask.linear.kernel.optimize import Judgement, OptimizerConfig, OptimizerState, TrainingRows

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Multiples of the frequencies of the median distance; for "rbf" gamma has their square."""
ROUNDS = ((10_000, 3, 10), (40_000, 2, 3), (120_000, 1, 8))
"""Of each round: the rows that a trial learns from, the widths that are left after it, and the part
of the whole training that a trial may cost at most."""


class Trial(NamedTuple):
    """One width and what became of it."""

    gamma: float
    visits: int
    judgement: Judgement
    training: OptimizerConfig
    state: OptimizerState

    @property
    def loss(self) -> float:
        """The loss of the best head on rows held out."""
        return float(self.judgement.losses.min())


def median_gamma(kernel: Kernel, X: Matrix, rng: np.random.Generator) -> float:
    """Return the gamma that belongs to the median distance of sampled rows, or 1 without any."""
    n = X.shape[0]
    first, second = rng.integers(0, n, 4000), rng.integers(0, n, 4000)
    kind: Sum = "absolutes" if kernel.distance == "absolutes" else "squares"
    distances = rowwise(kind, X[first].astype(np.float64), X[second].astype(np.float64))
    distances = distances[distances > 0]
    if not len(distances):
        return 1.0
    middle = float(np.median(distances))
    return 1 / middle if kind == "absolutes" else float(kernel.gamma_of_spread(middle))


def scaled_gamma(kernel: Kernel, gamma: float, factor: float) -> float:
    """Return the gamma whose frequencies are those of `gamma` times a factor."""
    if kernel.distance == "absolutes":
        return gamma * factor
    return gamma * float(kernel.gamma_of_spread(factor**-2) / kernel.gamma_of_spread(1.0))


def choose_width(
    gammas: Sequence[float],
    try_width: Callable[[float, int], Trial],
    all_visits: int,
) -> list[Trial]:
    """Return all trials, the last one with the chosen width.

    Parameters
    ----------
    gammas : sequence of float
    try_width : callable
        ``try_width(gamma, visits)`` trains on that many rows and judges on rows held out.
    all_visits : int
        Rows that the training itself will learn from, counted once per epoch.
    """
    trials: list[Trial] = []
    left = list(gammas)
    for visits, keep in _rounds(all_visits):
        found = [try_width(gamma, visits) for gamma in left]
        found.sort(key=lambda trial: -trial.loss)
        trials += found
        left = [trial.gamma for trial in found[-keep:]]
    return trials


def _rounds(all_visits: int) -> Iterator[tuple[int, int]]:
    """Yield the rows that a trial of each round learns from, and the widths that are left then."""
    for number, (visits, keep, part) in enumerate(ROUNDS):
        if number > 1 and visits > all_visits / part:
            return
        yield min(visits, -(-all_visits // part)), keep


def trial_visits(all_visits: int) -> int:
    """Return the rows that all trials together learn from."""
    total, tried = 0, len(FACTORS)
    for visits, keep in _rounds(all_visits):
        total, tried = total + tried * visits, keep
    return total


def held_rows(n_rows: int, fraction: float) -> int:
    """Return how many rows judge; none where too few would."""
    wanted = round(fraction * n_rows)
    return 0 if wanted < SMALLEST_HELD else min(wanted, LARGEST_HELD)


SMALLEST_HELD, LARGEST_HELD = 10, 10_000
TRIAL_HELD = 4000
"""Held-out rows that judge a trial."""


def few(rows: TrainingRows, n: int) -> TrainingRows:
    """Return the first n of some rows."""
    return rows.take(slice(0, n))
