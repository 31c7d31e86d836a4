"""What several test files of the data part need."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import rfcdask as rf
from rfcdask.data import DataError

CONTEXT = multiprocessing.get_context("forkserver")
"""Children come from a server that has imported the package (tests/conftest.py)."""


GOOD = b"1 1:1 3:2\n-1 2:5\n"
"""Two good lines of svmlight text."""


def tree_bytes(folder: Path) -> dict[str, str]:
    """Digest of every file of a folder, by its name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def svmlight_text(X: np.ndarray, y: Any, first: int = 1) -> bytes:
    """Dense rows as svmlight text, zeros left out, every number written in full."""
    lines = []
    for row, label in zip(X.tolist(), list(y), strict=True):
        pairs = [f"{j + first}:{value!r}" for j, value in enumerate(row) if value != 0]
        lines.append(" ".join([str(label), *pairs]))
    return ("\n".join(lines) + "\n").encode()


def chunk_sizes(total: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Every way of cutting a length into chunks."""
    cuts = st.sets(st.integers(1, total - 1), max_size=4) if total > 1 else st.just(set())
    return cuts.map(lambda c: tuple(np.diff([0, *sorted(c), total]).tolist()))


def dense_rows(
    dtypes: tuple[str, ...] = ("f8", "f4", "i2", "u1", "i8", "?"),
    most_rows: int = 40,
    most_columns: int = 6,
) -> st.SearchStrategy[np.ndarray]:
    """Finite arrays of rows, of several types, with every bit pattern a finite number has."""
    shapes = st.tuples(st.integers(2, most_rows), st.integers(1, most_columns))
    return st.sampled_from(dtypes).flatmap(
        lambda name: npst.arrays(name, shapes, elements=_finite(name))
    )


def _finite(name: str) -> Any:
    if np.dtype(name).kind == "f":
        return npst.from_dtype(np.dtype(name), allow_nan=False, allow_infinity=False)
    return None


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal in type, shape and every bit."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def run_measured(
    script: str, *arguments: object, timeout: float = 900
) -> tuple[int, dict[str, Any]]:
    """Run a Python script; return the peak of its and its children's memory, and its last line.

    The memory is sampled from outside, as the proportional set size where the system has it, so
    that pages shared by several processes count once. The last line is a JSON object.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = 0
    stop = time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < stop:
        peak = max(peak, _memory_of_all(process.pid))
        time.sleep(0.005)
    out, errors = process.communicate(timeout=10)
    assert process.returncode == 0, errors
    return peak, json.loads(out.strip().splitlines()[-1])


def _memory_of_all(pid: int) -> int:
    total = 0
    try:
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            total += _memory_of(process)
    except psutil.NoSuchProcess:
        pass
    return total


def _memory_of(process: psutil.Process) -> int:
    try:
        if process.children():
            return int(process.memory_full_info().pss)
        return int(process.memory_info().rss)
    except (psutil.NoSuchProcess, psutil.AccessDenied, AttributeError):
        return 0


def refused(tmp_path, name, content, words, **options):
    """Check that a file of this content is refused in one sentence, and leaves nothing behind."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=words) as caught:
        rf.ingest(path, tmp_path / "out.zarr", **options)
    assert "\n" not in str(caught.value)
    # Bad input leaves nothing behind that stands in the way of the next attempt.
    assert not (tmp_path / "out.zarr").exists()
    return str(caught.value)


def as_format_1(store: Path) -> Path:
    """Turn a store into one as it was written before there were manifests."""
    shutil.rmtree(store / "manifest")
    edit_json(store / "zarr.json", lambda document: document["attributes"].update(format=1))
    return store


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file in place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2))


def flip(path: Path, place: int | None = None) -> None:
    """Change one byte of a file, in its middle unless told where."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)
