"""Kernel feature maps chosen for your data, applied lazily to Dask arrays larger than memory.

Names are imported when they are first used: ``import rfcdask`` costs nothing, and neither do the
command line's ``--help`` and shell completion.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rfcdask._version import __version__

if TYPE_CHECKING:
    from rfcdask.data import Dataset, fetch, ingest, open_dataset, synthetic
    from rfcdask.data.tables.encoder import TableEncoder
    from rfcdask.evaluation import metrics
    from rfcdask.evaluation.compare import Comparison, compare
    from rfcdask.evaluation.importance import permutation_importance
    from rfcdask.evaluation.metrics import kernel_error
    from rfcdask.evaluation.tuning import TuneResult, tune
    from rfcdask.execution.cluster import connect
    from rfcdask.features import (
        CompressedFeatures,
        JLFeatures,
        NystroemFeatures,
        RandomFeatures,
    )
    from rfcdask.linear import (
        PCA,
        KernelClassifier,
        KernelRegressor,
        Ridge,
        RidgeClassifier,
        SGDClassifier,
        SGDRegressor,
    )
    from rfcdask.linear.predict import calibrate
    from rfcdask.linear.transform import Standardizer
    from rfcdask.persist.models import load, save
    from rfcdask.planning import Plan, PlanError, plan

__all__ = [
    "PCA",
    "Comparison",
    "CompressedFeatures",
    "Dataset",
    "JLFeatures",
    "KernelClassifier",
    "KernelRegressor",
    "NystroemFeatures",
    "Plan",
    "PlanError",
    "RandomFeatures",
    "Ridge",
    "RidgeClassifier",
    "SGDClassifier",
    "SGDRegressor",
    "Standardizer",
    "TableEncoder",
    "TuneResult",
    "__version__",
    "calibrate",
    "compare",
    "connect",
    "fetch",
    "ingest",
    "kernel_error",
    "load",
    "metrics",
    "open_dataset",
    "permutation_importance",
    "plan",
    "save",
    "synthetic",
    "tune",
]


def _find_place_for_compiled_code() -> None:
    """Give numba a folder it may write to, where neither the package nor the home is one.

    In a container with a user of its own numba would refuse to load the package at all.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    while home != os.path.dirname(home) and not os.path.exists(home):
        home = os.path.dirname(home)
    if "NUMBA_CACHE_DIR" in os.environ or os.access(here, os.W_OK) or os.access(home, os.W_OK):
        return
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="rfcdask-numba-")  # the workers that we start find it too
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


_find_place_for_compiled_code()

_NAMES = {
    "rfcdask.execution.cluster": ("connect",),
    "rfcdask.evaluation.compare": ("Comparison", "compare"),
    "rfcdask.data": ("Dataset", "fetch", "ingest", "open_dataset", "synthetic"),
    "rfcdask.data.tables.encoder": ("TableEncoder",),
    "rfcdask.evaluation": ("metrics",),  # a module
    "rfcdask.evaluation.importance": ("permutation_importance",),
    "rfcdask.evaluation.metrics": ("kernel_error",),
    "rfcdask.features": ("CompressedFeatures", "JLFeatures", "NystroemFeatures", "RandomFeatures"),
    "rfcdask.linear": (
        "KernelClassifier",
        "KernelRegressor",
        "PCA",
        "Ridge",
        "RidgeClassifier",
        "SGDClassifier",
        "SGDRegressor",
    ),
    "rfcdask.persist.models": ("load", "save"),
    "rfcdask.planning": ("Plan", "PlanError", "plan"),
    "rfcdask.linear.predict": ("calibrate",),
    "rfcdask.linear.transform": ("Standardizer",),
    "rfcdask.evaluation.tuning": ("TuneResult", "tune"),
}
"""Where each public name lives; the imports above say the same to type checkers."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        home = import_module(_HOME[name])
        value = getattr(home, name, None) or import_module(f"{_HOME[name]}.{name}")
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return import_module(f"rfcdask.{name}")  # rf.kernels without importing it first
        except ModuleNotFoundError as error:
            if error.name != f"rfcdask.{name}":
                raise
    raise AttributeError(f"module 'rfcdask' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
