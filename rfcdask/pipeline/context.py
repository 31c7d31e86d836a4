"""What every phase is given, what it finds again of the phases before it, and its memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self

import dask.config
import numpy as np
import psutil

from rfcdask.data import Dataset, open_dataset
from rfcdask.evaluation.compare import Split
from rfcdask.evaluation.judge import Judge
from rfcdask.execution.failures import workers_of
from rfcdask.features.methods import METHODS
from rfcdask.linear.standardize import Standardizer
from rfcdask.persist.files import atomic_file
from rfcdask.persist.untrusted import open_npz, redacted
from rfcdask.pipeline.folder import RunFolder, damage_of, read_json
from rfcdask.pipeline.settings import Settings, renamed

FEATURE_BLOCK = 24 * 2**20
"""Bytes of the features of one block: a few of them are in memory for each thread."""
CALIBRATION_ROWS = 20_000
"""Most rows on which probabilities are learned."""
METER_SECONDS = 0.1
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

    @property
    def compares(self) -> bool:
        """Whether maps are compared, as ``run`` does and ``fit`` does not."""
        return self.folder.final_model is None

    def product(self, phase: str) -> dict[str, Any]:
        """Return what a finished phase found."""
        found: dict[str, Any] = self.done[phase]["product"]
        return found

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
        row_bytes = 4 * max(self.n_components, dataset.shape[1])
        return dataset.with_smaller_blocks(row_bytes, FEATURE_BLOCK)

    def _place(self) -> Any:
        if (self.folder.data / "zarr.json").is_file():
            return self.folder.data  # the record names it too, but the folder may have moved
        place = self.product("data")["path"]
        # The record has no credentials.
        return self.source if self.source and place == redacted(self.source) else place

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
        test: Dataset = self._parts[1]
        return test

    @property
    def calibration_rows(self) -> Dataset | None:
        """The rows on which probabilities are learned, where they are asked for."""
        held: Dataset | None = self._parts[2]
        return held

    @cached_property
    def sample(self) -> Split:
        """The rows on which maps are chosen and compared, in memory, standardized like all."""
        path = self.folder.sample
        record = self.folder.phase(3, "sample")
        again = f"remove {record} and call again (rfcdask run with --resume) to make it again"
        with damage_of(path, again), open_npz(path) as stored:
            needed = Split._fields if self.compares else ("X",)
            found = {name: stored[name] for name in {*needed, *stored} & {*Split._fields}}
            return Split(**(dict.fromkeys(Split._fields) | found))

    def keep_sample(self, sample: Split) -> None:
        """Write the rows on which maps are chosen and compared."""
        there = {name: part for name, part in sample._asdict().items() if part is not None}
        with atomic_file(self.folder.sample) as file:
            np.savez(file, **there)

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
            self.done[name] = read_json(path, "product")


@contextmanager
def in_this_process() -> Iterator[None]:
    """Compute small arrays on threads here instead of sending them to the cluster."""
    with dask.config.set(scheduler="threads"):
        yield


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
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended between the listing and the look
        return 0
