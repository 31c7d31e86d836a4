"""Writing lazy rows, such as features or predictions, to a zarr store, block by block."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from rfcdask._types import Array, DaskArray
from rfcdask.cluster_checks import require_shared
from rfcdask.compute import current_client
from rfcdask.linear.runners import open_runner
from rfcdask.linear.stream import Blocks, consecutive_groups, stream_folds
from rfcdask.progress import track
from rfcdask.sample import one_column_block, require_known_rows


def write_zarr(
    rows: DaskArray,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    client: Any = None,
    progress: Any = None,
) -> DaskArray:
    """Write a lazy array to a new zarr array, in bounded memory, and return it opened lazily.

    Each block becomes one chunk and is written whole by one task, so a task tried again writes
    the same bytes to the same place.

    Parameters
    ----------
    rows : dask array of shape (n,) or (n, k)
        Its row chunks must all have the same size but the last, which may be smaller.
    path : path
        Where the zarr array is made.
    overwrite : bool
        Whether a zarr array that is there may be replaced.
    client : distributed.Client, optional
        Where to compute: this client, else the current one, else local threads. Workers must see
        the same file system.
    progress : bool, str or callable, optional
        See :func:`rfcdask.progress.track`.
    """
    import dask.array as da

    require_known_rows(rows, "rows")
    rows = one_column_block(rows)
    sizes = [int(size) for size in rows.chunks[0]]
    if any(size != sizes[0] for size in sizes[:-1]) or sizes[-1] > sizes[0]:
        raise ValueError(
            f"Row chunks of {sizes[:4]}... cannot become chunks of one size; use "
            f"rows.rechunk({{0: {max(sizes)}}}) first."
        )
    if Path(path).exists() and not overwrite:
        raise FileExistsError(f"{path} exists already; choose another path or overwrite=True.")
    require_shared(current_client(client), writes=path)
    array = zarr.create_array(
        path,
        shape=rows.shape,
        dtype=rows.dtype,
        chunks=(sizes[0], *rows.shape[1:]),
        overwrite=overwrite,
    )
    blocks = Blocks(rows)
    with (
        open_runner(client) as runner,
        track("writing", float(rows.shape[0]), "rows", progress=progress) as reporter,
    ):
        groups = consecutive_groups(len(blocks), 1)
        fold = _WriteBlock(str(path), np.cumsum([0, *sizes]))
        for count in stream_folds(runner, blocks, groups, fold, 0):
            reporter.advance(count)
    return da.from_zarr(array)


@dataclass(frozen=True)
class _WriteBlock:
    """Writes one block to its place and returns how many rows have been written."""

    path: str
    starts: Array

    def __call__(self, written: int, block: tuple[Any, ...], index: int) -> int:
        array = zarr.open_array(self.path, mode="r+")
        array[int(self.starts[index]) : int(self.starts[index + 1])] = block[0]
        return written + int(self.starts[index + 1] - self.starts[index])
