"""Sending work to a cluster, waiting for it and saying what went wrong: all of it is here.

A wait ends by a result or by an error. While the cluster works there is no limit; once none of its
workers has worked for ``rfcdask.no-worker-timeout`` the wait ends with a :class:`NoWorkersError`. A
scheduler that is gone is a :class:`ClusterLostError`, workers that died over a task a MemoryError.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import dask
from dask.utils import format_bytes, parse_timedelta

RETRIES = 3
"""How often a task that only reads or computes is tried again on a cluster."""
NO_WORKER_TIMEOUT = "5 minutes"
"""How long to wait for a cluster that does nothing (``rfcdask.no-worker-timeout``)."""
LOOK_EVERY = 2.0
"""Seconds of waiting after which to look whether the cluster is still at work."""
ANSWER_WITHIN = 10.0
"""Seconds within which a scheduler answers that is there."""
BUSY = ("executing", "long-running", "flight")
"""States of a worker's tasks in which something happens; they end by themselves."""

_GO_ON = (
    "call the same again: what is written or in a checkpoint stays (rfcdask run --resume for a run)"
)


class ClusterLostError(ConnectionError):
    """The scheduler is gone, does not answer, or has dropped the work."""


class NoWorkersError(TimeoutError):
    """No worker of the cluster has worked for longer than ``rfcdask.no-worker-timeout``."""


class WorkerDiedError(MemoryError):
    """Workers died under a task again and again, which nearly always means memory."""


def current_client(client: Any = None) -> Any:
    """Return `client`, else the current distributed client, else None. Starts nothing."""
    if client is not None:
        return client
    if "distributed" not in sys.modules or _chose_another_scheduler():
        return None
    from distributed import Client

    try:
        return Client.current()
    except ValueError:
        return None


def _chose_another_scheduler() -> bool:
    """Tell whether Dask's configuration names a scheduler; a default client writes itself there."""
    return dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed")


def compute(collection: Any, client: Any = None) -> Any:
    """Compute one Dask collection where the caller or the surroundings say.

    Raises
    ------
    MemoryError
        When workers died over a task, which is nearly always for want of memory.
    """
    chosen = current_client(client)
    if chosen is None:
        return collection.compute()
    with cluster_errors(chosen):
        future = chosen.compute(collection, retries=RETRIES)
    return fetch(future, chosen, _block_bytes(collection))


def _block_bytes(collection: Any) -> float:
    if not hasattr(type(collection), "nbytes"):  # a delayed value says yes to every name
        return 0
    return float(collection.nbytes) / max(int(collection.npartitions), 1)


def fetch(future: Any, client: Any, block_bytes: float = 0) -> Any:
    """Wait for a future of a cluster and return what it holds.

    Parameters
    ----------
    future : distributed.Future
    client : distributed.Client
        The one that made it.
    block_bytes : float
        What a block holds, for the message when workers die over it.

    Raises
    ------
    MemoryError
        When workers died over the task.
    NoWorkersError
        When no worker worked for longer than ``rfcdask.no-worker-timeout``.
    ClusterLostError
        When the scheduler is gone.
    """
    return _ask(_result, future, client, block_bytes)


def wait_until_done(future: Any, client: Any) -> None:
    """Wait for a future of a cluster, and neither fetch what it holds nor raise what it raised."""
    _ask(_exception, future, client)


def drop(future: Any) -> None:
    """Let the scheduler forget a future, also one that is gone."""
    with suppress(AttributeError, RuntimeError):  # what a closed client raises
        future.release()


async def _result(future: Any) -> Any:
    return await future


async def _exception(future: Any) -> Any:
    return await future.exception()


def _ask(question: Callable[[Any], Any], future: Any, client: Any, block_bytes: float = 0) -> Any:
    with cluster_errors(client, block_bytes):
        if client.status == "closed":
            raise ClusterLostError(_gone(client))
        asked = asyncio.run_coroutine_threadsafe(question(future), client.loop.asyncio_loop)
        try:
            _watch(asked, client)
        except BaseException:
            asked.cancel()
            raise
        return asked.result()


def _watch(asked: Any, client: Any) -> None:
    """Wait for an answer, and look now and then whether anybody is working on it."""
    with ExitStack() as shown:
        idle_since, bar, seen = 0.0, None, set[str]()
        while not wait([asked], LOOK_EVERY).done:
            workers, now = workers_of(client), time.monotonic()
            seen |= set(workers)
            if any(map(_is_busy, workers.values())):
                shown.close()
                idle_since, bar = 0.0, None
                continue
            idle_since = idle_since or now
            limit = _patience()
            if now - idle_since > limit:
                raise NoWorkersError(_nobody_works(client, workers, len(seen), limit))
            bar = bar or shown.enter_context(_waiting(limit))
            bar.advance(LOOK_EVERY)


