"""Compare the feature maps at equal size: kernel error, ridge accuracy, time.

    python workflows/compare_maps.py                      # data of its own, a minute
    python workflows/compare_maps.py --npz mnist.npz --gamma 0.02 --scale 255
    python workflows/compare_maps.py --npz a9a.npz --gamma 0.05 --seeds 3

An .npz file holds X_train, y_train, X_test and y_test.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import RidgeClassifier

import rfcdask as rf

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Data:
    """Rows to learn from and rows to judge by."""

    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array


@dataclass(frozen=True)
class Result:
    """What one method gave over the seeds."""

    method: str
    size: int
    errors: Array
    accuracies: Array
    fit_seconds: float
    transform_seconds: float

    def line(self) -> str:
        """Return the row of the table."""
        return (
            f"{self.method:<28}{self.size:>6}"
            f"{self.errors.mean():>10.4f} ± {self.errors.std():.4f}"
            f"{self.accuracies.mean():>10.4f} ± {self.accuracies.std():.4f}"
            f"{self.fit_seconds:>9.1f}{self.transform_seconds:>11.2f}"
        )


def two_shells(n_train: int = 20_000, n_test: int = 10_000, p: int = 28) -> Data:
    """Make two classes that only the distance from the origin in 6 of `p` columns tells apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_train + n_test, p)).astype(np.float32)
    radius = np.linalg.norm(X[:, :6], axis=1) + 0.15 * rng.normal(size=len(X))
    y = (radius > 2.3).astype(np.int64)
    return Data(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


def read_npz(path: str, scale: float) -> Data:
    """Read a data set; integers are divided by `scale` and become float32."""
    with np.load(path) as file:
        X_train, X_test = (file[name].astype(np.float32) for name in ("X_train", "X_test"))
        return Data(X_train / scale, file["y_train"], X_test / scale, file["y_test"])


def methods(size: int, n_candidates: int, gamma: Any, label_weight: float) -> dict[str, Any]:
    """Return a function from the seed to an unfitted map, for each method."""
    plain = {"gamma": gamma}
    many = plain | {"n_candidates": n_candidates}
    compressed, paper = rf.CompressedFeatures, rf.CompressedFeatures.paper
    made: dict[str, Callable[[int], Any]] = {
        "RFM": lambda s: rf.RandomFeatures(size, **plain, random_state=s),
        "RFM-JL": lambda s: rf.JLFeatures(size, **many, random_state=s),
        "RFM-FW (paper)": lambda s: paper(size, solver="frank-wolfe", **many, random_state=s),
        "RFM-GIGA (paper)": lambda s: paper(size, **many, random_state=s),
        "ours, not refined": lambda s: compressed(size, **many, refine=0, random_state=s),
        "ours": lambda s: compressed(size, **many, random_state=s),
        f"ours, labels {label_weight:g}": lambda s: compressed(
            size, **many, label_weight=label_weight, random_state=s
        ),
        "Nyström, uniform": lambda s: rf.NystroemFeatures(size, **plain, random_state=s),
        "Nyström, rpcholesky": lambda s: rf.NystroemFeatures(
            size, landmarks="rpcholesky", **plain, random_state=s
        ),
    }
    return made


def measure(
    name: str, make: Callable[[int], Any], data: Data, seeds: Iterable[int], n_points: int
) -> Result:
    """Fit one method for each seed and judge it on the test rows."""
    errors, accuracies, fitting, applying = [], [], [], []
    for seed in seeds:
        started = time.perf_counter()
        features = make(seed).fit(data.X_train, data.y_train)
        fitted = time.perf_counter()
        Z = features.transform(data.X_train)
        applied = time.perf_counter()
        errors.append(rf.kernel_error(features, data.X_test, n_points=n_points, random_state=seed))
        model = RidgeClassifier(alpha=1.0).fit(Z, data.y_train)
        accuracies.append(model.score(features.transform(data.X_test), data.y_test))
        fitting.append(fitted - started)
        applying.append(applied - fitted)
    return Result(
        name,
        Z.shape[1],
        np.array(errors),
        np.array(accuracies),
        float(np.mean(fitting)),
        float(np.mean(applying)),
    )


def compare(
    data: Data,
    *,
    size: int = 500,
    n_candidates: int = 5000,
    gamma: Any = "scale",
    label_weight: float = 1.0,
    n_seeds: int = 1,
    n_points: int = 4000,
    only: Iterable[str] | None = None,
) -> dict[str, Result]:
    """Measure the methods and print a line as each is done."""
    print(f"{'method':<28}{'J':>6}{'kernel error':>19}{'accuracy':>19}{'fit s':>9}{'apply s':>11}")
    results = {}
    for name, make in methods(size, n_candidates, gamma, label_weight).items():
        if only is None or name in set(only):
            results[name] = measure(name, make, data, range(n_seeds), n_points)
            print(results[name].line(), flush=True)
    linear = RidgeClassifier(alpha=1.0).fit(data.X_train, data.y_train)
    print(f"{'linear model on the columns':<53}{linear.score(data.X_test, data.y_test):>10.4f}")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--npz", help="a data set of your own")
    parser.add_argument("--scale", type=float, default=1.0, help="divide the columns by this")
    parser.add_argument("--gamma", type=float, help="width of the rbf kernel (default: scale)")
    parser.add_argument("--size", type=int, default=300, help="features of each map")
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--label-weight", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0 on")
    chosen = parser.parse_args()
    compare(
        read_npz(chosen.npz, chosen.scale) if chosen.npz else two_shells(),
        size=chosen.size,
        n_candidates=chosen.candidates,
        gamma=chosen.gamma or "scale",
        label_weight=chosen.label_weight,
        n_seeds=chosen.seeds,
    )


if __name__ == "__main__":
    main()
