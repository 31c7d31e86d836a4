"""Ingest holds a few blocks, whatever the size of the file."""

from __future__ import annotations

import numpy as np
import pytest
from data_helpers import run_measured

import rfcdask as rf

INGEST = """
import json, sys, rfcdask as rf
ds = rf.ingest(sys.argv[1], sys.argv[2])
print(json.dumps({"rows": len(ds)}))
"""


def write_svmlight(path, n_bytes: int, columns: int = 28) -> int:
    """Repeat some thousand random rows until the file is large enough."""
    draw = np.random.default_rng(0)
    rows = [
        f"{i % 2} " + " ".join(f"{j + 1}:{v:.16g}" for j, v in enumerate(row)) + "\n"
        for i, row in enumerate(draw.standard_normal((4000, columns)).tolist())
    ]
    text = "".join(rows).encode()
    copies = -(-n_bytes // len(text))
    with open(path, "wb") as file:
        for _ in range(copies):
            file.write(text)
    return 4000 * copies


def test_sixty_megabytes_of_text(tmp_path):
    n_rows = write_svmlight(tmp_path / "rows.svm", 60 * 2**20)
    peak, said = run_measured(INGEST, tmp_path / "rows.svm", tmp_path / "a.zarr")
    print(f"\npeak {peak / 2**20:.0f} MiB")
    assert said["rows"] == n_rows
    assert peak < 10**9


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path):
    peaks = []
    for size in (200 * 10**6, 10**9):
        n_rows = write_svmlight(tmp_path / "rows.svm", size)
        peak, said = run_measured(INGEST, tmp_path / "rows.svm", tmp_path / f"{size}.zarr")
        print(f"\n{size / 1e6:.0f} MB of text: peak {peak / 1e6:.0f} MB over all processes")
        assert said["rows"] == n_rows
        peaks.append(peak)
    assert peaks[1] <= 10**9
    assert peaks[1] <= 1.2 * peaks[0]
    assert rf.open_dataset(tmp_path / "1000000000.zarr").X.shape == (n_rows, 28)
