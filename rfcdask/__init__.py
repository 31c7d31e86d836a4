"""Kernel feature maps chosen for your data, applied lazily to Dask arrays larger than memory."""

from rfcdask._version import __version__
from rfcdask.data import Dataset, fetch, ingest, open_dataset, synthetic
from rfcdask.evaluate import kernel_error
from rfcdask.features import (
    CompressedFeatures,
    JLFeatures,
    NystroemFeatures,
    RandomFeatures,
)
from rfcdask.persist import load, save

__all__ = [
    "CompressedFeatures",
    "Dataset",
    "JLFeatures",
    "NystroemFeatures",
    "RandomFeatures",
    "__version__",
    "fetch",
    "ingest",
    "kernel_error",
    "load",
    "open_dataset",
    "save",
    "synthetic",
]
