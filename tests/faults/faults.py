"""The faults, each fired by the scheduler's own count of finished tasks, and where they happen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, SchedulerPlugin, WorkerPlugin

from tests.data.data_helpers import CONTEXT
from tests.faults.phases import PHASES, Phase, make_data
from tests.pages import ROOT, load_script

strike_at = load_script("reliability/soak.py").strike_at
HUNG = 240
"""Seconds after which a cell counts as hung; an undisturbed one takes less than ten."""
SIZES: dict[str, dict[str, Any]] = {
    "two": {"n_workers": 2, "threads_per_worker": 1},
    "one": {"n_workers": 1, "threads_per_worker": 2},
    "small": {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "800MB"},
}


class SchedulerDies(SchedulerPlugin):
    """Kills the process of the scheduler that it was sent to, at its n-th finished task."""

    name = "fault"

    def __init__(self, number: int) -> None:
        self.number = number

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            self.number -= 1
            if self.number == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class MemoryFills(WorkerPlugin):
    """Takes memory beyond the worker's limit when a task begins there, as long as a file exists.

    It waits for its end within the worker's own loop, so that the task never ends before.
    """

    name = "fault"

    def __init__(self, armed: Path) -> None:
        self.armed = armed

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish == "executing" and self.armed.exists():
            filled = np.ones(10**8)
            time.sleep(HUNG)
            del filled


class Place:
    """A cluster of worker processes that is used again by the next cell, if it is still whole."""

    def __init__(self, size: str) -> None:
        self.n_workers = SIZES[size]["n_workers"]
        self._stack = ExitStack()
        # A local cluster closes for good a worker that is away 15 s after it was lost, which on a
        # busy machine is before it is back: that is Dask's own fault, and not the one tried here.
        self._stack.enter_context(
            dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
        )
        # Each death of the worker that is too small is a new process; two tell as much as four.
        if size == "small":
            self._stack.enter_context(
                dask.config.set({"distributed.scheduler.allowed-failures": 1})
            )
        self.cluster = self._stack.enter_context(
            LocalCluster(processes=True, dashboard_address=":0", **SIZES[size])
        )
        self.client = self._stack.enter_context(Client(self.cluster, set_as_default=False))

    def pids(self) -> dict[str, int]:
        """Return the processes of the workers by their address."""
        nannies = list(self.cluster.workers.values())
        return {nanny.worker_address: nanny.pid for nanny in nannies if nanny.pid}

    def whole_again(self) -> None:
        """Wait until all workers are back."""
        self.cluster.scale(self.n_workers)
        self.client.wait_for_workers(self.n_workers, timeout=60)

    def close(self) -> None:
        self._stack.close()


@dataclass
class Bench:
    """What all cells share: data, clusters, and what an undisturbed phase gives."""

    folder: Path
    stopped_seconds: float = 20
    places: dict[str, Place] = field(default_factory=dict)
    calm: dict[str, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        self.data.mkdir()
        make_data(self.data)

    def place(self, size: str = "two") -> Place:
        if size not in self.places:
            self.places[size] = Place(size)
        return self.places[size]

    def undisturbed(self, phase: Phase) -> tuple[str, int]:
        """Return the result of a phase, and how many tasks it takes."""
        if phase.name not in self.calm:
            place, folder = self.place(), self.folder / f"calm-{phase.name}"
            folder.mkdir()
            with strike_at(place.cluster, 0, _nothing) as plugin:
                found = phase.work(place.client, self.data, folder)
            self.calm[phase.name] = (found, plugin.seen)
        return self.calm[phase.name]

    def close(self) -> None:
        for place in self.places.values():
            place.close()
        self.places.clear()


def _nothing(worker: str) -> None:
    pass


@dataclass
class Cell:
    """One phase under one fault: where it works, and what is to come of it."""

    bench: Bench
    phase: Phase
    place: Path

    def __post_init__(self) -> None:
        self.expected, self.tasks = self.bench.undisturbed(self.phase)
        self.middle = max(2, self.tasks // 2)

    def work(self, client: Any) -> str:
        return self.phase.work(client, self.bench.data, self.place)

    def ends_the_same(self, size: str, strike: Callable[[Place, str], None]) -> str:
        """Strike in the middle of the phase, which must not show in the result."""
        place = self.bench.place(size)
        struck = []

        def once(worker: str) -> None:
            struck.append(worker)
            strike(place, worker)

        with strike_at(place.cluster, self.middle, once):
            found = self.work(place.client)
        assert struck
        assert found == self.expected, "the result differs from that of an undisturbed run"
        place.whole_again()
        return "same"

    def raises(self, client: Any, words: str) -> str:
        """Work until the package's own error, in one sentence with its remedy."""
        with pytest.raises(Exception, match=r"\w") as caught:
            self.work(client)
        error, text = caught.value, str(caught.value)
        said = f"{type(error).__module__}.{type(error).__name__}: {text}"
        assert not type(error).__module__.startswith(("distributed", "asyncio", "concurrent")), said
        assert re.search(words, text), said
        assert "\n" not in text, said
        assert text.endswith("."), said
        return type(error).__name__

    def repeats(self) -> None:
        """Call again, with the same arguments: the result is that of an undisturbed run."""
        assert self.work(self.bench.place().client) == self.expected


