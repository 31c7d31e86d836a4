"""What kernel classifier and regressor share: from blocks of rows to features and a head."""

from __future__ import annotations

import os
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from rfcdask.display import count, number
from rfcdask.display.html import Facts
from rfcdask.execution.blocks import Blocks
from rfcdask.execution.executor import Executor
from rfcdask.execution.progress import track
from rfcdask.features.base import LearnedFeatures
from rfcdask.features.compressed import CompressedFeatures
from rfcdask.kernels import Kernel, get_kernel, resolve_gamma
from rfcdask.kernels.arrays import Array
from rfcdask.kernels.frequencies import draw_candidates
from rfcdask.kernels.seeds import epoch_groups
from rfcdask.linear.kernel.gradient import (
    FACTORS,
    TRIAL_HELD,
    Trial,
    choose_width,
    few,
    held_rows,
    median_gamma,
    scaled_gamma,
)
from rfcdask.linear.kernel.optimize import (
    Objective,
    OptimizerConfig,
    OptimizerState,
    input_scaling,
    judge,
    steps_of,
    take_head,
    train_in_memory,
)
from rfcdask.linear.kernel.stream import (
    BestState,
    BlockReader,
    KernelCheckpoint,
    KernelTrainingLoop,
    TrainingSample,
    draw_sample,
)
from rfcdask.linear.predict import COMMON_CONSTRAINTS, NOT_NEGATIVE
from rfcdask.linear.rows import OnFeatures, RowFunction
from rfcdask.linear.scorers import HeldOutScore
from rfcdask.linear.sgd.base import EpochModel
from rfcdask.linear.sgd.losses import SOFTMAX
from rfcdask.linear.sgd.step import blocks_mixed

ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3)
"""Penalties that ``alpha="auto"`` chooses from on rows held out."""
ALPHA = 1e-5
"""The penalty where no rows are held out."""
ROW_VISITS, FEW_ROWS, FEW_ROW_VISITS = 150_000, 5_000, 300_000
"""Rows that ``epochs="auto"`` learns from at least, counted once per epoch; more of few rows."""
MOST_EPOCHS = 200
SAMPLE_ROWS, SAMPLE_BYTES = 120_000, 2**27
"""Most rows and bytes of the sample in memory on which widths are tried."""
START_VISITS = 40_000
"""Rows from which the head of the untrained features learns, to be compared with."""


WIDTH_RULES = {"tune", "scale", "median"}
POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")


class FitConfig(NamedTuple):
    """What a fit works on, known once the blocks are."""

    blocks: Blocks
    read: BlockReader
    sample: TrainingSample
    objective: Objective
    seed: int
    batch: int
    epochs: int


