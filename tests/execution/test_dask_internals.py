"""Every private or undocumented name of Dask that is used, so that a renaming is said by name."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster, span

import rfcdask
from rfcdask.execution import dask_internals

NAMES = [
    "dask.layers:ArraySliceDep",
    "distributed:Client._get_versions",
    "distributed:Client._run",
    "distributed:Client._send_to_scheduler",
    "distributed:Client.loop",
    "distributed:Client.sync",
    "distributed:SpecCluster._instances",
    "distributed:SpecCluster._start",
    "distributed.client:ClosedClientError",
    "distributed.system:MEMORY_LIMIT",
    "distributed.versions:VersionMismatchWarning",
    "distributed.scheduler:Scheduler.identity",
    "distributed.spans:SpansSchedulerExtension.heartbeat",
    "distributed.spans:SpansSchedulerExtension.observe_tasks",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_dask_are_there(name: str) -> None:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        known = hasattr(found, part)
        assert known, f"Dask has no {name} any more: mend rfcdask/execution/dask_internals.py"
        found = getattr(found, part)


def test_calls_of_dask_take_their_arguments(cluster_client: Client) -> None:
    wanted = {
        "sync": ("callback_timeout",),
        "_get_versions": ("packages",),
        "_run": ("on_error", "function"),
    }
    for name, arguments in wanted.items():
        known = inspect.signature(getattr(cluster_client, name)).parameters
        missing = set(arguments) - set(known)
        assert not missing, f"distributed.Client.{name} has no {missing} any more"


def test_fields_of_a_client_are_there(cluster_client: Client) -> None:
    assert cluster_client.status == "running"
    assert isinstance(cluster_client.loop.asyncio_loop, asyncio.AbstractEventLoop)
    assert cluster_client.scheduler.address.startswith("tcp://")
    with Client(cluster_client.scheduler.address, set_as_default=False) as other:
        assert other._start_arg == cluster_client.scheduler.address
    assert other.status == "closed"
    assert not dask_internals.scheduler_answers(other, 1.0)
    assert dask_internals.scheduler_answers(cluster_client, 10.0)


def test_fields_of_a_worker_are_there(cluster_client: Client) -> None:
    known = cluster_client.sync(cluster_client.scheduler.identity, n_workers=-1)
    assert len(known["workers"]) == 2
    for address, worker in known["workers"].items():
        for field in ("nthreads", "memory_limit", "metrics", "status"):
            assert field in worker, f"a worker's description has no {field!r} any more"
        for field in ("memory", "task_counts"):
            assert field in worker["metrics"], f"a worker's metrics have no {field!r} any more"
        assert worker["status"] == "running"
        info = dask_internals.worker_infos(cluster_client, 10.0)[address]
        assert info.threads == 1
        assert info.memory > 2**20
        assert info.memory_limit == worker["memory_limit"] > 0


@pytest.mark.timeout(60)
def test_the_states_of_busy_tasks_are_known(cluster_client: Client) -> None:
    from distributed.worker_state_machine import TaskState

    known = inspect.getsource(inspect.getmodule(TaskState))  # type: ignore[arg-type]
    for state in (*dask_internals.BUSY, "ready"):
        assert f'"{state}"' in known, f"a worker's tasks have no state {state!r} any more"


def test_questions_to_workers_have_a_limit(cluster_client: Client) -> None:
    pids = dask_internals.run_on_workers(cluster_client, os.getpid, timeout=60.0)
    assert len(set(pids.values())) == 2
    found = dask_internals.versions(cluster_client, ["numpy"], timeout=60.0)
    assert all("numpy" in info["packages"] for info in found["workers"].values())
    with pytest.raises(TimeoutError):
        dask_internals.run_on_workers(cluster_client, _wait, timeout=0.1)


def _wait() -> None:
    import time

    time.sleep(1.0)


def test_nothing_private_of_dask_elsewhere() -> None:
    """Look for private modules of Dask, and private names of what is called a client or cluster."""
    private = re.compile(
        r"(from|import) (dask|distributed)[\w.]*\._|\b(dask|distributed)\._\w"
        r"|\b(client|cluster|Client|Cluster|scheduler|future)\._[a-z]|asyncio_loop"
    )
    folder = Path(rfcdask.__file__).parent
    lines = [
        f"{file.relative_to(folder)}:{number}: {line.strip()}"
        for file in folder.rglob("*.py")
        if file.name != "dask_internals.py"
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if private.search(line)
    ]
    assert not lines, lines


def test_only_spans_of_the_user_are_kept() -> None:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        before = cluster.scheduler.extensions["spans"]
        client.submit(int, 1).result()
        assert len(before.spans) == 1, "Dask keeps no spans any more: forget_finished_work can go"
        dask_internals.forget_finished_work(cluster)
        kept = cluster.scheduler.extensions["spans"].spans
        client.submit(abs, 2).result()
        assert not kept
        with span("mine") as name:
            client.submit(abs, 3).result()
        client.submit(abs, 4).result()
        client.sync(cluster.workers[0].heartbeat)  # times of tasks in a span and of others
        assert list(kept) == [name]
        assert any("abs" in key for key in kept[name].cumulative_worker_metrics)
        assert len(before.spans) == 1


def test_layers_tell_the_arguments_of_their_function() -> None:
    lazy = da.ones((4, 2), chunks=(2, 2)).map_blocks(lambda block, by: block * by, by=3.0)
    found = dask_internals.layer_options(lazy)
    assert found.get("by") == 3.0, "a blockwise layer has no .task.kwargs any more"
    assert "by" not in dask_internals.layer_options(lazy + 1)


@pytest.mark.parametrize("inline", [False, True])
def test_graphs_show_the_arrays_they_read(inline: bool) -> None:
    stored = zarr.array(np.arange(8.0), chunks=2)
    lazy = da.from_array(stored, inline_array=inline).map_blocks(lambda b, by: b * by, by=Marker())
    found = list(dask_internals.values_in_graph(lazy + 1))
    assert stored in found, "Dask keeps the arrays that it reads elsewhere now"
    assert any(isinstance(value, Marker) for value in found)


class Marker:
    """An argument that no other is equal to."""

    def __rmul__(self, block: Any) -> Any:
        return block
