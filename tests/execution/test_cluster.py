from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster, Nanny
from distributed.security import Security

import rfcdask as rf
from rfcdask.execution import cluster as cluster_module
from rfcdask.execution import dask_internals, failures
from rfcdask.execution.cluster import (
    current_client,
    local_threads,
    share_threads,
    size_of_cluster,
)
from rfcdask.execution.configuration import with_progress
from rfcdask.execution.failures import ClusterLostError, _no_worker_timeout, ask_workers
from rfcdask.features.compressed import memory_budget
from rfcdask.features.lazy import small_chunks
from rfcdask.kernels.runtime import ONE_HEAP
from rfcdask.linear.sgd.base import memory_for_features
from tests import programs


def _pid() -> int:
    return os.getpid()


def _heaps() -> str | None:
    return os.environ.get(ONE_HEAP)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_local_cluster_lives_as_long_as_the_block() -> None:
    with rf.connect(n_workers=2, threads_per_worker=1, memory_limit="1GB") as client:
        pids = client.run(_pid)
        assert len(set(pids.values())) == 2
        assert os.getpid() not in pids.values()
        assert current_client() is client
        limits = [worker["memory_limit"] for worker in client.scheduler_info()["workers"].values()]
        assert limits == [10**9, 10**9]
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        # Dask's own 15 s are less than a restart takes on a busy machine.
        assert dask.config.get("distributed.deploy.lost-worker-timeout") == "1 day"
        assert client.submit(abs, -1).result() == 1
        # What one thread of a worker has freed, the others use too.
        assert set(client.run(_heaps).values()) == {_heaps() or "1"}
        assert not client.cluster.scheduler.extensions["spans"].spans  # they would be kept for ever
    assert not any(psutil.pid_exists(pid) for pid in pids.values())
    assert current_client() is None


def test_a_local_cluster_is_closed_after_an_error() -> None:
    pids: list[int] = []

    def fail() -> None:
        with rf.connect(n_workers=1, threads_per_worker=1) as client:
            pids.extend(client.run(_pid).values())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert pids
    assert not psutil.pid_exists(pids[0])


