from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_client, worker_client
from distributed import Future as DaskFuture

import rfcdask as rf
from rfcdask.data.sample import fetch_rows
from rfcdask.execution.cluster import current_client
from rfcdask.execution.dask_internals import local_cluster_class
from rfcdask.execution.executor import (
    call_later,
    compute,
    map_tasks,
    open_executor,
    run_tasks,
)
from rfcdask.execution.failures import ClusterLostError, NoWorkersError
from rfcdask.execution.progress import SilentReporter
from tests.execution.failing import (
    Deadly,
    die,
    fail,
    fail_once,
    fail_while,
    kill_at,
    process_ids,
)
from tests.linear_data import blobs, lazy


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.deploy.lost-worker-timeout": "5 minutes",  # a busy machine starts one slowly
    }
    with (
        dask.config.set(settings),
        local_cluster_class()(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


def where() -> da.Array:
    return da.zeros(4, chunks=2, dtype=np.int64).map_blocks(process_ids, dtype=np.int64)


def test_without_a_client_the_local_scheduler_computes() -> None:
    assert current_client() is None
    assert set(compute(where())) == {os.getpid()}


def test_a_given_client_comes_before_the_current_one(
    cluster: LocalCluster,
) -> None:
    with Client(cluster, set_as_default=False) as given:
        assert current_client() is None
        assert current_client(given) is given
        assert os.getpid() not in compute(where(), given)
        with given.as_current():
            assert current_client() is given
            assert os.getpid() not in compute(where())
            with dask.config.set(scheduler="threads"):
                assert current_client() is None
                assert set(compute(where())) == {os.getpid()}
    with Client(cluster) as default:
        assert current_client() is default
        assert os.getpid() not in compute(where())
        with dask.config.set(scheduler="sync"):
            assert set(compute(where())) == {os.getpid()}
    assert current_client() is None


def test_on_a_cluster_trouble_is_retried_or_explained(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        passing = da.zeros(3, chunks=3).map_blocks(fail_once, dtype=float, meta=np.empty(0))
        np.testing.assert_array_equal(compute(passing, client), np.ones(3))
        failing = da.zeros(3, chunks=3).map_blocks(fail, dtype=float, meta=np.empty(0))
        with pytest.raises(ZeroDivisionError, match="in a block"):
            compute(failing, client)
        for work in everywhere(die).values():
            with pytest.raises(
                MemoryError, match=r"\(about 1.00 MiB each\).*\(X.rechunk\)"
            ) as died:
                work(client)
            assert type(died.value.__cause__).__name__ == "KilledWorker"


def everywhere(function: Callable[[np.ndarray], Any]) -> dict[str, Callable[[Client], Any]]:
    """Return each way in which work is sent to a cluster, on blocks of 1 MiB."""

    def blocks(value: int) -> da.Array:
        whole = da.full((2**18, 1), float(value), chunks=(2**17, 1))
        return whole.map_blocks(function, meta=np.empty((0, 0)))

    task = (call_later(function, np.ones(1)) for _ in range(1))
    return {
        "compute": lambda client: compute(blocks(1), client),
        "tasks": lambda client: list(run_tasks(task, client, block_bytes=2**20)),
        "rows": lambda client: fetch_rows(Deadly(function), [0], client),  # type: ignore[arg-type]
        "training": lambda client: rf.PCA(1).fit(blocks(2), client=client),
        "map": lambda client: list(
            map_tasks(function, [np.ones(1)], client, label="work", block_bytes=2**20)
        ),
    }


@pytest.mark.parametrize("way", ["compute", "blocks", "kept"])
def test_what_failed_is_done_again_while_its_error_is_held(
    way: str, cluster_client: Client, tmp_path: Path
) -> None:
    """As a notebook holds the last one, and with it futures of the tasks that failed."""
    X, y = blobs(1000, 4, 2)
    away = tmp_path / "away"
    X, y = lazy(X, 100).map_blocks(fail_while, away, meta=np.empty((0, 0))), lazy(y, 100)
    model = rf.SGDClassifier(epochs=2, random_state=1, persist=way == "kept")

    def work() -> Any:
        if way == "compute":
            return compute(X, cluster_client)
        return model.fit(X, y, client=cluster_client).coef_

    undisturbed = work()
    away.touch()
    with pytest.raises(OSError, match="the disk is away") as held:
        work()
    away.unlink()
    assert np.array_equal(work(), undisturbed)
    assert held.value.__traceback__ is not None


@contextmanager
def programs() -> Iterator[SimpleNamespace]:
    """Run a scheduler and a worker without a nanny as programs of their own."""
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    scheduler = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    started = []
    try:
        assert scheduler.stderr is not None
        address = next(line.split()[-1] for line in scheduler.stderr if "tcp://" in line)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address]
        options = ["--no-nanny", "--no-dashboard", "--nthreads", "1"]
        started.append(subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL))
        yield SimpleNamespace(address=address, scheduler=scheduler, worker=started[0])
    finally:
        for process in (*started, scheduler):
            process.kill()
            process.wait()


@pytest.mark.timeout(120)
def test_a_lost_scheduler_ends_all_work_in_one_sentence(tmp_path: Path) -> None:
    X, y = blobs(1000, 4, 2)
    X, y = lazy(X, 50), lazy(y, 50)
    model = rf.SGDClassifier(epochs=2, random_state=1, persist=False)
    undisturbed = model.fit(X, y).coef_.copy()
    model.set_params(checkpoint=tmp_path / "run.ckpt", checkpoint_every=1)
    with (
        programs() as running,
        Client(running.address, timeout=3, set_as_default=False) as client,
    ):
        last = float(X[950, 0].compute())
        Z = X.map_blocks(
            kill_at, at=last, process=running.scheduler.pid, meta=np.empty((0, 0), np.float32)
        )
        gone = f"scheduler at {running.address} is gone.*call the same again.*run --resume"
        with pytest.raises(ClusterLostError, match=gone):
            model.fit(Z, y, client=client)
        for work in everywhere(np.positive).values():
            with pytest.raises(ClusterLostError, match=gone):
                work(client)
    assert np.array_equal(model.fit(X, y).coef_, undisturbed)  # the remedy


@pytest.mark.timeout(120)
def test_a_cluster_without_workers_is_waited_for(cluster: LocalCluster) -> None:
    shown = []

    def show(phase: str, total: float | None, unit: str) -> SilentReporter:
        shown.append(phase)
        return SilentReporter()

    with (
        Client(cluster, set_as_default=False) as client,
        dask.config.set({"rfcdask.no-worker-timeout": "1s"}),
    ):
        cluster.scale(0)
        while client.nthreads():
            time.sleep(0.1)
        said = r"no worker for 1 s .*dask worker tcp://127.0.0"
        with dask.config.set({"rfcdask.progress": show}), pytest.raises(NoWorkersError, match=said):
            compute(where(), client)
        assert shown == ["waiting for workers"]
        with pytest.raises(NoWorkersError, match=r"no-worker-timeout in Dask's configuration"):
            rf.PCA(1).fit(da.ones((20, 2), chunks=(5, 2)), client=client)
        cluster.scale(1)
        with dask.config.set({"rfcdask.no-worker-timeout": "1 minute"}):
            assert os.getpid() not in compute(where(), client)


def add(*numbers: float) -> float:
    return sum(numbers)


@pytest.mark.parametrize("place", ["sync", "threads", "cluster"])
def test_mapped_results_come_in_order(place: str, cluster_client: Client) -> None:
    client = cluster_client if place == "cluster" else None
    told: list[Any] = []

    class Mine(SilentReporter):
        def __init__(self, *about: Any) -> None:
            told.append(about)

        def advance(self, amount: float = 1) -> None:
            told.append(amount)

    with dask.config.set(scheduler=None if client else place):
        found = map_tasks(
            add, range(25), client, common=(100, 1000), label="adding", unit="sums", progress=Mine
        )
        assert list(found) == [1100 + i for i in range(25)]
        assert list(map_tasks(add, [], client, label="nothing")) == []
    assert told == [("adding", 25, "sums"), *[1] * 25]


@pytest.mark.parametrize("place", ["threads", "cluster"])
def test_few_tasks_are_in_flight(place: str, cluster_client: Client) -> None:
    client = cluster_client if place == "cluster" else None
    started, finished = [], []

    def tasks() -> Iterator[Any]:
        for number in range(20):
            started.append(number)
            yield call_later(add, number)

    for result in run_tasks(tasks(), client, at_once=3):
        assert len(started) - len(finished) <= 3
        finished.append(result)
    assert started == finished == list(range(20))


def test_tasks_left_alone_are_forgotten(cluster_client: Client) -> None:
    before = set(cluster_client.futures)
    results = run_tasks((call_later(add, i) for i in range(20)), cluster_client)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    cluster_client.nthreads()  # a round trip, after which all releases have been sent
    assert set(cluster_client.futures) <= before


def test_a_scheduler_of_ones_own_is_asked(refusing_scheduler: Any) -> None:
    with dask.config.set(scheduler=refusing_scheduler):
        for work in (
            lambda: list(run_tasks([call_later(add, 1)])),
            lambda: rf.PCA(1).fit(da.ones((20, 2), chunks=(5, 2))),
            lambda: compute(where()),
        ):
            with pytest.raises(AssertionError, match="something was computed"):
                work()


def page_faults_of_arrays(times: int) -> int:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        np.ones(2**20)
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_workers_reuse_the_memory_of_arrays(cluster_client: Client) -> None:
    with open_executor(cluster_client) as executor:
        executor.result(executor.submit(page_faults_of_arrays, 3))
        found = executor.result(executor.submit(page_faults_of_arrays, 20))
    pages = 20 * 2**23 / 4096
    assert found < pages / 4  # all of them where each array is mapped anew


def test_a_restart_leaves_nothing_that_nobody_wants(cluster: LocalCluster) -> None:
    """Tasks that are sent as the scheduler restarts reach it when all others are gone from it.

    It kept them for a client that had forgotten them, computed them again when a worker died, and
    had their old error for the same call again.
    """

    async def tasks() -> int:
        return len(cluster.scheduler.tasks)

    async def restarted() -> None:
        client._handle_restart()  # what the client does when it hears of it

    with Client(cluster, set_as_default=False) as client:
        with open_executor(client) as executor:
            lost = executor.submit(time.sleep, 0.1), executor.compute(call_later(time.sleep, 0.1))
            while cluster.sync(tasks) < len(lost):
                time.sleep(0.01)
            client.sync(restarted)
            with pytest.raises(ClusterLostError):
                executor.result(lost[0])
        deadline = time.monotonic() + 30
        while cluster.sync(tasks) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert cluster.sync(tasks) == 0


def test_what_a_cluster_keeps_no_longer_must_be_made_anew(cluster: LocalCluster) -> None:
    """To call the same again, as was said, did not help; without a cluster Dask named a task."""
    with Client(cluster, set_as_default=False) as client:
        kept = client.persist(da.ones((4, 1), chunks=(2, 1)))
        client.compute(kept.sum()).result()
        client.restart()
        with pytest.raises(ClusterLostError, match="make anew what was persisted"):
            compute(kept.sum(), client)
    for work in (compute, rf.PCA(1).fit):
        with pytest.raises(ValueError, match=r"persisted on a cluster.* make the array anew\.$"):
            work(kept)


def is_kept_here() -> bool:
    with open_executor() as executor:
        kept = executor.keep(da.ones(4, chunks=2))
    return not any(isinstance(value, DaskFuture) for value in dict(kept.dask).values())


def total_of_cluster() -> float:
    return float(compute(da.ones(4, chunks=2).sum(), get_client()))


def total_beside() -> float:
    with worker_client() as client:
        return float(compute(da.ones(4, chunks=2).sum(), client)) + total_of_cluster()


@pytest.mark.timeout(120)
def test_work_within_a_task_ends() -> None:
    """The only thread of the cluster waited for what it should compute itself."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert client.submit(is_kept_here).result(30)
        assert client.submit(total_of_cluster).result(30) == 4
        assert client.submit(total_beside).result(30) == 8


def test_an_asynchronous_client_is_refused() -> None:
    async def work() -> list[int]:
        async with (
            LocalCluster(
                n_workers=0, processes=False, dashboard_address=":0", asynchronous=True
            ) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            with pytest.raises(TypeError, match=r"asynchronous.*asyncio\.to_thread"):
                compute(where(), client)
            await cluster.scale(1)
            return list(await asyncio.to_thread(compute, where(), client))

    assert asyncio.run(work()) == [os.getpid()] * 4


def test_everything_is_computed_by_an_executor() -> None:
    """Dask's own waits have no limit where no worker is left."""
    package = Path(rf.__file__).parent
    direct = re.compile(r"\.(compute|persist)\(")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(
            direct.search(line) and "executor.compute(" not in line
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    }
    assert found <= {"execution/executor.py"}
