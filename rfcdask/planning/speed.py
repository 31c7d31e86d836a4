"""Expected time: the operations of each step over rates measured by a probe of two seconds.

The probe does the real work, small: on one real block where blocks are computed, and in this
process for what is done here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.delayed import delayed

from rfcdask.execution.executor import compute
from rfcdask.features import METHODS
from rfcdask.kernels import get_kernel
from rfcdask.kernels.arrays import (
    Array,
    DaskArray,
    Matrix,
    as_csr,
    feature_dtype,
    is_sparse,
)
from rfcdask.kernels.hot_loop import CosineBlock
from rfcdask.kernels.runtime import available_cpus, map_tiles, one_blas_thread
from rfcdask.linear.kernel.base import ALPHAS, START_VISITS, default_epochs
from rfcdask.linear.kernel.gradient import trial_visits
from rfcdask.linear.kernel.optimize import (
    Objective,
    OptimizerConfig,
    TrainingRows,
    input_scaling,
    steps_of,
    train_in_memory,
)
from rfcdask.linear.kernel.stream import SAMPLE_BLOCKS
from rfcdask.linear.rows import dense
from rfcdask.linear.sgd.base import AUTO_C
from rfcdask.linear.sgd.losses import CLASSIFIER_LOSSES, HINGE, SOFTMAX
from rfcdask.linear.sgd.optimizer import fit_preconditioner, preconditioner_rows
from rfcdask.linear.sgd.step import TrainingConfig, TrainingState, train_on_blocks
from rfcdask.planning.work import HELDOUT_ROWS, Resources, Workload, columns_fetched, keeps_features
from rfcdask.selection import giga
from rfcdask.selection.candidates import TILE, RowTarget
from rfcdask.selection.columns import BATCH
from rfcdask.selection.refine import FeatureParameters, RowsWithTarget, heldout_error, refine

# Measured by whole runs, not derived: mixing blocks, shuffling rows and handing models on beside
# making features and learning; what a comparison takes beside the products that are counted.
HANDLING, COMPARING = 4.0, 1.7
HANDLING_ROWS = 1.3  # the same where no features are made beside learning
GUESSING = 1.4  # what columns cost with the entries that are computed to guess them
PASS = 20  # what going over a value in memory costs, in multiplications of a matrix product
TIMED_PROJECTIONS = 8000  # rows that a comparison projects to take the time
PICK_CANDIDATES = 1000  # for so many candidates `Rates.pick` is measured
PROBE_VALUES = 4_000_000  # feature values that are computed to see how fast that goes
MOST_PROBED = 2**24  # values of rows, and of frequencies, that a probe holds at most
_PROBE_ROWS, _PROBE_STEPS = 1000, 4
LEARNING_BATCH = 256


@dataclass(frozen=True)
class Rates:
    """What a probe measured, in seconds of one thread unless said otherwise."""

    read: float  # to read a row
    evaluate: float  # to compute the features of a row
    learn: float  # to learn from a row once
    precondition: float  # to estimate the preconditioner
    products: float  # multiplications and additions per second of this process, in tiles
    step: float  # of one step of refinement
    pick: float  # of one step of a greedy solver
    task: float  # that a task costs by itself
    learn_features: float = 0.0  # to learn from a row once, features included


def expected_seconds(work: Workload, rates: Rates, place: Resources) -> dict[str, float]:
    """Return the expected seconds of each step."""
    steps = {"fit": _fit, "transform": _transform, "train": _train, "compare": _compare}
    wanted = [s for s in steps if s in work.steps and (s != "transform" or work.writes)]
    return {name: steps[name](work, rates, place) for name in wanted}


def _fit(work: Workload, rates: Rates, place: Resources) -> float:
    return _gather(work, rates, place) + _select(work, rates)


def _gather(work: Workload, rates: Rates, place: Resources) -> float:
    """Return the time of fetching sampled rows: they lie in nearly every block."""
    blocks = min(len(work.block_rows), work.sampled)
    rows = blocks * sum(work.block_rows) / len(work.block_rows)
    return (rows * rates.read + blocks * rates.task) / max(place.threads, 1)


def _select(work: Workload, rates: Rates) -> float:
    """Return the time of selection and refinement on rows in memory."""
    m, n, j, p = work.n_rows, work.n_candidates, work.n_components, work.columns
    fetched = GUESSING * min(columns_fetched(work), BATCH + 1.3 * j)
    products: float
    if work.n_pairs is None:
        # Columns of G are differences of two products; passes over all values come on top.
        products = m * m * n + 4 * fetched * n * m + 2 * m * n * p + m * m * p
        products += PASS * m * n * 3
    else:
        products = 2 * fetched * n * work.n_pairs + 4 * work.n_pairs * n * (p + 8)
    products += 2 * HELDOUT_ROWS**2 * (j + p) + 4 * HELDOUT_ROWS * j * j
    picks = 1.5 * j * rates.pick * (0.6 + 0.4 * n / PICK_CANDIDATES)
    weights = j**3 / 1e9
    return products / rates.products + picks + weights + work.refine * rates.step


def _train(work: Workload, rates: Rates, place: Resources) -> float:
    """Return the time of all epochs: learning is one thread's, making features everybody's.

    Both overlap on a quiet machine with threads to spare; here they are taken one after another.
    """
    if work.learns:
        return _learned(work, rates, place)
    make = work.rows * (rates.read + rates.evaluate) + len(work.block_rows) * rates.task
    make, learning = HANDLING * make / max(place.threads, 1), HANDLING * work.rows * rates.learn
    passes = work.epochs * work.trainings
    if keeps_features(work, place):
        return rates.precondition + make + passes * learning
    return rates.precondition + passes * (make + learning)


def _learned(work: Workload, rates: Rates, place: Resources) -> float:
    """Return the time of choosing the width and of all epochs in which the features learn."""
    visits = work.rows * work.epochs
    trials = trial_visits(visits) + min(START_VISITS, visits)
    reading = (work.rows * rates.read + len(work.block_rows) * rates.task) / max(place.threads, 1)
    sample = reading * min(1.0, SAMPLE_BLOCKS / len(work.block_rows))
    learning = (visits + trials) * rates.learn_features
    return sample + HANDLING_ROWS * (work.epochs * reading + learning)


def _transform(work: Workload, rates: Rates, place: Resources) -> float:
    """Return the time of writing the features of all rows, at the speed of reading."""
    written = rates.read * work.n_components / max(work.columns, 1)
    make = work.rows * (rates.read + rates.evaluate + written)
    return (make + len(work.block_rows) * rates.task) / max(place.threads, 1)


def _compare(work: Workload, rates: Rates, place: Resources) -> float:
    """Return the time of fitting all maps at all sizes and measuring each."""
    found = _gather(work, rates, place)
    for method in work.methods:
        if METHODS[method].selects:  # once, for all sizes
            found += _select(replace(work.with_map(method, max(work.sizes)), refine=0), rates)
        for size in work.sizes:
            found += _one_map(work.with_map(method, size), method, rates, place, work.n_components)
    return COMPARING * found


def _one_map(work: Workload, method: str, rates: Rates, place: Resources, probed: int) -> float:
    """Return the time of one map of a comparison; rates were measured for `probed` features."""
    j, p, n = work.n_components, work.columns, work.test_rows
    rows = work.compare_rows + n + 3 * min(n, 20_000)
    evaluate = rates.evaluate * j / probed
    found = 0.0
    if METHODS[method].selects:
        found += work.refine * rates.step * (0.3 + 0.7 * j / probed)
    elif METHODS[method].learns:
        visits = work.compare_rows * default_epochs(work.compare_rows)
        visits += trial_visits(visits) + min(START_VISITS, visits)
        found += visits * rates.learn_features * j / probed
    elif method == "jl":
        # Rows held out are scored without being projected, and few are timed.
        projected = work.compare_rows + work.error_rows + TIMED_PROJECTIONS
        evaluate, rows = rates.evaluate * work.n_candidates / probed, projected + n
        found += projected * 2 * work.n_candidates * j / rates.products
    elif method.startswith("nystroem"):
        found += rows * 2 * j * (j + p) / rates.products + 10 * j**3 / rates.products
        if method == "nystroem-rpcholesky":
            found += 10_000 * 4 * j * (j + p) / rates.products
    errors = work.error_rows**2 * (j + p + 40) / (rates.products / 2)
    ridge = work.compare_rows * j * j * 2 / (rates.products / 2) + j**3 / rates.products
    return found + rows * evaluate / max(place.cpus, 1) + errors + ridge


def probe_rates(X: DaskArray, work: Workload, client: Any) -> Rates:
    """Measure the rates on one real block, where blocks are computed, and in this process."""
    read, task, block = _read_one(X, client)
    trains = "train" in work.steps
    fixed, learned = trains and not work.learns, trains and work.learns
    learned |= "compare" in work.steps and any(METHODS[name].learns for name in work.methods)
    settings = (work.n_components, work.outputs, work.rows, fixed, learned, work.mean_penalties)
    found = compute(delayed(measure_block, pure=False)(block, *settings), client)
    return Rates(
        read=read,
        **found,
        products=_products_per_second(work.n_rows),
        step=_step_seconds(work) if work.refine else 0.0,
        pick=_pick_seconds(),
        task=task,
    )


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def _read_one(X: DaskArray, client: Any) -> tuple[float, float, Any]:
    """Return the seconds to read a row, the seconds of an empty task, and the block read."""
    places = (int(find(X.chunks[0])) for find in (np.argmin, np.argmax))
    small, large = (X.blocks[place].to_delayed().ravel()[0] for place in places)

    def read(block: Any) -> tuple[int, int]:
        return compute(delayed(np.shape, pure=False)(block), client)

    read(small)  # imports, opens the store
    task = min(_timed(lambda: read(np.empty((0, 0))))[0] for _ in range(3))
    seconds, shape = _timed(lambda: read(large))
    return max(seconds - task, 1e-9) / max(shape[0], 1), task, large


def measure_block(
    block: Matrix,
    n_components: int,
    outputs: int,
    n_rows: int,
    fixed: bool,
    learned: bool,
    penalties: float = 1.0,
) -> dict[str, float]:
    """Return seconds per row to evaluate features and to learn from them, by one thread.

    The models of so many `penalties`, meant over the rows, learn at once.
    """
    every = -(-block.shape[1] * n_components // MOST_PROBED)  # of many columns some, evenly
    columns = -(-block.shape[1] // every)
    rows = int(np.clip(PROBE_VALUES // n_components, 256, block.shape[0]))
    rows = min(rows, max(MOST_PROBED // columns, 16))
    some = block[:rows][:, ::every]
    X: Any = as_csr(some).astype(feature_dtype(some.dtype)) if is_sparse(some) else dense(some)
    rng = np.random.default_rng(0)
    spread = max(float(np.abs(X).mean()), 1e-6)
    frequencies = rng.normal(size=(X.shape[1], n_components)) / spread
    phases = rng.uniform(0, 2 * np.pi, n_components)
    scales = np.full(n_components, np.sqrt(2 / n_components))
    evaluator = CosineBlock.make(frequencies, phases, scales, X.dtype)
    with one_blas_thread():
        evaluator(X[:16])
        evaluate, Z = min((_timed(lambda: evaluator(X)) for _ in range(2)), key=lambda t: t[0])
        share = block.shape[1] / columns
        found = {"evaluate": share * evaluate / rows, "learn": 0.0, "precondition": 0.0}
        found |= _learning(Z, outputs, n_rows, rng, penalties) if fixed else {}
        if learned:
            seconds = _learning_features(X, frequencies, phases, scales, outputs)
            found["learn_features"] = share * seconds
        return found


def _learning_features(
    X: Matrix, frequencies: Array, phases: Array, scales: Array, outputs: int
) -> float:
    """Return the seconds to learn from a row once, features and as many heads as penalties."""
    rows, rng = X.shape[0], np.random.default_rng(0)
    loss = SOFTMAX if outputs > 1 else CLASSIFIER_LOSSES[("log_loss", "ovr")]
    objective = Objective(loss=loss, n_outputs=outputs, alphas=ALPHAS)
    steps = steps_of([rows], LEARNING_BATCH)
    scaling = input_scaling(X, frequencies)
    config = OptimizerConfig(objective, scaling, scales, LEARNING_BATCH, steps, True, 1.0)
    labels: Array = rng.integers(0, max(outputs, 2), (rows,))
    data = TrainingRows(X, labels, np.ones(rows, np.float32))
    state = config.start(frequencies, phases)
    train_in_memory(config, state, data.take(slice(0, 64)), 64, rng)  # compiled before it is timed
    seconds, _ = _timed(lambda: train_in_memory(config, state, data, rows, rng))
    return seconds / rows


def _learning(
    Z: Array, outputs: int, n_rows: int, rng: np.random.Generator, penalties: float
) -> dict[str, float]:
    k = max(outputs, 2)
    y = rng.integers(0, k, len(Z))
    wanted = preconditioner_rows(Z.shape[1])
    ones = np.ones(len(Z), np.float32)
    batch = int(np.clip(2 ** int(np.log2(max(n_rows / 40, 8))), 8, 256))
    config = TrainingConfig(
        loss=HINGE,
        n_outputs=outputs,
        alpha=1.0 / n_rows,
        eta0=1.0,
        n_steps=1e6,
        batch_size=batch,
        seed=0,
        classes=np.arange(k),
        class_weights=np.ones(k),
    )
    few = min(len(Z), 2 * Z.shape[1] + 256)
    estimate, P = _timed(lambda: fit_preconditioner(Z[:few], ones[:few], 1.0 / n_rows, True))

    def seconds(count: int) -> float:
        several = replace(config, alphas=(1.0 / n_rows,) * count)
        state = TrainingState.zero(Z.shape[1], count * outputs)
        train_on_blocks(state, several, P, (0,), 0, 0, (Z[:64], y[:64]))  # compiled first
        return _timed(lambda: train_on_blocks(state, several, P, (0,), 0, 0, (Z, y)))[0]

    one = seconds(1)
    more = max(seconds(len(AUTO_C)) - one, 0.0) * (penalties - 1) / (len(AUTO_C) - 1)
    return {"learn": (one + more) / len(Z), "precondition": estimate * max(1.0, wanted / few)}


def _products_per_second(n_rows: int) -> float:
    """Return the rate of products as selection forms them, tiles on all CPUs."""
    rows = max(min(n_rows, 2000), 2)
    rng = np.random.default_rng(0)
    A = rng.normal(size=(rows, TILE)).astype(np.float32)
    B = rng.normal(size=(rows, rows // 2 or 1)).astype(np.float32)
    tiles = range(4 * available_cpus())

    def multiply(_: int) -> Array:
        return np.asarray(A.T @ B)

    map_tiles(multiply, range(1))
    seconds, _ = _timed(lambda: map_tiles(multiply, tiles))
    return float(2 * len(tiles) * A.size * B.shape[1] / seconds)


def _step_seconds(work: Workload) -> float:
    """Return the seconds of one step of refinement, its share of the checks included."""
    rng = np.random.default_rng(0)
    n, j = min(_PROBE_ROWS, max(work.n_rows, 2)), work.n_components
    p = min(work.columns, MOST_PROBED // max(n, j) + 1)
    X = rng.normal(size=(n, p)).astype(np.float32)
    target = RowTarget(X, get_kernel("rbf"), 0.5 / p, dtype=np.dtype(np.float32), budget=2**30)
    rows = RowsWithTarget(X, target)
    features = FeatureParameters(
        (rng.normal(size=(p, j)) / (2 * np.pi * np.sqrt(p))).astype(np.float32),
        rng.uniform(size=j).astype(np.float32),
        np.full(j, np.sqrt(2 / j), np.float32),
    )

    def steps(count: int) -> Any:
        return refine(features, rows, rows, n_steps=count, frequency_unit=1 / np.sqrt(p), rng=rng)

    whole = rows.whole_target()
    heldout_error(features, X, whole)
    steps(1)  # compiled before it is timed
    check, _ = _timed(lambda: heldout_error(features, X, whole))
    seconds, _ = _timed(lambda: steps(_PROBE_STEPS))
    step = float(max((seconds - 2 * check) / _PROBE_STEPS, 0.1 * check) + check / 10)
    return step * work.columns / p


def _pick_seconds() -> float:
    """Return the seconds of one step of a greedy solver among `PICK_CANDIDATES`."""
    rng = np.random.default_rng(0)
    R = rng.normal(size=(PICK_CANDIDATES, 64))
    c = R @ np.abs(R).sum(axis=0)
    giga(R @ R.T, c, float(c @ c), 2)  # compiled before it is timed
    seconds, path = _timed(lambda: giga(R @ R.T, c, float(c @ c), 32, max_iterations=40))
    return float(seconds / max(path.iterations, 1))
