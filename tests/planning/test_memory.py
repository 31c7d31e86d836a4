"""The promised peak is at least what the real work takes, and at most twice that.

Compared are the resident sizes of whole processes, interpreter and libraries included, sampled
every ten milliseconds while features are chosen and a model is trained: of the process that
drives, and of its largest worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rfcdask as rf

SCRIPT = Path(__file__).with_name("run_and_measure.py")

SMALL_WIDE: dict[str, Any] = {
    "rows": 6000,
    "columns": 2000,
    "block_size": "16MB",
    "plan": {"n_components": 100, "n_candidates": 1000, "n_rows": 1500, "refine": 20, "epochs": 2},
}
LEARNED: dict[str, Any] = {
    "rows": 300_000,
    "columns": 40,
    "block_size": "8MB",
    "plan": {"method": "learned", "n_components": 300, "epochs": 1},
}
LONG_NARROW: dict[str, Any] = {
    "rows": 1_000_000,
    "columns": 10,
    "block_size": "4MB",
    "plan": {"n_components": 200, "n_candidates": 2000, "n_rows": 3000, "epochs": 1},
}
MANY_CANDIDATES: dict[str, Any] = {
    "rows": 50_000,
    "columns": 20,
    "block_size": "1MB",
    "plan": {"n_components": 200, "n_candidates": 20_000, "n_rows": 5000, "epochs": 2},
}


def _measured(shape: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(shape["rows"], shape["columns"])).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    rf.ingest((X, y), folder / "data.zarr", block_size=shape["block_size"])
    del X
    command = [sys.executable, str(SCRIPT), str(folder / "data.zarr"), where]
    done = subprocess.run(
        [*command, json.dumps(shape["plan"])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _check(found: dict[str, Any]) -> None:
    plan, measured = found["plan"], found["measured"]
    print({k: v if k == "seconds" else round(v / 2**20) for k, v in measured.items()})
    print(round(plan["peak_driver_bytes"] / 2**20), round(plan["peak_worker_bytes"] / 2**20))
    print("seconds", plan["seconds"], plan["memory"])
    assert measured["driver"] <= plan["peak_driver_bytes"] <= 2 * measured["driver"]
    assert measured["worker"] <= plan["peak_worker_bytes"] <= 2 * measured["worker"]


@pytest.mark.parametrize("where", [pytest.param("local", marks=pytest.mark.slow), "threads"])
def test_small_and_wide(where: str, tmp_path: Path) -> None:
    _check(_measured(SMALL_WIDE, where, tmp_path))


@pytest.mark.parametrize("where", [pytest.param("local", marks=pytest.mark.slow), "threads"])
def test_features_that_learn(where: str, tmp_path: Path) -> None:
    _check(_measured(LEARNED, where, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("where", ["local", "threads"])
def test_long_and_narrow(where: str, tmp_path: Path) -> None:
    _check(_measured(LONG_NARROW, where, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("where", ["local", "threads"])
def test_many_candidates(where: str, tmp_path: Path) -> None:
    _check(_measured(MANY_CANDIDATES, where, tmp_path))
