"""The kinds of files that are read: how good ones are made, and what is right of changed ones."""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import lzma
import os
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mutations import PACKERS, Files

import rfcdask as rf
from rfcdask.data.sources import opened_source
from rfcdask.data.sources.base import SourceOptions

_PACKAGE = Path(rf.__file__).parent


class WrongError(AssertionError):
    """An input was read, but not rightly."""


def is_ours(error: BaseException) -> bool:
    """Whether an error was raised by the package, rather than by a library that it called."""
    if not isinstance(error, ValueError | FileNotFoundError | FileExistsError):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    # What numpy and Python raise in C has the line of the call as its last one.
    return Path(last.filename).is_relative_to(_PACKAGE) and str(last.line).startswith("raise")


@dataclass
class Format:
    """One kind of input.

    Parameters
    ----------
    make : callable
        Writes good files into a folder and returns several folders' worth of them.
    read : callable
        Reads the folder; returns arrays (or None), raises `WrongError` where they cannot be right.
    exact : bool
        Whether checksums bind the values, so that only those of the good file are right.
    """

    make: Callable[[Path], list[Files]]
    read: Callable[[Path, random.Random], Any]
    exact: bool = False
    goods: list[Files] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


def rows_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Return a few rows of several kinds of numbers."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(24, 4))
    X[:, 1] = np.rint(X[:, 1] * 10)
    X[::3, 2] = 0
    return X, np.arange(24) % 3


def read_source(path: str, draw: random.Random, **options: Any) -> tuple[Any, Any]:
    """Read all rows of a source as `ingest` does; a small share goes through `ingest` itself."""
    if draw.random() < 0.01:
        target = f"memory://fuzz-{os.getpid()}.zarr"
        rf.ingest(path, target, overwrite=True, **options)
    with opened_source(path, options.get("format"), options.get("label")) as source:
        survey = source.survey(SourceOptions(label=options.get("label"), progress=False))
        batches = list(source.read(0, survey.n_rows))
    X = np.concatenate([b.X.toarray() if hasattr(b.X, "toarray") else b.X for b in batches])
    y = None if survey.labels is None else np.concatenate([b.y for b in batches])
    if X.shape != (survey.n_rows, survey.n_columns) or (y is not None and len(y) != len(X)):
        raise WrongError(
            f"{X.shape} rows where {survey.n_rows}, {survey.n_columns} were found first"
        )
    if not np.isfinite(X.astype(np.float64)).all():
        raise WrongError("a value that is not finite was let through")
    return X, y


def _only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def unpacked(path: Path) -> bytes:
    """Return the text of a file as Python's own modules see it."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rb") as file:
        return bytes(file.read())


def packed(name: str, text: bytes) -> list[Files]:
    """Return a text plain and in every packing."""
    return [{name + ending: pack(text)} for ending, pack in PACKERS.items()]


def make_svmlight(folder: Path) -> list[Files]:
    """Write rows with labels, comments and query numbers."""
    X, y = rows_and_labels()
    lines = [
        " ".join([str(k), *(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v)])
        for row, k in zip(X.tolist(), y.tolist(), strict=True)
    ]
    lines[3] = "# a comment"
    lines[5] = "1 qid:3 2:0.5 # more"
    return packed("a.svm", ("\n".join(lines) + "\n").encode())


def read_svmlight(folder: Path, draw: random.Random) -> None:
    """Compare with scikit-learn's reader where that takes the text too."""
    from sklearn.datasets import load_svmlight_file

    path = _only(folder)
    X, y = read_source(str(path), draw)
    try:
        peer, labels = load_svmlight_file(io.BytesIO(unpacked(path)))[:2]
    except Exception:
        return
    wide = max(X.shape[1], peer.shape[1])
    peer.resize(peer.shape[0], wide)
    X = np.pad(X, ((0, 0), (0, wide - X.shape[1])))
    if not (np.array_equal(X, peer.toarray()) and np.array_equal(y, labels)):
        raise WrongError("scikit-learn reads other rows")