def one_killed(cell: Cell) -> str:
    return cell.ends_the_same("two", lambda place, worker: _kill(place.pids()[worker]))


def all_killed(cell: Cell) -> str:
    return cell.ends_the_same("two", _kill_all)


def only_one_killed(cell: Cell) -> str:
    return cell.ends_the_same("one", _kill_all)


def _kill_all(place: Place, worker: str) -> None:
    for pid in place.pids().values():
        _kill(pid)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stopped(cell: Cell) -> str:
    def strike(place: Place, worker: str) -> None:
        pid = place.pids()[worker]
        os.kill(pid, signal.SIGSTOP)
        wake = threading.Timer(cell.bench.stopped_seconds, os.kill, (pid, signal.SIGCONT))
        wake.daemon = True
        wake.start()

    return cell.ends_the_same("two", strike)


def scaled_to_one(cell: Cell) -> str:
    return cell.ends_the_same("two", lambda place, worker: place.cluster.scale(1))


def memory_limit(cell: Cell) -> str:
    place = cell.bench.place("small")
    armed = cell.place.parent / "armed"
    armed.touch()
    place.client.register_plugin(MemoryFills(armed))
    name = cell.raises(place.client, "memory")
    armed.unlink()
    place.whole_again()
    cell.repeats()
    return f"`{name}`, then same"


def scheduler_gone(cell: Cell) -> str:
    with _remote(cell.place.parent) as client:
        client.register_plugin(SchedulerDies(cell.middle))
        name = cell.raises(client, r"scheduler.* (again|resume|go on)")
    cell.repeats()
    return f"`{name}`, then same"


@contextmanager
def _remote(folder: Path) -> Iterator[Client]:
    """A scheduler and two workers as programs of their own."""
    file = folder / "scheduler.json"
    common = ["--scheduler-file", str(file)]
    with ExitStack() as stack:
        stack.enter_context(
            _program("dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0")
        )
        stack.enter_context(
            _program("dask_worker", *common, "--nworkers", "2", "--nthreads", "1", cwd=folder)
        )
        while not (file.exists() and file.read_text().endswith("}")):
            time.sleep(0.05)
        client = Client(scheduler_file=str(file), set_as_default=False, timeout="5s")
        try:
            client.wait_for_workers(2, timeout=60)
            yield client
        finally:
            client.close(timeout=2)


@contextmanager
def _program(name: str, *args: str, cwd: Path | None = None) -> Iterator[None]:
    command = [sys.executable, "-m", f"distributed.cli.{name}", *args, "--no-dashboard"]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def driver_killed(cell: Cell) -> str:
    place = cell.bench.place("two")
    address = place.cluster.scheduler_address
    number = PHASES.index(cell.phase)
    driver = CONTEXT.Process(target=_drive, args=(number, address, cell.bench.data, cell.place))
    with strike_at(place.cluster, cell.middle, lambda worker: _kill(driver.pid)):
        driver.start()
        driver.join(HUNG)
    assert driver.exitcode == -signal.SIGKILL
    cell.repeats()
    return "killed, then same"


def _drive(number: int, address: str, data: Path, place: Path) -> None:
    with Client(address, set_as_default=False) as client:
        PHASES[number].work(client, data, place)


def disk_full(cell: Cell) -> str:
    place = cell.bench.place("two")
    with _small_disk(cell):
        filler = cell.place / "filler"
        with strike_at(place.cluster, cell.middle, lambda worker: _fill(filler)):
            name = cell.raises(place.client, "no space left")
        filler.unlink()
        cell.repeats()
    return f"`{name}`, then same"


def _fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def read_only(cell: Cell) -> str:
    client = cell.bench.place("two").client
    with _small_disk(cell):
        _mount("-o", "remount,ro", str(cell.place))
        try:
            name = cell.raises(client, "no right to write|[Rr]ead-only")
        finally:
            _mount("-o", "remount,rw", str(cell.place))
        cell.repeats()
    return f"`{name}`, then same"


@contextmanager
def _small_disk(cell: Cell) -> Iterator[None]:
    """Give the cell a disk of its own, of 48 MB, in memory."""
    try:
        _mount("-t", "tmpfs", "-o", "size=48m", "tmpfs", str(cell.place))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a disk of its own needs the right to mount one")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(cell.place)], check=True)


def _mount(*args: str) -> None:
    subprocess.run(["mount", *args], check=True, capture_output=True)


FAULTS: dict[str, Callable[[Cell], str]] = {
    "one worker killed": one_killed,
    "all workers killed": all_killed,
    "worker stopped": stopped,
    "scaled to one": scaled_to_one,
    "driver killed": driver_killed,
    "disk full": disk_full,
    "read-only": read_only,
    "only worker killed": only_one_killed,
    "memory limit": memory_limit,
    "scheduler gone": scheduler_gone,
}
"""In an order in which cells that share a cluster follow one another."""
ON_DISK = ("disk full", "read-only")
"""These do not apply to phases that write nothing."""
