"""Accuracy on real data, with the package's own maps, against liblinear on the same features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVC

import rfcdask as rf
from rfcdask._types import Array
from tests.linear_data import lazy

Split = tuple[Array, Array, Array, Array]


def a9a(shared: Path) -> Split:
    stored = np.load(shared / "datasets" / "a9a.npz")
    X, X_test = (stored[k].astype(np.float32) for k in ("X_train", "X_test"))
    return X, stored["y_train"], X_test, stored["y_test"]


def mnist(shared: Path) -> Split:
    stored = np.load(shared / "datasets" / "mnist.npz")
    X, X_test = (stored[k].astype(np.float32) / 255 for k in ("X_train", "X_test"))
    return X, stored["y_train"], X_test, stored["y_test"]


def covtype(shared: Path) -> Split:
    stored = np.load(shared / "datasets" / "covtype.npz")
    numbers = stored["X_num"].astype(np.float32)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    kinds = [np.eye(k, dtype=np.float32)[stored[c]] for k, c in ((4, "wilderness"), (40, "soil"))]
    X, y = np.hstack([numbers, *kinds]), stored["y"]
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) * 4 // 5], order[len(y) * 4 // 5 :]
    return X[train], y[train], X[test], y[test]


READERS = {"a9a": (a9a, 0.05), "mnist": (mnist, 0.02), "covtype": (covtype, 0.1)}


def featurized(name: str, shared: Path, J: int) -> Split:
    read, gamma = READERS[name]
    X, y, X_test, y_test = read(shared)
    features = rf.CompressedFeatures(J, gamma=gamma, random_state=0).fit(X)
    return features.transform(X), y, features.transform(X_test), y_test


def test_a9a_with_few_features(shared_data: Path) -> None:
    X, y, X_test, y_test = a9a(shared_data)
    features = rf.RandomFeatures(100, gamma=0.05, random_state=0).fit(X)
    Z, Z_test = features.transform(X), features.transform(X_test)
    exact = LinearSVC().fit(Z, y).score(Z_test, y_test)
    model = rf.SGDClassifier(random_state=0).fit(features.transform(lazy(X, 2000)), y)
    assert model.score(features.transform(lazy(X_test, 2000)), y_test) >= exact - 0.005


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", ["a9a", "mnist"])
def test_within_half_a_point_of_liblinear(name: str, loss: str, shared_data: Path) -> None:
    Z, y, Z_test, y_test = featurized(name, shared_data, 500)
    exact = LinearSVC(dual=False).fit(Z, y).score(Z_test, y_test)
    found = rf.SGDClassifier(loss, random_state=0).fit(lazy(Z, 5000), y).score(Z_test, y_test)
    print(f"{name} {loss}: {found:.4f}, LinearSVC {exact:.4f}")
    assert found >= exact - 0.005


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_covtype_shuffled_and_sorted(shared_data: Path) -> None:
    Z, y, Z_test, y_test = featurized("covtype", shared_data, 500)
    shuffled = rf.SGDClassifier(random_state=0).fit(lazy(Z, 8192), y).score(Z_test, y_test)
    order = np.argsort(y, kind="stable")
    with pytest.warns(UserWarning, match="shuffle=True"):
        ordered = rf.SGDClassifier(random_state=0).fit(lazy(Z[order], 8192), y[order])
    print(f"covtype shuffled {shuffled:.4f}, sorted {ordered.score(Z_test, y_test):.4f}")
    assert ordered.score(Z_test, y_test) > shuffled - 0.01
    exact: Any = LinearSVC(dual=False).fit(Z, y)
    print(f"covtype LinearSVC {exact.score(Z_test, y_test):.4f}")
    assert shuffled >= exact.score(Z_test, y_test) - 0.005
