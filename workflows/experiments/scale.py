"""How time and memory grow: with rows, columns, features, candidates and workers.

Each setting runs in a process of its own on rows that are made block by block: choose a map, one
pass of ridge on it, one epoch of learned features on a tenth of the rows. Rows of Criteo's shape
(39 of 1,000,000 columns) are first projected to 250 columns and written to a store. CPU seconds
are sums over the process and its workers, like peak memory, which is looked at every 20 ms; wall
seconds are those of all steps, and of use on an idle machine only. Then empty tasks of the number
that a billion rows would need are sent to a scheduler, which says how many it takes in a second.

    python workflows/experiments/scale.py [--rows 1000000] [--trials 1] [--out FOLDER]
    python workflows/experiments/scale.py --quick --out /tmp/results
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import psutil
from figures import Row, draw_lines, log_axis, one_figure
from harness import (
    Options,
    Results,
    print_table,
    run_trials,
)

import rfcdask as rf

CRITEO = "rows of Criteo's shape"
WIDTH = 250  # columns that they are projected to, as in the paper
MIDDLE = {"rows": 1_000_000, "columns": 28, "J": 500, "candidates": 2000, "workers": 0}
VARIED: dict[str, tuple[int, ...]] = {
    "columns": (28, 100, 250),
    "J": (100, 500, 1000),
    "candidates": (1000, 2000, 4000, 8000),
    "workers": (1, 2),
}
QUICK = {"rows": 20_000, "columns": 8, "J": 40, "candidates": 400, "workers": 0}
QUICK_VARIED: dict[str, tuple[int, ...]] = {CRITEO: (2000,), "workers": (1,)}
AXES = {"J": "features J", "candidates": "candidates J+"}
STEPS = ("project", "select", "ridge", "learned", "score")
SCHEDULER = "scheduler"


def make(at: dict[str, int], store: str) -> tuple[Any, Any]:
    """Return rows and labels, lazily, in blocks of about 8 MB."""
    if at.get("criteo"):
        made = rf.synthetic("criteo", at["rows"], dest=store, project=WIDTH)
        return made.X, made.y
    block = max(1000, 2_000_000 // at["columns"])
    X = da.random.default_rng(0).normal(
        size=(at["rows"], at["columns"]), chunks=(block, at["columns"])
    )
    X = X.astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64)


def work(at: dict[str, int]) -> Row:
    """Do all steps and return the seconds of each, and the peak of memory."""
    peak = Peak()
    seconds: Row = {}
    cluster = rf.connect("threads") if not at["workers"] else _workers(at["workers"])
    with tempfile.TemporaryDirectory() as folder, cluster, peak:
        few = at | {"rows": 2000, "J": 20, "candidates": 100}
        do_steps(few, f"{folder}/few", lambda step: None)  # so that compiling does not count
        start, began = cpu_seconds() - peak.own_seconds, time.perf_counter()

        def lap(step: str) -> None:
            nonlocal start
            now = cpu_seconds() - peak.own_seconds
            seconds[f"{step}_seconds"], start = now - start, now

        do_steps(at, f"{folder}/all", lap)
        seconds["wall_seconds"] = time.perf_counter() - began
    return seconds | {"peak_MB": peak.bytes / 1e6}


def do_steps(at: dict[str, int], store: str, lap: Callable[[str], None]) -> None:
    """Do all steps, and say after each that it is done."""
    X, y = make(at, store)
    if at.get("criteo"):
        lap("project")
    features = rf.CompressedFeatures(
        at["J"], n_candidates=at["candidates"], refine=0, random_state=0
    ).fit(X)
    lap("select")
    ridge = rf.RidgeClassifier().fit(features.transform(X), y)
    lap("ridge")
    some = at["rows"] // 10
    rf.KernelClassifier(at["J"], gamma="scale", epochs=1, random_state=0).fit(X[:some], y[:some])
    lap("learned")
    ridge.score(features.transform(X[:some]), y[:some])
    lap("score")


def cpu_seconds() -> float:
    """Return the CPU time of this process and its workers so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(spent.user + spent.system for spent in times))


