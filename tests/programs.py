"""Programs as users start them: the command line, and schedulers and workers elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.security import Security

SCRIPTS = Path(sys.executable).parent
PATIENCE = 60
"""Seconds for a program to start on a busy machine."""


def bare_environment(**more: str) -> dict[str, str]:
    """Return what another machine would have of this process's environment: nearly nothing.

    It has the same kind of processor, of which OPENBLAS_CORETYPE may say another than there is.
    """
    names = ("PATH", "PYTHONPATH", "OPENBLAS_CORETYPE")
    return {name: os.environ[name] for name in names if name in os.environ} | more


def user_environment(**more: str) -> dict[str, str]:
    """Return a user's environment: no scheduler, warnings as they are by default."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "PYTHONWARN"))}
    return kept | {"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "COLUMNS": "100"} | more


def start_cli(
    *args: str | Path, cwd: Path | None = None, script: str = "rfcdask", **environment: str
) -> subprocess.Popen[str]:
    """Start an installed script in a process of its own."""
    return subprocess.Popen(
        [SCRIPTS / script, *args],
        cwd=cwd,
        env=user_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_cli(*args: str | Path, timeout: int = 250, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a process of its own: forked, unless its environment matters."""
    if how.keys() <= {"cwd"}:
        return run_forked(_command, *map(str, args), timeout=timeout, **how)
    with start_cli(*args, **how) as process:
        try:
            said = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, *said)


def _command(*args: str) -> None:
    from rfcdask.cli import main

    sys.argv = [str(SCRIPTS / "rfcdask"), *args]
    main()


def run_forked(
    call: Callable[..., None], *args: Any, timeout: int = 250, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Call in a process that is forked from one which has imported the package.

    A user's process imports it first, which takes two seconds of a core.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        streams = [multiprocessing.reduction.DupFd(file.fileno()) for file in (out, err)]
        process = multiprocessing.get_context("forkserver").Process(
            target=_forked, args=(streams, cwd, user_environment(), call, args)
        )
        process.start()
        process.join(timeout)
        try:
            assert process.exitcode is not None, f"{call} took longer than {timeout} s"
        finally:
            process.kill()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(args, process.exitcode, *said)


def _forked(
    streams: list[Any], cwd: Path | None, environment: dict[str, str], call: Any, args: Any
) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.detach(), number)
    os.environ.clear()
    os.environ.update(environment)
    if cwd is not None:
        os.chdir(cwd)
    call(*args)


@contextmanager
def program(*command: str, cwd: Path | None = None, **environment: str) -> Iterator[None]:
    """Run ``python ...`` while the block runs."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=cwd,
        env=bare_environment(**environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def worker(
    file: Path, *options: str, run: tuple[str, ...] = ("-m", "dask"), **environment: str
) -> Iterator[None]:
    """Run one ``dask worker`` in a folder beside the scheduler file."""
    elsewhere = file.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    common = ("--no-nanny", "--no-dashboard", "--nthreads", "1", "--scheduler-file", str(file))
    with program(*run, "worker", *common, *options, cwd=elsewhere, **environment):
        yield


@contextmanager
def scheduler(
    folder: Path, *options: str, workers: int = 1, security: Any = None, **environment: str
) -> Iterator[Path]:
    """Run ``dask scheduler`` and workers, and give the file it writes when they are there."""
    file = folder / "scheduler.json"
    address = ("--port", "0", "--host", "127.0.0.1", "--no-dashboard")
    with ExitStack() as stack:
        stack.enter_context(
            program("-m", "dask", "scheduler", *address, "--scheduler-file", str(file), *options)
        )
        for _ in range(workers):
            stack.enter_context(worker(file, *options, **environment))
        if workers:
            wait_for_workers(file, workers, security)
        yield file


def wait_for_workers(file: Path, count: int, security: Any = None) -> None:
    """Wait until so many workers are known to a scheduler."""
    import rfcdask.execution.cluster

    address = rfcdask.execution.cluster._address_in_file(file, PATIENCE)
    with Client(address, security=security, timeout=PATIENCE, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=PATIENCE)


def write_certificates(folder: Path) -> tuple[Security, dict[str, Path]]:
    """Make certificates of a new authority; return them and the files a user of it would have."""
    made = Security.temporary()
    files = {"ca_file": folder / "ca.pem", "cert": folder / "cert.pem", "key": folder / "key.pem"}
    files["ca_file"].write_text(made.tls_ca_file)
    files["cert"].write_text(made.tls_client_cert)
    files["key"].write_text(made.tls_client_key)
    return made, files


def tls_options(files: dict[str, Path]) -> tuple[str, ...]:
    """Return the options of ``dask scheduler`` and ``dask worker`` for such files."""
    names = {"ca_file": "--tls-ca-file", "cert": "--tls-cert", "key": "--tls-key"}
    return ("--protocol", "tls", *(part for k, v in files.items() for part in (names[k], str(v))))


def tls_environment(files: dict[str, Path]) -> dict[str, str]:
    """Return the variables that give the command line its certificates."""
    start = "DASK_DISTRIBUTED__COMM__TLS__"
    names = {"ca_file": "CA_FILE", "cert": "CLIENT__CERT", "key": "CLIENT__KEY"}
    return {start + names[name]: str(path) for name, path in files.items()}
