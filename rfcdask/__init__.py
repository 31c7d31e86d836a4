"""Kernel feature maps chosen for your data, applied lazily to Dask arrays larger than memory."""

from rfcdask._version import __version__
from rfcdask.data import Dataset, ingest, open_dataset

__all__ = ["Dataset", "__version__", "ingest", "open_dataset"]
