"""Kernel feature maps chosen for your data, applied lazily to Dask arrays larger than memory."""

from rfcdask._version import __version__
from rfcdask.compare import Comparison, compare
from rfcdask.evaluate import kernel_error
from rfcdask.features import (
    CompressedFeatures,
    JLFeatures,
    NystroemFeatures,
    RandomFeatures,
)
from rfcdask.linear import PCA, Ridge, RidgeClassifier, SGDClassifier, SGDRegressor
from rfcdask.persist import load, save
from rfcdask.tuning import TuneResult, tune

__all__ = [
    "PCA",
    "Comparison",
    "CompressedFeatures",
    "JLFeatures",
    "NystroemFeatures",
    "RandomFeatures",
    "Ridge",
    "RidgeClassifier",
    "SGDClassifier",
    "SGDRegressor",
    "TuneResult",
    "__version__",
    "compare",
    "kernel_error",
    "load",
    "save",
    "tune",
]
