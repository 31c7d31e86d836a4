"""Small runs through the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SMALL = {
    "rows": 4000,
    "sizes": [8, 16],
    "n_candidates": 120,
    "n_rows": 300,
    "refine": 20,
    "gamma": "tune",
    "methods": ["random", "giga", "compressed", "compressed-labels", "nystroem"],
    "epochs": 2,
    "block_size": "100kB",
}


def pairs() -> list[str]:
    """Return the small settings as options."""
    shown = {k: ",".join(map(str, v)) if isinstance(v, list) else v for k, v in SMALL.items()}
    return [part for name, value in shown.items() for part in ("--set", f"{name}={value}")]


def command(*args: str | Path) -> list[str]:
    """Return the command line of ``rfcdask run``."""
    return [sys.executable, "-m", "rfcdask", "run", *map(os.fspath, args)]


def start(*args: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start ``rfcdask run`` and return at once."""
    return subprocess.Popen(
        command(*args),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    )


def run(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``rfcdask run`` to its end."""
    return subprocess.run(
        command(*args), cwd=cwd, capture_output=True, text=True, timeout=250, env=_environment()
    )


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "DASK_SCHEDULER_ADDRESS"}


def results_of(folder: Path) -> Any:
    """Read results.json."""
    return json.loads((folder / "results.json").read_text())
