"""Fixtures that every test file may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets and an independent solver's answers, where they lie beside the checkout."""
    if not (SHARED / "datasets").is_dir():
        pytest.skip("no shared data beside the checkout")
    return SHARED


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
