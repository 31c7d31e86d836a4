"""Linear regression trained by stochastic gradient descent over blocks larger than memory."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from rfcdask.execution.executor import open_executor
from rfcdask.kernels.types import Array, DaskArray
from rfcdask.linear.inputs import as_matrix, check_target, check_weights, make_blocks
from rfcdask.linear.predict import Flattened, LinearScores, determination, map_rows, score_dtype
from rfcdask.linear.sgd.base import StochasticModel
from rfcdask.linear.sgd.caching import keep_or_recompute
from rfcdask.linear.sgd.losses import REGRESSOR_LOSSES
from rfcdask.linear.sgd.settings import check_positive
from rfcdask.linear.sgd.step import Lesson


class SGDRegressor(RegressorMixin, StochasticModel):
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
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.epochs = epochs
        self.fit_intercept = fit_intercept
        self.batch_size = batch_size
        self.eta0 = eta0
        self.average = average
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.patience = patience
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.persist = persist
        self.random_state = random_state
        self.progress = progress

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
        matrix, target, weights = self._columns(X, y, sample_weight)
        seed = self._seed()
        lesson = self._target_lesson(matrix, target, weights is not None, seed)
        with open_executor(client) as runner:
            matrix = keep_or_recompute(runner, matrix, self.epochs, self.persist, client)
            blocks = make_blocks(matrix, target, weights)
            outcome = self._train(runner, blocks, lesson, self._course(matrix, lesson))
        self._keep(outcome, lesson)
        return self._flatten(target)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Go once over more rows, from where the last call ended."""
        first = not hasattr(self, "coef_")
        matrix, target, weights = self._columns(X, y, sample_weight, reset=first)
        seed = self.seed_ if hasattr(self, "seed_") else self._seed()
        lesson = self._in_pieces(self._target_lesson(matrix, target, weights is not None, seed))
        if not first and lesson.outputs != len(np.atleast_1d(self.intercept_)):
            raise ValueError(
                f"y has {lesson.outputs} target(s) a row, but the calls before had "
                f"{len(np.atleast_1d(self.intercept_))}; give the same targets in every call."
            )
        with open_executor(client) as runner:
            outcome = self._learn_more(runner, make_blocks(matrix, target, weights), lesson)
        self._keep(outcome, lesson)
        return self._flatten(target)

    def predict(self, X: Any) -> Array | DaskArray:
        """Return the prediction for each row; lazy on dask arrays."""
        check_is_fitted(self, "coef_")
        if self.coef_.ndim == 1:
            flat = Flattened(self.coef_, np.asarray(self.intercept_))
            return map_rows(self, X, flat, None, score_dtype(X))
        scores = LinearScores(self.coef_, np.asarray(self.intercept_))
        return map_rows(self, X, scores, len(self.coef_), score_dtype(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> float:
        """Return R^2, computed block by block in bounded memory."""
        check_is_fitted(self, "coef_")
        model = LinearScores(self.coef_, np.asarray(self.intercept_))
        return determination(self, model, X, y, sample_weight, client)

    def _columns(
        self, X: Any, y: Any, sample_weight: Any, reset: bool = True
    ) -> tuple[DaskArray, DaskArray, DaskArray | None]:
        matrix = as_matrix(X, self)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return matrix, check_target(y, matrix, self), check_weights(sample_weight, matrix)

    def _target_lesson(self, X: DaskArray, y: DaskArray, weighted: bool, seed: int) -> Lesson:
        if self.loss not in REGRESSOR_LOSSES:
            known = ", ".join(map(repr, REGRESSOR_LOSSES))
            raise ValueError(f"loss={self.loss!r} is not known; there are {known}.")
        outputs = 1 if y.ndim == 1 else int(y.shape[1])
        code = REGRESSOR_LOSSES[self.loss]
        return self._lesson(
            X,
            weighted,
            seed,
            loss=code,
            outputs=outputs,
            epsilon=check_positive("epsilon", self.epsilon),
        )

    def _flatten(self, y: DaskArray) -> Self:
        if y.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
