"""Selection at the paper's setting against a plain GIGA that multiplies by R in every step.

    python workflows/benchmarks/selection.py
    python workflows/benchmarks/selection.py --large     # 100,000 candidates, peak memory

From gathered rows to weights, in one run: J+ = 5,000 candidates, S = 20,000 pairs, J = 500.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rfcdask.kernels import get_kernel
from rfcdask.kernels.frequencies import draw_candidates
from rfcdask.selection.compress import (
    CompressionSettings,
    LabelledRows,
    Selection,
    heldout_errors,
    row_target,
    select,
)

Array = npt.NDArray[Any]
CANDIDATES, PAIRS, FEATURES, COLUMNS, GAMMA = 5000, 20_000, 500, 28, 0.02


def rows_of(n: int, seed: int = 0) -> Array:
    """Make rows around a few centres, as real data have them."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=1.0, size=(40, COLUMNS))
    return (centres[rng.integers(0, 40, n)] + rng.normal(size=(n, COLUMNS))).astype(np.float32)


def plain_giga(
    X: Array, i: Array, j: Array, seed: int, *, dtype: Any = np.float64, tuned: bool = False
) -> Array:
    """GIGA as one writes it down: R in memory, products with R in every step.

    Plainly, that is the two products of the published formulas; numpy's own precision is float64,
    ours is float32. `tuned` takes the product with the fixed goal once.
    """
    drawn = draw_candidates(get_kernel("rbf"), GAMMA, COLUMNS, CANDIDATES, "iid", "random", seed)
    W, b = drawn.vectors.astype(dtype), drawn.phases.astype(dtype)
    scale = np.sqrt(dtype(2 / CANDIDATES))
    R = (scale * np.cos(X[i] @ W + b)).T * (scale * np.cos(X[j] @ W + b)).T
    r = R.sum(axis=0)
    norms = np.sqrt((R * R).sum(axis=1))
    unit = R / norms[:, None]
    goal = r / np.linalg.norm(r)
    fixed = unit @ goal
    first = int(np.argmax(fixed))
    w = np.zeros(CANDIDATES)
    w[first], x = 1 / norms[first], unit[first].copy()
    while np.count_nonzero(w) < FEATURES:
        length = np.linalg.norm(x)
        direction = x / length
        s = float(goal @ direction)
        along = unit @ direction
        ahead = fixed - s * along if tuned else unit @ (goal - s * direction)
        f = int(np.argmax(ahead / np.sqrt(np.maximum(1 - along**2, 1e-12))))
        a, h = ahead[f] + s * along[f], along[f]
        stay, move = s - a * h, a - s * h
        w *= stay / length / (stay + move)
        w[f] += move / norms[f] / (stay + move)
        x = (stay * direction + move * unit[f]) / (stay + move)
        best = float(x @ r) / float(x @ x)
        w *= best
        x = x * best
    return np.flatnonzero(w)


def settings_of(**others: Any) -> CompressionSettings:
    """Return the paper's setting, with some of it changed."""
    given: dict[str, Any] = {
        "kernel": get_kernel("rbf"),
        "gamma": GAMMA,
        "n_atoms": FEATURES,
        "n_candidates": CANDIDATES,
        "sampling": "iid",
        "phases": "random",
        "exact_target": False,
        "solver": "giga",
        "refit": False,
        "tol": None,
        "refine_steps": 0,
        "seed": 0,
        "memory_budget": 3 * 2**30,
    }
    return CompressionSettings(**(given | others))


def ours(X: Array, pairs: tuple[Array, Array] | None, **others: Any) -> Selection:
    """Run our selection on gathered rows: no refinement, and no errors on held-out rows."""
    return select(LabelledRows(X), pairs, settings_of(**others))


def picked(found: Selection) -> Array:
    return found.path.states[-1].atoms


def compare(repeats: int = 8) -> dict[str, float]:
    """Time plain solvers, ours on the same pairs, and ours on all pairs of 2,000 rows.

    A second of work is easily disturbed, a minute of it less so: ours takes more turns.
    """
    X = rows_of(40_000)
    rng = np.random.default_rng(1)
    i, j = rng.integers(0, 20_000, PAIRS), rng.integers(20_000, 40_000, PAIRS)
    ours(X[:50], None, n_atoms=4, n_candidates=50)  # compile
    times: dict[str, list[float]] = {
        "plain": [],
        "single": [],
        "tuned": [],
        "pairs": [],
        "rows": [],
        "kernel": [],
    }
    found: dict[str, Array] = {}

    def clock(name: str, work: Callable[[], Array]) -> None:
        started = time.perf_counter()
        found[name] = work()
        times[name].append(time.perf_counter() - started)

    for repeat in range(repeats):
        clock("pairs", lambda: picked(ours(X, (i, j))))
        clock("rows", lambda: picked(ours(X[:2000], None)))
        clock("kernel", lambda: picked(ours(X[:2000], None, exact_target=True)))
        if repeat % 3 == 1:
            clock("tuned", lambda: plain_giga(X, i, j, 0, dtype=np.float32, tuned=True))
            clock("single", lambda: plain_giga(X, i, j, 0, dtype=np.float32))
            clock("plain", lambda: plain_giga(X, i, j, 0))
    best = {name: min(values) for name, values in times.items()}
    return best | {"same": float(len(np.intersect1d(found["pairs"], found["plain"])))}


def large() -> None:
    """Choose 1,000 of 100,000 candidates on all pairs of 5,000 rows."""
    X = rows_of(5000)
    started = time.perf_counter()
    settings = settings_of(n_atoms=1000, n_candidates=100_000, exact_target=True, refit=True)
    found = select(LabelledRows(X), None, settings)
    heldout = row_target(LabelledRows(rows_of(1000, seed=99)), found.block, settings)
    error = heldout_errors(found, heldout, settings)[-1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(picked(found))} of 100,000 candidates on all pairs of 5,000 rows: "
        f"{time.perf_counter() - started:.0f} s, peak {peak:.2f} GiB, "
        f"held-out error {error:.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="100,000 candidates instead")
    if parser.parse_args().large:
        return large()
    t = compare()
    peers = {"plain": "plain float64", "single": "plain float32", "tuned": "tuned float32"}
    print("; ".join(f"{label} GIGA {t[name]:.1f} s" for name, label in peers.items()))
    for ours_name, what in (
        ("pairs", f"the same {PAIRS:,} pairs"),
        ("rows", "all pairs of 2,000 rows"),
        ("kernel", "all pairs of 2,000 rows, the exact kernel as target"),
    ):
        ratios = ", ".join(
            f"{t[name] / t[ours_name]:.1f} x {label}" for name, label in peers.items()
        )
        print(f"ours, {what}: {t[ours_name]:.2f} s: {ratios}")
    print(f"{t['same']:.0f} of {FEATURES} features the same")
    return None


if __name__ == "__main__":
    main()
