"""How often each class occurs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rfcdask.data.errors import DataError
from rfcdask.execution.executor import compute
from rfcdask.kernels.types import Array

if TYPE_CHECKING:
    from rfcdask.data.dataset import Dataset


def class_counts(dataset: Dataset) -> dict[str, int]:
    """Return the number of rows of each class by its name, reading all labels and no rows."""
    classes = dataset.classes
    if classes is None or dataset.y is None:
        raise DataError("this data set has no classes to count: its labels are none, or numbers.")
    parts = dataset.y.map_blocks(
        _count_block,
        classes,
        new_axis=1,
        chunks=((1,) * dataset.y.numblocks[0], (len(classes),)),
        dtype=np.int64,
        meta=np.empty((0, 0), np.int64),
    )
    counts = np.asarray(compute(parts.sum(axis=0))).tolist()
    return dict(zip((str(name) for name in classes), counts, strict=True))


def _count_block(labels: Array, classes: Array) -> Array:
    return np.bincount(np.searchsorted(classes, labels), minlength=len(classes))[None]
