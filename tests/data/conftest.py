"""Fixtures of the data part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import rfcdask as rf


@pytest.fixture(scope="session")
def cluster(cluster_client: Client) -> Client:
    """A real cluster of two processes; passed explicitly, it is nobody's default."""
    return cluster_client


@pytest.fixture
def stored(tmp_path: Path) -> rf.Dataset:
    """A store of 1,000 rows in several shards, at a.zarr."""
    X = np.random.default_rng(0).standard_normal((1000, 4))
    return rf.ingest((X, np.arange(1000) % 2), tmp_path / "a.zarr", block_size=8000)
