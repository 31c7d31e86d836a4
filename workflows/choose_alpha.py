"""Choose the penalty behind ``alpha="auto"`` by rows held out of the *training* sets.

    python workflows/choose_alpha.py a9a.npz:0.05 mnist.npz:0.02 covtype.npz:0.1

Each argument is a file and the gamma of its kernel. A file holds X_train and y_train; what else it
holds, test rows above all, is not read. Covertype comes as X_num, wilderness, soil and y without a
test set: the last fifth of its rows in the order of seed 0, by which the tests of this package
judge, is put away before anything is looked at.

For every seed a fifth of the training rows is held out and the package's own map of 500 features
is fitted on the others; for every loss and every C a model with ``alpha = 1 / (C n)`` is trained on
them. The C chosen for a loss is the smallest whose accuracy on the rows held out, a mean over data
sets and seeds, lies within one standard error (of the paired differences) of the best.

With at most 125,000 rows of a file and seeds 0 to 2 it gave (accuracies in per cent):

                        C=0.25       C=1       C=4      C=16      C=64
    a9a   hinge          84.77     85.00     84.92     84.83     84.73
          squared hinge  85.12     84.93     84.81     84.79     84.71
          log loss       84.77     85.03     85.07     84.96     84.78
    mnist hinge          93.37     94.13     94.41     94.32     94.29
          squared hinge  94.23     94.56     94.55     94.49     94.47
          log loss       91.66     93.35     94.11     94.32     94.36
    covtype hinge        75.45     76.55     77.11     77.32     77.40
          squared hinge  76.38     76.88     77.19     77.28     77.31
          log loss       74.85     75.91     76.56     76.93     77.05
    mean  hinge          84.53     85.23     85.48     85.49     85.47   C = 4
          squared hinge  85.24     85.45     85.52     85.52     85.49   C = 1
          log loss       83.76     84.76     85.25     85.40     85.40   C = 16
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rfcdask as rf

Array = npt.NDArray[Any]
LOSSES = ("hinge", "squared_hinge", "log_loss")
PENALTIES = (0.25, 1.0, 4.0, 16.0, 64.0)


def read_training_rows(path: Path) -> tuple[Array, Array]:
    """Read the training rows of a file as float32, whole numbers scaled to at most 1."""
    with np.load(path) as file:
        if "X_num" in file:
            return _covertype(file)
        X = file["X_train"]
        scale = float(X.max()) if X.dtype.kind in "ui" else 1.0
        return X.astype(np.float32) / np.float32(scale), file["y_train"]


def _covertype(file: Any) -> tuple[Array, Array]:
    y = file["y"]
    kept = np.random.default_rng(0).permutation(len(y))[: len(y) * 4 // 5]
    numbers = file["X_num"][kept].astype(np.float32)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    kinds = [np.eye(k, dtype=np.float32)[file[name][kept]] for k, name in _KINDS]
    return np.hstack([numbers, *kinds]), y[kept]


_KINDS = ((4, "wilderness"), (40, "soil"))


def accuracies(X: Array, y: Array, gamma: float, seed: int, size: int, rows: int) -> Array:
    """Return the accuracy on rows held out of each loss (row) and each C (column)."""
    order = np.random.default_rng([seed, 7]).permutation(len(y))[:rows]
    held_out, train = order[: len(order) // 5], order[len(order) // 5 :]
    features = rf.CompressedFeatures(size, gamma=gamma, random_state=seed).fit(X[train])
    Z, Z_out = features.transform(X[train]), features.transform(X[held_out])
    found = np.empty((len(LOSSES), len(PENALTIES)))
    for i, loss in enumerate(LOSSES):
        for j, C in enumerate(PENALTIES):
            model = rf.SGDClassifier(loss, alpha=1 / (C * len(Z)), random_state=seed)
            found[i, j] = model.fit(Z, y[train]).score(Z_out, y[held_out])
    return found


def choose(runs: Array) -> int:
    """Return the first column within one standard error of the best; one row a run."""
    best = int(runs.mean(0).argmax())
    behind = runs[:, [best]] - runs
    error = behind.std(0, ddof=1) / np.sqrt(len(runs))
    return int(np.argmax(behind.mean(0) <= error))


def show(name: str, table: Array) -> None:
    for loss, row in zip(LOSSES, table, strict=True):
        print(f"{name:<12}{loss:<16}" + "".join(f"{100 * value:>10.2f}" for value in row))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE:GAMMA")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", type=int, default=500, help="features")
    parser.add_argument("--rows", type=int, default=125_000, help="most rows of a file")
    options = parser.parse_args()
    print(f"{'':<28}" + "".join(f"{f'C={C:g}':>10}" for C in PENALTIES))
    runs = []
    for argument in options.files:
        name, gamma = argument.rsplit(":", 1)
        X, y = read_training_rows(Path(name))
        found = [
            accuracies(X, y, float(gamma), seed, options.size, options.rows)
            for seed in range(options.seeds)
        ]
        show(Path(name).stem, np.mean(found, axis=0))
        runs += found
    every = np.array(runs)
    show("mean", every.mean(0))
    for i, loss in enumerate(LOSSES):
        print(f"{loss}: C = {PENALTIES[choose(every[:, i])]:g}")


if __name__ == "__main__":
    main()
