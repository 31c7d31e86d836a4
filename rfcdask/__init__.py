"""Kernel feature maps chosen for your data, applied lazily to Dask arrays larger than memory."""

from rfcdask._version import __version__
from rfcdask.data import Dataset, fetch, ingest, open_dataset, synthetic

__all__ = ["Dataset", "__version__", "fetch", "ingest", "open_dataset", "synthetic"]
