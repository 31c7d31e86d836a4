"""What can go wrong with a cluster, in the words of this package: waiting for it, connecting to it.

A wait ends by a result or by an error. While the cluster works there is no limit; once none of its
workers has worked for ``rfcdask.no-worker-timeout`` it ends with a :class:`NoWorkersError`. A
scheduler that is gone is a :class:`ClusterLostError`, workers that died over a task are a
:class:`WorkerDiedError`. Each names the place and the remedy. The second half looks at
a cluster before work is sent there: its workers, their versions, and how it speaks TLS.
"""

from __future__ import annotations

import pkgutil
import ssl
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dask.utils import format_bytes

from rfcdask.execution import dask_internals
from rfcdask.execution.configuration import configured_seconds
from rfcdask.execution.dask_internals import WorkerInfo, scheduler_address
from rfcdask.execution.progress import track

if TYPE_CHECKING:
    from distributed import Client, Security

NO_WORKER_TIMEOUT = "5 minutes"
"""How long to wait for a cluster that does nothing (``rfcdask.no-worker-timeout``)."""
LOOK_EVERY = 2.0
"""Seconds of waiting after which to look whether the cluster is still at work."""
ANSWER_WITHIN = 10.0
"""Seconds within which a scheduler that is there answers."""

PACKAGES = ("rfcdask", "dask", "distributed", "numpy", "scipy", "scikit-learn", "numba", "zarr")
ANSWER_SECONDS = 60
"""How long workers may take to answer a question."""
_SHORT = {"ca_file": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
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
    """Translate what the block raises when the cluster behind `client` fails, or is missed.

    `block_bytes` is the size of a block, for the message when workers die over it.
    """
    try:
        yield
    except (ClusterLostError, NoWorkersError, WorkerDiedError):
        raise
    except Exception as error:
        translated = _translated(error, client, block_bytes)
        if translated is None:
            raise
        raise translated from error


def _translated(error: Exception, client: Client | None, block_bytes: float) -> Exception | None:
    if client is None:
        return _kept_elsewhere() if dask_internals.lacks_kept_block(error) else None
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
        if getattr(error, "reason", "") == "lost dependencies":
            return ClusterLostError(
                f"The cluster at {scheduler_address(client)} lacks blocks that the work needs; "
                "make anew what was persisted on another cluster, or before a restart, "
                f"and {_AGAIN}."
            )
        return ClusterLostError(
            f"The work sent to the cluster at {scheduler_address(client)} was dropped there "
            f"({getattr(error, 'reason', 'unknown')}); {_AGAIN}."
        )
    return None


def _kept_elsewhere() -> ValueError:
    return ValueError(
        "The array was persisted on a cluster, whose blocks are not at hand here; give client= of "
        "that cluster, or work within client.as_current(), while it lasts, or make the array anew."
    )


def _cluster_lost(client: Client) -> ClusterLostError:
    return ClusterLostError(
        f"The Dask scheduler at {scheduler_address(client)} is gone, or this client of it was "
        "closed, and with it the work under way; start it again if it does not run, connect anew, "
        f"to it or to another cluster, and {_AGAIN}."
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
    return configured_seconds("no-worker-timeout", NO_WORKER_TIMEOUT)


def workers_of(client: Client, within: float | None = None) -> dict[str, WorkerInfo]:
    """Return what the scheduler knows of each worker, by address.

    It may take `within` seconds to answer; by default as long as workers may be away.
    """
    if client.asynchronous:
        raise TypeError(
            "The client is asynchronous, and this call would keep its event loop from working: "
            "call it in a thread (await asyncio.to_thread(...)), or use a client without "
            "asynchronous=True."
        )
    limit = _no_worker_timeout() if within is None else within
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
            with dask_internals.thread_for_others():
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


def check_workers(client: Client, address: str, seconds: float) -> None:
    """Warn when nobody would do the work; clusters that grow on demand have no worker at first."""
    deadline = time.monotonic() + seconds
    # Dask's own wait never ends at a scheduler that stops meanwhile.
    while all(worker.status != "running" for worker in workers_of(client, ANSWER_WITHIN).values()):
        if time.monotonic() > deadline:
            warnings.warn(
                f"The scheduler at {address} has no workers yet; work waits until some arrive "
                f"(dask worker {address}).",
                stacklevel=5,
            )
            return
        time.sleep(0.1)


def check_versions(client: Client) -> None:
    """Warn in a sentence when workers run other versions; raise when they cannot do the work.

    Raises
    ------
    RuntimeError
        When rfcdask on a worker is of another minor version: tasks mean something else there.
    ModuleNotFoundError
        When no rfcdask can be imported on a worker.
    """
    found = _answered(client, dask_internals.versions, list(PACKAGES))
    ours = found["client"]["packages"]
    theirs = {worker: info["packages"] for worker, info in found["workers"].items() if info}
    _check_rfcdask(client, ours, theirs)
    differing = [_difference(name, ours, theirs) for name in ("python", *PACKAGES)]
    said = ", ".join(text for text in differing if text)
    if said:
        warnings.warn(
            f"The workers run other versions than this process: {said}; install the same ones on "
            "both sides, or results may differ and tasks fail.",
            stacklevel=5,
        )


def _check_rfcdask(client: Client, ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> None:
    """Ask for what is imported, which counts, where packages' records say what is installed."""
    from rfcdask._version import __version__

    ours["rfcdask"] = __version__
    # A function of the standard library: one of our own could not be sent to who lacks them.
    name = "rfcdask._version:__version__"
    imported = ask_workers(client, pkgutil.resolve_name, name)
    for worker, version in imported.items():
        if not isinstance(version, str):
            raise ModuleNotFoundError(
                f"The worker {worker} has no rfcdask installed; install rfcdask {__version__} in "
                "the environment or image of the workers."
            )
        if version.split(".")[:2] != __version__.split(".")[:2]:
            raise RuntimeError(
                f"The worker {worker} runs rfcdask {version} and this process {__version__}; "
                "install the same version in the environment or image of the workers."
            )
        theirs.setdefault(worker, {})["rfcdask"] = version


def _difference(name: str, ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> str:
    here = _shortened(name, ours.get(name))
    # A worker that came between two questions has answered the second one only.
    told = [packages[name] for packages in theirs.values() if name in packages]
    there = {_shortened(name, version) for version in told} - {here}
    return f"{name} {' and '.join(sorted(there))} (here {here})" if there else ""


def _shortened(name: str, version: Any) -> str:
    if version is None:
        return "missing"
    return ".".join(str(version).split(".")[:3]) if name == "python" else str(version)


def ask_workers(client: Client, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Return what a function returns, or raises, on each worker, by address; see ``Client.run``.

    A worker that is lost before it has answered is none.
    """
    ask = dask_internals.run_on_workers
    answers = _answered(client, ask, function, *args, on_error="return")
    return {worker: said for worker, said in answers.items() if not isinstance(said, OSError)}


def _answered(client: Client, question: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Put a question to all workers, of which one may be stopped or cut off."""
    try:
        with cluster_errors(client):
            return question(client, *args, timeout=ANSWER_SECONDS, **options)
    except TimeoutError:
        raise ConnectionError(
            f"Not all workers of {dask_internals.scheduler_address(client)} answered within "
            f"{ANSWER_SECONDS} s; see in the dashboard which, and end or restart them."
        ) from None


def other_protocol(address: str, seconds: float = 3.0) -> str:
    """Return what to do when a scheduler speaks TLS and the address does not, or the reverse."""
    try:
        parts, port = urlsplit(address), urlsplit(address).port
    except ValueError:
        return "its port is no number from 0 to 65535"
    if parts.scheme not in ("tcp", "tls") or not port:
        return ""
    tls = _speaks_tls(str(parts.hostname), port, seconds)
    if tls is None or tls == (parts.scheme == "tls"):
        return ""
    if tls:
        return f"it speaks TLS: give tls://{parts.netloc} and its certificates (security=)"
    return f"it does not speak TLS: give tcp://{parts.netloc}"


def _speaks_tls(host: str, port: int, seconds: float) -> bool | None:
    """Say hello in TLS, trusting nobody and sending nothing; None when nobody answers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with create_connection((host, port), timeout=seconds) as plain:
            try:
                with context.wrap_socket(plain):
                    return True
            except ssl.SSLError as error:
                # An alert is an answer in TLS: it wants a certificate that is not shown here.
                return "alert" in str(error).lower() or "ALERT" in (error.reason or "")
            except TimeoutError:  # a scheduler of either kind says something: this one is stopped
                return None
            except OSError:  # it hangs up: no TLS
                return False
    except OSError:
        return None


def make_security(given: Security | Mapping[str, Any] | None, address: str = "") -> Any:
    """Return a `distributed.Security` of an object, a dict of paths, or Dask's configuration.

    Raises
    ------
    ValueError
        When `address` wants TLS and there is no certificate to trust.
    FileNotFoundError
        When a certificate that was named is not there.
    """
    from distributed import Security

    if not isinstance(given, Security | Mapping | None):
        raise TypeError(
            f"security is a {type(given).__name__}; give a distributed.Security or a dict of "
            "paths: ca_file, cert, key."
        )
    made: Any = given or Security()  # its fields have no types
    if isinstance(given, Mapping):
        made = _security_of_paths(given)
    for key in _SHORT.values():  # Dask's own error does not tell which of its settings it means
        if (path := getattr(made, key)) is not None:
            _check_certificate(key, path)
    if address.startswith("tls://") and None in (made.tls_ca_file, made.tls_client_cert):
        raise ValueError(
            f"{address} wants TLS and no certificates are known; pass security={{'ca_file': ..., "
            "'cert': ..., 'key': ...}, or set distributed.comm.tls.ca-file, .client.cert and "
            ".client.key in Dask's configuration."
        )
    return made


def _security_of_paths(given: Mapping[str, Any]) -> Security:
    from distributed import Security

    named = {_SHORT.get(key, key): value for key, value in given.items()}
    unknown = set(named) - set(Security.__slots__)
    if unknown:
        raise ValueError(
            f"security: {sorted(unknown)[0]!r} is not known; use the keys ca_file, cert and key."
        )
    paths = {k: str(v) if isinstance(v, Path) else v for k, v in named.items()}
    for key, path in paths.items():
        if key.startswith("tls_") and key.endswith(("file", "cert", "key")):
            _check_certificate(key, path)
    return Security(**{"require_encryption": True, **paths})


def _check_certificate(key: str, path: Any) -> None:
    if not isinstance(path, str):
        raise TypeError(f"security: {key} is a {type(path).__name__}, and no path of a file.")
    if "\n" in path:  # the text of a certificate may stand for its file
        return
    if "-----BEGIN" in path or len(path) > 1000:  # a key, perhaps: it is not shown
        raise ValueError(
            f"security: the text given as {key} has lost its line ends, as in a variable of the "
            "environment; give it with them, or the path of its file."
        )
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"security: there is no certificate or key file {path!r}, which {key} names, here or "
            "in Dask's configuration as distributed.comm.tls: give the path of one."
        )
