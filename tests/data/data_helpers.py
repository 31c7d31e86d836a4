"""What several test files of the data part need."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst


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
    if name in ("f8", "f4"):
        return npst.from_dtype(np.dtype(name), allow_nan=False, allow_infinity=False)
    return None


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal in type, shape and every bit."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class PeakMemory:
    """Samples the memory of this process and its children while a block runs."""

    def __init__(self, pid: int | None = None, every: float = 0.005) -> None:
        self.process = psutil.Process(pid)
        self.every = every
        self.peak = 0
        self.base = 0

    def __enter__(self) -> PeakMemory:
        self.base = self.now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.peak - self.base

    def now(self) -> int:
        total = 0
        for process in [self.process, *self.process.children(recursive=True)]:
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.peak = max(self.peak, self.now())
            time.sleep(self.every)
