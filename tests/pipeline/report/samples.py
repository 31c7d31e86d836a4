"""Results of runs as `results.json` has them, made by hand."""

from __future__ import annotations

import math
from typing import Any

# method: kernel error and accuracy with 300 features, fit seconds, microseconds a row, bytes
FIGURES: dict[str, tuple[float, float, float, float, int]] = {
    "random": (0.0812, 0.874, 0.1, 1.24, 36_000),
    "jl": (0.0921, 0.868, 0.9, 6.9, 6_600_000),
    "frank-wolfe": (0.0644, 0.881, 4.2, 1.25, 36_000),
    "giga": (0.0478, 0.889, 4.4, 1.22, 36_000),
    "compressed": (0.0213, 0.902, 7.8, 1.23, 36_000),
    "compressed-labels": (0.0861, 0.931, 8.1, 1.24, 36_000),
    "nystroem": (0.0142, 0.912, 0.3, 2.66, 394_000),
    "nystroem-rpcholesky": (0.0103, 0.916, 1.7, 2.71, 394_000),
}


def row(method: str, n: int = 300, **changes: Any) -> dict[str, Any]:
    """One line of a comparison; smaller maps are worse and faster."""
    error, accuracy, fit, micros, size = FIGURES.get(method, (0.05, 0.88, 1.0, 1.5, 50_000))
    part = n / 300
    found = {
        "method": method,
        "n_components": n,
        "kernel_error": error / math.sqrt(part),
        "accuracy": accuracy - 0.05 * (1 / math.sqrt(part) - 1),
        "fit_seconds": fit * part,
        "microseconds_per_row": micros * part,
        "model_bytes": round(size * part),
    }
    return found | changes


def selection(n: int = 300) -> dict[str, Any]:
    sizes = list(range(1, n + 1))
    return {
        "method": "compressed",
        "n_candidates": 5000,
        "n_rows": 5000,
        "sizes": sizes,
        "sampled": [0.62 / k**0.55 for k in sizes],
        "heldout": [0.63 / k**0.54 for k in sizes],
        "chosen_size": n,
        "refined_heldout": 0.0208,
        "weights": [40 * math.exp(-3 * k / n) * (1 + 0.1 * math.sin(k)) for k in sizes],
    }


