"""The phases of a run and of a fit, in order, and the loop that does those not done yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rfcdask.persist.untrusted import redacted
from rfcdask.pipeline.context import Context, MemoryMeter
from rfcdask.pipeline.data import make_plan, prepare_data
from rfcdask.pipeline.folder import plain, write_json
from rfcdask.pipeline.maps import compare_maps, draw_sample, select, settle_kernel
from rfcdask.pipeline.settings import Settings
from rfcdask.pipeline.training import score, train, train_linear


@dataclass(frozen=True)
class Phase:
    """One step of a run: its product is written when it is done, and found again later."""

    name: str
    title: str
    work: Callable[[Context], dict[str, Any]]
    rows: Callable[[Context], int | None] = lambda run: None


DATA = Phase("data", "bringing the data to disk", prepare_data, lambda run: run.stored.shape[0])
PLAN = Phase("plan", "planning", make_plan)
SAMPLE = Phase("sample", "fetching a sample", draw_sample, lambda run: _sampled(run))
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


def _sampled(run: Context) -> int:
    return sum(run.product("sample").values())


def run_phases(run: Context, phases: Sequence[Phase], meter: MemoryMeter) -> None:
    """Do every phase that has no record yet."""
    run.load_finished([phase.name for phase in phases])
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
        write_json(run.folder.phase(number, phase.name), record)
        run.log(
            f"phase {phase.name}: done in {record['seconds']:.2f} s, "
            f"peak {record['peak_bytes'] / 2**20:.0f} MiB"
        )
