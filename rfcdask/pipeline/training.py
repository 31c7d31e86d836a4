"""The later phases: features chosen, maps compared, models trained on all rows, and scored."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.array as da
import dask.config
import numpy as np
from sklearn.pipeline import Pipeline

from rfcdask.data import Dataset
from rfcdask.data.sample import columns_by_name
from rfcdask.data.tables import TableSpec
from rfcdask.evaluation.compare import (
    Split,
    fit_sizes,
    make_method,
    measure,
    measure_boosting,
)
from rfcdask.evaluation.evaluate import Evaluation, measured
from rfcdask.evaluation.importance import permutation_importance
from rfcdask.execution.executor import compute
from rfcdask.execution.progress import Reporter, track
from rfcdask.features import METHODS, NEIGHBOURS
from rfcdask.linear import (
    OF_PROBABILITIES,
    KernelClassifier,
    KernelRegressor,
    SGDClassifier,
    SGDRegressor,
)
from rfcdask.linear.sgd.base import auto_epochs
from rfcdask.persist.models import save
from rfcdask.pipeline.data import ERROR_ROWS, about_model
from rfcdask.pipeline.folder import plain, read_record, write_record
from rfcdask.pipeline.report import Metric

if TYPE_CHECKING:
    from rfcdask.pipeline.phases import Context

LOSSES = {"svm": "hinge", "logistic": "log_loss"}
CHECKPOINT_EVERY = 32
POINTS = 1000
"""Rows held out whose numbers are drawn against those that the model predicts."""
REPEATS, IMPORTANCE_ROWS, VISITS = 3, 5000, 1_000_000
"""How often columns are permuted, on how many rows, and how many rows are predicted for it."""
CONFIRM_FROM = 2000
"""From so many held-out rows on, half of them confirm what the other half chose."""
FEW_BYTES = 2**20
"""Rows up to this size are trained on in this process: the tasks of many epochs take longer."""
SPARSE_VISITS = 1_000_000  # rows that a linear model on sparse columns learns from, at least


def _fit_sizes(run: Context, method: str, sizes: Sequence[int]) -> Iterator[tuple[int, Any, float]]:
    """Fit a map on the sample at each size; yields the size, the map and the seconds it took."""
    used, kernel = run.used, run.product("kernel")
    unfitted = make_method(
        method,
        max(sizes),
        run.judge,
        kernel=kernel["name"],
        gamma=kernel["gamma"],
        given_gamma=used["gamma"],
        random_state=run.settings.random_state,
        **{name: used[name] for name in ("n_candidates", "label_weight", "n_rows", "refine")},
    )
    with dask.config.set(scheduler="threads"):  # rows are in memory, and stay here
        yield from fit_sizes(unfitted, sizes, run.sample, shared=run.shared)


def map_path(run: Context, method: str, size: int) -> Path:
    """Return where a fitted map that is needed again is kept."""
    return run.folder.maps / f"{method}-{size}"


def select(run: Context) -> dict[str, Any]:
    """Choose the features of the final model, or ours for a comparison, and keep their errors."""
    size, method = run.n_components, "compressed" if run.compares else run.used["method"]
    # One selection serves all sizes that are compared.
    compared = run.compares and method in run.used["methods"]
    sizes = run.used["sizes"] if compared else [size]
    took = {}
    with track("choosing features", None, "maps") as reporter:
        reporter.note(f"{size} of {run.used['n_candidates']}")
        for one, fitted, seconds in _fit_sizes(run, method, sizes):
            save(fitted, map_path(run, method, one), overwrite=True)
            took[str(one)] = seconds
            reporter.advance()
    found = run.folder.load(map_path(run, method, size))
    product = {
        "method": method,
        "n_features": found._n_features_out,
        "seconds": took[str(size)],
        "seconds_by_size": took,
    }
    if not hasattr(found, "error_path_"):
        return product
    path = found.error_path_
    return product | {
        "n_candidates": run.used["n_candidates"],
        "n_rows": run.used["n_rows"],
        "sizes": path.sizes.tolist(),
        "sampled": path.sampled.tolist(),
        "heldout": path.heldout.tolist(),
        "chosen_size": len(found.weights_),
        "refined_heldout": found.heldout_error_ if found.refine_path_ is not None else None,
        "heldout_error": found.heldout_error_,
        "weights": found.weights_.tolist(),
    }


def compare_maps(run: Context) -> dict[str, Any]:
    """Fit every map at every size and measure it on rows held out; one file each."""
    methods, sizes = run.used["methods"], run.used["sizes"]
    others = [method for method in methods if method in NEIGHBOURS]
    methods = [method for method in methods if method in METHODS]
    with track("comparing", len(methods) * len(sizes) + len(others), "maps") as reporter:
        for method, size, fitted, seconds in _all_fitted(run, methods, sizes, reporter):
            reporter.note(method)
            _measure(run, method, size, fitted, seconds)
            reporter.advance()
        for method in others:
            if not _row_path(run, method, 0).is_file():
                reporter.note(method)
                row = measure_boosting(_chosen_by(run)[0], run.judge, run.settings.random_state)
                write_record(_row_path(run, method, 0), plain(row), run.folder.mark)
            reporter.advance()
    pairs = [(method, size) for method in methods for size in sizes]
    pairs += [(method, 0) for method in others]
    return {"rows": [read_record(_row_path(run, *pair), run.folder.mark) for pair in pairs]}


def _all_fitted(
    run: Context, methods: Sequence[str], sizes: Sequence[int], reporter: Reporter
) -> Iterator[tuple[str, int, Any, float]]:
    """Yield method, size, map and seconds of all maps that were not measured before.

    Those that select come first, alike ones one after the other: what they have in common is made
    once, and let go before anything is measured.
    """

    def fitted(method: str) -> Iterator[tuple[str, int, Any, float]]:
        left = [size for size in sizes if not _row_path(run, method, size).is_file()]
        reporter.note(method)
        reporter.advance(len(sizes) - len(left))
        if left:
            run.log(f"compare: {method}, {', '.join(map(str, left))} features")
            yield from ((method, *one) for one in _fitted(run, method, left))

    selecting = [name for name in methods if METHODS[name].selects]
    selecting.sort(key=lambda name: METHODS[name].paper)
    found = list(chain.from_iterable(map(fitted, selecting)))
    run.shared.clear()
    yield from found
    yield from chain.from_iterable(fitted(name) for name in methods if name not in selecting)


def _chosen_by(run: Context) -> tuple[Split, Any]:
    """Return the sample, and further rows held out: what is recommended is chosen by one half."""
    data = run.sample
    if len(data.labels) < CONFIRM_FROM:
        return data, None
    more = (data.test[1::2], data.labels[1::2])
    return data._replace(test=data.test[::2], labels=data.labels[::2]), more


def _row_path(run: Context, method: str, size: int) -> Path:
    return run.folder.maps / f"{method}-{size}.json"


def _measure(run: Context, method: str, size: int, fitted: Any, seconds: float) -> None:
    """Measure a map, and keep it if the final model needs it."""
    if (method, size) == (run.used["method"], run.n_components) and not run.learns_features:
        save(fitted, map_path(run, method, size), overwrite=True)
    (data, more), seed = _chosen_by(run), run.settings.random_state
    with dask.config.set(scheduler="threads"):  # rows are in memory, and stay here
        row = measure(
            method,
            size,
            fitted,
            seconds,
            None,
            data,
            run.judge,
            seed,
            n_points=ERROR_ROWS,
            more=more,
        )
    row["test_rows"] = len(data.labels)
    write_record(_row_path(run, method, size), plain(row), run.folder.mark)


def _fitted(run: Context, method: str, sizes: Sequence[int]) -> Iterator[tuple[int, Any, float]]:
    """Yield the maps of a method; those that were chosen in the phase before are there."""
    chosen = run.product("select")
    known = chosen.get("seconds_by_size") or {str(run.n_components): chosen["seconds"]}
    there = [size for size in sizes if method == chosen["method"] and str(size) in known]
    for size in there:
        yield size, run.folder.load(map_path(run, method, size)), known[str(size)]
    if left := [size for size in sizes if size not in there]:
        yield from _fit_sizes(run, method, left)


def train_linear(run: Context) -> dict[str, Any]:
    """Train a linear model on the columns themselves: what every map must beat, and kept if not."""
    start = time.perf_counter()
    train, test, held = run.linear_parts
    if train.sparse:  # a square matrix of all columns would not fit
        epochs = auto_epochs(train.shape[0], SPARSE_VISITS)
        model = run.judge.sgd(epochs=epochs, random_state=run.settings.random_state)
        _fit(run, model, *_rows(run, train))
    else:
        model = run.judge.ridge().fit(train.X, train.y, client=run.client)
    if held is not None:
        model.calibrate(held.X, held.y, method=run.used["calibration"], client=run.client)
    seconds = time.perf_counter() - start
    found = measured(model, test.X, test.y, client=run.client)
    _save(run, [*_steps_before(run), ("learner", model)], _kept(run, "linear"), run.columns)
    named = {"seconds": seconds, "learner": "sgd" if train.sparse else "ridge"}
    return {"accuracy": found.values.get("accuracy"), "metrics": found.values} | named


def _rows(run: Context, data: Dataset) -> tuple[Any, Any]:
    """Return rows and labels, lazily unless they are few."""
    if data.shape[0] * data.reader.row_bytes > FEW_BYTES:
        return data.X, data.y
    return compute(data.X, run.client), None if data.y is None else compute(data.y, run.client)


def _fit(run: Context, model: Any, X: Any, y: Any) -> None:
    """Train a model where its rows are: on the cluster, or in this process."""
    lazy = isinstance(X, da.Array)
    with dask.config.set({} if lazy else {"scheduler": "threads"}):
        model.fit(X, y, client=run.client if lazy else None)


def _kept(run: Context, name: str) -> Path:
    """Return where a model is until it is known which of two is better."""
    return run.folder.maps / f"{name}-model"


def _steps_before(run: Context) -> list[tuple[str, Any]]:
    """Return what the rows of a run went through before, and new ones will."""
    steps: list[tuple[str, Any]] = []
    if "table" in run.stored.attrs:
        from rfcdask.data.tables.encoder import TableEncoder

        steps.append(("table", TableEncoder.of(run.stored)))
    if run.standardizer is not None:
        steps.append(("standardize", run.standardizer))
    return steps


def train(run: Context) -> dict[str, Any]:
    """Train the final model on the features of all training rows, block by block.

    Features that learn do so with the model.
    """
    used, (X, y), steps = run.used, _rows(run, run.train), _steps_before(run)
    features: Any = None
    if used["method"] != "none" and not run.learns_features:
        features = run.folder.load(map_path(run, used["method"], run.n_components))
        steps.append(("features", features))
        X = features.transform(X)
    start = time.perf_counter()
    learned: dict[str, Any] = {}
    if used["learner"] != "none" or run.learns_features:
        learner = make_learner(run)
        _fit(run, learner, X, y)
        if "checkpoint" in learner.get_params():
            learner.set_params(checkpoint=None)  # a path of this run is no part of the model
        if (held := run.calibration_rows) is not None:
            rows = features.transform(held.X) if features is not None else held.X
            learner.calibrate(rows, held.y, method=used["calibration"], client=run.client)
        alone = used["learner"] == "none"
        steps.append(("features", learner.features_) if alone else ("learner", learner))
        if run.learns_features:
            learned = {"gamma": learner.gamma_, "history": learner.history_}
    seconds = time.perf_counter() - start
    _save(run, steps, run.folder.model, run.stored)
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


def _save(run: Context, steps: list[tuple[str, Any]], path: Path, data: Dataset) -> None:
    """Write a model whose first step knows the columns of the data by name, as encoders do."""
    if steps[0][0] != "table":
        columns_by_name(steps[0][1], data.X, reset=True)
    save(Pipeline(steps), path, overwrite=True, about=about_model(run, data))


def make_learner(run: Context) -> Any:
    """Return the unfitted model, for classes or for numbers; features that learn are part of it."""
    used, numbers = run.used, run.stored.classes is None
    alpha = used["alpha"]
    if alpha == "auto" and used["C"] is not None:
        alpha = 1.0 / (used["C"] * run.train.shape[0])
    if used["learner"] == "ridge":
        return run.judge.ridge().set_params(alpha=1.0 if alpha == "auto" else alpha)
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
    if not numbers:
        common["class_weight"] = used["class_weight"]
    named = run.settings.scoring
    has_it = loss == "log_loss" or named not in OF_PROBABILITIES
    if named != "auto" and has_it and (run.learns_features or alpha == "auto"):
        common["scoring"] = named  # rows held out choose by it
    if not run.learns_features:
        return (SGDRegressor if numbers else SGDClassifier)(persist=False, **common)
    return (KernelRegressor if numbers else KernelClassifier)(
        run.n_components,
        kernel=used["kernel"],
        gamma="tune" if isinstance(used["gamma"], str) else used["gamma"],
        **common,
    )


def _load_learner(run: Context, path: Path) -> Any:
    """Load a model without the steps that the rows of a run went through before."""
    pipeline = run.folder.load(path)
    done = [name for name in pipeline.named_steps if name in ("table", "standardize")]
    return pipeline[len(done) :]


def _better_model(run: Context) -> tuple[Any, Any, Evaluation, dict[str, Any]]:
    """Return the model, the rows held out for it, what was measured, and what is to be said.

    Where the map was left open, a linear model that is better takes the place of the trained one.
    """
    trained, linear, test = _kept(run, "trained"), _kept(run, "linear"), run.test
    # The model was replaced already if a run was killed after that.
    fitted = _load_learner(run, trained if trained.exists() else run.folder.model)
    found = measured(fitted, test.X, test.y, client=run.client)
    metric = Metric(run.judge.scoring)
    mine = metric.value({"metrics": found.values})
    other = metric.value(run.product("linear")) if run.compares and linear.exists() else None
    if mine is None or other is None or other <= mine or run.used["method"] == "none":
        return fitted, test, found, {"warnings": []}
    if run.settings.method != "auto":
        said = (
            f"A linear model on the columns has a better {metric.word} ({metric.show(other)}) than "
            f"the saved model ({metric.show(mine)}), whose map was asked for: leave --method "
            f"{run.settings.method} out to save the better one."
        )
        return fitted, test, found, {"warnings": [said]}
    if not trained.exists():
        save(run.folder.load(run.folder.model), trained)
    about = about_model(run, run.columns)
    save(run.folder.load(linear), run.folder.model, overwrite=True, about=about)
    fitted, test = _load_learner(run, linear), run.linear_parts[1]
    set_aside = {"accuracy": found.values.get("accuracy"), "metrics": found.values}
    aside: dict[str, Any] = {"set_aside": set_aside, "warnings": []}
    return fitted, test, measured(fitted, test.X, test.y, client=run.client), aside


def score(run: Context) -> dict[str, Any]:
    """Measure the better model on all rows held out, and what it needs of each column."""
    fitted, test, found, product = _better_model(run)
    product["metrics"] = found.values
    if run.compares:
        product["importances"] = _importances(run, fitted)
    if found.labels is None or found.confusion is None:
        if run.compares:
            product["points"] = _points(run, fitted, test)
        names = run.stored.targets or []
        each = {
            name: dict(zip(names, values, strict=True)) for name, values in found.targets.items()
        }
        targets = [{"target": name} | {m: v[name] for m, v in each.items()} for name in names]
        return product | {"R2": found["r2"], "targets": targets}
    # All classes of the data count: a rare one may have rows among those learned from alone.
    classes = np.asarray(test.classes)
    matrix = np.zeros((len(classes), len(classes)), np.int64)
    places = np.searchsorted(classes, found.labels)
    matrix[np.ix_(places, places)] = found.confusion
    return product | {
        "accuracy": found["accuracy"],
        "labels": run.product("data")["data"]["classes"],
        "matrix": matrix.tolist(),
        "warnings": [*([said] if (said := found.warning()) else []), *product["warnings"]],
    }


def _points(run: Context, model: Any, test: Dataset) -> list[Any]:
    """Return true and predicted numbers of some rows held out."""
    rows, labels = run.sample.test[:POINTS], run.sample.labels[:POINTS]
    if rows.shape[1] != test.shape[1]:  # the sample is projected, and the model is not
        few: Any = test.split(test_size=min(POINTS, test.shape[0] - 1), random_state=0)[1]
        rows, labels = compute(few.X, run.client), compute(few.y, run.client)
    return np.c_[labels, model.predict(rows)].tolist()


def _importances(run: Context, model: Any) -> dict[str, Any] | None:
    """Return what the model loses without each column, on a few of the rows held out.

    What a column of a table was encoded to is permuted together. None where there are so many
    columns that it would take long, or where they are projected.
    """
    data, (n, p) = run.product("data")["data"], run.sample.test.shape
    names = data.get("column_names")  # runs of older versions did not keep them
    names = names if names and len(names) == p else None
    table = run.stored.attrs.get("table") if names else None
    groups = TableSpec.from_json(table).sources if table else {}
    rows = min(n, IMPORTANCE_ROWS, VISITS // (REPEATS * (len(groups) or p)))
    if rows < min(n, 100) or run.stored.projection is not None:
        return None
    found = permutation_importance(
        model,
        run.sample.test[:rows],
        run.sample.labels[:rows],
        scoring=run.judge.scoring,
        n_repeats=REPEATS,
        random_state=run.settings.random_state,
        feature_names=names,
        groups=groups,
        gradient=isinstance(model[-1], KernelClassifier | KernelRegressor),
    )
    shown = {"scoring": found.scoring, "score": found.score, "rows": rows}
    return shown | {"by_source": bool(groups), "columns": list(found.table)}
