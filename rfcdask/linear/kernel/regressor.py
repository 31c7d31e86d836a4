"""Kernel regression: features and linear head trained together over blocks larger than memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from rfcdask.execution.executor import open_executor
from rfcdask.features.base import check_choice
from rfcdask.kernels import Kernel
from rfcdask.kernels.types import Array, DaskArray, RandomState
from rfcdask.linear.inputs import check_target, check_weights, make_blocks
from rfcdask.linear.kernel.base import KernelModel, Setting, check_number, first_rows
from rfcdask.linear.kernel.predict import Evaluate
from rfcdask.linear.kernel.stream import BlockReader
from rfcdask.linear.predict import Flattened, LinearScores, determination, score_dtype
from rfcdask.linear.sgd.losses import REGRESSOR_LOSSES


class KernelRegressor(RegressorMixin, KernelModel):
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
checkpoint_every, progress
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
    >>> rf.KernelRegressor(50, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

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
        checkpoint_every: int = 64,
        progress: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.learn_features = learn_features
        self.loss = loss
        self.epsilon = epsilon
        self.alpha = alpha
        self.epochs = epochs
        self.n_candidates = n_candidates
        self.n_rows = n_rows
        self.label_weight = label_weight
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.start = start
        self.alphas = alphas
        self.batch_size = batch_size
        self.step_size = step_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.checkpoint_every = checkpoint_every
        self.progress = progress

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
        self._check_parameters()
        matrix = self._matrix(X, reset=True)
        target, weights = check_target(y, matrix, self), check_weights(sample_weight, matrix)
        seed = self._seed()
        with open_executor(client) as executor:
            blocks = make_blocks(matrix, target, weights)
            read = BlockReader(first_rows(matrix))
            setting = self._setting(executor, blocks, read, seed, **self._outputs(target))
            self._fit_blocks(executor, _standardised(setting), {"targets": _n_targets(target)})
        return self._flatten(target)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Go once over more rows, from where the last call ended.

        Width and scale of the targets are those of the rows of the first call.
        """
        first = not hasattr(self, "coef_")
        self._check_parameters()
        matrix = self._matrix(X, reset=first)
        target, weights = check_target(y, matrix, self), check_weights(sample_weight, matrix)
        if not first and _n_targets(target) != len(np.atleast_1d(self.intercept_)):
            raise ValueError(
                f"y has {_n_targets(target)} target(s) a row, but the calls before had "
                f"{len(np.atleast_1d(self.intercept_))}; give the same targets in every call."
            )
        seed = self.seed_ if hasattr(self, "seed_") else self._seed()
        with open_executor(client) as executor:
            blocks = make_blocks(matrix, target, weights)
            read = BlockReader(first_rows(matrix))
            outputs = self._outputs(target)
            setting = self._setting(executor, blocks, read, seed, **outputs, more=True)
            known = getattr(self, "_units", None)
            setting = _standardised(setting, known)
            self._units = (setting.read.mean, setting.read.scale)
            self._learn_more(executor, setting)
        return self._flatten(target)

    def predict(self, X: Any) -> Array | DaskArray:
        """Return the prediction for each row; lazy on dask arrays."""
        check_is_fitted(self, "coef_")
        intercept = np.asarray(self.intercept_)
        if self.coef_.ndim == 1:
            return self._map(X, Flattened(self.coef_, intercept), None, score_dtype(X))
        scores = LinearScores(self.coef_, intercept)
        return self._map(X, scores, len(self.coef_), score_dtype(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return R^2, computed block by block in bounded memory."""
        check_is_fitted(self, "coef_")
        scores = LinearScores(self.coef_, np.asarray(self.intercept_))
        model = Evaluate(self.features_, scores)
        return determination(self, model, self._matrix(X, reset=False), y, sample_weight, client)

    def _outputs(self, target: DaskArray) -> dict[str, Any]:
        code = REGRESSOR_LOSSES[self.loss]
        return {"loss": code, "n_outputs": _n_targets(target), "epsilon": float(self.epsilon)}

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, tuple(REGRESSOR_LOSSES))
        check_number("epsilon", self.epsilon, above=0)
        super()._check_parameters()

    def _flatten(self, y: DaskArray) -> Self:
        if y.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _n_targets(y: DaskArray) -> int:
    return 1 if y.ndim == 1 else int(y.shape[1])


def _standardised(setting: Setting, units: tuple[Array, Array] | None = None) -> Setting:
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
