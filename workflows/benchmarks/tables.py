"""A raw table through ``rfcdask run``, against gradient boosting on the same table.

The table is that of the tests: text, dates, 3 percent gaps, a class of 2 percent. Both are judged
on rows of their own, read as they are in the file. Boosting is given all rows that the run is given
(which holds a fifth of them out), dates as seconds, and the 250 commonest levels of each category.

    python workflows/benchmarks/tables.py --rows 300000
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score

import rfcdask as rf
from rfcdask.pipeline import run_job

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.customers import UNIT, customers, write_customers

WEIGHTED = {"label": "status", "class_weight": "balanced", "scoring": "balanced_accuracy"}
MOST_LEVELS = 250
TEST_UNITS = range(10_000, 10_006)
"""Units of rows that no run reaches."""


def for_boosting(table: pd.DataFrame, seen: pd.DataFrame) -> pd.DataFrame:
    """Return the columns as boosting takes them: numbers, seconds, and common levels."""
    made = table.drop(columns="status")
    for name in ("city", "plan", "shop"):
        levels = seen[name].value_counts().index[:MOST_LEVELS]
        common = made[name].where(made[name].isin(levels))
        made[name] = pd.Categorical(common, categories=levels)
    made["signup"] = (made["signup"] - pd.Timestamp(0)).dt.total_seconds()
    return made.astype({"active": "float64"})


def measured(name: str, predicted: Any, truth: Any, seconds: float) -> None:
    """Print one line of the table."""
    rare = recall_score(truth, predicted, labels=["lost"], average=None)[0]
    values = (accuracy_score(truth, predicted), balanced_accuracy_score(truth, predicted), rare)
    print(f"| {name} | {' | '.join(f'{value:.1%}' for value in values)} | {seconds:.0f} s |")


def main() -> None:
    """Train both and print a table in Markdown."""
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parse.add_argument("--rows", type=int, default=300_000)
    parse.add_argument("--folder", type=Path, default=Path("tables"))
    parse.add_argument("--seeds", type=int, default=1, help="tables and runs to go over")
    given = parse.parse_args()
    given.folder.mkdir(exist_ok=True)
    print("| model | accuracy | balanced accuracy | found of the rare class | time |")
    print("|---|---|---|---|---|")
    for seed in range(given.seeds):
        compare(given.folder, given.rows, seed)


def compare(folder: Path, rows: int, seed: int) -> None:
    """Go over one table."""
    path = write_customers(folder / f"table-{seed}.csv", rows, seed)
    test = pd.concat([customers(unit, seed=seed) for unit in TEST_UNITS], ignore_index=True)
    start = time.perf_counter()
    run = folder / f"run-{seed}"
    few = {"methods": ["learned", "boosting"], "sizes": [300], "random_state": seed}
    results = run_job(str(path), run, settings=WEIGHTED | few, scheduler="threads", overwrite=True)
    seconds = time.perf_counter() - start
    predicted = rf.load(run / "model").predict(test.drop(columns="status"))
    measured(f"`rfcdask run`, {rows:,} rows", predicted, test["status"], seconds)
    units = [customers(unit, seed=seed) for unit in range(-(-rows // UNIT))]
    seen = pd.concat(units, ignore_index=True).head(rows)
    start = time.perf_counter()
    boosting = HistGradientBoostingClassifier(
        class_weight="balanced", categorical_features="from_dtype", random_state=seed
    ).fit(for_boosting(seen, seen), seen["status"])
    seconds = time.perf_counter() - start
    predicted = np.asarray(boosting.predict(for_boosting(test, seen)))
    measured("HistGradientBoosting on the raw table, in memory", predicted, test["status"], seconds)
    sample = results["boosting"]
    print(
        f"| HistGradientBoosting of that run, {sample['n_rows']:,} encoded rows | "
        f"{sample['accuracy']:.1%} | {sample['balanced_accuracy']:.1%} | | |"
    )


if __name__ == "__main__":
    main()
