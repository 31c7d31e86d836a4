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

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from rfcdask.features.evaluators import FeatureRows
from rfcdask.kernels.arrays import (
    Array,
    Matrix,
    NotFiniteError,
    as_csr,
    check_finite,
    feature_dtype,
    is_sparse,
    to_dense,
)
from rfcdask.kernels.runtime import map_ahead
from rfcdask.kernels.seeds import held_out_rows, shuffle_rows, take_entries
from rfcdask.linear.rows import (
    check_sizes,
    dense,
    encode_labels,
    find_not_finite,
    not_finite_error,
    weights_of_steps,
)
from rfcdask.linear.scorers import HeldOutScore, merged
from rfcdask.linear.sgd.losses import CURVATURE, SQUARED, STEP_GAIN, Targets, slopes_of_heads
from rfcdask.linear.sgd.optimizer import (
    DiagonalPreconditioner,
    Preconditioner,
    StepParameters,
    fit_diagonal,
    fit_preconditioner,
    run_sparse_steps,
    run_steps,
    stays_sparse,
)

GROUP_BYTES = 2**27
"""Rows of several blocks are mixed as long as they stay below this size."""
MAX_MIXED = 8
"""Most blocks whose rows are mixed."""
CHUNK_BYTES = 2**21
"""Bytes of the rows, or of their features, that are made at a time and learned from in cache."""


class TrainingState(NamedTuple):
    """Everything that training changes; its names are those of a checkpoint."""

    W: Array  # (J + 1, penalties * outputs), the intercepts last
    mean: Array
    step: int = 0
    loss: float = 0.0  # summed over the rows of this epoch so far
    rows: float = 0.0
    held_out_loss: Array | float = 0.0  # of each penalty that is left
    held_out_rows: float = 0.0
    left: tuple[int, ...] = ()  # numbers of the penalties that are still trained with; none: all
    counts: tuple[Any, ...] = ()  # of rows held out, for each penalty that is left

    @classmethod
    def zero(cls, n_features: int, n_columns: int) -> Self:
        """Return the state from which training starts: all coefficients zero."""
        shape = (n_features + 1, n_columns)
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
    alphas: tuple[float, ...] = ()  # penalties trained with at once; none stands for `alpha` alone
    decide_at: float = np.inf  # steps after which half of the penalties is left, a quarter after 2x
    chains: int = 1  # groups that are learned from side by side, from the same state
    score: HeldOutScore | None = None  # what rows held out judge by, if not by the loss

    @property
    def penalties(self) -> tuple[float, ...]:
        """The penalty of each model that is trained in the beginning."""
        return self.alphas or (self.alpha,)

    def left(self, state: TrainingState) -> tuple[int, ...]:
        """Return the numbers of the penalties that a state still has models of."""
        return state.left or tuple(range(len(self.penalties)))

    def n_left(self, step: int) -> int:
        """Return how many penalties are trained with after so many steps."""
        count, decide_at = len(self.penalties), self.decide_at
        while count > 1 and step >= decide_at:
            count, decide_at = (count + 1) // 2, 2 * decide_at
        return count

    @property
    def is_classifier(self) -> bool:
        """Whether targets are classes."""
        return self.loss < SQUARED

    def step_parameters(
        self, P: Preconditioner | DiagonalPreconditioner, left: Sequence[int] = (0,)
    ) -> StepParameters:
        """Return what the kernel needs, with the step size that the noise of a batch allows."""
        share = self.batch_size / (self.batch_size + P.spread)
        eta = self.eta0 * STEP_GAIN.get(self.loss, 1.0) * share
        constant = float(self.fit_intercept)
        return StepParameters(
            self.loss,
            self.epsilon,
            self.n_outputs,
            np.repeat([self.penalties[number] for number in left], self.n_outputs),
            eta,
            self.n_steps,
            self.batch_size,
            CURVATURE.get(self.loss, 0.0),
            constant,
        )


