"""What the models trained by stochastic gradient descent share.

Whether features are computed again in each epoch or kept in memory is decided here too. Memory
decides first, because a model must not need more of it the more rows there are. Where there is
room, the time of computing a block, measured on two of them, is set against that of reading a kept
block again, from memory or from another worker.
"""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import dask
import numpy as np
from dask.utils import parse_bytes
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from rfcdask.display import count, number
from rfcdask.display.charts import training
from rfcdask.display.drawing import Chart
from rfcdask.display.html import Facts
from rfcdask.execution.blocks import Blocks, first_rows, stream_groups
from rfcdask.execution.cluster import current_client
from rfcdask.execution.configuration import configured_bytes
from rfcdask.execution.dask_internals import memory_of_machine
from rfcdask.execution.executor import Executor
from rfcdask.execution.failures import workers_of
from rfcdask.features.lazy import FeatureArray
from rfcdask.kernels.arrays import Array, DaskArray, is_sparse
from rfcdask.kernels.seeds import seed_of
from rfcdask.linear.inputs import ClassLabels
from rfcdask.linear.predict import COMMON_CONSTRAINTS, NOT_NEGATIVE, LinearModel
from rfcdask.linear.scorers import HeldOutScore
from rfcdask.linear.sgd.step import GROUP_BYTES, TrainingConfig, TrainingState
from rfcdask.linear.sgd.training import (
    SOME_ROWS,
    SOME_TARGETS,
    Checkpoint,
    TrainingLoop,
)

AUTO_C = (8.0, 1.0, 32.0, 256.0)
"""Of ``alpha="auto"``: models for all of these C are trained at once on the same features, and rows
held out choose one; the first where too few could be held out to tell."""
DECIDE_ROWS, DECIDE_SHARE = 2**18, 1 / 16
"""Rows to learn from before the worse half of several penalties is dropped; and share of all."""
ROW_VISITS, LEAST_EPOCHS, MOST_EPOCHS = 300_000, 5, 200
"""Rows that ``epochs="auto"`` learns from at least, counted once per epoch; and bounds of it."""
LEAST_HELD_OUT, MOST_HELD_OUT = 50, 10_000
"""Rows held out to choose a penalty."""
JUDGED_ROWS, MOST_JUDGED = 1000, 5
"""Where fewer rows are held out, others are held out in their place: until so many have judged the
two best penalties, and so often at most. Of 165 rows the choice would be half chance."""
NOT_IN_FINGERPRINT = {"checkpoint", "checkpoint_every", "progress", "persist", "random_state"}
"""Parameters that may change between the two halves of a run without changing its result."""

LOOKED_AT = 3
"""Blocks of which a checkpoint keeps what two rows look like."""

_POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")


