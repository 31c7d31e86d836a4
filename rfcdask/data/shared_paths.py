"""Whether the workers of a cluster see the same files as this process."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rfcdask.data.errors import DataError
from rfcdask.execution.cluster_checks import ask_workers

if TYPE_CHECKING:
    from distributed import Client


def require_shared(
    client: Client | None,
    *,
    reads: Iterable[str | os.PathLike[str]] = (),
    writes: str | os.PathLike[str] = "",
) -> None:
    """Raise unless workers elsewhere see local paths as this process does.

    Workers that arrive later are not asked.

    Parameters
    ----------
    client : distributed.Client or None
        Nothing is asked of workers that this machine started for itself.
    reads : iterable of paths
        What will be read; paths at which there is nothing here are passed over.
    writes : path, optional
        A folder or file that will be written: a file is put beside it for the workers to find.

    Raises
    ------
    DataError
        Naming the first path that a worker does not see, and the worker.
    """
    if client is None or _is_local(client):
        return
    for path in (os.fspath(item) for item in reads):
        if (here := facts(path)) is not None:
            _require_same(client, path, here)
    if writes and "://" not in os.fspath(writes):
        folder = Path(writes).absolute()
        while not folder.is_dir():
            folder = folder.parent
        with _marker(folder) as mark:
            if mark is not None:
                _require_same(client, str(folder), facts(mark), mark)


def _is_local(client: Client) -> bool:
    from distributed import LocalCluster

    return client.asynchronous or isinstance(getattr(client, "cluster", None), LocalCluster)


@contextmanager
def _marker(folder: Path) -> Iterator[str | None]:
    """Put a file into a folder for a moment; None where that is not allowed: it is said later."""
    mark = folder / f".rfcdask-{uuid.uuid4().hex}"
    try:
        mark.write_text(mark.name, encoding="utf-8")
    except OSError:
        yield None
        return
    try:
        yield str(mark)
    finally:
        mark.unlink(missing_ok=True)


def facts(path: str) -> list[int] | None:
    """Return what tells two files, or two stores, of one name apart; None where there is none."""
    with suppress(OSError):
        place = os.path.join(path, "zarr.json")
        place = place if os.path.isfile(place) else path
        size = os.stat(place).st_size if os.path.isfile(place) else -1
        if size < 0:
            return [size] if os.path.isdir(place) else None
        with open(place, "rb") as file:
            return [size, zlib.crc32(file.read(2**16))]
    return None


def _require_same(client: Client, path: str, here: Any, look_at: str | None = None) -> None:
    for worker, there in ask_workers(client, facts, look_at or path).items():
        if there != here:
            seen = "does not see" if there is None else "sees something else at"
            raise DataError(
                f"the worker {worker} {seen} {path} of this machine: use a disk that the workers "
                "share under the same name, or an address such as s3://bucket/name, or work "
                "without that scheduler."
            )
