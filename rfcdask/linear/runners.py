"""The two places where a stream of blocks is computed: this process's threads, or a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
import dask.array as da
import dask.local
from dask.base import get_scheduler
from dask.task_spec import DataNode, Task, TaskRef

from rfcdask.execution.compute import (
    RETRIES,
    cluster_errors,
    current_client,
    drop,
    fetch,
    threads_of,
    wait_until_done,
)
from rfcdask.kernels.threads import available_cpus, one_blas_thread
from rfcdask.linear.stream import Blocks, Fold, Runner

EXTRA = 1
"""Threads beyond one a core: while one waits for its store, the others compute."""


@contextmanager
def open_runner(client: Any = None) -> Iterator[Runner]:
    """Choose where to work: the given client, the current one, else Dask's local scheduler."""
    chosen = current_client(client)
    runner = ThreadRunner(_local_threads()) if chosen is None else ClusterRunner(chosen)
    try:
        with cluster_errors(chosen):
            yield runner
    finally:
        runner.close()


def _local_threads() -> int:
    """Return how many threads the local scheduler may use; 0 means the caller's own only."""
    if get_scheduler(cls=da.Array) is dask.local.get_sync:
        return 0
    return int(dask.config.get("num_workers", None) or available_cpus())


def _pack(*arrays: Any) -> tuple[Any, ...]:
    return arrays


class ThreadRunner:
    """Computes blocks on a pool of threads of this process, with one BLAS thread each.

    Calls run in the caller's thread, so a model is trained there while the pool prepares the
    next blocks. With no threads everything runs in the caller's thread, for debugging.
    """

    local = True

    def __init__(self, threads: int) -> None:
        self.threads = max(threads, 1)
        self._stack = ExitStack()
        self._stack.enter_context(one_blas_thread())
        self._pool = ThreadPoolExecutor(threads + EXTRA, "rfcdask-block") if threads else None
        self._kept: dict[int, tuple[Blocks, dict[Any, Any]]] = {}

    def block(self, blocks: Blocks, index: int) -> Future[Any]:
        """Start computing one block."""
        return self._submit(_compute_block, blocks, index, self._shared(blocks))

    def fold(self, blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any) -> Future[Any]:
        """Start folding some blocks into a state."""
        return self._submit(_fold_blocks, blocks, indices, fold, state, self._shared(blocks))

    def call(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call the function now, in this thread."""
        values = [arg.result() if isinstance(arg, Future) else arg for arg in args]
        return _done(function, *values)

    def result(self, handle: Future[Any]) -> Any:
        """Wait for a handle."""
        return handle.result()

    def wait(self, handle: Future[Any]) -> None:
        """Wait for a handle, whatever becomes of it."""
        handle.exception()

    def release(self, handle: Future[Any]) -> None:
        """Cancel what has not begun; what is done goes with its last reference."""
        handle.cancel()

    def close(self) -> None:
        """Stop the pool without starting what is still queued."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._stack.close()

    def _shared(self, blocks: Blocks) -> dict[Any, Any]:
        """Return what all blocks need, computed when the first of them asks."""
        if id(blocks) not in self._kept:
            values = dask.local.get_sync(blocks.culled(blocks.shared), blocks.shared)
            made = {k: DataNode(k, v) for k, v in zip(blocks.shared, values, strict=True)}
            self._kept[id(blocks)] = (blocks, made)
        return self._kept[id(blocks)][1]

    def _submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        if self._pool is None:
            return _done(function, *args)
        return self._pool.submit(function, *args)


def _done(function: Callable[..., Any], *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


def _compute_block(blocks: Blocks, index: int, shared: dict[Any, Any]) -> tuple[Any, ...]:
    graph = blocks.graph([index]) | shared
    return tuple(dask.local.get_sync(graph, blocks.keys(index)))


def _fold_blocks(
    blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any, shared: dict[Any, Any]
) -> Any:
    for index in indices:
        state = fold(state, _compute_block(blocks, index, shared), index)
    return state


def _in_one_blas_thread(function: Callable[..., Any], *args: Any) -> Any:
    with one_blas_thread():
        return function(*args)


class ClusterRunner:
    """Sends the graphs of blocks to the workers of a distributed client.

    Every task may be tried again: it reads its inputs and returns something new. Handles hold
    the graph of what they stand for, so a lost worker means computing its blocks again.
    """

    local = False

    def __init__(self, client: Any) -> None:
        self.client = client
        self.threads = threads_of(client)
        self._block_bytes = 0
        self._token = uuid.uuid4().hex[:12]
        self._count = 0
        self._kept: dict[int, tuple[Blocks, dict[Any, Any]]] = {}

    def block(self, blocks: Blocks, index: int) -> Any:
        """Start computing one block."""
        key = self._key("block")
        graph = blocks.graph([index]) | self._shared(blocks)
        graph[key] = Task(key, _pack, *map(TaskRef, blocks.keys(index)))
        return self._send(graph, key)

    def fold(self, blocks: Blocks, indices: Sequence[int], fold: Fold, state: Any) -> Any:
        """Start a chain of tasks, each folding one block into the state of the one before."""
        graph = blocks.graph(indices) | self._shared(blocks)
        key = self._key("fold")
        graph[key] = DataNode(key, state)
        for index in indices:
            before, key = key, self._key("fold")
            block = Task(self._key("block"), _pack, *map(TaskRef, blocks.keys(index)))
            graph[block.key] = block
            graph[key] = Task(
                key, _in_one_blas_thread, fold, TaskRef(before), TaskRef(block.key), index
            )
        return self._send(graph, key)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Start a call where its handles lie, before any block that is still waiting."""
        return self.client.submit(
            _in_one_blas_thread,
            function,
            *args,
            key=self._key("call"),
            pure=False,
            priority=10,
            retries=RETRIES,
        )

    def result(self, handle: Any) -> Any:
        """Wait for a handle and fetch what it holds."""
        return fetch(handle, self.client, self._block_bytes)

    def wait(self, handle: Any) -> None:
        """Wait for a handle and leave what it holds where it is."""
        wait_until_done(handle, self.client)

    def release(self, handle: Any) -> None:
        """Let the scheduler forget a handle."""
        drop(handle)

    def close(self) -> None:
        """Let go of what all blocks shared."""
        for _, shared in self._kept.values():
            for future in shared.values():
                drop(future)
        self._kept.clear()

    def _shared(self, blocks: Blocks) -> dict[Any, Any]:
        """Return futures of what all blocks need: sent once, however many blocks there are."""
        if id(blocks) not in self._kept:
            self._block_bytes = blocks.nbytes
            keys = blocks.shared
            futures = (
                self.client.get(blocks.culled(keys), keys, sync=False, retries=RETRIES)
                if keys
                else []
            )
            self._kept[id(blocks)] = (blocks, dict(zip(keys, futures, strict=True)))
        return self._kept[id(blocks)][1]

    def _key(self, what: str) -> str:
        self._count += 1
        return f"rfcdask-{what}-{self._token}-{self._count}"

    def _send(self, graph: dict[Any, Any], key: str) -> Any:
        # No worker is named: a task that prefers one, even loosely, is never started again by
        # the scheduler once all workers have been away for a moment and others have come.
        return self.client.get(graph, [key], sync=False, retries=RETRIES)[0]
