"""Settings of stochastic models, checked once before work begins."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

AUTO_C = {"hinge": 4.0, "log_loss": 16.0}
"""C behind ``alpha="auto"`` where it is not 1: losses that grow more slowly than a square need a
weaker penalty to be as accurate. Chosen by ``workflows/choose_alpha.py`` on rows held out of the
training sets of a9a, MNIST and covtype: the smallest of 0.25, 1, 4, 16 and 64 whose mean accuracy
lies within one standard error of the best."""


@dataclass(frozen=True)
class Settings:
    """The parameters of a model in the form in which training uses them."""

    alpha: float | None  # None: 1 / (C n) with `auto_c`
    auto_c: float
    epochs: int
    batch: int | None  # None: by the number of rows
    eta0: float
    fit_intercept: bool
    held_out: float
    patience: int
    tol: float
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    progress: Any

    def alpha_for(self, n_rows: int) -> float:
        """Return the penalty for `n_rows` rows."""
        return 1.0 / (self.auto_c * n_rows) if self.alpha is None else self.alpha

    def batch_for(self, n_rows: int) -> int:
        """Return the rows of a step: a power of two, small enough for many steps an epoch."""
        if self.batch is not None:
            return self.batch
        size = 8
        while size < 256 and size * 2 * 40 <= n_rows:
            size *= 2
        return size


def check_settings(model: Any) -> Settings:
    """Return the settings of a model, or say which of them is wrong and how."""
    stops = bool(model.early_stopping)
    if model.persist not in (True, False, "auto"):
        raise ValueError(f"persist={model.persist!r} must be True, False or 'auto'.")
    return Settings(
        alpha=None if model.alpha == "auto" else _at_least_zero("alpha", model.alpha, " or 'auto'"),
        auto_c=AUTO_C.get(model.loss, 1.0),
        epochs=_positive_integer("epochs", model.epochs),
        batch=None
        if model.batch_size == "auto"
        else _positive_integer("batch_size", model.batch_size),
        eta0=check_positive("eta0", model.eta0),
        fit_intercept=bool(model.fit_intercept),
        held_out=_fraction("validation_fraction", model.validation_fraction) if stops else 0.0,
        patience=_positive_integer("patience", model.patience) if stops else 0,
        tol=_at_least_zero("tol", model.tol),
        checkpoint=model.checkpoint,
        checkpoint_every=_positive_integer("checkpoint_every", model.checkpoint_every),
        progress=model.progress,
    )


def _positive_integer(name: str, value: Any) -> int:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1.")
    return int(value)


def _number(value: Any) -> bool:
    real = isinstance(value, (int, float, np.integer, np.floating))
    return real and not isinstance(value, bool) and bool(np.isfinite(value))


def check_positive(name: str, value: Any) -> float:
    """Return a positive number, or say that it is none."""
    if not _number(value) or value <= 0:
        raise ValueError(f"{name}={value!r} must be a positive number.")
    return float(value)


def _at_least_zero(name: str, value: Any, more: str = "") -> float:
    if not _number(value) or value < 0:
        raise ValueError(f"{name}={value!r} must be a number of at least 0{more}.")
    return float(value)


def _fraction(name: str, value: Any) -> float:
    if not _number(value) or not 0 < value < 1:
        raise ValueError(f"{name}={value!r} must lie between 0 and 1.")
    return float(value)
