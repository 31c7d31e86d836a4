"""The whole small pipeline again and again on one cluster, with a random fault in every run.

Each run reads text into a shuffled store, chooses features, trains, scores, writes the features of
all rows, and saves and loads the model. In the middle of it, at a task that the seed draws, a fault
strikes. Where the package raises, the same calls are made again. The bytes that come out must be
those of an undisturbed run, no run may take longer than its limit, and over the second half of all
runs neither memory, descriptors, threads, tasks, locks nor temporary files may become more.

One line of JSON a run is appended to the file that ``--out`` names. Called again, it goes on after
the last line there.

Run: python workflows/reliability/soak.py [--runs 200] [--seed 0] [--out soak.jsonl]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import scipy.stats
from dask.utils import key_split
from distributed import Client, LocalCluster, SchedulerPlugin
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.execution.dask_internals import forget_finished_work
from rfcdask.linear import write_zarr

ROWS, COLUMNS, BLOCK_SIZE = 2000, 6, 200 * 6 * 8
WORKERS = 2
STOPPED_SECONDS = 1.0
LIMIT = 60
"""Seconds after which a run counts as hung; an undisturbed one takes about one."""
CONFIG = {
    # A local cluster closes a worker for good that is not there 15 s after its death: short on a
    # busy machine. Longer than all runs, or a worker that dies again just then is closed too.
    "distributed.deploy.lost-worker-timeout": "1 day",  # as with rf.connect
    # Dask keeps logs of up to 10,000 lines, and the events of dead workers for an hour: they would
    # fill up through all 200 runs and hide whether anything else grows.
    "distributed.admin.log-length": 100,
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.system-monitor.log-length": 100,
    "distributed.scheduler.events-cleanup-delay": "5 s",
}
CONTEXT = multiprocessing.get_context("forkserver")


def write_text(path: Path) -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(ROWS, COLUMNS))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    with open(path, "w", encoding="utf-8") as file:
        for label, row in zip(y.tolist(), X.tolist(), strict=True):
            print(label, *(f"{j}:{value!r}" for j, value in enumerate(row, 1)), file=file)


def pipeline(client: Any, text: Path, folder: Path) -> str:
    """Go from text to a saved model and return a digest of all that came out.

    Called again after an interruption it goes on: the ingest and the training where they were,
    and whatever is whole already stays.
    """
    store = stored(client, text, folder / "rows.zarr")
    features = rf.CompressedFeatures(
        12, gamma=0.2, n_candidates=100, n_rows=400, refine=10, random_state=0
    ).fit(store.X, client=client)
    Z = features.transform(store.X)
    learner = rf.SGDClassifier(
        epochs=2, persist=False, random_state=0, checkpoint=folder / "sgd.npz", checkpoint_every=4
    ).fit(Z, store.y, client=client)
    right = learner.score(Z, store.y, client=client)
    write_zarr(Z, folder / "features.zarr", overwrite=True, client=client)
    whole = make_pipeline(features, learner.set_params(checkpoint=None))
    rf.save(whole, folder / "model", overwrite=True)
    again = rf.load(folder / "model").predict(store.X[:200]).compute()
    return digest(folder / "rows.zarr", folder / "features.zarr", folder / "model", right, again)


def stored(client: Any, text: Path, dest: Path) -> Any:
    """Return the store of the text, made or completed now unless it is whole already."""
    options: dict[str, Any] = {"block_size": BLOCK_SIZE, "shuffle": True, "random_state": 7}
    try:
        return rf.ingest(text, dest, client=client, **options)
    except FileExistsError:
        return rf.open_dataset(dest)


def digest(*parts: Any) -> str:
    """Return one hash of arrays, numbers and all files of folders."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            for path in sorted(path for path in part.rglob("*") if path.is_file()):
                found.update(str(path.relative_to(part)).encode() + path.read_bytes())
        else:
            found.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return found.hexdigest()


class AtTask(SchedulerPlugin):
    """Counts finished tasks, and strikes at one of them within the scheduler itself."""

    name = "fault"

    def __init__(self, number: int, strike: Callable[[str], None]) -> None:
        self.number, self.strike = number, strike
        self.seen = 0

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, worker: str = "", **kwargs: Any
    ) -> None:
        """Count."""
        if start == "processing" and finish == "memory":
            self.seen += 1
            if self.seen == self.number:
                self.strike(worker)


@contextmanager
def strike_at(cluster: Any, number: int, strike: Callable[[str], None]) -> Iterator[AtTask]:
    """Strike once in a local cluster, at this task; 0 only counts."""
    plugin = AtTask(number, strike)

    async def add() -> None:
        cluster.scheduler.add_plugin(plugin)

    async def remove() -> None:
        cluster.scheduler.remove_plugin(plugin.name)

    cluster.sync(add)
    try:
        yield plugin
    finally:
        cluster.sync(remove)


