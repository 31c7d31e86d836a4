"""Fixtures that every test file may use."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import settings

SHARED = Path(__file__).resolve().parents[2] / "shared"

# Started in the background of a shell, a process ignores Ctrl-C and so do all that it starts;
# tests that interrupt what they start need it heard.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing where two tests share the machine.
settings.register_profile("rfcdask", deadline=None)
settings.load_profile("rfcdask")

# Workers of clusters within the tests, and other children, are forked from a server that has
# imported what they need, which takes each of them two seconds of a core otherwise. Commands that
# tests start have workers as users have them.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
get_mp_context()  # sets a list of its own, once
multiprocessing.set_forkserver_preload(
    ["distributed", "rfcdask.pipeline.run", "pyarrow.csv", "pyarrow.parquet", "sklearn.ensemble"]
)

PROCESSES = tuple(f"tests/{name}" for name in ("pipeline", "cli", "faults", "execution", "test_"))
"""Tests that start processes, and take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long files first, so that no core waits at the end for the last of them."""
    items.sort(key=lambda item: not item.nodeid.startswith(PROCESSES))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets and an independent solver's answers, where they lie beside the checkout."""
    if not (SHARED / "datasets").is_dir():
        pytest.skip("no shared data beside the checkout")
    return SHARED


def refuse(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("something was computed")


@pytest.fixture(scope="session")
def refusing_scheduler() -> Callable[..., None]:
    """A scheduler (or a function of a block) that raises: what works under it computes nothing."""
    return refuse


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
