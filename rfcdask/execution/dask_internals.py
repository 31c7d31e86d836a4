"""Every private or undocumented name of Dask that this package relies on, and nothing else.

Dask may rename these in any release. ``tests/execution/test_dask_internals.py`` names each of them
and says which one is gone. Where there is a public interface, the rest of the package uses that.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.base import tokenize

if TYPE_CHECKING:
    from distributed import LocalCluster, SpecCluster

BUSY = ("executing", "long-running", "flight")
"""States of a worker's tasks in which something happens; they end by themselves."""


def start_on_loop(client: Any, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Start a coroutine on the client's event loop; the future can be waited for in pieces.

    ``Future.result(timeout=)`` starts fetching anew each time, so what takes longer than the
    timeout to send would never arrive.
    """
    return asyncio.run_coroutine_threadsafe(coroutine, client.loop.asyncio_loop)


def client_with_limit(target: Any, security: Any, timeout: float) -> Any:
    """Return a ``distributed.Client`` that is connected within `timeout` seconds, or raise OSError.

    Dask itself waits without limit for the first words of whoever has taken a connection, such as
    a scheduler that is stopped, or a server of another kind.
    """
    from distributed import Client

    class LimitedClient(Client):
        async def _ensure_connected(self, timeout: float | None = None) -> None:
            limit = None if timeout is None else timeout + 0.5  # Dask's own errors say more
            try:
                await asyncio.wait_for(super()._ensure_connected(timeout), limit)
            except TimeoutError as error:
                raise error if error.args else OSError("nothing is said there") from None
            except (MemoryError, struct.error):  # words that Dask takes for lengths
                raise OSError("what answers there is no Dask scheduler") from None

    LimitedClient.__name__ = Client.__name__
    return LimitedClient(target, security=security, timeout=timeout)


@contextmanager
def thread_for_others() -> Iterator[None]:
    """Give the thread of a task to other tasks while the block waits, as Dask's own waits do.

    What a task of a worker waits for may need that worker. Elsewhere nothing is done.
    """
    from distributed import get_worker, rejoin, secede

    try:
        get_worker()
        secede()
    except (ValueError, KeyError, AttributeError):  # no task, or one that has done so itself
        yield
        return
    try:
        yield
    finally:
        rejoin()


class WorkerInfo(NamedTuple):
    """What the scheduler knows of a worker; memory in bytes, a limit of 0 means none."""

    threads: int
    memory_limit: int
    memory: int
    status: str
    is_busy: bool


def worker_infos(client: Any, timeout: float | None) -> dict[str, WorkerInfo]:
    """Ask the scheduler for its workers; ``Client.scheduler_info`` hides that nobody answers."""
    known = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=timeout)
    return {address: _info(worker) for address, worker in known["workers"].items()}


def _info(worker: dict[str, Any]) -> WorkerInfo:
    metrics = worker.get("metrics", {})  # empty until the worker's first heartbeat
    counts, status = metrics.get("task_counts", {}), str(worker.get("status"))
    states = (*BUSY, "ready") if status == "running" else BUSY
    return WorkerInfo(
        threads=int(worker["nthreads"]),
        memory_limit=int(worker.get("memory_limit") or 0),
        memory=int(metrics.get("memory", 0)),
        status=status,
        is_busy=any(counts.get(state) for state in states),
    )


def scheduler_answers(client: Any, timeout: float) -> bool:
    """Tell whether the scheduler of a client is there."""
    if client.status != "running":
        return False
    try:
        client.sync(client.scheduler.identity, n_workers=0, callback_timeout=timeout)
    except (OSError, AttributeError):
        return False
    return True


def scheduler_address(client: Any) -> str:
    """Return the address of a client's scheduler, also when it is closed."""
    cluster = getattr(client, "cluster", None)
    scheduler = getattr(client, "scheduler", None)
    known = getattr(scheduler, "address", None) or getattr(cluster, "scheduler_address", None)
    return str(known or getattr(client, "_start_arg", "an unknown address"))


def versions(client: Any, packages: list[str], timeout: float) -> dict[str, Any]:
    """Call ``Client.get_versions`` with a time limit, which it lacks."""
    found: dict[str, Any] = client.sync(
        client._get_versions, packages=packages, callback_timeout=timeout
    )
    return found


def run_on_workers(
    client: Any, function: Callable[..., Any], *args: Any, timeout: float, **options: Any
) -> dict[str, Any]:
    """Call ``Client.run`` with a time limit, which it lacks."""
    found: dict[str, Any] = client.sync(
        client._run, function, *args, callback_timeout=timeout, **options
    )
    return found


def started_clusters() -> set[SpecCluster]:
    """Return the clusters that this process has started, also those that failed to start."""
    from distributed import SpecCluster

    return set(SpecCluster._instances)


def local_cluster_class() -> type[LocalCluster]:
    """Return a ``distributed.LocalCluster`` that closes, and leaves Ctrl-C to this process.

    A terminal sends it to every process that was started there: workers would print tracebacks,
    and be started again, while this process is about to end them.
    """
    from distributed import LocalCluster, Status

    class ClusterWithoutSignals(LocalCluster):
        async def _close(self) -> None:
            try:
                await super()._close()
            except AssertionError:  # of Dask, where a worker was being started again just then
                self.status = Status.failed  # else it waits for what has failed
                await super()._close()

        async def _start(self) -> None:
            if threading.current_thread() is not threading.main_thread():
                _block_signals_of_terminal()
            await super()._start()

    ClusterWithoutSignals.__name__ = LocalCluster.__name__
    return ClusterWithoutSignals


def _block_signals_of_terminal() -> None:
    """Keep them from this thread, and so from all processes that are started from it."""
    from multiprocessing import resource_tracker

    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        resource_tracker.ensure_running()  # lets SIGINT through again where it has to begin
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def forget_finished_work(cluster: LocalCluster) -> None:
    """Let the scheduler of a local cluster keep nothing of tasks that are done.

    Dask files every task under a span and keeps all spans until the scheduler ends, with their
    groups of tasks, times, and an entry for each submission (issue 7977 of distributed). Here only
    tasks in a span that somebody named (``distributed.span``) are filed.
    """
    from distributed.spans import SpansSchedulerExtension

    class NamedSpans(SpansSchedulerExtension):
        def observe_tasks(self, tss: Any, code: Any, span_metadata: Any) -> Any:
            named = [task for task in tss if (task.annotations or {}).get("span")]
            return super().observe_tasks(named, code, span_metadata)

        def heartbeat(self, ws: Any, data: Any) -> None:
            super().heartbeat(ws, {key: n for key, n in data.items() if key[1] in self.spans})

    scheduler: Any = cluster.scheduler
    scheduler.extensions["spans"] = NamedSpans(scheduler)


def release_keys(client: Any, keys: Iterable[Any]) -> None:
    """Tell the scheduler that a client wants some tasks no longer, of which it has no futures.

    Where a client forgets its futures as the scheduler restarts, tasks that it sent in that moment
    stay wanted for as long as it is connected.
    """
    message = {"op": "client-releases-keys", "keys": list(keys), "client": client.id}
    with suppress(*connection_errors()):
        client._send_to_scheduler(message)


def connection_errors() -> tuple[type[Exception], ...]:
    """Return what may be raised when the connection to a scheduler breaks: it has many names."""
    from concurrent.futures import CancelledError

    from distributed.client import ClosedClientError

    return OSError, CancelledError, RuntimeError, AttributeError, ClosedClientError


def lacks_kept_block(error: Exception) -> bool:
    """Tell whether a scheduler of this process found no block that a cluster keeps (persist)."""
    return isinstance(error, ValueError) and str(error).startswith("Missing dependency ")


def version_warning() -> type[Warning]:
    """Return the class of distributed's own table of differing versions."""
    from distributed.versions import VersionMismatchWarning

    return VersionMismatchWarning


def memory_of_machine() -> int:
    """Return the bytes this process may use, within the limits of a container."""
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT)


