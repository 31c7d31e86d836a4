"""Linear regression trained by stochastic gradient descent over blocks larger than memory."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from rfcdask.execution.executor import open_executor
from rfcdask.kernels.types import DaskArray
from rfcdask.linear.inputs import (
    check_matrix,
    check_sample_weight,
    check_targets,
    make_blocks,
    require_y,
)
from rfcdask.linear.predict import LinearRegressorMixin
from rfcdask.linear.sgd.base import BaseSGD
from rfcdask.linear.sgd.losses import REGRESSOR_LOSSES
from rfcdask.linear.sgd.step import TrainingConfig
from rfcdask.linear.sgd.training import keep_features


class SGDRegressor(LinearRegressorMixin, BaseSGD):
    """Linear regression by preconditioned, averaged stochastic gradient descent.

    For squared error :class:`rfcdask.Ridge` gives the exact answer in one pass; this model is for
    very many features, for Huber's loss and for data that keep coming.

    Parameters
    ----------
    loss : {"squared_error", "huber"}
        Huber's loss is linear beyond `epsilon`, so that outliers count less.
    alpha : float or "auto"
        Strength of the penalty ``alpha / 2 ||coef||^2`` beside the mean loss; "auto" is one over
        the number of rows.
    epsilon : float
        Where Huber's loss becomes linear, in units of y.
    epochs, fit_intercept, batch_size, eta0, average, early_stopping, validation_fraction, tol, \
patience, checkpoint, checkpoint_every, persist, random_state, progress
        As in :class:`SGDClassifier`.

    Attributes
    ----------
    coef_ : array of shape (n_features,) or (n_targets, n_features)
    intercept_ : float or array of shape (n_targets,)
    n_iter_, history_, alpha_
        As in :class:`SGDClassifier`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = BaseSGD._parameter_constraints | {
        "loss": [StrOptions(set(REGRESSOR_LOSSES))],
        "epsilon": [Interval(Real, 0, np.inf, closed="neither")],
    }

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        alpha: float | str = "auto",
        epsilon: float = 1.35,
        epochs: int = 5,
        fit_intercept: bool = True,
        batch_size: int | str = "auto",
        eta0: float = 1.0,
        average: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        tol: float = 1e-3,
        patience: int = 2,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 64,
        persist: bool | str = "auto",
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.loss, self.alpha, self.epsilon, self.epochs = loss, alpha, epsilon, epochs
        self.fit_intercept, self.batch_size, self.eta0 = fit_intercept, batch_size, eta0
        self.average, self.early_stopping, self.patience = average, early_stopping, patience
        self.validation_fraction, self.tol, self.persist = validation_fraction, tol, persist
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Train from the beginning, or from the checkpoint.

        Parameters
        ----------
        X : array or dask array of shape (n, p)
        y : array or dask array of shape (n,) or (n, n_targets)
        sample_weight : array or dask array of shape (n,), optional
        client : distributed.Client, optional
            Where to compute: this client, else the current one, else local threads.
        """
        self._forget()
        matrix, targets, weights = self._check_data(X, y, sample_weight)
        config = self._make_regressor_config(matrix, targets, weights, self._choose_seed())
        with open_executor(client) as executor:
            matrix = keep_features(executor, matrix, self.epochs, self.persist, client)
            self._train(executor, make_blocks(matrix, targets, weights), config)
        return self._flatten(targets)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Go once over more rows, from where the last call ended."""
        first = not hasattr(self, "coef_")
        matrix, targets, weights = self._check_data(X, y, sample_weight, reset=first)
        config = self._make_regressor_config(matrix, targets, weights, self._seed_of_calls())
        if not first and config.n_outputs != len(np.atleast_1d(self.intercept_)):
            raise ValueError(
                f"y has {config.n_outputs} target(s) a row, but the calls before had "
                f"{len(np.atleast_1d(self.intercept_))}; give the same targets in every call."
            )
        with open_executor(client) as executor:
            self._train_more(executor, make_blocks(matrix, targets, weights), config)
        return self._flatten(targets)

    def _check_data(
        self, X: Any, y: Any, sample_weight: Any, reset: bool = True
    ) -> tuple[DaskArray, DaskArray, DaskArray | None]:
        self._validate_params()
        matrix = check_matrix(self, X, reset=reset)
        require_y(y, self)
        return matrix, check_targets(y, matrix), check_sample_weight(sample_weight, matrix)

    def _make_regressor_config(
        self, X: DaskArray, y: DaskArray, weights: DaskArray | None, seed: int
    ) -> TrainingConfig:
        return self._make_config(
            X,
            seed,
            loss=REGRESSOR_LOSSES[self.loss],
            n_outputs=1 if y.ndim == 1 else int(y.shape[1]),
            epsilon=float(self.epsilon),
            weighted=weights is not None,
        )

    def _flatten(self, y: DaskArray) -> Self:
        if y.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self
