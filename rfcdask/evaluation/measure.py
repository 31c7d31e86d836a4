"""What is measured of a fitted map: how near the kernel, how accurate, how fast, how large."""

from __future__ import annotations

import time
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from rfcdask.evaluation.kernel_error import kernel_error
from rfcdask.kernels.types import Array, Matrix

if TYPE_CHECKING:
    from distributed import Client

TIMED_ROWS = 20_000


class Split(NamedTuple):
    """Rows to learn from, lazy where X is, and rows held out, in memory."""

    X: Any
    y: Any
    test: Matrix
    labels: Array


def fitted(estimator: Any, X: Any, y: Any, client: Client | None) -> Any:
    """Fit an estimator; those of other packages know no client."""
    more = {"client": client} if has_fit_parameter(estimator, "client") else {}
    return estimator.fit(X, y, **more)


def measure(
    name: str,
    size: int,
    feature_map: Any,
    seconds: float,
    learner: Any,
    data: Split,
    seed: int,
    client: Client | None = None,
    *,
    n_points: int = 10_000,
) -> dict[str, Any]:
    """Return a row of :class:`rfcdask.Comparison` for a map fitted in so many seconds."""
    model = fitted(clone(learner), feature_map.transform(data.X), data.y, client)
    right = np.asarray(model.predict(feature_map.transform(data.test))) == data.labels
    error = float("nan")  # of what is no approximation of a kernel, or does not say of which
    if hasattr(feature_map, "kernel") and hasattr(feature_map, "gamma_"):
        error = kernel_error(feature_map, data.test, n_points=n_points, random_state=seed)
    return {
        "method": name,
        "n_components": size,
        "kernel_error": error,
        "accuracy": float(np.mean(right)),
        "fit_seconds": seconds,
        "microseconds_per_row": 1e6 * _seconds_per_row(feature_map, data.test),
        "model_bytes": model_bytes(feature_map),
    }


def _seconds_per_row(feature_map: Any, rows: Matrix) -> float:
    """Return the best of three transforms of rows in memory, by the row."""
    rows = rows[:TIMED_ROWS]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        feature_map.transform(rows)
        times.append(time.perf_counter() - start)
    return float(min(times) / rows.shape[0])


def model_bytes(fitted: Any) -> int:
    """Return the bytes of the arrays with which a fitted feature map transforms float32 rows."""
    if hasattr(fitted, "_evaluator"):
        return _array_bytes(fitted._evaluator(np.dtype(np.float32)))
    return sum(_array_bytes(v) for k, v in vars(fitted).items() if k.endswith("_"))


def _array_bytes(held: Any) -> int:
    if isinstance(held, np.ndarray):
        return int(held.nbytes)
    if hasattr(held, "indptr"):
        return int(held.data.nbytes + held.indices.nbytes + held.indptr.nbytes)
    if is_dataclass(held):
        return sum(_array_bytes(getattr(held, field.name)) for field in fields(held))
    return 0