def places_of_blocks(chunks: tuple[tuple[int, ...], ...]) -> Any:
    """Return what ``dask.array.blockwise`` takes for the slices of each block in the array."""
    from dask.layers import ArraySliceDep

    return ArraySliceDep(chunks)


def values_in_graph(array: Any) -> Iterator[Any]:
    """Yield what the graph of a Dask array holds as it is: opened arrays, arguments of functions.

    What is within a task that was made by hand or fused is not looked for.
    """
    for layer in array.dask.layers.values():
        task = getattr(layer, "task", None)
        if task is None:
            yield from (getattr(node, "value", node) for node in layer.values())
        else:
            yield from (getattr(value, "value", value) for value, _ in layer.indices)
            yield from (task.kwargs or {}).values()


_FOUND_FILES = "_dataset_info_cache"


def token_of_frame(frame: Any) -> str:
    """Return what changes with a Dask DataFrame, and is the same in another process.

    The token of ``dask.dataframe.read_parquet`` is another one in each: it is made of an opened
    file too. All else that it is made of counts here, with size and time of the files.
    """
    expression = getattr(frame, "expr", None)
    if expression is None or not any(map(_reads_parquet, expression.walk())):
        return str(tokenize(frame))
    return str(tokenize(_parts(expression)))


def _reads_parquet(node: Any) -> bool:
    return _FOUND_FILES in getattr(node, "_parameters", ())


def _parts(node: Any) -> Any:
    if isinstance(node, list | tuple):
        return [_parts(one) for one in node]
    if not hasattr(node, "_parameters"):
        return node
    known, more = list(node.operands), None
    if _reads_parquet(node):
        del known[node._parameters.index(_FOUND_FILES)]
        more = node.checksum
    return [type(node).__name__, more, _parts(known)]


def layer_options(array: Any) -> dict[str, Any]:
    """Return the keyword arguments of the function that makes the blocks of a Dask array.

    Empty where `array` is not the result of ``dask.array.map_blocks`` itself.
    """
    task = getattr(array.dask.layers.get(array.name), "task", None)
    return dict(getattr(task, "kwargs", None) or {})
