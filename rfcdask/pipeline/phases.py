"""A run while it goes: what every phase is given, the phases in order, and the results.

A phase that is on record is not done again; the records of all phases become results.json,
report.html and a comparable form of them.
"""

from __future__ import annotations

import platform
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from typing import Any, Self

import numpy as np
import psutil

from rfcdask._version import __version__
from rfcdask.data import Dataset, open_dataset
from rfcdask.evaluation.compare import Split
from rfcdask.evaluation.evaluate import Judge
from rfcdask.execution.dask_internals import connection_errors, run_on_workers
from rfcdask.execution.failures import workers_of
from rfcdask.features import METHODS, NEIGHBOURS
from rfcdask.kernels.runtime import available_cpus, release_memory
from rfcdask.linear.transform import Standardizer
from rfcdask.persist.files import atomic_file, save_arrays
from rfcdask.persist.untrusted import open_npz, redacted
from rfcdask.pipeline.data import (
    CALIBRATION_ROWS,
    check_settled,
    draw_sample,
    make_plan,
    prepare_data,
    settle_kernel,
)
from rfcdask.pipeline.folder import (
    RESULTS_FORMAT,
    RunFolder,
    damage_of,
    plain,
    read_record,
    write_json,
    write_record,
)
from rfcdask.pipeline.report.page import recommend, render
from rfcdask.pipeline.settings import Settings, renamed
from rfcdask.pipeline.training import compare_maps, score, select, train, train_linear
from rfcdask.selection.columns import SharedCandidates

PACKAGES = ("dask", "distributed", "numba", "numpy", "scikit-learn", "scipy", "zarr")
TIMED = ("seconds", "fit_seconds", "train_seconds", "microseconds_per_row", "rows_per_second")
ROW_BLOCK = 8 * 2**20
"""Bytes of the rows of one block: a few are in memory for each thread. Of smaller ones the tasks
would cost more than the rows."""
METER_SECONDS = 0.1
GIVE_BACK_SECONDS = 5.0
CHILDREN_EVERY = 20
"""Looks between two listings of the children: a listing goes through all processes there are."""
Say = Callable[[str], None]


