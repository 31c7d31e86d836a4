"""The phases that go over all rows: a linear baseline, the final model, and its score."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from rfcdask.data.columns import training_data_record
from rfcdask.evaluation.evaluate import measured
from rfcdask.linear import (
    KernelClassifier,
    KernelRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
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
    found = measured(model, run.test.X, run.test.y, client=run.client)
    return {"accuracy": found["accuracy"], "metrics": found.values, "seconds": seconds}


def train(run: Context) -> dict[str, Any]:
    """Train the final model on the features of all training rows, block by block.

    Features that learn do so with the model.
    """
    used, X = run.used, run.train.X
    steps: list[tuple[str, Any]] = []
    if "table" in run.stored.attrs:  # the rows on disk went through it, and new ones will
        from rfcdask.data.tables.encoder import TableEncoder

        steps.append(("table", TableEncoder.of(run.stored)))
    if run.standardizer is not None:
        steps.append(("standardize", run.standardizer))
    if used["method"] != "none" and not run.learns_features:
        features = load(map_path(run, used["method"], run.n_components))
        steps.append(("features", features))
        X = features.transform(X)
    start = time.perf_counter()
    learned: dict[str, Any] = {}
    if used["learner"] != "none" or run.learns_features:
        learner = make_learner(run).fit(X, run.train.y, client=run.client)
        if "checkpoint" in learner.get_params():
            learner.set_params(checkpoint=None)  # a path of this run is no part of the model
        alone = used["learner"] == "none"
        steps.append(("features", learner.features_) if alone else ("learner", learner))
        if run.learns_features:
            learned = {"gamma": learner.gamma_, "history": learner.history_}
    seconds = time.perf_counter() - start
    save(Pipeline(steps), run.folder.model, overwrite=True, about=about_model(run))
    passes = {"ridge": 1, "none": 0}.get(used["learner"], used["epochs"])
    if learned:
        passes = len(learned["history"])
    return learned | {
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
    """Return the unfitted model, for classes or for numbers; features that learn are part of it."""
    used, numbers = run.used, run.stored.classes is None
    alpha = used["alpha"]
    if alpha == "auto" and used["C"] is not None:
        alpha = 1.0 / (used["C"] * run.train.shape[0])
    if used["learner"] == "ridge":
        return (Ridge if numbers else RidgeClassifier)(1.0 if alpha == "auto" else alpha)
    loss = LOSSES.get(used["learner"], used["loss"])
    if loss == "auto":
        of_classes = "log_loss" if run.learns_features else "hinge"
        loss = "squared_error" if numbers else of_classes
    common: dict[str, Any] = {
        "loss": loss,
        "alpha": alpha,
        "epochs": used["epochs"],
        "checkpoint": run.folder.checkpoint,
        "checkpoint_every": CHECKPOINT_EVERY,
        "random_state": run.settings.random_state,
    }
    if not run.learns_features:
        return (SGDRegressor if numbers else SGDClassifier)(persist=False, **common)
    return (KernelRegressor if numbers else KernelClassifier)(
        run.n_components,
        kernel=used["kernel"],
        gamma="tune" if isinstance(used["gamma"], str) else used["gamma"],
        **common,
    )


def score(run: Context) -> dict[str, Any]:
    """Measure the model on all rows held out, in one pass."""
    pipeline, test = load(run.folder.model), run.test
    fitted = pipeline[1:] if "standardize" in pipeline.named_steps else pipeline
    found = measured(fitted, test.X, test.y, client=run.client)
    if test.classes is None:
        return {"R2": found["r2"], "metrics": found.values, "targets": found.targets}
    # All classes of the data count: a rare one may have rows among those learned from alone.
    classes = np.asarray(test.classes)
    matrix = np.zeros((len(classes), len(classes)), np.int64)
    assert found.labels is not None
    assert found.confusion is not None
    places = np.searchsorted(classes, found.labels)
    matrix[np.ix_(places, places)] = found.confusion
    return {
        "accuracy": found["accuracy"],
        "labels": run.product("data")["data"]["classes"],
        "matrix": matrix.tolist(),
        "metrics": found.values,
        "warnings": [said] if (said := found.warning()) else [],
    }
