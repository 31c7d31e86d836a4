"""Training of features and heads on rows in memory: pure functions from a state to the next.

Adam with cosine decay moves frequencies, phases and heads together, mini-batch by mini-batch.
Several heads with different penalties share the features, which are the expense; rows that were
held out choose among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from rfcdask.kernels.arrays import Array, IntArray, Matrix, is_sparse
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.kernels.runtime import compiled, map_ahead
from rfcdask.linear.kernel.gradient import (
    Adam,
    Buffers,
    InputScaling,
    Parameters,
    ScaledRows,
    Steps,
    learn_rows,
)
from rfcdask.linear.scorers import HeldOutScore
from rfcdask.linear.sgd.losses import SQUARED, Targets, classification_slopes, regression_slopes
from rfcdask.linear.sgd.step import take_rows

CHUNK_ROWS = 4096
"""Rows that are gathered and scaled at a time, beside the steps on those before."""


class DivergedError(ValueError):
    """Outputs grew beyond any number, or losses beyond reason."""


def diverged(what: str) -> DivergedError:
    """Return the error that says what happened and what helps."""
    return DivergedError(
        f"Training diverged: {what}. Scale the columns of X to similar size (rf.Standardizer), "
        "lower step_size, or raise alpha."
    )


@dataclass(frozen=True)
class Objective:
    """What is minimised: a loss over rows and a penalty per head.

    Attributes
    ----------
    loss : int
        A code of :mod:`rfcdask.linear.sgd.losses`.
    n_outputs : int
    alphas : tuple of float
        The penalty ``alpha / 2 ||A||^2`` beside the mean loss, one per head.
    epsilon : float
        Where Huber's loss becomes linear.
    """

    loss: int
    n_outputs: int
    alphas: tuple[float, ...]
    epsilon: float = 1.35

    def row_losses(self, outputs: Array, targets: Array) -> Array:
        """Return the loss of each row."""
        out = np.empty((len(outputs), self.n_outputs), np.float32)
        losses = np.empty(len(outputs))
        if self.loss < SQUARED:
            _classification_losses(outputs, targets, self.loss, out, losses)
        else:
            _regression_losses(outputs, targets, self.loss, self.epsilon, out, losses)
        return losses


@compiled()
def _classification_losses(
    outputs: Array, codes: Array, loss: int, slopes: Array, losses: Array
) -> None:
    one = np.ones(1, np.float32)
    for i in range(len(losses)):
        row = slice(i, i + 1)
        losses[i] = classification_slopes(outputs[row], codes[row], one, loss, slopes[row])


@compiled()
def _regression_losses(
    outputs: Array, targets: Array, loss: int, epsilon: float, slopes: Array, losses: Array
) -> None:
    one = np.ones(1, np.float32)
    for i in range(len(losses)):
        row = slice(i, i + 1)
        losses[i] = regression_slopes(outputs[row], targets[row], one, loss, epsilon, slopes[row])


class TrainingRows(NamedTuple):
    """Rows with what is to be predicted: codes of classes, or numbers (n, outputs)."""

    X: Matrix
    targets: Array
    weights: Array  # float32

    def take(self, which: IntArray | slice) -> TrainingRows:
        """Return some of the rows."""
        return TrainingRows(self.X[which], self.targets[which], self.weights[which])

    def as_targets(self) -> Targets:
        """Return what the kernels read of the targets."""
        if self.targets.ndim == 1:
            return Targets(self.targets.astype(np.int64), np.zeros((0, 1)), self.weights)
        return Targets(np.zeros(0, np.int64), self.targets.astype(np.float64), self.weights)


def join_rows(parts: Sequence[TrainingRows]) -> TrainingRows:
    """Return the rows of all parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    blocks: list[Any] = [part.X for part in parts]  # all dense, or all CSR
    X = sp.vstack(blocks, format="csr") if is_sparse(blocks[0]) else np.concatenate(blocks)
    targets = np.concatenate([part.targets for part in parts])
    return TrainingRows(X, targets, np.concatenate([part.weights for part in parts]))


