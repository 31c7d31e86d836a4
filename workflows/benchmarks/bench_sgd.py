"""One epoch of features and SGD against the loop a user would write, and against dask-ml.

Rows lie in a zarr store, 28 columns of float32, two classes. Each contender reads them, makes 500
random Fourier features and learns a linear SVM in one pass:

- ``loop``: zarr blocks, ``RBFSampler.transform``, ``SGDClassifier.partial_fit``;
- ``dask-ml``: ``Incremental(SGDClassifier)`` on mapped blocks (``pip install dask-ml``; where it
  cannot be imported its loop is reproduced: a chain of delayed ``partial_fit`` calls);
- ``rfcdask``: ``RandomFeatures`` and ``SGDClassifier(epochs=1)``.

Run: python workflows/benchmarks/bench_sgd.py [--rows 2000000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from dask.delayed import delayed
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier

import rfcdask as rf

COLUMNS, FEATURES, GAMMA, BLOCK = 28, 500, 0.02, 10_000


def make_store(path: Path, rows: int, test: int = 100_000, block: int = BLOCK) -> None:
    """Write rows whose class is a smooth but curved function of the columns, with noise."""
    group = zarr.open_group(path, mode="w")
    rng = np.random.default_rng(0)
    V = rng.normal(size=(COLUMNS, 12)).astype(np.float32) / np.sqrt(COLUMNS)
    for name, n in (("train", rows), ("test", test)):
        X = group.create_array(f"X_{name}", shape=(n, COLUMNS), dtype="f4", chunks=(block, COLUMNS))
        y = group.create_array(f"y_{name}", shape=(n,), dtype="i1", chunks=(block,))
        for start in range(0, n, block):
            stop = min(start + block, n)
            part = rng.normal(size=(stop - start, COLUMNS)).astype(np.float32)
            bent = np.sin(part @ V).sum(1) + 0.5 * rng.normal(size=stop - start)
            X[start:stop] = part
            y[start:stop] = (bent > 0).astype(np.int8)


def loop(path: Path) -> Any:
    X, y = stored(path, "train")
    sampler = RBFSampler(gamma=GAMMA, n_components=FEATURES, random_state=0).fit(X[:1])
    model = SGDClassifier(random_state=0)
    for start in range(0, X.shape[0], BLOCK):
        rows = slice(start, start + BLOCK)
        model.partial_fit(sampler.transform(X[rows]), y[rows], classes=[0, 1])
    return lambda Z: model.predict(sampler.transform(Z))


def dask_ml(path: Path) -> Any:
    X, y = lazy(path, "train")
    sampler = RBFSampler(gamma=GAMMA, n_components=FEATURES, random_state=0)
    sampler.fit(np.zeros((1, COLUMNS), np.float32))
    Z = X.map_blocks(
        sampler.transform, chunks=(X.chunks[0], (FEATURES,)), meta=np.empty((0, 0), np.float32)
    )
    base = SGDClassifier(random_state=0)
    try:
        from dask_ml.wrappers import Incremental
    except ImportError:
        model = incremental_loop(base, Z, y)
    else:
        model = Incremental(base, assume_equal_chunks=True).fit(Z, y, classes=[0, 1]).estimator_
    return lambda block: model.predict(sampler.transform(block))


def incremental_loop(model: Any, Z: Any, y: Any) -> Any:
    """Do what ``dask_ml._partial.fit`` does: a chain of delayed ``partial_fit`` calls."""

    def step(model: Any, Z: Any, y: Any) -> Any:
        return model.partial_fit(Z, y, classes=[0, 1])

    chain = delayed(model)
    for block, labels in zip(Z.to_delayed()[:, 0], y.to_delayed(), strict=True):
        chain = delayed(step)(chain, block, labels)
    return chain.compute()


def ours(path: Path) -> Any:
    X, y = lazy(path, "train")
    features = rf.RandomFeatures(FEATURES, gamma=GAMMA, random_state=0).fit(X)
    model = rf.SGDClassifier(epochs=1, random_state=0).fit(features.transform(X), y)
    return lambda Z: model.predict(features.transform(Z))


def stored(path: Path, name: str) -> tuple[Any, Any]:
    group = zarr.open_group(path, mode="r")
    return group[f"X_{name}"], group[f"y_{name}"]


def lazy(path: Path, name: str) -> tuple[Any, Any]:
    X, y = stored(path, name)
    return da.from_zarr(X), da.from_zarr(y)


def best_of(
    contenders: Mapping[str, Callable[[Path], Any]], path: Path, repeats: int
) -> dict[str, tuple[float, float]]:
    """Return the shortest time of each and its accuracy on rows held out; all take turns."""
    X, y = (array[:] for array in stored(path, "test"))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    accuracy = {}
    for _ in range(repeats):
        for name, fit in contenders.items():
            start = time.perf_counter()
            predict = fit(path)
            times[name].append(time.perf_counter() - start)
            accuracy[name] = float(np.mean(predict(X) == y))
    return {name: (min(times[name]), accuracy[name]) for name in contenders}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.zarr"
        make_store(path, options.rows)
        warm = Path(folder) / "warm.zarr"
        make_store(warm, 50_000, 1000)
        ours(warm)  # compiles
        contenders = {"rfcdask": ours, "loop": loop, "dask-ml": dask_ml}
        found = best_of(contenders, path, options.repeats)
    for name, (seconds, accuracy) in found.items():
        ratio = seconds / found["rfcdask"][0]
        print(f"{name:8} {seconds:7.2f} s  accuracy {accuracy:.4f}  {ratio:5.2f} x rfcdask")


if __name__ == "__main__":
    main()
