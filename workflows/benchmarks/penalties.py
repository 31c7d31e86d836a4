"""``SGDClassifier(alpha="auto")`` against liblinear with the best of three C, on the same features.

Data are read by path, as the experiments read them. Of each set 300 random features with the
gamma of the median distance are made once. scikit-learn's ``LinearSVC`` is fitted with C
of 1, 10 and 100, with the hinge loss and with its default, the squared one, and the best accuracy
*on the test rows* is reported: the doubt is in its favour. What it finds is kept in a JSON
file after each fit, as that takes most of the time.

Run: python workflows/benchmarks/penalties.py FOLDER [--data adult human] [--seeds 0 1 2]
     [--losses hinge squared_hinge] [--results penalties.json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from sklearn.svm import LinearSVC

import rfcdask as rf

sys.path.append(str(Path(__file__).parents[1] / "experiments"))  # its data sets, the same way
from data import read

DATA = ("adult", "human", "sensorless", "mnist", "covtype")
LOSSES = ("hinge", "squared_hinge")
FEATURES, MOST_ROWS, MOST_TEST_ROWS = 300, 100_000, 50_000
PENALTIES = (1, 10, 100)
ITERATIONS = {"hinge": 1000, "squared_hinge": 200}
"""Of liblinear: passes of coordinate descent, which alone has the hinge loss, or Newton steps."""
MANY_ROWS, LOOSE = 50_000, 1e-2
"""From so many rows on liblinear ends at this tolerance, and after a tenth of the iterations."""


def liblinear(loss: str, parts: tuple[Any, ...], known: dict[str, float], keep: Any) -> float:
    """Return the best accuracy over C; what is not known of them is measured and kept."""
    Z, y, Z_test, y_test = parts
    many = len(y) > MANY_ROWS
    for C in map(str, PENALTIES):
        if C not in known:
            start = time.perf_counter()
            model = LinearSVC(
                C=float(C),
                loss=loss,
                dual=loss == "hinge",
                tol=LOOSE if many else 1e-3,
                max_iter=ITERATIONS[loss] // (10 if many else 1),
                random_state=0,
            ).fit(Z, y)
            known[C] = float(model.score(Z_test, y_test))
            keep()
            seconds = time.perf_counter() - start
            print(f"  liblinear {loss} C={C}: {known[C]:.4f} {seconds:.0f} s", flush=True)
    return max(known.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the .npz files are")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--results", type=Path, default=Path("penalties.json"))
    options = parser.parse_args()
    known = json.loads(options.results.read_text()) if options.results.exists() else {}
    warnings.simplefilter("ignore")  # of liblinear, that it has not converged to the last digit

    def keep() -> None:
        options.results.write_text(json.dumps(known, indent=1))

    for name in options.data:
        for seed in options.seeds:
            rows = read(options.folder, name, seed)
            X, y = rows.X[:MOST_ROWS], rows.y[:MOST_ROWS]
            X_test, y_test = rows.X_test[:MOST_TEST_ROWS], rows.y_test[:MOST_TEST_ROWS]
            features = rf.RandomFeatures(FEATURES, gamma="median", random_state=seed).fit(X)
            Z, Z_test = features.transform(X), features.transform(X_test)
            best = {
                loss: liblinear(
                    loss,
                    (Z, y, Z_test, y_test),
                    known.setdefault(f"{name}/{seed}/{loss}", {}),
                    keep,
                )
                for loss in options.losses
            }
            for loss in options.losses:
                start = time.perf_counter()
                model = rf.SGDClassifier(loss, random_state=seed).fit(Z, y)
                seconds = time.perf_counter() - start
                accuracy = model.score(Z_test, y_test)
                against = ", ".join(
                    f"{100 * (accuracy - value):+.2f} to its {other} ({value:.4f})"
                    for other, value in best.items()
                )
                print(
                    f"{name}/{seed} {len(y)} rows, {loss}: auto {accuracy:.4f} (C "
                    f"{1 / (model.alpha_ * len(y)):.3g}, {seconds:.1f} s), {against}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
