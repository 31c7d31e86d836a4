from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from rfcdask.kernels import runtime
from rfcdask.kernels.runtime import (
    ONE_HEAP,
    available_cpus,
    map_tiles,
    one_blas_thread,
    release_memory,
    share_freed_memory,
)

FREED_BY_THREADS = """
import threading
import numpy as np, psutil
from rfcdask.kernels.runtime import release_memory, share_freed_memory

shares = share_freed_memory()
np.ones(2**21)  # from now on glibc takes arrays of MiB from a heap
together = threading.Barrier(8)

def work():
    together.wait()
    held = [np.ones(2**19) for _ in range(3)]
    together.wait()

before = psutil.Process().memory_info().rss
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
release_memory()
print(int(shares), (psutil.Process().memory_info().rss - before) >> 20)
"""


def blas_threads() -> set[int]:
    np.linalg.norm(np.eye(2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_blas_threads() -> object:
    with threadpool_limits(2, user_api="blas"):
        yield


def test_one_thread_inside_and_the_old_number_after() -> None:
    assert blas_threads() == {2}
    with one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_the_old_number_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert blas_threads() == {2}


def test_overlapping_holders_on_many_threads() -> None:
    inside: list[set[int]] = []

    def hold(k: int) -> None:
        time.sleep(0.001 * (k % 3))
        with one_blas_thread():
            time.sleep(0.001 * (k % 5))
            inside.append(blas_threads())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, range(80)))
    assert inside == [{1}] * 80
    assert blas_threads() == {2}


def test_the_limit_outlives_its_first_holder() -> None:
    entered, leave = threading.Event(), threading.Event()

    def second() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    with one_blas_thread():
        thread = threading.Thread(target=second)
        thread.start()
        assert entered.wait(10)
    assert blas_threads() == {1}
    leave.set()
    thread.join()
    assert blas_threads() == {2}


@pytest.mark.parametrize("n_threads", [1, 2, 7, None])
def test_results_come_in_order(n_threads: int | None) -> None:
    def slow_first(k: int) -> int:
        time.sleep(0.01 if k == 0 else 0)
        return k * k

    assert map_tiles(slow_first, range(20), n_threads) == [k * k for k in range(20)]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_tile_has_one_blas_thread(n_threads: int) -> None:
    assert map_tiles(lambda _: blas_threads(), range(6), n_threads) == [{1}] * 6
    assert blas_threads() == {2}


def test_tiles_run_side_by_side() -> None:
    together = threading.Barrier(3)
    map_tiles(lambda _: together.wait(10), range(3), 3)
    assert not together.broken


@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_in_a_tile_comes_through(n_threads: int) -> None:
    def fail(k: int) -> int:
        if k == 5:
            raise ZeroDivisionError("tile five")
        return k

    with pytest.raises(ZeroDivisionError, match="tile five"):
        map_tiles(fail, range(40), n_threads)
    assert blas_threads() == {2}


def test_no_tiles() -> None:
    assert map_tiles(lambda k: k, iter(())) == []


def test_tiles_within_tiles() -> None:
    found = map_tiles(lambda k: sum(map_tiles(lambda j: j * k, range(4), 2)), range(5), 2)
    assert found == [0, 6, 12, 18, 24]


def test_available_cpus_is_what_the_process_may_use() -> None:
    assert 1 <= available_cpus() <= 4096


def test_memory_is_given_back_where_the_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    release_memory()
    asked: list[int] = []
    library = type("Library", (), {"malloc_trim": asked.append})
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda name: library)
    release_memory()
    assert asked == [0]
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda name: object())  # such as musl
    release_memory()


def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    """With a heap for each thread, 64 MiB of these 96 stay."""
    theirs = {name: value for name, value in os.environ.items() if name != ONE_HEAP}
    command = [sys.executable, "-c", FREED_BY_THREADS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=theirs)
    shares, kept = map(int, done.stdout.split())
    if not shares:
        pytest.skip("another C library")
    assert kept < 32


def test_heaps_are_shared_where_nobody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def mallopt(parameter: int, value: int) -> int:
        asked.append(value)
        return 1

    library = type("Library", (), {"mallopt": staticmethod(mallopt)})
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda name: library)
    monkeypatch.setenv(ONE_HEAP, "4")
    assert not share_freed_memory()
    assert not asked
    monkeypatch.delenv(ONE_HEAP)
    assert share_freed_memory()
    assert asked == [1, 2**24, 2**25]
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda name: object())  # such as musl
    assert not share_freed_memory()
