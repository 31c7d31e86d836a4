"""The phases of work that faults strike: small data, about twenty blocks, results to compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rfcdask as rf
from rfcdask.data.sample import gather
from rfcdask.linear import write_zarr
from rfcdask.pipeline import comparable, run_job

ROWS, COLUMNS, BLOCK_ROWS = 4000, 6, 200
BLOCK_SIZE = BLOCK_ROWS * COLUMNS * 8
RUN = {
    "sizes": [8],
    "n_candidates": 80,
    "n_rows": 300,
    "refine": 10,
    "gamma": 0.2,
    "methods": ["random", "compressed"],
    "method": "compressed",
    "learner": "svm",
    "epochs": 3,
    "block_size": BLOCK_SIZE,
}


def make_data(folder: Path) -> Path:
    """Write rows as text, as a store, and models that were learned from them."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(ROWS, COLUMNS))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    lines = (
        f"{label} " + " ".join(f"{j}:{value!r}" for j, value in enumerate(row, 1))
        for label, row in zip(y.tolist(), X.tolist(), strict=True)
    )
    (folder / "rows.svm").write_text("\n".join(lines) + "\n")
    store = rf.ingest((X, y), folder / "rows.zarr", block_size=BLOCK_SIZE)
    rf.save(_map().fit(store.X), folder / "map")
    rf.save(rf.RidgeClassifier().fit(store.X, store.y), folder / "ridge")
    return folder


def _map() -> Any:
    return rf.RandomFeatures(12, gamma=0.2, random_state=0)


def _store(data: Path) -> Any:
    return rf.open_dataset(data / "rows.zarr")


def digest(value: Any) -> str:
    """Return what two equal results have in common, to the last bit."""
    if isinstance(value, Path):
        files = sorted(path for path in value.rglob("*") if path.is_file())
        return digest([(str(path.relative_to(value)), path.read_bytes()) for path in files])
    if isinstance(value, np.ndarray):
        value = (value.dtype.str, value.shape, value.tobytes())
    return hashlib.sha256(repr(value).encode()).hexdigest()


def ingest(client: Any, data: Path, place: Path, shuffle: bool = False) -> str:
    rf.ingest(
        data / "rows.svm",
        place / "a.zarr",
        block_size=BLOCK_SIZE,
        shuffle=shuffle,
        random_state=7 if shuffle else None,
        client=client,
    )
    return digest(place / "a.zarr")


def shuffle(client: Any, data: Path, place: Path) -> str:
    return ingest(client, data, place, shuffle=True)


def gather_rows(client: Any, data: Path, place: Path) -> str:
    rows = np.random.default_rng(1).permutation(ROWS)[:500]
    return digest(gather(_store(data).X, rows, client))


def select(client: Any, data: Path, place: Path) -> str:
    X = _store(data).X * 1.0  # any lazy array, not the store's own
    features = rf.CompressedFeatures(
        8, gamma=0.2, n_candidates=100, n_rows=400, refine=10, random_state=0
    ).fit(X, client=client)
    return _saved(features, place)


def write(client: Any, data: Path, place: Path) -> str:
    write_zarr(rf.load(data / "map").transform(_store(data).X), place / "z.zarr", client=client)
    return digest(place / "z.zarr")


def sgd(client: Any, data: Path, place: Path) -> str:
    store = _store(data)
    model = rf.SGDClassifier(
        epochs=3,
        random_state=1,
        persist=False,
        checkpoint=place / "sgd.npz",
        checkpoint_every=4,
    ).fit(rf.load(data / "map").transform(store.X), store.y, client=client)
    return _saved(model.set_params(checkpoint=None), place)


def ridge(client: Any, data: Path, place: Path) -> str:
    store = _store(data)
    Z = rf.load(data / "map").transform(store.X)
    return _saved(rf.RidgeClassifier().fit(Z, store.y, client=client), place)


def pca(client: Any, data: Path, place: Path) -> str:
    Z = rf.load(data / "map").transform(_store(data).X)
    return _saved(rf.PCA(3).fit(Z, client=client), place)


def _saved(model: Any, place: Path) -> str:
    rf.save(model, place / "model")
    return digest(place / "model")


def score(client: Any, data: Path, place: Path) -> str:
    store = _store(data)
    return digest(rf.load(data / "ridge").score(store.X, store.y, client=client))


def compare(client: Any, data: Path, place: Path) -> str:
    store = _store(data)
    table = rf.compare(
        store.X,
        store.y,
        ("random", "compressed"),
        n_components=8,
        gamma=0.2,
        n_candidates=80,
        n_rows=2000,
        n_test=300,
        random_state=0,
        client=client,
    )
    return digest(
        [(row["method"], row["kernel_error"], row["accuracy"]) for row in table.rows],
    )


def run(client: Any, data: Path, place: Path) -> str:
    folder = place / "run"
    resume = (folder / "run.json").exists()
    results = run_job(
        data / "rows.zarr",
        folder,
        settings=None if resume else RUN,
        scheduler=client,
        resume=resume,
    )
    return digest(comparable(results)) + digest(rf.load(folder / "model")[-1].coef_)


@dataclass(frozen=True)
class Phase:
    """A piece of work, called again with the same arguments to go on after an error."""

    name: str
    work: Callable[[Any, Path, Path], str]
    writes: bool = True


PHASES = (
    Phase("ingest", ingest),
    Phase("shuffle", shuffle),
    Phase("gather", gather_rows, writes=False),
    Phase("select", select),
    Phase("write", write),
    Phase("SGD", sgd),
    Phase("ridge", ridge),
    Phase("PCA", pca),
    Phase("score", score, writes=False),
    Phase("compare", compare, writes=False),
    Phase("run", run),
)
