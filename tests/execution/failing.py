"""Work that fails or dies on a worker.

Worker processes import this file and not the tests, which takes several times as long.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from distributed import get_worker


def process_ids(block: np.ndarray) -> np.ndarray:
    return np.full_like(block, os.getpid())


def die(block: np.ndarray) -> np.ndarray:
    if block.size:
        os._exit(1)
    return block


def fail(block: np.ndarray) -> np.ndarray:
    raise ZeroDivisionError("in a block")


def fail_once(block: np.ndarray) -> np.ndarray:
    worker = get_worker()
    if not getattr(worker, "failed_once", False):
        worker.failed_once = True
        raise OSError("a file was not there for a moment")
    return block + 1


def fail_while(block: np.ndarray, there: Path) -> np.ndarray:
    if block.size and there.exists():
        raise OSError("the disk is away")
    return block


class Deadly:
    """Stands for rows that are read, by calling the function."""

    sizes, n_columns, dtype, label_dtype = (2**17, 2**17), 1, np.dtype(np.float64), None
    row_bytes = 8

    def __init__(self, function: Callable[[np.ndarray], Any]) -> None:
        self.function = function

    def rows(self, block: int, local: np.ndarray) -> tuple[np.ndarray, None]:
        return self.function(np.ones((len(local), 1))), None


def kill_at(block: np.ndarray, at: float, process: int) -> np.ndarray:
    if block.size and block[0, 0] == at:
        os.kill(process, signal.SIGKILL)
        time.sleep(1)
    return block
