"""Sending tasks and waiting for them, on threads of this process or on a cluster: all of it.

At most a window of tasks is in flight, so a slow consumer never lets memory grow, and results
arrive in the order asked for, whatever finishes first: what is learned from them depends on the
data and the seed and on nothing else. A wait ends by a result or by an error of `failures`.
"""

# ruff: noqa: D102 (the methods are documented in the base class)
from __future__ import annotations

import itertools
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import dask
from dask.delayed import delayed
from dask.local import get_sync
from dask.task_spec import DataNode, Task, TaskRef

from rfcdask.execution import cluster
from rfcdask.execution.dask_internals import release_keys
from rfcdask.execution.failures import cluster_errors, fetch, threads_of, wait_until_done
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import DaskArray
from rfcdask.kernels.runtime import one_blas_thread, reuse_freed_memory, task_threads

if TYPE_CHECKING:
    from distributed import Client

    from rfcdask.execution.blocks import Blocks, Graph

RETRIES = 3
"""How often a task is tried again on a cluster; every task reads its inputs and returns anew."""
EXTRA_THREADS = 1
"""Threads beyond one per core: while one waits for its store, the others compute."""
FOLD_BYTES = 2**24
"""Blocks of a fold up to this size together are computed by one task of a cluster."""
MOST_THREADS = 4
"""Local threads of `run_tasks`: each holds about three blocks while it writes one."""

Handle = Any
"""Stands for a result: a future of `concurrent.futures` or of a cluster."""
Fold = Callable[[Any, tuple[Any, ...], int], Any]
"""``fold(state, block, index) -> state``; must not change its arguments."""


def compute(collection: Any, client: Client | None = None) -> Any:
    """Compute a Dask collection on the given or the current cluster, else by Dask's scheduler."""
    chosen = cluster.current_client(client)
    if chosen is None:
        with cluster_errors(None):
            return collection.compute(**cluster.own_scheduler())
    block_bytes = 0.0
    if hasattr(type(collection), "nbytes"):  # a delayed value says yes to every name
        block_bytes = float(collection.nbytes) / max(int(collection.npartitions), 1)
    with _opened(chosen, block_bytes) as executor:
        return executor.result(executor.compute(collection))


def call_later(function: Callable[..., Any], *args: Any) -> Any:
    """Return a delayed call; the arguments are passed as they are, not searched for tasks."""
    name = f"{function.__name__}-{uuid.uuid4().hex}"
    return delayed(partial(function, *args), name=name, pure=False, traverse=False)()


def run_tasks(
    tasks: Iterable[Any],
    client: Client | None = None,
    *,
    at_once: int | None = None,
    block_bytes: float = 0,
) -> Iterator[Any]:
    """Compute Dask delayed values, `at_once` at a time, and yield their results in order.

    Parameters
    ----------
    tasks : iterable of Delayed
        Taken one by one, when there is room for another.
    client : distributed.Client, optional
        Where to compute; None means threads of this process, also where a client is current.
    at_once : int, optional
        How many tasks may be in flight; by default two per thread of the workers, or the local
        threads, of which no more than four are used.
    block_bytes : float
        Bytes that a task holds, for the message when workers die over it.
    """
    with _opened(client, block_bytes) as executor:
        started = map(executor.compute, tasks)
        most = min(executor.threads, MOST_THREADS) if executor.local else 2 * executor.threads
        yield from executor.in_order(started, at_once or most)