def results(**changes: Any) -> dict[str, Any]:
    """A whole run with every section; `changes` replace sections."""
    found: dict[str, Any] = {
        "format": 1,
        "rfcdask": "0.1.0",
        "created": "2026-11-16T09:30:00+00:00",
        "command": "rfcdask run",
        "seed": 0,
        "settings": {
            "n_components": 300,
            "n_candidates": 5000,
            "kernel": "rbf",
            "gamma": "scale",
            "methods": list(FIGURES),
            "test_size": 0.2,
        },
        "versions": {"python": "3.11.2", "numpy": "2.3.1", "dask": "2025.9.1", "zarr": "3.1.6"},
        "machine": {
            "cores": 2,
            "memory_bytes": 25 * 10**9,
            "platform": "Linux-6.1-x86_64",
            "scheduler": "local",
            "workers": 2,
            "threads": 2,
        },
        "data": {
            "name": "rings",
            "source": "synthetic",
            "path": "rfcdask-run/data.zarr",
            "rows": 1_000_000,
            "train_rows": 800_000,
            "test_rows": 200_000,
            "columns": 28,
            "classes": ["background", "signal"],
            "class_counts": [529_000, 471_000],
            "dtype": "float32",
            "bytes": 112_000_000,
            "blocks": 16,
            "block_bytes": 7_000_000,
            "shuffled": True,
        },
        "plan": {
            "blocks": 16,
            "tasks": 412,
            "bytes_read": 5 * 112_000_000,
            "bytes_written": 2_000_000,
            "peak_worker_bytes": 610_000_000,
            "peak_driver_bytes": 410_000_000,
            "seconds": 41.0,
            "problems": [],
        },
        "kernel": {"name": "rbf", "gamma": 0.0357, "rule": "scale"},
        "selection": selection(),
        "comparison": [row(method) for method in FIGURES],
        "linear": {"accuracy": 0.641, "metrics": {"accuracy": 0.641}, "seconds": 1.1},
        "model": {
            "method": "compressed-labels",
            "n_components": 300,
            "learner": "SGDClassifier",
            "epochs": 5,
            "accuracy": 0.9334,
            "metrics": {"accuracy": 0.9334, "balanced_accuracy": 0.9331, "log_loss": 0.21},
            "train_seconds": 31.2,
            "rows_per_second": 128_000,
            "path": "model",
        },
        "confusion": {
            "labels": ["background", "signal"],
            "matrix": [[99_120, 6_680], [6_640, 87_560]],
        },
        "importances": {
            "scoring": "accuracy",
            "score": 0.93,
            "rows": 5000,
            "columns": [
                {"column": "mass", "importance": 0.21, "deviation": 0.004, "gradient": 1.5},
                {"column": "spin", "importance": 0.02, "deviation": 0.001},
            ],
        },
        "phases": [
            {"name": "data", "seconds": 6.1, "peak_bytes": 420_000_000, "rows": 1_000_000},
            {"name": "plan", "seconds": 2.4, "peak_bytes": 450_000_000, "rows": None},
            {"name": "select", "seconds": 14.0, "peak_bytes": 980_000_000, "rows": 6_000},
            {"name": "train", "seconds": 31.2, "peak_bytes": 1_200_000_000, "rows": 4_000_000},
            {"name": "score", "seconds": 1.6, "peak_bytes": 700_000_000, "rows": 200_000},
            {"name": "compare", "seconds": 46.0, "peak_bytes": 1_500_000_000, "rows": 50_000},
            {"name": "report", "seconds": 0.04, "peak_bytes": 300_000_000, "rows": None},
        ],
    }
    return found | changes


def many_sizes(sizes: tuple[int, ...] = (50, 100, 200, 300, 500, 1000)) -> dict[str, Any]:
    return results(comparison=[row(method, n) for method in FIGURES for n in sizes])


def many_classes(n: int, wrong: int = 3) -> dict[str, Any]:
    labels = [f"species {k:03d} of a family with a long name" for k in range(n)]
    matrix = [
        [
            900 if i == j else (wrong * (1 + (i * j) % 7) if (i * 7 + j) % 11 == 0 else 0)
            for j in range(n)
        ]
        for i in range(n)
    ]
    data = results()["data"] | {
        "classes": labels,
        "class_counts": [1000 + 37 * (k % 13) for k in range(n)],
    }
    return results(confusion={"labels": labels, "matrix": matrix}, data=data)


_DEED = "document.title='broken'"
NASTY = f'<script>{_DEED}</script>"\'><img src=x onerror="{_DEED}">&amp;'


def nasty() -> dict[str, Any]:
    """Names from data that try to be markup wherever the data have names."""
    base = results()
    return results(
        command=f"rfcdask run '{NASTY}'",
        rfcdask=NASTY,
        created=NASTY,
        settings={NASTY: NASTY, "long": "x" * 3000},
        versions={NASTY: NASTY},
        machine=base["machine"] | {"platform": NASTY, "scheduler": NASTY},
        data=base["data"]
        | {"name": NASTY, "source": NASTY, "path": NASTY, "classes": [NASTY, "y" * 400]},
        kernel={"name": NASTY, "gamma": 0.1, "rule": NASTY},
        comparison=[row(NASTY), row("z" * 300, accuracy=0.7), row("compressed")],
        model=base["model"] | {"method": NASTY, "learner": NASTY},
        warnings=[NASTY],
        importances={"columns": [{"column": NASTY, "importance": 0.1}]},
        confusion={"labels": [NASTY, "y" * 400], "matrix": [[5, 6], [7, 8]]},
        phases=[{"name": NASTY, "seconds": 1.0, "peak_bytes": 1, "rows": 1}],
        plan=base["plan"] | {"problems": [NASTY]},
        recommendation={"text": NASTY, "reason": NASTY},
    )
