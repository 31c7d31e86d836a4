"""One epoch of features and SGD against the loop a user would write, and against dask-ml.

Rows lie in a store of default settings, 28 columns of float32, two classes. Each contender reads
them, makes 500 random Fourier features and learns a linear SVM in one pass:

- ``loop``: zarr slices, ``RBFSampler.transform``, ``SGDClassifier.partial_fit``;
- ``dask-ml``: ``Incremental(SGDClassifier)`` on mapped blocks (``pip install dask-ml``; where it
  cannot be imported its loop is reproduced: a chain of delayed ``partial_fit`` calls);
- ``rfcdask``: ``RandomFeatures`` and ``SGDClassifier(epochs=1)``;
- ``learned``: ``KernelClassifier(epochs=1)`` of a given width, whose 500 features learn too.

Both peers read 10,000 rows at a time, which suits them better than the blocks of the store. With
``--workers`` the same work is timed on one and on two workers of one thread each instead: SGD in
two chains, ridge regression, and writing the features.

Run: python workflows/benchmarks/bench_sgd.py [--rows 2000000] [--repeats 3] [--workers]
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
from distributed import Client, LocalCluster
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier

import rfcdask as rf
from rfcdask.linear import write_zarr

COLUMNS, FEATURES, GAMMA, BLOCK = 28, 500, 0.02, 10_000
BENT = np.random.default_rng(0).normal(size=(COLUMNS, 12)).astype(np.float32) / np.sqrt(COLUMNS)


def make_rows(block_id: tuple[int, int], rows: int) -> np.ndarray:
    return np.random.default_rng([1, block_id[0]]).normal(size=(rows, COLUMNS)).astype(np.float32)


def make_labels(X: np.ndarray, block_id: tuple[int, ...] = (0,)) -> np.ndarray:
    """Return classes that are a smooth but curved function of the columns, with noise."""
    noise = np.random.default_rng([2, block_id[0]]).normal(size=len(X))
    return (np.sin(X @ BENT).sum(1) + 0.5 * noise > 0).astype(np.int8)


def make_store(path: Path, rows: int, block: int = 100_000) -> None:
    """Write a store of default settings."""
    block = min(block, rows)
    X = da.map_blocks(
        make_rows,
        rows=block,
        chunks=((block,) * (rows // block), (COLUMNS,)),
        meta=np.empty((0, 0), np.float32),
    )
    rf.ingest((X, X.map_blocks(make_labels, drop_axis=1, dtype=np.int8)), path)


def opened(path: Path) -> Any:
    return rf.open_dataset(path)


def loop(path: Path) -> Any:
    X, y = (zarr.open_array(path / name, mode="r") for name in ("X", "y"))
    sampler = RBFSampler(gamma=GAMMA, n_components=FEATURES, random_state=0).fit(X[:1])
    model = SGDClassifier(random_state=0)
    for start in range(0, X.shape[0], BLOCK):
        rows = slice(start, start + BLOCK)
        model.partial_fit(sampler.transform(X[rows]), y[rows], classes=[0, 1])
    return lambda Z: model.predict(sampler.transform(Z))


def dask_ml(path: Path) -> Any:
    data = opened(path)
    X, y = data.X.rechunk({0: BLOCK}), data.y.rechunk({0: BLOCK})
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


def fitted_map(data: Any) -> Any:
    return rf.RandomFeatures(FEATURES, gamma=GAMMA, random_state=0).fit(data.X)


def ours(path: Path) -> Any:
    data = opened(path)
    features = fitted_map(data)
    model = rf.SGDClassifier(epochs=1, random_state=0).fit(features.transform(data.X), data.y)
    return lambda Z: model.predict(features.transform(Z))


def learned(path: Path) -> Any:
    data = opened(path)
    model = rf.KernelClassifier(FEATURES, gamma=GAMMA, epochs=1, random_state=0)
    return model.fit(data.X, data.y).predict


REPEATS_ON_WORKERS = {"sgd": 5, "ridge": 2, "write": 2}
"""Short work is repeated more often: the best of several is compared."""
CONTENDERS = {"rfcdask": ours, "learned": learned, "loop": loop, "dask-ml": dask_ml}


def best_of(
    contenders: Mapping[str, Callable[[Path], Any]], path: Path, repeats: int
) -> dict[str, tuple[float, float]]:
    """Return the shortest time of each and its accuracy on rows held out; all take turns."""
    X = make_rows((10**6, 0), 100_000)
    y = make_labels(X, (10**6,))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    accuracy = {}
    for _ in range(repeats):
        for name, fit in contenders.items():
            start = time.perf_counter()
            predict = fit(path)
            times[name].append(time.perf_counter() - start)
            accuracy[name] = float(np.mean(predict(X) == y))
    return {name: (min(times[name]), accuracy[name]) for name in contenders}


def on_workers(path: Path, folder: Path, n_workers: int) -> dict[str, float]:
    """Return the seconds of each kind of work on that many workers of one thread each."""
    data = opened(path)
    Z = fitted_map(data).transform(data.X)
    work: dict[str, Callable[[], Any]] = {
        "sgd": lambda: rf.SGDClassifier(epochs=1, chains=2, random_state=0).fit(Z, data.y),
        "ridge": lambda: rf.RidgeClassifier().fit(Z, data.y),
        "write": lambda: write_zarr(Z, folder / "features.zarr", overwrite=True),
    }
    seconds = {}
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        few = 300_000  # some blocks, so that all workers load what they need
        warm = fitted_map(data).transform(data.X[:few])
        for model in (rf.SGDClassifier(epochs=1, chains=2, random_state=0), rf.RidgeClassifier()):
            model.fit(warm, data.y[:few])
        for name, run in work.items():
            seconds[name] = np.inf
            for _ in range(REPEATS_ON_WORKERS[name]):
                start = time.perf_counter()
                run()
                seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def compare_workers(path: Path, folder: Path, repeats: int) -> None:
    found: dict[tuple[str, int], float] = {}
    for _ in range(repeats):
        for n_workers in (1, 2):
            for name, seconds in on_workers(path, folder, n_workers).items():
                key = (name, n_workers)
                found[key] = min(found.get(key, np.inf), seconds)
    for name in dict.fromkeys(name for name, _ in found):
        one, two = found[name, 1], found[name, 2]
        print(f"{name:8} {one:7.2f} s on one worker, {two:7.2f} s on two: {one / two:.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", action="store_true", help="one against two workers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "rows.zarr"
        make_store(path, options.rows)
        if options.workers:
            compare_workers(path, folder, options.repeats)
            return
        make_store(folder / "warm.zarr", 50_000)
        ours(folder / "warm.zarr")  # compiles
        learned(folder / "warm.zarr")
        found = best_of(CONTENDERS, path, options.repeats)
    for name, (seconds, accuracy) in found.items():
        ratio = seconds / found["rfcdask"][0]
        print(f"{name:8} {seconds:7.2f} s  accuracy {accuracy:.4f}  {ratio:5.2f} x rfcdask")


if __name__ == "__main__":
    main()
