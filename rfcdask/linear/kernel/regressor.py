"""Kernel regression: features and linear head trained together over blocks larger than memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from rfcdask.execution.blocks import Blocks, first_rows
from rfcdask.execution.executor import open_executor
from rfcdask.kernels import Kernel
from rfcdask.kernels.arrays import Array, DaskArray, RandomState
from rfcdask.linear.kernel.base import FitConfig, KernelModel
from rfcdask.linear.kernel.stream import BlockReader
from rfcdask.linear.predict import LinearRegressorMixin
from rfcdask.linear.sgd.losses import REGRESSOR_LOSSES


class KernelRegressor(LinearRegressorMixin, KernelModel):
    """Regression whose cosine features learn together with the linear model on them.

    Parameters
    ----------
    n_components : int, default=500
    loss : {"squared_error", "huber"}
        Huber's loss is linear beyond `epsilon`, so that outliers count less.
    epsilon : float, default=1.35
        Where Huber's loss becomes linear, in standard deviations of y.
    kernel, gamma, learn_features, alpha, epochs, n_candidates, n_rows, label_weight, checkpoint, \
random_state, start, alphas, batch_size, step_size, validation_fraction, patience, \
chains, checkpoint_every, progress
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    coef_ : array of shape (J,) or (n_targets, J)
    intercept_ : float or array of shape (n_targets,)
    features_, gamma_, alpha_, history_, trials_, n_iter_
        As in :class:`KernelClassifier`.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)).astype("float32")
    >>> y = X[:, 0] * X[:, 1]
    >>> rf.KernelRegressor(50, epochs=20, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = KernelModel._parameter_constraints | {
        "loss": [StrOptions(set(REGRESSOR_LOSSES))],
        "epsilon": [Interval(Real, 0, np.inf, closed="neither")],
    }

    def __init__(
        self,
        n_components: int = 500,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | str = "tune",
        learn_features: bool = True,
        loss: str = "squared_error",
        epsilon: float = 1.35,
        alpha: float | str = "auto",
        epochs: int | str = "auto",
        n_candidates: int = 5000,
        n_rows: int = 5000,
        label_weight: float = 1.0,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: RandomState = None,
        start: str = "random",
        alphas: Sequence[float] | None = None,
        batch_size: int | str = "auto",
        step_size: float = 1.0,
        validation_fraction: float = 0.1,
        patience: int | None = None,
        chains: int = 1,
        checkpoint_every: int = 64,
        progress: Any = None,
    ) -> None:
        self.n_components, self.kernel, self.gamma = n_components, kernel, gamma
        self.learn_features, self.start, self.loss = learn_features, start, loss
        self.n_candidates, self.n_rows, self.label_weight = n_candidates, n_rows, label_weight
        self.alpha, self.alphas, self.epsilon = alpha, alphas, epsilon
        self.epochs, self.batch_size, self.step_size = epochs, batch_size, step_size
        self.validation_fraction, self.patience = validation_fraction, patience
        self.chains = chains
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Choose the width and train over all rows, from the beginning or from the checkpoint.

        Parameters
        ----------
        X : array, CSR or dask array of shape (n, p)
        y : array or dask array of shape (n,) or (n, n_targets)
        sample_weight : array or dask array of shape (n,), optional
        client : distributed.Client, optional
            Where to compute: this client, else the current one, else local threads.
        """
        self._forget()
        matrix, target, weights = self._check_data(X, y, sample_weight, reset=True)
        seed = self._choose_seed()
        with open_executor(client) as executor:
            blocks = Blocks(matrix, target, weights)
            read = BlockReader(first_rows(matrix))
            setting = self._setting(executor, blocks, read, seed, **self._outputs(target))
            fingerprint = self._fingerprint(
                executor,
                blocks,
                seed,
                targets=_n_targets(target),
                weights=weights is not None,
            )
            self._fit_blocks(executor, _standardised(setting), fingerprint)
        if target.ndim == 1:
            self._flatten_outputs()
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Go once over more rows, from where the last call ended.

        Width and scale of the targets are those of the rows of the first call.
        """
        first = not hasattr(self, "coef_")
        matrix, target, weights = self._check_data(X, y, sample_weight, reset=first)
        if not first and _n_targets(target) != len(np.atleast_1d(self.intercept_)):
            raise ValueError(
                f"y has {_n_targets(target)} target(s) a row, but the calls before had "
                f"{len(np.atleast_1d(self.intercept_))}; give the same targets in every call."
            )
        seed = self._seed_of_calls()
        with open_executor(client) as executor:
            blocks = Blocks(matrix, target, weights)
            read = BlockReader(first_rows(matrix))
            outputs = self._outputs(target)
            setting = self._setting(executor, blocks, read, seed, **outputs, more=True)
            known = getattr(self, "_units", None)
            setting = _standardised(setting, known)
            self._units = (setting.read.mean, setting.read.scale)
            self._learn_more(executor, setting)
        if target.ndim == 1:
            self._flatten_outputs()
        return self

    def _outputs(self, target: DaskArray) -> dict[str, Any]:
        code = REGRESSOR_LOSSES[self.loss]
        return {"loss": code, "n_outputs": _n_targets(target), "epsilon": float(self.epsilon)}


def _n_targets(y: DaskArray) -> int:
    return 1 if y.ndim == 1 else int(y.shape[1])


def _standardised(setting: FitConfig, units: tuple[Array, Array] | None = None) -> FitConfig:
    """Return the setting with targets of mean 0 and variance 1, as the sample has them."""
    targets = setting.sample.training.targets
    mean, scale = units or (targets.mean(axis=0), targets.std(axis=0))
    scale = np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)
    scale = np.where(scale > 0, scale, 1.0)
    sample = setting.sample
    moved = sample._replace(
        training=sample.training._replace(targets=(targets - mean) / scale),
        held=sample.held._replace(targets=(sample.held.targets - mean) / scale),
    )
    return setting._replace(read=replace(setting.read, mean=mean, scale=scale), sample=moved)
