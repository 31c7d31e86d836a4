"""Rows on disk: stores of lazy blocks, readers, ingest, synthetic data and recipes."""

from rfcdask.data.dataset import Dataset
from rfcdask.data.datasets import Recipe, fetch, load_recipe, recipe_names
from rfcdask.data.errors import DamagedStoreError, DataError, StoreExistsError, UnfinishedStoreError
from rfcdask.data.generators import synthetic
from rfcdask.data.ingest import ingest
from rfcdask.data.sample import Rows, reader_of
from rfcdask.data.store import open_dataset
from rfcdask.data.views import SparseProjection

__all__ = [
    "DamagedStoreError",
    "DataError",
    "Dataset",
    "Recipe",
    "Rows",
    "SparseProjection",
    "StoreExistsError",
    "UnfinishedStoreError",
    "fetch",
    "ingest",
    "load_recipe",
    "open_dataset",
    "reader_of",
    "recipe_names",
    "synthetic",
]
