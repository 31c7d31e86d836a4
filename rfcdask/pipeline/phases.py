"""The phases of a run, in order, and the loop that does those which are not done yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rfcdask.persist.untrusted import redacted
from rfcdask.pipeline.choose import compare_maps, draw_sample, select, settle_kernel
from rfcdask.pipeline.context import Context, phase_file
from rfcdask.pipeline.data import prepare_data
from rfcdask.pipeline.folder import write_json
from rfcdask.pipeline.learn import learn_linear, score, train
from rfcdask.pipeline.meter import MemoryMeter
from rfcdask.pipeline.planning import make_plan
from rfcdask.pipeline.results import plain


@dataclass(frozen=True)
class Phase:
    """One step of a run: its product is written when it is done, and found again by `--resume`."""

    name: str
    title: str
    work: Callable[[Context], dict[str, Any]]
    rows: Callable[[Context], int | None] = lambda run: None


PHASES = (
    Phase("data", "bringing the data to disk", prepare_data, lambda run: run.stored.shape[0]),
    Phase("plan", "planning", make_plan),
    Phase(
        "sample",
        "fetching a sample",
        draw_sample,
        lambda run: len(run.sample.y) + len(run.sample.labels),
    ),
    Phase("linear", "training a linear model on the columns", learn_linear, lambda run: _all(run)),
    Phase("kernel", "settling the kernel", settle_kernel),
    Phase("select", "choosing features", select, lambda run: run.used["n_rows"]),
    Phase("compare", "comparing feature maps", compare_maps, lambda run: len(run.sample.y)),
    Phase(
        "train",
        "training on the features of all rows",
        train,
        lambda run: run.product("train")["epochs"] * run.train.shape[0],
    ),
    Phase("score", "scoring on held-out rows", score, lambda run: run.test.shape[0]),
)


def _all(run: Context) -> int:
    return run.stored.shape[0]


def run_phases(run: Context, meter: MemoryMeter) -> None:
    """Do every phase that has no record yet."""
    run.load_finished([phase.name for phase in PHASES])
    for number, phase in enumerate(PHASES, 1):
        place = f"[{number}/{len(PHASES)}] {phase.title}"
        if phase.name in run.done:
            run.log(f"phase {phase.name}: done before")
            run.say(f"{place}: done before")
            continue
        run.log(f"phase {phase.name}: begins")
        run.say(f"{place} ...")
        meter.lap()
        start = time.perf_counter()
        _finish(run, number, phase, phase.work(run), start, meter)


def _finish(
    run: Context,
    number: int,
    phase: Phase,
    product: dict[str, Any],
    start: float,
    meter: MemoryMeter,
) -> None:
    record = {"name": phase.name, "product": redacted(plain(product))}
    run.done[phase.name] = record
    record |= {
        "seconds": time.perf_counter() - start,
        "peak_bytes": meter.lap(),
        "rows": phase.rows(run),
    }
    write_json(phase_file(run.folder, number, phase.name), record)
    run.log(
        f"phase {phase.name}: done in {record['seconds']:.2f} s, "
        f"peak {record['peak_bytes'] / 2**20:.0f} MiB"
    )
