"""The first phases: rows on disk, what follows from their number and kind, plan, sample, kernel.

What was left open in the settings is settled here, once, and recorded with the data.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.utils import parse_bytes

from rfcdask.data import (
    DataError,
    Dataset,
    UnfinishedStoreError,
    ingest,
    open_dataset,
    synthetic,
)
from rfcdask.data.columns import training_data_record
from rfcdask.data.dataset import describe_store
from rfcdask.data.ingest import stays_sparse
from rfcdask.data.location import Location, is_url, path_text
from rfcdask.data.sample import gather, gather_finite
from rfcdask.data.sources import detect_format, expand, open_zarr, opened_source
from rfcdask.data.sources.base import Labels, Survey
from rfcdask.evaluation.compare import (
    Split,
)
from rfcdask.evaluation.tuning import tune
from rfcdask.features import METHODS
from rfcdask.kernels import get_kernel, resolve_gamma
from rfcdask.kernels.arrays import to_dense
from rfcdask.kernels.seeds import draw_rows, stream
from rfcdask.linear import OF_PROBABILITIES, check_scoring
from rfcdask.linear.kernel.base import default_epochs
from rfcdask.linear.sgd.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES
from rfcdask.linear.transform import wants_standardizing
from rfcdask.persist.untrusted import redacted
from rfcdask.pipeline.folder import OtherRunError, plain, require_text
from rfcdask.pipeline.settings import Settings
from rfcdask.planning import plan

if TYPE_CHECKING:
    from rfcdask.pipeline.phases import Context

SIZES = (50, 100, 300)
CANDIDATES = 5000
COMPARE_ROWS = 50_000
TEST_ROWS = 200_000
COMPARE_TEST_ROWS = 100_000
ERROR_ROWS = 5000
"""Held-out rows on all pairs of which kernel errors are measured."""
SAMPLE_BYTES = 64 * 2**20
"""What the rows to learn from, and those held out, may each take in the comparison."""
WIDEST = 10_000
"""More columns than this are not written as dense rows, unless a single model is fitted."""
FEWEST_ROWS = 20
PROJECTED, WIDEST_SPARSE = 500, 2000
"""Columns that maps see of sparse rows with more than so many, through a random projection: the
frequencies of 5,000 candidates on 50,000 columns would take a gigabyte."""
GAMMA_ROWS = 5000
TUNE_ROWS = 3000
CALIBRATION_ROWS = 20_000
"""Most rows on which probabilities are learned."""
EPOCHS = 3


def identity(source: str | None, settings: Settings) -> Any:
    """Return a JSON value that changes when the data do."""
    if source is None:
        return ["synthetic higgs", settings.rows, settings.random_state]
    if _is_store(source):
        reader: Any = open_dataset(source).reader
        return ["store", str(reader.location), reader.fingerprint]
    with opened_source(source, settings.format, settings.label) as rows:
        return rows.identity()


def absolute(source: str | os.PathLike[str] | None) -> str | None:
    """Return a path that means the same from any directory."""
    if source is None:
        return None
    text = path_text(source, "the source")
    return text if is_url(text) else str(require_text(Path(os.path.expanduser(text)).absolute()))


def _is_store(source: str) -> bool:
    paths = expand(source)
    if len(paths) != 1 or detect_format(paths[0]) != "zarr":
        return False
    return "complete" in open_zarr(Location.of(paths[0])).attrs


def prepare_data(run: Context) -> dict[str, Any]:
    """Make, ingest or open the data set, and settle what was left open."""
    dataset, path = _dataset(run)
    if path == str(run.folder.data):  # as it is called when the run is finished
        path = str(run.folder.final / run.folder.data.name)
    classes = [] if dataset.classes is None else dataset.classes.tolist()
    labels = Labels("<f8", tuple(classes) or None) if dataset.reader.label_dtype else None
    _check_labels(run, labels, dataset.shape[0], run.source or "the data")
    settled = settle(run.settings, dataset, compares=run.compares)
    counts = list(dataset.class_counts(client=run.client).values()) if classes else []
    known = describe_store(dataset, path)
    for name, said in known["table"] or ():
        run.say(f"      column {name}: {said}")
    kept = ("columns", "column_names", "label_name", "dtype", "bytes", "blocks", "block_bytes")
    return {
        "path": path,
        "settled": settled,
        "data": {
            "name": dataset.attrs.get("name") or _name(run.source),
            "source": run.source or "synthetic",
            "path": path,
            "rows": dataset.shape[0],
            "train_rows": _learned_from(dataset.shape[0] - settled["test_size"], run.settings),
            "test_rows": settled["test_size"],
            "classes": [str(label) for label in classes],
            "class_counts": counts,
            "shuffled": known["shuffled"],
            "table": known["table"],
            "sparse": known["sparse"],
            "projected_columns": settled["project"] if known["sparse"] else None,
        }
        | {name: known[name] for name in kept},
    }


def _dataset(run: Context) -> tuple[Dataset, str]:
    settings, place = run.settings, run.folder.data
    if (place / "zarr.json").is_file():
        try:  # killed after the last block and before the phase was recorded
            return open_dataset(place), str(place)
        except UnfinishedStoreError:
            run.log("data: going on with an unfinished store")
    common: dict[str, Any] = {
        "block_size": parse_bytes(settings.block_size),
        "random_state": settings.random_state,
        "client": run.client,
    }
    if run.source is None:
        return synthetic("higgs", settings.rows, dest=place, **common), str(place)
    if _is_store(run.source):
        return open_dataset(run.source), run.source
    asked = settings.to_dict()
    reading = ("label", "columns", "format", "delimiter", "header", "zero_based", "task", "nan")
    read = ingest(
        run.source,
        place,
        project=settings.project,
        sparse=settings.sparse,
        shuffle=settings.shuffle,
        check=lambda survey: _check_survey(survey, run),
        **{name: asked[name] for name in reading},
        **common,
    )
    return read, str(place)


def _check_survey(survey: Survey, run: Context) -> None:
    """Refuse rows that cannot be used before they are written."""
    name, settings = _name(run.source), run.settings
    _check_labels(run, survey.labels, None, name)
    # Rows are projected on their way to disk, or from sparse rows on it to the maps.
    narrowed = settings.project is not None or stays_sparse(survey, settings.sparse)
    if run.compares and survey.n_columns > WIDEST and not narrowed:
        raise DataError(
            f"{name} has {survey.n_columns:,} columns, too many for dense rows: pass project=250 "
            "to project them to 250."
        )


def _check_labels(run: Context, labels: Labels | None, n_rows: int | None, name: str) -> None:
    settings = run.settings
    if not run.compares:
        if labels is None and (
            settings.learner != "none" or settings.method in ("compressed-labels", "learned")
        ):
            map_alone = "--learner none for a feature map alone"
            if settings.learner == "none":
                map_alone = "--method compressed for a feature map that needs none"
            raise DataError(
                f"{name} has no labels to learn from: name the label column with --label, or pass "
                f"{map_alone}."
            )
        return
    if n_rows is not None and n_rows < FEWEST_ROWS:
        raise DataError(
            f"{name} has {n_rows} rows; give at least {FEWEST_ROWS}, so that some can be held out."
        )
    if labels is None:
        raise DataError(
            f"{name} has no labels, and a run compares models: name the label column with "
            "--label, or use rfcdask fit and transform, which need none."
        )


def _name(source: str | None) -> str:
    return "synthetic higgs" if source is None else source.rstrip("/").rpartition("/")[2]


def settle(settings: Settings, dataset: Dataset, *, compares: bool = True) -> dict[str, Any]:
    """Return the settings that depend on the data: fewer of everything when there are few rows.

    Parameters
    ----------
    settings : Settings
    dataset : Dataset
        All rows.
    compares : bool
        Whether maps are compared on a sample, for which a few rows are held out at least.
    """
    n, p = dataset.shape
    project = _projected_columns(settings, dataset)
    if dataset.sparse:
        p = project or p
    n_test = _held_out(settings.test_size, n, compares)
    n_train = _learned_from(n - n_test, settings)
    sizes, n_components = _sizes(settings, n_train, compares)
    sampled = min(COMPARE_ROWS, affordable := max(1000, SAMPLE_BYTES // (p * 4)))
    if not compares or settings.n_rows > COMPARE_ROWS:
        sampled = max(sampled, settings.n_rows + 1000)  # as many as the map looks at
    candidates = settings.n_candidates
    if isinstance(candidates, str):
        candidates = max(min(CANDIDATES, 10 * n_train), 2 * max(sizes))
    if max(sizes) > candidates:
        raise DataError(
            f"n_components={max(sizes)} features cannot be chosen from n_candidates={candidates}: "
            "raise n_candidates."
        )
    standardize = settings.standardize
    if standardize is True and dataset.sparse:
        dataset.standardize()  # says why there is no such thing
    method = settings.method
    if method == "auto":
        method = "compressed" if dataset.classes is None else "compressed-labels"
        method = "learned" if settings.learns_features else method
    epochs = settings.epochs
    if isinstance(epochs, str):
        epochs = default_epochs(n_train) if settings.learns_features else EPOCHS
    return {
        "test_size": n_test,
        "project": project,
        "sizes": sizes,
        "n_components": n_components,
        "n_candidates": int(candidates),
        "n_rows": min(settings.n_rows, n_train),
        "standardize": wants_standardizing(dataset) if standardize == "auto" else standardize,
        "compare_rows": _at_most(settings.compare_rows, n_train, sampled),
        "compare_test_rows": _at_most(
            settings.compare_test_rows, n_test, min(COMPARE_TEST_ROWS, affordable)
        ),
        "method": method,
        "methods": list(dict.fromkeys([*settings.methods, method])),
        "learner": _learner(settings, dataset),
        "epochs": epochs,
        "scoring": _scoring(settings, dataset, compares),
    }


def check_settled(run: Context) -> None:
    """Raise when the record of the data does not say what is settled from them."""
    if "data" not in run.done or not run.folder.mark:  # an older version may have settled less
        return
    settled = redacted(plain(settle(run.settings, run.columns, compares=run.compares)))
    if settled != run.product("data")["settled"]:
        record = run.folder.phase(1, "data")
        raise OtherRunError(f"{record} is not what this run wrote: {run.folder.how_to_begin_anew}.")


def _learned_from(n_train: int, settings: Settings) -> int:
    """Return the rows that are left to learn from when some are kept for probabilities."""
    return n_train - (min(n_train // 10, CALIBRATION_ROWS) if settings.calibration else 0)


def _scoring(settings: Settings, dataset: Dataset, compares: bool) -> str:
    numbers = dataset.classes is None
    for name in ("class_weight", "calibration"):
        if numbers and getattr(settings, name) is not None:
            raise DataError(f"{name} is for classes, and the labels are numbers: leave it out.")
    learner, loss = _learner(settings, dataset), settings.loss
    loss = "log_loss" if loss == "auto" and settings.learns_features else loss
    logistic = learner == "logistic" or (learner == "sgd" and loss == "log_loss")
    without = "" if logistic or settings.calibration else f"models of learner={learner}"
    try:
        return check_scoring(
            None if settings.scoring == "auto" else settings.scoring,
            numbers=numbers,
            without_probabilities="ridge models of a comparison" if compares else without,
        )
    except ValueError as error:
        raise DataError(str(error)) from None


def _projected_columns(settings: Settings, dataset: Dataset) -> int | None:
    """Return to how many columns rows are projected, on disk or, sparse ones, for the maps."""
    wide = dataset.sparse and dataset.shape[1] > WIDEST_SPARSE and settings.method != "none"
    return PROJECTED if wide and settings.project is None else settings.project


def _held_out(wanted: float | str | None, n: int, compares: bool) -> int:
    if wanted is None:
        if compares:
            raise DataError("test_size=none leaves no rows to compare maps on.")
        return 0
    if wanted == "auto":
        n_test = min(n // 5, TEST_ROWS)
    else:
        n_test = int(wanted) if float(wanted) >= 1 else int(np.ceil(float(wanted) * n))
    if n_test == 0:
        raise DataError(f"test_size={wanted} holds out none of {n} rows: give their number.")
    if n_test >= n - (FEWEST_ROWS // 2 if compares else 0):
        raise DataError(f"test_size={wanted} leaves too few of {n} rows to learn from.")
    return n_test


def _sizes(settings: Settings, n_train: int, compares: bool) -> tuple[list[int], int]:
    """Return the numbers of features to compare, and that of the final model."""
    wanted, sizes = settings.n_components, settings.sizes
    if isinstance(sizes, str):
        sizes = [size for size in SIZES if size <= n_train // 4] or [max(2, n_train // 4)]
        if not isinstance(wanted, str):
            sizes = [size for size in sizes if size < wanted]
    n_components = max(sizes) if isinstance(wanted, str) else wanted
    return (sorted({*sizes, n_components}) if compares else [n_components]), n_components


def _learner(settings: Settings, dataset: Dataset) -> str:
    learner, numbers = settings.learner, dataset.classes is None
    if learner == "auto":
        of_classes = "logistic" if settings.learns_features else "svm"
        learner = "sgd" if numbers or settings.loss != "auto" else of_classes
    if numbers and learner in ("svm", "logistic"):
        raise DataError(
            f"learner={learner} is for classes, and the labels are numbers: use ridge or sgd."
        )
    known = REGRESSOR_LOSSES if numbers else {name for name, _ in CLASSIFIER_LOSSES}
    if settings.loss not in ("auto", *known):
        what = "classes" if numbers else "numbers"
        said = ", ".join(sorted(known))
        raise DataError(
            f"loss={settings.loss} is for {what}, which the labels are not: use {said}."
        )
    return learner


def _at_most(wanted: int | str, there: int, default: int) -> int:
    return min(there, default if isinstance(wanted, str) else wanted)


def make_plan(run: Context) -> dict[str, Any]:
    """Plan choosing, comparing and training; raise where memory will not suffice."""
    used, size = run.used, run.n_components
    maps, trains = used["method"] != "none", used["learner"] != "none" or run.learns_features
    # In a run all selections are part of the comparison.
    steps = {"fit": maps and not run.compares, "compare": run.compares, "train": trains}
    candidates = not run.compares and maps and not METHODS[used["method"]].has_candidates
    compared = {
        "methods": [name for name in used["methods"] if name in METHODS],
        "sizes": used["sizes"],
        "compare_rows": used["compare_rows"],
        "test_rows": used["compare_test_rows"],
        "error_rows": ERROR_ROWS,
    }
    found = plan(
        run.train,
        method=used["method"] if maps else "random",
        n_components=size,
        n_candidates=size if candidates else used["n_candidates"],
        n_rows=used["n_rows"],
        refine=used["refine"],
        epochs=1 if used["learner"] == "ridge" else used["epochs"],
        persist=False,
        steps=[step for step, wanted in steps.items() if wanted],
        client=run.client,
        probe=run.compares,
        **(compared if run.compares else {}),
    )
    if not run.ignore_plan:
        found.check()
    return found.to_dict()


def draw_sample(run: Context) -> dict[str, Any]:
    """Fetch rows to learn from, and rows held out where maps are compared, and keep them."""
    X, y = _drawn(run, run.train, run.used["compare_rows"], "train sample")
    # Neighbours on disk may be alike: in random order any beginning of the rows is a sample.
    order = stream(run.settings.random_state, "order").permutation(len(X))
    test: Any = None
    labels: Any = None
    if run.compares:
        test, labels = _drawn(run, run.test, run.used["compare_test_rows"], "test sample")
    run.keep_sample(Split(X[order], None if y is None else y[order], test, labels))
    return {"rows": len(X), "test_rows": 0 if labels is None else len(labels)}


def _drawn(run: Context, part: Any, size: int, purpose: str) -> tuple[Any, Any]:
    rows = np.sort(draw_rows(part.shape[0], size, stream(run.settings.random_state, purpose)))
    labels = None if part.y is None else gather(part.y, rows, run.client)
    return to_dense(gather_finite(part.X, rows, run.client)), labels


def settle_kernel(run: Context) -> dict[str, Any]:
    """Find the kernel's width by its rule, or by cross-validation on training rows."""
    rule, name = run.settings.gamma, run.settings.kernel
    if rule == "tune":
        return {"name": name, "gamma": _tuned_gamma(run), "rule": "tuned"}
    rows = run.sample.X[:GAMMA_ROWS]
    try:
        gamma = resolve_gamma(rule, get_kernel(name), rows)
    except ValueError:
        if rule != "median":
            raise
        # Half of all pairs are equal, as in tables of few switches; their spread still tells.
        rule, gamma = "scale", resolve_gamma("scale", get_kernel(name), rows)
    return {"name": name, "gamma": gamma, "rule": rule if isinstance(rule, str) else "given"}


def _tuned_gamma(run: Context) -> float:
    judge = run.judge
    without_proba = judge.scoring not in OF_PROBABILITIES
    n_rows = min(TUNE_ROWS, len(run.sample.X))
    found = tune(
        run.sample.X[:n_rows],
        run.sample.y[:n_rows],
        kernel=run.settings.kernel,
        n_rows=n_rows,
        strategy="halving",
        scoring=judge.scoring if without_proba else None,
        class_weight=judge.class_weight,
        random_state=run.settings.random_state,
        client=run.client,
    )
    return float(found.gamma)


def about_model(run: Context, data: Dataset) -> dict[str, Any]:
    """Return what a model remembers of how it was made and of the data it was fitted on."""
    return {
        "command": "rfcdask run" if run.compares else "rfcdask fit",
        "seed": run.settings.random_state,
        "test_size": run.used["test_size"] or None,
        "data": training_data_record(data, run.source or "synthetic"),
    }
