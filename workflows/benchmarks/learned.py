"""Features that learn from all rows against fixed ones: accuracy at equal or larger size.

Data are read by path, as the experiments read them (``workflows/experiments/data.py``). Every
method sees the same training rows and is judged on the same test rows; widths and penalties are
chosen on rows held out of the training rows. Results are kept in a JSON file, one entry per data
set, method and seed, so that a run goes on where it ended. The method ``by-hand-300`` is not among
the defaults: learned features of each of five given widths, of which the best on the *test* rows
counts, to see what the width that is found without them costs.

Run: python workflows/benchmarks/learned.py FOLDER [--data mnist covtype] [--seeds 0 1 2]
     [--methods learned-300 by-hand-300] [--results learned.json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

import rfcdask as rf

sys.path.append(str(Path(__file__).parents[1] / "experiments"))  # its data sets, the same way
from data import FILES, Rows, read
from harness import lazy

WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
"""Multiples of one over the median squared distance that fixed maps choose their gamma from."""
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Penalties that ridge chooses from."""
CHOICE_ROWS = 40_000
"""Most training rows on which width, penalty and head of a fixed map are chosen."""


def median_squared_distance(X: np.ndarray, seed: int) -> float:
    rng = np.random.default_rng(seed)
    first, second = (X[rng.permutation(len(X))[:2000]].astype(np.float64) for _ in range(2))
    distances = ((first - second) ** 2).sum(1)
    return float(np.median(distances[distances > 0]))


def make_map(method: str, gamma: float, seed: int) -> Any:
    kind, _, size = method.rpartition("-")
    if kind == "rfm":
        return rf.RandomFeatures(int(size), gamma=gamma, random_state=seed)
    if kind == "nystroem":
        return rf.NystroemFeatures(int(size), gamma=gamma, random_state=seed)
    assert kind == "compressed-labels"
    return rf.CompressedFeatures(int(size), gamma=gamma, label_weight=1.0, random_state=seed)


def heads(n_rows: int, seed: int) -> dict[str, Any]:
    """Return the linear models that a fixed map may be judged with, by name."""
    ridge = {"ridge": rf.RidgeClassifier(alphas=PENALTIES)}
    svm = {
        f"svm C={C:g}": rf.SGDClassifier(alpha=1 / (C * n_rows), random_state=seed)
        for C in (1, 10, 100)
    }
    return ridge | svm


