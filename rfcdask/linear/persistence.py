"""Whether features are computed again in each epoch or kept in memory."""

from __future__ import annotations

from typing import Any

import dask
from dask.utils import parse_bytes

from rfcdask._types import DaskArray
from rfcdask.compute import current_client

LOCAL_BUDGET = "32 MiB"
"""Locally, features up to this size are kept (``rfcdask.persist-bytes``): memory must not grow
with the number of rows unless the user says so."""
CLUSTER_SHARE = 0.2
"""On a cluster, features up to this share of the workers' memory are kept."""


def keep_or_recompute(
    X: DaskArray, passes: int, choice: bool | str, client: Any = None
) -> DaskArray:
    """Return X, its blocks in memory where that is cheaper than computing them `passes` times.

    Values are the same either way, so the choice never changes what is learned.
    """
    if choice not in (True, False, "auto"):
        raise ValueError(f"persist={choice!r} must be True, False or 'auto'.")
    chosen = current_client(client)
    if choice == "auto":
        choice = passes > 1 and _costs_something(X) and X.nbytes <= _budget(chosen)
    if not choice:
        return X
    return X.persist() if chosen is None else chosen.persist(X)


def _costs_something(X: DaskArray) -> bool:
    """Return whether blocks are computed or read, rather than lying in the graph already."""
    return len(X.dask.layers) > 1 if hasattr(X.dask, "layers") else True


def _budget(client: Any) -> float:
    if client is None:
        return float(parse_bytes(dask.config.get("rfcdask.persist-bytes", LOCAL_BUDGET)))
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return CLUSTER_SHARE * float(sum(worker.get("memory_limit") or 0 for worker in workers))
