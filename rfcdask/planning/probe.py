"""Two seconds of the real work, small: how fast this machine, or the cluster, is today."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rfcdask.execution.compute import compute
from rfcdask.kernels import get_kernel
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.kernels.threads import available_cpus, map_tiles, one_blas_thread
from rfcdask.kernels.types import Array, DaskArray, Matrix
from rfcdask.linear.inputs import dense
from rfcdask.linear.sgd.losses import HINGE
from rfcdask.linear.sgd.preconditioner import make_preconditioner, rows_wanted
from rfcdask.linear.sgd.step import Lesson, learn
from rfcdask.linear.sgd.training import fresh_state
from rfcdask.planning.seconds import PICK_CANDIDATES, Rates
from rfcdask.planning.work import Work
from rfcdask.selection.candidates import TILE
from rfcdask.selection.path import giga
from rfcdask.selection.refine import FeatureParameters, RowsWithTarget, heldout_error, refine
from rfcdask.selection.target import RowTarget

PROBE_VALUES = 4_000_000
"""Feature values that are computed to see how fast that goes."""
_SAMPLE, _STEPS = 1000, 4


def probe_rates(X: DaskArray, work: Work, client: Any) -> Rates:
    """Measure the rates on one real block, where blocks are computed, and in this process."""
    read, task, block = _read_one(X, client)
    found = _rates_of_block(block, work, client)
    return Rates(
        read=read,
        evaluate=found["evaluate"],
        learn=found["learn"],
        precondition=found["precondition"],
        products=_products_a_second(work.sample_rows),
        step=_step_seconds(work) if work.refine else 0.0,
        pick=_pick_seconds(),
        task=task,
    )


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def _read_one(X: DaskArray, client: Any) -> tuple[float, float, DaskArray]:
    """Return the seconds to read a row, the seconds of an empty task, and the block read."""
    small, large = int(np.argmin(X.chunks[0])), int(np.argmax(X.chunks[0]))
    _, count = _timed(lambda: compute(_count(X.blocks[small]), client))  # imports, opens the store
    task = min(_timed(lambda: _nothing(client))[0] for _ in range(3))
    block = X.blocks[large]
    seconds, count = _timed(lambda: compute(_count(block), client))
    rows = max(int(np.sum(count)), 1)
    return max(seconds - task, 1e-9) / rows, task, block


def _count(block: DaskArray) -> DaskArray:
    return block.map_blocks(_rows_of, chunks=((1,), (1,)), meta=np.empty((0, 0), np.int64))


def _rows_of(block: Matrix) -> Array:
    return np.array([[block.shape[0]]])


def _nothing(client: Any) -> Any:
    import dask.array as da

    return compute(da.zeros(1, chunks=1), client)


def _rates_of_block(block: DaskArray, work: Work, client: Any) -> dict[str, float]:
    """Run the probe of one block where blocks are computed."""
    from dask.delayed import delayed

    settings = (work.features, work.outputs, work.rows, "train" in work.steps)
    part = block.to_delayed().ravel()[0]
    found = delayed(measure_block, pure=False)(part, *settings)
    rates: dict[str, float] = compute(found, client)
    return rates


def measure_block(
    block: Matrix, n_features: int, outputs: int, n_rows: int, learns: bool
) -> dict[str, float]:
    """Return seconds a row to evaluate features and to learn from them, by one thread."""
    rows = int(np.clip(PROBE_VALUES // n_features, 256, block.shape[0]))
    X = dense(block[:rows])
    rng = np.random.default_rng(0)
    evaluator = CosineBlock.make(
        rng.normal(size=(X.shape[1], n_features)) / max(float(np.abs(X).mean()), 1e-6),
        rng.uniform(0, 2 * np.pi, n_features),
        np.full(n_features, np.sqrt(2 / n_features)),
        X.dtype,
    )
    with one_blas_thread():
        evaluator(X[:16])
        evaluate, Z = min((_timed(lambda: evaluator(X)) for _ in range(2)), key=lambda t: t[0])
        found = {"evaluate": evaluate / rows, "learn": 0.0, "precondition": 0.0}
        if learns:
            found |= _learning(Z, outputs, n_rows, rng)
    return found


def _learning(Z: Array, outputs: int, n_rows: int, rng: np.random.Generator) -> dict[str, float]:
    k = max(outputs, 2)
    y = rng.integers(0, k, len(Z))
    wanted = rows_wanted(Z.shape[1])
    ones = np.ones(len(Z), np.float32)
    batch = int(np.clip(2 ** int(np.log2(max(n_rows / 40, 8))), 8, 256))
    lesson = Lesson(
        loss=HINGE,
        outputs=outputs,
        alpha=1.0 / n_rows,
        eta=1.0,
        horizon=1e6,
        batch=batch,
        seed=0,
        classes=np.arange(k),
        class_weights=np.ones(k),
    )
    few = min(len(Z), 2 * Z.shape[1] + 256)
    study, P = _timed(lambda: make_preconditioner(Z[:few], ones[:few], 1.0 / n_rows, True))
    state = fresh_state(Z.shape[1], outputs)
    learn(state, lesson, P, (0,), 0, 0, (Z[:64], y[:64]))
    seconds, _ = _timed(lambda: learn(state, lesson, P, (0,), 0, 0, (Z, y)))
    return {"learn": seconds / len(Z), "precondition": study * max(1.0, wanted / few)}


def _products_a_second(sample_rows: int) -> float:
    """Return the rate of products as selection forms them, tiles on all CPUs."""
    rows = max(min(sample_rows, 2000), 2)
    rng = np.random.default_rng(0)
    A = rng.normal(size=(rows, TILE)).astype(np.float32)
    B = rng.normal(size=(rows, rows // 2 or 1)).astype(np.float32)
    tiles = range(4 * available_cpus())

    def multiply(_: int) -> Array:
        return np.asarray(A.T @ B)

    map_tiles(multiply, range(1))
    seconds, _ = _timed(lambda: map_tiles(multiply, tiles))
    return float(2 * len(tiles) * A.size * B.shape[1] / seconds)


def _step_seconds(work: Work) -> float:
    """Return the seconds of one step of refinement, its share of the checks included."""
    rng = np.random.default_rng(0)
    n, p, j = min(_SAMPLE, max(work.sample_rows, 2)), work.columns, work.features
    X = rng.normal(size=(n, p)).astype(np.float32)
    target = RowTarget(X, get_kernel("rbf"), 0.5 / p, dtype=np.dtype(np.float32), budget=2**30)
    rows = RowsWithTarget(X, target)
    features = FeatureParameters(
        (rng.normal(size=(p, j)) / (2 * np.pi * np.sqrt(p))).astype(np.float32),
        rng.uniform(size=j).astype(np.float32),
        np.full(j, np.sqrt(2 / j), np.float32),
    )
    whole = rows.whole_target()
    heldout_error(features, X, whole)
    refine(features, rows, rows, n_steps=1, frequency_unit=1 / np.sqrt(p), rng=rng)  # compiled
    check, _ = _timed(lambda: heldout_error(features, X, whole))
    seconds, _ = _timed(
        lambda: refine(features, rows, rows, n_steps=_STEPS, frequency_unit=1 / np.sqrt(p), rng=rng)
    )
    return float(max((seconds - 2 * check) / _STEPS, 0.1 * check) + check / 10)


def _pick_seconds() -> float:
    """Return the seconds of one step of a greedy solver among `PICK_CANDIDATES`."""
    rng = np.random.default_rng(0)
    R = rng.normal(size=(PICK_CANDIDATES, 64))
    c = R @ np.abs(R).sum(axis=0)
    giga(R @ R.T, c, float(c @ c), 2)  # compiled before it is timed
    seconds, path = _timed(lambda: giga(R @ R.T, c, float(c @ c), 32, max_iterations=40))
    return float(seconds / max(path.iterations, 1))
