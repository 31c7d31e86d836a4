"""Looking at a cluster before work is sent there: its workers, their code, what files they see."""

from __future__ import annotations

import os
import pkgutil
import ssl
import uuid
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit

PACKAGES = ("rfcdask", "dask", "distributed", "numpy", "scipy", "scikit-learn", "numba", "zarr")
ANSWER_SECONDS = 60
"""How long workers may take to answer a question."""


@contextmanager
def quiet_about_versions() -> Iterator[None]:
    """Keep distributed's own table of versions back: `check_versions` says it in a sentence."""
    from distributed.versions import VersionMismatchWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)
        yield


def check_workers(client: Any, address: str, seconds: float) -> None:
    """Warn when nobody would do the work; clusters that grow on demand have no worker at first."""
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError:
        warnings.warn(
            f"The scheduler at {address} has no workers yet; work waits until some arrive (dask "
            f"worker {address}).",
            stacklevel=5,
        )


def check_versions(client: Any) -> None:
    """Warn in a sentence when workers run other versions; raise when they cannot do the work.

    Raises
    ------
    RuntimeError
        When rfcdask on a worker is of another minor version: tasks mean something else there.
    ModuleNotFoundError
        When no rfcdask can be imported on a worker.
    """
    found = _ask(client, client._get_versions, packages=list(PACKAGES))
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


def _check_rfcdask(client: Any, ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> None:
    """Ask for what is imported, which counts, where packages' records say what is installed."""
    from rfcdask._version import __version__

    ours["rfcdask"] = __version__
    # A function of the standard library: one of our own could not be sent to who lacks them.
    name = "rfcdask._version:__version__"
    imported = _ask(client, client._run, pkgutil.resolve_name, name, on_error="return")
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
    there = {_shortened(name, packages.get(name)) for packages in theirs.values()} - {here}
    return f"{name} {' and '.join(sorted(there))} (here {here})" if there else ""


def _shortened(name: str, version: Any) -> str:
    if version is None:
        return "missing"
    return ".".join(str(version).split(".")[:3]) if name == "python" else str(version)


def _ask(client: Any, question: Any, *args: Any, **more: Any) -> Any:
    """Put a question to all workers, of which one may be stopped or cut off."""
    try:
        return client.sync(question, *args, callback_timeout=ANSWER_SECONDS, **more)
    except TimeoutError:
        raise ConnectionError(
            f"Not all workers of {client.scheduler.address} answered within {ANSWER_SECONDS} s; "
            "see in the dashboard which, and end or restart them."
        ) from None


def require_shared(
    client: Any,
    *,
    reads: Iterable[str | os.PathLike[str]] = (),
    writes: str | os.PathLike[str] = "",
) -> None:
    """Raise unless workers elsewhere see local paths as this process does.

    Workers that arrive later are not asked.

    Parameters
    ----------
    client : distributed.Client or None
        Nothing is asked of workers that this machine started for itself.
    reads : iterable of paths
        What will be read; paths at which there is nothing here are passed over.
    writes : path, optional
        A folder or file that will be written: a file is put beside it for the workers to find.

    Raises
    ------
    DataError
        Naming the first path that a worker does not see, and the worker.
    """
    if client is None or _is_local(client):
        return
    for path in (os.fspath(item) for item in reads):
        if (here := facts(path)) is not None:
            _require_same(client, path, here)
    if writes and "://" not in os.fspath(writes):
        folder = Path(writes).absolute()
        while not folder.is_dir():
            folder = folder.parent
        with _marker(folder) as mark:
            if mark is not None:
                _require_same(client, str(folder), facts(mark), mark)


def _is_local(client: Any) -> bool:
    from distributed import LocalCluster

    return client.asynchronous or isinstance(getattr(client, "cluster", None), LocalCluster)


@contextmanager
def _marker(folder: Path) -> Iterator[str | None]:
    """Put a file into a folder for a moment; None where that is not allowed: it is said later."""
    mark = folder / f".rfcdask-{uuid.uuid4().hex}"
    try:
        mark.write_text(mark.name, encoding="utf-8")
    except OSError:
        yield None
        return
    try:
        yield str(mark)
    finally:
        mark.unlink(missing_ok=True)


def facts(path: str) -> list[int] | None:
    """Return what tells two files, or two stores, of one name apart; None where there is none."""
    with suppress(OSError):
        place = os.path.join(path, "zarr.json")
        place = place if os.path.isfile(place) else path
        size = os.stat(place).st_size if os.path.isfile(place) else -1
        if size < 0:
            return [size] if os.path.isdir(place) else None
        with open(place, "rb") as file:
            return [size, zlib.crc32(file.read(2**16))]
    return None


def _require_same(client: Any, path: str, here: Any, look_at: str | None = None) -> None:
    from rfcdask.data.errors import DataError

    for worker, there in _ask(client, client._run, facts, look_at or path).items():
        if there != here:
            seen = "does not see" if there is None else "sees something else at"
            raise DataError(
                f"the worker {worker} {seen} {path} of this machine: use a disk that the workers "
                "share under the same name, or an address such as s3://bucket/name, or work "
                "without that scheduler."
            )


def other_protocol(address: str, seconds: float = 3.0) -> str:
    """Return what to do when a scheduler speaks TLS and the address does not, or the reverse."""
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "tls") or not parts.port:
        return ""
    tls = _speaks_tls(str(parts.hostname), parts.port, seconds)
    if tls is None or tls == (parts.scheme == "tls"):
        return ""
    if tls:
        return f"it speaks TLS: give tls://{parts.netloc} and its certificates (security=)"
    return f"it does not speak TLS: give tcp://{parts.netloc}"


def _speaks_tls(host: str, port: int, seconds: float) -> bool | None:
    """Say hello in TLS, trusting nobody and sending nothing; None when nobody listens."""
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
            except OSError:  # it waits for more, or hangs up: no TLS
                return False
    except OSError:
        return None
