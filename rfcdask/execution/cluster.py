"""Where the work is done: local worker processes, threads, or a cluster that is already there."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask.config
from dask.local import get_sync
from dask.utils import parse_bytes, parse_timedelta

from rfcdask.execution.configuration import MOST_SECONDS, as_number
from rfcdask.execution.dask_internals import (
    client_with_limit,
    forget_finished_work,
    local_cluster_class,
    started_clusters,
    version_warning,
)
from rfcdask.execution.failures import check_versions, check_workers, make_security, other_protocol
from rfcdask.kernels.runtime import ONE_HEAP, available_cpus
from rfcdask.persist.untrusted import redacted, require_plain

TIMEOUT = "10s"
"""How long to try to reach a scheduler."""
START_SECONDS = 60.0
"""How long to wait for the workers of a local cluster."""
WORKER_SECONDS = 5.0
"""How long to wait for the first worker before saying that there is none."""
RESTART = "1 day"
"""How long a local worker that died may take to come back. Long, as Dask looks after that time
whether it is there: one that has died again just then would be closed for good."""
CORES_PER_WORKER = 4
"""A worker process costs 250 MB before it does anything and the hot loops let go of the GIL."""
DASHBOARD = "127.0.0.1:0"
_ADDRESS = re.compile(r"[^/\\\s]+:\d+")


class Connection(AbstractContextManager[Any]):
    """What `connect` returns: it begins with the ``with`` statement, and says so without one."""

    def __init__(self, work: AbstractContextManager[Any]) -> None:
        self._work, self._begun = work, False

    def __enter__(self) -> Any:
        if self._begun:
            raise RuntimeError("this connection was used before: call rfcdask.connect again.")
        self._begun = True
        return self._work.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._work.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no {name!r} yet: {_WITH}", name=name, obj=self)

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(f"nothing is connected: {_WITH}", stacklevel=2)


_WITH = (
    "rfcdask.connect lasts as long as a with statement, so write 'with rfcdask.connect(...) as "
    "client:' around the work; a distributed.Client of your own is used as it is."
)


def connect(
    where: Any = "local",
    *,
    n_workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: str | int | float | None = None,
    security: Any = None,
    timeout: str | float = TIMEOUT,
    dashboard_address: str = DASHBOARD,
) -> Connection:
    """Work on a cluster, or on the threads of this process, while the block runs.

    What was started here is closed at the end, also after an error or Ctrl-C. A cluster that was
    there before is left as it is.

    Parameters
    ----------
    where : str, path, cluster, client or None, default="local"
        ``"local"`` starts worker processes on this machine; ``"threads"`` uses threads of this
        process and no cluster; an address (``"tcp://host:8786"``, ``"tls://host:8786"``) or the
        path of a scheduler file goes to a running scheduler, as does a Dask cluster object. A
        client is the current one meanwhile. None takes ``DASK_SCHEDULER_ADDRESS`` of the
        environment or ``scheduler-address`` of Dask's configuration, else ``"local"``.
    n_workers : int, optional
        Worker processes of a local cluster; by default one for every four cores.
    threads_per_worker : int, optional
        Threads of each, or of this process with ``"threads"``; by default all cores are used.
    memory_limit : str, int or float, optional
        Memory of each local worker, such as ``"2GB"``; by default the machine's is shared out.
    security : distributed.Security, dict, or True, optional
        How to speak TLS: a ready object, or paths ``{"ca_file": ..., "cert": ..., "key": ...}``.
        Otherwise Dask's configuration (``distributed.comm.tls``) counts. True gives a local
        cluster certificates of its own.
    timeout : str or float, default="10s"
        How long to try to reach a running scheduler, and to wait for its file to be written.
    dashboard_address : str
        Where a local cluster shows its dashboard; any free port of this machine by default.

    Returns
    -------
    Connection
        For a ``with`` statement, which gives the client, also the current one; None with
        ``"threads"``.

    Examples
    --------
    >>> import rfcdask as rf
    >>> with rf.connect("threads") as client:
    ...     client is None
    True
    """
    own = (n_workers, threads_per_worker, memory_limit)
    return Connection(_connected(where, *own, security, timeout, dashboard_address))


@contextmanager
def _connected(
    where: Any,
    n_workers: int | None,
    threads_per_worker: int | None,
    memory_limit: Any,
    security: Any,
    timeout: str | float,
    dashboard_address: str,
) -> Iterator[Any]:
    target = chosen_scheduler(where)
    with ExitStack() as stack:
        if isinstance(target, str) and target == "threads":
            yield stack.enter_context(_threads(n_workers, threads_per_worker))
        elif isinstance(target, str) and target == "local":
            local = _local_cluster(
                n_workers, threads_per_worker, memory_limit, security, dashboard_address
            )
            yield stack.enter_context(_client(stack.enter_context(local), None, START_SECONDS))
        elif not n_workers is threads_per_worker is memory_limit is None:
            raise ValueError(
                "n_workers, threads_per_worker and memory_limit describe a local cluster; a "
                "running one has its own: leave them out."
            )
        elif hasattr(target, "scheduler_info") and hasattr(target, "submit"):  # a client
            stack.callback(_forget_closed_clients)
            stack.enter_context(target.as_current())
            yield target
        else:
            yield stack.enter_context(_remote_client(target, security, timeout))


def current_client(client: Any = None) -> Any:
    """Return `client`, else the current distributed client, else None. Starts nothing."""
    if client is not None:
        if not hasattr(client, "submit"):
            raise TypeError(f"client={client!r} is no distributed.Client: see rfcdask.connect.")
        return client
    # A default client writes itself into Dask's configuration; another scheduler there counts more.
    chosen = dask.config.get("scheduler", None)
    if "distributed" not in sys.modules or chosen not in (None, "dask.distributed", "distributed"):
        return None
    from distributed import Client

    try:
        return Client.current()
    except ValueError:
        return None


def chosen_scheduler(where: Any, default: str = "local") -> Any:
    """Return where to compute: as given, else as the environment or Dask's configuration says."""
    if where is not None:
        return where
    chosen = os.environ.get("DASK_SCHEDULER_ADDRESS") or dask.config.get("scheduler-address", None)
    return chosen or default


