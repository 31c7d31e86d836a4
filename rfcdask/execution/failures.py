"""Waiting for a cluster, and what can go wrong there in the words of this package.

A wait ends by a result or by an error. While the cluster works there is no limit; once none of its
workers has worked for ``rfcdask.no-worker-timeout`` it ends with a :class:`NoWorkersError`. A
scheduler that is gone is a :class:`ClusterLostError`, workers that died over a task are a
:class:`WorkerDiedError`. Each names the place and the remedy.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import dask
from dask.utils import format_bytes, parse_timedelta

from rfcdask.execution import dask_internals
from rfcdask.execution.dask_internals import WorkerInfo, scheduler_address
from rfcdask.execution.progress import track

if TYPE_CHECKING:
    from distributed import Client

NO_WORKER_TIMEOUT = "5 minutes"
"""How long to wait for a cluster that does nothing (``rfcdask.no-worker-timeout``)."""
LOOK_EVERY = 2.0
"""Seconds of waiting after which to look whether the cluster is still at work."""
ANSWER_WITHIN = 10.0
"""Seconds within which a scheduler that is there answers."""

_AGAIN = (
    "call the same again: what is written or in a checkpoint stays (rfcdask run --resume for a run)"
)


class ClusterLostError(ConnectionError):
    """The scheduler is gone, does not answer, or has dropped the work."""


class NoWorkersError(TimeoutError):
    """No worker of the cluster has worked for longer than ``rfcdask.no-worker-timeout``."""


class WorkerDiedError(MemoryError):
    """Workers died under a task again and again, which nearly always means memory."""


@contextmanager
def cluster_errors(client: Client | None, block_bytes: float = 0) -> Iterator[None]:
    """Translate what the block raises when the cluster behind `client` fails.

    `block_bytes` is the size of a block, for the message when workers die over it.
    """
    try:
        yield
    except (ClusterLostError, NoWorkersError, WorkerDiedError):
        raise
    except Exception as error:
        translated = None if client is None else _translated(error, client, block_bytes)
        if translated is None:
            raise
        raise translated from error


def _translated(error: Exception, client: Client, block_bytes: float) -> Exception | None:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        size = f" (about {format_bytes(int(block_bytes))} each)" if block_bytes else ""
        return WorkerDiedError(
            f"Workers died while computing blocks{size}, most likely out of memory; use smaller "
            "blocks (X.rechunk), fewer threads per worker, or workers with more memory."
        )
    # The errors of a broken connection are raised by healthy work too: ask the scheduler.
    broken = isinstance(error, dask_internals.connection_errors())
    if broken and not dask_internals.scheduler_answers(client, ANSWER_WITHIN):
        return _cluster_lost(client)
    if isinstance(error, CancelledError):
        return ClusterLostError(
            f"The work sent to the cluster at {scheduler_address(client)} was dropped there "
            f"({getattr(error, 'reason', 'unknown')}); {_AGAIN}."
        )
    return None


def _cluster_lost(client: Client) -> ClusterLostError:
    return ClusterLostError(
        f"The Dask scheduler at {scheduler_address(client)} is gone, and with it the work under "
        f"way; start it again, or take another cluster, and {_AGAIN}."
    )


def _no_workers(
    client: Client, workers: dict[str, WorkerInfo], n_seen: int, limit: float
) -> NoWorkersError:
    """Say what `workers` did in `limit` seconds, in which there were `n_seen` different ones."""
    address = scheduler_address(client)
    found = f"{len(workers)} workers, none of which works" if workers else "no worker"
    if any(worker.status == "paused" for worker in workers.values()):
        found += ", some paused for want of memory"
    elif n_seen > len(workers) + 1:  # one that was there before and is gone says nothing
        found += f" ({n_seen} came and went, as they do when a block does not fit their memory)"
    return NoWorkersError(
        f"The cluster at {address} has had {found} for {limit:g} s while work waits; start workers "
        f"(dask worker {address}), with more memory if they were paused or died, and {_AGAIN}. To "
        "wait longer set rfcdask.no-worker-timeout in Dask's configuration."
    )


def _no_worker_timeout() -> float:
    chosen = dask.config.get("rfcdask.no-worker-timeout", NO_WORKER_TIMEOUT)
    try:
        return float("inf") if chosen is None else float(parse_timedelta(chosen))
    except (KeyError, ValueError, TypeError):
        raise ValueError(
            f"rfcdask.no-worker-timeout={chosen!r} in Dask's configuration is no time such as "
            f"{NO_WORKER_TIMEOUT!r}."
        ) from None


def workers_of(client: Client) -> dict[str, WorkerInfo]:
    """Return what the scheduler knows of each worker, by address."""
    limit = _no_worker_timeout()
    with cluster_errors(client):
        try:
            return dask_internals.worker_infos(
                client, None if limit == float("inf") else max(limit, LOOK_EVERY)
            )
        except TimeoutError as error:
            raise ClusterLostError(
                f"The Dask scheduler at {scheduler_address(client)} has not answered for "
                f"{limit:g} s; restart it and {_AGAIN}."
            ) from error


def threads_of(client: Client) -> int:
    """Return how many threads the workers have together; one at least."""
    return max(sum(worker.threads for worker in workers_of(client).values()), 1)


def fetch(future: Any, client: Client, block_bytes: float = 0) -> Any:
    """Wait for a future that `client` made and return what it holds.

    Raises
    ------
    WorkerDiedError
        A MemoryError: workers died over the task. `block_bytes` is for its message.
    NoWorkersError
        No worker worked for longer than ``rfcdask.no-worker-timeout``.
    ClusterLostError
        The scheduler is gone.
    """

    async def result() -> Any:
        return await future

    return _wait_for(result(), client, block_bytes)


def wait_until_done(future: Any, client: Client) -> None:
    """Wait for a future of a cluster, and neither fetch what it holds nor raise what it raised."""

    async def exception() -> Any:
        return await future.exception()

    _wait_for(exception(), client)


def _wait_for(answer: Coroutine[Any, Any, Any], client: Client, block_bytes: float = 0) -> Any:
    with cluster_errors(client, block_bytes):
        if client.status == "closed":
            answer.close()
            raise _cluster_lost(client)
        asked = dask_internals.start_on_loop(client, answer)
        try:
            _watch(asked, client)
        except BaseException:
            asked.cancel()
            raise
        return asked.result()


def _watch(asked: Future[Any], client: Client) -> None:
    """Wait for an answer, and look now and then whether anybody is working on it."""
    with ExitStack() as shown:
        idle_since, bar, seen = 0.0, None, set[str]()
        while not wait([asked], LOOK_EVERY).done:
            workers, now = workers_of(client), time.monotonic()
            seen |= set(workers)
            if any(worker.is_busy for worker in workers.values()):
                shown.close()
                idle_since, bar = 0.0, None
                continue
            idle_since = idle_since or now
            limit = _no_worker_timeout()
            if now - idle_since > limit:
                raise _no_workers(client, workers, len(seen), limit)
            total = limit if limit < float("inf") else None
            bar = bar or shown.enter_context(track("waiting for workers", total, "s"))
            bar.advance(LOOK_EVERY)
