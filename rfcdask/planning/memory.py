"""Peak memory by arithmetic: what each step holds at its largest moment, in bytes.

The terms follow the code: `selection` for choosing features, which is done in this process, and
`linear.training` for blocks, which are on the workers or, without a cluster, in this process too.
Every term is an upper estimate; `SLACK` is for what allocators do not give back at once.
"""

from __future__ import annotations

import math

from rfcdask.features.methods import METHODS
from rfcdask.linear.sgd.preconditioner import FULL, rows_wanted
from rfcdask.linear.sgd.schedule import blocks_mixed
from rfcdask.planning.work import HELDOUT_ROWS, Place, Work
from rfcdask.selection.candidates import ROW_BLOCK, TILE
from rfcdask.selection.columns import BATCH

SLACK = 1.15
READING = 2.5
"""Blocks that one thread holds while it reads one: compressed, decoded, and scaled or split."""
SENDING = 4.0
"""Copies of a row on its way: in its task, in the answer, in buffers of both ends."""
ERROR_TILE = 512
WRITING = 2.0

Parts = dict[str, float]


def fit_parts(work: Work, place: Place) -> Parts:
    """Return what choosing features holds in this process."""
    m, n, p, size = work.sample_rows, work.candidates, work.columns, work.value_bytes
    gathered = 3 * (m + HELDOUT_ROWS) * p * size
    drawn = p * n * (16 + size)
    budget, threads = place.selection_budget, place.cpus
    if work.pairs is None:
        values = m * n * 4
        kept = values if values <= budget else 3 * threads * m * TILE * 4
        kept += values if 2 * values <= budget else 0  # their squares
        norms = 3 * threads * m * TILE * 8
    else:
        values = work.pairs * n * 4
        gathered += 2 * work.pairs * p * size * (1 + 2 * (p > TILE))
        kept = values if values <= budget else 0
        norms = 3 * threads * work.pairs * TILE * 4
    parts = {
        "sampled rows": gathered,
        "drawn candidates": drawn,
        "values of candidates": kept,
        "target": _target(work, place),
        "steps of selection": max(norms, _columns(work, place), _refinement(work)),
    }
    return {name: float(value) for name, value in parts.items()}


