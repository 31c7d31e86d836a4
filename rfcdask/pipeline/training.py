"""The phases that go over all rows: a linear baseline, the final model, and its score."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from rfcdask.data import Dataset
from rfcdask.data.columns import training_data_record
from rfcdask.execution.blocks import fold_blocks
from rfcdask.kernels.arrays import Array
from rfcdask.linear import Ridge, RidgeClassifier, SGDClassifier, SGDRegressor
from rfcdask.linear.checks import dense, encode_labels
from rfcdask.persist.models import load, save
from rfcdask.pipeline.context import Context
from rfcdask.pipeline.maps import map_path

LOSSES = {"svm": "hinge", "logistic": "log_loss"}
CHECKPOINT_EVERY = 32


def train_linear(run: Context) -> dict[str, Any]:
    """Train a linear model on the columns themselves: what every map must beat."""
    start = time.perf_counter()
    model = RidgeClassifier().fit(run.train.X, run.train.y, client=run.client)
    seconds = time.perf_counter() - start
    matrix = confusion(model, run.test.X, run.test, run.client)
    return {"accuracy": accuracy(matrix), "seconds": seconds}


def train(run: Context) -> dict[str, Any]:
    """Train the final model on the features of all training rows, block by block."""
    used, X = run.used, run.train.X
    steps: list[tuple[str, Any]] = []
    if run.standardizer is not None:
        steps.append(("standardize", run.standardizer))
    if used["method"] != "none":
        features = load(map_path(run, used["method"], run.n_components))
        steps.append(("features", features))
        X = features.transform(X)
    start = time.perf_counter()
    if used["learner"] != "none":
        learner = make_learner(run).fit(X, run.train.y, client=run.client)
        if "checkpoint" in learner.get_params():
            learner.set_params(checkpoint=None)  # a path of this run is no part of the model
        steps.append(("learner", learner))
    seconds = time.perf_counter() - start
    save(Pipeline(steps), run.folder.model, overwrite=True, about=about_model(run))
    passes = {"ridge": 1, "none": 0}.get(used["learner"], used["epochs"])
    return {
        "method": used["method"],
        "n_components": run.n_components,
        "learner": used["learner"],
        "epochs": passes,
        "train_seconds": seconds,
        "rows_per_second": passes * run.train.shape[0] / seconds,
        "path": "model",
    }


def about_model(run: Context) -> dict[str, Any]:
    """Return what a model remembers of how it was made and of the data it was fitted on."""
    return {
        "command": "rfcdask run" if run.compares else "rfcdask fit",
        "seed": run.settings.random_state,
        "test_size": run.used["test_size"] or None,
        "data": training_data_record(run.stored, run.source or "synthetic"),
    }


def make_learner(run: Context) -> Any:
    """Return the unfitted linear model, for classes or for numbers."""
    used, numbers = run.used, run.stored.classes is None
    alpha = used["alpha"]
    if alpha == "auto" and used["C"] is not None:
        alpha = 1.0 / (used["C"] * run.train.shape[0])
    if used["learner"] == "ridge":
        return (Ridge if numbers else RidgeClassifier)(1.0 if alpha == "auto" else alpha)
    loss = LOSSES.get(used["learner"], used["loss"])
    if loss == "auto":
        loss = "squared_error" if numbers else "hinge"
    return (SGDRegressor if numbers else SGDClassifier)(
        loss,
        alpha=alpha,
        epochs=used["epochs"],
        checkpoint=run.folder.checkpoint,
        checkpoint_every=CHECKPOINT_EVERY,
        persist=False,
        random_state=run.settings.random_state,
    )


def score(run: Context) -> dict[str, Any]:
    """Predict all rows held out: count right and wrong ones by class, or give R2 of numbers."""
    pipeline, test = load(run.folder.model), run.test
    Z = pipeline["features"].transform(test.X) if "features" in pipeline.named_steps else test.X
    if test.classes is None:
        return {"R2": float(pipeline[-1].score(Z, test.y, client=run.client))}
    matrix = confusion(pipeline[-1], Z, test, run.client)
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
    zero = np.zeros((k, k), np.int64)
    count = _Count(model, classes)
    parts = fold_blocks((X, test.y), count, zero, client, "scoring", group_size=4)
    return np.asarray(sum(parts, start=zero))


def accuracy(matrix: Array) -> float:
    """Return the share of rows on the diagonal."""
    return float(np.trace(matrix) / matrix.sum())