class Bench:
    """One cluster for all runs, and the faults that can happen to it."""

    def __init__(self, text: Path) -> None:
        self.text = text
        self.cluster: Any = LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
        forget_finished_work(self.cluster)  # as rf.connect does
        self.client = Client(self.cluster, set_as_default=False)
        self.faults: dict[str, Callable[[str], None]] = {
            "worker killed": lambda worker: self.signal(worker, signal.SIGKILL),
            "all workers killed": self.kill_all,
            "worker stopped": self.stop,
            "cluster restarted": lambda worker: self.aside(self.client.restart),
            "scaled to one": lambda worker: self.aside(self.cluster.scale, 1),
            "driver killed": self.kill_driver,
        }
        self.driver: Any = None

    def pids(self) -> dict[str, int]:
        """Return the processes of the workers by their address."""
        nannies = list(self.cluster.workers.values())
        return {nanny.worker_address: nanny.pid for nanny in nannies if nanny.pid}

    def signal(self, worker: str, number: int) -> None:
        """Send a signal to a worker, unless it is gone."""
        if worker in self.pids():
            os.kill(self.pids()[worker], number)

    def kill_all(self, worker: str) -> None:
        """Kill all workers in the same instant."""
        for pid in self.pids().values():
            os.kill(pid, signal.SIGKILL)

    def stop(self, worker: str) -> None:
        """Stop a worker for a while."""
        self.signal(worker, signal.SIGSTOP)
        timer = threading.Timer(STOPPED_SECONDS, self.signal, (worker, signal.SIGCONT))
        timer.daemon = True
        timer.start()

    def aside(self, work: Callable[..., Any], *args: Any) -> None:
        """Do something that waits for the scheduler, which is calling just now."""
        threading.Thread(target=work, args=args, daemon=True).start()

    def kill_driver(self, worker: str) -> None:
        """Kill the process that called the pipeline."""
        os.kill(self.driver.pid, signal.SIGKILL)

    def run(self, fault: str | None, at: int, folder: Path) -> tuple[str, int, list[str]]:
        """Return what a run gives, how many tasks it took, and the errors that it met."""
        errors: list[str] = []
        strike = self.faults.get(fault or "", lambda worker: None)
        with strike_at(self.cluster, at, strike) as plugin:
            if fault == "driver killed":
                address = self.cluster.scheduler_address
                self.driver = CONTEXT.Process(target=drive, args=(address, self.text, folder))
                self.driver.start()
                self.driver.join(LIMIT)
            found = self._until_it_ends(folder, errors)
        self.cluster.scale(WORKERS)
        self.client.wait_for_workers(WORKERS, timeout=LIMIT)
        self.cluster.sync(self._forget_dead_workers)
        return found, plugin.seen, errors

    async def _forget_dead_workers(self) -> None:
        """Let go of workers that are gone, all of which Dask's work stealing keeps in a count."""
        scheduler = self.cluster.scheduler
        counts = scheduler.extensions["stealing"].in_flight_tasks
        for worker in set(counts) - set(scheduler.workers.values()):
            del counts[worker]

    def _until_it_ends(self, folder: Path, errors: list[str]) -> str:
        for _ in range(3):
            try:
                return pipeline(self.client, self.text, folder)
            except Exception as error:
                errors.append(f"{type(error).__module__}.{type(error).__name__}: {error}")
        return "none"

    def close(self) -> None:
        """End the cluster."""
        self.client.close(timeout=10)
        self.cluster.close(timeout=10)


def drive(address: str, text: Path, folder: Path) -> None:
    """Call the pipeline from a process of its own, which will be killed."""
    with Client(address, set_as_default=False) as client:
        pipeline(client, text, folder)


class HungError(BaseException):
    """A run took longer than its limit; nothing within the run may take it for its own error."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise HungError in the main thread when the block takes too long."""

    def raise_it(*_: Any) -> None:
        raise HungError

    signal.signal(signal.SIGALRM, raise_it)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def fill_names() -> None:
    """Fill Dask's memory of the last 100,000 names of tasks, which takes hundreds of runs."""
    for number in range(key_split.cache_parameters()["maxsize"]):
        key_split(f"rfcdask-block-{number:012x}-{number}")


def usage(bench: Bench, scratch: Path) -> dict[str, float]:
    """Measure what must not become more from run to run."""
    here = psutil.Process()
    workers = [psutil.Process(pid) for pid in bench.pids().values()]
    files = [path for path in scratch.rglob("*") if path.is_file()]
    left = [path for path in files if "dask-scratch-space" not in path.parts]
    return {
        "driver and scheduler MiB": here.memory_info().rss / 2**20,
        "worker MiB": max(worker.memory_info().rss for worker in workers) / 2**20,
        "driver descriptors": here.num_fds(),
        "worker descriptors": max(worker.num_fds() for worker in workers),
        "driver threads": here.num_threads(),
        "worker threads": max(worker.num_threads() for worker in workers),
        "processes": len(here.children(recursive=True)),
        "tasks": len(bench.cluster.scheduler.tasks),
        "locks": sum(path.name.endswith("lock") for path in left),
        "unfinished files": sum(".unfinished" in str(p) or ".part" in p.name for p in left),
        "temporary files": sum("temporary" in path.parts for path in left),
        "scratch files of Dask": len(files) - len(left),
    }


