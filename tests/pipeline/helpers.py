"""Small runs through the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SMALL = {
    "rows": 2000,
    "sizes": [8, 16],
    "n_candidates": 120,
    "n_rows": 300,
    "refine": 20,
    "gamma": "median",
    "methods": ["random", "giga", "compressed", "compressed-labels", "learned", "nystroem"],
    "epochs": 2,
    "block_size": "40kB",
}


def pairs() -> list[str]:
    """Return the small settings as options."""
    shown = {k: ",".join(map(str, v)) if isinstance(v, list) else v for k, v in SMALL.items()}
    return [part for name, value in shown.items() for part in ("--set", f"{name}={value}")]


def results_of(folder: Path) -> Any:
    """Read results.json."""
    return json.loads((folder / "results.json").read_text())
