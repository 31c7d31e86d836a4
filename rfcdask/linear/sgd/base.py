"""What the models trained by stochastic gradient descent share."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from rfcdask.display.charts import Chart, training
from rfcdask.display.html import Facts
from rfcdask.display.style import count, number
from rfcdask.execution.blocks import Blocks, first_rows, stream_groups
from rfcdask.execution.executor import Executor
from rfcdask.kernels.arrays import DaskArray, is_sparse
from rfcdask.kernels.seeds import seed_of
from rfcdask.linear.inputs import ClassLabels
from rfcdask.linear.predict import COMMON_CONSTRAINTS, NOT_NEGATIVE, LinearModel
from rfcdask.linear.sgd.step import TrainingConfig, TrainingState
from rfcdask.linear.sgd.training import SOME_ROWS, Checkpoint, TrainingLoop

AUTO_C = (8.0, 1.0, 32.0, 256.0)
"""Of ``alpha="auto"``: models for all of these C are trained at once on the same features, and rows
held out choose one; the first where too few could be held out to tell."""
DECIDE_ROWS, DECIDE_SHARE = 2**18, 1 / 16
"""Rows to learn from before the worse half of several penalties is dropped; and share of all."""
ROW_VISITS, LEAST_EPOCHS, MOST_EPOCHS = 300_000, 5, 200
"""Rows that ``epochs="auto"`` learns from at least, counted once per epoch; and bounds of it."""
LEAST_HELD_OUT, MOST_HELD_OUT = 50, 10_000
"""Rows held out to choose a penalty."""
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

        Of X these are a few rows: first and last ones of blocks that the seed draws.
        """
        params = self.get_params(deep=False).items()
        found: dict[str, Any] = {"model": type(self).__name__}
        found |= {name: repr(value) for name, value in params if name not in NOT_IN_FINGERPRINT}
        if self.chains == 1:  # as in versions that knew no others
            del found["chains"]
        found |= {
            "rows": sum(blocks.rows),
            "columns": self.n_features_in_,
            "chunks": zlib.crc32(repr(list(blocks.rows)).encode()),
        }
        if labels is not None:
            known = repr((labels.classes.tolist(), labels.counts.tolist()))
            found["labels"] = zlib.crc32(known.encode())
        if self.checkpoint is not None:
            found[SOME_ROWS] = _some_rows(executor, blocks, seed)
        return found | more | {"seed": seed}


def _some_rows(executor: Executor, blocks: Blocks, seed: int) -> list[list[float]]:
    filled = np.random.default_rng([seed, 10]).permutation(np.flatnonzero(blocks.rows))
    groups = [(int(index),) for index in filled[:LOOKED_AT]]
    found = []
    for _, (block,) in stream_groups(executor, blocks, groups, executor.threads):
        task = executor.call(_look_at, block)
        found += executor.result(task)
        executor.release(task)
    return found


def _look_at(block: tuple[Any, ...]) -> list[list[float]]:
    """Return norm and a random projection of the first and the last row of a block."""
    rows = block[0][np.array([0, len(block[1]) - 1])]
    values = np.asarray(rows.toarray() if is_sparse(rows) else rows, np.float64)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], values.shape[1])
    found: list[list[float]] = np.stack(
        [np.linalg.norm(values, axis=1), values @ signs], 1
    ).tolist()
    return found


class BaseSGD(EpochModel):
    """What classifier and regressor share: the way from blocks and parameters to coefficients."""

    _parameter_constraints: ClassVar[dict[str, Any]] = COMMON_CONSTRAINTS | {
        "alpha": [NOT_NEGATIVE, StrOptions({"auto"})],
        "alphas": ["array-like", None],
        "epochs": [_POSITIVE_INTEGER, StrOptions({"auto"})],
        "batch_size": [_POSITIVE_INTEGER, StrOptions({"auto"})],
        "eta0": [Interval(Real, 0, np.inf, closed="neither")],
        "average": ["boolean"],
        "chains": [_POSITIVE_INTEGER],
        "early_stopping": ["boolean"],
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
            self._train_on_all(executor, blocks, config, loop)

    def _train_on_all(
        self, executor: Executor, blocks: Blocks, config: TrainingConfig, chosen: TrainingLoop
    ) -> None:
        """Train again with the penalty that was chosen, where the rows held out are missed."""
        if config.validation_fraction * sum(blocks.rows) >= MOST_HELD_OUT:
            return
        config = replace(config, alpha=self.alpha_, alphas=(), validation_fraction=0.0)
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
        config = loop.config
        self.alpha_ = config.alpha
        if len(config.penalties) > 1:
            self.alpha_ = loop.history[-1].get("alpha", config.alpha)
        k = config.n_outputs
        number = config.left(loop.state).index(config.penalties.index(self.alpha_))
        own = slice(number * k, (number + 1) * k)
        state = loop.state._replace(W=loop.state.W[:, own], mean=loop.state.mean[:, own], left=())
        best = state.mean if self.average else state.W
        self.coef_ = np.ascontiguousarray(best[:-1].T)
        self.intercept_ = best[-1] * config.fit_intercept
        self.t_, self.seed_ = state.step, config.seed
        self.history_ = loop.history
        self.n_iter_ = len(self.history_)
        self._state, self._preconditioner = state, loop.preconditioner

    def _forget(self) -> None:
        for name in ("_preconditioner", "_state", "n_calls_", "coef_", "intercept_"):
            if hasattr(self, name):
                delattr(self, name)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_preconditioner"}


def auto_epochs(n_rows: int) -> int:
    """Return the passes of ``epochs="auto"`` over so many rows."""
    return int(np.clip(-(-ROW_VISITS // n_rows), LEAST_EPOCHS, MOST_EPOCHS))


def _auto_batch_size(n_rows: int) -> int:
    """Return a power of two, small enough for many steps per epoch."""
    size = 8
    while size < 256 and size * 2 * 40 <= n_rows:
        size *= 2
    return size