def soak(runs: int, seed: int, out: Path, scratch: Path) -> list[dict[str, Any]]:
    """Do the runs that are not in the file yet, and return the records of all."""
    records = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    text, temporary = scratch / "rows.svm", scratch / "temporary"
    temporary.mkdir()
    write_text(text)
    fill_names()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)  # workers and children take it too
    session = f"{time.time():.0f}"
    bench = Bench(text)
    try:
        expected, tasks, _ = _one(bench, None, 0, scratch / "calm")
        for number in range(len(records), runs):
            chance = random.Random(f"{seed}-{number}")
            fault, at = chance.choice([*bench.faults]), chance.randrange(1, tasks)
            start = time.perf_counter()
            record: dict[str, Any] = {"run": number, "session": session, "fault": fault, "at": at}
            try:
                with time_limit(LIMIT):
                    found, _, errors = _one(bench, fault, at, scratch / "run")
                outcome = "same" if found == expected else "wrong"
                record |= {"outcome": outcome, "errors": errors, "usage": usage(bench, scratch)}
            except HungError:
                record |= {"outcome": "hung", "errors": [], "usage": None}
                bench.close()
                bench = Bench(text)
            record["seconds"] = time.perf_counter() - start
            records.append(record)
            with open(out, "a", encoding="utf-8") as file:
                print(json.dumps(record), file=file)
            print(
                f"{number:4d}  {fault:20s} at {at:4d}  {record['outcome']}"
                f"  {record['seconds']:5.1f} s  {'; '.join(record['errors'])[:80]}",
                flush=True,
            )
    finally:
        bench.close()
    return records


def _one(bench: Bench, fault: str | None, at: int, folder: Path) -> tuple[str, int, list[str]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return bench.run(fault, at, folder)


def trend(values: list[float]) -> dict[str, float | bool]:
    """Fit a line to values run by run, and tell whether they grow beyond noise.

    They do where the slope is significant at 1 % and the line rises by more than 2 % of the level
    over all the runs given.
    """
    level = float(np.mean(values))
    if len(values) < 3 or np.ptp(values) == 0:
        return {"level": level, "rise": 0.0, "p": 1.0, "grows": False}
    line = scipy.stats.linregress(np.arange(len(values)), values, alternative="greater")
    rise = float(line.slope * (len(values) - 1))
    grows = bool(line.pvalue < 0.01 and rise > 0.02 * level)
    return {"level": level, "rise": rise, "p": float(line.pvalue), "grows": grows}


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Count outcomes and look for growth over the second half of the longest session.

    Each call of the script is a session with a cluster of its own: what comes after a resume
    starts low again, so only runs of one session can be compared.
    """
    longest, _ = Counter(record["session"] for record in records).most_common(1)[0]
    session = [record for record in records if record["session"] == longest and record["usage"]]
    half = session[len(session) // 2 :]
    trends = {
        name: trend([record["usage"][name] for record in half])
        for name in (half[-1]["usage"] if half else {})
    }
    foreign = [
        error
        for record in records
        for error in record["errors"]
        if error.startswith(("distributed", "asyncio", "concurrent"))
    ]
    return {
        "runs": len(records),
        "outcomes": dict(Counter(record["outcome"] for record in records)),
        "faults": dict(Counter(record["fault"] for record in records)),
        "errors": dict(Counter(e.split(": ")[0] for r in records for e in r["errors"])),
        "foreign errors": len(foreign),
        "slowest seconds": max(record["seconds"] for record in records),
        "trends": trends,
    }


def is_good(found: dict[str, Any]) -> bool:
    """Tell whether every run ended the same, in the package's own words, without growth."""
    same = found["outcomes"].get("same", 0) == found["runs"]
    grows = any(line["grows"] for line in found["trends"].values())
    return same and not found["foreign errors"] and not grows


def show(found: dict[str, Any]) -> None:
    """Print the summary as a table."""
    print(f"\n{found['runs']} runs: {found['outcomes']}, slowest {found['slowest seconds']:.1f} s")
    print(f"faults: {found['faults']}\nerrors before a repeat: {found['errors']}\n")
    print("| second half of the runs | mean | rise | p | |\n|---|---:|---:|---:|---|")
    for name, line in found["trends"].items():
        word = "**grows**" if line["grows"] else "steady"
        print(f"| {name} | {line['level']:.1f} | {line['rise']:+.1f} | {line['p']:.2g} | {word} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak.jsonl"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, dask.config.set(CONFIG):
        found = summary(soak(args.runs, args.seed, args.out, Path(folder)))
    args.out.with_suffix(".summary.json").write_text(json.dumps(found, indent=1) + "\n")
    show(found)
    raise SystemExit(0 if is_good(found) else 1)


if __name__ == "__main__":
    main()
