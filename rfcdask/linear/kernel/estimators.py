"""Kernel classifier and regressor: features and linear head trained together, block by block."""

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
from rfcdask.linear.inputs import ClassLabels, read_labels
from rfcdask.linear.kernel.base import FitConfig, KernelModel
from rfcdask.linear.kernel.stream import BlockReader
from rfcdask.linear.predict import LinearClassifierMixin, LinearRegressorMixin
from rfcdask.linear.sgd.estimators import warn_if_sorted
from rfcdask.linear.sgd.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES, SOFTMAX


class KernelClassifier(LinearClassifierMixin, KernelModel):
    """Classifier whose cosine features learn together with the linear model on them [1]_.

    ``f(x) = A^T z(x) + c`` with ``z_j(x) = sqrt(2 / J) cos(w_j . x + b_j)``. The features begin as
    random features of a kernel, and all of w, b, A and c then learn from all rows, one mini-batch
    after another. Memory holds a bounded number of blocks of rows, and features of a few hundred
    rows. Rows held out choose width and penalty and see to it that nothing worse than the
    start is returned.

    Parameters
    ----------
    n_components : int, default=500
        The number of features J.
    kernel : {"rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52"} or Kernel
        Whose random features the training begins with.
    gamma : float, "scale", "median" or "tune", default="tune"
        The kernel's width; "tune" chooses it by short trainings on a sample of the rows.
    learn_features : bool, default=True
        Whether the features learn, or the linear model on the features of the start only.
    loss : {"log_loss", "squared_hinge", "hinge"}
    alpha : float or "auto"
        Strength of the penalty ``alpha / 2 ||coef||^2`` beside the mean loss. "auto" trains with
        several at once, on the same features, and lets rows held out choose.
    epochs : int or "auto"
        Passes over the rows; "auto" is 3, and more where there are fewer than 50,000 rows.
    n_candidates, n_rows, label_weight
        Of :class:`rfcdask.CompressedFeatures`, for ``start="selected"``.
    class_weight : dict, "balanced" or None
        Factors on the loss of each class.
    checkpoint : path, optional
        File in which the state is kept every `checkpoint_every` blocks. When it is there, `fit`
        goes on from it and ends with the model of a run that was never interrupted.
    random_state : int, RandomState or None
    start : {"random", "selected"}, default="random"
        Whether training begins with random features, or with such that were selected for a sample
        of rows and their labels, which takes longer and is rarely better after three epochs.
    alphas : sequence of float, optional
        The penalties to choose from.
    batch_size : int or "auto"
        Rows in a step; "auto" is 256, and fewer where there are fewer than 50,000 rows.
    step_size : float, default=1.0
        Factor on all steps.
    validation_fraction : float, default=0.1
        Share of the rows that are held out, at most 10,000 of them; 0 holds none out.
    patience : int, optional
        End training early after this many epochs, one after another, that were clearly worse on
        rows held out. Without it all epochs are gone through: the steps become smaller to the end.
    scoring : str, optional
        A metric by scikit-learn's name, such as "balanced_accuracy" or "roc_auc", that the rows
        held out judge by in the place of their loss: penalty and epoch with the best are returned,
        and `patience` counts epochs that were worse. Weights of rows count, those of classes do
        not. Widths are still tried by the loss, which says more of few rows.
    chains : int
        Groups of blocks that are learned from side by side, as in :class:`SGDClassifier`. The mean
        of features that learned apart is worse than features that learned from all rows in turn:
        for very many rows only.
    checkpoint_every : int
        Blocks between two checkpoints.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.

    Attributes
    ----------
    features_ : LearnedFeatures
        The trained features: a fitted map like every other.
    coef_ : array of shape (n_classes, J), one row for two classes
    intercept_ : array of shape (n_classes,)
    classes_ : array of shape (n_classes,)
    gamma_, alpha_ : float
        What was chosen.
    history_ : list of dict
        Mean loss of each epoch, on the rows as they were learned from and on those held out.
    trials_ : list of dict
        The widths that were tried, with ``gamma="tune"``.
    n_iter_ : int
        Epochs gone through.

    References
    ----------
    .. [1] Rahimi, A. and Recht, B. (2007). Random features for large-scale kernel machines. NIPS.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)).astype("float32")
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> rf.KernelClassifier(50, epochs=20, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = KernelModel._parameter_constraints | {
        "loss": [StrOptions({"log_loss", "squared_hinge", "hinge"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        n_components: int = 500,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | str = "tune",
        learn_features: bool = True,
        loss: str = "log_loss",
        alpha: float | str = "auto",
        epochs: int | str = "auto",
        n_candidates: int = 5000,
        n_rows: int = 5000,
        label_weight: float = 1.0,
        class_weight: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: RandomState = None,
        start: str = "random",
        alphas: Sequence[float] | None = None,
        batch_size: int | str = "auto",
        step_size: float = 1.0,
        validation_fraction: float = 0.1,
        patience: int | None = None,
        scoring: str | None = None,
        chains: int = 1,
        checkpoint_every: int = 64,
        progress: Any = None,
    ) -> None:
        self.n_components, self.kernel, self.gamma = n_components, kernel, gamma
        self.learn_features, self.start, self.loss = learn_features, start, loss
        self.n_candidates, self.n_rows, self.label_weight = n_candidates, n_rows, label_weight
        self.alpha, self.alphas, self.class_weight = alpha, alphas, class_weight
        self.epochs, self.batch_size, self.step_size = epochs, batch_size, step_size
        self.validation_fraction, self.patience = validation_fraction, patience
        self.chains, self.scoring = chains, scoring
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Choose the width and train over all rows, from the beginning or from the checkpoint.

        Parameters
        ----------
        X : array, CSR or dask array of shape (n, p)
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
            blocks = Blocks(matrix, column, weights)
            warn_if_sorted(labels, blocks, seed, self.chains)
            read = BlockReader(first_rows(matrix), codes, labels.weights(self.class_weight))
            setting = self._setting(executor, blocks, read, seed, **self._outputs())
            fingerprint = self._fingerprint(
                executor, blocks, seed, labels, weights=weights is not None
            )
            self._fit_blocks(executor, setting, fingerprint)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        client: Any = None,
    ) -> Self:
        """Go once over more rows, from where the last call ended.

        The first call needs `classes`, the labels of all calls; the width is chosen on its rows.
        With ``alpha="auto"`` the penalty is the one that `fit` chose, else 1e-5. Loss, `alpha`,
        `batch_size`, `step_size` and `learn_features` may change between calls.
        """
        first = not hasattr(self, "coef_")
        self._check_classes(classes, first)
        matrix, column, weights = self._check_data(X, y, sample_weight, reset=first)
        factors = ClassLabels.known(self.classes_).weights(self.class_weight)
        read = BlockReader(first_rows(matrix), self.classes_, factors)
        with open_executor(client) as executor:
            blocks = Blocks(matrix, column, weights)
            outputs, seed = self._outputs(), self._seed_of_calls()
            setting = self._setting(executor, blocks, read, seed, **outputs, more=True)
            self._learn_more(executor, setting)
        return self

    def _outputs(self) -> dict[str, Any]:
        """Return the code of the loss and the number of outputs."""
        k = len(self.classes_)
        if self.loss == "log_loss" and k > 2:
            return {"loss": SOFTMAX, "n_outputs": k}
        return {"loss": CLASSIFIER_LOSSES[(self.loss, "ovr")], "n_outputs": k if k > 2 else 1}


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
scoring, chains, checkpoint_every, progress
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    coef_ : array of shape (J,) or (n_targets, J)
    intercept_ : float or array of shape (n_targets,)
    target_mean_, target_scale_ : arrays of shape (n_targets,)
        By which targets are brought to mean 0 and variance 1, from the first rows on.
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
        scoring: str | None = None,
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
        self.chains, self.scoring = chains, scoring
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

        Width and scale of the targets are those of `fit`, or of the rows of the first call.
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
            known = hasattr(self, "target_scale_")  # not of models of earlier versions
            units = (self.target_mean_, self.target_scale_) if known else None
            self._learn_more(executor, _standardised(setting, units))
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
    with np.errstate(over="ignore"):
        mean, scale = units or (targets.mean(axis=0), targets.std(axis=0))
        if units is None and np.any(scale < 1e-145):  # squares that vanished
            size = np.maximum(np.abs(targets - mean).max(axis=0), np.finfo(float).tiny)
            scale = size * np.std((targets - mean) / size, axis=0)
    if not np.isfinite(scale).all():
        raise ValueError("y is too large to square: divide it by its size before training.")
    scale = np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)
    scale = np.where(scale > 0, scale, 1.0)
    sample = setting.sample
    moved = sample._replace(
        training=sample.training._replace(targets=(targets - mean) / scale),
        held=sample.held._replace(targets=(sample.held.targets - mean) / scale),
    )
    return setting._replace(read=replace(setting.read, mean=mean, scale=scale), sample=moved)
