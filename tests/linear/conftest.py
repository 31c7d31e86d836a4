"""Data and clusters for the tests of linear models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from rfcdask._types import Array


@pytest.fixture(scope="session")
def cluster_client() -> Iterator[Client]:
    """Two worker processes that live for the whole session."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def blobs(n: int, p: int, classes: int, seed: int = 0) -> tuple[Array, Array]:
    """Rows around class centres, near enough to each other that nobody separates them all."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    centres = np.random.default_rng(99).normal(size=(classes, p))
    return (centres[y] + 1.2 * rng.normal(size=(n, p))).astype(np.float32), y


def lazy(array: Array, rows: Any) -> Any:
    return da.from_array(array, chunks=(rows, *[-1] * (array.ndim - 1)))
