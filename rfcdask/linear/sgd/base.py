"""What stochastic models share: the way from arrays and settings to coefficients."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from rfcdask.display.charts import Chart, training
from rfcdask.display.html import Facts, HTMLReprMixin
from rfcdask.display.numbers import count, number
from rfcdask.execution.blocks import Blocks
from rfcdask.execution.executor import Executor
from rfcdask.execution.progress import track
from rfcdask.kernels.seeds import seed_of
from rfcdask.kernels.types import Array, DaskArray
from rfcdask.linear.facts import model_facts
from rfcdask.linear.labels import Labels
from rfcdask.linear.sgd.checkpoint import Checkpoint
from rfcdask.linear.sgd.settings import Settings, check_settings
from rfcdask.linear.sgd.step import Lesson, State
from rfcdask.linear.sgd.training import (
    Course,
    Outcome,
    fresh_state,
    study_blocks,
    train,
    train_epoch,
)


class StochasticModel(HTMLReprMixin, BaseEstimator):
    """What classifier and regressor share: the way from arrays to coefficients."""

    coef_: Array
    intercept_: Any
    n_features_in_: int

    def plot(self, ax: Any = None) -> Any:
        """Draw the mean loss of each epoch; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
        check_is_fitted(self, "history_")
        return training(self.history_).plot(ax)

    def _facts(self) -> Facts:
        if not hasattr(self, "history_"):
            return []
        known = [("epochs", count(self.n_iter_)), ("alpha", number(self.alpha_))]
        return [*model_facts(self), *known, ("last loss", number(self.history_[-1]["loss"]))]

    def _chart(self) -> Chart | None:
        return training(self.history_) if len(self.history_) > 1 else None

    def _settings(self) -> Settings:
        return check_settings(self)

    def _lesson(self, X: DaskArray, weighted: bool, seed: int, **more: Any) -> Lesson:
        settings = self._settings()
        n = X.shape[0]
        batch = settings.batch_for(n)
        steps = sum(-(-size // batch) for size in X.chunks[0]) * settings.epochs
        return Lesson(
            alpha=settings.alpha_for(n),
            eta=settings.eta0,
            horizon=float(steps + 1),
            batch=batch,
            seed=seed,
            intercept=settings.fit_intercept,
            held_out=settings.held_out,
            weighted=weighted,
            starts=np.cumsum([0, *X.chunks[0]]).astype(np.int64),
            **more,
        )

    def _course(self, X: DaskArray, lesson: Lesson, labels: Labels | None = None) -> Course:
        settings = self._settings()
        checkpoint = None
        if settings.checkpoint is not None:
            checkpoint = Checkpoint(settings.checkpoint, self._fingerprint(X, lesson, labels))
        return Course(
            settings.epochs,
            settings.patience,
            settings.tol,
            checkpoint,
            settings.checkpoint_every,
            settings.progress,
        )

    def _fingerprint(self, X: DaskArray, lesson: Lesson, labels: Labels | None) -> dict[str, Any]:
        """Return what must be the same for a run to go on from a checkpoint."""
        free = {"checkpoint", "checkpoint_every", "progress", "persist", "random_state"}
        shown = {k: repr(v) for k, v in self.get_params(deep=False).items() if k not in free}
        chunks = [int(size) for size in X.chunks[0]]
        shape = {
            "rows": X.shape[0],
            "columns": X.shape[1],
            "chunks": zlib.crc32(repr(chunks).encode()),
            "targets": lesson.outputs,
            "weights": lesson.weighted,
        }
        if labels is not None:
            known = repr((labels.classes.tolist(), labels.counts.tolist()))
            shape["labels"] = zlib.crc32(known.encode())
        return {"model": type(self).__name__, **shown, **shape, "seed": lesson.seed}

    def _seed(self) -> int:
        path = self._settings().checkpoint
        if self.random_state is None and path is not None:
            stored = Checkpoint(path, {}).stored_seed()
            if stored is not None:
                return stored
        return seed_of(self.random_state)

    def _train(self, runner: Executor, blocks: Blocks, lesson: Lesson, course: Course) -> Outcome:
        P = study_blocks(runner, blocks, lesson, self.n_features_in_)
        outcome = train(runner, blocks, lesson, course, P)
        self._P = runner.result(P)
        runner.release(P)
        return outcome

    def _learn_more(self, runner: Executor, blocks: Blocks, lesson: Lesson) -> Outcome:
        """Go once over new blocks from where the last call ended."""
        outcome = Outcome(self._last_state(lesson))
        P = getattr(self, "_P", None)
        if P is None:
            P = study_blocks(runner, blocks, lesson, self.n_features_in_)
            self._P = runner.result(P)
        with track("training", float(sum(blocks.rows)), "rows", progress=self.progress) as bar:
            calls = getattr(self, "n_calls_", 0)
            train_epoch(runner, blocks, lesson, P, outcome, calls, 0, Course(1), bar)
            self.n_calls_ = calls + 1
        return outcome

    def _last_state(self, lesson: Lesson) -> State:
        state: State | None = getattr(self, "_state", None)
        if state is not None:
            return state
        if not hasattr(self, "coef_"):
            return fresh_state(self.n_features_in_, lesson.outputs)
        W = np.vstack([np.atleast_2d(self.coef_).T, np.atleast_1d(self.intercept_)[None]])
        return State(W.astype(float), W.astype(float), step=self.t_)

    def _keep(self, outcome: Outcome, lesson: Lesson) -> None:
        """Make the end of training the attributes that users know."""
        state = outcome.state
        best = state.mean if self.average else state.W
        self.coef_ = np.ascontiguousarray(best[:-1].T)
        self.intercept_ = best[-1] * lesson.intercept
        self.t_, self.alpha_, self.seed_ = state.step, lesson.alpha, lesson.seed
        self.history_ = [*outcome.history]
        self.n_iter_ = len(self.history_)
        self._state = state

    def _forget(self) -> None:
        for name in ("_P", "_state", "n_calls_", "coef_", "intercept_"):
            if hasattr(self, name):
                delattr(self, name)

    def _in_pieces(self, lesson: Lesson) -> Lesson:
        """Return the lesson for data that come in pieces, whose end nobody knows."""
        alpha = self.alpha_ if self.alpha == "auto" and hasattr(self, "alpha_") else lesson.alpha
        return replace(lesson, horizon=0.0, alpha=alpha)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_P"}