class EpochModel(LinearModel):
    """What models trained in epochs share: history, seed, checkpoints; not for direct use."""

    def plot(self, ax: Any = None) -> Any:
        """Draw the mean loss of each epoch on `ax`, or on new axes; returns the axes."""
        check_is_fitted(self, "history_")
        return training(self.history_).plot(ax)

    def _chart(self) -> Chart | None:
        return training(self.history_) if len(self.history_) > 1 else None

    def _choose_seed(self) -> int:
        """Return the seed; a run whose own is left open goes on with that of its checkpoint."""
        if self.random_state is None and self.checkpoint is not None:
            stored = Checkpoint(self.checkpoint, {}).stored_seed()
            if stored is not None:
                return stored
        return seed_of(self.random_state)

    def _score(
        self, class_weights: Array | None = None, softmax: bool = False, **more: Any
    ) -> HeldOutScore | None:
        """Return what rows held out judge by where `scoring` names it."""
        if self.scoring is None:
            return None
        weights = np.ones(0) if class_weights is None else class_weights
        has_proba = self.loss == "log_loss"
        return HeldOutScore.checked(self.scoring, weights, softmax if has_proba else None, **more)

    def _seed_of_calls(self) -> int:
        """Return the seed of all calls of `partial_fit`."""
        return self.seed_ if hasattr(self, "seed_") else self._choose_seed()

    def _fingerprint(
        self,
        executor: Executor,
        blocks: Blocks,
        seed: int,
        labels: ClassLabels | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Return what must be the same for a run to go on from a checkpoint.

        Of X these are a few rows: first and last ones of blocks that the seed draws. Of targets and
        weights these are all of those blocks; labels are counted in every block anyway.
        """
        params = self.get_params(deep=False).items()
        found: dict[str, Any] = {"model": type(self).__name__}
        found |= {name: repr(value) for name, value in params if name not in NOT_IN_FINGERPRINT}
        found |= {
            "rows": sum(blocks.rows),
            "columns": self.n_features_in_,
            "chunks": zlib.crc32(repr(list(blocks.rows)).encode()),
        }
        if labels is not None:
            known = repr((labels.classes.tolist(), labels.counts.tolist()))
            found["labels"] = zlib.crc32(known.encode())
        if self.checkpoint is not None:
            rows, others = _some_rows(executor, blocks, seed, labels is None)
            found |= {SOME_ROWS: rows, SOME_TARGETS: others}
        return found | more | {"seed": seed}


def _some_rows(
    executor: Executor, blocks: Blocks, seed: int, targets: bool
) -> tuple[list[list[float]], list[list[float]]]:
    filled = np.random.default_rng([seed, 10]).permutation(np.flatnonzero(blocks.rows))
    groups = [(int(index),) for index in filled[:LOOKED_AT]]
    rows: list[list[float]] = []
    others: list[list[float]] = []
    for _, (block,) in stream_groups(executor, blocks, groups, executor.threads):
        task = executor.call(_look_at, block, targets)
        found = executor.result(task)
        rows, others = rows + found[0], others + found[1]
        executor.release(task)
    return rows, others


def _look_at(block: tuple[Any, ...], targets: bool) -> tuple[list[list[float]], list[list[float]]]:
    """Return norms and random projections: of first and last row; of all targets and weights."""
    rows = block[0][np.array([0, len(block[1]) - 1])]
    values = np.asarray(rows.toarray() if is_sparse(rows) else rows, np.float64)
    others = [np.asarray(one, np.float64).reshape(1, -1) for one in block[1 if targets else 2 :]]
    return _projected(values), [found for one in others for found in _projected(one)]


def _projected(values: Array) -> list[list[float]]:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], values.shape[1])
    found: list[list[float]] = np.stack(
        [np.linalg.norm(values, axis=1), values @ signs], 1
    ).tolist()
    return found


class BaseSGD(EpochModel):
    """What classifier and regressor share: the way from blocks and parameters to coefficients."""

    _private: ClassVar[tuple[str, ...]] = ("_preconditioner", "_state")
    _parameter_constraints: ClassVar[dict[str, Any]] = COMMON_CONSTRAINTS | {
        "alpha": [NOT_NEGATIVE, StrOptions({"auto"})],
        "alphas": ["array-like", None],
        "epochs": [_POSITIVE_INTEGER, StrOptions({"auto"})],
        "batch_size": [_POSITIVE_INTEGER, StrOptions({"auto"})],
        "eta0": [Interval(Real, 0, np.inf, closed="neither")],
        "average": ["boolean"],
        "chains": [_POSITIVE_INTEGER],
        "early_stopping": ["boolean"],
        "scoring": [str, None],
        "tol": [NOT_NEGATIVE],
        "patience": [_POSITIVE_INTEGER],
        "checkpoint": [str, os.PathLike, None],
        "checkpoint_every": [_POSITIVE_INTEGER],
        "persist": ["boolean", StrOptions({"auto"})],
    }

    def _facts(self) -> Facts:
        if not hasattr(self, "history_"):
            return []
        known = [("epochs", count(self.n_iter_)), ("alpha", number(self.alpha_))]
        return [*super()._facts(), *known, ("last loss", number(self.history_[-1]["loss"]))]

    def _make_config(self, X: DaskArray, seed: int, **more: Any) -> TrainingConfig:
        n = X.shape[0]
        alphas = self._penalties(n)
        one = self.alphas is None and self.alpha != "auto"
        if self.scoring is not None and one and not self.early_stopping:
            raise ValueError(
                f"scoring={self.scoring!r} has nothing to choose: pass early_stopping=True, or "
                "several alphas, or leave it out."
            )
        held_out = float(self.validation_fraction) if self.early_stopping else 0.0
        if len(alphas) > 1 and not self.early_stopping:
            held_out = min(float(self.validation_fraction), MOST_HELD_OUT / n)
        batch_size = _auto_batch_size(n) if self.batch_size == "auto" else int(self.batch_size)
        steps_per_epoch = sum(-(-size // batch_size) for size in X.chunks[0])
        n_steps = float(steps_per_epoch * self._count_epochs(n) + 1) / self.chains
        return TrainingConfig(
            alpha=alphas[0],
            alphas=alphas,
            eta0=float(self.eta0),
            n_steps=n_steps,
            decide_at=max(DECIDE_ROWS / batch_size, DECIDE_SHARE * n_steps),
            chains=int(self.chains),
            batch_size=batch_size,
            seed=seed,
            fit_intercept=bool(self.fit_intercept),
            validation_fraction=held_out,
            starts=first_rows(X),
            **more,
        )

    def _count_epochs(self, n_rows: int) -> int:
        if self.epochs != "auto":
            return int(self.epochs)
        return auto_epochs(n_rows)

    def _penalties(self, n_rows: int) -> tuple[float, ...]:
        """Return the penalties to train with, of which rows held out choose one."""
        if self.alphas is not None:
            if n_rows * self.validation_fraction < 1:
                raise ValueError(
                    "Too few rows to hold some out; give one alpha instead of several."
                )
            return tuple(dict.fromkeys(float(alpha) for alpha in self.alphas))
        if self.alpha != "auto":
            return (float(self.alpha),)
        few = n_rows * self.validation_fraction < LEAST_HELD_OUT
        return tuple(1.0 / (C * n_rows) for C in ((AUTO_C[0],) if few else AUTO_C))

    def _train(
        self,
        executor: Executor,
        blocks: Blocks,
        config: TrainingConfig,
        labels: ClassLabels | None = None,
    ) -> None:
        """Train from zero, or from the checkpoint."""
        checkpoint = None
        if self.checkpoint is not None:
            about = {"targets": config.n_outputs, "weights": config.weighted}
            fingerprint = self._fingerprint(executor, blocks, config.seed, labels, **about)
            checkpoint = Checkpoint(self.checkpoint, fingerprint)
        start = TrainingState.zero(self.n_features_in_, len(config.penalties) * config.n_outputs)
        loop = TrainingLoop(executor, blocks, config, start, self.progress)
        loop.checkpoint, loop.checkpoint_every = checkpoint, self.checkpoint_every
        epochs = range(self._count_epochs(sum(blocks.rows)))
        loop.run(epochs, self.patience if self.early_stopping else 0, self.tol)
        self._set_attributes(loop)
        if len(config.penalties) > 1 and not self.early_stopping:
            self._judge_again(executor, blocks, config, loop)
            self._train_on_all(executor, blocks, config, loop)

    def _judge_again(
        self, executor: Executor, blocks: Blocks, config: TrainingConfig, first: TrainingLoop
    ) -> None:
        """Let further rows choose between the two best penalties, where few were held out."""
        held = config.validation_fraction * sum(blocks.rows)
        best = np.argsort(first.held_out, kind="stable")[:2]
        sums, left = first.held_out[best], config.left(first.state)
        alphas = tuple(config.penalties[left[k]] for k in best)
        for turn in range(1, min(MOST_JUDGED, int(-(-JUDGED_ROWS // held)))):
            other = replace(
                config,
                alphas=alphas,
                decide_at=np.inf,
                n_steps=config.n_steps / 2,
                seed=config.seed + turn,
            )
            start = TrainingState.zero(self.n_features_in_, len(alphas) * config.n_outputs)
            loop = TrainingLoop(executor, blocks, other, start, self.progress)
            loop.preconditioner = first.preconditioner
            loop.run(range(-(-len(first.history) // 2)))  # enough to tell two apart
            sums = sums + loop.held_out
            self.alpha_ = alphas[int(np.nanargmin(sums))]

    def _train_on_all(
        self, executor: Executor, blocks: Blocks, config: TrainingConfig, chosen: TrainingLoop
    ) -> None:
        """Train again with the penalty that was chosen, where the rows held out are missed."""
        if config.validation_fraction * sum(blocks.rows) >= MOST_HELD_OUT:
            return
        config = replace(config, alpha=self.alpha_, alphas=(), validation_fraction=0.0, score=None)
        start = TrainingState.zero(self.n_features_in_, config.n_outputs)
        loop = TrainingLoop(executor, blocks, config, start, self.progress)
        loop.preconditioner = chosen.preconditioner
        loop.run(range(len(chosen.history)))
        self._set_attributes(loop)

    def _train_more(self, executor: Executor, blocks: Blocks, config: TrainingConfig) -> None:
        """Go once over new blocks from where the last call ended; nobody knows of how many."""
        alpha = getattr(self, "alpha_", config.alpha) if self.alpha == "auto" else config.alpha
        held_out = config.validation_fraction if self.early_stopping else 0.0
        config = replace(config, n_steps=0.0, alpha=alpha, alphas=(), validation_fraction=held_out)
        state = self._last_state(config.n_outputs)
        loop = TrainingLoop(executor, blocks, config, state, self.progress)
        loop.preconditioner = getattr(self, "_preconditioner", None)
        calls = getattr(self, "n_calls_", 0)
        loop.run(range(calls, calls + 1))
        self.n_calls_ = calls + 1
        self._set_attributes(loop)

    def _last_state(self, n_outputs: int) -> TrainingState:
        state: TrainingState | None = getattr(self, "_state", None)
        if state is not None:
            return state
        if not hasattr(self, "coef_"):
            return TrainingState.zero(self.n_features_in_, n_outputs)
        W = np.vstack([np.atleast_2d(self.coef_).T, np.atleast_1d(self.intercept_)[None]])
        return TrainingState(W.astype(float), W.astype(float), step=self.t_)

    def _set_attributes(self, loop: TrainingLoop) -> None:
        config, state, chosen = loop.config, loop.state, loop.history[-1]
        if loop.best is not None:
            state, chosen = loop.best, loop.history[loop.best_epoch() or 0]
        self.alpha_ = config.alpha
        if len(config.penalties) > 1:
            self.alpha_ = chosen.get("alpha", config.alpha)
        k = config.n_outputs
        number = config.left(state).index(config.penalties.index(self.alpha_))
        own = slice(number * k, (number + 1) * k)
        state = state._replace(W=state.W[:, own], mean=state.mean[:, own], left=())
        best = state.mean if self.average else state.W
        self.coef_ = np.ascontiguousarray(best[:-1].T)
        self.intercept_ = best[-1] * config.fit_intercept
        self.t_, self.seed_ = state.step, config.seed
        self.history_ = loop.history
        self.n_iter_ = len(self.history_)
        self._state, self._preconditioner = state, loop.preconditioner

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_preconditioner"}


def auto_epochs(n_rows: int, visits: int = ROW_VISITS) -> int:
    """Return the passes of ``epochs="auto"`` over so many rows."""
    return int(np.clip(-(-visits // n_rows), LEAST_EPOCHS, MOST_EPOCHS))


def _auto_batch_size(n_rows: int) -> int:
    """Return a power of two, small enough for many steps per epoch."""
    size = 8
    while size < 256 and size * 2 * 40 <= n_rows:
        size *= 2
    return size


LOCAL_BUDGET = 2 * GROUP_BYTES
"""Locally, features up to this size are kept (``rfcdask.persist-bytes``): as much as is in flight
when there are too many rows to keep, one group of blocks in use and one ahead."""
LOCAL_SHARE = 0.1
"""And no more than this share of the machine's memory."""
CLUSTER_SHARE = 0.2
"""On a cluster, features up to this share of the workers' memory are kept."""
FREE_SHARE = 0.5
"""And no more than this share of what is free of it now."""
MEMORY_BANDWIDTH = 2e9
"""Bytes per second at which a block that has left the caches is read again."""


def training_blocks(
    executor: Executor,
    arrays: tuple[DaskArray, DaskArray, DaskArray | None],
    epochs: int,
    keep: bool | str = False,
    client: Any = None,
) -> Blocks:
    """Return the blocks to learn from: rows whose features are evaluated where they are used.

    Where that is cheaper than computing them `epochs` times, features are kept in memory instead.
    Groups are made of as many blocks either way, so the choice never changes what is learned.
    """
    X, *others = arrays
    rows = Blocks(X.unevaluated() if isinstance(X, FeatureArray) else X, *others)
    chosen = current_client(client)
    if keep == "auto":
        keep = _is_worth_keeping(executor, X, epochs, chosen)
    if not keep:
        return rows
    kept = Blocks(executor.keep(X), *others)
    kept.nbytes = rows.nbytes
    return kept


def _is_worth_keeping(executor: Executor, X: DaskArray, epochs: int, client: Any) -> bool:
    in_graph = hasattr(X.dask, "layers") and len(X.dask.layers) < 2  # nothing to compute or read
    if epochs < 2 or in_graph or X.nbytes > memory_for_features(client):
        return False
    if max(X.chunks[0]) * X.shape[1] * X.dtype.itemsize > GROUP_BYTES:
        return False
    blocks = Blocks(X)
    fetch = _seconds_to_fetch(blocks.nbytes, client)
    return is_cheaper_to_keep(epochs, seconds_to_compute(executor, blocks), fetch)


def is_cheaper_to_keep(epochs: int, compute: float, fetch: float) -> bool:
    """Tell whether computing a block once and fetching it in each epoch takes less time."""
    return (epochs - 1) * compute > epochs * fetch


def seconds_to_compute(executor: Executor, blocks: Blocks) -> float:
    """Return the time of computing a block: the shorter of two, as the first may compile."""
    seconds = []
    for index in range(min(2, len(blocks))):
        start = time.perf_counter()
        handle = executor.block(blocks, index)
        executor.wait(handle)
        seconds.append(time.perf_counter() - start)
        executor.release(handle)
    return min(seconds)


def _seconds_to_fetch(block_bytes: int, client: Any) -> float:
    seconds = block_bytes / MEMORY_BANDWIDTH
    if client is None:
        return seconds
    away = 1.0 - 1.0 / max(len(workers_of(client)), 1)  # the others must be sent
    bandwidth = parse_bytes(dask.config.get("distributed.scheduler.bandwidth", "100 MB"))
    return seconds + away * block_bytes / float(bandwidth)


def memory_for_features(client: Any) -> float:
    """Return the bytes of features that ``persist="auto"`` keeps at most."""
    if client is None:
        wanted = configured_bytes("persist-bytes", LOCAL_BUDGET)
        return min(float(wanted), LOCAL_SHARE * memory_of_machine())
    workers = workers_of(client).values()
    limit = float(sum(worker.memory_limit for worker in workers))
    used = float(sum(worker.memory for worker in workers))
    return min(CLUSTER_SHARE * limit, FREE_SHARE * max(limit - used, 0.0))
