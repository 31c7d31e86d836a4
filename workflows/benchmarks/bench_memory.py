"""Peak memory of training on 1,000,000 and 8,000,000 rows, also with a consumer made slow.

Each run is a process of its own: rows are made block by block, mapped to 200 features and learned
from in one epoch. With slowness s every step of training also sleeps s times as long as its blocks
took to make, so that reading is far ahead all the time.

Run: python workflows/benchmarks/bench_memory.py
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from typing import Any

import dask.array as da
import numpy as np

import rfcdask as rf
from rfcdask.linear.sgd import training
from rfcdask.linear.sgd.step import TrainingState, train_on_blocks

BLOCK, COLUMNS, FEATURES = 10_000, 10, 200


def make_rows(block_info: Any = None) -> Any:
    where = block_info[None]
    rng = np.random.default_rng(where["chunk-location"][0])
    return rng.normal(size=where["chunk-shape"]).astype(np.float32)


def run(rows: int, slowness: float) -> tuple[float, float]:
    """Return the peak memory in MiB and the seconds of one run in this process."""
    chunks = ((BLOCK,) * (rows // BLOCK), (COLUMNS,))
    X = da.map_blocks(make_rows, chunks=chunks, meta=np.empty((0, 0), np.float32))
    y = (da.sin(X[:, 0]) + X[:, 1] > 0).astype(np.int8)
    features = rf.RandomFeatures(FEATURES, gamma=0.05, random_state=0).fit(X[: 2 * BLOCK])
    Z = features.transform(X)
    Z.blocks[0].compute()  # compiles
    start = time.perf_counter()
    Z.blocks[1].compute()
    if slowness:
        pause = slowness * (time.perf_counter() - start)

        def slow(state: TrainingState, *rest: Any) -> TrainingState:
            time.sleep(pause * len(rest[2]))
            return train_on_blocks(state, *rest)

        vars(training)["train_on_blocks"] = slow
    start = time.perf_counter()
    rf.SGDClassifier(epochs=1, random_state=0).fit(Z, y)
    seconds = time.perf_counter() - start
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, type=float, metavar=("ROWS", "SLOWNESS"))
    one = parser.parse_args().one
    if one:
        peak, seconds = run(int(one[0]), one[1])
        print(f"{peak:.1f} {seconds:.1f}")
        return
    for slowness in (0, 10):
        peaks = []
        for rows in (1_000_000, 8_000_000):
            command = [sys.executable, __file__, "--one", str(rows), str(slowness)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            peak, seconds = map(float, out.split())
            peaks.append(peak)
            print(f"slowness {slowness:2}: {rows:9,} rows {peak:7.0f} MiB {seconds:6.1f} s")
        print(f"slowness {slowness:2}: ratio {peaks[1] / peaks[0]:.3f}")


if __name__ == "__main__":
    main()