class KernelModel(EpochModel):
    """What classifier and regressor share; not for direct use."""

    _private: ClassVar[tuple[str, ...]] = ("_last",)
    _parameter_constraints: ClassVar[dict[str, Any]] = COMMON_CONSTRAINTS | {
        "n_components": [POSITIVE_INTEGER],
        "kernel": [str, Kernel],
        "gamma": [Interval(Real, 0, np.inf, closed="neither"), StrOptions(WIDTH_RULES)],
        "learn_features": ["boolean"],
        "alpha": [NOT_NEGATIVE, StrOptions({"auto"})],
        "alphas": ["array-like", None],
        "n_candidates": [POSITIVE_INTEGER],
        "n_rows": [POSITIVE_INTEGER],
        "label_weight": [NOT_NEGATIVE],
        "epochs": [POSITIVE_INTEGER, StrOptions({"auto"})],
        "batch_size": [POSITIVE_INTEGER, StrOptions({"auto"})],
        "step_size": [Interval(Real, 0, np.inf, closed="neither")],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "scoring": [str, None],
        "patience": [POSITIVE_INTEGER, None],
        "chains": [POSITIVE_INTEGER],
        "start": [StrOptions({"random", "selected"})],
        "checkpoint": [str, os.PathLike, None],
        "checkpoint_every": [POSITIVE_INTEGER],
    }

    @property
    def features_(self) -> LearnedFeatures:
        """The trained features as a fitted map, with a lazy `transform`."""
        check_is_fitted(self, "coef_")
        made = LearnedFeatures.from_arrays(
            self.frequencies_,
            self.phases_,
            self.weights_,
            kernel=self.kernel,
            gamma=self.gamma_,
            random_state=self.seed_,
        )
        for name in ("feature_names_in_", "columns_", "encoding_"):
            if hasattr(self, name):
                setattr(made, name, getattr(self, name))
        return made

    def _facts(self) -> Facts:
        if not hasattr(self, "history_"):
            return []
        return [
            ("features", count(len(self.weights_))),
            ("kernel", f"{get_kernel(self.kernel).name}, gamma {number(self.gamma_)}"),
            *super()._facts(),
            ("epochs", count(self.n_iter_)),
            ("alpha", number(self.alpha_)),
        ]

    def _alphas(self, n_held: int) -> tuple[float, ...]:
        if self.alphas is not None:
            return tuple(float(alpha) for alpha in self.alphas)
        if self.alpha == "auto":
            return ALPHAS if n_held else (ALPHA,)
        return (self.alpha,)

    def _alpha_of_calls(self) -> float:
        """Return the penalty of `partial_fit`: the chosen one, where there was a choice."""
        chosen = self.alphas is not None or self.alpha == "auto"
        return float(getattr(self, "alpha_", self._alphas(0)[0]) if chosen else self.alpha)

    def _setting(
        self,
        executor: Executor,
        blocks: Blocks,
        read: BlockReader,
        seed: int,
        more: bool = False,
        **objective: Any,
    ) -> FitConfig:
        """Draw the sample and fix what depends on the number of rows.

        With `more`, rows come in pieces: one penalty, and after the first piece none are held out.
        """
        n = sum(blocks.rows)
        held_out = not (more and hasattr(self, "coef_"))
        n_held = held_rows(n, self.validation_fraction) if held_out else 0
        if n_held and n - n_held < 2:
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves {n - n_held} of {n} rows "
                "to learn from; lower it."
            )
        most = min(SAMPLE_ROWS, max(SAMPLE_BYTES // (4 * self.n_features_in_), 2000))
        n_rows = min(n - n_held, most)
        sample = draw_sample(executor, blocks, read, seed, n_rows, n_held, self.chains)
        batch = int(np.clip(n // 200, 32, 256)) if self.batch_size == "auto" else self.batch_size
        epochs = default_epochs(n) if self.epochs == "auto" else self.epochs
        alphas = (self._alpha_of_calls(),) if more else self._alphas(n_held)
        made = Objective(alphas=alphas, **objective)
        return FitConfig(blocks, read, sample, made, seed, batch, epochs)

    def _fit_blocks(
        self, executor: Executor, setting: FitConfig, fingerprint: dict[str, Any]
    ) -> None:
        """Choose the width, train over all blocks and keep the better of start and end."""
        checkpoint = None
        gamma = None
        if self.checkpoint is not None:
            checkpoint = KernelCheckpoint(self.checkpoint, fingerprint)
            gamma = checkpoint.stored_gamma()
            if checkpoint.trials:
                self.trials_ = [*checkpoint.trials]
        if gamma is None:
            gamma = self._choose_gamma(setting)
        sizes = _group_sizes(setting, self.chains)
        n_steps = -(-steps_of(sizes, setting.batch) * setting.epochs // self.chains)
        work, state = self._begin(setting, gamma, n_steps)
        if checkpoint is not None:
            checkpoint.gamma, checkpoint.trials = gamma, getattr(self, "trials_", ())
        run = KernelTrainingLoop(
            work,
            setting.read,
            setting.sample,
            setting.epochs,
            self.patience,
            setting.seed,
            checkpoint,
            self.checkpoint_every,
            self.progress,
            self.chains,
            score := self._score_of(setting, fingerprint["weights"]),
        )
        last, best = run.train(executor, setting.blocks, state)
        parameters, head, loss = best.parameters, best.head, best.loss
        if self.learn_features and len(setting.sample.held.weights):
            begun = self._start_with_head(setting, gamma, score)
            if begun.loss < loss:  # training made nothing better
                parameters, head = begun.state.parameters, begun.judgement.best
        self.history_, self.n_iter_ = run.history, len(run.history)
        self.gamma_, self.seed_ = gamma, setting.seed
        self._keep(work, OptimizerState(parameters, last.adam), head, setting.read)

    def _score_of(self, setting: FitConfig, weighted: bool) -> HeldOutScore | None:
        if self.scoring is not None and not self.validation_fraction:
            raise ValueError(
                f"scoring={self.scoring!r} has nothing to choose with validation_fraction=0, which "
                "holds no rows out."
            )
        read, softmax = setting.read, setting.objective.loss == SOFTMAX
        targets = {"mean": read.mean, "scale": read.scale} if read.classes is None else {}
        weights = None if read.classes is None else read.class_weights
        return self._score(weights, softmax, weighted=weighted, **targets)

    def _keep(
        self, work: OptimizerConfig, state: OptimizerState, head: int, read: BlockReader
    ) -> None:
        """Make a state the attributes that users know."""
        work, state = take_head(work, state, head)
        self.frequencies_, self.phases_ = work.frequencies(state.parameters)
        self.weights_ = np.square(work.scales) * (len(work.scales) / 2)
        coef, intercept = work.head(state.parameters)
        if read.classes is None:
            coef, intercept = coef * read.scale[:, None], intercept * read.scale + read.mean
            self.target_mean_, self.target_scale_ = read.mean, read.scale
        self.coef_, self.intercept_ = coef, intercept
        self.alpha_, self.t_ = float(work.objective.alphas[0]), state.adam.step
        self._last = (work, state)

    def _begin(
        self, setting: FitConfig, gamma: float, n_steps: int, learn: bool | None = None
    ) -> tuple[OptimizerConfig, OptimizerState]:
        """Return settings and state of a training that begins with features of that width."""
        learn = bool(self.learn_features) if learn is None else learn
        rows = setting.sample.training
        J = int(self.n_components)
        weights = np.ones(J)
        if self.start == "selected":
            frequencies, phases, weights = self._selected(setting, gamma)
            J = len(phases)
            weights = np.ones(J) if learn else weights
        else:
            kernel, p = get_kernel(self.kernel), rows.X.shape[1]
            drawn = draw_candidates(kernel, gamma, p, J, "iid", "random", setting.seed)
            frequencies, phases = drawn.vectors, drawn.phases
        work = OptimizerConfig(
            setting.objective,
            input_scaling(rows.X, frequencies),
            np.sqrt(2 * weights / J),
            setting.batch,
            n_steps,
            learn,
            float(self.step_size),
        )
        return work, work.start(frequencies, phases)

    def _selected(self, setting: FitConfig, gamma: float) -> tuple[Array, Array, Array]:
        """Return frequencies, phases and weights selected for the sampled rows and labels."""
        selected = CompressedFeatures(
            self.n_components,
            kernel=self.kernel,
            gamma=gamma,
            n_candidates=self.n_candidates,
            n_rows=self.n_rows,
            label_weight=self.label_weight,
            random_state=setting.seed,
        )
        rows = few(setting.sample.training, self.n_rows + 1000)
        targets = rows.targets if rows.targets.ndim == 1 else rows.targets[:, 0]
        selected.fit(rows.X, targets)
        weights = selected.weights_ * (len(selected.weights_) / self.n_candidates)
        return selected.frequencies_, selected.phases_, weights

    def _choose_gamma(self, setting: FitConfig) -> float:
        kernel, rows = get_kernel(self.kernel), setting.sample.training
        if self.gamma != "tune":
            return resolve_gamma(self.gamma, kernel, rows.X)
        rng = np.random.default_rng([setting.seed, 8])
        middle = median_gamma(kernel, rows.X, rng)
        if not len(setting.sample.held.weights):
            return middle
        gammas = [scaled_gamma(kernel, middle, factor) for factor in FACTORS]
        visits = sum(setting.blocks.rows) * setting.epochs
        with track("trying kernel widths", None, "trials", progress=self.progress) as reporter:

            def try_width(gamma: float, n: int) -> Trial:
                reporter.advance(1)
                return self._trial(setting, gamma, n, bool(self.learn_features))

            trials = choose_width(gammas, try_width, visits)
        self.trials_ = [
            {"gamma": t.gamma, "rows": float(t.visits), "held_out_loss": t.loss} for t in trials
        ]
        return trials[-1].gamma

    def _trial(self, setting: FitConfig, gamma: float, visits: int, learn: bool) -> Trial:
        """Train on some of the sampled rows, with a schedule of its own, and judge."""
        rows, held = setting.sample.training, few(setting.sample.held, TRIAL_HELD)
        n = min(len(rows.weights), visits)
        passes = [min(n, visits - start) for start in range(0, visits, n)]
        work, state = self._begin(setting, gamma, steps_of(passes, setting.batch), learn)
        rng = np.random.default_rng([setting.seed, 9])
        state = train_in_memory(work, state, few(rows, n), visits, rng)
        return Trial(gamma, visits, judge(work, state.parameters, held), work, state)

    def _start_with_head(
        self, setting: FitConfig, gamma: float, score: HeldOutScore | None
    ) -> Trial:
        """Return the untrained features with a head of their own, judged on all held-out rows."""
        trial = self._trial(setting, gamma, START_VISITS, learn=False)
        judged = judge(trial.training, trial.state.parameters, setting.sample.held, score)
        return trial._replace(judgement=judged)

    def _learn_more(self, executor: Executor, setting: FitConfig) -> None:
        """Go once over new blocks from where the last call ended."""
        work, state = self._continued(setting)
        calls = getattr(self, "n_calls_", 0)
        fixed = (work, setting.read, setting.sample, 1, 1, setting.seed)
        run = KernelTrainingLoop(*fixed, chains=self.chains)
        rows = float(sum(setting.blocks.rows))
        with track("training", rows, "rows", progress=self.progress) as bar:
            best = BestState(state.parameters)
            state = run.epoch(executor, setting.blocks, state, best, calls, 0, bar.advance)
        self.n_calls_ = calls + 1
        self.history_ = [
            {"epoch": float(calls + 1), "loss": state.loss / max(state.weight, 1e-300)}
        ]
        self.n_iter_ = 1
        self._keep(work, state._replace(loss=0.0, weight=0.0), 0, setting.read)

    def _continued(self, setting: FitConfig) -> tuple[OptimizerConfig, OptimizerState]:
        """Return the training to go on with, as it is set now: of this model, or a new one."""
        if hasattr(self, "_last"):
            last, state = self._last
            work = replace(
                last,
                objective=setting.objective,
                batch=last.batch if self.batch_size == "auto" else setting.batch,
                learn_features=bool(self.learn_features),
                step_size=float(self.step_size),
            )
            return work, state
        if not hasattr(self, "coef_"):
            self.gamma_, self.seed_ = self._choose_gamma(setting), setting.seed
            return self._begin(setting, self.gamma_, 0)
        rows, read = setting.sample.training, setting.read
        work = OptimizerConfig(
            setting.objective,
            input_scaling(rows.X, self.frequencies_),
            np.sqrt(2 * self.weights_ / len(self.weights_)),
            setting.batch,
            0,
            bool(self.learn_features),
            float(self.step_size),
        )
        state = work.start(self.frequencies_, self.phases_)
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        if read.classes is None:
            coef, intercept = coef / read.scale[:, None], (intercept - read.mean) / read.scale
        state.parameters.heads[...], state.parameters.intercepts[...] = coef.T, intercept
        return work, state._replace(adam=state.adam._replace(step=self.t_))

    def _of_rows(self, function: RowFunction) -> Any:
        return OnFeatures(self.features_.recipe(), function)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def default_epochs(n_rows: int) -> int:
    """Return the passes of ``epochs="auto"`` over so many rows."""
    visits = FEW_ROW_VISITS if n_rows < FEW_ROWS else ROW_VISITS
    return int(np.clip(-(-visits // n_rows), 3, MOST_EPOCHS))


def _group_sizes(setting: FitConfig, chains: int) -> list[int]:
    """Return the rows of each group of an epoch that are learned from."""
    blocks, held = setting.blocks, setting.sample.held_of
    mixed = blocks_mixed(len(blocks), blocks.nbytes, chains)
    return [
        sum(blocks.rows[k] - len(held.get(k, ())) for k in group)
        for group in epoch_groups(len(blocks), mixed, setting.seed, 0, chains)
    ]
