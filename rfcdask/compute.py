"""Running a small graph on the given client, the current one, or Dask's local scheduler."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import dask

RETRIES = 3
"""How often a task that only reads or computes is tried again on a cluster."""


def current_client(client: Any = None) -> Any:
    """Return `client`, else the current distributed client, else None. Starts nothing."""
    if client is not None:
        return client
    if "distributed" not in sys.modules or _chose_another_scheduler():
        return None
    from distributed import Client

    try:
        return Client.current()
    except ValueError:
        return None


def _chose_another_scheduler() -> bool:
    """Tell whether Dask's configuration names a scheduler; a default client writes itself there."""
    return dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed")


def as_finished(futures: list[Any], client: Any) -> Iterator[Any]:
    """Yield futures of a cluster in the order in which they end, also those that failed."""
    from distributed import as_completed

    yield from as_completed(futures, loop=client.loop, raise_errors=False)


def compute(collection: Any, client: Any = None) -> Any:
    """Compute one Dask collection where the caller or the surroundings say.

    Raises
    ------
    MemoryError
        When workers died over a task, which is nearly always for want of memory.
    """
    chosen = current_client(client)
    if chosen is None:
        return collection.compute()
    from distributed import KilledWorker

    try:
        return chosen.compute(collection, retries=RETRIES, sync=True)
    except KilledWorker as killed:
        raise MemoryError(_killed_message(collection)) from killed


def _killed_message(collection: Any) -> str:
    size = ""
    if hasattr(collection, "npartitions") and hasattr(collection, "nbytes"):
        size = f" (about {collection.nbytes / max(collection.npartitions, 1) / 2**20:.0f} MiB each)"
    return (
        f"Workers died while computing blocks{size}, most likely out of memory; use smaller "
        "blocks (X.rechunk), fewer threads a worker, or workers with more memory."
    )
