"""Work that fails or dies on a worker once, and its data.

Worker processes import this file and not the tests, which takes several times as long.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dask.array as da

from rfcdask.kernels.arrays import Array
from rfcdask.linear.sgd.step import TrainingState, train_on_blocks
from tests.linear_data import blobs, lazy


def data(rows: int = 100) -> tuple[da.Array, da.Array]:
    X, y = blobs(3000, 8, 3)
    return lazy(X, rows), lazy(y, rows)


def first_time(marker: Path, name: str) -> bool:
    """Return True once for each name, over all processes."""
    try:
        os.close(os.open(marker / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def dies_once(block: Array, marker: Path, at: float, others: tuple[int, ...] = ()) -> Array:
    if block.size and block[0, 0] == at and first_time(marker, "killed"):
        for process in {*others, os.getpid()}:
            os.kill(process, signal.SIGKILL)
    return block


def fails_once_a_block(block: Array, marker: Path) -> Array:
    if block.size and first_time(marker, f"block-{block[0, 0]}"):
        raise OSError("the network had a bad moment")
    return block


def flaky_train(marker: Path, *args: Any) -> TrainingState:
    state = train_on_blocks(*args)
    if first_time(marker, f"step-{args[4]}-{args[5]}"):
        raise OSError("the result got lost after the work was done")
    return state


def dies_at_third_read(block: Array, marker: Path, at: float) -> Array:
    """Read once for the sample and once an epoch, a block kills its worker in the second epoch."""
    if block.size and block[0, 0] == at:
        read = next(n for n in range(1, 100) if first_time(marker, f"read-{n}"))
        if read == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    return block