def test_a_worker_that_is_just_being_started_again_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dask's cluster fails to close then, and its error was raised in the place of the user's."""
    real, closed = Nanny.close, []

    async def close(self: Nanny, *args: Any, **more: Any) -> Any:
        closed.append(self)
        await real(self, *args, **more)
        if len(closed) == 1:
            raise AssertionError("can only join a started process")

    monkeypatch.setattr(Nanny, "close", close)
    with rf.connect("local", n_workers=1) as client:  # an AssertionError here is Dask's
        cluster, (pid,) = client.cluster, client.run(os.getpid).values()
    assert len(closed) > 1
    assert cluster.status.name == cluster.scheduler.status.name == "closed"
    assert not psutil.pid_exists(pid)


def test_threads_start_no_cluster() -> None:
    before = psutil.Process().children(recursive=True)
    with rf.connect("threads", threads_per_worker=3) as client:
        assert client is None
        assert dask.config.get("scheduler") == "threads"
        assert dask.config.get("num_workers") == 3
        assert da.ones(10, chunks=5).sum().compute() == 10
    assert dask.config.get("scheduler", None) != "threads"
    assert psutil.Process().children(recursive=True) == before


def test_few_processes_use_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, sizes in {1: (1, 1), 2: (1, 2), 4: (1, 4), 8: (2, 4), 32: (8, 4)}.items():
        monkeypatch.setattr("dask.system.CPU_COUNT", cores)
        assert size_of_cluster(None, None) == sizes
    assert size_of_cluster(4, None) == (4, 8)
    assert size_of_cluster(None, 16) == (2, 16)
    assert size_of_cluster(3, 2) == (3, 2)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with programs.scheduler(tmp_path_factory.mktemp("running")) as file:
        yield file


def test_a_scheduler_file_and_its_address(running: Path) -> None:
    with rf.connect(running) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        address = client.scheduler.address
    with rf.connect(str(running)) as again:
        assert again.scheduler.address == address  # leaving the first did not end the cluster
    with rf.connect(address) as again, rf.connect(address.removeprefix("tcp://")) as short:
        assert again.scheduler.address == short.scheduler.address == address
        with rf.connect(again) as same:
            assert same is again
        assert again.status == "running"


def test_none_asks_the_surroundings(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = json.loads(running.read_text())["address"]
    with dask.config.set({"scheduler-address": address}), rf.connect(None) as client:
        assert client.scheduler.address == address
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    with rf.connect(None) as client:
        assert client.scheduler.address == address


def test_none_is_local_where_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    with rf.connect(None, n_workers=1, threads_per_worker=1) as client:
        (pid,) = client.run(_pid).values()
        assert psutil.Process(pid) in psutil.Process().children(recursive=True)


def test_a_cluster_object_is_left_running() -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        with rf.connect(cluster) as client:
            assert client.submit(sum, [1, 2]).result() == 3
        assert cluster.status.name == "running"


def test_a_failed_connection_leaves_dask_alone(running: Path) -> None:
    with rf.connect(running) as client:
        address = client.scheduler.address.replace("tcp", "tls")
        security = Security.temporary()
        with pytest.raises(ConnectionError), rf.connect(address, security=security, timeout=2):
            pass
        assert current_client() is client
    assert current_client() is None
    assert da.ones(3).sum().compute() == 3


def test_nobody_answers() -> None:
    address = f"tcp://127.0.0.1:{_free_port()}"
    with (
        pytest.raises(ConnectionError, match=rf"answers at {address} within 0.5 s.*check"),
        rf.connect(address, timeout=0.5),
    ):
        pass


@pytest.mark.timeout(60)
def test_whoever_listens_and_says_nothing_is_not_waited_for(
    certificates: tuple[Security, dict[str, Path]],
) -> None:
    """As a scheduler does that is stopped: Dask waits for its first words without a limit."""
    with socket.socket() as stopped:
        stopped.bind(("127.0.0.1", 0))
        stopped.listen()
        place = f"127.0.0.1:{stopped.getsockname()[1]}"
        for address, security in ((f"tcp://{place}", None), (f"tls://{place}", certificates[1])):
            with (
                pytest.raises(ConnectionError, match=f"No Dask scheduler answers at {address}"),
                rf.connect(address, security=security, timeout=0.2),
            ):
                pass
    assert current_client() is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(8)])
def test_another_server_is_no_scheduler(said: bytes) -> None:
    """As behind the port of a dashboard: an array of 3 EiB was asked for, or Dask's words came."""

    def answer() -> None:
        with server.accept()[0] as asked:
            asked.recv(10)
            asked.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        wanted = rf"No Dask scheduler answers at {address}.*what answers there is no Dask"
        with pytest.raises(ConnectionError, match=wanted), rf.connect(address, timeout=5):
            pass
    assert current_client() is None


def test_a_scheduler_without_workers_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rfcdask.execution.cluster.WORKER_SECONDS", 0.5)
    with (
        programs.scheduler(tmp_path, workers=0) as file,
        pytest.warns(UserWarning, match="no workers yet"),
        rf.connect(file, timeout=60),
    ):
        pass


@contextmanager
def _stopped_soon(pid: int) -> Iterator[None]:
    timer = Timer(1, os.kill, (pid, signal.SIGSTOP))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(60)
def test_a_scheduler_that_stops_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's own wait for the first worker has no end then."""
    monkeypatch.setattr(failures, "ANSWER_WITHIN", 0.5)
    with programs.scheduler(tmp_path, workers=0) as file:
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            pid = client.run_on_scheduler(_pid)
        with (
            _stopped_soon(pid),
            pytest.raises(ClusterLostError, match=r"not answered for 0\.5 s; restart it"),
            rf.connect(file),
        ):
            pass


