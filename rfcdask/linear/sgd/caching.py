"""Whether features are computed again in each epoch or kept in memory: what is estimated cheaper.

Memory decides first, because a model must not need more of it the more rows there are. Where there
is room, the time of computing a block, measured on two of them, is set against that of reading a
kept block again, from memory or from another worker.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import dask
from dask.utils import parse_bytes

from rfcdask.execution.blocks import Blocks
from rfcdask.execution.cluster import current_client
from rfcdask.execution.dask_internals import memory_of_machine
from rfcdask.execution.executor import Executor, persist
from rfcdask.execution.failures import workers_of
from rfcdask.kernels.types import DaskArray
from rfcdask.linear.sgd.schedule import GROUP_BYTES

LOCAL_BUDGET = 2 * GROUP_BYTES
"""Locally, features up to this size are kept (``rfcdask.persist-bytes``): as much as is in flight
when there are too many rows to keep, one group of blocks in use and one ahead."""
LOCAL_SHARE = 0.1
"""And no more than this share of the machine's memory."""
CLUSTER_SHARE = 0.2
"""On a cluster, features up to this share of the workers' memory are kept."""
FREE_SHARE = 0.5
"""And no more than this share of what is free of it now."""
MEMORY_BANDWIDTH = 2e9
"""Bytes a second at which a block that has left the caches is read again."""


@dataclass(frozen=True)
class Costs:
    """What computing and keeping the features would cost.

    Attributes
    ----------
    passes : int
        How often each block is needed.
    compute : float
        Seconds of computing a block.
    fetch : float
        Seconds of reading a kept block again.
    """

    passes: int
    compute: float
    fetch: float

    @property
    def keeping_is_cheaper(self) -> bool:
        """Whether what keeping saves is more than what it costs."""
        return (self.passes - 1) * self.compute > self.passes * self.fetch


def keep_or_recompute(
    runner: Executor, X: DaskArray, passes: int, choice: bool | str, client: Any = None
) -> DaskArray:
    """Return X, its blocks in memory where that is cheaper than computing them `passes` times.

    Values are the same either way, so the choice never changes what is learned.
    """
    chosen = current_client(client)
    if choice == "auto":
        choice = _worth_keeping(runner, X, passes, chosen)
    if not choice:
        return X
    return persist(X, chosen)


def _worth_keeping(runner: Executor, X: DaskArray, passes: int, client: Any) -> bool:
    if passes < 2 or not _costs_something(X) or X.nbytes > _budget(client):
        return False
    blocks = Blocks(X)
    fetch = _seconds_to_fetch(blocks.nbytes, client)
    return Costs(passes, seconds_to_compute(runner, blocks), fetch).keeping_is_cheaper


def _costs_something(X: DaskArray) -> bool:
    """Return whether blocks are computed or read, rather than lying in the graph already."""
    return len(X.dask.layers) > 1 if hasattr(X.dask, "layers") else True


def seconds_to_compute(runner: Executor, blocks: Blocks) -> float:
    """Return the time of computing a block: the shorter of two, as the first may compile."""
    seconds = []
    for index in range(min(2, len(blocks))):
        start = time.perf_counter()
        handle = runner.block(blocks, index)
        runner.wait(handle)
        seconds.append(time.perf_counter() - start)
        runner.release(handle)
    return min(seconds)


def _seconds_to_fetch(block_bytes: int, client: Any) -> float:
    seconds = block_bytes / MEMORY_BANDWIDTH
    if client is None:
        return seconds
    away = 1.0 - 1.0 / max(len(workers_of(client)), 1)  # the others must be sent
    bandwidth = parse_bytes(dask.config.get("distributed.scheduler.bandwidth", "100 MB"))
    return seconds + away * block_bytes / float(bandwidth)


def _budget(client: Any) -> float:
    if client is None:
        wanted = parse_bytes(dask.config.get("rfcdask.persist-bytes", LOCAL_BUDGET))
        return min(float(wanted), LOCAL_SHARE * memory_of_machine())
    workers = workers_of(client).values()
    limit = float(sum(worker.memory_limit for worker in workers))
    used = float(sum(worker.memory for worker in workers))
    return min(CLUSTER_SHARE * limit, FREE_SHARE * max(limit - used, 0.0))
