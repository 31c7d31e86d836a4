"""Small models, fitted, and ways to look into their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import rfcdask as rf
from rfcdask.persist import models as persist
from tests.reference import random_csr

MAPS: dict[str, Any] = {
    "random": rf.RandomFeatures(20, random_state=0),
    "fastfood": rf.RandomFeatures(20, sampling="fastfood", phases="paired", random_state=1),
    "compressed": rf.CompressedFeatures(8, n_candidates=60, n_rows=60, refine=20, random_state=2),
    "selected": rf.CompressedFeatures.paper(8, n_candidates=60, n_pairs=200, random_state=2),
    "paired": rf.CompressedFeatures(
        8, n_candidates=60, n_rows=60, refine=0, phases="paired", kernel="cauchy", random_state=3
    ),
    "jl": rf.JLFeatures(16, n_candidates=64, projection="fast", random_state=4),
    "nystroem": rf.NystroemFeatures(12, landmarks="rpcholesky", random_state=5),
}


def rows(sparse: bool, dtype: str = "float32") -> Any:
    X = random_csr(np.random.default_rng(0), (90, 5), dtype, density=0.7)
    return X if sparse else X.toarray()


def fitted(name: str = "compressed", *, sparse: bool = False) -> Any:
    from sklearn.base import clone

    return clone(MAPS[name]).fit(rows(sparse))


def chunk_files(model: Path) -> list[Path]:
    return [path for path in model.rglob("*") if path.is_file() and path.suffix != ".json"]


def edit(model: Path, change: Any) -> None:
    record = json.loads((model / "model.json").read_text())
    change(record)
    record.pop("checksum")
    record["checksum"] = persist._checksum(record)  # what lies behind it is to be tested
    (model / "model.json").write_text(json.dumps(record))