LABEL = 4
TEXTS = ["a b", "c,d", "e"]


def make_csv(folder: Path) -> list[Files]:
    """Write tables with and without a header, with several delimiters and text labels."""
    X, y = rows_and_labels()
    found = []
    ways: list[tuple[str, bool, Any]] = [(",", True, y), ("\t", False, y), (";", True, TEXTS)]
    for mark, names, labels in ways:
        head = [mark.join(["p", "q", "r", "s", "label"])] if names else []
        body = [
            mark.join([*map(repr, row), f'"{labels[k]}"' if names else str(k)])
            for row, k in zip(X.tolist(), y.tolist(), strict=True)
        ]
        found += packed("a.csv", ("\n".join([*head, *body]) + "\n").encode())
    return found


def read_csv(folder: Path, draw: random.Random) -> None:
    """Compare with Python's csv module where its fields are all numbers."""
    from rfcdask.data.sources.dialect import sniff

    path = _only(folder)
    X, _ = read_source(str(path), draw, label=LABEL)
    dialect, _ = sniff(str(path))
    text = unpacked(path).decode("utf-8-sig", "replace")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.delimiter)
    fields = [row for row in reader if row][int(dialect.header) :]
    try:
        peer = [[float(v) for j, v in enumerate(row) if j != LABEL] for row in fields]
    except ValueError:
        return
    if X.tolist() != peer:
        raise WrongError("Python's csv module reads other rows")


def make_npy(folder: Path) -> list[Files]:
    """Write arrays of several types."""
    X, _ = rows_and_labels()
    found = []
    for kind in ("f8", "f4", ">f8", "i2", "u1", "?"):
        made = io.BytesIO()
        np.save(made, np.asfortranarray(X.astype(kind)) if kind == "f4" else X.astype(kind))
        found.append({"a.npy": made.getvalue()})
    return found


def read_npy(folder: Path, draw: random.Random) -> None:
    """Compare with numpy."""
    path = _only(folder)
    X, _ = read_source(str(path), draw, label=False)
    if not np.array_equal(X, np.load(path, allow_pickle=False)):
        raise WrongError("numpy reads other rows")


def make_npz(folder: Path) -> list[Files]:
    """Write archives, packed or not, with numbers or text as labels."""
    X, y = rows_and_labels()
    found = []
    for save in (np.savez, np.savez_compressed):
        for labels in (y, np.array(["one", "two", "three"])[y], y.astype(float)):
            made = io.BytesIO()
            save(made, X=X, y=labels)
            found.append({"a.npz": made.getvalue()})
    return found


def read_npz(folder: Path, draw: random.Random) -> None:
    """Compare with numpy."""
    path = _only(folder)
    before = set(folder.parent.iterdir())
    X, _ = read_source(str(path), draw)
    if set(folder.parent.iterdir()) != before:
        raise WrongError("a file was written beside the folder")
    with np.load(path, allow_pickle=False) as peer:
        name = next((n for n in ("X", "x", "data", "X_train") if n in peer), peer.files[0])
        if not np.array_equal(X, peer[name]):
            raise WrongError("numpy reads other rows")


def make_parquet(folder: Path) -> list[Files]:
    """Write tables with several encodings."""
    import pyarrow as pa
    from pyarrow import parquet

    X, y = rows_and_labels()
    columns = {name: X[:, j] for j, name in enumerate("pqrs")}
    found = []
    for labels in (y, np.array(["one", "two", "three"])[y]):
        for codec in ("none", "snappy", "zstd", "gzip"):
            made = io.BytesIO()
            table = pa.table(columns | {"label": labels})
            parquet.write_table(table, made, compression=codec, row_group_size=10)
            found.append({"a.parquet": made.getvalue()})
    return found


def read_parquet(folder: Path, draw: random.Random) -> None:
    """Read rows; the format has no checksum, so values may be others."""
    read_source(str(_only(folder)), draw)


