"""Compression as functions on rows in memory, without Dask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from rfcdask.execution.progress import SilentReporter
from rfcdask.kernels import get_kernel
from rfcdask.selection.compress import CompressionSettings, LabelledRows, compress

SETTINGS = CompressionSettings(
    kernel=get_kernel("rbf"),
    gamma=0.1,
    n_atoms=12,
    n_candidates=150,
    sampling="iid",
    phases="random",
    exact_target=True,
    solver="giga",
    refit=True,
    tol=None,
    refine_steps=0,
    seed=0,
    memory_budget=2**28,
)
ROWS = np.random.default_rng(0).normal(size=(260, 4)).astype(np.float32)
TRAINING, HELDOUT = LabelledRows(ROWS[:200]), LabelledRows(ROWS[200:])

WITHOUT_DASK = """
import sys
for name in ("dask", "distributed", "zarr", "matplotlib", "jinja2", "click", "rich"):
    sys.modules[name] = None  # importing it raises
import numpy as np
from rfcdask.kernels import get_kernel
from rfcdask.selection.compress import CompressionSettings, LabelledRows, compress

X = np.random.default_rng(0).normal(size=(60, 3))
kernel, parts = get_kernel("rbf"), (LabelledRows(X[:40]), LabelledRows(X[40:]))
settings = CompressionSettings(
    kernel, 0.1, 5, 30, "iid", "random", True, "giga", True, None, 3, seed=0, memory_budget=2**20
)
assert len(compress(parts[0], None, parts[1], settings).weights) == 5
"""


def test_the_result_is_frozen_and_repeatable() -> None:
    found = compress(TRAINING, None, HELDOUT, SETTINGS)
    assert found.frequencies.shape == (4, 12)
    assert found.heldout_error == found.heldout_errors[-1]
    assert found.refinement is None
    with pytest.raises(FrozenInstanceError):
        found.weights = np.ones(12)
    again = compress(TRAINING, None, HELDOUT, SETTINGS)
    np.testing.assert_array_equal(again.weights, found.weights)


def test_refinement_keeps_what_was_selected() -> None:
    found = compress(TRAINING, None, HELDOUT, SETTINGS)
    refined = compress(TRAINING, None, HELDOUT, replace(SETTINGS, refine_steps=30))
    np.testing.assert_array_equal(refined.selected, found.selected)
    np.testing.assert_array_equal(refined.heldout_errors, found.heldout_errors)
    assert refined.refinement is not None
    assert refined.heldout_error == refined.refinement.error_after < found.heldout_error


@pytest.mark.parametrize("steps", [0, 5])
def test_phases_are_reported_to_whoever_asks(steps: int) -> None:
    phases: list[Any] = []

    @contextmanager
    def track(phase: str, total: float | None, unit: str) -> Iterator[SilentReporter]:
        phases.append((phase, total, unit))
        yield SilentReporter()

    compress(TRAINING, None, HELDOUT, replace(SETTINGS, refine_steps=steps), track)
    expected = [
        ("correlating candidates", 200, "rows"),
        ("selecting features", 12, "features"),
        ("correlating candidates", 60, "rows"),
    ]
    assert phases == [*expected, *([("refining features", 5, "steps")] if steps else [])]


def test_selection_runs_where_dask_cannot_be_imported() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_DASK], check=True, timeout=120)
