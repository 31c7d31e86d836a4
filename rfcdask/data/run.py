"""Running independent tasks with a bounded number of them in flight, results in order."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from dask.delayed import delayed

from rfcdask.execution.compute import RETRIES, cluster_errors, drop, fetch, threads_of
from rfcdask.kernels.threads import available_cpus

MOST_THREADS = 4
"""Each thread holds about three blocks while it writes one; this bounds their sum."""


def run_tasks(
    tasks: Iterable[Any],
    client: Any = None,
    *,
    at_once: int | None = None,
    block_bytes: float = 0,
) -> Iterator[Any]:
    """Compute Dask delayed values, `at_once` at a time, and give their results in order.

    Parameters
    ----------
    tasks : iterable of Delayed
        Taken one by one, when there is room for another.
    client : distributed.Client, optional
        Where to compute; without one, threads of this process.
    at_once : int, optional
        How many tasks may be in flight; by default two a worker thread, or the local threads.
    block_bytes : float
        What a task holds, for the message when workers die over it.
    """
    if client is None:
        limit = at_once or min(available_cpus(), MOST_THREADS)
        with ThreadPoolExecutor(limit) as pool:
            yield from _window(
                tasks,
                lambda task: pool.submit(_compute_here, task),
                Future.result,
                Future.cancel,
                limit,
            )
        return
    limit = at_once or 2 * threads_of(client)

    def send(task: Any) -> Any:
        with cluster_errors(client):
            return client.compute(task, retries=RETRIES)

    def result(future: Any) -> Any:
        return fetch(future, client, block_bytes)

    yield from _window(tasks, send, result, drop, limit)


def call_later(function: Callable[..., Any], *args: Any) -> Any:
    """Return a delayed call; the arguments are passed as they are, not searched for tasks."""
    return delayed(partial(function, *args), name=_name(function), pure=False, traverse=False)()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__name__}-{uuid.uuid4().hex}"


def _compute_here(task: Any) -> Any:
    return task.compute(scheduler="sync")


def _window(
    tasks: Iterable[Any],
    submit: Callable[[Any], Any],
    result: Callable[[Any], Any],
    let_go: Callable[[Any], Any],
    limit: int,
) -> Iterator[Any]:
    flying: deque[Any] = deque()
    try:
        for task in tasks:
            flying.append(submit(task))
            if len(flying) >= limit:
                yield result(flying.popleft())
        while flying:
            yield result(flying.popleft())
    finally:
        for future in flying:
            let_go(future)