def _target(work: Work, place: Place) -> float:
    m = work.sample_rows if work.pairs is None else min(2 * work.pairs, work.rows)
    whole = m * m * 4
    copies = place.cpus * min(m, 2048) * work.columns * work.value_bytes * 2
    if whole > place.selection_budget // 4:
        return float(2 * min(m, ROW_BLOCK) * min(m, ROW_BLOCK) * 8 + copies)
    return float(whole + 2 * (ROW_BLOCK // 2) * m * work.value_bytes + copies)


def columns_fetched(work: Work) -> int:
    """Return how many columns of the Gram matrix a solver asks for; measured, not derived."""
    return min(work.candidates, BATCH + 2 * work.features)


def _columns(work: Work, place: Place) -> float:
    j, n = work.features, work.candidates
    held = min(columns_fetched(work), j + max(64, place.selection_budget // 3 // (8 * n)))
    tiles = 2 * place.cpus * work.sample_rows * TILE * 4
    factor = (1 << max(6, (j - 1).bit_length())) ** 2 * 8 * 1.25
    pool = 3 * (j + math.isqrt(BATCH * n)) ** 2 * 4
    return held * n * 4 + tiles + pool + factor + 8 * j * j + 12 * j * j


def _refinement(work: Work) -> float:
    if not work.refine:
        return 0.0
    j, p = work.features, work.columns
    rows = work.sample_rows * p * 12
    batch = 1000 * (6 * j + 2 * p + 3 * 1000) * 4
    return float(rows + batch + 10 * p * j * 4)


def reading_bytes(work: Work, place: Place) -> float:
    """Return what is held where blocks are read, while they are."""
    return place.threads_a_worker * READING * work.x_block


def sampled_bytes(work: Work, place: Place) -> float:
    """Return what workers hold of the sampled rows until all are fetched, and are sent."""
    if "fit" not in work.steps or not place.workers:
        return 0.0
    rows = work.sample_rows if work.pairs is None else min(2 * work.pairs, work.rows)
    return SENDING * (rows + HELDOUT_ROWS) * work.columns * work.itemsize / place.workers


def is_kept(work: Work, place: Place) -> bool:
    """Tell whether training keeps the features of all rows."""
    if "train" not in work.steps:
        return False
    if work.persist == "auto":
        return work.epochs > 1 and work.all_features <= place.persist_budget
    return bool(work.persist)


def train_parts(work: Work, place: Place) -> Parts:
    """Return what one worker, or this process without any, holds while a model is trained."""
    workers, blocks = max(place.workers, 1), len(work.block_rows)
    mixed = blocks_mixed(blocks, work.z_block)
    alive = min(blocks, mixed + max(mixed, place.threads))
    mine = alive if workers == 1 else min(alive, mixed * -(-(alive // mixed + 2) // workers))
    # One more is on its way: being copied together with others, or looked at for the geometry.
    held = float((mine + 1) * work.z_block)
    if is_kept(work, place):
        held = work.all_features / workers + (0 if workers == 1 else mixed * work.z_block)
    return {
        "blocks being read": reading_bytes(work, place),
        "blocks of features": held,
        "preconditioner": float(_preconditioner(work)),
    }


def _preconditioner(work: Work) -> float:
    j = work.features
    m = min(rows_wanted(j), work.rows)
    order = 6 * work.outputs * (j + 1) * 8
    return m * j * 24 + min(j, FULL) ** 2 * 32 + order


def transform_parts(work: Work, place: Place) -> Parts:
    """Return what one worker holds while features are written."""
    threads = place.threads_a_worker
    return {
        "blocks being read": reading_bytes(work, place),
        "blocks of features": threads * WRITING * work.z_block,
    }


def compare_parts(work: Work, place: Place) -> Parts:
    """Return what comparing maps holds in this process beside the fit of the largest."""
    j, size = max(work.sizes), work.value_bytes
    rows = (work.compare_rows + work.test_rows) * work.columns * size * 2
    features = (work.compare_rows + 2 * work.test_rows) * j * size
    tiles = 3 * place.cpus * ERROR_TILE * work.error_rows * 8
    moments = 4 * j * j * 8 * (place.cpus + 1)
    return {
        "compared rows": float(rows),
        "their features": float(features),
        "kernel errors": float(tiles + moments),
    }


def block_parts(work: Work, place: Place) -> Parts:
    """Return the largest of what the steps over blocks hold."""
    found = [{"blocks being read": reading_bytes(work, place)}]
    if "train" in work.steps:
        found.append(train_parts(work, place))
    if work.writes:
        found.append(transform_parts(work, place))
    sampled = sampled_bytes(work, place)
    return max(found, key=total) | ({"sampled rows": sampled} if sampled else {})


def driver_parts(work: Work, place: Place) -> Parts:
    """Return what this process holds apart from blocks."""
    found: list[Parts] = [{}]
    if "fit" in work.steps:
        found.append(fit_parts(work, place))
    if "compare" in work.steps:
        beside = compare_parts(work, place)
        for method in work.methods:
            fitted = work.with_map(method, max(work.sizes))
            selects = METHODS[method].selects
            found.append(beside | (fit_parts(fitted, place) if selects else {}))
    return max(found, key=total)


def total(parts: Parts) -> float:
    """Return the sum of some parts."""
    return sum(parts.values())


def peaks(work: Work, place: Place) -> tuple[int, int, Parts, Parts]:
    """Return peak bytes of a worker (0 without any) and of this process, and what they are of."""
    blocks, driver = block_parts(work, place), driver_parts(work, place)
    if not place.workers:
        # What selection let go stays with the process for the most part.
        driver = driver | {name: driver.get(name, 0) + value for name, value in blocks.items()}
        return 0, round(place.driver_base + SLACK * total(driver)), {}, driver
    worker = round(place.worker_base + SLACK * total(blocks))
    return worker, round(place.driver_base + SLACK * total(driver)), blocks, driver
