"""What comparing a store with its manifest costs: reading blocks and rows with and without it.

Usage: python workflows/benchmarks/verify.py [--megabytes 256] [--columns 28] [--repeat 7]

Without: zarr alone, which compares each chunk with its own checksum. With: the reader of a data
set, which also compares these checksums with the manifest. Both read the same files from the page
cache, in turns, one shard at a time; best of several.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import zarr

import rfcdask as rf
from rfcdask.data.manifest import KEY


def best_of(repeat: int, *works: Callable[[], None]) -> list[float]:
    best = [float("inf")] * len(works)
    for turn in range(repeat + 1):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            if turn:  # the first turn opens arrays and fills the page cache
                best[number] = min(best[number], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--columns", type=int, default=28)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    n_rows = options.megabytes * 10**6 // (4 * options.columns)
    X = draw.integers(0, 1000, (n_rows, options.columns)).astype("f4")
    with tempfile.TemporaryDirectory() as folder:
        dest = Path(folder) / "a.zarr"
        reader = rf.ingest(X, dest, progress=False).reader
        plain = zarr.open_array(dest / "X", mode="r")
        edges = np.concatenate([[0], np.cumsum(reader.sizes)]).tolist()
        local = np.sort(draw.choice(reader.sizes[0], 8, replace=False))

        def blocks_with() -> None:
            for block in range(len(reader.sizes)):
                reader.block(block)

        def blocks_without() -> None:
            for start, stop in pairwise(edges):
                plain[start:stop]

        def rows_with() -> None:
            reader.rows(0, local)

        def rows_without() -> None:
            plain.oindex[local]

        found = {
            "all blocks": best_of(options.repeat, blocks_without, blocks_with),
            "8 single rows": best_of(4 * options.repeat, rows_without, rows_with),
        }
        size = (dest / KEY).stat().st_size
    print(f"{options.megabytes} MB in {len(reader.sizes)} shards, manifest of {size:,} bytes")
    for name, (without, checked) in found.items():
        ratio = checked / without
        print(f"{name:>14}: {without:.4f} s without, {checked:.4f} s with, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
