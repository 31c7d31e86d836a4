"""Looking at a cluster before work is sent there: are there workers, do they run the same code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PACKAGES = ("rfcdask", "dask", "distributed", "numpy", "scipy", "scikit-learn", "numba", "zarr")


@contextmanager
def quiet_about_versions() -> Iterator[None]:
    """Keep distributed's own table of versions back: `check_versions` says it in a sentence."""
    from distributed.versions import VersionMismatchWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)
        yield


def check_workers(client: Any, address: str, seconds: float) -> None:
    """Warn when nobody would do the work; clusters that grow on demand have no worker at first."""
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError:
        warnings.warn(
            f"The scheduler at {address} has no workers yet; work waits until some arrive (dask "
            f"worker {address}).",
            stacklevel=5,
        )


def check_versions(client: Any) -> None:
    """Warn in a sentence when workers run other versions; raise when they lack rfcdask.

    Raises
    ------
    ModuleNotFoundError
        When no rfcdask is installed on a worker.
    """
    found = client.get_versions(packages=list(PACKAGES))
    ours = found["client"]["packages"]
    theirs = {worker: info["packages"] for worker, info in found["workers"].items() if info}
    without = [worker for worker, packages in theirs.items() if packages.get("rfcdask") is None]
    if without:
        raise ModuleNotFoundError(
            f"The worker {without[0]} has no rfcdask installed; install rfcdask "
            f"{ours['rfcdask']} in the environment or image of the workers."
        )
    differing = [_difference(name, ours, theirs) for name in ("python", *PACKAGES)]
    said = ", ".join(text for text in differing if text)
    if said:
        warnings.warn(
            f"The workers run other versions than this process: {said}; install the same ones on "
            "both sides, or results may differ and tasks fail.",
            stacklevel=5,
        )


def _difference(name: str, ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> str:
    here = _shortened(name, ours.get(name))
    there = {_shortened(name, packages.get(name)) for packages in theirs.values()} - {here}
    return f"{name} {' and '.join(sorted(there))} (here {here})" if there else ""


def _shortened(name: str, version: Any) -> str:
    if version is None:
        return "missing"
    return ".".join(str(version).split(".")[:3]) if name == "python" else str(version)
