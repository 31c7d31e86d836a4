from __future__ import annotations

import os
from collections.abc import Iterator

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker

from rfcdask.compute import compute, current_client


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    settings = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


def process_ids(block: np.ndarray) -> np.ndarray:
    return np.full_like(block, os.getpid())


def where() -> da.Array:
    return da.zeros(4, chunks=2, dtype=np.int64).map_blocks(process_ids, dtype=np.int64)


def test_without_a_client_the_local_scheduler_computes() -> None:
    assert current_client() is None
    assert set(compute(where())) == {os.getpid()}


def test_the_given_client_then_the_current_one_then_the_chosen_scheduler(
    cluster: LocalCluster,
) -> None:
    with Client(cluster, set_as_default=False) as given:
        assert current_client() is None
        assert current_client(given) is given
        assert os.getpid() not in compute(where(), given)
        with given.as_current():
            assert current_client() is given
            assert os.getpid() not in compute(where())
            with dask.config.set(scheduler="threads"):
                assert current_client() is None
                assert set(compute(where())) == {os.getpid()}
    with Client(cluster) as default:
        assert current_client() is default
        assert os.getpid() not in compute(where())
        with dask.config.set(scheduler="sync"):
            assert set(compute(where())) == {os.getpid()}
    assert current_client() is None


def die(block: np.ndarray) -> np.ndarray:
    if block.size:
        os._exit(1)
    return block


def fail(block: np.ndarray) -> np.ndarray:
    raise ZeroDivisionError("in a block")


def fail_once(block: np.ndarray) -> np.ndarray:
    worker = get_worker()
    if not getattr(worker, "failed_once", False):
        worker.failed_once = True
        raise OSError("a file was not there for a moment")
    return block + 1


def test_on_a_cluster_trouble_is_retried_or_explained(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        passing = da.zeros(3, chunks=3).map_blocks(fail_once, dtype=float, meta=np.empty(0))
        np.testing.assert_array_equal(compute(passing, client), np.ones(3))
        failing = da.zeros(3, chunks=3).map_blocks(fail, dtype=float, meta=np.empty(0))
        with pytest.raises(ZeroDivisionError, match="in a block"):
            compute(failing, client)
        deadly = da.zeros(2**18, chunks=2**17).map_blocks(die, dtype=float, meta=np.empty(0))
        with pytest.raises(MemoryError, match=r"about 1.00 MiB each.*smaller blocks \(X.rechunk\)"):
            compute(deadly, client)