@pytest.mark.timeout(120)
def test_who_is_lost_before_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies is none, and said to lack nothing; a scheduler that stops is named."""
    with (
        programs.scheduler(tmp_path, workers=2) as file,
        Client(scheduler_file=str(file), set_as_default=False) as client,
    ):
        pids = client.run(_pid)
        scheduler, lost = client.run_on_scheduler(_pid), pids.popitem()[1]
        os.kill(lost, signal.SIGSTOP)
        timer = Timer(1, os.kill, (lost, signal.SIGKILL))
        timer.start()
        assert ask_workers(client, _pid) == pids
        monkeypatch.setattr(failures, "ANSWER_SECONDS", 3)
        monkeypatch.setattr(failures, "ANSWER_WITHIN", 0.5)
        os.kill(scheduler, signal.SIGSTOP)
        try:
            with pytest.raises(ClusterLostError, match=r"scheduler at .* is gone"):
                ask_workers(client, _pid)
        finally:
            os.kill(scheduler, signal.SIGCONT)


def test_a_worker_that_comes_between_two_questions_lacks_nothing(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = dask_internals.versions
    monkeypatch.setattr(
        dask_internals, "versions", lambda *args, **more: told(*args, **more) | {"workers": {}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with rf.connect(running):
            pass


def test_other_versions_are_named(tmp_path: Path) -> None:
    other = tmp_path / "other" / "zarr-2.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: zarr\nVersion: 2.0\n")
    with (
        programs.scheduler(tmp_path, PYTHONPATH=str(other.parent)) as file,
        pytest.warns(UserWarning, match=r"other versions than this process: zarr 2.0 \(here 3"),
        rf.connect(file),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "cannot be read as JSON"), ('{"id": 1}', "names no address"), ("[]", "no address")],
)
def test_a_bad_scheduler_file(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=says) as caught, rf.connect(file, timeout=0.2):
        pass
    assert str(file) in str(caught.value)


def test_a_missing_scheduler_file(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=r"no scheduler file .*nowhere\.json"),
        rf.connect(tmp_path / "nowhere.json", timeout=0.2),
    ):
        pass
    with pytest.raises(FileNotFoundError, match="no scheduler file 'locl'"), rf.connect("locl"):
        pass


def test_a_scheduler_file_is_waited_for(running: Path, tmp_path: Path) -> None:
    file, text = tmp_path / "scheduler.json", running.read_text()

    def write() -> None:
        for part in ("", text[:40], text):
            time.sleep(0.3)
            file.write_text(part)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write)
        with rf.connect(file, timeout=30) as client:
            assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.parametrize(
    ("where", "settings", "error", "says"),
    [
        (3, {}, TypeError, "where=3 is not known"),
        ("threads", {"n_workers": 2}, ValueError, "threads_per_worker instead"),
        ("threads", {"threads_per_worker": 0}, ValueError, "threads_per_worker=0 is no whole"),
        ("threads", {"threads_per_worker": "a"}, ValueError, "threads_per_worker='a' is no whole"),
        ("local", {"n_workers": 0}, ValueError, "n_workers=0 is no whole number of at least 1"),
        ("local", {"n_workers": 1.5}, ValueError, "n_workers=1.5 is no whole number"),
        ("local", {"memory_limit": -5}, ValueError, "memory_limit=-5 is no size"),
        ("local", {"memory_limit": "much"}, ValueError, "memory_limit='much' is no size"),
        ("local", {"memory_limit": np.inf}, ValueError, "memory_limit=inf is no size"),
        ("tcp://x:abc", {}, ConnectionError, "its port is no number"),
        ("nowhere:80000", {"timeout": 1}, ConnectionError, "its port is no number"),
        ("tcp://127.0.0.1:1", {"n_workers": 2}, ValueError, "leave them out"),
        ("tcp://127.0.0.1:1", {"timeout": "soon"}, ValueError, "timeout='soon' is no time such as"),
        ("tcp://127.0.0.1:1", {"timeout": None}, ValueError, "timeout=None is no time such as"),
        ("tcp://127.0.0.1:1", {"timeout": 1e20}, ValueError, "timeout=1e.20 is no time such as"),
        ("tls://127.0.0.1:1", {}, ValueError, "wants TLS and no certificates are known"),
        ("tls://127.0.0.1:1", {"security": 3}, TypeError, "security is a int; give a"),
        ("tls://127.0.0.1:1", {"security": {"ca": "x"}}, ValueError, "'ca' is not known"),
        ("tls://h:1", {"security": {"ca_file": "no.pem"}}, FileNotFoundError, "'no.pem'"),
        ("tls://h:1", {"security": {"key": None}}, TypeError, "tls_client_key is a NoneType"),
    ],
)
def test_bad_arguments(where: object, settings: dict[str, object], error: type, says: str) -> None:
    with pytest.raises(error, match=says), rf.connect(where, **settings):
        pass


@pytest.mark.parametrize("where", ["local", "tls://127.0.0.1:1", "tcp://127.0.0.1:1"])
def test_a_missing_certificate_of_dasks_configuration_is_named(where: str, tmp_path: Path) -> None:
    """Dask says that there is no such file, and not which; a local cluster blamed the script."""
    start = "distributed.comm.tls."
    named = {"ca-file": "no.pem", "client.cert": str(tmp_path), "client.key": "no.key"}
    with (
        dask.config.set({start + name: path for name, path in named.items()}),
        pytest.raises(FileNotFoundError, match=r"'no\.pem', which tls_ca_file names.*distributed"),
        rf.connect(where, n_workers=1 if where == "local" else None),
    ):
        pass


def test_a_client_has_the_size_of_its_cluster(cluster_client: Client) -> None:
    with (
        pytest.raises(ValueError, match="running one has its own: leave them out"),
        rf.connect(cluster_client, n_workers=2),
    ):
        pass


@pytest.mark.parametrize(
    ("where", "security"),
    [
        ("tls://h:1", "-----BEGIN PRIVATE KEY-----\nHIDE-ME\n"),
        ("tls://h:1", {"key": "-----BEGIN PRIVATE KEY-----\\nHIDE-ME" + "A" * 3000}),
        ("tls://h:1", {"key": "HIDE-ME" + "A/" * 900}),
        ("tcp://127.0.0.1:1/?token=HIDE-ME", None),
        ("https://127.0.0.1:1/user/me/proxy/8787/status?token=HIDE-ME", None),
        ("tcp://me:HIDE-ME@127.0.0.1:1", None),
    ],
)
def test_keys_and_tokens_are_not_shown(where: str, security: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught, rf.connect(where, security=security):
        pass
    shown = "".join(traceback.format_exception(caught.value))
    assert "HIDE-ME" not in shown
    assert "give" in str(caught.value)


def test_threads_of_a_scheduler_elsewhere_show_no_password() -> None:
    with pytest.raises(ValueError, match=r"tcp://\*\*\*@h:1 has its own workers"):
        share_threads("tcp://me:HIDE-ME@h:1", 2)


@pytest.mark.parametrize("kind", ["pipe", "deep"])
def test_what_is_no_scheduler_file_ends_the_wait(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "scheduler.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="cannot be read as JSON"), rf.connect(path, timeout=1):
        pass


SETTINGS: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "num_workers": (local_threads, ["many"]),
    "rfcdask.no-worker-timeout": (_no_worker_timeout, ["soon", "", [], True, 10**30]),
    "rfcdask.selection-memory": (memory_budget, [None, "", "3 gigs", -1, np.nan, np.inf, False]),
    "rfcdask.feature-block-bytes": (lambda: small_chunks((9,), 8), ["", "5 minutes", {}, b"1"]),
    "rfcdask.persist-bytes": (lambda: memory_for_features(None), ["", "1 zettabyte", [1]]),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (_, odd) in SETTINGS.items() for value in odd]
)
def test_odd_settings_of_dask_are_named(name: str, value: Any) -> None:
    with (
        dask.config.set({name: value}),
        pytest.raises(ValueError, match=f"{name}=.* in Dask's configuration is no .*\\.$"),
    ):
        SETTINGS[name][0]()


@pytest.mark.parametrize("value", ["plain", None, [1]])  # a word, a file of comments, a list
def test_settings_that_are_none_are_named(value: Any) -> None:
    said = r"rfcdask=.* in Dask's configuration holds no settings: .*DASK_RFCDASK__PROGRESS=plain"
    with dask.config.set({"rfcdask": value}):
        for call in (memory_budget, _no_worker_timeout, lambda: with_progress("off")):
            with pytest.raises(ValueError, match=said):
                call()


def test_no_features_in_a_block_are_one() -> None:
    with dask.config.set({"rfcdask.feature-block-bytes": 0}):
        assert small_chunks((3,), 8) == (1, 1, 1)


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[Security, dict[str, Path]]:
    """Certificates of a cluster, and the paths a user of it would have."""
    return programs.write_certificates(tmp_path)


def test_tls(certificates: tuple[Security, dict[str, Path]], tmp_path: Path) -> None:
    security, paths = certificates
    settings = {
        "distributed.comm.tls.ca-file": str(paths["ca_file"]),
        "distributed.comm.tls.client.cert": str(paths["cert"]),
        "distributed.comm.tls.client.key": str(paths["key"]),
    }
    with LocalCluster(
        n_workers=1, threads_per_worker=1, security=security, dashboard_address=":0"
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        for given in (paths, security):
            with rf.connect(address, security=given) as client:
                assert client.submit(sum, [1, 2]).result() == 3
        with dask.config.set(settings), rf.connect(address) as client:
            assert client.submit(sum, [1, 2]).result() == 3
        with (
            pytest.raises(ConnectionError, match="certificates are those given"),
            rf.connect(address, security=Security.temporary(), timeout=1),
        ):
            pass


def test_a_local_cluster_with_tls() -> None:
    with rf.connect(n_workers=1, threads_per_worker=1, security=True) as client:
        assert isinstance(client, Client)
        assert client.scheduler.address.startswith("tls://")


def _run_script(path: Path, text: str, **more: object) -> subprocess.Popen[str]:
    path.write_text(textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,  # type: ignore[call-overload]
    )


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    """Ctrl-C in a terminal goes to the whole group: to the workers as well."""
    script = """
        import time, rfcdask as rf
        if __name__ == "__main__":
            with rf.connect(n_workers=1, threads_per_worker=1) as client:
                future = client.submit(time.sleep, 600)
                print("ready", flush=True)
                future.result()
    """
    process = _run_script(tmp_path / "script.py", script, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert err.count("Traceback") == 1, err  # that of the script, none of its workers
    assert err.endswith("KeyboardInterrupt\n")
    assert not psutil.wait_procs(family, timeout=20)[1]


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = """
        import rfcdask as rf
        with rf.connect(n_workers=1) as client:
            print("never")
    """
    process = _run_script(tmp_path / "script.py", script)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out == ""
    assert "if __name__ == '__main__':" in err.splitlines()[-1]


def test_connect_without_with_says_what_to_do() -> None:
    with pytest.warns(UserWarning, match=r"nothing is connected: .*'with rfcdask\.connect"):
        rf.connect("threads")
    connection = rf.connect("threads")
    with pytest.raises(AttributeError, match=r"no 'submit' yet: .*'with rfcdask\.connect"):
        connection.submit(len, ())
    with connection as client:
        assert client is None


def test_a_connection_is_used_once() -> None:
    connection = rf.connect("threads")
    with connection:
        pass
    with pytest.raises(RuntimeError, match="used before: call rfcdask"):
        connection.__enter__()


def test_a_client_is_the_current_one_meanwhile(running: Path) -> None:
    with (
        Client(scheduler_file=str(running)) as other,
        Client(scheduler_file=str(running), set_as_default=False) as client,
    ):
        with rf.connect(client) as given:
            assert given is current_client() is client
        with dask.config.set(scheduler="threads"), rf.connect(client):
            assert current_client() is client
        assert current_client() is other


def test_a_client_that_is_closed_meanwhile_leaves_dask_alone(running: Path) -> None:
    with rf.connect(Client(scheduler_file=str(running))) as client:
        client.close()  # as Dask does when its scheduler is gone
    assert da.ones(3).sum().compute() == 3


def test_a_closed_client_is_not_taken_for_a_lost_scheduler_alone(running: Path) -> None:
    with rf.connect(str(running)) as client:
        pass
    X = da.ones((100, 2), chunks=50)
    with pytest.raises(ClusterLostError, match=r"this client of it was closed.*connect anew"):
        rf.PCA(1).fit(X, client=client)


def test_an_interrupted_start_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing what has hardly begun fails by itself, and hid Ctrl-C."""

    class Begun:
        def close(self, timeout: float) -> None:
            raise AssertionError("Status.init")

    listed = iter([set(), {Begun()}])
    monkeypatch.setattr(cluster_module, "started_clusters", lambda: next(listed))
    with pytest.raises(KeyboardInterrupt), cluster_module._closing_what_failed_to_start():
        raise KeyboardInterrupt
