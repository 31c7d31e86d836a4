"""Which rows or pairs of rows are looked at, and how they are fetched through the graph.

Rows are chosen by their number in the whole data set, so the choice depends on the seed and the
number of rows only, never on the chunks. Fetching costs one task for each block touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from rfcdask.data.gather import gather as fetch_rows
from rfcdask.data.gather import reader_of
from rfcdask.execution.executor import compute
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import NotFiniteError, as_csr, check_finite, is_sparse
from rfcdask.kernels.types import Array, DaskArray, IntArray, Matrix


def draw_rows(n_rows: int, size: int, rng: np.random.Generator) -> IntArray:
    """Draw `size` distinct row numbers below `n_rows`, uniformly, in random order."""
    if size >= n_rows:
        return rng.permutation(n_rows)
    return rng.choice(n_rows, size, replace=False)


def draw_pairs(n_rows: int, size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw `size` independent pairs i < j, uniform over all ``n_rows (n_rows - 1) / 2``."""
    i = rng.integers(0, n_rows, size)
    j = rng.integers(0, n_rows - 1, size)
    j += j >= i  # uniform over the n - 1 other rows
    return np.minimum(i, j), np.maximum(i, j)


def gather(X: Matrix | DaskArray, rows: IntArray, client: Any = None) -> Matrix:
    """Fetch rows of X into memory, in the order asked for; a row may be asked for twice.

    Parameters
    ----------
    X : array, CSR or dask array of shape (n, p) or (n,)
        Dask arrays need known chunk sizes along the rows.
    rows : integer array
        Row numbers in [0, n).
    client : distributed.Client, optional
        Where to compute; see :func:`rfcdask.execution.executor.compute`.
    """
    rows = np.asarray(rows, np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= X.shape[0]):
        worst = rows[np.argmax((rows < 0) | (rows >= X.shape[0]))]
        raise IndexError(f"Row {worst} is not in X, which has {X.shape[0]} rows.")
    if not isinstance(X, da.Array):
        return X[rows]
    wanted, place = np.unique(rows, return_inverse=True)
    if not wanted.size:
        return np.empty((0, *X.shape[1:]), X.dtype)
    reader = reader_of(X)
    if reader is not None and X.ndim == 2:  # a store gives single rows without whole blocks
        return fetch_rows(reader, wanted, client).X[place]
    with track("gathering rows", None, "blocks"):
        found = compute(pick(X, wanted), client)
    return found[place]


def gather_finite(X: Matrix | DaskArray, rows: IntArray, client: Any = None) -> Matrix:
    """Fetch rows like :func:`gather`, and refuse NaN and infinity by row number and column."""
    found = gather(X, rows, client)
    try:
        check_finite(found)
    except NotFiniteError as error:
        raise NotFiniteError(int(rows[error.row]), error.column, error.value) from None
    return found


def pick(X: DaskArray, rows: IntArray) -> DaskArray:
    """Return the lazy dask array of some rows of X, given in increasing order, one task a block."""
    require_known_rows(X)
    X = one_column_block(X)
    name = f"pick-{tokenize(X.name, rows)}"
    layer: dict[Any, Any] = {}
    sizes: list[int] = []
    tail = (0,) * (X.ndim - 1)
    for block, local in _by_block(X.chunks[0], rows):
        layer[(name, len(sizes), *tail)] = (take_rows, (X.name, block, *tail), local)
        sizes.append(len(local))
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[X])
    return da.Array(graph, name, (tuple(sizes), *X.chunks[1:]), dtype=X.dtype, meta=X._meta)


def take_rows(block: Matrix, rows: IntArray) -> Matrix:
    """Return some rows of one block."""
    return as_csr(block)[rows]


def _by_block(chunks: tuple[int, ...], rows: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each touched block with the rows wanted from it, counted from its start."""
    ends = np.cumsum(chunks)
    blocks = np.searchsorted(ends, rows, side="right")
    touched, first = np.unique(blocks, return_index=True)
    for block, part in zip(touched, np.split(rows, first[1:]), strict=True):
        yield int(block), part - (ends[block] - chunks[block])


def require_known_rows(X: DaskArray, name: str = "X") -> None:
    """Raise unless every block of the dask array X says how many rows and columns it has."""
    if any(np.isnan(size) for axis in X.chunks for size in axis):
        raise ValueError(
            f"{name} has unknown chunk sizes; call {name}.compute_chunk_sizes() first, or "
            "store the data and open it with rfcdask.open_dataset."
        )


def refuse_dask_frame(X: Any, name: str = "X") -> None:
    """Raise for a dask DataFrame or Series: as an array it would be read into memory whole."""
    if hasattr(X, "to_dask_array"):
        raise TypeError(
            f"{name} is a dask {type(X).__name__}; pass {name}.to_dask_array(lengths=True), or "
            "store the data and open it with rfcdask.open_dataset."
        )


def one_column_block(X: DaskArray) -> DaskArray:
    """Return X with all columns of a row in one block, as every row-wise step needs it."""
    return X.rechunk({1: -1}) if X.ndim == 2 and X.numblocks[1] > 1 else X


def to_dense(X: Matrix) -> Array:
    """Return X as a plain array."""
    return np.asarray(X.todense()) if is_sparse(X) else np.asarray(X)
