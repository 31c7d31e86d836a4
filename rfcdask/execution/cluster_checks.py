"""Looking at a cluster before work is sent there: its workers, their code, how it speaks TLS."""

from __future__ import annotations

import pkgutil
import ssl
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rfcdask.execution import dask_internals

if TYPE_CHECKING:
    from distributed import Client, Security

PACKAGES = ("rfcdask", "dask", "distributed", "numpy", "scipy", "scikit-learn", "numba", "zarr")
ANSWER_SECONDS = 60
"""How long workers may take to answer a question."""
_SHORT = {"ca_file": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}


@contextmanager
def quiet_about_versions() -> Iterator[None]:
    """Keep distributed's own table of versions back: `check_versions` says it in a sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dask_internals.version_warning())
        yield


def check_workers(client: Client, address: str, seconds: float) -> None:
    """Warn when nobody would do the work; clusters that grow on demand have no worker at first."""
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError:
        warnings.warn(
            f"The scheduler at {address} has no workers yet; work waits until some arrive (dask "
            f"worker {address}).",
            stacklevel=5,
        )


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
    imported = ask_workers(client, pkgutil.resolve_name, name, on_error="return")
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


def ask_workers(
    client: Client, function: Callable[..., Any], *args: Any, **options: Any
) -> dict[str, Any]:
    """Return what a function returns on each worker, by address; see ``Client.run``."""
    answers: dict[str, Any] = _answered(
        client, dask_internals.run_on_workers, function, *args, **options
    )
    return answers


def _answered(client: Client, question: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Put a question to all workers, of which one may be stopped or cut off."""
    try:
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

    made: Any  # its fields have no types
    if isinstance(given, Security):
        made = given
    elif given is None:
        made = Security()
    elif isinstance(given, Mapping):
        made = _security_of_paths(given)
    else:
        raise TypeError(
            f"security={given!r} is not known; give a distributed.Security or a dict of paths: "
            "ca_file, cert, key."
        )
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
        is_file = key.startswith("tls_") and key.endswith(("file", "cert", "key"))
        # The text of a certificate may stand for its file.
        if is_file and "\n" not in path and not Path(path).is_file():
            raise FileNotFoundError(f"security: there is no certificate or key file {path!r}.")
    return Security(**{"require_encryption": True, **paths})
