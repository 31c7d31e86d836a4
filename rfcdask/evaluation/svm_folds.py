"""One fold of cross-validation of exact kernel support vector machines; knows nothing of Dask."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.svm import SVC

from rfcdask.kernels import get_kernel
from rfcdask.kernels.types import Array, Matrix


class Sample(NamedTuple):
    """Rows in memory and the number of each one's class."""

    rows: Matrix
    codes: Array


class Trial(NamedTuple):
    """What is tried on one fold: one kernel matrix serves all penalties."""

    kernel: str
    gamma: float
    Cs: tuple[float, ...]
    fold: int


def fold_of_rows(codes: Array, folds: int, seed: int) -> Array:
    """Return the number of the fold that each row is tested in, classes spread evenly."""
    enough = np.bincount(codes).min() >= folds
    kind = StratifiedKFold if enough else KFold  # a class with fewer rows cannot be in all folds
    splitter = kind(folds, shuffle=True, random_state=seed % 2**32)
    parts = np.empty(len(codes), np.int64)
    for fold, (_, tested) in enumerate(splitter.split(np.zeros(len(codes)), codes)):
        parts[tested] = fold
    return parts


def fold_accuracies(sample: Sample, parts: Array, trial: Trial) -> tuple[float, ...]:
    """Train on all other folds and return the accuracy on this one for each penalty.

    The kernel matrix is computed once and given to the solver as it is, which makes a fit take
    a second or two at 8,000 rows.
    """
    rows, codes = sample
    tested = parts == trial.fold
    train, test = rows[~tested], rows[tested]
    kernel = get_kernel(trial.kernel)
    inside = np.asarray(kernel.exact(train, train, trial.gamma), np.float64)
    across = np.asarray(kernel.exact(test, train, trial.gamma), np.float64)
    if len(np.unique(codes[~tested])) < 2:
        return tuple(float(np.mean(codes[tested] == codes[~tested][0])) for _ in trial.Cs)
    accuracies = []
    for C in trial.Cs:
        model = SVC(kernel="precomputed", C=C).fit(inside, codes[~tested])
        accuracies.append(float(np.mean(model.predict(across) == codes[tested])))
    return tuple(accuracies)