def _is_busy(worker: dict[str, Any]) -> bool:
    counts = worker.get("metrics", {}).get("task_counts", {})
    ready = ("ready",) if worker.get("status") == "running" else ()
    return any(counts.get(state) for state in (*BUSY, *ready))


def _waiting(limit: float) -> Any:
    from rfcdask.execution.progress import track  # which shows the dashboard of the current client

    return track("waiting for workers", limit if limit < float("inf") else None, "s")


def _patience() -> float:
    chosen = dask.config.get("rfcdask.no-worker-timeout", NO_WORKER_TIMEOUT)
    return float("inf") if chosen is None else float(parse_timedelta(chosen))


def workers_of(client: Any) -> dict[str, dict[str, Any]]:
    """Return what the scheduler knows of each worker, by address."""
    limit = _patience()
    with cluster_errors(client):
        try:
            known = client.sync(
                client.scheduler.identity,
                n_workers=-1,
                callback_timeout=None if limit == float("inf") else max(limit, LOOK_EVERY),
            )
        except TimeoutError as error:
            raise ClusterLostError(
                f"The Dask scheduler at {_address(client)} has not answered for {limit:g} s; "
                f"restart it and {_GO_ON}."
            ) from error
    workers: dict[str, dict[str, Any]] = known["workers"]
    return workers


def threads_of(client: Any) -> int:
    """Return how many threads the workers have together; one at least."""
    return max(sum(int(worker["nthreads"]) for worker in workers_of(client).values()), 1)


@contextmanager
def cluster_errors(client: Any, block_bytes: float = 0) -> Iterator[None]:
    """Say in the words of this package what the block raises when a cluster fails."""
    try:
        yield
    except (ClusterLostError, NoWorkersError, WorkerDiedError):
        raise
    except Exception as error:
        if client is None:
            raise
        said = _translated(error, client, block_bytes)
        if said is None:
            raise
        raise said from error


def _translated(error: Exception, client: Any, block_bytes: float) -> Exception | None:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return WorkerDiedError(_died(block_bytes))
    if _says_nothing_of_the_work(error) and not _answers(client):
        return ClusterLostError(_gone(client))
    if isinstance(error, CancelledError):
        return ClusterLostError(
            f"The work sent to the cluster at {_address(client)} was dropped there "
            f"({getattr(error, 'reason', 'unknown')}); {_GO_ON}."
        )
    return None


def _says_nothing_of_the_work(error: Exception) -> bool:
    """Tell whether an error may come of the connection: what is raised then has many names."""
    from distributed.client import ClosedClientError

    kinds = (OSError, CancelledError, RuntimeError, AttributeError, ClosedClientError)
    return isinstance(error, kinds)


def _answers(client: Any) -> bool:
    if client.status != "running":
        return False
    try:
        client.sync(client.scheduler.identity, n_workers=0, callback_timeout=ANSWER_WITHIN)
    except (OSError, AttributeError):
        return False
    return True


def _address(client: Any) -> str:
    cluster = getattr(client, "cluster", None)
    scheduler = getattr(client, "scheduler", None)
    known = getattr(scheduler, "address", None) or getattr(cluster, "scheduler_address", None)
    return str(known or getattr(client, "_start_arg", "an unknown address"))


def _gone(client: Any) -> str:
    return (
        f"The Dask scheduler at {_address(client)} is gone, and with it the work under way; start "
        f"it again, or take another cluster, and {_GO_ON}."
    )


def _nobody_works(
    client: Any, workers: dict[str, dict[str, Any]], n_seen: int, limit: float
) -> str:
    address = _address(client)
    found = f"{len(workers)} workers, none of which works" if workers else "no worker"
    if any(worker.get("status") == "paused" for worker in workers.values()):
        found += ", some paused for want of memory"
    elif n_seen > len(workers) + 1:  # one that was there before and is gone says nothing
        found += f" ({n_seen} came and went, as they do when a block does not fit their memory)"
    return (
        f"The cluster at {address} has had {found} for {limit:g} s while work waits; start workers "
        f"(dask worker {address}), with more memory if they were paused or died, and {_GO_ON}. To "
        "wait longer set rfcdask.no-worker-timeout in Dask's configuration."
    )


def _died(block_bytes: float) -> str:
    size = f" (about {format_bytes(int(block_bytes))} each)" if block_bytes else ""
    return (
        f"Workers died while computing blocks{size}, most likely out of memory; use smaller "
        "blocks (X.rechunk), fewer threads a worker, or workers with more memory."
    )
