"""Kernel feature maps chosen for your data, applied lazily to Dask arrays larger than memory."""

from rfcdask._version import __version__

__all__ = ["__version__"]
