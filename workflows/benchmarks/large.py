"""Peak memory and time on data of real size, each piece of work in a process of its own.

- ``store``: 2,000,000 x 28 rows in a store of default settings. One epoch of SGD on a fixed map,
  one of features that learn, scoring and predicting all rows, with 500 and 2,000 features; then
  the same on 8,000,000 rows, and the ratio.
- ``higgs``: the shape of HIGGS, 11,000,000 x 28, from store to scored model with learned features,
  beside what ``rf.plan`` says of it.
- ``criteo``: the shape of Criteo, 51,882,752 x 250, made block by block: choosing features, one
  pass of ridge, one epoch of learned features on a tenth of the rows.

Memory is the sum over the process and its children, looked at every 20 ms. Stores are written to
a folder that is kept, so that a second call does not write them again.

Run: python workflows/benchmarks/large.py {store,higgs,criteo} [--folder large-stores] [--rows N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import psutil
from bench_sgd import GAMMA, make_store

import rfcdask as rf

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from scale import Peak

STORE_ROWS, STORE_SIZES = (2_000_000, 8_000_000), (500, 2000)
HIGGS_ROWS, CRITEO_ROWS, CRITEO_COLUMNS = 11_000_000, 51_882_752, 250
CRITEO_BLOCK = 16_384


def stored(folder: Path, rows: int) -> Any:
    """Return rows in a store of default settings, written once."""
    path = folder / f"rows-{rows}.zarr"
    if not path.exists():
        make_store(path, rows)
    return rf.open_dataset(path)


def fixed(data: Any, J: int) -> Any:
    """Return lazy features of a fixed map."""
    return rf.RandomFeatures(J, gamma=GAMMA, random_state=0).fit(data.X).transform(data.X)


def store_work(folder: Path, rows: int, what: str, J: int) -> dict[str, Any]:
    """Do one piece of work on a store."""
    data = stored(folder, rows)
    if what == "sgd":
        rf.SGDClassifier(epochs=1, random_state=0).fit(fixed(data, J), data.y)
        return {}
    if what == "learned":
        learner = rf.KernelClassifier(J, gamma=GAMMA, epochs=1, random_state=0)
        learner.fit(data.X, data.y)
        return {}
    first = rf.KernelClassifier(J, gamma=GAMMA, epochs=1, random_state=0)
    first.fit(data.X[:50_000], data.y[:50_000])
    if what == "score":
        return {"accuracy": float(first.score(data.X, data.y))}
    return {"ones": int(np.asarray(first.predict(data.X)).sum())}


def higgs_work(folder: Path, rows: int) -> dict[str, Any]:
    """Go from a store of HIGGS' shape to a scored model, and set the plan beside it."""
    path = folder / f"higgs-{rows}.zarr"
    if not path.exists():
        rf.synthetic("higgs", rows=rows, dest=path)
    train, test = rf.open_dataset(path).standardize().split(test_size=0.05, random_state=0)
    model = rf.KernelClassifier(500, random_state=0)
    plan = rf.plan(train, method="learned", n_components=500, epochs="auto", steps=("train",))
    start = time.perf_counter()
    model.fit(train.X, train.y)
    fitted = time.perf_counter()
    accuracy = float(model.score(test.X, test.y))
    return {
        "accuracy": accuracy,
        "epochs": model.n_iter_,
        "fit_seconds": fitted - start,
        "score_seconds": time.perf_counter() - fitted,
        "planned_seconds": plan.seconds,
        "planned_MiB": plan.peak_driver_bytes / 2**20,
    }


def make_criteo(rows: int) -> tuple[Any, Any]:
    """Return rows of the projected shape of Criteo and labels that are not linear in them."""
    sizes = (CRITEO_BLOCK,) * (rows // CRITEO_BLOCK)
    sizes += (rows % CRITEO_BLOCK,) if rows % CRITEO_BLOCK else ()

    def block(block_info: Any = None) -> np.ndarray:
        where = block_info[None]
        rng = np.random.default_rng([7, where["chunk-location"][0]])
        return rng.standard_normal(where["chunk-shape"], dtype=np.float32)

    X = da.map_blocks(
        block, chunks=(sizes, (CRITEO_COLUMNS,)), meta=np.empty((0, 0), np.float32), dtype="f4"
    )
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int8)


def criteo_work(rows: int) -> dict[str, Any]:
    """Choose features, learn ridge in one pass, and let features learn on a tenth of the rows."""
    X, y = make_criteo(rows)
    found: dict[str, Any] = {}
    start = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal start
        now = time.perf_counter()
        found[f"{step}_seconds"], start = now - start, now
        print(step, f"{found[f'{step}_seconds']:.1f} s", file=sys.stderr, flush=True)

    features = rf.CompressedFeatures(500, random_state=0).fit(X)
    lap("select")
    rf.RidgeClassifier().fit(features.transform(X), y)
    lap("ridge")
    some = rows // 10
    rf.KernelClassifier(500, gamma="scale", epochs=1, random_state=0).fit(X[:some], y[:some])
    lap("learned")
    return found


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what work says, its seconds, CPU seconds and peak of memory."""
    peak, start = Peak(), time.perf_counter()
    with peak:
        found = work()
    spent = psutil.Process().cpu_times()
    cpu = spent.user + spent.system + spent.children_user + spent.children_system
    seconds = time.perf_counter() - start
    return found | {"seconds": seconds, "cpu_seconds": cpu, "peak_MiB": peak.bytes / 2**20}


def alone(*arguments: str) -> dict[str, Any]:
    """Run one piece of work in a process of its own."""
    command = [sys.executable, __file__, *arguments, "--one"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def store_table(folder: Path) -> None:
    """Print the peaks of all work on both stores."""
    print("| | " + " | ".join(f"{rows:,} rows" for rows in STORE_ROWS) + " | ratio |")
    print("|---" * (len(STORE_ROWS) + 2) + "|")
    for rows in STORE_ROWS:
        stored(folder, rows)
    for what in ("sgd", "learned", "score", "predict"):
        for J in STORE_SIZES:
            place = ("--folder", str(folder), "--what", what, "--size", str(J))
            found = [alone("store", *place, "--rows", str(rows)) for rows in STORE_ROWS]
            cells = [f"{f['peak_MiB']:.0f} MiB, {f['seconds']:.0f} s" for f in found]
            ratio = found[-1]["peak_MiB"] / found[0]["peak_MiB"]
            print(f"| {what}, J = {J} | " + " | ".join(cells) + f" | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=("store", "higgs", "criteo"))
    parser.add_argument("--folder", type=Path, default=Path("large-stores"))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--what", choices=("sgd", "learned", "score", "predict"))
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--one", action="store_true", help="in this process, result as JSON")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.case == "store" and not given.one:
        store_table(given.folder)
        return
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "store": lambda: store_work(given.folder, given.rows, given.what, given.size),
        "higgs": lambda: higgs_work(given.folder, given.rows or HIGGS_ROWS),
        "criteo": lambda: criteo_work(given.rows or CRITEO_ROWS),
    }
    print(json.dumps(measured(work[given.case])))


if __name__ == "__main__":
    main()