def map_tasks(
    function: Callable[..., Any],
    items: Sequence[Any],
    client: Client | None = None,
    *,
    common: tuple[Any, ...] = (),
    label: str,
    unit: str = "tasks",
    progress: Any = None,
    block_bytes: float = 0,
) -> Iterator[Any]:
    """Yield ``function(*common, item)`` of each item, in order, and report the progress.

    Each call has one BLAS thread, and there are as many at once as there are threads (twice that
    on a cluster).

    Parameters
    ----------
    function, items : callable, sequence
    client : distributed.Client, optional
        Where to compute: the given client, the current one, else threads of this process.
    common : tuple
        What all calls need; sent to a cluster once, and again should its worker die.
    label, unit : str
        What is being done and counted, as the progress should say it.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.
    block_bytes : float
        Bytes that a call holds, for the message when workers die over it.
    """
    with (
        track(label, len(items), unit, progress=progress) as reporter,
        _opened(cluster.current_client(client), block_bytes) as executor,
    ):
        held = executor.hold(*common)
        started = (executor.submit(_call_with, function, held, item) for item in items)
        at_once = executor.threads if executor.local else 2 * executor.threads
        for result in executor.in_order(started, at_once):
            yield result
            reporter.advance()


def _call_with(function: Callable[..., Any], common: tuple[Any, ...], item: Any) -> Any:
    return function(*common, item)


@contextmanager
def open_executor(client: Client | None = None) -> Iterator[Executor]:
    """Choose where to work: the given client, the current one, else threads of this process."""
    with _opened(cluster.current_client(client)) as executor:
        yield executor


@contextmanager
def _opened(client: Client | None, block_bytes: float = 0) -> Iterator[Executor]:
    executor = ThreadExecutor() if client is None else ClusterExecutor(client, block_bytes)
    try:
        with cluster_errors(client, block_bytes):
            yield executor
    finally:
        executor.close()


