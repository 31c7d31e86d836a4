"""A plan: what work will take, shown before it begins.

work     the data, the settings and the machines as numbers; peak memory, and what will not fit
speed    expected time, by rates that a probe of two seconds measures
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import dask.array as da
import numpy as np
from dask.utils import format_bytes

from rfcdask.data.sample import check_dask_matrix
from rfcdask.display import estimated_time
from rfcdask.display.charts import stacks
from rfcdask.display.html import aligned, render_repr
from rfcdask.features import METHODS, check_methods
from rfcdask.kernels.arrays import DaskArray
from rfcdask.linear.kernel.base import default_epochs
from rfcdask.linear.kernel.stream import SAMPLE_BLOCKS
from rfcdask.linear.sgd.base import auto_epochs
from rfcdask.planning.work import (
    HELDOUT_ROWS,
    SLACK,
    STEPS,
    Parts,
    Resources,
    Workload,
    find_problems,
    find_resources,
    keeps_features,
    peaks,
)

__all__ = ["Plan", "PlanError", "plan"]


class PlanError(MemoryError):
    """Work that will not fit; says why and what to change."""


@dataclass(frozen=True)
class Plan:
    """What a piece of work will take; made by :func:`rfcdask.plan`.

    Attributes
    ----------
    blocks, tasks : int
        Blocks of rows, and tasks in all steps.
    bytes_read, bytes_written : int
        Uncompressed.
    peak_worker_bytes : int
        The most memory a worker process takes; 0 where the threads of this process do the work.
    peak_driver_bytes : int
        The most memory this process takes.
    seconds : float or None
        Expected time of all steps; None when nothing was measured (``probe=False``).
    steps : dict of str to float or None
        Expected seconds of each step.
    memory : dict
        The largest parts of both peaks, in bytes, by name.
    problems : list of str
        What will not fit, each with the remedy.
    settings : dict
        The numbers behind all this.
    """

    blocks: int
    tasks: int
    bytes_read: int
    bytes_written: int
    peak_worker_bytes: int
    peak_driver_bytes: int
    seconds: float | None
    steps: dict[str, float | None]
    memory: dict[str, dict[str, int]]
    problems: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether there is memory and room for it."""
        return not self.problems

    def check(self) -> None:
        """Raise when the work will not fit.

        Raises
        ------
        PlanError
            With all problems and their remedies.
        """
        if self.problems:
            raise PlanError(" ".join(self.problems))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and words, as for JSON."""
        return asdict(self) | {"fits": self.fits}

    def facts(self) -> list[tuple[str, str]]:
        """Return what a reader wants to know, as pairs of name and text."""
        workers, peak = self.settings.get("workers", 0), format_bytes(self.peak_worker_bytes)
        steps = {f"time of {name}": seconds for name, seconds in self.steps.items()}
        times = (steps if len(steps) > 1 else {}) | {"time": self.seconds}
        shown = {
            "blocks": f"{self.blocks:,}",
            "tasks": f"{self.tasks:,}",
            "read": format_bytes(self.bytes_read),
            "written": format_bytes(self.bytes_written) if self.bytes_written else None,
            "memory of a worker": f"up to {peak} ({workers} of them)" if workers else None,
            "memory of this process": f"up to {format_bytes(self.peak_driver_bytes)}",
            **{k: None if s is None else f"about {estimated_time(s)}" for k, s in times.items()},
            "fits": "yes" if self.fits else "no",
        }
        return [(name, text) for name, text in shown.items() if text is not None]

    def __repr__(self) -> str:
        wrong = (f"  ! {text}" for text in self.problems)
        return "\n".join([aligned("<rfcdask.Plan>", self.facts()), *wrong])

    def _repr_html_(self) -> str:
        return render_repr(title="rfcdask.Plan", facts=self.facts(), problems=self.problems)

    def plot(self, ax: Any = None) -> Any:
        """Draw the memory of both kinds of process by its parts; returns the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            New ones are made otherwise.
        """
        peaks = {"worker": self.peak_worker_bytes, "driver": self.peak_driver_bytes}
        titles = {"worker": "a worker", "driver": "driver"}
        bars = {
            titles[kind]: {part: size / 1e9 for part, size in self.memory[kind].items()}
            for kind in titles
            if peaks[kind]
        }
        return stacks(bars, "GB at the peak").plot(ax)


def plan(
    X: Any,
    y: Any = None,
    *,
    method: str = "compressed",
    n_components: int = 500,
    n_candidates: int = 5000,
    n_rows: int = 5000,
    n_pairs: int | None = None,
    refine: int = 300,
    epochs: int | str = 5,
    persist: bool | str = "auto",
    steps: Sequence[str] = ("fit", "transform", "train"),
    dest: Any = None,
    methods: Sequence[str] = tuple(METHODS),
    sizes: Sequence[int] | None = None,
    compare_rows: int = 50_000,
    test_rows: int = 10_000,
    error_rows: int = 10_000,
    client: Any = None,
    probe: bool = True,
) -> Plan:
    """Say what work will take before it is begun: tasks, bytes, memory, time, and what won't fit.

    Parameters
    ----------
    X : Dataset or dask array of shape (n, p)
    y : dask array, optional
        Labels; those of a Dataset are known.
    method : str
        The map of the model. With "learned" the step "train" is that of a
        :class:`KernelClassifier`, with its trials of widths, and "fit" takes nothing: features are
        chosen by training.
    n_components, n_candidates, n_rows, n_pairs, refine
        As in :class:`CompressedFeatures`.
    epochs, persist
        As in :class:`SGDClassifier`, or of epochs in :class:`KernelClassifier` with "learned".
        Several penalties are counted, as ``alpha="auto"`` trains them.
    steps : sequence of {"fit", "transform", "train", "compare"}
        "fit" chooses features. "transform" writes the features of all rows, when `dest` is given
        or there is no "train"; else features are lazy and part of training. "train" goes `epochs`
        times over all rows. "compare" fits `methods` at `sizes` on `compare_rows` rows and
        measures them on `test_rows`, kernel errors on `error_rows` of them, as :func:`compare`
        does.
    dest : path, optional
        Where features are written.
    methods, sizes, compare_rows, test_rows, error_rows
        What "compare" does; `sizes` is ``[n_components]`` unless given.
    client : distributed.Client, optional
        Where work will be done: the given one, else the current one, else threads.
    probe : bool
        Whether to measure for about two seconds on one real block; without that no time is given.

    Returns
    -------
    Plan

    Examples
    --------
    >>> import dask.array as da, rfcdask as rf
    >>> X = da.random.default_rng(0).normal(size=(10_000, 5), chunks=(1_000, 5))
    >>> plan = rf.plan(X, n_components=50, n_candidates=500, n_rows=500, probe=False)
    >>> plan.blocks, plan.fits
    (10, True)
    """
    matrix, labels, n_classes = _rows_and_labels(X, y)
    check_methods((method, *methods))
    learns = METHODS[method].learns
    if epochs == "auto":
        epochs = (default_epochs if learns else auto_epochs)(max(int(matrix.shape[0]), 1))
    epochs = int(epochs)
    counts = {"n_components": n_components, "n_candidates": n_candidates, "epochs": epochs}
    steps = [step for step in steps if not (learns and step == "fit")]
    _check(steps, counts | {"n_rows": n_rows, "compare_rows": compare_rows})
    n = int(matrix.shape[0])
    work = Workload(
        rows=n,
        columns=int(matrix.shape[1]),
        itemsize=int(matrix.dtype.itemsize),
        label_itemsize=8 if labels is None else int(np.dtype(labels.dtype).itemsize),
        block_rows=tuple(int(size) for size in matrix.chunks[0]),
        n_components=int(n_components),
        n_candidates=int(max(n_candidates, n_components)),
        n_rows=int(min(n_rows, n)),
        n_pairs=n_pairs,
        refine=int(refine),
        epochs=epochs,
        outputs=n_classes if n_classes > 2 else 1,
        steps=tuple(steps),
        writes="transform" in steps and (dest is not None or "train" not in steps),
        persist=persist,
        methods=tuple(methods),
        sizes=tuple(sizes or (n_components,)),
        compare_rows=min(compare_rows, n),
        test_rows=min(test_rows, max(n // 5, 1)),
        error_rows=min(error_rows, test_rows, max(n // 5, 1)),
        learns=learns,
    )
    place = find_resources(client)  # before the probe, which leaves some memory behind
    expected: dict[str, float | None] = dict.fromkeys(work.steps)
    if probe:
        from rfcdask.planning.speed import expected_seconds, probe_rates

        expected = dict(expected_seconds(work, probe_rates(matrix, work, client), place))
    return _assemble(method, work, place, expected, dest)


def _rows_and_labels(X: Any, y: Any) -> tuple[DaskArray, Any, int]:
    """Return rows in blocks of whole rows, labels if there are any, and the number of classes."""
    classes = getattr(X, "classes", None)
    n_classes = 2 if classes is None else max(len(classes), 2)
    if hasattr(X, "reader"):
        X, y = X.X, X.y if y is None else y
    if not isinstance(X, da.Array):
        raise TypeError(
            f"A plan is for a Dataset or a dask array, not for {type(X).__name__}; wrap an array "
            "in memory with dask.array.from_array(X, chunks=(10_000, -1))."
        )
    return check_dask_matrix(X), y, n_classes


def _check(steps: Sequence[str], counts: dict[str, int]) -> None:
    for step in steps:
        if step not in STEPS:
            raise ValueError(f"steps: {step!r} is not one of {', '.join(STEPS)}.")
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")


def _assemble(
    method: str, work: Workload, place: Resources, expected: dict[str, float | None], dest: Any
) -> Plan:
    found = peaks(work, place)
    known = [seconds for seconds in expected.values() if seconds is not None]
    of_work = ("rows", "columns", "n_components", "n_candidates", "n_rows", "n_pairs", "epochs")
    of_place = ("workers", "threads", "worker_limit", "driver_limit")
    return Plan(
        blocks=len(work.block_rows),
        tasks=count_tasks(work, place),
        bytes_read=count_bytes_read(work, place),
        bytes_written=work.all_features if work.writes else 0,
        peak_worker_bytes=found.worker,
        peak_driver_bytes=found.driver,
        seconds=sum(known) if known else None,
        steps=expected,
        memory={
            "worker": _shares(found.worker_parts, place.worker_base) if place.workers else {},
            "driver": _shares(found.driver_parts, place.driver_base),
        },
        problems=find_problems(work, place, found, dest),
        settings={"method": method}
        | {name: getattr(work, name) for name in of_work}
        | {name: getattr(place, name) for name in of_place}
        | {"features_kept": keeps_features(work, place)},
    )


def _shares(parts: Parts, base: int) -> dict[str, int]:
    return {"the process itself": base} | {k: round(SLACK * v) for k, v in parts.items()}


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
