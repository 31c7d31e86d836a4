"""A raw table through ``rfcdask run``, against gradient boosting on the same table.

The table is that of the tests: text, dates, 3 percent gaps, a class of 2 percent. Both are judged
on rows of their own, read as they are in the file. Boosting is given all rows that the run is given
(which holds a fifth of them out), dates as seconds, and the 250 commonest levels of each category.

The table comes as CSV, as Parquet, or as a dask DataFrame, which a pipeline is fitted on instead.
``sparse`` is svmlight text of 20,000 x 50,000, against scikit-learn's SGD.

    python workflows/benchmarks/tables.py --rows 300000
    python workflows/benchmarks/tables.py --sources parquet,dask
    python workflows/benchmarks/tables.py --sources sparse --seeds 3
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.pipeline import run_job

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.customers import UNIT, customers, lazy_customers, write_customers

WEIGHTED: dict[str, Any] = {"class_weight": "balanced", "scoring": "balanced_accuracy"}
SIZE = 300
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
    shares = " | ".join(f"{value:.1%}" for value in values)
    print(f"| {name} | {shares} | {seconds:.0f} s |", flush=True)


def main() -> None:
    """Train both and print a table in Markdown."""
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parse.add_argument("--rows", type=int, default=300_000)
    parse.add_argument("--folder", type=Path, default=Path("tables"))
    parse.add_argument("--seeds", type=int, default=1, help="tables and runs to go over")
    parse.add_argument("--sources", default="csv", help="some of csv, parquet and dask, or sparse")
    given = parse.parse_args()
    given.folder.mkdir(exist_ok=True)
    print("| model | accuracy | balanced accuracy | found of the rare class | time |")
    print("|---|---|---|---|---|")
    for seed in range(given.seeds):
        if given.sources == "sparse":
            compare_sparse(given.folder, seed)
            continue
        compare(given.folder, given.rows, seed, given.sources.split(","))


def compare(folder: Path, rows: int, seed: int, sources: list[str]) -> None:
    """Go over one table."""
    test = pd.concat([customers(unit, seed=seed) for unit in TEST_UNITS], ignore_index=True)
    for source in sources:
        if source == "dask":
            fit_lazily(rows, seed, test)
        else:
            run_file(folder / f"table-{seed}.{source}", rows, seed, test)
    units = [customers(unit, seed=seed) for unit in range(-(-rows // UNIT))]
    seen = pd.concat(units, ignore_index=True).head(rows)
    start = time.perf_counter()
    boosting = HistGradientBoostingClassifier(
        class_weight="balanced", categorical_features="from_dtype", random_state=seed
    ).fit(for_boosting(seen, seen), seen["status"])
    seconds = time.perf_counter() - start
    predicted = np.asarray(boosting.predict(for_boosting(test, seen)))
    measured("HistGradientBoosting on the raw table, in memory", predicted, test["status"], seconds)


def fit_lazily(rows: int, seed: int, test: pd.DataFrame) -> None:
    """Fit a pipeline on a dask DataFrame, and print how it does."""
    table = lazy_customers(rows, seed)
    start = time.perf_counter()
    model = make_pipeline(
        rf.TableEncoder(), rf.KernelClassifier(SIZE, random_state=seed, **WEIGHTED)
    ).fit(table.drop(columns="status"), table["status"])
    seconds = time.perf_counter() - start
    predicted = model.predict(test.drop(columns="status"))
    measured(f"a pipeline on a dask DataFrame, {rows:,} rows", predicted, test["status"], seconds)


def run_file(path: Path, rows: int, seed: int, test: pd.DataFrame) -> None:
    """Write the table, run on it, and print how the model and boosting in that run do."""
    write_customers(path, rows, seed)
    run = path.with_name(f"run-{path.suffix[1:]}-{seed}")
    few = {"methods": ["learned", "boosting"], "sizes": [SIZE], "random_state": seed}
    settings = {"label": "status"} | WEIGHTED | few
    start = time.perf_counter()
    results = run_job(str(path), run, settings=settings, scheduler="threads", overwrite=True)
    seconds = time.perf_counter() - start
    predicted = rf.load(run / "model").predict(test.drop(columns="status"))
    measured(f"`rfcdask run {path.name}`, {rows:,} rows", predicted, test["status"], seconds)
    sample = results["boosting"]
    print(
        f"| HistGradientBoosting of that run, {sample['n_rows']:,} encoded rows | "
        f"{sample['accuracy']:.1%} | {sample['balanced_accuracy']:.1%} | | |",
        flush=True,
    )


def wide_rows(seed: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return 25,000 rows of words among 50,000, of which a fifth tell the class; 2 percent lie."""
    rng, words = np.random.default_rng(seed), 100
    n, p = 25_000, 50_000
    columns = np.minimum((rng.pareto(0.6, size=n * words) * 30).astype(int), p - 1)
    rows = np.repeat(np.arange(n), words)
    X = sp.csr_matrix((np.ones(n * words, np.float32), (rows, columns)), shape=(n, p))
    scores = np.asarray(X @ (rng.standard_normal(p) * (rng.random(p) < 0.2)))
    return X, ((scores > np.median(scores)) ^ (rng.random(n) < 0.02)).astype(int)


def compare_sparse(folder: Path, seed: int) -> None:
    """Run on sparse text, and judge it and scikit-learn's SGD on 5,000 further rows."""
    X, y = wide_rows(seed)
    train, test = slice(0, 20_000), slice(20_000, None)
    path = folder / f"wide-{seed}.svm"
    dump_svmlight_file(X[train], y[train], str(path), zero_based=False)
    start = time.perf_counter()
    run = folder / f"run-sparse-{seed}"
    run_job(str(path), run, settings={"random_state": seed}, scheduler="threads", overwrite=True)
    print(f"`rfcdask run {path.name}` took {time.perf_counter() - start:.0f} s", file=sys.stderr)
    theirs = SGDClassifier(random_state=seed).fit(X[train], y[train])
    for name, model in (("rfcdask run", rf.load(run / "model")), ("SGDClassifier", theirs)):
        right = accuracy_score(y[test], np.asarray(model.predict(X[test])))
        print(f"| {name}, sparse text, seed {seed} | {right:.1%} | | | |", flush=True)


if __name__ == "__main__":
    main()
