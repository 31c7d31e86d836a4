"""Row blocks of Dask arrays, each with its part of the graph, and streams of them.

Which block comes next is the caller's business; it arrives in that order, whatever finishes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property, wraps
from itertools import chain, islice
from pickle import dumps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dask.base import is_dask_collection, optimize
from dask.core import get_dependencies
from dask.task_spec import GraphNode
from dask.utils import ensure_dict

from rfcdask.execution.dask_internals import layer_options
from rfcdask.execution.executor import Executor, Fold, Handle, open_executor
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import DaskArray, IntArray

if TYPE_CHECKING:
    from distributed import Client

Graph = dict[Any, Any]
Kind = TypeVar("Kind", bound=type)
LEAST_FOLDS = 64
"""Runs of blocks that are folded apart, at least, where there are as many blocks."""
SMALL = 2**18
"""Bytes of what all blocks need, such as a feature map, up to which each task has its own copy."""


def given(value: Any) -> Any:
    """Return a value as it is: the task that hands it to all blocks."""
    return value


def first_rows(X: DaskArray) -> IntArray:
    """Return the number of the first row of each block, and of the row after the last."""
    return np.cumsum([0, *X.chunks[0]]).astype(np.int64)


class Blocks:
    """Row blocks of arrays that share their chunks along the rows.

    Parameters
    ----------
    *arrays : dask arrays or None
        The first two-dimensional with one block of columns, all with the same row chunks; None
        stands for one that is not there. The graph is optimised here, once, and cut into the part
        of each block on demand.

    Attributes
    ----------
    rows : tuple of int
        Rows of each block.
    shared : list of keys
        What several blocks need, such as a feature map: an executor computes it once.
    nbytes : int
        Bytes of the largest block.
    """

    def __init__(self, *arrays: DaskArray | None) -> None:
        given = [array for array in arrays if array is not None]
        self.rows: tuple[int, ...] = tuple(int(size) for size in given[0].chunks[0])
        optimized = optimize(*given)
        self._arrays = given  # what is persisted on a cluster lives as long as its collection
        self._graph: Graph = {}
        for array in optimized:
            self._graph.update(ensure_dict(array.dask))
        self._names = [(array.name, array.ndim) for array in optimized]
        self.shared = self._shared_keys()
        self.nbytes = max(self.rows, default=0) * sum(_row_bytes(array) for array in given)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Blocks({len(self)} blocks, {sum(self.rows)} rows)"

    def keys(self, index: int) -> list[Any]:
        """Return the graph keys of one block, one per array."""
        return [(name, index, *(0,) * (ndim - 1)) for name, ndim in self._names]

    def graph(self, indices: Sequence[int]) -> Graph:
        """Return what is needed to compute some blocks and nothing else."""
        return self.culled([key for index in indices for key in self.keys(index)])

    def culled(self, keys: Iterable[Any], without: Container[Any] = ()) -> Graph:
        """Return the part of the graph behind some keys, up to those that are left out.

        Blocks that are persisted on a cluster are known there by their keys and not in the graph,
        which ``dask.optimization.cull`` refuses.
        """
        part: Graph = {}
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key in self._graph and key not in part and key not in without:
                part[key] = self._graph[key]
                waiting += get_dependencies(self._graph, key)
        return part

    def own(self, index: int) -> Graph:
        """Return the tasks of one block that nothing else needs: one task may do all of them."""
        found: Graph = {}
        waiting = list(self.keys(index))
        while waiting:
            key = waiting.pop()
            task = self._graph.get(key)
            if self._uses[key] == 1 and isinstance(task, GraphNode):
                found[key] = task
                waiting += task.dependencies
        return found

    @cached_property
    def carried(self) -> Graph:
        """What all blocks need, where it is so small that each task should have a copy of it.

        Dask sends a task to where its inputs lie, and to other workers only when it sees them idle.
        """
        tasks = self.culled(self.shared)
        if not all(getattr(task, "func", None) is given for task in tasks.values()):
            return {}
        return tasks if len(dumps(tasks)) <= SMALL else {}

    @cached_property
    def _uses(self) -> Counter[Any]:
        """How many tasks need each task of the graph, and blocks that it is part of."""
        needed = (get_dependencies(self._graph, key) for key in self._graph)
        blocks = (self.keys(index) for index in range(len(self)))
        return Counter(chain(chain.from_iterable(needed), chain.from_iterable(blocks)))

    def _shared_keys(self) -> list[Any]:
        """Return what the first and the last block both need directly.

        All other parts belong to single blocks.
        """
        if len(self.rows) < 2:
            return []
        first, last = set(self.graph([0])), set(self.graph([len(self) - 1]))
        common = first & last - set(self.keys(0)) - set(self.keys(len(self) - 1))
        users = (first | last) - common
        needed = {key for user in users for key in get_dependencies(self._graph, user)}
        return sorted(common & needed, key=str)


def consecutive_groups(n_blocks: int, size: int) -> list[range]:
    """Cut block numbers into runs of `size`."""
    return [range(i, min(i + size, n_blocks)) for i in range(0, n_blocks, size)]


def stream_groups(
    executor: Executor,
    blocks: Blocks,
    groups: Sequence[Sequence[int]],
    ahead: int,
    held: dict[int, Handle] | None = None,
    apart: bool = False,
) -> Iterator[tuple[int, list[Handle]]]:
    """Yield ``(number, handles)`` of each group of blocks, in order.

    Besides the blocks of the group in use at most `ahead` more are computed or waiting. The
    blocks of a group are let go when the next group is asked for. Blocks that are `held` are not
    computed again; all of them are let go in the end. With `apart` each handle is for one call.
    """
    held = {} if held is None else held
    read = executor.unread if apart else executor.block
    started = (
        held.pop(index) if index in held else read(blocks, index)
        for group in groups
        for index in group
    )
    try:
        yield from enumerate(executor.in_groups(started, map(len, groups), ahead))
    finally:
        while held:
            executor.release(held.popitem()[1])


def stream_rounds(
    executor: Executor,
    blocks: Blocks,
    groups: Sequence[Sequence[int]],
    at_once: int,
    ahead: int,
    held: dict[int, Handle] | None = None,
) -> Iterator[tuple[int, list[list[Handle]]]]:
    """Yield the number of the first of `at_once` groups, and the handles of each of them.

    Otherwise as :func:`stream_groups`; there may be fewer groups in the end. Several groups are
    for tasks side by side, each of which reads its own blocks.
    """
    rounds = [groups[i : i + at_once] for i in range(0, len(groups), at_once)]
    together = [[index for group in some for index in group] for some in rounds]
    apart = at_once > 1
    for number, handles in stream_groups(executor, blocks, together, ahead, held, apart):
        rest = iter(handles)
        yield number * at_once, [list(islice(rest, len(group))) for group in rounds[number]]


def stream_and_hold(
    executor: Executor, blocks: Blocks, indices: Sequence[int], n_held: int, apart: bool = False
) -> tuple[Iterator[tuple[int, Handle]], dict[int, Handle]]:
    """Return a stream of ``(index, handle)`` and what it holds: the first `n_held` of the blocks.

    They come last, and are not let go: `stream_groups` takes them as they are. `apart` as there.
    """
    held: dict[int, Handle] = {}

    def stream() -> Iterator[tuple[int, Handle]]:
        others = [(index,) for index in indices[n_held:]]
        threads, read = executor.threads, executor.unread if apart else executor.block
        for number, (handle,) in stream_groups(executor, blocks, others, threads, apart=apart):
            yield others[number][0], handle
        held.update((index, read(blocks, index)) for index in indices[:n_held])
        yield from list(held.items())

    return stream(), held


def stream_folds(
    executor: Executor,
    blocks: Blocks,
    groups: Iterable[Sequence[int]],
    fold: Fold,
    state: Any,
) -> Iterator[Any]:
    """Yield the fold of each group of blocks, in order; each group starts from `state`.

    The blocks of a group are taken one after another by one task, so that one block per thread is
    in memory and only the folded state, which is small, travels.
    """
    started = (executor.fold(blocks, group, fold, state) for group in groups)
    at_once = executor.threads + 1 if executor.local else 2 * executor.threads
    yield from executor.in_order(started, at_once)


def fold_blocks(
    arrays: Sequence[DaskArray | None],
    fold: Fold,
    state: Any,
    client: Client | None,
    label: str,
    *,
    group_size: int = 1,
    progress: Any = None,
) -> Iterator[Any]:
    """Yield the fold of each run of row blocks, in order, and report the rows done.

    A run has at most `group_size` blocks, and fewer where that would leave workers without one.
    """
    blocks = Blocks(*arrays)
    groups = consecutive_groups(len(blocks), min(group_size, -(-len(blocks) // LEAST_FOLDS)) or 1)
    with (
        open_executor(client) as executor,
        track(label, float(sum(blocks.rows)), "rows", progress=progress) as reporter,
    ):
        parts = stream_folds(executor, blocks, groups, fold, state)
        for group, part in zip(groups, parts, strict=True):
            yield part
            reporter.advance(sum(blocks.rows[index] for index in group))


def _row_bytes(array: DaskArray) -> int:
    known = getattr(layer_options(array).get("reader"), "row_bytes", None)
    if array.ndim == 2 and known is not None:
        return int(known)  # of sparse rows in a store the dense size would be far too large
    width = 1
    for size in array.shape[1:]:
        width *= int(size)
    return width * int(array.dtype.itemsize)


def lazy_on_dask(kind: Kind) -> Kind:
    """Let `transform` and `fit_transform` of a class return what is lazy as it is.

    With ``set_output(transform="pandas")`` scikit-learn makes a data frame of whatever comes out,
    and of a lazy array it would make one of all rows in memory.
    """
    for name in ("transform", "fit_transform"):
        setattr(kind, name, _lazily(getattr(kind, name)))
    return kind


def _lazily(wrapped: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(wrapped, "__wrapped__", wrapped)  # without what scikit-learn put around it

    @wraps(wrapped)
    def method(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = plain if is_dask_collection(X) else wrapped
        return chosen(self, X, *args, **kwargs)

    return method