def _workers(count: int) -> Any:
    return rf.connect("local", n_workers=count, threads_per_worker=1)


class Peak:
    """The largest sum of memory over this process and its children, while it is open."""

    def __init__(self) -> None:
        self.bytes, self._end = 0, threading.Event()
        self.own_seconds = 0.0  # CPU time of looking, which grows with the wall time
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        me = psutil.Process()
        known, looked = [me], 0.0
        while not self._end.wait(0.02):
            total = 0
            if time.monotonic() > looked + 1:  # finding children takes 4 ms, their memory 0.02
                known, looked = [me, *me.children(recursive=True)], time.monotonic()
            for process in known:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.bytes = max(self.bytes, total)
            self.own_seconds = time.thread_time()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()


def scheduler_load(tasks: int) -> Row:
    """Return how many empty tasks per second a scheduler hands out and takes back."""
    with rf.connect("local", n_workers=1, threads_per_worker=1) as client:
        start = time.perf_counter()
        client.gather(client.map(_nothing, range(tasks), pure=False))
        seconds = time.perf_counter() - start
    return {"tasks": tasks, "seconds": seconds, "tasks_per_second": tasks / seconds}


def _nothing(number: int) -> None:
    return None


def middle(options: Options) -> dict[str, int]:
    """Return the setting from which one thing at a time is varied."""
    return MIDDLE | {"rows": options.n_rows or MIDDLE["rows"]}


def measure(options: Options, varied: str, value: int, trial: int) -> Iterator[Row]:
    if varied == SCHEDULER:
        yield scheduler_load(value)
        return
    changed = {"rows": value, "criteo": 1} if varied == CRITEO else {varied: value}
    at = (QUICK if options.quick else middle(options)) | changed
    done = subprocess.run(
        [sys.executable, __file__, "--one", json.dumps(at)], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{at} failed:\n{done.stderr}")
    yield at | json.loads(done.stdout.splitlines()[-1])


def report(options: Options, results: Results) -> None:
    shown = list(dict.fromkeys(r["varied"] for r in results.rows if r["varied"] != SCHEDULER))
    with one_figure(
        options.out, "scale", [f"against {AXES.get(name, name)}" for name in shown]
    ) as panels:
        for panel, varied in zip(panels, shown, strict=True):
            lines = [
                row | {"method": step}
                for step in STEPS
                for row in results.summary(["varied", "value"], f"{step}_seconds")
                if row["varied"] == varied
            ]
            draw_lines(panel, lines, "value", xlabel=AXES.get(varied, varied), ylabel="CPU seconds")
            log_axis(panel, (row["value"] for row in lines))
            panel.set_yscale("log")
            print(f"\nCPU seconds against {varied}, then peak memory in MB\n")
            print_table(lines, "value", digits=1)
            for value, name in (("peak_MB", "peak"), ("wall_seconds", "wall seconds")):
                found = results.summary(["varied", "value"], value)
                print_table([r | {"method": name} for r in found if r["varied"] == varied], "value")
    print("\nempty tasks per second\n")
    print_table(
        [r | {"method": SCHEDULER} for r in results.summary(["tasks"], "tasks_per_second")], "tasks"
    )


def cells(options: Options) -> list[Row]:
    rows = middle(options)["rows"]
    counts = (rows, 3 * rows, 11 * rows)
    varied = QUICK_VARIED if options.quick else {"rows": counts, CRITEO: counts[:2]} | VARIED
    found = [{"varied": name, "value": v} for name, values in varied.items() for v in values]
    return [*found, {"varied": SCHEDULER, "value": 500 if options.quick else 20_000}]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(work(json.loads(sys.argv[2]))))
    else:
        run_trials(__doc__, "scale", cells, measure, report, trials=1)