class Executor(ABC):
    """Where tasks are computed. Handles are opaque and must be released."""

    threads: int
    """How many tasks are computed at the same time."""
    local: bool
    """Whether they are computed in this process."""

    @abstractmethod
    def compute(self, task: Any) -> Handle:
        """Start computing a Dask delayed value."""

    @abstractmethod
    def submit(self, function: Callable[..., Any], *args: Any) -> Handle:
        """Start ``function(*args)``, where handles among `args` stand for what they hold."""

    @abstractmethod
    def call(self, function: Callable[..., Any], *args: Any) -> Handle:
        """Like `submit`, but before everything that waits; locally now and in this thread."""

    @abstractmethod
    def block(self, blocks: Blocks, index: int) -> Handle:
        """Start computing one block and return its handle."""

    def unread(self, blocks: Blocks, index: int) -> Handle:
        """Return a handle of one block for one `call`, whose task may compute the block itself."""
        return self.block(blocks, index)

    @abstractmethod
    def fold(self, blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any) -> Handle:
        """Start folding some blocks, one after another, into a state; return its handle."""

    @abstractmethod
    def keep(self, array: DaskArray) -> DaskArray:
        """Return a lazy array whose blocks are in memory until this is closed, at least."""

    @abstractmethod
    def result(self, handle: Handle) -> Any:
        """Wait for a handle and return what it holds."""

    @abstractmethod
    def wait(self, handle: Handle) -> None:
        """Wait for a handle, without fetching what it holds and without raising what it raised."""

    @abstractmethod
    def release(self, handle: Handle) -> None:
        """Let go of what a handle holds."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def hold(self, *values: Any) -> Handle:
        """Return a handle of some values, which are sent to a cluster once, as one task."""
        # Dask warns of large values in graphs because they are usually sent many times.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            return self.submit(_pack, *values)

    def in_order(self, started: Iterable[Handle], at_once: int) -> Iterator[Any]:
        """Yield the results of handles in order; the next is started when one is let go."""
        for (handle,) in self.in_groups(started, itertools.repeat(1), at_once - 1):
            yield self.result(handle)

    def in_groups(
        self, started: Iterable[Handle], sizes: Iterable[int], ahead: int
    ) -> Iterator[list[Handle]]:
        """Yield handles in order, in groups of the given sizes.

        Besides those of the group in use at most `ahead` more are in flight. The handles of a
        group are released when the next group is asked for.
        """
        alive: deque[Handle] = deque()
        handles = iter(started)
        try:
            for size in sizes:
                alive.extend(itertools.islice(handles, size + ahead - len(alive)))
                if size and not alive:
                    return
                yield list(itertools.islice(alive, size))
                for _ in range(size):
                    self.release(alive.popleft())
        finally:
            for handle in alive:
                self.release(handle)


def _pack(*values: Any) -> tuple[Any, ...]:
    return values


class ThreadExecutor(Executor):
    """Computes on a pool of threads of this process, with one BLAS thread each.

    Calls run in the caller's thread, so a model is trained there while the pool prepares the
    next blocks. Dask's synchronous scheduler, or one of the user's own, works in the caller's
    thread only.
    """

    local = True

    def __init__(self) -> None:
        threads = cluster.local_threads()
        self.threads = max(threads, 1)
        self._get = cluster.local_scheduler() or get_sync
        self._stack = ExitStack()
        self._stack.enter_context(one_blas_thread())
        self._pool = ThreadPoolExecutor(threads + EXTRA_THREADS, "rfcdask") if threads else None
        self._shared_of: dict[Blocks, Graph] = {}

    def compute(self, task: Any) -> Future[Any]:
        return self._start(partial(task.compute, scheduler=self._get))

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._start(_call, function, args)

    def call(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        with task_threads(self.threads):
            return _done(_call, function, args)

    def block(self, blocks: Blocks, index: int) -> Future[Any]:
        return self._start(self._block, blocks, index, self._shared(blocks))

    def fold(self, blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any) -> Future[Any]:
        return self._start(self._fold, blocks, indices, fold, state, self._shared(blocks))

    def keep(self, array: DaskArray) -> DaskArray:
        return array.persist(**cluster.own_scheduler())

    def result(self, handle: Future[Any]) -> Any:
        return handle.result()

    def wait(self, handle: Future[Any]) -> None:
        handle.exception()

    def release(self, handle: Future[Any]) -> None:
        handle.cancel()  # what is done goes with its last reference

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._stack.close()

    def _block(self, blocks: Blocks, index: int, shared: Graph) -> tuple[Any, ...]:
        return tuple(self._get(blocks.graph([index]) | shared, blocks.keys(index)))

    def _fold(
        self, blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any, shared: Graph
    ) -> Any:
        for index in indices:
            state = fold(state, self._block(blocks, index, shared), index)
        return state

    def _shared(self, blocks: Blocks) -> Graph:
        """Return what all blocks need, computed when the first of them asks."""
        if blocks not in self._shared_of:
            values = self._get(blocks.culled(blocks.shared), blocks.shared)
            made = {k: DataNode(k, v) for k, v in zip(blocks.shared, values, strict=True)}
            self._shared_of[blocks] = made
        return self._shared_of[blocks]

    def _start(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        if self._pool is None:
            return _done(function, *args)
        return self._pool.submit(function, *args)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(*(arg.result() if isinstance(arg, Future) else arg for arg in args))


def _done(function: Callable[..., Any], *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


def _in_one_blas_thread(function: Callable[..., Any], *args: Any) -> Any:
    from distributed import get_worker

    reuse_freed_memory()
    with one_blas_thread(), task_threads(int(get_worker().state.nthreads)):
        return function(*args)


class ClusterExecutor(Executor):
    """Sends tasks to the workers of a distributed client.

    Handles hold the graph of what they stand for, so a lost worker means computing its blocks
    again. No worker is named: a task that prefers one, even loosely, is never started again by the
    scheduler once all workers have been away for a moment and others have come.
    """

    local = False

    def __init__(self, client: Client, block_bytes: float = 0) -> None:
        self.client = client
        self.threads = threads_of(client)
        self._block_bytes = block_bytes
        self._token = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)
        self._shared_of: dict[Blocks, Graph] = {}
        self._generation = client.generation
        self._wanted, self._alive = set[Any](), WeakValueDictionary[int, Any]()

    def compute(self, task: Any) -> Handle:
        return self._sent([self.client.compute(task, retries=RETRIES)])[0]

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0) -> Handle:
        key, options = self._key("call"), {"pure": False, "retries": RETRIES, "priority": priority}
        future = self.client.submit(_in_one_blas_thread, function, *args, key=key, **options)
        return self._sent([future])[0]

    def call(self, function: Callable[..., Any], *args: Any) -> Handle:
        return self.submit(function, *args, priority=10)

    def block(self, blocks: Blocks, index: int) -> Handle:
        key = self._key("block")
        graph = blocks.graph([index]) | self._shared(blocks)
        graph[key] = Task(key, _pack, *map(TaskRef, blocks.keys(index)))
        return self._send(graph, [key])[0]

    def unread(self, blocks: Blocks, index: int) -> Handle:
        # Dask sends a task to where its inputs lie: of blocks that one worker has read, all would
        # be learned from there. Those that are kept lie where they lie.
        shared = self._shared(blocks)
        graph = blocks.culled(blocks.keys(index), without=shared)
        if not graph.keys() >= set(blocks.keys(index)):
            return self.block(blocks, index)
        key = self._key("block")
        return Task.fuse(*graph.values(), Task(key, _pack, *map(TaskRef, blocks.keys(index))))

    def fold(self, blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any) -> Handle:
        # A chain of tasks, each of which computes one block and folds it into the state of the one
        # before: read by others, blocks would travel, and in any order. Small ones go together.
        shared = self._shared(blocks)
        at_once = max(1, FOLD_BYTES // max(blocks.nbytes, 1))
        graph: Graph = {}
        parts, key, before = dict(blocks.carried), "", state
        for number, index in enumerate(indices, start=1):
            block = Task(self._key("block"), _pack, *map(TaskRef, blocks.keys(index)))
            key, call = self._key("fold"), (_in_one_blas_thread, fold, before, TaskRef(block.key))
            parts |= blocks.own(index) | {block.key: block, key: Task(key, *call, index)}
            before = TaskRef(key)
            if number % at_once == 0 or number == len(indices):
                graph[key] = Task.fuse(*parts.values())
                parts = dict(blocks.carried)
        needed = {name for task in graph.values() for name in task.dependencies}
        return self._send(graph | blocks.culled(needed, without=shared) | shared, [key])[0]

    def keep(self, array: DaskArray) -> DaskArray:
        from distributed import futures_of

        kept = self.client.persist(array, retries=RETRIES)
        self._sent(futures_of(kept))
        return kept

    def result(self, handle: Handle) -> Any:
        return fetch(handle, self.client, self._block_bytes)

    def wait(self, handle: Handle) -> None:
        wait_until_done(handle, self.client)

    def release(self, handle: Handle) -> None:
        with suppress(AttributeError, RuntimeError):  # of a closed client, and of what is unread
            handle.release()
            if self.client.generation == self._generation:
                self._wanted.discard(handle.key)

    def close(self) -> None:
        # Tracebacks hold futures, and a failed task that is wanted has its old error for the same
        # work when that is sent again.
        for future in list(self._alive.values()):
            self.release(future)
        if self.client.generation != self._generation:
            # Restarted meanwhile: futures of before tell the scheduler nothing, and it would keep,
            # compute again and have an old error of what it was sent just then.
            release_keys(self.client, self._wanted)

    def _shared(self, blocks: Blocks) -> Graph:
        """Return futures of what all blocks need: sent once, however many blocks there are."""
        if blocks not in self._shared_of:
            self._block_bytes = blocks.nbytes
            keys = [] if blocks.carried else blocks.shared
            futures = self._send(blocks.culled(keys), keys) if keys else []
            self._shared_of[blocks] = dict(zip(keys, futures, strict=True))
        return self._shared_of[blocks]

    def _key(self, what: str) -> str:
        return f"rfcdask-{what}-{self._token}-{next(self._numbers)}"

    def _send(self, graph: Graph, keys: list[Any]) -> list[Handle]:
        return self._sent(self.client.get(graph, keys, sync=False, retries=RETRIES))

    def _sent(self, futures: list[Handle]) -> list[Handle]:
        self._wanted.update(future.key for future in futures)
        self._alive.update((id(future), future) for future in futures)
        return futures
