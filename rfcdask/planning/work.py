"""What is to be done, and with what: the two descriptions that all estimates are made from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import psutil

from rfcdask.execution.cluster import current_client
from rfcdask.execution.dask_internals import memory_of_machine
from rfcdask.execution.executor import local_threads
from rfcdask.execution.failures import workers_of
from rfcdask.features.compressed import memory_budget
from rfcdask.features.methods import METHODS
from rfcdask.kernels.threads import available_cpus
from rfcdask.linear.kernel.base import SAMPLE_BYTES, SAMPLE_ROWS
from rfcdask.linear.kernel.stream import SAMPLE_BLOCKS
from rfcdask.linear.kernel.width import LARGEST_HELD
from rfcdask.linear.sgd.base import AUTO_C, DECIDE_ROWS, DECIDE_SHARE, LEAST_HELD_OUT, MOST_HELD_OUT
from rfcdask.linear.sgd.training import memory_for_features

STEPS = ("fit", "transform", "train", "compare")
HELDOUT_ROWS = 1000
HELD_OUT = 0.1  # share of the rows that SGD holds out by default
_IMPORTS = 300 * 2**20  # a process with rfcdask, a cluster's client or worker, compiled loops
_FIRST_WORK = 80 * 2**20  # what a process gains by its first work of every kind: pools, buffers


@dataclass(frozen=True)
class Workload:
    """The data and the settings, as numbers; settings are named as in :func:`rfcdask.plan`."""

    rows: int  # of the whole data
    columns: int
    itemsize: int  # bytes of a stored value
    label_itemsize: int
    block_rows: tuple[int, ...]  # of each block
    n_components: int
    n_candidates: int
    n_rows: int
    n_pairs: int | None
    refine: int
    epochs: int
    outputs: int  # columns of the model's coefficients: one for two classes or a number
    steps: tuple[str, ...]
    writes: bool  # whether the features of all rows are written
    persist: bool | str
    methods: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    compare_rows: int = 0
    test_rows: int = 0
    error_rows: int = 0
    learns: bool = False  # whether the features learn in training

    @property
    def value_bytes(self) -> int:
        """Bytes of a feature value: float32 stays float32, as do small integers."""
        return 8 if self.itemsize == 8 else 4

    @property
    def x_block(self) -> int:
        """Bytes of the largest block as it is read, in floating numbers."""
        return max(self.block_rows) * self.columns * max(self.itemsize, self.value_bytes)

    @property
    def z_block(self) -> int:
        """Bytes of the features of the largest block, and its labels."""
        width = self.n_components * self.value_bytes + self.label_itemsize
        return max(self.block_rows) * width

    @property
    def all_features(self) -> int:
        """Bytes of the features of all rows."""
        return self.rows * self.n_components * self.value_bytes

    @property
    def sampled(self) -> int:
        """Rows that are fetched to choose features on, apart from those held out."""
        return self.n_rows if self.n_pairs is None else 2 * self.n_pairs

    @property
    def penalties(self) -> int:
        """Models that SGD trains at once in the beginning, for ``alpha="auto"``."""
        return len(AUTO_C) if HELD_OUT * self.rows >= LEAST_HELD_OUT else 1

    @property
    def mean_penalties(self) -> float:
        """Models that SGD trains at once, meant over all rows it learns from."""
        visits = float(self.rows * self.epochs)
        count, left, found = self.penalties, visits, 0.0
        part = max(DECIDE_ROWS, DECIDE_SHARE * visits)
        while count > 1 and left > part:
            found, left, count = found + count * part, left - part, (count + 1) // 2
        return (found + count * left) / visits

    @property
    def trainings(self) -> int:
        """How often SGD goes through all epochs: again with the chosen penalty where rows are few.

        A single pass stands for ridge.
        """
        few = HELD_OUT * self.rows < MOST_HELD_OUT
        return 2 if few and self.penalties > 1 and self.epochs > 1 and not self.learns else 1

    @property
    def learned_sample(self) -> int:
        """Rows that are fetched to try widths on, and to judge features that learn."""
        fitting = max(SAMPLE_BYTES // (4 * self.columns), 2000)
        return min(self.rows, min(SAMPLE_ROWS, fitting) + LARGEST_HELD)

    def with_map(self, method: str, size: int) -> Workload:
        """Return the work of fitting one map of a comparison."""
        paper = METHODS[method].paper
        return replace(
            self,
            n_components=size,
            n_pairs=20_000 if paper else None,
            refine=0 if paper else self.refine,
        )


@dataclass(frozen=True)
class Resources:
    """Where work is done; memory in bytes."""

    workers: int  # processes; none stands for the threads of this process
    threads: int  # of all workers together
    cpus: int  # that this process may use
    driver_base: int  # taken by this process before it does anything
    worker_base: int  # taken by a worker before it does anything
    worker_limit: int  # that a worker may take
    driver_limit: int  # that this process may take
    persist_budget: float  # of features that training keeps by itself
    selection_budget: int  # that selection may hold
    shared: bool = True  # whether workers and this process are on one machine

    @property
    def threads_per_worker(self) -> int:
        """Threads of one worker."""
        return max(1, -(-self.threads // max(self.workers, 1)))


def find_resources(client: Any = None) -> Resources:
    """Describe the given client's cluster, the current one's, or this process."""
    chosen = current_client(client)
    common = {
        "cpus": available_cpus(),
        "driver_base": max(psutil.Process().memory_info().rss, _IMPORTS) + _FIRST_WORK,
        "driver_limit": _free_memory(),
        "selection_budget": memory_budget(),
        "persist_budget": memory_for_features(chosen),
    }
    if chosen is None:
        threads = max(local_threads(), 1)
        return Resources(workers=0, threads=threads, worker_base=0, worker_limit=0, **common)
    workers = workers_of(chosen)
    used = [worker.memory for worker in workers.values()]
    return Resources(
        workers=max(len(workers), 1),
        threads=max(sum(worker.threads for worker in workers.values()), 1),
        worker_base=max([_IMPORTS, *used]) + _FIRST_WORK,
        worker_limit=min([w.memory_limit for w in workers.values()], default=0),
        shared=bool(workers) and all(map(_is_here, workers)),
        **common,
    )


def _is_here(address: str) -> bool:
    return "://127.0.0.1:" in address or address.startswith("inproc://")


def _free_memory() -> int:
    """Return the bytes this process may still grow to: what is free, within a container's limit."""
    mine = psutil.Process().memory_info().rss
    return int(min(psutil.virtual_memory().available + mine, memory_of_machine()))