@dataclass
class Context:
    """One run while it goes."""

    folder: RunFolder
    settings: Settings
    source: str | None
    client: Any
    say: Say
    ignore_plan: bool = False
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    shared: SharedCandidates = field(default_factory=SharedCandidates)

    @property
    def compares(self) -> bool:
        """Whether maps are compared, as ``run`` does and ``fit`` does not."""
        return self.folder.final_model is None

    def product(self, phase: str) -> dict[str, Any]:
        """Return what a finished phase found."""
        return self.done[phase]["product"]

    @property
    def used(self) -> dict[str, Any]:
        """All settings, with what was settled from the data."""
        # Runs of older versions had classes only, and no other metric.
        before = {"scoring": "accuracy"}
        return self.settings.to_dict() | before | renamed(self.product("data")["settled"])

    @property
    def n_components(self) -> int:
        """The number of features of the final model."""
        wanted = self.used["n_components"]  # runs of older versions did not settle it
        return int(max(self.used["sizes"]) if wanted == "auto" else wanted)

    @property
    def learns_features(self) -> bool:
        """Whether the features of the final model learn with it, from all rows."""
        method = METHODS.get(self.used["method"])
        return method is not None and method.learns

    @cached_property
    def columns(self) -> Dataset:
        """All rows with the columns that they have on disk."""
        return open_dataset(self._place())

    @cached_property
    def stored(self) -> Dataset:
        """All rows as maps see them, in blocks fit for this run: sparse ones may be projected."""
        dataset, used = self.columns, self.used
        if dataset.sparse and used["project"] and used["method"] != "none":
            dataset = dataset.project(used["project"], self.settings.random_state)
        return dataset.with_smaller_blocks(4 * dataset.shape[1], ROW_BLOCK)

    def _place(self) -> Any:
        own = (self.folder.data / "zarr.json").is_file()
        # The record has no credentials, and names no third place.
        named = self.product("data")["path"] == redacted(self.source)
        return self.source if named and not own else self.folder.data

    @cached_property
    def standardizer(self) -> Standardizer | None:
        """The map to mean 0 and variance 1, None where the columns are left as they are."""
        return Standardizer.of(self.stored) if self.used["standardize"] else None

    @cached_property
    def judge(self) -> Judge:
        """What is to be predicted, and how models are judged."""
        used = self.used
        return Judge(self.stored.classes is None, used["scoring"], used["class_weight"])

    @cached_property
    def _parts(self) -> tuple[Dataset, Any, Any]:
        return self._split(self.stored.standardize() if self.used["standardize"] else self.stored)

    def _split(self, train: Dataset) -> tuple[Dataset, Any, Any]:
        """Rows to learn from, those held out, and those on which probabilities are learned."""
        seed = self.settings.random_state
        test: Any = None
        held: Any = None
        if self.used["test_size"]:
            train, test = train.split(self.used["test_size"], random_state=seed)
        if self.used["calibration"]:
            rows = min(train.shape[0] // 10, CALIBRATION_ROWS)
            train, held = train.split(rows, random_state=seed + 1)
        return train, test, held

    @cached_property
    def linear_parts(self) -> tuple[Dataset, Dataset, Dataset | None]:
        """The rows to learn from, held out and for probabilities, with all columns they have."""
        return self._split(self.columns) if self.columns.sparse else self._parts

    @property
    def train(self) -> Dataset:
        """The rows to learn from, lazily."""
        return self._parts[0]

    @property
    def test(self) -> Dataset:
        """The rows held out, lazily; there are none in a fit that learns from all."""
        return self._parts[1]

    @property
    def calibration_rows(self) -> Dataset | None:
        """The rows on which probabilities are learned, where they are asked for."""
        return self._parts[2]

    @cached_property
    def sample(self) -> Split:
        """The rows on which maps are chosen and compared, in memory, standardized like all."""
        path = self.folder.sample
        record = self.folder.phase(3, "sample")
        again = f"remove {record} and call again (rfcdask run with --resume) to make it again"
        with damage_of(path, again), open_npz(path) as stored:
            if self.folder.mark not in ("", str(stored.get("run"))):
                raise ValueError("it is of another run")
            needed = Split._fields if self.compares else ("X",)
            found = {name: stored[name] for name in {*needed, *stored} & {*Split._fields}}
            return Split(**(dict.fromkeys(Split._fields) | found))

    def keep_sample(self, sample: Split) -> None:
        """Write the rows on which maps are chosen and compared."""
        there = {name: part for name, part in sample._asdict().items() if part is not None}
        save_arrays(self.folder.sample, {"run": np.array(self.folder.mark), **there})

    def log(self, text: str) -> None:
        """Add a line with the time to the run's log."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with open(self.folder.log, "a", encoding="utf-8") as file:
            file.write(f"{now} {redacted(text)}\n")

    def load_finished(self, names: list[str]) -> None:
        """Take up the records of finished phases, up to the first that is missing."""
        for number, name in enumerate(names, 1):
            path = self.folder.phase(number, name)
            if not path.is_file():
                return
            self.done[name] = read_record(path, self.folder.mark, name)


class MemoryMeter:
    """Looks ten times a second at the memory of this process, its children and workers elsewhere.

    Parameters
    ----------
    remote : distributed.Client, optional
        A client whose workers are no children of this process; they are asked at each lap.
    """

    def __init__(self, remote: Any = None) -> None:
        self._remote = remote
        self._me = psutil.Process()
        self._family = self._list()
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rfcdask-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def lap(self) -> int:
        """Return the largest sum of resident bytes since the last call."""
        self._family = self._list()
        peak, self._peak = max(self._peak, self._here()), 0
        return peak + self._elsewhere()

    def _watch(self) -> None:
        looks = 0
        while not self._stop.wait(METER_SECONDS):
            looks += 1
            if looks % CHILDREN_EVERY == 0:
                self._family = self._list()
            self._peak = max(self._peak, self._here())

    def _list(self) -> list[psutil.Process]:
        return [self._me, *self._me.children(recursive=True)]

    def _here(self) -> int:
        return sum(map(_resident, self._family))

    def _elsewhere(self) -> int:
        if self._remote is None:
            return 0
        return sum(worker.memory for worker in workers_of(self._remote).values())


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):  # it ended between the listing and the look
        return int(process.memory_info().rss)
    return 0


@dataclass(frozen=True)
class Phase:
    """One step of a run: its product is written when it is done, and found again later."""

    name: str
    title: str
    work: Callable[[Context], dict[str, Any]]
    rows: Callable[[Context], int | None] = lambda run: None


DATA = Phase("data", "bringing the data to disk", prepare_data, lambda run: run.stored.shape[0])
PLAN = Phase("plan", "planning", make_plan)
SAMPLE = Phase(
    "sample", "fetching a sample", draw_sample, lambda run: sum(run.product("sample").values())
)
KERNEL = Phase("kernel", "settling the kernel", settle_kernel)
SELECT = Phase("select", "choosing features", select, lambda run: run.used["n_rows"])
TRAIN = Phase(
    "train",
    "training on the features of all rows",
    train,
    lambda run: run.product("train")["epochs"] * run.train.shape[0],
)
SCORE = Phase("score", "scoring on held-out rows", score, lambda run: int(run.used["test_size"]))
PHASES = (
    DATA,
    PLAN,
    SAMPLE,
    Phase(
        "linear",
        "training a linear model on the columns",
        train_linear,
        lambda run: run.stored.shape[0],
    ),
    KERNEL,
    SELECT,
    Phase("compare", "comparing feature maps", compare_maps, lambda run: len(run.sample.X)),
    TRAIN,
    SCORE,
)
"""The phases of ``rfcdask run``."""


def phases_of_fit(settings: Settings) -> tuple[Phase, ...]:
    """Return the same phases without the comparison, and without what was not asked for."""
    fixed = settings.method != "none" and not settings.learns_features
    maps = (SAMPLE, KERNEL, SELECT) if fixed else ()
    scored = settings.test_size is not None and settings.learner != "none"
    return (DATA, PLAN, *maps, TRAIN, *((SCORE,) if scored else ()))


def run_phases(run: Context, phases: Sequence[Phase], meter: MemoryMeter) -> None:
    """Do every phase that has no record yet."""
    run.load_finished([phase.name for phase in phases])
    check_settled(run)
    for number, phase in enumerate(phases, 1):
        place = f"[{number}/{len(phases)}] {phase.title}"
        if phase.name in run.done:
            run.log(f"phase {phase.name}: done before")
            run.say(f"{place}: done before")
            continue
        run.log(f"phase {phase.name}: begins")
        run.say(f"{place} ...")
        meter.lap()
        start = time.perf_counter()
        product = phase.work(run)
        record = {"name": phase.name, "product": redacted(plain(product))}
        run.done[phase.name] = record
        record |= {
            "seconds": time.perf_counter() - start,
            "peak_bytes": meter.lap(),
            "rows": phase.rows(run),
        }
        write_record(run.folder.phase(number, phase.name), record, run.folder.mark)
        run.log(
            f"phase {phase.name}: done in {record['seconds']:.2f} s, "
            f"peak {record['peak_bytes'] / 2**20:.0f} MiB"
        )
        _give_back(run.client)


def _give_back(client: Any) -> None:
    """Return to the system what a phase has freed: here or on workers, the next one needs it."""
    release_memory()
    if client is not None:
        # What is wrong with a cluster the next phase can say, with a remedy.
        with suppress(TimeoutError, *connection_errors()):
            run_on_workers(client, release_memory, timeout=GIVE_BACK_SECONDS, on_error="ignore")


def write_results(run: Context, scheduler: str) -> dict[str, Any]:
    """Write the page, then the numbers; a folder with results.json is a finished run."""
    results: dict[str, Any] = redacted(plain(collect(run, scheduler)))
    results["recommendation"] = plain(recommend(results))
    with atomic_file(run.folder.report) as file:
        file.write(render(results).encode())
    write_json(run.folder.results, results)
    return results


def collect(run: Context, scheduler: str) -> dict[str, Any]:
    """Put the products of all phases together."""
    scored, compared = run.product("score"), run.product("compare")["rows"]
    left_out = ("seconds", "seconds_by_size", "n_features", "heldout_error")
    selection = {k: v for k, v in run.product("select").items() if k not in left_out}
    return {
        "format": RESULTS_FORMAT,
        "rfcdask": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["rfcdask", "run", *([redacted(run.source)] if run.source else [])]),
        "seed": run.settings.random_state,
        "scoring": run.used["scoring"],
        "settings": run.used,
        "asked": run.settings.asked(),
        "versions": {"python": platform.python_version(), **{n: version(n) for n in PACKAGES}},
        "machine": describe_machine(run.client, scheduler),
        "data": run.product("data")["data"],
        "plan": run.product("plan"),
        "kernel": run.product("kernel"),
        "selection": selection,
        "comparison": [row for row in compared if row["method"] not in NEIGHBOURS],
        "boosting": next((row for row in compared if row["method"] in NEIGHBOURS), None),
        "linear": run.product("linear"),
        "model": _saved_model(run, scored),
        "confusion": {name: scored[name] for name in ("labels", "matrix")}
        if "matrix" in scored
        else None,
        "points": scored.get("points"),
        "targets": scored.get("targets") or None,
        "importances": scored["importances"],
        "warnings": scored["warnings"],
        "phases": [
            {key: record[key] for key in ("name", "seconds", "peak_bytes", "rows")}
            for record in run.done.values()
        ],
    }


def _saved_model(run: Context, scored: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was trained, or the linear model that was better with what it replaced."""
    trained: dict[str, Any] = run.product("train")
    measured = {"accuracy": scored.get("accuracy"), "metrics": scored["metrics"]}
    if "set_aside" not in scored:
        return trained | measured
    linear = run.product("linear")
    return {
        "method": "none",
        "learner": linear["learner"],
        "train_seconds": linear["seconds"],
        "path": trained["path"],
        "set_aside": trained | scored["set_aside"],
    } | measured


def describe_machine(client: Any, scheduler: str) -> dict[str, Any]:
    """Return where the run was done."""
    workers = workers_of(client).values() if client is not None else ()
    threads = [worker.threads for worker in workers]
    return {
        "cores": available_cpus(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "platform": f"{platform.system()} {platform.machine()}, Python {sys.version.split()[0]}",
        "scheduler": scheduler,
        "workers": len(threads) or 1,
        "threads": sum(threads) or available_cpus(),
    }


def comparable(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results without what depends on time and machine: equal for equal seeds and data.

    Left out are the creation date, the machine, paths (in the command too), the plan, times and
    memory of phases, speeds of maps and models, and the recommendation, which weighs speeds.
    """
    left_out = ("created", "command", "machine", "plan", "phases", "recommendation")
    kept = {key: value for key, value in results.items() if key not in left_out}
    kept["data"] = {k: v for k, v in kept["data"].items() if k not in ("path", "source")}
    return _without_times(kept)


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_times(v) for k, v in value.items() if k not in TIMED}
    return [_without_times(item) for item in value] if isinstance(value, list) else value
