"""Linear models trained by stochastic gradient descent over blocks larger than memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from rfcdask.execution.blocks import Blocks
from rfcdask.execution.executor import open_executor
from rfcdask.kernels.arrays import DaskArray
from rfcdask.kernels.seeds import epoch_groups
from rfcdask.linear.inputs import ClassLabels, read_labels
from rfcdask.linear.predict import LinearClassifierMixin, LinearRegressorMixin
from rfcdask.linear.sgd.base import BaseSGD, training_blocks
from rfcdask.linear.sgd.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES
from rfcdask.linear.sgd.step import TrainingConfig, blocks_mixed

SORTED_FROM = 0.1
"""A distance of the class mix of groups from the whole above which the order may do harm."""


class SGDClassifier(LinearClassifierMixin, BaseSGD):
    """Linear classifier trained by preconditioned, averaged stochastic gradient descent.

    Memory holds a bounded number of row blocks, however many there are. Blocks and rows are
    shuffled anew in each epoch; the result depends on the data, their chunks and the seed, and
    not on the scheduler, the number of workers or failures on the way.

    Parameters
    ----------
    loss : {"hinge", "squared_hinge", "log_loss"}
        A linear support vector machine, its smooth form, or logistic regression.
    alpha : float or "auto"
        Strength of the penalty ``alpha / 2 ||coef||^2`` beside the *mean* loss. A given C of
        ``LinearSVC`` is ``alpha = 1 / (C n_rows)``. "auto" trains models for C of 1, 8, 32 and 256
        at once, on the same features, and takes the one with the smallest loss on rows held out:
        `validation_fraction` of them, at most 10,000. After 262,144 rows, or a sixteenth of all
        that are learned from, the worse half of the models is dropped, after twice as many half
        of those left. Where fewer than 1,000 rows are held out, others in their place judge the two
        best again, up to four times. Where there are fewer than 100,000 rows, the model is then
        trained again on all of them; where there are too few to hold any out, C is 8.
    alphas : sequence of float, optional
        The penalties to choose from in that way.
    epochs : int or "auto"
        Passes over the data; "auto" is 5, and more where there are fewer than 60,000 rows.
    multi_class : {"ovr", "multinomial"}
        One model per class against the rest, or all classes in one loss: softmax for
        ``log_loss``, Crammer and Singer's for ``hinge``.
    fit_intercept : bool
        Whether to learn an intercept.
    batch_size : int or "auto"
        Rows in a step.
    eta0 : float
        Factor on the step size, which is otherwise found from the data; falls linearly to 0.
    average : bool
        Return the mean of the iterates, with later ones counting more, rather than the last.
    chains : int
        Learn from so many groups of blocks side by side, each from the same state, and go on from
        the mean of the states they come to. On a cluster that many workers are busy; the result
        depends on the number of chains and not on that of workers. For data of many blocks: where
        rows are few, more than one costs accuracy.
    early_stopping : bool
        Hold out `validation_fraction` of the rows of each block and stop when their loss has not
        become better by the relative amount `tol` for `patience` epochs.
    scoring : str, optional
        A metric by scikit-learn's name, such as "balanced_accuracy" or "roc_auc": it is measured on
        the rows held out in the place of their loss, chooses the penalty and ends training, and
        with `early_stopping` the coefficients of the best epoch are returned. Weights of rows
        count, those of classes do not.
    validation_fraction, tol, patience
        See `early_stopping`.
    class_weight : dict, "balanced" or None
        Factors on the loss of each class.
    checkpoint : path, optional
        File in which the state is kept every `checkpoint_every` blocks. When it is there, `fit`
        goes on from it and ends with the coefficients of a run that was never interrupted.
    checkpoint_every : int
        Blocks between two checkpoints.
    persist : {"auto", True, False}
        Keep the features in memory, or compute them again in each epoch. "auto" takes what is
        estimated cheaper: they are kept when there is room (locally 256 MiB, or
        ``rfcdask.persist-bytes`` of Dask's configuration; a fifth of the workers' memory on a
        cluster) and computing two of their blocks took longer than reading kept ones would.
        The coefficients are the same, bit for bit.
    random_state : int, RandomState or None
        Seed of all shuffling.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.

    Attributes
    ----------
    coef_ : array of shape (n_classes, n_features), one row for two classes
    intercept_ : array of shape (n_classes,)
    classes_ : array of shape (n_classes,)
    n_iter_ : int
        Epochs gone through.
    history_ : list of dict
        Mean loss of each epoch, on the rows as they were learned from and on those held out.
    alpha_ : float
        The penalty used.

    Examples
    --------
    >>> import dask.array as da, rfcdask as rf
    >>> X = da.random.default_rng(0).normal(size=(1000, 5), chunks=(100, 5))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> rf.SGDClassifier(random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = BaseSGD._parameter_constraints | {
        "loss": [StrOptions({"hinge", "squared_hinge", "log_loss"})],
        "multi_class": [StrOptions({"ovr", "multinomial"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        loss: str = "hinge",
        *,
        alpha: float | str = "auto",
        alphas: Sequence[float] | None = None,
        epochs: int | str = "auto",
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        batch_size: int | str = "auto",
        eta0: float = 1.0,
        average: bool = True,
        chains: int = 1,
        early_stopping: bool = False,
        scoring: str | None = None,
        validation_fraction: float = 0.1,
        tol: float = 1e-3,
        patience: int = 2,
        class_weight: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 64,
        persist: bool | str = "auto",
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.loss, self.multi_class, self.epochs = loss, multi_class, epochs
        self.alpha, self.alphas = alpha, alphas
        self.fit_intercept, self.batch_size, self.eta0 = fit_intercept, batch_size, eta0
        self.average, self.chains = average, chains
        self.early_stopping, self.scoring = early_stopping, scoring
        self.validation_fraction, self.tol, self.patience = validation_fraction, tol, patience
        self.class_weight, self.persist, self.progress = class_weight, persist, progress
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Train from the beginning, or from the checkpoint.

        Parameters
        ----------
        X : array or dask array of shape (n, p)
        y : array or dask array of shape (n,)
            Labels of any kind; a dask array needs the row chunks of X.
        sample_weight : array or dask array of shape (n,), optional
        client : distributed.Client, optional
            Where to compute: this client, else the current one, else local threads.
        """
        self._forget()
        matrix, column, weights = self._check_data(X, y, sample_weight, reset=True)
        seed = self._choose_seed()
        with open_executor(client) as executor:
            labels = read_labels(executor, column)
            self.classes_ = labels.classes
            column, codes = labels.for_training(column, matrix)
            arrays = (matrix, column, weights)
            blocks = training_blocks(
                executor, arrays, self._count_epochs(matrix.shape[0]), self.persist, client
            )
            config = self._make_classifier_config(
                matrix,
                seed,
                labels,
                weighted=weights is not None,
                classes=codes,
                sorted_rows=warn_if_sorted(labels, blocks, seed, self.chains),
            )
            self._train(executor, blocks, config, labels)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, client: Any = None
    ) -> Self:
        """Go once over more rows, from where the last call ended.

        The first call needs `classes`, the labels of all calls. ``alpha="auto"`` counts the
        rows of the first call.
        """
        first = not hasattr(self, "coef_")
        self._check_classes(classes, first)
        matrix, column, weights = self._check_data(X, y, sample_weight, reset=first)
        labels = ClassLabels.known(self.classes_)
        config = self._make_classifier_config(
            matrix,
            self._seed_of_calls(),
            labels,
            weighted=weights is not None,
            classes=labels.classes,
        )
        with open_executor(client) as executor:
            blocks = training_blocks(executor, (matrix, column, weights), 1)
            self._train_more(executor, blocks, config)
        return self

    def _validate_params(self) -> None:
        super()._validate_params()
        self._loss_code()

    def _loss_code(self) -> int:
        code = CLASSIFIER_LOSSES.get((self.loss, self.multi_class))
        if code is None:
            known = ", ".join(f"{loss!r} with {kind!r}" for loss, kind in CLASSIFIER_LOSSES)
            raise ValueError(
                f"loss={self.loss!r} with multi_class={self.multi_class!r} is not known; "
                f"there are {known}."
            )
        return code

    def _make_classifier_config(
        self, X: DaskArray, seed: int, labels: ClassLabels, **more: Any
    ) -> TrainingConfig:
        k, class_weights = len(labels.classes), labels.weights(self.class_weight)
        softmax = k > 2 and self.multi_class == "multinomial"
        return self._make_config(
            X,
            seed,
            score=self._score(class_weights, softmax, weighted=more["weighted"]),
            # with two classes "multinomial" and "ovr" are the same
            loss=self._loss_code() if k > 2 else CLASSIFIER_LOSSES[(self.loss, "ovr")],
            n_outputs=k if k > 2 else 1,
            class_weights=class_weights,
            **more,
        )


class SGDRegressor(LinearRegressorMixin, BaseSGD):
    """Linear regression by preconditioned, averaged stochastic gradient descent.

    For squared error :class:`rfcdask.Ridge` gives the exact answer in one pass; this model is for
    very many features, for Huber's loss and for data that keep coming.

    Parameters
    ----------
    loss : {"squared_error", "huber"}
        Huber's loss is linear beyond `epsilon`, so that outliers count less.
    alpha : float or "auto"
        Strength of the penalty ``alpha / 2 ||coef||^2`` beside the mean loss; "auto" is chosen as
        in :class:`SGDClassifier`.
    epsilon : float
        Where Huber's loss becomes linear, in units of y.
    alphas, epochs, fit_intercept, batch_size, eta0, average, chains, early_stopping, \
scoring, validation_fraction, tol, patience, checkpoint, checkpoint_every, persist, random_state, \
progress
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
        alphas: Sequence[float] | None = None,
        epsilon: float = 1.35,
        epochs: int | str = "auto",
        fit_intercept: bool = True,
        batch_size: int | str = "auto",
        eta0: float = 1.0,
        average: bool = True,
        chains: int = 1,
        early_stopping: bool = False,
        scoring: str | None = None,
        validation_fraction: float = 0.1,
        tol: float = 1e-3,
        patience: int = 2,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 64,
        persist: bool | str = "auto",
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.loss, self.epsilon, self.epochs = loss, epsilon, epochs
        self.alpha, self.alphas = alpha, alphas
        self.fit_intercept, self.batch_size, self.eta0 = fit_intercept, batch_size, eta0
        self.average, self.chains = average, chains
        self.early_stopping, self.scoring, self.patience = early_stopping, scoring, patience
        self.validation_fraction, self.tol, self.persist = validation_fraction, tol, persist
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Train as :meth:`SGDClassifier.fit` does; y may have several columns."""
        self._forget()
        matrix, targets, weights = self._check_data(X, y, sample_weight, reset=True)
        config = self._make_regressor_config(matrix, targets, weights, self._choose_seed())
        with open_executor(client) as executor:
            arrays = (matrix, targets, weights)
            blocks = training_blocks(
                executor, arrays, self._count_epochs(matrix.shape[0]), self.persist, client
            )
            self._train(executor, blocks, config)
        if targets.ndim == 1:
            self._flatten_outputs()
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Go once over more rows, from where the last call ended."""
        first = not hasattr(self, "coef_")
        matrix, targets, weights = self._check_data(X, y, sample_weight, reset=first)
        config = self._make_regressor_config(matrix, targets, weights, self._seed_of_calls())
        if not first and config.n_outputs != len(np.atleast_1d(self.intercept_)):
            raise ValueError(
                f"y has {config.n_outputs} target(s) per row, but the calls before had "
                f"{len(np.atleast_1d(self.intercept_))}; give the same targets in every call."
            )
        with open_executor(client) as executor:
            blocks = training_blocks(executor, (matrix, targets, weights), 1)
            self._train_more(executor, blocks, config)
        if targets.ndim == 1:
            self._flatten_outputs()
        return self

    def _make_regressor_config(
        self, X: DaskArray, y: DaskArray, weights: DaskArray | None, seed: int
    ) -> TrainingConfig:
        return self._make_config(
            X,
            seed,
            loss=REGRESSOR_LOSSES[self.loss],
            n_outputs=1 if y.ndim == 1 else int(y.shape[1]),
            epsilon=float(self.epsilon),
            score=self._score(weighted=weights is not None),
            weighted=weights is not None,
        )


def warn_if_sorted(labels: ClassLabels, blocks: Blocks, seed: int, chains: int = 1) -> bool:
    """Warn where groups of blocks differ in their mix of classes, and return whether they do."""
    mixed = blocks_mixed(len(blocks), blocks.nbytes, chains)
    groups = epoch_groups(len(blocks), mixed, seed, 0, chains)
    found = labels.disorder(groups)
    chance = np.sqrt(len(labels.classes) * len(groups) / sum(blocks.rows))
    is_sorted = bool(len(groups) > 1 and found > SORTED_FROM + chance)
    if is_sorted:
        warnings.warn(
            f"The rows are ordered by class: {mixed} blocks at a time differ from the whole by "
            f"{found:.0%} in their mix of classes, and the model may suffer. Shuffle the store "
            "once with rfcdask.ingest(source, dest, shuffle=True), or use smaller blocks.",
            UserWarning,
            stacklevel=3,
        )
    return is_sorted