def keeps_features(work: Workload, place: Resources) -> bool:
    """Tell whether training keeps the features of all rows."""
    if "train" not in work.steps or work.learns:
        return False
    if work.persist == "auto":
        return work.epochs > 1 and work.all_features <= place.persist_budget
    return bool(work.persist)


def count_tasks(work: Workload, place: Resources) -> int:
    """Return the tasks of all steps: one or two for each block and pass."""
    blocks = len(work.block_rows)
    found = 2 * min(blocks, SAMPLE_BLOCKS) if work.learns else 0
    if "fit" in work.steps or "compare" in work.steps:
        found += min(blocks, work.sampled)
    if work.writes:
        found += 3 * blocks
    if "train" in work.steps:
        passes = work.epochs * work.trainings
        making = 1 if keeps_features(work, place) else passes
        found += 3 * blocks * making + blocks * passes + math.ceil(blocks / 8) * passes
    return found


def count_bytes_read(work: Workload, place: Resources) -> int:
    """Return the uncompressed bytes that all steps read."""
    whole = work.rows * (work.columns * work.itemsize + work.label_itemsize)
    passes = int(work.writes)
    if "train" in work.steps:
        passes += 1 if keeps_features(work, place) else work.epochs * work.trainings
    rows = min(work.sampled + HELDOUT_ROWS, work.rows) if "fit" in work.steps else 0
    if work.learns and "train" in work.steps:
        rows += work.learned_sample
    return passes * whole + rows * work.columns * work.itemsize
