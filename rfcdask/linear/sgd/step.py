"""Training on a group of blocks as a pure function: a state and blocks in, a new state out.

Nothing is changed in place, so a task that is tried again, here or on another worker, gives the
same state and never trains twice. No Dask in here.

The order in which rows are learned from is a function of the seed and the data, never of the
cluster. Blocks are cut into as many strata as are mixed in a group, far apart from each other; each
epoch permutes every stratum anew and a group takes one block of each. All rows of a group are then
shuffled together. On data in random order this is as good as any order; on data sorted by class
a group still spans the whole of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from rfcdask.kernels.arrays import Array
from rfcdask.kernels.seeds import draw_parts
from rfcdask.linear.checks import check_block_weights, dense, encode_labels, find_not_finite
from rfcdask.linear.sgd.losses import SQUARED, STEP_GAIN, classification_slopes, regression_slopes
from rfcdask.linear.sgd.optimizer import (
    MAX_MIXED,
    Preconditioner,
    ShuffledRows,
    StepParameters,
    fit_preconditioner,
    run_steps,
)

GROUP_BYTES = 2**27
"""Rows of several blocks are mixed as long as they stay below this size."""


class TrainingState(NamedTuple):
    """Everything that training changes; its names are those of a checkpoint."""

    W: Array  # (J + 1, outputs), the intercepts last
    mean: Array
    step: int = 0
    loss: float = 0.0  # summed over the rows of this epoch so far
    rows: float = 0.0
    held_out_loss: float = 0.0
    held_out_rows: float = 0.0

    @classmethod
    def zero(cls, n_features: int, n_outputs: int) -> Self:
        """Return the state from which training starts: all coefficients zero."""
        shape = (n_features + 1, n_outputs)
        return cls(np.zeros(shape), np.zeros(shape))


@dataclass(frozen=True)
class TrainingConfig:
    """What stays the same from the first step to the last, and travels with every task."""

    loss: int
    n_outputs: int
    alpha: float
    eta0: float
    n_steps: float  # until the learning rate has fallen to zero; 0 where nobody knows
    batch_size: int
    seed: int
    fit_intercept: bool = True
    epsilon: float = 0.1
    validation_fraction: float = 0.0
    weighted: bool = False
    sorted_rows: bool = False  # a few blocks say little of the others
    starts: Array = field(default_factory=lambda: np.zeros(1, np.int64))  # first row of each block
    classes: Array = field(default_factory=lambda: np.zeros(0))
    class_weights: Array = field(default_factory=lambda: np.ones(0))

    @property
    def is_classifier(self) -> bool:
        """Whether targets are classes."""
        return self.loss < SQUARED

    def step_parameters(self, P: Preconditioner) -> StepParameters:
        """Return what the kernel needs, with the step size that the noise of a batch allows."""
        share = self.batch_size / (self.batch_size + P.spread)
        eta = self.eta0 * STEP_GAIN.get(self.loss, 1.0) * share
        constant = float(self.fit_intercept)
        return StepParameters(
            self.loss, self.epsilon, self.alpha, eta, self.n_steps, self.batch_size, constant
        )


def blocks_mixed(n_blocks: int, block_bytes: int) -> int:
    """Return how many blocks are mixed in a group."""
    return int(min(MAX_MIXED, n_blocks, max(1, GROUP_BYTES // max(block_bytes, 1))))


def epoch_groups(n_blocks: int, mixed: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the groups of block numbers of one epoch, in the order in which they are taken."""
    rng = np.random.default_rng([seed, 1, epoch])
    strata = [rng.permutation(part) for part in np.array_split(np.arange(n_blocks), mixed)]
    longest = max(len(part) for part in strata)
    return [[int(part[k]) for part in strata if k < len(part)] for k in range(longest)]


def shuffle_rows(sizes: list[int], seed: int, epoch: int, number: int) -> tuple[Array, Array]:
    """Return block and row of all rows of a group, shuffled together."""
    block_of = np.repeat(np.arange(len(sizes)), sizes)
    row_of = np.concatenate([np.arange(size) for size in sizes])
    order = np.random.default_rng([seed, 2, epoch, number]).permutation(len(row_of))
    return block_of[order], row_of[order]


def held_out_rows(size: int, fraction: float, seed: int, index: int) -> Array:
    """Return which rows of a block are never trained on, the same in every epoch."""
    mask = np.zeros(size, bool)
    if fraction > 0 and size > 1:
        count = max(1, round(fraction * size))
        rng = np.random.default_rng([seed, 3, index])
        mask[draw_parts(size, (count, size - count), rng)[0]] = True
    return mask


class _Block(NamedTuple):
    """One block, ready for the kernels."""

    X: Array
    codes: Array
    targets: Array
    weights: Array
    held_out: Array


def _prepare(config: TrainingConfig, block: tuple[Any, ...], index: int) -> _Block:
    X, y = dense(block[0]), np.asarray(block[1])
    held_out = held_out_rows(len(X), config.validation_fraction, config.seed, index)
    weights = np.ones(len(X), np.float32)
    if config.weighted:
        weights = np.asarray(block[2], np.float32)
        check_block_weights(weights, index)
    if not config.is_classifier:
        targets = y[:, None] if y.ndim == 1 else y
        if not np.isfinite(targets).all():
            raise find_not_finite(X, y, index, int(config.starts[index])) or AssertionError
        return _Block(X, np.zeros(0, np.int64), targets.astype(np.float64), weights, held_out)
    codes = encode_labels(y, config.classes)
    weights = (weights * config.class_weights[codes]).astype(np.float32)
    return _Block(X, codes, np.zeros((0, 1)), weights, held_out)


