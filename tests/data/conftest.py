"""Fixtures of the data part."""

from __future__ import annotations

import pytest
from distributed import Client


@pytest.fixture(scope="session")
def cluster(cluster_client: Client) -> Client:
    """A real cluster of two processes; passed explicitly, it is nobody's default."""
    return cluster_client
