"""The phases of a run and of a fit, in order, the loop that does those not done yet, the results.

The records of all phases become results.json, report.html and a comparable form of them.
"""

from __future__ import annotations

import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from rfcdask._version import __version__
from rfcdask.execution.failures import workers_of
from rfcdask.features.methods import NEIGHBOURS
from rfcdask.kernels.threads import available_cpus
from rfcdask.persist.files import atomic_file
from rfcdask.persist.untrusted import redacted
from rfcdask.pipeline.context import Context, MemoryMeter
from rfcdask.pipeline.data import make_plan, prepare_data
from rfcdask.pipeline.folder import RESULTS_FORMAT, plain, write_json
from rfcdask.pipeline.maps import compare_maps, draw_sample, select, settle_kernel
from rfcdask.pipeline.report import recommend, render
from rfcdask.pipeline.settings import Settings
from rfcdask.pipeline.training import score, train, train_linear

PACKAGES = ("dask", "distributed", "numba", "numpy", "scikit-learn", "scipy", "zarr")
TIMED = ("seconds", "fit_seconds", "train_seconds", "microseconds_per_row", "rows_per_second")


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
    import psutil

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
    cleaned: dict[str, Any] = _without_times(kept)
    return cleaned


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_times(v) for k, v in value.items() if k not in TIMED}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


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
