"""Running independent tasks with a bounded number of them in flight, results in order."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dask.delayed import delayed

from rfcdask.compute import RETRIES
from rfcdask.threads import available_cpus

MOST_THREADS = 4
"""Each thread holds about three blocks while it writes one; this bounds their sum."""


def run_tasks(
    tasks: Iterable[Any], client: Any = None, *, at_once: int | None = None
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
    """
    if client is None:
        limit = at_once or min(available_cpus(), MOST_THREADS)
        with ThreadPoolExecutor(limit) as pool:
            yield from _window(tasks, lambda task: pool.submit(_compute_here, task), limit)
        return
    limit = at_once or max(2, 2 * sum(client.nthreads().values()))
    try:
        yield from _window(tasks, lambda task: client.compute(task, retries=RETRIES), limit)
    except Exception as error:
        if type(error).__name__ == "KilledWorker":
            raise WorkerDiedError(str(error)) from error
        raise


class WorkerDiedError(Exception):
    """Workers died under a task again and again, which nearly always means memory."""


def call_later(function: Callable[..., Any], *args: Any) -> Any:
    """Return a delayed call; the arguments are passed as they are, not searched for tasks."""
    return delayed(partial(function, *args), name=_name(function), pure=False, traverse=False)()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__name__}-{uuid.uuid4().hex}"


def _compute_here(task: Any) -> Any:
    return task.compute(scheduler="sync")


def _window(tasks: Iterable[Any], submit: Callable[[Any], Any], limit: int) -> Iterator[Any]:
    flying: deque[Any] = deque()
    try:
        for task in tasks:
            flying.append(submit(task))
            if len(flying) >= limit:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        for future in flying:
            future.cancel()
