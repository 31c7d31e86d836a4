"""How the numerical code runs: compiled by numba, and on how many threads.

Compiled functions. numba keeps machine code beside the source and believes it as long as that one
file is unchanged. It does not notice that a function or a class of another file has changed; an
index that was cut short, or names a class of an older version, ends the program, and so does a full
disk. Here the code of other files counts too, and what cannot be read is compiled anew.

Threads. Results of a BLAS call depend, in their last bits, on the number of its threads. Work that
must not depend on it (selection) is cut into fixed tiles, each computed by one BLAS thread, and the
tiles are spread over a pool. The same limit keeps Dask's own threads from multiplying with BLAS's.

Memory. Workers of Dask give what arrays leave behind back to the system at once; see
`reuse_freed_memory`. Other processes keep it, each thread for itself; see `share_freed_memory` and
`release_memory`.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.caching import FunctionCache
from threadpoolctl import ThreadpoolController

from rfcdask.kernels.arrays import Array

Item = TypeVar("Item")
Result = TypeVar("Result")


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for each signature it is called with; options are those of ``njit``."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, **options)(function)
        # Without a place for a cache, or the source, each process compiles for itself.
        with suppress(RuntimeError, OSError):
            dispatcher._cache = CompiledCache(function)
        return dispatcher

    return decorate


class CompiledCache(FunctionCache):
    """numba's cache of one function; anything wrong with it means that nothing was found."""

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self.stamp = _stamp(py_func)
        self._cache_file._source_stamp = self.stamp

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return compiled code, or None where there is none that can be read."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception:
            return None
        # Two processes that save at once may both take one file, for different signatures.
        wanted = tuple(getattr(sig, "args", sig))
        return found if found is not None and tuple(found.signature.args) == wanted else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code where that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception:
            with suppress(Exception):  # an index that cannot be read gives way
                self.flush()
                super().save_overload(sig, data)


def _stamp(function: Callable[..., Any]) -> str:
    """Return a digest of all code and constants that the compiled function may have taken in."""
    digest = hashlib.sha256(_source(function.__module__))
    for name, value in sorted(function.__globals__.items()):
        module = str(getattr(value, "__module__", None))
        if isinstance(value, (bool, int, float, str, tuple)) and not name.startswith("__"):
            digest.update(f"{name}={value!r};".encode())
        elif isinstance(cache := getattr(value, "_cache", None), CompiledCache):
            digest.update(cache.stamp.encode())
        elif module != function.__module__ and _root(module) == _root(function.__module__):
            digest.update(_source(module))  # classes, and functions without a cache
    return digest.hexdigest()


def _root(module: str) -> str:
    return module.partition(".")[0]


def _source(module: str) -> bytes:
    with open(str(sys.modules[module].__file__), "rb") as file:
        return file.read()


@cache
def _controller() -> ThreadpoolController:
    # numpy and scipy each bring a BLAS; both must be loaded before the controller looks for them.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


@contextmanager
def _in_control() -> Iterator[None]:
    """Let this thread set the number of BLAS threads whichever thread did so last."""
    _forget_controlling_thread()
    try:
        yield
    finally:
        _forget_controlling_thread()


def _forget_controlling_thread() -> None:
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # threadpoolctl >= 3.8 with OpenBLAS
            library.clear_controlling_thread(force=True)


class _SharedLimit:
    """One process-wide BLAS limit that many threads may ask for at once.

    ``threadpool_limits`` saves and restores a global: two overlapping contexts on two threads
    restore each other's value and leave the process on one thread for good. Counting fixes that.
    Its newer versions let a single thread set the limit and ignore all others without a word, while
    here the last to leave is often not the first that came: whoever acts takes control first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limiter: Any = None

    def acquire(self) -> None:
        with self._lock:
            if self._holders == 0:
                with _in_control():
                    self._limiter = _controller().limit(limits=1, user_api="blas")
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                with _in_control():
                    self._limiter.restore_original_limits()
                self._limiter = None


_LIMIT = _SharedLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread; safe to nest and to enter from several threads."""
    _LIMIT.acquire()
    try:
        yield
    finally:
        _LIMIT.release()


_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8  # their numbers in glibc's malloc.h
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
LEAST_MAPPED = 2**22
"""Smallest array for which mapping memory anew costs little beside what fills it."""
SPARE_BYTES = 2**25
"""Bytes of mapped arrays that are kept for the next ones when they are let go."""
_spare: list[mmap.mmap] = []
ONE_HEAP = "MALLOC_ARENA_MAX"
"""The variable of glibc that lets all threads of a process share what they free, with 1."""