def folder_files(folder: Path) -> Files:
    """Return every file below a folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def make_zarr(folder: Path) -> list[Files]:
    """Write groups and arrays of zarr formats 2 and 3, plain, sharded, with text labels."""
    import zarr

    X, y = rows_and_labels()
    for number in (2, 3):
        for labels in (y, np.array(["one", "two", "three"])[y]):
            group = zarr.open_group(
                folder / f"{number}{labels.dtype.kind}" / "a.zarr", mode="w", zarr_format=number
            )
            group.create_array("X", data=X, chunks=(10, 4))
            group.create_array("y", data=labels, chunks=(24,))
    group = zarr.open_group(folder / "s" / "a.zarr", mode="w")
    group.create_array("X", data=X, chunks=(5, 4), shards=(10, 4))
    group.create_array("y", data=y, chunks=(24,))
    return [folder_files(item) for item in sorted(folder.iterdir())]


def read_zarr(folder: Path, draw: random.Random) -> None:
    """Read rows; chunks have no checksum, so values may be others."""
    read_source(str(folder / "a.zarr"), draw)


def make_store(folder: Path) -> list[Files]:
    """Write stores of the package."""
    X, y = rows_and_labels()
    options: dict[str, Any] = {"progress": False, "block_size": 10 * 32}
    rf.ingest((X, y), folder / "a" / "a.zarr", **options)
    names = np.array(["one", "two", "three"])[y]
    rf.ingest((X, names), folder / "b" / "a.zarr", compressor="lz4", **options)
    rf.ingest((X.astype("f4"), None), folder / "c" / "a.zarr", project=3, random_state=0, **options)
    return [folder_files(item) for item in sorted(folder.iterdir())]


def read_store(folder: Path, draw: random.Random) -> Any:
    """Open a store and read all of it."""
    dataset = rf.open_dataset(folder / "a.zarr")
    reader = dataset.reader
    X = np.concatenate([reader.block(k) for k in range(len(reader.sizes))])
    if reader.label_dtype is None:
        return [X]
    return [X, np.concatenate([reader.labels(k) for k in range(len(reader.sizes))])]


def make_model(folder: Path) -> list[Files]:
    """Save models and a pipeline."""
    from sklearn.pipeline import make_pipeline

    X, y = rows_and_labels()
    features = rf.CompressedFeatures(4, n_candidates=12, n_rows=24, refine=2, random_state=0)
    made: list[Any] = [features.fit(X), rf.Ridge().fit(X, y * 1.0), rf.PCA(2).fit(X)]
    names = np.array(["one", "two", "three"])[y]
    made.append(make_pipeline(rf.RandomFeatures(6, random_state=0), rf.RidgeClassifier()))
    made[-1].fit(X, names)
    for number, model in enumerate(made):
        rf.save(model, folder / str(number) / "model")
    return [folder_files(item) for item in sorted(folder.iterdir())]


def read_model(folder: Path, draw: random.Random) -> Any:
    """Load a model and describe it; return what was learned."""
    from rfcdask.persist.models import describe

    describe(folder / "model")
    model = rf.load(folder / "model")
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    return [
        [type(step).__name__, *sorted((k, v) for k, v in vars(step).items() if _is_learned(k, v))]
        for step in steps
    ]


def _is_learned(name: str, value: Any) -> bool:
    return name.endswith("_") and isinstance(value, np.ndarray)


def make_run(folder: Path) -> list[Files]:
    """Finish a small run, and leave beside it what an unfinished one has."""
    from rfcdask.linear.sgd.step import TrainingState
    from rfcdask.linear.sgd.training import Checkpoint
    from rfcdask.pipeline import run_job
    from rfcdask.pipeline.folder import RunFolder

    X, y = rows_and_labels()
    few = {"rows": 400, "sizes": [4], "n_candidates": 12, "n_rows": 40, "refine": 0}
    few |= {"methods": ["random"], "method": "random"}
    out = folder / "run"
    run_job(None, out, settings=few, scheduler="threads", progress=False)
    mark = np.array(RunFolder.at(out).mark)
    np.savez(out / "sample.npz", run=mark, X=X, y=y, test=X, labels=y)
    history = [{"epoch": 1.0, "loss": 0.5}]
    Checkpoint(out / "training.npz", {"seed": 1}).save(TrainingState.zero(4, 1), 1, 2, history)
    files = folder_files(folder)
    return [
        {
            k: v
            for k, v in files.items()
            if "data.zarr" not in k
            and "run.log" not in k
            and "model/" not in k
            and not k.endswith((".html", ".lock"))
        }
    ]


def read_run(folder: Path, draw: random.Random) -> None:
    """Read what going on with a run reads: its records, its sample, its checkpoint, its results."""
    from rfcdask.linear.sgd.step import TrainingConfig
    from rfcdask.linear.sgd.training import Checkpoint
    from rfcdask.pipeline.folder import RunFolder, read_results
    from rfcdask.pipeline.phases import PHASES, Context
    from rfcdask.pipeline.run import _go_on
    from rfcdask.pipeline.settings import Settings

    run = RunFolder.at(folder / "run")
    config = TrainingConfig(0, 1, alpha=1.0, eta0=1.0, n_steps=0.0, batch_size=1, seed=1)
    checkpoint = Checkpoint(run.checkpoint, {"seed": 1})
    parts: list[Callable[[], Any]] = [lambda: checkpoint.load(config, 5)]
    if run.is_finished:
        parts.append(lambda: read_results(run.results))
    if run.is_run:
        parts.append(lambda: _go_on(run, None, {}))
    context = Context(run, Settings(), None, None, lambda line: None)
    parts.append(lambda: context.load_finished([phase.name for phase in PHASES]))
    parts.append(lambda: context.sample)
    errors = [error for part in parts if (error := _error_of(part)) is not None]
    if errors:
        raise next((e for e in errors if not is_ours(e)), errors[0])


def _error_of(part: Callable[[], Any]) -> Exception | None:
    try:
        part()
    except Exception as error:
        return error
    return None


def make_recipe(folder: Path) -> list[Files]:
    """Take the recipes of the package."""
    from rfcdask.data.datasets import recipe_folder

    return [{path.name: path.read_bytes()} for path in sorted(recipe_folder().glob("*.toml"))]


def read_recipe(folder: Path, draw: random.Random) -> None:
    """Read a recipe."""
    from rfcdask.data import datasets

    real, datasets.recipe_folder = datasets.recipe_folder, lambda: folder
    try:
        datasets.load_recipe(_only(folder).stem)
    finally:
        datasets.recipe_folder = real


def make_config(folder: Path) -> list[Files]:
    """Write settings."""
    text = 'random_state = 3\nkernel = "laplacian"\n[run]\nsizes = [10, 20]\ngamma = 0.5\n'
    text += 'refine = 0\nmethods = ["random", "jl"]\nblock_size = "4MB"\n'
    text += "standardize = true\ntest_size = 0.25\n"
    return [{"a.toml": text.encode()}]


def read_config(folder: Path, draw: random.Random) -> None:
    """Read settings from a file, and one of them as a pair."""
    from rfcdask.pipeline.settings import Settings, SettingsError, from_pairs, from_toml

    text = (folder / "a.toml").read_bytes().decode("utf-8", "replace")
    with contextlib.suppress(SettingsError):
        from_pairs([draw.choice(text.splitlines() or [""])])
    Settings(**from_toml(folder / "a.toml"))


FORMATS = {
    "svmlight": Format(make_svmlight, read_svmlight),
    "csv": Format(make_csv, read_csv),
    "npy": Format(make_npy, read_npy),
    "npz": Format(make_npz, read_npz),
    "parquet": Format(make_parquet, read_parquet),
    "zarr": Format(make_zarr, read_zarr),
    "store": Format(make_store, read_store, exact=True),
    "model": Format(make_model, read_model, exact=True),
    "run": Format(make_run, read_run),
    "recipe": Format(make_recipe, read_recipe),
    "config": Format(make_config, read_config),
}
