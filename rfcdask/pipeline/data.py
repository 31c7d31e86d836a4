"""The first phase: rows on disk, and what follows from their number and kind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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
from rfcdask.data.columns import names_in_file
from rfcdask.data.location import Location, is_url
from rfcdask.data.sources.base import Survey
from rfcdask.data.sources.detect import detect_format, expand, open_zarr, opened_source
from rfcdask.data.sources.labels import Labels
from rfcdask.linear.standardize import wants_standardizing
from rfcdask.pipeline.context import Context
from rfcdask.pipeline.settings import Settings

SIZES = (50, 100, 300)
CANDIDATES = 5000
COMPARE_ROWS = 50_000
TEST_ROWS = 200_000
COMPARE_TEST_ROWS = 50_000
SAMPLE_BYTES = 64 * 2**20
"""What the rows to learn from, and those held out, may each take in the comparison."""
WIDEST = 10_000
"""More columns than this are not written as dense rows."""
FEWEST_ROWS = 20


def identity(source: str | None, settings: Settings) -> Any:
    """Return a JSON value that changes when the data do."""
    if source is None:
        return ["synthetic higgs", settings.rows, settings.seed]
    if _is_store(source):
        reader: Any = open_dataset(source).reader
        return ["store", str(reader.location), reader.fingerprint]
    with opened_source(source, None, settings.label) as rows:
        return rows.identity()


def absolute(source: str | os.PathLike[str] | None) -> str | None:
    """Return a path that means the same from any directory."""
    if source is None:
        return None
    text = os.fspath(source)
    return text if is_url(text) else str(Path(text).expanduser().absolute())


def _is_store(source: str) -> bool:
    paths = expand(source)
    if len(paths) != 1 or detect_format(paths[0]) != "zarr":
        return False
    return "complete" in open_zarr(Location.of(paths[0])).attrs


def prepare_data(run: Context) -> dict[str, Any]:
    """Make, ingest or open the data set, and settle what was left open."""
    dataset, path = _dataset(run)
    _require_classes(dataset, run.source or "the data")
    settled = settle(run.settings, dataset)
    counts = list(dataset.class_counts(client=run.client).values())
    block = max(dataset.reader.sizes)
    row_bytes = dataset.shape[1] * dataset.reader.dtype.itemsize
    return {
        "path": path,
        "settled": settled,
        "data": {
            "name": dataset.attrs.get("name") or _name(run.source),
            "source": run.source or "synthetic",
            "path": path,
            "rows": dataset.shape[0],
            "train_rows": dataset.shape[0] - settled["test_size"],
            "test_rows": settled["test_size"],
            "columns": dataset.shape[1],
            "column_names": names_in_file(dataset),
            "label_name": dataset.attrs.get("label_name"),
            "classes": [str(label) for label in _classes(dataset)],
            "class_counts": counts,
            "dtype": str(dataset.reader.dtype),
            "bytes": dataset.shape[0] * row_bytes,
            "blocks": len(dataset.reader.sizes),
            "block_bytes": block * row_bytes,
            "shuffled": bool(dataset.attrs.get("shuffled")),
        },
    }


def _dataset(run: Context) -> tuple[Dataset, str]:
    settings = run.settings
    if (run.folder.data / "zarr.json").is_file():
        try:  # killed after the last block and before the phase was recorded
            return open_dataset(run.folder.data), str(run.folder.data)
        except UnfinishedStoreError:
            run.log("data: going on with an unfinished store")
    common: dict[str, Any] = {
        "block_size": parse_bytes(settings.block_size),
        "client": run.client,
    }
    if run.source is None:
        made = synthetic(
            "higgs",
            settings.rows,
            dest=run.folder.data,
            random_state=settings.seed,
            **common,
        )
        return made, str(run.folder.data)
    if _is_store(run.source):
        return open_dataset(run.source), run.source
    read = ingest(
        run.source,
        run.folder.data,
        label=settings.label,
        task=settings.task,
        nan=settings.nan,
        project=settings.project,
        shuffle=settings.shuffle,
        random_state=settings.seed,
        check=lambda survey: _check_survey(survey, run),
        **common,
    )
    return read, str(run.folder.data)


def _check_survey(survey: Survey, run: Context) -> None:
    _require_label_classes(survey.labels, survey.n_rows, _name(run.source))
    if survey.n_columns > WIDEST and run.settings.project is None:
        raise DataError(
            f"{_name(run.source)} has {survey.n_columns:,} columns, too many for dense rows: pass "
            "--set project=250 to project them to 250."
        )


def _require_classes(dataset: Dataset, name: str) -> None:
    if dataset.shape[0] < FEWEST_ROWS:
        raise DataError(
            f"{name} has {dataset.shape[0]} rows; give at least {FEWEST_ROWS}, so that some can be "
            "held out."
        )
    if dataset.reader.label_dtype is None:
        _require_label_classes(None, dataset.shape[0], name)
    if dataset.classes is None:
        _require_label_classes(Labels("<f8", None), dataset.shape[0], name)


def _require_label_classes(labels: Labels | None, n_rows: int, name: str) -> None:
    if labels is None:
        raise DataError(
            f"{name} has no labels, and a run compares classifiers: name the label column with "
            "--label, or use rfcdask fit and transform, which need none."
        )
    if labels.classes is None:
        raise DataError(
            f"{name} has numbers as targets, not classes, and a run compares classifiers: use "
            "rf.SGDRegressor or rf.Ridge on rf.CompressedFeatures, or pass --set "
            "task=classification if each number is a class."
        )


def _classes(dataset: Dataset) -> list[Any]:
    known = dataset.classes
    assert known is not None  # checked before
    found: list[Any] = known.tolist()
    return found


def _name(source: str | None) -> str:
    return "synthetic higgs" if source is None else source.rstrip("/").rpartition("/")[2]


def settle(settings: Settings, dataset: Dataset) -> dict[str, Any]:
    """Return the settings that depend on the data: fewer of everything when there are few rows."""
    n, p = dataset.shape
    test = settings.test_size
    if test == "auto":
        n_test = min(n // 5, TEST_ROWS)
    else:
        n_test = int(test) if float(test) >= 1 else int(np.ceil(float(test) * n))
    if not 0 < n_test < n - FEWEST_ROWS // 2:
        raise DataError(f"test_size={test} leaves too few of {n} rows to learn from.")
    n_train = n - n_test
    affordable = max(1000, SAMPLE_BYTES // (p * 4))
    sizes = settings.sizes
    if isinstance(sizes, str):
        sizes = [size for size in SIZES if size <= n_train // 4] or [max(2, n_train // 4)]
    candidates = settings.n_candidates
    if isinstance(candidates, str):
        candidates = max(min(CANDIDATES, 10 * n_train), 2 * max(sizes))
    if max(sizes) > candidates:
        raise DataError(
            f"sizes={max(sizes)} features cannot be chosen from n_candidates={candidates}: pass "
            "--set n_candidates with a larger number."
        )
    standardize = settings.standardize
    return {
        "test_size": n_test,
        "sizes": list(sizes),
        "n_candidates": int(candidates),
        "n_rows": min(settings.n_rows, n_train),
        "standardize": wants_standardizing(dataset) if standardize == "auto" else standardize,
        "compare_rows": _at_most(settings.compare_rows, n_train, min(COMPARE_ROWS, affordable)),
        "compare_test_rows": _at_most(
            settings.compare_test_rows, n_test, min(COMPARE_TEST_ROWS, affordable)
        ),
    }


def _at_most(wish: int | str, there: int, default: int) -> int:
    return min(there, default if isinstance(wish, str) else wish)
