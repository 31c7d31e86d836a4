"""The training loop over a bounded stream of blocks, with checkpoints and early stopping."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rfcdask.execution.blocks import Blocks, stream_groups
from rfcdask.execution.executor import Executor
from rfcdask.execution.progress import Reporter, track
from rfcdask.linear.sgd import schedule as order
from rfcdask.linear.sgd.checkpoint import Checkpoint
from rfcdask.linear.sgd.preconditioner import rows_wanted
from rfcdask.linear.sgd.step import Lesson, State, learn, pick_rows, study


@dataclass
class Course:
    """How a lesson is gone through.

    Attributes
    ----------
    epochs : int
        Passes over the data.
    patience : int
        Epochs without a better held-out loss after which training ends; 0 goes on to the end.
    tol : float
        What counts as better, relative to the best loss so far.
    checkpoint : Checkpoint or None
        Where the state is kept.
    every : int
        Blocks between two checkpoints.
    progress : object
        See :func:`rfcdask.execution.progress.track`.
    """

    epochs: int
    patience: int = 0
    tol: float = 1e-3
    checkpoint: Checkpoint | None = None
    every: int = 64
    progress: Any = None


@dataclass
class Outcome:
    """Where training ended."""

    state: State
    history: list[dict[str, float]] = field(default_factory=list)


def fresh_state(n_features: int, outputs: int) -> State:
    """Return the state from which training starts: all coefficients zero."""
    return State(np.zeros((n_features + 1, outputs)), np.zeros((n_features + 1, outputs)))


SPREAD, SPREAD_IF_ORDERED = 8, 32
"""Blocks that rows for the preconditioner are taken from, at least, where there are as many."""


def study_blocks(runner: Executor, blocks: Blocks, lesson: Lesson, n_features: int) -> Any:
    """Start estimating the preconditioner on rows of the first blocks of the first epoch.

    A geometry found on rows of one kind makes steps on others far too long. The rows therefore
    come from many places, a few of each block, and only they are kept.
    """
    mixed = order.blocks_mixed(len(blocks), blocks.nbytes)
    spread = SPREAD_IF_ORDERED if lesson.ordered else SPREAD
    chosen: list[int] = []
    rows = 0
    for group in order.plan_epoch(len(blocks), mixed, lesson.seed, 0):
        chosen += group
        rows += sum(blocks.rows[index] for index in group)
        if rows >= rows_wanted(n_features) and len(chosen) >= spread:
            break
    share = min(rows_wanted(n_features) / rows, 1.0)
    singles = [(index,) for index in chosen]
    picked = [
        runner.call(pick_rows, lesson, chosen[number], share, block)
        for number, (block,) in stream_groups(runner, blocks, singles, runner.threads)
    ]
    handle = runner.call(study, lesson, *picked)
    for part in picked:
        runner.release(part)
    return handle


def train(runner: Executor, blocks: Blocks, lesson: Lesson, course: Course, P: Any) -> Outcome:
    """Go through all epochs, from the checkpoint on where there is one."""
    n_features = runner.result(P).basis.shape[0] - 1
    outcome = Outcome(fresh_state(n_features, lesson.outputs))
    first, group = 0, 0
    stored = course.checkpoint.load() if course.checkpoint else None
    if stored:
        outcome.state, (first, group), outcome.history = stored
    total = float(sum(blocks.rows)) * course.epochs
    with track("training", total, "rows", progress=course.progress) as reporter:
        reporter.advance(float(sum(blocks.rows)) * first)
        for epoch in range(first, course.epochs):
            train_epoch(runner, blocks, lesson, P, outcome, epoch, group, course, reporter)
            group = 0
            if _should_stop(outcome.history, course):
                break
    if course.checkpoint:
        course.checkpoint.remove()
    return outcome


def train_epoch(
    runner: Executor,
    blocks: Blocks,
    lesson: Lesson,
    P: Any,
    outcome: Outcome,
    epoch: int,
    first_group: int,
    course: Course,
    reporter: Reporter,
) -> None:
    """Go once through all blocks, changing `outcome`."""
    mixed = order.blocks_mixed(len(blocks), blocks.nbytes)
    groups = order.plan_epoch(len(blocks), mixed, lesson.seed, epoch)[first_group:]
    ahead = max(mixed, runner.threads)
    since = 0
    for offset, handles in stream_groups(runner, blocks, groups, ahead):
        numbers, number = tuple(groups[offset]), first_group + offset
        task = runner.call(learn, outcome.state, lesson, P, numbers, epoch, number, *handles)
        outcome.state = runner.result(task)
        runner.release(task)
        reporter.advance(sum(blocks.rows[index] for index in numbers))
        since += len(numbers)
        if course.checkpoint and since >= course.every and offset + 1 < len(groups):
            course.checkpoint.save(outcome.state, epoch, number + 1, outcome.history)
            since = 0
    _close_epoch(outcome, epoch, reporter)
    if course.checkpoint:
        course.checkpoint.save(outcome.state, epoch + 1, 0, outcome.history)


def _close_epoch(outcome: Outcome, epoch: int, reporter: Reporter) -> None:
    """Write the epoch into the history and begin counting anew."""
    state = outcome.state
    entry = {"epoch": float(epoch + 1), "loss": state.loss / max(state.rows, 1e-300)}
    if state.held_out_rows:
        entry["held_out_loss"] = state.held_out_loss / state.held_out_rows
    outcome.history.append(entry)
    outcome.state = state._replace(loss=0.0, rows=0.0, held_out_loss=0.0, held_out_rows=0.0)
    reporter.note(f"epoch {epoch + 1}, loss {entry['loss']:.4g}")


def _should_stop(history: list[dict[str, float]], course: Course) -> bool:
    if not course.patience or "held_out_loss" not in history[-1]:
        return False
    losses = [entry["held_out_loss"] for entry in history]
    best, since = np.inf, 0
    for loss in losses:
        since = 0 if loss < best * (1 - course.tol) else since + 1
        best = min(best, loss)
    return since >= course.patience
