"""Looking at where work would be done: workers, threads, memory in use and memory there is."""

from __future__ import annotations

from typing import Any

import psutil

from rfcdask.execution.compute import current_client, workers_of
from rfcdask.features.compressed import memory_budget
from rfcdask.kernels.threads import available_cpus
from rfcdask.linear.runners import _local_threads
from rfcdask.linear.sgd.caching import _budget
from rfcdask.planning.work import Place

IMPORTS = 300 * 2**20
"""A process with rfcdask, a cluster's client or worker and compiled loops in it."""
LATER = 80 * 2**20
"""What a process gains by its first work of every kind: compiled loops, pools, buffers."""


def look_around(client: Any = None) -> Place:
    """Describe the given client's cluster, the current one's, or this process."""
    chosen = current_client(client)
    common = {
        "cpus": available_cpus(),
        "driver_base": max(psutil.Process().memory_info().rss, IMPORTS) + LATER,
        "driver_limit": free_memory(),
        "selection_budget": memory_budget(),
        "persist_budget": _budget(chosen),
    }
    if chosen is None:
        return Place(
            workers=0,
            threads=max(_local_threads(), 1),
            worker_base=0,
            worker_limit=0,
            **common,
        )
    workers = workers_of(chosen)
    return Place(
        workers=max(len(workers), 1),
        threads=max(sum(worker["nthreads"] for worker in workers.values()), 1),
        worker_base=max([IMPORTS, *map(_memory_in_use, workers.values())]) + LATER,
        worker_limit=min([w.get("memory_limit") or 0 for w in workers.values()], default=0),
        shared=bool(workers) and all(_is_here(address) for address in workers),
        **common,
    )


def _memory_in_use(worker: dict[str, Any]) -> int:
    return int(worker.get("metrics", {}).get("memory", 0))


def _is_here(address: str) -> bool:
    return "://127.0.0.1:" in address or address.startswith("inproc://")


def free_memory() -> int:
    """Return the bytes this process may still grow to: what is free, within a container's limit."""
    from distributed.system import MEMORY_LIMIT

    mine = psutil.Process().memory_info().rss
    return int(min(psutil.virtual_memory().available + mine, MEMORY_LIMIT))
