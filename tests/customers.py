"""A table as people have it: names, text, dates, gaps and a rare class, of any size from a seed.

Rows come in units, each from a seed of its own, so that three million of them need no more memory
than thousands, and the same row is the same in CSV, Parquet and a dask DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

UNIT = 10_000
CITIES = ("Oslo", "Rome", "Bern", "Lima", "Cairo", "Quito", "Paris", "Delhi", "Tunis", "Accra")
PLANS = ("free", "basic", "gold", "team")
GAPS = 0.03


def customers(unit: int = 0, rows: int = UNIT, seed: int = 0) -> pd.DataFrame:
    """Return the rows of one unit; `status` is the label, and 2 percent of it are `lost`."""
    rng = np.random.default_rng([seed, unit])
    age = rng.normal(45, 14, rows).clip(18, 95).round(1)
    income = np.exp(rng.normal(10, 0.6, rows)).round(2)
    city, plan = rng.choice(CITIES, rows), rng.choice(PLANS, rows, p=[0.5, 0.3, 0.15, 0.05])
    shop = rng.zipf(1.6, rows).clip(max=5000)
    signup = pd.Timestamp("2019-01-01") + pd.to_timedelta(
        rng.integers(0, 5 * 365 * 86400, rows), unit="s"
    )
    active, visits = rng.random(rows) < 0.6, rng.poisson(6, rows)
    turn = 2 * np.pi * signup.day_of_year / 365.25
    risk = (
        np.abs(age - 45) / 10
        - 1.3 * (np.log(income) - 10)
        + 1.5 * np.isin(city, CITIES[:3]) * (plan == "free")
        + 1.2 * np.asarray(np.cos(turn))
        - 0.15 * visits
        - 0.8 * active
        + rng.normal(0, 0.25, rows)
    )
    status = np.select([risk > 3.3, risk > 0.9], ["lost", "late"], "good")
    made = pd.DataFrame(
        {
            "age": age,
            "income": income,
            "city": city,
            "plan": plan,
            "shop": [f"shop {number}" for number in shop],
            "signup": signup.as_unit("us"),
            "active": active,
            "visits": visits,
        }
    )
    made["active"] = made["active"].astype("boolean")
    for name in ("age", "income", "city", "plan", "signup", "active"):
        made.loc[rng.random(rows) < GAPS, name] = None
    return made.assign(status=status)


def units(rows: int, seed: int = 0) -> Iterator[Any]:
    """Yield so many rows as Arrow tables."""
    for start in range(0, rows, UNIT):
        frame = customers(start // UNIT, UNIT, seed).head(rows - start)
        yield pa.Table.from_pandas(frame, preserve_index=False)


def write_customers(path: Path, rows: int, seed: int = 0) -> Path:
    """Write them as CSV or Parquet, as the ending says."""
    make = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    writer = None
    for table in units(rows, seed):
        writer = writer or make(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return path


def lazy_customers(rows: int, seed: int = 0) -> Any:
    """Return them as a dask DataFrame with a partition for each unit."""
    import dask.dataframe as dd

    starts = range(0, rows, UNIT)
    meta = customers(0, 10, seed).head(0)
    return dd.from_map(_unit, list(starts), rows=rows, seed=seed, meta=meta, enforce_metadata=False)


def _unit(start: int, rows: int, seed: int) -> pd.DataFrame:
    return customers(start // UNIT, UNIT, seed).head(rows - start)
