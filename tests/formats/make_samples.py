"""Write one small sample of each format as one archive, to be opened by every later version.

Run in a checkout of the version whose formats shall stay readable:

    python make_samples.py NAME.tar.xz
    python make_samples.py NAME.tar.xz --sparse

The second writes a store of sparse rows alone.
It uses nothing but public names and commands. Beside the files, ``expected.npz`` keeps what the
saved models gave for the same rows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.pipeline import make_pipeline

import rfcdask as rf

ROWS = 40
"""Of how many rows the answers are kept."""
RUN = {
    "rows": 400,
    "sizes": "4,8",
    "n_candidates": 60,
    "n_rows": 100,
    "refine": 5,
    "gamma": 0.5,
    "methods": "random,compressed-labels,nystroem",
    "epochs": 1,
    "block_size": "8kB",
}


def write_table(path: Path) -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(600, 3)).round(3)
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    lines = [",".join([*map(str, row), label]) for row, label in zip(X.tolist(), y, strict=True)]
    path.write_text("height,width,depth,sign\n" + "\n".join(lines) + "\n", encoding="utf-8")


def save_models(folder: Path, store: rf.Dataset) -> dict[str, np.ndarray]:
    X, y = store.X.compute(), store.y.compute()
    t = X @ [1.0, -2.0, 0.5]
    options = {"gamma": 0.5, "random_state": 0}
    few = {"n_candidates": 60, "n_rows": 100} | options
    maps = {
        "random": rf.RandomFeatures(8, **options),
        "compressed": rf.CompressedFeatures(8, refine=5, **few),
        "jl": rf.JLFeatures(8, n_candidates=60, **options),
        "nystroem": rf.NystroemFeatures(8, **options),
        "standardizer": rf.Standardizer(),
        "pca": rf.PCA(2),
    }
    labelled = {
        "sgd": (rf.SGDClassifier(epochs=1, random_state=0), y),
        "sgd-regressor": (rf.SGDRegressor(epochs=1, random_state=0), t),
        "ridge": (rf.Ridge(), t),
        "ridge-classifier": (rf.RidgeClassifier(), y),
        "pipeline": (
            make_pipeline(rf.Standardizer(), rf.CompressedFeatures(8, refine=5, **few), rf.Ridge()),
            t,
        ),
    }
    expected = {}
    for name, feature_map in maps.items():
        rf.save(feature_map.fit(X), folder / name)
        expected[name] = feature_map.transform(X[:ROWS])
    for name, (model, wanted) in labelled.items():
        rf.save(model.fit(X, wanted), folder / name)
        expected[name] = model.predict(X[:ROWS])
    return {name: np.asarray(value) for name, value in expected.items()}


def run_command(out: str) -> list[str]:
    settings = [part for name, value in RUN.items() for part in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "rfcdask", "run", "--out", out, *settings]


def interrupt_run(out: str) -> None:
    """Kill a run as soon as its features are chosen."""
    process = subprocess.Popen(run_command(out), start_new_session=True)
    while process.poll() is None and not list(Path(out, "phases").glob("*-select*")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write_sparse(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        X = sparse.random(50, 200, 0.05, format="csr", random_state=0, dtype=np.float64)
        y = np.where(np.arange(50) % 3, "a", "b")
        rf.ingest((X, y), "sparse.zarr", sparse=True, block_size=1000)
        np.savez_compressed("expected.npz", X=X.toarray(), y=y)
        with tarfile.open(archive, "w:xz") as tar:
            for path in sorted(Path().iterdir()):
                tar.add(path)


def main() -> None:
    archive = Path(sys.argv[1]).absolute()
    if "--sparse" in sys.argv:
        write_sparse(archive)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        table = Path("table.csv")
        write_table(table)
        store = rf.ingest(table, "store.zarr", label="sign", block_size=3000, random_state=0)
        Path("models").mkdir()
        expected = save_models(Path("models"), store)
        np.savez_compressed("expected.npz", X=store.X.compute(), y=store.y.compute(), **expected)
        subprocess.run(run_command("run"), check=True)
        interrupt_run("interrupted")
        with tarfile.open(archive, "w:xz") as tar:
            for path in sorted(Path().iterdir()):
                tar.add(path)


if __name__ == "__main__":
    main()
