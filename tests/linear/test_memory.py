"""Memory of training does not depend on the number of rows, nor on how slow the training is."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import rfcdask as rf
from rfcdask.kernels.arrays import Array
from rfcdask.linear.sgd import training
from rfcdask.linear.sgd.step import TrainingState, train_on_blocks

BENCHMARK = Path(__file__).resolve().parents[2] / "workflows" / "benchmarks" / "bench_memory.py"


class Living:
    """Counts arrays that are still in memory."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = self.made = 0

    def make(self, block: Array) -> Array:
        fresh = block + np.float32(0)
        with self.lock:
            self.made += 1
            self.now += 1
            self.most = max(self.most, self.now)
        weakref.finalize(fresh, self._gone)
        return fresh

    def _gone(self) -> None:
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("rows", [40, 400])
def test_a_slow_learner_holds_a_fixed_number_of_blocks(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living()
    X = da.random.default_rng(0).normal(size=(rows * 20, 4), chunks=(20, 4)).astype(np.float32)
    Z = X.map_blocks(living.make, meta=np.empty((0, 0), np.float32))
    y = np.arange(rows * 20) % 2

    def slow(*args: Any) -> TrainingState:
        time.sleep(0.02)
        return train_on_blocks(*args)

    monkeypatch.setattr(training, "train_on_blocks", slow)
    monkeypatch.setattr(training, "preconditioner_rows", lambda n_features: 200)
    rf.SGDClassifier(epochs=1, random_state=0, persist=False).fit(Z, y)
    assert living.made >= rows
    # eight in use, eight ahead, and what the pool's threads have just let go
    assert living.most <= 8 + 8 + 4
    assert living.now <= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slowness", [0, 10])
def test_peak_memory_of_one_and_eight_million_rows(slowness: int) -> None:
    peaks = [
        float(
            subprocess.run(
                [sys.executable, str(BENCHMARK), "--one", str(rows), str(slowness)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()[0]
        )
        for rows in (1_000_000, 8_000_000)
    ]
    print(f"slowness {slowness}: {peaks[0]:.0f} MiB and {peaks[1]:.0f} MiB")
    assert peaks[1] < 1.15 * peaks[0]