def train_on_blocks(
    state: TrainingState,
    config: TrainingConfig,
    P: Preconditioner,
    indices: tuple[int, ...],
    epoch: int,
    number: int,
    *blocks: tuple[Any, ...],
) -> TrainingState:
    """Learn from one group of blocks; a pure function.

    Parameters
    ----------
    state : TrainingState
        What came before.
    config, P
        What is learned, and in which geometry.
    indices : tuple of int
        The numbers of the blocks.
    epoch, number : int
        Where in the run this group stands: with the seed they fix the order of the rows.
    *blocks : tuples (X, y) or (X, y, weights)
    """
    parts = [_prepare(config, block, i) for block, i in zip(blocks, indices, strict=True)]
    rows = _shuffle(parts, config, epoch, number)
    W, mean = state.W.copy(), state.mean.copy()
    step, bad, loss = run_steps(rows, W, mean, state.step, config.step_parameters(P), P)
    if bad >= 0:
        which = int(rows.block_of[bad])
        index = indices[which]
        error = find_not_finite(parts[which].X, None, index, int(config.starts[index]))
        raise error or ValueError(
            "Training diverged: scores grew beyond any number. Shuffle rows that are sorted, scale "
            "the columns of X to similar size, lower eta0, or raise alpha."
        )
    held_out_loss, held_out_weight = 0.0, 0.0
    for part in parts if config.validation_fraction > 0 else ():
        held_out_loss += _held_out_loss(part, mean, config)
        held_out_weight += float(part.weights[part.held_out].sum(dtype=np.float64))
    return TrainingState(
        W,
        mean,
        int(step),
        state.loss + float(loss),
        state.rows + float(rows.weights.sum(dtype=np.float64)),
        state.held_out_loss + held_out_loss,
        state.held_out_rows + held_out_weight,
    )


def _shuffle(parts: list[_Block], config: TrainingConfig, epoch: int, number: int) -> ShuffledRows:
    sizes = [len(part.X) for part in parts]
    block_of, row_of = shuffle_rows(sizes, config.seed, epoch, number)
    if config.validation_fraction > 0:
        used = ~_take([part.held_out for part in parts], block_of, row_of)
        block_of, row_of = block_of[used], row_of[used]
    padded = [part.X for part in parts] + [parts[-1].X] * (MAX_MIXED - len(parts))
    return ShuffledRows(
        tuple(map(_read_only, padded)),
        block_of,
        row_of,
        _take([part.codes for part in parts], block_of, row_of),
        _take([part.targets for part in parts], block_of, row_of),
        _take([part.weights for part in parts], block_of, row_of),
    )


def _read_only(block: Array) -> Array:
    """Return a read-only view: blocks from the network are, and the kernel wants one type."""
    view = block.view()
    view.flags.writeable = False
    return view


def _take(columns: list[Array], block_of: Array, row_of: Array) -> Array:
    if not any(len(column) for column in columns):
        return columns[0]
    offsets = np.cumsum([0, *(len(column) for column in columns)])
    return np.asarray(np.concatenate(columns)[offsets[block_of] + row_of])


def _held_out_loss(part: _Block, mean: Array, config: TrainingConfig) -> float:
    """Return the summed loss of the rows held out, under the mean model."""
    mask = part.held_out
    X, weights = part.X[mask], part.weights[mask]
    scores = X @ mean[:-1].astype(X.dtype) + (mean[-1] * config.fit_intercept).astype(X.dtype)
    scores, slopes = scores.astype(np.float32), np.empty(scores.shape, np.float32)
    if config.is_classifier:
        return classification_slopes(scores, part.codes[mask], weights, config.loss, slopes)
    targets = part.targets[mask]
    return regression_slopes(scores, targets, weights, config.loss, config.epsilon, slopes)


def sample_rows(
    config: TrainingConfig, index: int, fraction: float, block: tuple[Any, ...]
) -> tuple[Array, Array]:
    """Return a fraction of the rows of a block, at least one, and their weights."""
    part = _prepare(config, block, index)
    rng = np.random.default_rng([config.seed, 4, index])
    count = min(max(1, round(fraction * len(part.X))), len(part.X))
    rows = np.sort(rng.choice(len(part.X), count, replace=False))
    Z = part.X[rows]
    if not np.isfinite(Z).all():
        raise find_not_finite(part.X, None, index, int(config.starts[index])) or AssertionError
    return Z, part.weights[rows]


def preconditioner_from(config: TrainingConfig, *samples: tuple[Array, Array]) -> Preconditioner:
    """Estimate the preconditioner from rows sampled from some blocks."""
    Z = np.concatenate([rows for rows, _ in samples])
    weights = np.concatenate([weights for _, weights in samples])
    shuffle = np.random.default_rng([config.seed, 4]).permutation(len(Z))
    return fit_preconditioner(Z[shuffle], weights[shuffle], config.alpha, config.fit_intercept)
