"""The data sets of the experiments, by path: stores of ``rfcdask fetch`` or ``.npz`` files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.datasets import make_classification

import rfcdask as rf

Array = npt.NDArray[Any]

FILES = {
    "adult": "a9a",
    "human": "har_rebuilt",
    "mnist": "mnist",
    "sensorless": "sensorless_2200",
    "covtype": "covtype",
    "higgs": "higgs_sample",
}
"""The names of the sets, and of their .npz files."""
REMARKS = {
    "human": "rebuilt features",
    "sensorless": "2,200 rows",
    "higgs": "26,000 rows",
    "made": "rf.synthetic",
}
MADE = "made"
"""Not real: rows of HIGGS's shape from `rf.synthetic`, the data of the package's own examples."""
MADE_ROWS = 400_000
COVTYPE_ROWS = 400_000  # to learn from, of 581,012
TEST_ROWS = 50_000  # to judge by, at most: accuracy to a fifth of a point


class Rows(NamedTuple):
    """Rows to learn from, and rows to judge by."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def synthetic(n: int = 3000, columns: int = 8, seed: int = 0) -> Rows:
    """Return a small problem in which the classes are no half-spaces."""
    X, y = make_classification(
        n, columns, n_informative=5, n_classes=3, n_clusters_per_class=3, random_state=seed
    )
    X, cut = X.astype(np.float32), 2 * n // 3
    return Rows(X[:cut], y[:cut], X[cut:], y[cut:])


@lru_cache(maxsize=1)
def _all_made(n_rows: int) -> tuple[Array, Array]:
    dataset = rf.synthetic("higgs", rows=n_rows, random_state=0)
    return dataset.X.compute(), np.asarray(dataset.y).astype(np.int64)


def made(n_rows: int, seed: int) -> Rows:
    """Return rows of `rf.synthetic`, in a new order for every seed, split as real ones are."""
    X, y = _all_made(n_rows + TEST_ROWS)
    order = np.random.default_rng([seed, 9]).permutation(len(X))
    train, test = order[:n_rows], order[n_rows:]
    return Rows(X[train], y[train], X[test], y[test])


@lru_cache(maxsize=1)
def read(folder: Path, name: str, seed: int) -> Rows:
    """Return a data set: pixels over 255, measurements standardised, 0/1 columns as they are."""
    store, file = folder / f"{name}.zarr", folder / f"{FILES[name]}.npz"
    if store.exists():
        rows = _from_stores(store, folder / f"{name}-test.zarr", seed)
    elif file.exists():
        rows = _from_npz(dict(np.load(file)), seed)
    else:
        raise SystemExit(
            f"{folder} has neither {store.name} nor {file.name}; the store is made by "
            f"`rfcdask fetch {name} {store}`."
        )
    return _scaled(rows, name)


def _from_stores(store: Path, test: Path, seed: int) -> Rows:
    X, y = _in_memory(store)
    return Rows(X, y, *_in_memory(test)) if test.exists() else _split(X, y, seed)


def _in_memory(store: Path) -> tuple[Array, Array]:
    dataset = rf.open_dataset(str(store))
    if dataset.y is None:
        raise SystemExit(f"{store} has no labels.")
    return dataset.X.compute(), dataset.y.compute()


def _from_npz(stored: dict[str, Array], seed: int) -> Rows:
    if "X_train" in stored:
        return Rows(*(stored[key] for key in ("X_train", "y_train", "X_test", "y_test")))
    if "X_num" in stored:  # covtype, whose one-hot columns are kept as numbers
        places = np.eye(4)[stored["wilderness"]], np.eye(40)[stored["soil"]]
        stored["X"] = np.hstack([stored["X_num"], *places]).astype(np.float32)
    return _split(stored["X"], stored["y"], seed)


def _split(X: Array, y: Array, seed: int) -> Rows:
    """Hold a quarter of the rows out, and all that are too many to learn from."""
    order = np.random.default_rng([seed, 9]).permutation(len(X))
    count = min(len(X) * 3 // 4, COVTYPE_ROWS)
    train, test = order[:count], order[count : count + TEST_ROWS]
    return Rows(X[train], y[train], X[test], y[test])


def _scaled(rows: Rows, name: str) -> Rows:
    mean, scale = np.zeros(1), np.ones(1)
    if name == "mnist" and rows.X.max() > 1:
        scale = np.array([255.0])
    elif name in ("covtype", "sensorless", "higgs"):
        mean, scale = rows.X.mean(0, dtype=np.float64), rows.X.std(0, dtype=np.float64)
        scale[scale == 0] = 1
    X, X_test = (np.asarray((part - mean) / scale, np.float32) for part in (rows.X, rows.X_test))
    classes = np.unique(rows.y)
    return Rows(X, np.searchsorted(classes, rows.y), X_test, np.searchsorted(classes, rows.y_test))


def titled(name: str) -> str:
    """Return the name of a data set with what readers must know of it."""
    return f"{name} ({REMARKS[name]})" if name in REMARKS else name
