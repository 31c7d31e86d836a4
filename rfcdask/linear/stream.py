"""A bounded stream of row blocks: the one way in which learners, scoring and writing see data.

At most `window` blocks are computed or waiting at any time, so a slow consumer never lets memory
grow: the next block starts only when an earlier one has been let go. Which block comes next is the
caller's business; results always arrive in the order asked for, whatever finishes first, so what a
model learns depends on the data and the seed and on nothing else.

A :class:`Runner` is where the work is done: this process's threads or a cluster, in `runners`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from dask._task_spec import convert_legacy_graph, cull
from dask.base import optimize
from dask.utils import ensure_dict

from rfcdask.kernels.types import DaskArray

Fold = Callable[[Any, tuple[Any, ...], int], Any]
"""``fold(state, block, index) -> state``; must not change its arguments."""


class Blocks:
    """Row blocks of arrays that share their chunks along the rows.

    Parameters
    ----------
    *arrays : dask arrays
        The first two-dimensional with one block of columns, all with the same row chunks. The
        graph is optimised here, once, and cut into the part of each block on demand.
    """

    def __init__(self, *arrays: DaskArray) -> None:
        self.rows: tuple[int, ...] = tuple(int(size) for size in arrays[0].chunks[0])
        optimized = optimize(*arrays)
        self._arrays = arrays  # what is persisted on a cluster lives as long as its collection
        whole: dict[Any, Any] = {}
        for array in optimized:
            whole.update(ensure_dict(array.dask))
        self._graph: dict[Any, Any] = convert_legacy_graph(whole)
        self._names = [(array.name, array.ndim) for array in optimized]
        self.shared = self._shared_keys()
        self.nbytes = max(self.rows, default=0) * sum(_row_bytes(array) for array in arrays)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Blocks({len(self)} blocks, {sum(self.rows)} rows)"

    def keys(self, index: int) -> list[Any]:
        """Return the graph keys of one block, one an array."""
        return [(name, index, *(0,) * (ndim - 1)) for name, ndim in self._names]

    def graph(self, indices: Sequence[int]) -> dict[Any, Any]:
        """Return what is needed to compute some blocks and nothing else."""
        return self.culled([key for index in indices for key in self.keys(index)])

    def culled(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the part of the graph behind some keys."""
        part: dict[Any, Any] = cull(self._graph, list(keys))
        return dict(part)

    def _shared_keys(self) -> list[Any]:
        """Return what the first and the last block both need directly, such as a feature map.

        Runners compute it once and keep it; all other parts belong to single blocks.
        """
        if len(self.rows) < 2:
            return []
        first, last = set(self.graph([0])), set(self.graph([len(self) - 1]))
        common = first & last - set(self.keys(0)) - set(self.keys(len(self) - 1))
        users = (first | last) - common
        needed = {key for user in users for key in self._graph[user].dependencies}
        return sorted(common & needed, key=str)


def _row_bytes(array: DaskArray) -> int:
    width = 1
    for size in array.shape[1:]:
        width *= int(size)
    return width * int(array.dtype.itemsize)


class Runner(Protocol):
    """Where blocks are computed. Handles are opaque and must be released."""

    threads: int
    local: bool
    """Whether blocks are computed in this process."""

    def block(self, blocks: Blocks, index: int) -> Any:
        """Start computing one block and return its handle."""

    def fold(self, blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any) -> Any:
        """Start folding some blocks, one after another, into a state; return its handle."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Start ``function(*args)``, where handles among `args` stand for what they hold."""

    def result(self, handle: Any) -> Any:
        """Wait for a handle and return what it holds."""

    def wait(self, handle: Any) -> None:
        """Wait for a handle, without fetching what it holds and without raising what it raised."""

    def release(self, handle: Any) -> None:
        """Let go of what a handle holds."""

    def close(self) -> None:
        """Let go of everything."""


def stream_groups(
    runner: Runner, blocks: Blocks, groups: Sequence[Sequence[int]], ahead: int
) -> Iterator[tuple[int, list[Any]]]:
    """Yield ``(number, handles)`` of each group of blocks, in order.

    Besides the blocks of the group in use at most `ahead` more are computed or waiting. The
    blocks of a group are let go when the next group is asked for.
    """
    alive: deque[Any] = deque()
    order = itertools.chain.from_iterable(groups)
    try:
        for number, group in enumerate(groups):
            for index in itertools.islice(order, len(group) + ahead - len(alive)):
                alive.append(runner.block(blocks, index))
            yield number, list(itertools.islice(alive, len(group)))
            for _ in group:
                runner.release(alive.popleft())
    finally:
        for handle in alive:
            runner.release(handle)


def stream_blocks(
    runner: Runner, blocks: Blocks, order: Sequence[int], ahead: int | None = None
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield ``(index, block)`` in the given order, brought to the caller.

    At most ``ahead + 1`` blocks are alive: the one in use and, by default, one for each thread.
    """
    singles = [(index,) for index in order]
    ahead = runner.threads if ahead is None else ahead
    for number, (handle,) in stream_groups(runner, blocks, singles, ahead):
        yield singles[number][0], runner.result(handle)


def stream_folds(
    runner: Runner,
    blocks: Blocks,
    groups: Iterable[Sequence[int]],
    fold: Fold,
    state: Any,
) -> Iterator[Any]:
    """Yield the fold of each group of blocks, in order; each group starts from `state`.

    The blocks of a group are taken one after another by one task, so that one block a thread is
    in memory and only the folded state, which is small, travels.
    """
    alive: deque[Any] = deque()
    waiting = iter(groups)
    try:
        while True:
            for group in itertools.islice(waiting, runner.threads + 1 - len(alive)):
                alive.append(runner.fold(blocks, group, fold, state))
            if not alive:
                return
            yield runner.result(alive[0])
            runner.release(alive.popleft())
    finally:
        for handle in alive:
            runner.release(handle)


def consecutive_groups(n_blocks: int, size: int) -> list[range]:
    """Cut block numbers into runs of `size`."""
    return [range(i, min(i + size, n_blocks)) for i in range(0, n_blocks, size)]