def blocks_mixed(n_blocks: int, block_bytes: int, chains: int = 1) -> int:
    """Return how many blocks are mixed in a group; several chains share the memory of one."""
    most = min(MAX_MIXED, n_blocks, max(1, GROUP_BYTES // max(block_bytes, 1)))
    return int(max(most // chains, 1))


class _Block(NamedTuple):
    """One block, ready to be learned from."""

    X: Matrix | FeatureRows
    targets: Targets
    held_out: Array


def _prepare(config: TrainingConfig, block: tuple[Any, ...], index: int) -> _Block:
    X, y = block[0], np.asarray(block[1])
    if not isinstance(X, FeatureRows):
        X = as_csr(X) if is_sparse(X) else dense(X)
    n = X.shape[0]
    held_out = held_out_rows(n, config.validation_fraction, config.seed, index)
    weights = np.ones(n, np.float32)
    if config.weighted:
        weights = weights_of_steps(block[2], index)
    if not config.is_classifier:
        values = y[:, None] if y.ndim == 1 else y
        if not np.isfinite(values).all():
            raise (
                find_not_finite(np.zeros(0), y, index, int(config.starts[index])) or AssertionError
            )
        values = values.astype(np.float64)
        return _Block(X, Targets(np.zeros(0, np.int64), values, weights), held_out)
    codes = encode_labels(y, config.classes)
    weights = (weights * config.class_weights[codes]).astype(np.float32)
    return _Block(X, Targets(codes, np.zeros((0, 1)), weights), held_out)


def take_rows(blocks: Sequence[Matrix], which: Array, rows: Array) -> Matrix:
    """Return rows of some blocks, all dense or all CSR, in the given order."""
    first = blocks[0]
    if len(blocks) == 1:
        return first[rows] if is_sparse(first) else first.take(rows, axis=0)
    order = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[order], np.arange(len(blocks)), side="right").tolist()
    by_block, back = rows[order], np.empty_like(order)
    back[order] = np.arange(len(order))
    places = [slice(*pair) for pair in pairwise([0, *ends])]
    if is_sparse(first):
        parts: list[Any] = [block[by_block[at]] for block, at in zip(blocks, places, strict=True)]
        return sp.vstack(parts, format="csr")[back]
    # `take` needs a third of the time of an index.
    found = np.empty((len(rows), *first.shape[1:]), first.dtype)
    for block, at in zip(blocks, places, strict=True):
        np.asarray(block, first.dtype).take(by_block[at], axis=0, out=found[at], mode="clip")
    return found.take(back, axis=0, mode="clip")


def _features(blocks: Sequence[Any], which: Array, rows: Array) -> Matrix:
    """Return rows of some blocks, or their features, as an array; wide CSR rows as they are."""
    first = blocks[0]
    if stays_sparse(first):
        return take_rows(blocks, which, rows)
    if not isinstance(first, FeatureRows):
        found = to_dense(take_rows(blocks, which, rows))
        return found.astype(feature_dtype(found.dtype), copy=False)
    try:
        return np.asarray(first.evaluator(take_rows([block.X for block in blocks], which, rows)))
    except ValueError:
        for block in blocks:
            block.require_finite()
        raise


def _chunks(blocks: Sequence[Matrix | FeatureRows], which: Array, rows: Array, size: int) -> Any:
    """Yield the first row and the features of one chunk of rows after another, in float32.

    The next ones are gathered and evaluated beside what is learned from these.
    """

    def make(start: int) -> tuple[int, Matrix]:
        part = slice(start, start + size)
        found = _features(blocks, which[part], rows[part])
        if is_sparse(found):
            return start, found.astype(np.float32)
        return start, np.ascontiguousarray(found, np.float32)

    return map_ahead(make, range(0, len(rows), size))


def train_on_blocks(
    state: TrainingState,
    config: TrainingConfig,
    P: Preconditioner | DiagonalPreconditioner,
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
    which, rows, targets = _shuffle(parts, config, epoch, number)
    state = state._replace(W=state.W.copy(), mean=state.mean.copy(), left=config.left(state))
    params = config.step_parameters(P, state.left)
    size = _rows_at_once(parts[0].X, state.W.shape[0], config.batch_size)
    run: Any = run_steps if isinstance(P, Preconditioner) else run_sparse_steps
    for start, Z in _chunks([part.X for part in parts], which, rows, size):
        some = Targets(*(column[start : start + size] for column in targets))
        step, bad, more = run(Z, some, state.W, state.mean, state.step, params, P)
        if bad >= 0:
            k = int(which[start + bad])
            raise _diverged(parts[k].X, indices[k], config)
        state = state._replace(step=int(step), loss=state.loss + float(more))
        if config.chains == 1 and len(state.left) > config.n_left(state.step):
            state = _keep_best(_judge(state, parts, config), config)
            params = config.step_parameters(P, state.left)
    if config.validation_fraction > 0:
        state = _judge(state, parts, config)
    return state._replace(rows=state.rows + float(targets.weights.sum(dtype=np.float64)))


def _judge(state: TrainingState, parts: Sequence[_Block], config: TrainingConfig) -> TrainingState:
    """Add the loss of the rows held out of some blocks, under the mean model of each penalty."""
    losses, counts = state.held_out_loss, state.counts
    for part in parts:
        more, found = _of_held_out(part, state, config)
        losses, counts = losses + more, merged(config.score, counts, found)
    weights = [part.targets.weights[part.held_out].sum(dtype=np.float64) for part in parts]
    return state._replace(
        held_out_loss=losses,
        held_out_rows=state.held_out_rows + float(sum(weights)),
        counts=counts,
    )


def held_out_values(state: TrainingState, config: TrainingConfig) -> Array:
    """Return what is wrong with the model of each penalty on rows held out: smaller is better."""
    if config.score is not None:
        return -np.array([config.score.value(counts) for counts in state.counts])
    return np.atleast_1d(state.held_out_loss) / state.held_out_rows


def join_chains(
    before: TrainingState, ends: Sequence[TrainingState], config: TrainingConfig
) -> TrainingState:
    """Return the mean of the states that chains came to, each from `before`."""
    if config.chains == 1:
        return ends[0]
    taken = [end.step - before.step for end in ends]
    shares = np.array(taken) / max(sum(taken), 1)

    def added(values: Sequence[Any], start: Any) -> Any:
        return start + sum(value - start for value in values)

    counts: tuple[Any, ...] = before.counts
    for end in ends:
        counts = merged(config.score, counts, end.counts)
    state = TrainingState(
        np.tensordot(shares, [end.W for end in ends], 1),
        np.tensordot(shares, [end.mean for end in ends], 1),
        before.step + -(-sum(taken) // config.chains),
        added([end.loss for end in ends], before.loss),
        added([end.rows for end in ends], before.rows),
        added([end.held_out_loss for end in ends], before.held_out_loss),
        added([end.held_out_rows for end in ends], before.held_out_rows),
        ends[0].left,
        counts,
    )
    return _keep_best(state, config) if len(state.left) > config.n_left(state.step) else state


def _keep_best(state: TrainingState, config: TrainingConfig) -> TrainingState:
    """Return the state with the models of some penalties, the best on rows held out so far."""
    count, n_outputs = config.n_left(state.step), config.n_outputs
    order = np.argsort(held_out_values(state, config), kind="stable")  # NaN comes last
    kept = np.sort(order[:count])
    columns = (kept[:, None] * n_outputs + np.arange(n_outputs)).ravel()
    return state._replace(
        W=np.ascontiguousarray(state.W[:, columns]),
        mean=np.ascontiguousarray(state.mean[:, columns]),
        held_out_loss=np.asarray(state.held_out_loss)[kept],
        left=tuple(state.left[k] for k in kept),
        counts=tuple(state.counts[k] for k in kept) if state.counts else (),
    )


def _rows_at_once(X: Matrix | FeatureRows, width: int, batch_size: int) -> int:
    """Return how many rows are gathered at a time: whole batches, and about `CHUNK_BYTES`."""
    if stays_sparse(X):
        width = 2 * X.nnz // max(X.shape[0], 1) + 1  # values, and the numbers of their columns
    return batch_size * max(1, CHUNK_BYTES // (4 * width * batch_size))


def _diverged(X: Matrix | FeatureRows, index: int, config: TrainingConfig) -> ValueError:
    error = None
    if stays_sparse(X):
        try:
            check_finite(X)
        except NotFiniteError as found:
            first_row = int(config.starts[index])
            return not_finite_error("X", index, found.row, first_row, found.column)
    elif not isinstance(X, FeatureRows):
        error = find_not_finite(to_dense(X), None, index, int(config.starts[index]))
    return error or ValueError(
        "Training diverged: scores grew beyond any number. Shuffle rows that are sorted, scale "
        "the columns of X to similar size, lower eta0, or raise alpha."
    )


def _shuffle(
    parts: list[_Block], config: TrainingConfig, epoch: int, number: int
) -> tuple[Array, Array, Targets]:
    """Return block and row of each row to learn from, in their order, and their targets."""
    sizes = [part.X.shape[0] for part in parts]
    which, rows = shuffle_rows(sizes, config.seed, epoch, number)
    if config.validation_fraction > 0:
        used = ~take_entries([part.held_out for part in parts], which, rows)
        which, rows = which[used], rows[used]
    columns = zip(*(part.targets for part in parts), strict=True)
    return which, rows, Targets(*(take_entries(column, which, rows) for column in columns))


def _of_held_out(
    part: _Block, state: TrainingState, config: TrainingConfig
) -> tuple[Array, tuple[Any, ...]]:
    """Return summed loss and counts of the rows held out, under the mean model of each penalty."""
    rows, mean = np.flatnonzero(part.held_out), state.mean
    targets = Targets(*(column[rows] if len(column) else column for column in part.targets))
    size = _rows_at_once(part.X, len(mean), 1)
    losses, k = np.zeros(len(state.left)), config.n_outputs
    counts: tuple[Any, ...] = ()
    true = targets.codes if config.is_classifier else targets.values
    for start, Z in _chunks([part.X], np.zeros(len(rows), np.int8), rows, size):
        scores = Z @ mean[:-1].astype(np.float32)
        scores += (mean[-1] * config.fit_intercept).astype(np.float32)
        some = slice(start, start + len(scores))
        found = []
        for head in range(len(losses)):
            own = np.ascontiguousarray(scores[:, head * k : (head + 1) * k])
            losses[head] += slopes_of_heads(
                own, targets, start, config.loss, config.epsilon, k, np.empty_like(own)
            )
            if config.score is not None:
                found.append(config.score.count(own, true[some], targets.weights[some]))
        counts = merged(config.score, counts, found)
    return losses, counts


def sample_rows(
    config: TrainingConfig, index: int, fraction: float, block: tuple[Any, ...]
) -> tuple[Matrix, Array, float]:
    """Return some rows of a block, at least one, their weights, and the size of all targets."""
    part = _prepare(config, block, index)
    n = part.X.shape[0]
    rng = np.random.default_rng([config.seed, 4, index])
    count = min(max(1, round(fraction * n)), n)
    rows = np.sort(rng.choice(n, count, replace=False))
    Z = _features([part.X], np.zeros(count, np.int8), rows)
    values = Z.data if is_sparse(Z) else Z
    if not (np.abs(values) <= np.finfo(np.float32).max).all():  # steps are made in float32
        raise _diverged(part.X, index, config)
    return Z, part.targets.weights[rows], float(np.abs(part.targets.values).max(initial=0.0))


def preconditioner_from(
    config: TrainingConfig, *samples: tuple[Any, Array, float]
) -> Preconditioner | DiagonalPreconditioner:
    """Estimate the preconditioner from rows sampled from some blocks."""
    parts, weighted, sizes = zip(*samples, strict=True)
    check_sizes(parts, min(config.penalties), max(sizes))
    weights = np.concatenate(weighted)
    if is_sparse(parts[0]):
        return fit_diagonal(sp.vstack(parts, format="csr"), weights, config.fit_intercept)
    Z = np.concatenate(parts)
    shuffle = np.random.default_rng([config.seed, 4]).permutation(len(Z))
    return fit_preconditioner(
        Z[shuffle],
        weights[shuffle],
        max(config.penalties),
        config.fit_intercept,
        len(Z) == config.starts[-1],
    )
