"""Planned against measured time: choosing, training and comparing maps on 1,000,000 x 28 rows.

Run: python workflows/benchmarks/plan_time.py [--rows N] [--where local|threads|ADDRESS]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import rfcdask as rf


def measure(train: Any, size: int, epochs: int) -> dict[str, float]:
    """Return the seconds of each step, done for real."""
    start = time.perf_counter()
    features = rf.CompressedFeatures(size, random_state=0).fit(train.X)
    fitted = time.perf_counter()
    model = rf.SGDClassifier(epochs=epochs, persist=False, random_state=0)
    model.fit(features.transform(train.X), train.y)
    trained = time.perf_counter()
    rf.compare(train.X, train.y, n_components=size, random_state=0)
    compared = time.perf_counter()
    return {"fit": fitted - start, "train": trained - fitted, "compare": compared - trained}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--where", default="local")
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, rf.connect(asked.where):
        store = Path(folder) / "higgs.zarr"
        rf.synthetic("higgs", rows=asked.rows, dest=store, block_size=16_000_000)
        train, _ = rf.open_dataset(store).standardize().split(0.2, random_state=0)
        start = time.perf_counter()
        plan = rf.plan(
            train,
            n_components=asked.size,
            epochs=asked.epochs,
            persist=False,
            steps=("fit", "train", "compare"),
        )
        print(f"the plan took {time.perf_counter() - start:.1f} s\n{plan}")
        found = measure(train, asked.size, asked.epochs)
        for step, seconds in found.items():
            planned = plan.steps[step] or 0.0
            print(f"{step:8} planned {planned:6.1f} s, measured {seconds:6.1f} s", end="")
            print(f", ratio {planned / seconds:.2f}")
        total = sum(found.values())
        print(f"all      planned {plan.seconds:6.1f} s, measured {total:6.1f} s", end="")
        print(f", ratio {(plan.seconds or 0.0) / total:.2f}")


if __name__ == "__main__":
    main()
