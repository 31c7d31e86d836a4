"""What is to be done and with what, as numbers, and the memory that takes by arithmetic.

What each step holds at its largest moment follows the code: `selection` for choosing features,
which is done in this process, and `linear` for blocks, which are on the workers or, without a
cluster, in this process too. Every term is an upper estimate in bytes; `SLACK` is for what
allocators do not give back at once.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from dask.utils import format_bytes

from rfcdask.execution.cluster import current_client, local_threads
from rfcdask.execution.dask_internals import memory_of_machine
from rfcdask.execution.failures import workers_of
from rfcdask.features import METHODS
from rfcdask.features.compressed import memory_budget
from rfcdask.features.lazy import FEATURE_BLOCK_BYTES
from rfcdask.kernels.runtime import available_cpus
from rfcdask.kernels.seeds import blocks_ahead
from rfcdask.linear.kernel.base import ALPHAS, SAMPLE_BYTES, SAMPLE_ROWS
from rfcdask.linear.kernel.gradient import LARGEST_HELD
from rfcdask.linear.sgd.base import (
    AUTO_C,
    DECIDE_ROWS,
    DECIDE_SHARE,
    LEAST_HELD_OUT,
    MOST_HELD_OUT,
    memory_for_features,
)
from rfcdask.linear.sgd.optimizer import FULL_FEATURES, preconditioner_rows
from rfcdask.linear.sgd.step import CHUNK_BYTES, blocks_mixed
from rfcdask.selection.candidates import ROW_BLOCK, TILE
from rfcdask.selection.columns import BATCH

STEPS = ("fit", "transform", "train", "compare")
HELDOUT_ROWS = 1000
HELD_OUT = 0.1  # share of the rows that SGD holds out by default
_IMPORTS = 300 * 2**20  # a process with rfcdask, a cluster's client or worker, compiled loops
_FIRST_WORK = 80 * 2**20  # what a process gains by its first work of every kind: pools, buffers
SLACK = 1.15
READING = 2.5  # blocks that one thread holds while it reads one: compressed, decoded, scaled
WRITING, ERROR_TILE = 2.0, 512
SENDING = 4.0  # copies of a row on its way: in its task, in the answer, in buffers of both ends
_BLOCKS = ("blocks being read", "blocks of features", "blocks to learn from")
_REMEDIES = {
    "values of candidates": "fewer candidates (n_candidates)",
    "drawn candidates": "fewer candidates (n_candidates)",
    "steps of selection": "fewer candidates (n_candidates)",
    "sampled rows": "fewer sampled rows (n_rows)",
    "target": "fewer sampled rows (n_rows)",
    "compared rows": "fewer compared rows",
    "their features": "fewer compared rows or features (n_components)",
    "kernel errors": "fewer test rows",
    "preconditioner": "fewer features (n_components)",
    "features that learn": "fewer features (n_components)",
    "rows to try widths on": "a number for gamma, and fewer columns",
}
Parts = dict[str, float]


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


class Peaks(NamedTuple):
    """Peak bytes of a worker (0 without any) and of this process, and what they are of."""

    worker: int
    driver: int
    worker_parts: Parts
    driver_parts: Parts


def peaks(work: Workload, place: Resources) -> Peaks:
    """Return the peaks of all steps."""
    blocks, driver = _block_parts(work, place), _driver_parts(work, place)
    if not place.workers:
        # What selection let go stays with the process for the most part.
        driver = driver | {name: driver.get(name, 0) + value for name, value in blocks.items()}
        return Peaks(0, round(place.driver_base + SLACK * _total(driver)), {}, driver)
    worker = round(place.worker_base + SLACK * _total(blocks))
    return Peaks(worker, round(place.driver_base + SLACK * _total(driver)), blocks, driver)


def _total(parts: Parts) -> float:
    return sum(parts.values())


def _block_parts(work: Workload, place: Resources) -> Parts:
    """Return the largest of what the steps over blocks hold, on one worker or in this process."""
    reading = {"blocks being read": place.threads_per_worker * READING * work.x_block}
    found = [reading, reading | _train_parts(work, place)] if "train" in work.steps else [reading]
    if work.writes:
        block = min(work.z_block, FEATURE_BLOCK_BYTES)
        held = place.threads_per_worker * WRITING * block
        found.append(reading | {"blocks of features": held})
    return max(found, key=_total) | _sampled_parts(work, place)


def _sampled_parts(work: Workload, place: Resources) -> Parts:
    """Return what workers hold of the sampled rows until all are fetched, and are sent."""
    if "fit" not in work.steps or not place.workers:
        return {}
    rows = work.n_rows if work.n_pairs is None else min(work.sampled, work.rows)
    held = SENDING * (rows + HELDOUT_ROWS) * work.columns * work.itemsize / place.workers
    return {"sampled rows": held}


def _train_parts(work: Workload, place: Resources) -> Parts:
    workers, blocks = max(place.workers, 1), len(work.block_rows)
    mixed = blocks_mixed(blocks, work.x_block)
    alive = min(blocks, mixed + blocks_ahead(mixed, place.threads, not place.workers))
    mine = alive if workers == 1 else min(alive, mixed * -(-(alive // mixed + 2) // workers))
    if work.learns:
        rows = float((mine + 1 + place.threads_per_worker) * work.x_block)
        return {"blocks to learn from": rows, "features that learn": _learned_bytes(work)}
    # One more is on its way, and a few chunks of features, each made of rows that were gathered.
    held = float((mine + 1) * work.x_block + 3 * (place.threads_per_worker + 1) * CHUNK_BYTES)
    if keeps_features(work, place):
        held = work.all_features / workers + (0 if workers == 1 else mixed * work.z_block)
    j = work.n_components
    model = 6 * work.penalties * work.outputs * (j + 1) * 8
    geometry = min(preconditioner_rows(j), work.rows) * j * 24 + min(j, FULL_FEATURES) ** 2 * 32
    return {"blocks of features": held, "preconditioner": float(geometry + model)}


def _learned_bytes(work: Workload) -> float:
    """Return the bytes of features that learn: their moments, the best ones, copies on the way."""
    heads = len(ALPHAS) * work.outputs
    return 8.0 * (work.columns + 2 + heads) * work.n_components * 8


def _trial_parts(work: Workload) -> Parts:
    """Return what choosing the width holds: the sample, on its way and in two orders."""
    rows = 3.0 * work.learned_sample * (work.columns * work.value_bytes + 12)
    return {"rows to try widths on": rows, "features that learn": 2 * _learned_bytes(work)}


def _driver_parts(work: Workload, place: Resources) -> Parts:
    """Return what this process holds apart from blocks."""
    found: list[Parts] = [{}]
    if "fit" in work.steps:
        found.append(_fit_parts(work, place))
    if work.learns and "train" in work.steps:
        found.append(_trial_parts(work))
    if "compare" in work.steps:
        beside = _compare_parts(work, place)
        found += [beside | _map_parts(work, place, method) for method in work.methods]
    return max(found, key=_total)


def _map_parts(work: Workload, place: Resources, method: str) -> Parts:
    """Return what fitting one map of a comparison holds."""
    fitted = work.with_map(method, max(work.sizes))
    if METHODS[method].selects:
        return _fit_parts(fitted, place)
    learns = METHODS[method].learns
    return _trial_parts(replace(fitted, rows=work.compare_rows)) if learns else {}


def _fit_parts(work: Workload, place: Resources) -> Parts:
    """Return what choosing features holds."""
    m, n, p, size = work.n_rows, work.n_candidates, work.columns, work.value_bytes
    gathered = 3 * (m + HELDOUT_ROWS) * p * size
    budget, threads = place.selection_budget, place.cpus
    if work.n_pairs is None:
        values = m * n * 4
        kept = values if values <= budget else 3 * threads * m * TILE * 4
        kept += values if 2 * values <= budget else 0  # their squares
        norms = 3 * threads * m * TILE * 8
    else:
        values = work.n_pairs * n * 4
        gathered += 2 * work.n_pairs * p * size * (1 + 2 * (p > TILE))
        kept = values if values <= budget else 0
        norms = 3 * threads * work.n_pairs * TILE * 4
    return {
        "sampled rows": float(gathered),
        "drawn candidates": float(p * n * (16 + size)),
        "values of candidates": float(kept),
        "target": _target(work, place),
        "steps of selection": float(max(norms, _columns(work, place), _refinement(work))),
    }


def _target(work: Workload, place: Resources) -> float:
    """Return the bytes of the exact kernel, whole or in tiles, and of copies of its rows."""
    m = work.n_rows if work.n_pairs is None else min(work.sampled, work.rows)
    whole = m * m * 4
    copies = place.cpus * min(m, 2048) * work.columns * work.value_bytes * 2
    if whole > place.selection_budget // 4:
        return float(2 * min(m, ROW_BLOCK) * min(m, ROW_BLOCK) * 8 + copies)
    return float(whole + 2 * (ROW_BLOCK // 2) * m * work.value_bytes + copies)


def columns_fetched(work: Workload) -> int:
    """Return how many columns of the Gram matrix a solver asks for; measured, not derived."""
    return min(work.n_candidates, BATCH + 2 * work.n_components)


def _columns(work: Workload, place: Resources) -> float:
    """Return the bytes of the Gram matrix' columns, of the solver's and of the refit's factors."""
    j, n = work.n_components, work.n_candidates
    held = min(columns_fetched(work), j + max(64, place.selection_budget // 3 // (8 * n)))
    tiles = 2 * place.cpus * work.n_rows * TILE * 4
    factor = (1 << max(6, (j - 1).bit_length())) ** 2 * 8 * 1.25
    pool = 3 * (j + math.isqrt(BATCH * n)) ** 2 * 4
    return held * n * 4 + tiles + pool + factor + 8 * j * j + 12 * j * j


def _refinement(work: Workload) -> float:
    """Return the bytes of gradient steps: the rows, a batch of 1000 of them, and Adam's moments."""
    if not work.refine:
        return 0.0
    j, p = work.n_components, work.columns
    batch = 1000 * (6 * j + 2 * p + 3 * 1000) * 4
    return float(work.n_rows * p * 12 + batch + 10 * p * j * 4)


def _compare_parts(work: Workload, place: Resources) -> Parts:
    """Return what comparing maps holds beside the fit of the largest."""
    j, size = max(work.sizes), work.value_bytes
    rows = (work.compare_rows + work.test_rows) * work.columns * size * 2
    tiles = 3 * place.cpus * ERROR_TILE * work.error_rows * 8
    moments = 4 * j * j * 8 * (place.cpus + 1)
    return {
        "compared rows": float(rows),
        "their features": float((work.compare_rows + 2 * work.test_rows) * j * size),
        "kernel errors": float(tiles + moments),
    }


def find_problems(work: Workload, place: Resources, peak: Peaks, dest: Any) -> list[str]:
    """Return all that will not fit, each in a sentence that names the remedy."""
    found = []
    if place.workers and place.worker_limit and peak.worker > place.worker_limit:
        remedy = _remedy(work, peak.worker_parts, place.worker_limit - place.worker_base)
        found.append(
            f"A worker needs up to {format_bytes(peak.worker)} and may take "
            f"{format_bytes(place.worker_limit)}: use {remedy}, fewer threads a worker, or workers "
            "with more memory."
        )
    together = peak.driver + place.workers * peak.worker
    # The workers are running already: what they take is not among what is free.
    machine = place.driver_limit + place.workers * place.worker_base
    if peak.driver > place.driver_limit:
        remedy = _remedy(work, peak.driver_parts, place.driver_limit - place.driver_base)
        found.append(
            f"This process needs up to {format_bytes(peak.driver)} and "
            f"{format_bytes(place.driver_limit)} are free: use {remedy}, or a machine with more "
            "memory."
        )
    elif place.workers and place.shared and together > machine:
        found.append(
            f"This process and {place.workers} workers on the same machine need up to "
            f"{format_bytes(together)} together and {format_bytes(machine)} are free: use "
            f"{_remedy(work, peak.worker_parts, machine // 2)}, fewer workers, or more memory."
        )
    return found + _disk_problems(work, dest)


def _remedy(work: Workload, parts: Parts, room: float) -> str:
    largest = max(parts, key=lambda name: parts[name])
    if largest not in _BLOCKS:
        return _REMEDIES[largest]
    blocks = sum(parts.get(name, 0.0) for name in _BLOCKS)
    left = room / SLACK - (_total(parts) - blocks)
    rows = int(max(work.block_rows) * left / max(blocks, 1.0)) if left > 0 else 0
    if len(work.block_rows) == 1 and rows:
        rows //= 2  # one block becomes several, of which more than one is in memory at a time
    digit = 10 ** max(len(str(rows)) - 2, 0)
    size = f" of at most {rows // digit * digit:,} rows" if rows >= 1 else ""
    return f"smaller blocks{size} (X.rechunk, or block_size when the data are ingested)"


def _disk_problems(work: Workload, dest: Any) -> list[str]:
    if dest is None or not work.writes or "://" in str(dest):
        return []
    folder = Path(dest).absolute()
    while not folder.exists():
        folder = folder.parent
    free = int(shutil.disk_usage(folder).free)
    if work.all_features <= free:
        return []
    return [
        f"The features take up to {format_bytes(work.all_features)} and {format_bytes(free)} are "
        f"free at {str(dest)!r}: use fewer features (n_components) or another disk."
    ]
