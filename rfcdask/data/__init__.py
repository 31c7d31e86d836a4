"""Rows on disk: stores of lazy blocks, readers, ingest, synthetic data and recipes."""

from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DamagedStoreError, DataError, StoreExistsError, UnfinishedStoreError
from rfcdask.data.gather import Rows, reader_of
from rfcdask.data.ingest import ingest
from rfcdask.data.projection import SparseProjection
from rfcdask.data.store import open_dataset

__all__ = [
    "DamagedStoreError",
    "DataError",
    "Dataset",
    "Rows",
    "SparseProjection",
    "StoreExistsError",
    "UnfinishedStoreError",
    "ingest",
    "open_dataset",
    "reader_of",
]
