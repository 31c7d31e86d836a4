"""The Dask side of training: a sample of the blocks, epochs over a bounded stream, checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rfcdask.execution.blocks import Blocks, stream_and_hold, stream_rounds
from rfcdask.execution.executor import Executor, Handle
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import (
    Array,
    IntArray,
    Matrix,
    as_csr,
    check_finite,
    feature_dtype,
    is_sparse,
)
from rfcdask.kernels.seeds import blocks_ahead, epoch_groups, shuffle_rows, take_entries
from rfcdask.linear.kernel.gradient import Adam, Parameters
from rfcdask.linear.kernel.optimize import (
    Judgement,
    OptimizerConfig,
    OptimizerState,
    TrainingRows,
    diverged,
    join_chains,
    join_rows,
    judge,
    train_rows,
)
from rfcdask.linear.rows import (
    check_mean_weight,
    encode_labels,
    find_not_finite,
    weights_of_steps,
)
from rfcdask.linear.scorers import HeldOutScore
from rfcdask.linear.sgd.step import blocks_mixed
from rfcdask.linear.sgd.training import (
    Checkpoint,
    History,
    fitting,
    require_numbers,
    require_scores,
)

SAMPLE_BLOCKS = 32
"""Blocks that the sample is taken from, at least, where there are as many."""


MOST_LOSS = 1e4
"""A mean loss that no training ends with: without any features it is about 1, whatever y is."""


@dataclass(frozen=True)
class BlockReader:
    """Makes of a raw block ``(X, y)`` or ``(X, y, weights)`` the rows that training takes.

    Attributes
    ----------
    starts : array of int
        The first row of each block.
    classes : array or None
        The labels behind the codes; None for regression.
    class_weights : array
        A factor per class.
    mean, scale : arrays of shape (n_outputs,)
        Regression learns ``(y - mean) / scale``.
    """

    starts: IntArray
    classes: Array | None = None
    class_weights: Array = field(default_factory=lambda: np.ones(0))
    mean: Array = field(default_factory=lambda: np.zeros(1))
    scale: Array = field(default_factory=lambda: np.ones(1))

    def __call__(self, block: tuple[Any, ...], index: int) -> TrainingRows:
        """Return the rows, after making sure that all are finite."""
        X, y = _matrix(block[0]), np.asarray(block[1])
        check_finite(X, int(self.starts[index]), f" (block {index})")
        weights = np.ones(X.shape[0], np.float32)
        if len(block) > 2:
            weights = weights_of_steps(block[2], index)
        if self.classes is not None:
            codes = encode_labels(y, self.classes)
            return TrainingRows(X, codes, (weights * self.class_weights[codes]).astype(np.float32))
        targets = (y[:, None] if y.ndim == 1 else y).astype(np.float64)
        error = find_not_finite(np.zeros(0), targets, index, int(self.starts[index]))
        if error is not None:
            raise error
        return TrainingRows(X, (targets - self.mean) / self.scale, weights)


def _matrix(block: Any) -> Matrix:
    """Return a block as CSR in float32, or as the aligned float array that the kernels read."""
    if is_sparse(block):
        return as_csr(block).astype(np.float32)
    array = np.require(np.asarray(block), requirements=["C_CONTIGUOUS", "ALIGNED"])
    return array.astype(feature_dtype(array.dtype), copy=False)


class TrainingSample(NamedTuple):
    """Rows in memory, and which of them are held out of training."""

    training: TrainingRows
    held: TrainingRows
    held_of: dict[int, IntArray]  # rows of each block that are held out
    blocks: dict[int, Handle]  # those that the first epoch begins with, as far as it has not


def draw_sample(
    executor: Executor,
    blocks: Blocks,
    read: BlockReader,
    seed: int,
    n_rows: int,
    n_held: int,
    chains: int = 1,
) -> TrainingSample:
    """Take rows from many blocks, at random within each, and hold some of them out."""
    mixed = blocks_mixed(len(blocks), blocks.nbytes, chains)
    groups = epoch_groups(len(blocks), mixed, seed, 0, chains)
    chosen = _blocks_to_sample(blocks, groups, n_rows + n_held)
    share = min((n_rows + n_held) / sum(blocks.rows[index] for index in chosen), 1.0)
    n_blocks = mixed * chains + blocks_ahead(mixed * chains, executor.threads, executor.local)
    stream, first = stream_and_hold(executor, blocks, chosen, n_blocks, chains > 1)
    started = (executor.call(_pick, read, seed, index, share, block) for index, block in stream)
    in_order = [*chosen[n_blocks:], *chosen[:n_blocks]]
    picked = dict(zip(in_order, executor.in_order(started, executor.threads + 1), strict=True))
    found = join_rows([picked[index][1] for index in chosen])
    places = [(index, picked[index][0]) for index in chosen]
    place = np.concatenate([np.stack([np.full(len(r), k), r], axis=1) for k, r in places])
    order = np.random.default_rng([seed, 6]).permutation(len(place))
    # Both parts stand in random order, so that a beginning of each is a smaller sample.
    held, training = order[:n_held], order[n_held:]
    held_of = {int(k): np.sort(rows) for k, rows in _by_block(place[held])}
    return TrainingSample(found.take(training), found.take(held), held_of, first)


def _by_block(place: IntArray) -> list[tuple[int, IntArray]]:
    return [(k, place[place[:, 0] == k, 1]) for k in np.unique(place[:, 0])]


def _blocks_to_sample(blocks: Blocks, groups: list[list[int]], n_rows: int) -> list[int]:
    chosen: list[int] = []
    for group in groups:
        chosen += group
        rows = sum(blocks.rows[index] for index in chosen)
        if rows >= n_rows and len(chosen) >= SAMPLE_BLOCKS:
            break
    return chosen


def _pick(
    read: BlockReader, seed: int, index: int, share: float, block: tuple[Any, ...]
) -> tuple[IntArray, TrainingRows]:
    part = read(block, index)
    n = len(part.weights)
    rng = np.random.default_rng([seed, 7, index])
    rows = np.sort(rng.choice(n, min(max(1, round(share * n)), n), replace=False))
    return rows, part.take(rows)


def train_group(
    state: OptimizerState,
    training: OptimizerConfig,
    read: BlockReader,
    held_of: dict[int, IntArray],
    seed: int,
    position: tuple[int, int],
    numbers: tuple[int, ...],
    *blocks: tuple[Any, ...],
) -> OptimizerState:
    """Learn from one group of blocks; a pure function, so a task may be tried again.

    `position` is the epoch and the number of the group: with the seed it fixes the order.
    """
    parts = [read(block, index) for block, index in zip(blocks, numbers, strict=True)]
    which, rows = shuffle_rows([len(p.weights) for p in parts], seed, *position)
    used_of = [np.ones(len(part.weights), bool) for part in parts]
    for index, used in zip(numbers, used_of, strict=True):
        used[held_of.get(index, [])] = False
    used = take_entries(used_of, which, rows)
    return train_rows(state, training, parts, which[used], rows[used])


@dataclass
class BestState:
    """The state to be returned: the last that is about as good as any before on rows held out.

    Held-out losses are uncertain, and later states have seen more. So a state replaces the one
    before unless its loss is more than a standard error above the smallest so far. Where a metric
    was named, it is the state with the best score, and `loss` is the score with the other sign.
    """

    parameters: Parameters
    head: int = 0
    loss: float = np.inf
    smallest: float = np.inf
    since: int = 0  # epochs that were clearly worse, one after another

    def see(self, parameters: Parameters, found: Judgement | None) -> None:
        """Take an epoch into account."""
        if found is None:
            self.parameters = parameters
            return
        loss, error = found.value, found.error
        self.smallest = min(self.smallest, loss)
        if loss <= self.smallest + error:
            self.parameters, self.head, self.loss, self.since = parameters, found.best, loss, 0
        else:
            self.since += 1


@dataclass
class KernelTrainingLoop:
    """A training over all blocks.

    Attributes
    ----------
    training, read, sample
        What is learned, how blocks are read, and the rows held out.
    epochs : int
    patience : int or None
        Epochs after which training ends when all were clearly worse than the best.
    seed : int
    checkpoint : KernelCheckpoint or None
    every : int
        Blocks between two checkpoints.
    progress : object
        See :func:`rfcdask.execution.progress.track`.
    chains : int
        Groups of blocks that are learned from side by side.
    score : HeldOutScore or None
        What rows held out judge by in the place of their loss.
    """

    training: OptimizerConfig
    read: BlockReader
    sample: TrainingSample
    epochs: int
    patience: int | None
    seed: int
    checkpoint: KernelCheckpoint | None = None
    every: int = 64
    progress: Any = None
    chains: int = 1
    score: HeldOutScore | None = None
    history: History = field(default_factory=list)

    def train(
        self, executor: Executor, blocks: Blocks, state: OptimizerState
    ) -> tuple[OptimizerState, BestState]:
        """Go through all epochs, from the checkpoint on where there is one."""
        best, first, group = BestState(state.parameters), 0, 0
        n_heads, stored = len(self.training.objective.alphas), None
        if self.checkpoint:
            stored = self.checkpoint.load_run(state, n_heads)
        if stored is not None:
            state, best, (first, group), self.history = stored
        rows = float(sum(blocks.rows))
        with track("training", rows * self.epochs, "rows", progress=self.progress) as reporter:
            reporter.advance(rows * first)
            for epoch in range(first, self.epochs):
                # Asked before an epoch: a checkpoint may be of the very end of the last one.
                if self.patience is not None and best.since >= self.patience:
                    break
                state = self.epoch(executor, blocks, state, best, epoch, group, reporter.advance)
                group = 0
                state = self._close_epoch(state, best, epoch)
                reporter.note(f"epoch {epoch + 1}, loss {self.history[-1]['loss']:.4g}")
        if self.checkpoint:
            self.checkpoint.remove()
        return state, best

    def epoch(
        self,
        executor: Executor,
        blocks: Blocks,
        state: OptimizerState,
        best: BestState,
        epoch: int,
        first_group: int,
        advance: Callable[[float], None],
    ) -> OptimizerState:
        """Go once through all blocks, from a group on, and return the new state."""
        mixed = blocks_mixed(len(blocks), blocks.nbytes, self.chains)
        groups = epoch_groups(len(blocks), mixed, self.seed, epoch, self.chains)
        groups = self.checkpoint.groups_left(groups, first_group) if self.checkpoint else groups
        since, ahead = 0, blocks_ahead(mixed * self.chains, executor.threads, executor.local)
        rounds = (executor, blocks, groups, self.chains, ahead, self.sample.blocks)
        for first, parts in stream_rounds(*rounds):
            last, tasks = first + len(parts), []
            for n, handles in enumerate(parts, first):
                numbers = tuple(groups[n])
                held = {k: rows for k, rows in self.sample.held_of.items() if k in numbers}
                fixed = (self.training, self.read, held, self.seed, (epoch, first_group + n))
                tasks.append(executor.call(train_group, state, *fixed, numbers, *handles))
            state = join_chains(state, list(map(executor.result, tasks)), self.chains)
            for task in tasks:
                executor.release(task)
            learned = [index for group in groups[first:last] for index in group]
            advance(sum(blocks.rows[index] for index in learned))
            since += len(learned)
            if self.checkpoint and since >= self.every and last < len(groups):
                self.checkpoint.save_run(state, best, (epoch, first_group + last), self.history)
                since = 0
        check_mean_weight(state.weight, sum(blocks.rows))
        return state

    def _close_epoch(self, state: OptimizerState, best: BestState, epoch: int) -> OptimizerState:
        """Judge the epoch, write it into the history and begin counting anew."""
        entry = {"epoch": float(epoch + 1), "loss": state.loss / max(state.weight, 1e-300)}
        if not entry["loss"] < MOST_LOSS:
            raise diverged(f"the mean loss of epoch {epoch + 1} is {entry['loss']:.4g}")
        held = self.sample.held
        found = None
        if len(held.weights):
            found = judge(self.training, state.parameters, held, self.score)
        best.see(state.parameters, found)
        if found is not None:
            entry["held_out_loss"] = float(found.losses[found.best])
            if self.score is not None:
                entry["held_out_score"] = -found.value
        self.history.append(entry)
        state = state._replace(loss=0.0, weight=0.0)
        if self.checkpoint:
            self.checkpoint.save_run(state, best, (epoch + 1, 0), self.history)
        return state


class KernelCheckpoint(Checkpoint):
    """A training run on disk; `gamma` and `trials` spare a resumed run the trials of widths."""

    arrays = tuple(
        f"{name}_{part}"
        for name in ("parameters", "first", "second", "best")
        for part in Parameters._fields
    )
    gamma: float = 0.0
    trials: Sequence[dict[str, float]] = ()

    def save_run(
        self, state: OptimizerState, best: BestState, position: tuple[int, int], history: History
    ) -> None:
        """Write a new state beside the old one and put it in its place."""
        parts = (state.parameters, state.adam.first, state.adam.second, best.parameters)
        self._write(
            dict(zip(self.arrays, itertools.chain(*parts), strict=True)),
            position=position,
            history=history,
            gamma=self.gamma,
            trials=list(self.trials),
            step=state.adam.step,
            loss=[state.loss, state.weight],
            best=[best.head, best.loss, best.smallest, best.since],
        )

    def load_run(
        self, start: OptimizerState, n_heads: int
    ) -> tuple[OptimizerState, BestState, tuple[int, int], History] | None:
        """Return state, best state, position and history, or None without a checkpoint.

        All arrays must be like those of the state that training starts from.
        """
        if not self.path.exists():
            return None
        about, arrays = self._read()
        self._require_same_run(about)
        size = len(Parameters._fields)
        with self._faults():
            like = dict(zip(self.arrays, itertools.cycle(start.parameters), strict=False))
            values = list(fitting(arrays, like).values())
            found = [Parameters(*values[i : i + size]) for i in range(0, len(values), size)]
            (head, best, smallest, since), (loss, weight) = about["best"], about["loss"]
            known = [value for value in (best, smallest) if value != np.inf]
            require_numbers(head, since)
            require_scores(*known)
            require_numbers(about["step"], loss, weight)
            if min(values.min(initial=0) for values in found[2]) < 0:
                raise ValueError("it holds squares below zero")
            adam = Adam(found[1], found[2], about["step"])
            state = OptimizerState(found[0], adam, float(loss), float(weight))
            if head >= n_heads:
                raise ValueError(f"it has no model number {head}")
            return state, BestState(found[3], head, best, smallest, since), *self._progress(about)

    def stored_gamma(self) -> float | None:
        """Return the width that the stored run began with, or None without a checkpoint.

        The trials by which it was chosen are `trials` then; earlier versions kept none.
        """
        if not self.path.exists():
            return None
        about, _ = self._read()
        self._require_same_run(about)
        with self._faults():
            require_numbers(0, about["gamma"])
            if not about["gamma"]:
                raise ValueError("its gamma is 0")
            names = ("gamma", "rows", "held_out_loss")
            known = about.get("trials", [])
            self.trials = [{name: float(trial[name]) for name in names} for trial in known]
            return float(about["gamma"])