class OptimizerState(NamedTuple):
    """Everything that training changes."""

    parameters: Parameters
    adam: Adam
    loss: float = 0.0  # summed over the rows of this epoch so far, the mean of the heads
    weight: float = 0.0


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings that stay the same from the first step to the last.

    Attributes
    ----------
    objective : Objective
    scaling : InputScaling
    scales : array of shape (J,)
        The factor of each cosine.
    batch : int
    n_steps : int
        Steps until the step size reaches zero; 0 means unknown.
    learn_features : bool
        Whether frequencies and phases move, or the heads only.
    step_size : float
        Factor on all step sizes.
    """

    objective: Objective
    scaling: InputScaling
    scales: Array
    batch: int
    n_steps: int
    learn_features: bool = True
    step_size: float = 1.0

    def start(self, frequencies: Array, phases: Array) -> OptimizerState:
        """Return the state before training: the features of a map, and heads of zeros."""
        origin, unit = self.scaling
        turns = frequencies / (2 * np.pi)
        # The rows are moved to the origin, so each phase takes up what its angle has there.
        offsets = phases / (2 * np.pi) + origin @ turns
        width = len(self.objective.alphas) * self.objective.n_outputs
        parameters = Parameters(
            np.ascontiguousarray(turns / unit, np.float32),
            (offsets - np.rint(offsets)).astype(np.float32),
            np.zeros((len(phases), width), np.float32),
            np.zeros(width, np.float32),
        )
        return OptimizerState(parameters, Adam.start(parameters))

    def frequencies(self, parameters: Parameters) -> tuple[Array, Array]:
        """Return frequencies and phases in radians, for rows as they are."""
        turns = parameters.frequencies.astype(np.float64) * self.scaling.unit
        phases = parameters.phases - self.scaling.origin @ turns
        return 2 * np.pi * turns, 2 * np.pi * (phases - np.floor(phases))

    def head(self, parameters: Parameters) -> tuple[Array, Array]:
        """Return coefficients (outputs, J) and intercepts of the only head."""
        coef = np.ascontiguousarray(parameters.heads.T, np.float64)
        return coef, parameters.intercepts.astype(np.float64)

    def steps(self) -> Steps:
        """Return what the kernels need to know."""
        objective = self.objective
        return Steps(
            objective.loss,
            objective.epsilon,
            objective.n_outputs,
            np.repeat(np.array(objective.alphas, np.float32), objective.n_outputs),
            self.scales.astype(np.float32)[:, None],
            (self.scaling.origin * self.scaling.unit).astype(np.float32),
            self.batch,
            self.n_steps,
            self.step_size,
            self.learn_features,
        )

    def outputs(self, parameters: Parameters, X: Matrix) -> Array:
        """Return the outputs of all heads, ``(rows, n_heads, n_outputs)``."""
        frequencies, phases = self.frequencies(parameters)
        block = CosineBlock.make(frequencies, phases, self.scales, np.dtype(np.float32))
        n_heads, found = len(self.objective.alphas), []
        for start in range(0, X.shape[0], 2048):
            Z = block(X[start : start + 2048])
            found.append(Z @ parameters.heads + parameters.intercepts)
        return np.concatenate(found).reshape(X.shape[0], n_heads, -1)


def input_scaling(X: Matrix, frequencies: Array) -> InputScaling:
    """Return the origin of sampled rows and the typical size of a frequency."""
    origin = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    unit = float(np.sqrt(np.mean(np.square(frequencies)))) / (2 * np.pi)
    return InputScaling(origin, unit)


def train_rows(
    state: OptimizerState,
    training: OptimizerConfig,
    parts: Sequence[TrainingRows],
    which: IntArray,
    rows: IntArray,
) -> OptimizerState:
    """Go once over rows of some blocks in a given order and return the new state.

    Parameters
    ----------
    state : OptimizerState
        Left as it is.
    training : OptimizerConfig
    parts : sequence of TrainingRows
        The blocks.
    which, rows : arrays of int
        The block of each row, and its place there, in the order in which they are learned from.
    """
    parameters, adam = state.parameters.copy(), state.adam.copy()
    steps, buffers = training.steps(), Buffers.make(training.batch, parameters)
    size = training.batch * max(1, CHUNK_ROWS // training.batch)
    loss, weight = state.loss, state.weight

    def gather(start: int) -> ScaledRows:
        chunk = slice(start, start + size)
        found = take_training_rows(parts, which[chunk], rows[chunk])
        return ScaledRows.of(found.X, found.as_targets(), training.scaling)

    for chunk in map_ahead(gather, range(0, len(rows), size)):
        step, more = learn_rows(chunk, parameters, adam, steps, buffers)
        if not np.isfinite(more):
            raise diverged("outputs grew beyond any number")
        adam = adam._replace(step=step)
        loss, weight = loss + more, weight + float(chunk.targets.weights.sum(dtype=np.float64))
    return OptimizerState(parameters, adam, loss, weight)


def join_chains(
    before: OptimizerState, ends: Sequence[OptimizerState], chains: int
) -> OptimizerState:
    """Return the mean of the states that chains came to, each from `before`."""
    if chains == 1:
        return ends[0]
    taken = [end.adam.step - before.adam.step for end in ends]
    shares = np.array(taken, np.float32) / np.float32(max(sum(taken), 1))

    def mean(states: Sequence[Parameters]) -> Parameters:
        return Parameters(*(np.tensordot(shares, parts, 1) for parts in zip(*states, strict=True)))

    adam = Adam(
        mean([end.adam.first for end in ends]),
        mean([end.adam.second for end in ends]),
        before.adam.step + -(-sum(taken) // chains),
    )
    return OptimizerState(
        mean([end.parameters for end in ends]),
        adam,
        before.loss + sum(end.loss - before.loss for end in ends),
        before.weight + sum(end.weight - before.weight for end in ends),
    )


def take_training_rows(
    parts: Sequence[TrainingRows], which: IntArray, rows: IntArray
) -> TrainingRows:
    """Return rows of some blocks in the given order."""
    if len(parts) == 1:
        return parts[0].take(rows)
    columns: list[Any] = [
        take_rows([part[k] for part in parts], which, rows) for k in range(len(parts[0]))
    ]
    return TrainingRows(*columns)


class Judgement(NamedTuple):
    """How each head does on rows held out."""

    losses: Array  # (n_heads,) weighted means
    errors: Array  # (n_heads,) their standard errors
    scores: Array | None = None  # (n_heads,) by a metric that was named, larger for better ones

    @property
    def best(self) -> int:
        """The head with the best score, or else the smallest loss."""
        return int(np.argmin(self.losses if self.scores is None else -self.scores))

    @property
    def value(self) -> float:
        """What is wrong with the best head, and smaller for better ones."""
        return float(self.losses[self.best] if self.scores is None else -self.scores[self.best])

    @property
    def error(self) -> float:
        """How far `value` is uncertain; a metric that was named is taken at its word."""
        return float(self.errors[self.best]) if self.scores is None else 0.0


def judge(
    training: OptimizerConfig,
    parameters: Parameters,
    held: TrainingRows,
    score: HeldOutScore | None = None,
) -> Judgement:
    """Return loss and its standard error of every head on rows held out, and their scores."""
    outputs = training.outputs(parameters, held.X)
    losses, errors = [], []
    scores = []
    total = max(float(held.weights.sum(dtype=np.float64)), 1e-30)
    for number in range(outputs.shape[1]):
        own = np.ascontiguousarray(outputs[:, number])
        found = training.objective.row_losses(own, held.targets)
        mean = float(held.weights @ found) / total
        spread = held.weights.astype(np.float64) * (found - mean)
        losses.append(mean if np.isfinite(mean) else np.inf)
        errors.append(float(np.sqrt(np.square(spread).sum())) / total)
        if score is not None:
            scores.append(score.value(score.count(own, held.targets, held.weights)))
    return Judgement(np.array(losses), np.array(errors), np.array(scores) if score else None)


def take_head(
    training: OptimizerConfig, state: OptimizerState, head: int
) -> tuple[OptimizerConfig, OptimizerState]:
    """Return the training of one head alone, with an open end."""
    k = training.objective.n_outputs
    columns = slice(head * k, (head + 1) * k)

    def alone(values: Parameters) -> Parameters:
        heads = np.ascontiguousarray(values.heads[:, columns])
        return values._replace(heads=heads, intercepts=values.intercepts[columns].copy())

    adam = Adam(alone(state.adam.first), alone(state.adam.second), state.adam.step)
    objective = replace(training.objective, alphas=(training.objective.alphas[head],))
    work = replace(training, objective=objective, n_steps=0)
    return work, OptimizerState(alone(state.parameters), adam, state.loss, state.weight)


def steps_of(sizes: Sequence[int], batch: int) -> int:
    """Return the steps of one epoch over groups of rows."""
    return sum(-(-size // batch) for size in sizes)


def train_in_memory(
    training: OptimizerConfig,
    state: OptimizerState,
    data: TrainingRows,
    visits: int,
    rng: np.random.Generator,
) -> OptimizerState:
    """Train on `visits` rows drawn from `data`, as often over all of them as that takes."""
    n = len(data.weights)
    left = visits
    while left > 0:
        order = rng.permutation(n)[: min(left, n)]
        state = train_rows(state, training, [data], np.zeros_like(order), order)
        left -= n
    return state