@cache
def reuse_freed_memory() -> bool:
    """Let a worker of Dask reuse the memory of arrays up to 16 MiB; returns whether it does now.

    Dask starts workers with ``MALLOC_TRIM_THRESHOLD_=65536``. With it glibc no longer adapts to the
    sizes that are asked for: each array above 128 KiB is mapped by the system, page by page, and
    unmapped again, which took up to half of the CPU time of training. The limits set here are half
    of what glibc may come to by itself in any other process, so that little is kept. Another value
    of the variable is the user's.
    """
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != "65536":
        return False
    return _set_limits()


def share_freed_memory() -> bool:
    """Let all threads of this process use one heap; returns whether they do from now on.

    By default glibc has a heap for each thread, up to eight for each core. What one has freed no
    other uses, and of the last piece of each, up to 64 MiB, `release_memory` returns nothing. Only
    for processes that are ours; call it before there are threads. A value of the user's stays.
    """
    return ONE_HEAP not in os.environ and _set_malloc(_ARENA_MAX, 1) and _set_limits()


def _set_limits() -> bool:
    return _set_malloc(_MMAP_THRESHOLD, 2**24) and _set_malloc(_TRIM_THRESHOLD, 2**25)


def _set_malloc(parameter: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).mallopt(parameter, value))
    except (OSError, AttributeError, TypeError):  # another C library
        return False


def available_cpus() -> int:
    """Return the number of CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def release_memory() -> None:
    """Return to the system what was freed: glibc keeps arrays of megabytes for each thread."""
    _spare.clear()
    with suppress(AttributeError, OSError, TypeError):  # other C libraries have no such call
        ctypes.CDLL(None).malloc_trim(0)


def mapped_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of any content that is unmapped with its last reference, if it is large.

    glibc keeps arrays of up to 32 MiB when they are freed, for each thread; where blocks come and
    go on several threads, that is as much again as the blocks themselves. A few are kept here, for
    all threads: the system fills new memory with zeros, a fifth of the time that a block takes.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LEAST_MAPPED:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_buffer(
        found := _spare_memory(size) or _new_memory(size)
    )
    weakref.finalize(memory, _keep_spare, found).atexit = False
    return np.frombuffer(memory, dtype).reshape(shape)


def _new_memory(size: int) -> mmap.mmap:
    try:
        mapped = mmap.mmap(-1, size, **_PRIVATE)
    except OSError as error:
        raise MemoryError(f"an array of {size} bytes does not fit into memory") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without them
            mapped.madvise(mmap.MADV_HUGEPAGE)  # as numpy does: a third of the time
    return mapped


def _spare_memory(size: int) -> mmap.mmap | None:
    for mapped in list(_spare):
        if size <= len(mapped) <= 2 * size:
            with suppress(ValueError):  # another thread has just taken it
                _spare.remove(mapped)
                return mapped
    return None


def _keep_spare(mapped: mmap.mmap) -> None:
    _spare.append(mapped)
    with suppress(IndexError):
        while sum(map(len, list(_spare))) > SPARE_BYTES:
            del _spare[0]


@contextmanager
def task_threads(count: int) -> Iterator[None]:
    """Let what is called in this thread use so many threads: those of its worker."""
    before = getattr(_inside, "threads", None)
    _inside.threads = count
    try:
        yield
    finally:
        _inside.threads = before


def threads_here() -> int:
    """Return how many threads a task may use here: those of its worker, else one per CPU."""
    return getattr(_inside, "threads", None) or available_cpus()


def map_tiles(
    function: Callable[[Item], Result], items: Iterable[Item], n_threads: int | None = None
) -> list[Result]:
    """Apply `function` to each item on a thread pool, one BLAS thread each, results in order."""
    work = list(items)
    threads = min(threads_here() if n_threads is None else n_threads, len(work))
    with one_blas_thread():
        # A tile that is itself cut into tiles does them in turn: waiting for the own pool hangs.
        if threads <= 1 or getattr(_inside, "a_tile", False):
            return [function(item) for item in work]
        return list(_pool(threads).map(partial(_as_tile, function), work))


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], n_threads: int | None = None
) -> Iterator[Result]:
    """Yield ``function(item)`` of each item in order; the next ones are computed meanwhile.

    At most one result per thread is waiting, so a slow consumer never lets memory grow. With one
    thread everything is computed by the caller, when it is asked for.
    """
    threads = threads_here() if n_threads is None else n_threads
    if threads <= 1 or getattr(_inside, "a_tile", False):
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    with one_blas_thread():
        try:
            for item in items:
                waiting.append(_pool(threads).submit(_as_tile, function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


_inside = threading.local()


def _as_tile(function: Callable[[Item], Result], item: Item) -> Result:
    _inside.a_tile = True
    try:
        return function(item)
    finally:
        _inside.a_tile = False


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    # Kept for the life of the process: selection and refinement map thousands of small tiles.
    return ThreadPoolExecutor(threads, thread_name_prefix="rfcdask-tiles")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
