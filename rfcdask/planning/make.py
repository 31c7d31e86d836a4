"""From data and settings to a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np

from rfcdask.data.sample import one_column_block, require_known_rows
from rfcdask.features.methods import METHODS, check_methods
from rfcdask.kernels.types import DaskArray
from rfcdask.planning.memory import SLACK, Parts, is_kept, peaks
from rfcdask.planning.problems import find_problems
from rfcdask.planning.result import Plan
from rfcdask.planning.work import STEPS, Place, Work


def plan(
    X: Any,
    y: Any = None,
    *,
    n_components: int = 500,
    n_candidates: int = 5000,
    n_rows: int = 5000,
    n_pairs: int | None = None,
    refine: int = 300,
    epochs: int = 5,
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
    n_components, n_candidates, n_rows, n_pairs, refine
        As in :class:`CompressedFeatures`.
    epochs, persist
        As in :class:`SGDClassifier`.
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
    from rfcdask.planning.place import look_around

    matrix, labels = _columns(X, y)
    work = describe(
        matrix,
        labels,
        _n_classes(X),
        n_components=n_components,
        n_candidates=n_candidates,
        n_rows=n_rows,
        n_pairs=n_pairs,
        refine=refine,
        epochs=epochs,
        persist=persist,
        steps=tuple(steps),
        dest=dest,
        methods=tuple(methods),
        sizes=tuple(sizes or (n_components,)),
        compare_rows=compare_rows,
        test_rows=test_rows,
        error_rows=error_rows,
    )
    place = look_around(client)  # before the probe, which leaves some memory behind
    expected: dict[str, float | None] = dict.fromkeys(work.steps)
    if probe:
        from rfcdask.planning.probe import probe_rates
        from rfcdask.planning.seconds import seconds_of

        rates = probe_rates(matrix, work, client)
        expected = dict(seconds_of(work, rates, place))
    return _assemble(work, place, expected, dest)


def _assemble(work: Work, place: Place, expected: dict[str, float | None], dest: Any) -> Plan:
    found = peaks(work, place)
    known = [seconds for seconds in expected.values() if seconds is not None]
    return Plan(
        blocks=len(work.block_rows),
        tasks=count_tasks(work, place),
        bytes_read=bytes_read(work, place),
        bytes_written=work.all_features if work.writes else 0,
        peak_worker_bytes=found[0],
        peak_driver_bytes=found[1],
        seconds=sum(known) if known else None,
        steps=expected,
        memory={
            "worker": _parts(found[2], place.worker_base) if place.workers else {},
            "driver": _parts(found[3], place.driver_base),
        },
        problems=find_problems(work, place, found, dest),
        settings=_settings(work, place),
    )


def _parts(parts: Parts, base: int) -> dict[str, int]:
    return {"the process itself": base} | {k: round(SLACK * v) for k, v in parts.items()}


def _settings(work: Work, place: Place) -> dict[str, Any]:
    return {
        "rows": work.rows,
        "columns": work.columns,
        "n_components": work.features,
        "n_candidates": work.candidates,
        "n_rows": work.sample_rows,
        "n_pairs": work.pairs,
        "epochs": work.epochs,
        "workers": place.workers,
        "threads": place.threads,
        "worker_limit": place.worker_limit,
        "driver_limit": place.driver_limit,
        "features_kept": is_kept(work, place),
    }


def _columns(X: Any, y: Any) -> tuple[DaskArray, Any]:
    if hasattr(X, "reader"):
        X, y = X.X, X.y if y is None else y
    if not isinstance(X, da.Array):
        raise TypeError(
            f"A plan is for a Dataset or a dask array, not for {type(X).__name__}; wrap an array "
            "in memory with dask.array.from_array(X, chunks=(10_000, -1))."
        )
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimension(s) where rows and columns are expected.")
    require_known_rows(X)
    if 0 in X.shape:
        raise ValueError(f"X of shape {X.shape} is empty; there is nothing to plan.")
    return one_column_block(X), y


def _n_classes(X: Any) -> int:
    classes = getattr(X, "classes", None)
    return 2 if classes is None else max(len(classes), 2)


def describe(
    X: DaskArray,
    y: Any,
    n_classes: int,
    *,
    n_components: int,
    n_candidates: int,
    n_rows: int,
    n_pairs: int | None,
    refine: int,
    epochs: int,
    persist: bool | str,
    steps: tuple[str, ...],
    dest: Any,
    methods: tuple[str, ...],
    sizes: tuple[int, ...],
    compare_rows: int,
    test_rows: int,
    error_rows: int,
) -> Work:
    """Return the work as numbers, checked."""
    for step in steps:
        if step not in STEPS:
            raise ValueError(f"steps: {step!r} is not one of {', '.join(STEPS)}.")
    check_methods(methods)
    counts = {"n_components": n_components, "n_candidates": n_candidates, "epochs": epochs}
    for name, value in (counts | {"n_rows": n_rows, "compare_rows": compare_rows}).items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    n = int(X.shape[0])
    return Work(
        rows=n,
        columns=int(X.shape[1]),
        itemsize=int(X.dtype.itemsize),
        label_itemsize=8 if y is None else int(np.dtype(y.dtype).itemsize),
        block_rows=tuple(int(size) for size in X.chunks[0]),
        features=int(n_components),
        candidates=int(max(n_candidates, n_components)),
        sample_rows=int(min(n_rows, n)),
        pairs=n_pairs,
        refine=int(refine),
        epochs=int(epochs),
        outputs=n_classes if n_classes > 2 else 1,
        steps=steps,
        writes="transform" in steps and (dest is not None or "train" not in steps),
        persist=persist,
        methods=methods,
        sizes=sizes,
        compare_rows=min(compare_rows, n),
        test_rows=min(test_rows, max(n // 5, 1)),
        error_rows=min(error_rows, test_rows, max(n // 5, 1)),
    )


def count_tasks(work: Work, place: Place) -> int:
    """Return the tasks of all steps: one or two for each block and pass."""
    blocks = len(work.block_rows)
    found = 0
    if "fit" in work.steps or "compare" in work.steps:
        found += min(blocks, work.sample_rows if work.pairs is None else 2 * work.pairs)
    if work.writes:
        found += 3 * blocks
    if "train" in work.steps:
        making = 1 if is_kept(work, place) else work.epochs
        found += 3 * blocks * making + blocks * work.epochs + math.ceil(blocks / 8) * work.epochs
    return found


def bytes_read(work: Work, place: Place) -> int:
    """Return the uncompressed bytes that all steps read."""
    whole = work.rows * (work.columns * work.itemsize + work.label_itemsize)
    passes = int(work.writes)
    if "train" in work.steps:
        passes += 1 if is_kept(work, place) else work.epochs
    sampled = 0
    if "fit" in work.steps:
        wanted = work.sample_rows if work.pairs is None else 2 * work.pairs
        sampled = min(wanted + 1000, work.rows) * work.columns * work.itemsize
    return passes * whole + sampled
