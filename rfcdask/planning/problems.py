"""What will not fit, each in a sentence that names the remedy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from dask.utils import format_bytes

from rfcdask.planning.memory import SLACK, Parts, total
from rfcdask.planning.work import Place, Work

_OF_SELECTION = {
    "values of candidates": "fewer candidates (n_candidates)",
    "drawn candidates": "fewer candidates (n_candidates)",
    "steps of selection": "fewer candidates (n_candidates)",
    "sampled rows": "fewer sampled rows (n_rows)",
    "target": "fewer sampled rows (n_rows)",
    "compared rows": "fewer compared rows",
    "their features": "fewer compared rows or features (n_components)",
    "kernel errors": "fewer test rows",
    "preconditioner": "fewer features (n_components)",
}


def find_problems(
    work: Work, place: Place, peaks: tuple[int, int, Parts, Parts], dest: Any
) -> list[str]:
    """Return all that will not fit."""
    worker, driver, worker_parts, driver_parts = peaks
    found = []
    if place.workers and place.worker_limit and worker > place.worker_limit:
        room = place.worker_limit - place.worker_base
        found.append(
            f"A worker needs up to {format_bytes(worker)} and may take "
            f"{format_bytes(place.worker_limit)}: use {_remedy(work, worker_parts, room)}, fewer "
            "threads a worker, or workers with more memory."
        )
    limit = place.driver_limit
    if driver > limit:
        room = limit - place.driver_base
        found.append(
            f"This process needs up to {format_bytes(driver)} and {format_bytes(limit)} are free: "
            f"use {_remedy(work, driver_parts, room)}, or a machine with more memory."
        )
    elif place.workers and place.shared and driver + place.workers * worker > _machine(place):
        found.append(
            f"This process and {place.workers} workers on the same machine need up to "
            f"{format_bytes(driver + place.workers * worker)} together and "
            f"{format_bytes(_machine(place))} are free: use "
            f"{_remedy(work, worker_parts, _machine(place) // 2)}, fewer workers, or more memory."
        )
    return found + _disk(work, dest)


def _machine(place: Place) -> int:
    """Return what this process and its workers may take together: they are running already."""
    return place.driver_limit + place.workers * place.worker_base


def _remedy(work: Work, parts: Parts, room: float) -> str:
    largest = max(parts, key=lambda name: parts[name])
    if largest not in ("blocks being read", "blocks of features"):
        return _OF_SELECTION[largest]
    blocks = sum(parts.get(name, 0.0) for name in ("blocks being read", "blocks of features"))
    left = room / SLACK - (total(parts) - blocks)
    rows = int(work.largest_block * left / max(blocks, 1.0)) if left > 0 else 0
    if len(work.block_rows) == 1 and rows:
        rows //= 2  # one block becomes several, of which more than one is in memory at a time
    size = f" of at most {_rounded(rows):,} rows" if rows >= 1 else ""
    return f"smaller blocks{size} (X.rechunk, or block_size when the data are ingested)"


def _rounded(rows: int) -> int:
    digits = max(len(str(rows)) - 2, 0)
    return int(rows // 10**digits * 10**digits)


def _disk(work: Work, dest: Any) -> list[str]:
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
