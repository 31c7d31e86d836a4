"""Kernel feature maps chosen for your data, applied lazily to Dask arrays larger than memory."""

from rfcdask._version import __version__
from rfcdask.cluster import connect
from rfcdask.compare import Comparison, compare
from rfcdask.data import Dataset, fetch, ingest, open_dataset, synthetic
from rfcdask.evaluate import kernel_error
from rfcdask.features import (
    CompressedFeatures,
    JLFeatures,
    NystroemFeatures,
    RandomFeatures,
)
from rfcdask.linear import PCA, Ridge, RidgeClassifier, SGDClassifier, SGDRegressor
from rfcdask.persist import load, save
from rfcdask.plan import Plan, PlanError, plan
from rfcdask.tuning import TuneResult, tune

__all__ = [
    "PCA",
    "Comparison",
    "CompressedFeatures",
    "Dataset",
    "JLFeatures",
    "NystroemFeatures",
    "Plan",
    "PlanError",
    "RandomFeatures",
    "Ridge",
    "RidgeClassifier",
    "SGDClassifier",
    "SGDRegressor",
    "TuneResult",
    "__version__",
    "compare",
    "connect",
    "fetch",
    "ingest",
    "kernel_error",
    "load",
    "open_dataset",
    "plan",
    "save",
    "synthetic",
    "tune",
]
