"""One block, one thread: our features against scikit-learn's RBFSampler and the bare product.

python workflows/benchmarks/hot_loop.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.kernel_approximation import RBFSampler
from threadpoolctl import threadpool_limits

import rfcdask as rf

Array = npt.NDArray[Any]
ROWS, COLUMNS, FEATURES, REPEATS = 20_000, 28, 500, 15


def best(work: Callable[[], object]) -> float:
    """Return the shortest of several times, in nanoseconds a value."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times) / (ROWS * FEATURES) * 1e9


def measure(dtype: type = np.float32) -> dict[str, float]:
    """Time all three in turn and return ns a value and the largest error."""
    X: Array = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(dtype)
    ours = rf.RandomFeatures(FEATURES, gamma=0.02, random_state=0).fit(X)
    evaluate = ours._evaluator(np.dtype(dtype))
    theirs = RBFSampler(gamma=0.02, n_components=FEATURES, random_state=0).fit(X)
    W: Array = ours.frequencies_.astype(dtype)
    exact = np.sqrt(2 / FEATURES) * np.cos(X.astype(np.float64) @ ours.frequencies_ + ours.phases_)
    with threadpool_limits(1):
        evaluate(X)  # compile
        return {
            "product": best(lambda: X @ W),  # all three make their output anew
            "ours": best(lambda: evaluate(X)),
            "scikit-learn": best(lambda: theirs.transform(X)),
            "error": float(np.abs(evaluate(X) - exact).max()),
        }


def main() -> None:
    for dtype in (np.float32, np.float64):
        t = measure(dtype)
        print(
            f"{dtype.__name__}: ours {t['ours']:.2f} ns a value, bare product {t['product']:.2f}, "
            f"scikit-learn {t['scikit-learn']:.2f}: {t['scikit-learn'] / t['ours']:.2f} times as "
            f"fast as scikit-learn, {t['ours'] / t['product']:.2f} times the product; "
            f"largest error {t['error']:.1e}"
        )


if __name__ == "__main__":
    main()
