"""``SGDClassifier(alpha="auto")`` against liblinear with the best of three C, on the same features.

Data are read by path, as the experiments read them. Of each set 300 random features with the
gamma of the median distance are made once. scikit-learn's ``LinearSVC`` is fitted with C
of 1, 10 and 100 and the best accuracy *on the test rows* is reported: the doubt is in its favour.
Its accuracies are kept in a JSON file, as they take most of the time.

Run: python workflows/benchmarks/penalties.py FOLDER [--data adult human] [--seeds 0 1 2]
     [--loss squared_hinge] [--results penalties.json]
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
from sklearn.svm import LinearSVC

import rfcdask as rf

sys.path.append(str(Path(__file__).parents[1] / "experiments"))  # its data sets, the same way
from data import read

DATA = ("adult", "human", "sensorless", "mnist", "covtype")
FEATURES, MOST_ROWS, MOST_TEST_ROWS = 300, 100_000, 50_000
PENALTIES = (1, 10, 100)


def liblinear(Z: Any, y: Any, Z_test: Any, y_test: Any) -> dict[str, float]:
    """Return the accuracy for each C."""
    found = {}
    for C in PENALTIES:
        start = time.perf_counter()
        model = LinearSVC(C=C, dual=False, tol=1e-3, max_iter=200, random_state=0).fit(Z, y)
        found[str(C)] = float(model.score(Z_test, y_test))
        print(f"  liblinear C={C}: {found[str(C)]:.4f} {time.perf_counter() - start:.0f} s")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the .npz files are")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--loss", default="squared_hinge", help="liblinear has this one")
    parser.add_argument("--results", type=Path, default=Path("penalties.json"))
    options = parser.parse_args()
    known = json.loads(options.results.read_text()) if options.results.exists() else {}
    warnings.simplefilter("ignore")  # of liblinear, that it has not converged to the last digit
    for name in options.data:
        for seed in options.seeds:
            rows = read(options.folder, name, seed)
            X, y = rows.X[:MOST_ROWS], rows.y[:MOST_ROWS]
            X_test, y_test = rows.X_test[:MOST_TEST_ROWS], rows.y_test[:MOST_TEST_ROWS]
            features = rf.RandomFeatures(FEATURES, gamma="median", random_state=seed).fit(X)
            Z, Z_test = features.transform(X), features.transform(X_test)
            key = f"{name}/{seed}"
            if key not in known:
                known[key] = liblinear(Z, y, Z_test, y_test)
                options.results.write_text(json.dumps(known, indent=1))
            start = time.perf_counter()
            model = rf.SGDClassifier(options.loss, random_state=seed).fit(Z, y)
            seconds = time.perf_counter() - start
            accuracy = model.score(Z_test, y_test)
            best = max(known[key].values())
            print(
                f"{key:14} {len(np.unique(y))} classes, {len(y)} rows: auto {accuracy:.4f} "
                f"(C {1 / (model.alpha_ * len(y)):.3g}, {seconds:.1f} s), liblinear {best:.4f}, "
                f"{100 * (accuracy - best):+.2f} points",
                flush=True,
            )


if __name__ == "__main__":
    main()
