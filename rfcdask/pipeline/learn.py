"""The phases that go over all rows: a linear baseline, the final model, and its score."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from rfcdask.data import Dataset
from rfcdask.data.columns import remember
from rfcdask.execution.blocks import fold_blocks
from rfcdask.kernels.arrays import Array
from rfcdask.linear import RidgeClassifier, SGDClassifier
from rfcdask.linear.checks import dense, encode_labels
from rfcdask.persist.models import load, save
from rfcdask.pipeline.choose import map_path
from rfcdask.pipeline.context import Context

LOSSES = {"svm": "hinge", "logistic": "log_loss"}
CHECKPOINT_EVERY = 32


def learn_linear(run: Context) -> dict[str, Any]:
    """Train a linear model on the columns themselves: what every map must beat."""
    start = time.perf_counter()
    model = RidgeClassifier().fit(run.train.X, run.train.y, client=run.client)
    seconds = time.perf_counter() - start
    matrix = confusion(model, run.test.X, run.test, run.client)
    return {"accuracy": accuracy(matrix), "seconds": seconds}


def train(run: Context) -> dict[str, Any]:
    """Train the final model on the features of all training rows, block by block."""
    used = run.used
    features = load(map_path(run, used["method"], run.largest))
    learner = _learner(run)
    start = time.perf_counter()
    learner.fit(features.transform(run.train.X), run.train.y, client=run.client)
    seconds = time.perf_counter() - start
    steps = [("features", features), ("model", learner)]
    if run.standardizer is not None:
        steps.insert(0, ("standardize", run.standardizer))
    if "checkpoint" in learner.get_params():
        learner.set_params(checkpoint=None)  # a path of this run is no part of the model
    about = {
        "command": "rfcdask run",
        "seed": run.settings.seed,
        "test_size": used["test_size"],
        "data": remember(run.stored, run.source or "synthetic"),
    }
    save(Pipeline(steps), run.folder.model, overwrite=True, about=about)
    passes = 1 if used["learner"] == "ridge" else used["epochs"]
    return {
        "method": used["method"],
        "n_components": run.largest,
        "learner": used["learner"],
        "epochs": passes,
        "train_seconds": seconds,
        "rows_per_second": passes * run.train.shape[0] / seconds,
        "path": "model",
    }


def _learner(run: Context) -> Any:
    used = run.used
    if used["learner"] == "ridge":
        return RidgeClassifier()
    return SGDClassifier(
        LOSSES[used["learner"]],
        epochs=used["epochs"],
        checkpoint=run.folder.checkpoint,
        checkpoint_every=CHECKPOINT_EVERY,
        persist=False,
        random_state=run.settings.seed,
    )


def score(run: Context) -> dict[str, Any]:
    """Predict all rows held out and count right and wrong ones by class."""
    pipeline = load(run.folder.model)
    Z = pipeline["features"].transform(run.test.X)
    matrix = confusion(pipeline["model"], Z, run.test, run.client)
    classes = run.product("data")["data"]["classes"]
    return {"accuracy": accuracy(matrix), "labels": classes, "matrix": matrix.tolist()}


class _Count:
    """Folds a block into the counts of true and predicted class; travels to the workers."""

    def __init__(self, model: Any, classes: Array) -> None:
        self.model, self.classes = model, classes

    def __call__(self, state: Array, block: tuple[Any, ...], index: int) -> Array:
        true = encode_labels(np.asarray(block[1]), self.classes)
        predicted = encode_labels(np.asarray(self.model.predict(dense(block[0]))), self.classes)
        k = len(self.classes)
        return np.asarray(state + np.bincount(true * k + predicted, minlength=k * k).reshape(k, k))


def confusion(model: Any, X: Any, test: Dataset, client: Any) -> Array:
    """Return how often each class (rows) was predicted as each class, in bounded memory.

    All classes of the data count: a rare one may have rows among those held out alone.
    """
    classes = np.asarray(test.classes)
    k = len(classes)
    total = zero = np.zeros((k, k), np.int64)
    for part in fold_blocks(
        (X, test.y), _Count(model, classes), zero, client, "scoring", group_size=4
    ):
        total = total + part
    return total


def accuracy(matrix: Array) -> float:
    """Return the share of rows on the diagonal."""
    return float(np.trace(matrix) / matrix.sum())