def fixed_map(method: str, rows: Rows, seed: int) -> dict[str, Any]:
    """Choose width and head on held-out rows, fit on all training rows, judge on the test rows.

    The width is chosen with ridge, which is exact, and then C of the SVM. Both are fitted on all
    rows and the one that is better on the *test* rows is reported: the doubt is in their favour.
    """
    order = np.random.default_rng([seed, 5]).permutation(len(rows.X))
    held = order[: max(len(order) // 5, 300)][:10_000]
    used = order[len(held) :][:CHOICE_ROWS]
    base = 1 / median_squared_distance(rows.X, seed)
    found: dict[float, float] = {}
    for width in WIDTHS:
        features = make_map(method, width * base, seed).fit(rows.X[used], rows.y[used])
        found[width] = judge(features, "ridge", rows, used, held, seed)
    width = max(found, key=lambda key: found[key])
    features = make_map(method, width * base, seed).fit(rows.X[used], rows.y[used])
    machines = [name for name in heads(1, 0) if name.startswith("svm")]
    by_c = {name: judge(features, name, rows, used, held, seed) for name in machines}
    features = make_map(method, width * base, seed).fit(rows.X, rows.y)
    best = {}
    for name in ("ridge", max(by_c, key=lambda key: by_c[key])):
        model = heads(len(rows.X), seed)[name]
        model.fit(features.transform(lazy(rows.X)), lazy(rows.y))
        best[name] = model.score(features.transform(lazy(rows.X_test)), lazy(rows.y_test))
    head = max(best, key=lambda name: best[name])
    return {"accuracy": best[head], "chosen": f"{width:g} / median, {head}"}


def judge(
    features: Any, name: str, rows: Rows, used: np.ndarray, held: np.ndarray, seed: int
) -> float:
    """Return the accuracy on held-out rows of one head on a fitted map."""
    model = heads(len(used), seed)[name]
    model.fit(features.transform(lazy(rows.X[used])), lazy(rows.y[used]))
    return float(model.score(features.transform(lazy(rows.X[held])), lazy(rows.y[held])))


def learned(size: int, rows: Rows, seed: int) -> dict[str, Any]:
    model = rf.KernelClassifier(size, random_state=seed).fit(rows.X, rows.y)
    base = 1 / median_squared_distance(rows.X, seed)
    chosen = f"{model.features_.gamma_ / base:.3g} / median, {model.n_iter_} epochs"
    return {"accuracy": float(model.score(rows.X_test, rows.y_test)), "chosen": chosen}


def by_hand(size: int, rows: Rows, seed: int) -> dict[str, Any]:
    """Return the best on the test rows of features that begin with given widths."""
    base = 1 / median_squared_distance(rows.X, seed)
    found = {}
    for width in WIDTHS:
        model = rf.KernelClassifier(size, gamma=width * base, random_state=seed)
        found[width] = float(model.fit(rows.X, rows.y).score(rows.X_test, rows.y_test))
    best = max(found, key=lambda width: found[width])
    return {"accuracy": found[best], "chosen": f"{best:g} / median"}


def boosting(rows: Rows, seed: int) -> dict[str, Any]:
    model = HistGradientBoostingClassifier(random_state=seed, early_stopping=True)
    model.fit(rows.X, rows.y)
    return {
        "accuracy": float(model.score(rows.X_test, rows.y_test)),
        "chosen": f"{model.n_iter_} rounds",
    }


METHODS = (
    "learned-300",
    "rfm-1000",
    "rfm-3000",
    "nystroem-300",
    "compressed-labels-300",
    "boosting",
)


def run(method: str, rows: Rows, seed: int) -> dict[str, Any]:
    """Return accuracy on the test rows, what was chosen, and the seconds for all of it."""
    start = time.perf_counter()
    if method.startswith("learned"):
        found = learned(int(method.rpartition("-")[2]), rows, seed)
    elif method.startswith("by-hand"):
        found = by_hand(int(method.rpartition("-")[2]), rows, seed)
    elif method == "boosting":
        found = boosting(rows, seed)
    else:
        found = fixed_map(method, rows, seed)
    return found | {"seconds": time.perf_counter() - start}


def table(results: dict[str, Any], methods: list[str], data: list[str]) -> str:
    """Return the means over seeds as a Markdown table, with the largest distance from them."""
    lines = ["| data | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name in data:
        cells = []
        for method in methods:
            entries = [v for k, v in results.items() if k.startswith(f"{name}/{method}/")]
            values = np.array([entry["accuracy"] for entry in entries])
            seconds = np.mean([entry["seconds"] for entry in entries]) if entries else 0
            spread = np.abs(values - values.mean()).max() if entries else 0
            cells.append(f"{values.mean():.4f} ± {spread:.4f}, {seconds:.0f} s" if entries else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the .npz files are")
    parser.add_argument("--data", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=Path("learned.json"))
    options = parser.parse_args()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    warnings.simplefilter("ignore", UserWarning)  # fewer features than asked for on few rows
    for name in options.data:
        for seed in options.seeds:
            rows = read(options.folder, name, seed)
            for method in options.methods:
                key = f"{name}/{method}/{seed}"
                if key in results:
                    continue
                results[key] = run(method, rows, seed)
                entry = results[key]
                print(f"{key:32} {entry['accuracy']:.4f} {entry['seconds']:6.1f} s", end="  ")
                print(entry["chosen"], flush=True)
                options.results.write_text(json.dumps(results, indent=1))
    print(table(results, options.methods, options.data))


if __name__ == "__main__":
    main()
