"""One step of training as a pure function: a state and some blocks in, a new state out.

Nothing is changed in place, so a task that is tried again, here or on another worker, gives the
same state and never trains twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rfcdask.kernels.types import Array
from rfcdask.linear.inputs import dense, locate, require_good_weights
from rfcdask.linear.labels import encode
from rfcdask.linear.sgd import schedule as order
from rfcdask.linear.sgd.losses import (
    SQUARED,
    STEP_GAIN,
    classification_slopes,
    regression_slopes,
)
from rfcdask.linear.sgd.optimizer import MIX, Group, Pace, Preconditioner, descend
from rfcdask.linear.sgd.preconditioner import make_preconditioner


class State(NamedTuple):
    """Everything that training changes."""

    W: Array  # (J + 1, outputs), the intercepts last
    mean: Array
    step: int = 0
    loss: float = 0.0  # summed over the rows of this epoch so far
    rows: float = 0.0
    held_out_loss: float = 0.0
    held_out_rows: float = 0.0


@dataclass(frozen=True)
class Lesson:
    """What is being learned: settings that stay the same from the first step to the last."""

    loss: int
    outputs: int
    alpha: float
    eta: float
    horizon: float
    batch: int
    seed: int
    intercept: bool = True
    epsilon: float = 0.1
    held_out: float = 0.0
    weighted: bool = False
    ordered: bool = False  # rows are known to be sorted, so a few blocks say little of the others
    starts: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    classes: Array = field(default_factory=lambda: np.zeros(0))
    class_weights: Array = field(default_factory=lambda: np.ones(0))

    @property
    def classifies(self) -> bool:
        """Whether targets are classes."""
        return self.loss < SQUARED

    def pace(self, P: Preconditioner) -> Pace:
        """Return the step size that the noise of a batch allows."""
        share = self.batch / (self.batch + P.spread)
        eta = self.eta * STEP_GAIN[self.loss] * share
        constant = float(self.intercept)
        return Pace(self.loss, self.epsilon, self.alpha, eta, self.horizon, self.batch, constant)


class _Part(NamedTuple):
    """One block, ready for the kernels."""

    X: Array
    codes: Array
    targets: Array
    weights: Array


def _prepare(lesson: Lesson, block: tuple[Any, ...], index: int) -> _Part:
    X, y = dense(block[0]), np.asarray(block[1])
    weights = np.ones(len(X), np.float32)
    if lesson.weighted:
        weights = np.asarray(block[2], np.float32)
        require_good_weights(weights, index)
    if not lesson.classifies:
        targets = y[:, None] if y.ndim == 1 else y
        if not np.isfinite(targets).all():
            raise locate(X, y, index, int(lesson.starts[index])) or AssertionError
        return _Part(X, np.zeros(0, np.int64), targets.astype(np.float64), weights)
    codes = encode(y, lesson.classes)
    return _Part(
        X, codes, np.zeros((0, 1)), (weights * lesson.class_weights[codes]).astype(np.float32)
    )


def learn(
    state: State,
    lesson: Lesson,
    P: Preconditioner,
    numbers: tuple[int, ...],
    epoch: int,
    number: int,
    *blocks: tuple[Any, ...],
) -> State:
    """Learn from one group of blocks; a pure function.

    Parameters
    ----------
    state : State
        What came before.
    lesson, P
        What is learned, and in which geometry.
    numbers : tuple of int
        The numbers of the blocks.
    epoch, number : int
        Where in the run this group stands: with the seed they fix the order of the rows.
    *blocks : tuples (X, y) or (X, y, weights)
    """
    parts = [_prepare(lesson, b, i) for b, i in zip(blocks, numbers, strict=True)]
    masks = [
        order.held_out_rows(len(part.X), lesson.held_out, lesson.seed, i)
        for part, i in zip(parts, numbers, strict=True)
    ]
    group = _make_group(parts, masks, lesson, epoch, number)
    W, mean = state.W.copy(), state.mean.copy()
    step, bad, loss = descend(group, W, mean, state.step, lesson.pace(P), P)
    if bad >= 0:
        raise _explain(group, bad, lesson, numbers, parts)
    held_loss, held_rows = _held_out(parts, masks, mean, lesson)
    return State(
        W,
        mean,
        int(step),
        state.loss + float(loss),
        state.rows + float(group.weights.sum(dtype=np.float64)),
        state.held_out_loss + held_loss,
        state.held_out_rows + held_rows,
    )


def _make_group(
    parts: list[_Part], masks: list[Array], lesson: Lesson, epoch: int, number: int
) -> Group:
    which, rows = order.shuffled_rows([len(p.X) for p in parts], lesson.seed, epoch, number)
    if lesson.held_out > 0:
        offsets = np.cumsum([0, *(len(part.X) for part in parts)])
        used = ~np.concatenate(masks)[offsets[which] + rows]
        which, rows = which[used], rows[used]
    padded = [part.X for part in parts] + [parts[-1].X] * (MIX - len(parts))
    return Group(
        tuple(map(_same_type, padded)),
        which,
        rows,
        _collect([part.codes for part in parts], which, rows),
        _collect([part.targets for part in parts], which, rows),
        _collect([part.weights for part in parts], which, rows),
    )


def _same_type(block: Array) -> Array:
    """Return a read-only view: blocks from the network are, and the kernel wants one type."""
    view = block.view()
    view.flags.writeable = False
    return view


def _collect(columns: list[Array], which: Array, rows: Array) -> Array:
    if not any(len(column) for column in columns):
        return columns[0]
    offsets = np.cumsum([0, *(len(column) for column in columns)])
    taken: Array = np.concatenate(columns)[offsets[which] + rows]
    return taken


def _explain(
    group: Group, bad: int, lesson: Lesson, numbers: tuple[int, ...], parts: list[_Part]
) -> Exception:
    """Return why a score is not finite: the row itself, or coefficients that ran away."""
    which = int(group.which[bad])
    index = numbers[which]
    error = locate(parts[which].X, None, index, int(lesson.starts[index]))
    return error or ValueError(
        "Training diverged: scores grew beyond any number. Shuffle rows that are sorted, scale the "
        "columns of X to similar size, lower eta0, or raise alpha."
    )


def _held_out(
    parts: list[_Part], masks: list[Array], mean: Array, lesson: Lesson
) -> tuple[float, float]:
    """Return the summed loss of the rows held out, under the mean model, and their number."""
    if lesson.held_out == 0:
        return 0.0, 0.0
    total, n = 0.0, 0.0
    for part, mask in zip(parts, masks, strict=True):
        X, weights = part.X[mask], part.weights[mask]
        scores = X @ mean[:-1].astype(X.dtype) + (mean[-1] * lesson.intercept).astype(X.dtype)
        scores, slopes = scores.astype(np.float32), np.empty(scores.shape, np.float32)
        if lesson.classifies:
            codes = part.codes[mask]
            total += classification_slopes(scores, codes, weights, lesson.loss, slopes)
        else:
            targets = part.targets[mask]
            total += regression_slopes(
                scores, targets, weights, lesson.loss, lesson.epsilon, slopes
            )
        n += float(weights.sum(dtype=np.float64))
    return total, n


def pick_rows(
    lesson: Lesson, index: int, share: float, block: tuple[Any, ...]
) -> tuple[Array, Array]:
    """Return a share of the rows of a block, at least one, and their weights."""
    part = _prepare(lesson, block, index)
    rng = np.random.default_rng([lesson.seed, 4, index])
    count = min(max(1, round(share * len(part.X))), len(part.X))
    rows = np.sort(rng.choice(len(part.X), count, replace=False))
    Z = part.X[rows]
    if not np.isfinite(Z).all():
        raise locate(part.X, None, index, int(lesson.starts[index])) or AssertionError
    return Z, part.weights[rows]


def study(lesson: Lesson, *picked: tuple[Array, Array]) -> Preconditioner:
    """Estimate the preconditioner from rows picked from some blocks."""
    Z = np.concatenate([rows for rows, _ in picked])
    weights = np.concatenate([weights for _, weights in picked])
    shuffle = np.random.default_rng([lesson.seed, 4]).permutation(len(Z))
    return make_preconditioner(Z[shuffle], weights[shuffle], lesson.alpha, lesson.intercept)
