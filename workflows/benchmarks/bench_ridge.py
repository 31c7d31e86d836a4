"""Ridge on lazy features in one pass against the bare GEMM and syrk of the same sizes.

The bound is what any exact one-pass method must do: X W for the features and Z^T Z for the sums,
on all cores, on blocks that are in memory already. Ours reads the rows from a zarr store,
takes the cosine, sums and solves.

Run: python workflows/benchmarks/bench_ridge.py [--rows 2000000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_sgd import BLOCK, COLUMNS, FEATURES, GAMMA, make_store, opened

import rfcdask as rf
from rfcdask.kernels.runtime import available_cpus, map_tiles


def bare(rows: int) -> float:
    """Return the time of the products alone: the faster of two ways to use all cores.

    One is BLAS's own threads; the other, which is better when other processes run, is one BLAS
    thread a core, each with blocks of its own.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(BLOCK, COLUMNS)).astype(np.float32)
    W = rng.normal(size=(COLUMNS, FEATURES)).astype(np.float32)
    outputs = [X @ W for _ in range(available_cpus())]
    sums = [Z.T @ Z for Z in outputs]

    def products(core: int) -> None:
        for _ in range(rows // BLOCK // len(outputs)):
            np.matmul(X, W, out=outputs[core])
            np.matmul(outputs[core].T, outputs[core], out=sums[core])  # numpy takes syrk for it

    start = time.perf_counter()
    map_tiles(products, range(len(outputs)))
    middle = time.perf_counter()
    for core in range(len(outputs)):
        products(core)
    return min(middle - start, time.perf_counter() - middle)


def ours(path: Path) -> float:
    data = opened(path)
    X, y = data.X, data.y
    features = rf.RandomFeatures(FEATURES, gamma=GAMMA, random_state=0).fit(X)
    start = time.perf_counter()
    rf.Ridge(1.0).fit(features.transform(X), y)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.zarr"
        make_store(path, options.rows)
        ours(path)  # compiles, and brings the files into the cache
        times = [(bare(options.rows), ours(path)) for _ in range(options.repeats)]
    least, found = min(t[0] for t in times), min(t[1] for t in times)
    print(f"bare GEMM and syrk {least:6.2f} s")
    print(f"rfcdask.Ridge      {found:6.2f} s  {found / least:.2f} x the bare products")


if __name__ == "__main__":
    main()
