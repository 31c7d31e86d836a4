"""Fetching a few rows: grouped by block, one task a block touched, the order restored in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from rfcdask.data.errors import DataError
from rfcdask.data.reader import Reader
from rfcdask.execution.cluster import current_client
from rfcdask.execution.executor import call_later, local_threads, run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.types import Array, DaskArray, IntArray


class Rows(NamedTuple):
    """Rows in memory, their labels, and their places in the data set."""

    X: Any
    y: Array | None
    indices: IntArray


_READERS: dict[str, Reader] = {}
_REMEMBERED = 1024


def remember_reader(array: DaskArray, reader: Reader) -> DaskArray:
    """Note which reader a lazy array comes from, so that its rows can be fetched one by one.

    The name of the array holds a hash of the reader, so the two belong together for good; only
    the latest names are kept.
    """
    _READERS[array.name] = reader
    while len(_READERS) > _REMEMBERED:
        _READERS.pop(next(iter(_READERS)), None)
    return array


def reader_of(array: DaskArray) -> Reader | None:
    """Return the reader behind a data set's own lazy array; None for any other array."""
    return _READERS.get(getattr(array, "name", ""))


def gather(reader: Reader, indices: Any, client: Any = None) -> Rows:
    """Fetch rows by number, in the order asked for; repeats are allowed."""
    wanted = _checked(indices, sum(reader.sizes))
    unique, inverse = np.unique(wanted, return_inverse=True)
    largest = max(reader.sizes) * reader.n_columns * reader.dtype.itemsize
    parts = _compute(_tasks(reader, unique), client, largest)
    stack = sparse.vstack if sparse.issparse(parts[0][0]) else np.concatenate
    X = stack([part[0] for part in parts])
    y = None if reader.label_dtype is None else np.concatenate([part[1] for part in parts])
    if not np.array_equal(inverse, np.arange(len(unique))):
        X, y = X[inverse], None if y is None else y[inverse]
    return Rows(X, y, wanted)


def _tasks(reader: Reader, unique: IntArray) -> list[Any]:
    edges = np.concatenate([[0], np.cumsum(reader.sizes)])
    blocks = np.searchsorted(edges, unique, side="right") - 1
    touched, starts = np.unique(blocks, return_index=True)
    groups = np.split(unique, starts[1:])
    return [
        call_later(reader.rows, int(block), group - edges[block])
        for block, group in zip(touched, groups, strict=True)
    ]


def _compute(tasks: list[Any], client: Any, block_bytes: int) -> list[Any]:
    chosen, parts = current_client(client), []
    # Few at once: where workers die over blocks, the scheduler must see which block it was.
    at_once = max(local_threads(), 1) if chosen is None else None
    with track("gathering rows", len(tasks), "blocks") as bar:
        for part in run_tasks(tasks, chosen, at_once=at_once, block_bytes=block_bytes):
            parts.append(part)
            bar.advance()
    return parts


def _checked(indices: Any, n_rows: int) -> IntArray:
    wanted = np.atleast_1d(np.asarray(indices))
    if wanted.ndim != 1 or not np.issubdtype(wanted.dtype, np.integer):
        raise DataError("row numbers are a one-dimensional list of integers.")
    if not wanted.size:
        raise DataError("no row was asked for: give at least one row number.")
    wanted = wanted.astype(np.int64)
    outside = wanted[(wanted < 0) | (wanted >= n_rows)]
    if outside.size:
        raise DataError(f"row {outside[0]} is outside the data set's rows 0 to {n_rows - 1}.")
    return wanted


def choose_rows(reader: Reader, n_rows: int, seed: int, *, shuffled: bool) -> IntArray:
    """Choose rows uniformly without replacement, sorted.

    In a shuffled store every set of positions is a uniform sample of the rows, so whole runs of
    neighbours are taken: as few chunks as hold `n_rows` rows, chosen at random.
    """
    total = sum(reader.sizes)
    if not 0 < n_rows <= total:
        raise DataError(f"{n_rows} rows cannot be sampled from {total}: ask for 1 to {total}.")
    generator = np.random.default_rng(seed)
    if not shuffled:
        return np.sort(generator.choice(total, n_rows, replace=False, shuffle=False))
    return _choose_runs(generator, n_rows, total, reader.run_rows)


def _choose_runs(generator: np.random.Generator, n_rows: int, total: int, run: int) -> IntArray:
    starts = np.arange(0, total, run)
    # One run more than needed: the last run of the store may be short.
    few = min(-(-n_rows // run) + 1, len(starts))
    chosen = generator.choice(starts, few, replace=False)
    lengths = np.minimum(chosen + run, total) - chosen
    order = np.argsort(-lengths, kind="stable")
    rows = [np.arange(chosen[i], chosen[i] + lengths[i]) for i in order]
    return np.sort(np.concatenate(rows)[:n_rows])
