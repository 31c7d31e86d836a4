"""Ingest of svmlight text against scikit-learn's reader plus a zarr write, in one run.

Usage: python workflows/benchmarks/ingest.py [--megabytes 200] [--columns 28] [--repeat 3]

Both sides read the same file and write the same zarr array with the same codec. Ours also checks
every line first and keeps statistics; the peer holds all rows in memory. Best of several.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr
from sklearn.datasets import load_svmlight_file

import rfcdask as rf
from rfcdask.data.layout import codecs, plan_layout


def write_rows(path: Path, n_bytes: int, columns: int) -> None:
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((5000, columns)).tolist()
    text = "".join(
        f"{i % 2} " + " ".join(f"{j + 1}:{v:.16g}" for j, v in enumerate(row)) + "\n"
        for i, row in enumerate(rows)
    ).encode()
    with open(path, "wb") as file:
        for _ in range(-(-n_bytes // len(text))):
            file.write(text)


def ours(source: Path, dest: Path) -> None:
    rf.ingest(source, dest, progress=False)


def peer(source: Path, dest: Path) -> None:
    sparse, y = load_svmlight_file(str(source))
    X = sparse.toarray()
    n_rows, n_columns = X.shape
    layout = plan_layout(n_rows, n_columns, X.dtype)
    group = zarr.create_group(dest)
    array = group.create_array(
        "X",
        shape=X.shape,
        dtype=X.dtype,
        chunks=(layout.chunk_rows, X.shape[1]),
        shards=(layout.block_rows, X.shape[1]),
        compressors=codecs("zstd"),
    )
    array[:] = X
    group.create_array("y", data=y)


def seconds(work: Callable[[Path, Path], None], source: Path, dest: Path) -> float:
    shutil.rmtree(dest, ignore_errors=True)
    start = time.perf_counter()
    work(source, dest)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--columns", type=int, default=28)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.svm"
        write_rows(source, 10**6, options.columns)
        for work in (ours, peer):  # compile and import before the clock runs
            seconds(work, source, Path(folder) / "warm.zarr")
        write_rows(source, options.megabytes * 10**6, options.columns)
        best = {"ours": float("inf"), "scikit-learn": float("inf")}
        for _ in range(options.repeat):
            best["ours"] = min(best["ours"], seconds(ours, source, Path(folder) / "a.zarr"))
            best["scikit-learn"] = min(
                best["scikit-learn"], seconds(peer, source, Path(folder) / "b.zarr")
            )
        same = np.array_equal(
            rf.open_dataset(Path(folder) / "a.zarr").X.compute(),
            np.asarray(zarr.open_array(str(Path(folder) / "b.zarr"), path="X", mode="r")[:]),
        )
    for name, best_time in best.items():
        print(f"{name:>12}: {best_time:6.2f} s, {options.megabytes / best_time:6.1f} MB/s")
    print(f"ratio: {best['scikit-learn'] / best['ours']:.2f} times as fast, rows equal: {same}")


if __name__ == "__main__":
    main()
