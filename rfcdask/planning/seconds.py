"""Expected time by arithmetic: the operations of each step over rates that a probe measured."""

from __future__ import annotations

from dataclasses import dataclass

from rfcdask.features.methods import METHODS
from rfcdask.planning.memory import columns_fetched, is_kept
from rfcdask.planning.work import HELDOUT_ROWS, Place, Work
from rfcdask.selection.columns import BATCH


@dataclass(frozen=True)
class Rates:
    """What a probe measured; rows and seconds are those of one thread.

    Attributes
    ----------
    read, evaluate, learn : float
        Seconds to read a row, to compute its features, to learn from it once.
    precondition : float
        Seconds to estimate the preconditioner.
    products : float
        Multiplications and additions a second of this process, in the tiles of selection.
    step : float
        Seconds of one step of refinement.
    pick : float
        Seconds of one step of a greedy solver.
    task : float
        Seconds that a task costs by itself.
    """

    read: float
    evaluate: float
    learn: float
    precondition: float
    products: float
    step: float
    pick: float
    task: float


def fit_seconds(work: Work, rates: Rates, place: Place) -> float:
    """Return the time of gathering rows, choosing features and refining them."""
    return gather_seconds(work, rates, place) + select_seconds(work, rates)


def gather_seconds(work: Work, rates: Rates, place: Place) -> float:
    """Return the time of fetching sampled rows: they lie in nearly every block."""
    wanted = work.sample_rows if work.pairs is None else 2 * work.pairs
    blocks = min(len(work.block_rows), wanted)
    rows = blocks * sum(work.block_rows) / len(work.block_rows)
    return (rows * rates.read + blocks * rates.task) / max(place.threads, 1)


def select_seconds(work: Work, rates: Rates) -> float:
    """Return the time of selection and refinement on rows in memory."""
    m, n, j, p = work.sample_rows, work.candidates, work.features, work.columns
    fetched = PLAYED * min(columns_fetched(work), BATCH + 1.3 * j)
    products: float
    if work.pairs is None:
        # Columns of G are differences of two products; passes over all values come on top.
        products = m * m * n + 4 * fetched * n * m + 2 * m * n * p + m * m * p
        products += PASS * m * n * 3
    else:
        products = 2 * fetched * n * work.pairs + 4 * work.pairs * n * (p + 8)
    products += 2 * HELDOUT_ROWS**2 * (j + p) + 4 * HELDOUT_ROWS * j * j
    picks = 1.5 * j * rates.pick * (0.6 + 0.4 * n / PICK_CANDIDATES)
    weights = j**3 / 1e9
    return products / rates.products + picks + weights + work.refine * rates.step


HANDLING = 4.0
"""Mixing blocks, shuffling rows and handing models on, beside making features and learning;
measured by whole runs, not derived."""
BESIDES = 1.7
"""What a comparison takes beside the products that are counted; measured likewise."""
PLAYED = 1.4
"""What columns cost with the entries that are computed to guess them."""
PASS = 20
"""What going over a value in memory costs, in multiplications of a matrix product."""
PICK_CANDIDATES = 1000
"""For so many candidates `Rates.pick` is measured."""


def train_seconds(work: Work, rates: Rates, place: Place) -> float:
    """Return the time of all epochs: learning is one thread's, making features everybody's.

    Both overlap on a quiet machine with threads to spare; here they are taken one after another.
    """
    threads = max(place.threads, 1)
    make = work.rows * (rates.read + rates.evaluate) + len(work.block_rows) * rates.task
    make, learn = HANDLING * make, HANDLING * work.rows * rates.learn
    if is_kept(work, place):
        return rates.precondition + make / threads + work.epochs * learn
    return rates.precondition + work.epochs * (make / threads + learn)


def transform_seconds(work: Work, rates: Rates, place: Place) -> float:
    """Return the time of writing the features of all rows, at the speed of reading."""
    written = rates.read * work.features / max(work.columns, 1)
    make = work.rows * (rates.read + rates.evaluate + written)
    return (make + len(work.block_rows) * rates.task) / max(place.threads, 1)


def compare_seconds(work: Work, rates: Rates, place: Place) -> float:
    """Return the time of fitting all maps at all sizes and measuring each."""
    found = gather_seconds(work, rates, place)
    for method in work.methods:
        for size in work.sizes:
            found += _one_map(work.with_map(method, size), method, rates, place, work.features)
    return BESIDES * found


def _one_map(work: Work, method: str, rates: Rates, place: Place, probed: int) -> float:
    j, p, n = work.features, work.columns, work.test_rows
    cpus = max(place.cpus, 1)
    rows = work.compare_rows + n + 3 * min(n, 20_000)
    evaluate = rates.evaluate * j / probed
    found = 0.0
    if METHODS[method].selects:
        scaled = Rates(**{**vars(rates), "step": rates.step * (0.3 + 0.7 * j / probed)})
        found += select_seconds(work, scaled)
    elif method == "jl":
        evaluate = rates.evaluate * work.candidates / probed
        found += rows * 2 * work.candidates * j / rates.products
    elif method.startswith("nystroem"):
        found += rows * 2 * j * (j + p) / rates.products + 10 * j**3 / rates.products
        if method == "nystroem-rpcholesky":
            found += 10_000 * 4 * j * (j + p) / rates.products
    errors = work.error_rows**2 * (j + p + 40) / (rates.products / 2)
    ridge = work.compare_rows * j * j * 2 / (rates.products / 2) + j**3 / rates.products
    return found + rows * evaluate / cpus + errors + ridge


def seconds_of(work: Work, rates: Rates, place: Place) -> dict[str, float]:
    """Return the expected seconds of each step."""
    steps = {
        "fit": fit_seconds,
        "transform": transform_seconds,
        "train": train_seconds,
        "compare": compare_seconds,
    }
    wanted = [s for s in steps if s in work.steps and (s != "transform" or work.writes)]
    return {name: steps[name](work, rates, place) for name in wanted}