def share_threads(where: Any, threads: int | None) -> dict[str, Any]:
    """Return the arguments with which :func:`connect` takes so many threads here in all."""
    if threads is None:
        return {}
    if where == "threads":
        return {"threads_per_worker": threads}
    if where == "local":
        workers = max(1, round(threads / CORES_PER_WORKER))
        return {"n_workers": workers, "threads_per_worker": -(-threads // workers)}
    raise ValueError(
        f"threads={threads} is for work on this machine, but the scheduler {redacted(str(where))} "
        "has its own workers."
    )


@contextmanager
def _threads(n_workers: int | None, threads: int | None) -> Iterator[None]:
    if n_workers not in (None, 1):
        raise ValueError(
            f"n_workers={n_workers} does not go with 'threads'; give threads_per_worker instead."
        )
    _require_counts(threads_per_worker=threads)
    with dask.config.set(scheduler="threads", num_workers=threads or available_cpus()):
        yield None


@contextmanager
def _local_cluster(
    n_workers: int | None,
    threads: int | None,
    memory_limit: str | int | float | None,
    security: Any,
    dashboard_address: str,
) -> Iterator[Any]:
    _refuse_unguarded_script()
    kind = local_cluster_class()
    workers, threads = size_of_cluster(n_workers, threads)
    more = {} if memory_limit is None else {"memory_limit": _checked_memory(memory_limit)}
    with _one_heap_each(), _closing_what_failed_to_start():
        cluster = kind(
            n_workers=workers,
            threads_per_worker=threads,
            processes=True,
            dashboard_address=dashboard_address,
            security=True if security is True else make_security(security),
            **more,
        )
    forget_finished_work(cluster)
    # By default the cluster gives a worker up for good that takes 15 s to restart, as on a busy
    # machine, and then nobody is left to do the work.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": RESTART}), cluster:
        yield cluster


def _one_heap_each() -> Any:
    """Let the threads of each worker that is started share what they free, unless set otherwise.

    Each of ten threads that read and decode blocks would keep some: 100 MiB of blocks long gone.
    """
    given = "distributed.nanny.pre-spawn-environ"
    return dask.config.set({given: {ONE_HEAP: 1} | dask.config.get(given)})


def size_of_cluster(n_workers: int | None, threads: int | None) -> tuple[int, int]:
    """Return processes and threads of each for this machine: few processes, all cores."""
    from dask.system import CPU_COUNT  # knows the limits of containers

    _require_counts(n_workers=n_workers, threads_per_worker=threads)
    if n_workers is None:
        n_workers = max(1, round(CPU_COUNT / (threads or CORES_PER_WORKER)))
    return n_workers, threads or max(1, -(-CPU_COUNT // n_workers))


def _checked_memory(limit: str | int | float) -> str | int | float:
    """Return what a worker may use: bytes, a share of the memory, "auto", or 0 for no limit."""
    if limit != "auto" and as_number(limit, parse_bytes) is None:
        raise ValueError(f"memory_limit={limit!r} is no size such as '2GB'.")
    return limit


def _require_counts(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name}={value!r} is no whole number of at least 1.")


_GUARD = (
    "A script that starts a local cluster must do so under `if __name__ == '__main__':`, because "
    "worker processes import the script again; or use rf.connect('threads')."
)


def _refuse_unguarded_script() -> None:
    """Raise in a worker that imports the script of its parent, before it starts workers too."""
    import multiprocessing

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(_GUARD)


@contextmanager
def _closing_what_failed_to_start() -> Iterator[None]:
    """Close a cluster whose start was broken off; Ctrl-C there leaves its processes behind."""
    before = started_clusters()
    try:
        yield
    except BaseException as error:
        for cluster in started_clusters() - before:
            with suppress(Exception):  # of one that has hardly begun; what broke it off is told
                cluster.close(timeout=10)
        if isinstance(error, RuntimeError) and "start" in str(error):
            raise RuntimeError(f"The local workers did not start ({error}). {_GUARD}") from error
        raise


@contextmanager
def _client(target: Any, security: Any, timeout: float) -> Iterator[Any]:
    try:
        with warnings.catch_warnings():  # `check_versions` says it in a sentence
            warnings.simplefilter("ignore", version_warning())
            client = client_with_limit(target, security, timeout)
        with client:
            yield client
    finally:
        _forget_lost_clients()


def _forget_lost_clients() -> None:
    """Let Dask compute again where it did before, whatever became of a client.

    A client names itself in Dask's configuration. One that could not connect, in a way that Dask
    does not know, stays the current client, and one that closes before a later one leaves its name
    there: nothing can be computed after that.
    """
    client = current_client()
    if client is not None and client.status == "connecting":
        client.close(timeout=5)
    _forget_closed_clients()


def _forget_closed_clients() -> None:
    if current_client() is None and dask.config.get("scheduler", None) == "dask.distributed":
        del dask.config.config["scheduler"]


@contextmanager
def _remote_client(target: Any, security: Any, timeout: str | float) -> Iterator[Any]:
    seconds = _seconds(timeout)
    address = _address(target, seconds)
    shown = address if isinstance(address, str) else getattr(address, "scheduler_address", address)
    if "@" in str(shown) or redacted(str(shown)) != str(shown):
        raise ValueError(
            f"{redacted(str(shown))} has credentials, which Dask takes in no address: leave them "
            "out, and give certificates with security=."
        )
    made = make_security(security, str(shown)) if isinstance(address, str) else None
    with ExitStack() as stack:
        try:
            client = stack.enter_context(_client(address, made, seconds))
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise ConnectionError(_unreachable(shown, seconds, error)) from error
        check_workers(client, str(shown), min(seconds, WORKER_SECONDS))
        check_versions(client)
        yield client


def _seconds(timeout: str | float) -> float:
    found = as_number(timeout, parse_timedelta, MOST_SECONDS)
    if found is None:
        raise ValueError(f"timeout={timeout!r} is no time such as {TIMEOUT!r}.")
    return found


def _unreachable(address: Any, seconds: float, error: Exception) -> str:
    if remedy := other_protocol(str(address)):
        return f"The scheduler at {address} cannot be spoken to: {remedy}."
    tls = " and that its certificates are those given" if str(address).startswith("tls") else ""
    return (
        f"No Dask scheduler answers at {address} within {seconds:g} s ({_first_line(error)}); "
        f"check that it runs and that this machine may reach it{tls}, or leave the address out to "
        "work locally."
    )


def _first_line(error: BaseException) -> str:
    deepest = error
    while deepest.__cause__ is not None:
        deepest = deepest.__cause__
    lines = str(deepest).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(deepest).__name__


def _address(target: Any, seconds: float) -> Any:
    """Return an address, or a cluster object as it is."""
    if not isinstance(target, (str, os.PathLike)):
        if hasattr(target, "scheduler_address"):
            return target
        raise TypeError(
            f"where={target!r} is not known; give 'local', 'threads', an address such as "
            "'tcp://host:8786', the path of a scheduler file, or a Dask cluster."
        )
    text = os.fspath(target)
    if "://" in text:
        return text
    if _ADDRESS.fullmatch(text) and not Path(text).exists():
        return f"tcp://{text}"
    return _address_in_file(Path(text), seconds)


def _address_in_file(path: Path, seconds: float) -> str:
    """Read a scheduler file; one that is still being written is waited for."""
    wanted = "the file that `dask scheduler --scheduler-file` writes"
    deadline = time.monotonic() + seconds
    while True:
        try:
            require_plain(path)
            found = json.loads(path.read_text(encoding="utf-8"))
            break
        except FileNotFoundError:
            # A wrong name is said at once: such files are called scheduler.json by everybody.
            if path.suffix != ".json" or time.monotonic() > deadline:
                raise FileNotFoundError(
                    f"There is no scheduler file {str(path)!r}; give {wanted}, an address such as "
                    "'tcp://host:8786', 'local' or 'threads'."
                ) from None
        except (OSError, ValueError, RecursionError) as error:
            if not isinstance(error, json.JSONDecodeError) or time.monotonic() > deadline:
                raise ValueError(
                    f"The scheduler file {str(path)!r} cannot be read as JSON "
                    f"({_first_line(error)}); give {wanted}."
                ) from None
        time.sleep(0.1)
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str):
        raise ValueError(f"The scheduler file {str(path)!r} names no address; give {wanted}.")
    return address


def local_threads() -> int:
    """Return how many threads tasks may use in this process; 0 means the caller's own only."""
    if local_scheduler() is not None:
        return 0
    wanted = dask.config.get("num_workers", None) or available_cpus()
    try:
        return max(int(wanted), 1)
    except (TypeError, ValueError):
        raise ValueError(
            f"num_workers={wanted!r} in Dask's configuration is no number of threads."
        ) from None


def local_scheduler() -> Callable[..., Any] | None:
    """Return the scheduler that Dask's configuration asks for in the caller's own thread."""
    chosen = dask.config.get("scheduler", None)
    if isinstance(chosen, str) and chosen.lower() in ("sync", "synchronous", "single-threaded"):
        chosen = get_sync
    return chosen if callable(chosen) else None


def own_scheduler() -> dict[str, Any]:
    """Return the option that keeps Dask's work here, also in a task, where a cluster is near."""
    return {} if dask.config.get("scheduler", None) else {"scheduler": "threads"}
