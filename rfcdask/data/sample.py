"""Which rows or pairs of rows are looked at, and how they are fetched into memory.

Rows are chosen by their number in the whole data set, so the choice depends on the seed and the
number of rows only, never on the chunks. Fetching costs one task for each block touched.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from scipy import sparse

from rfcdask.data.columns import check_encoding, match_columns, quoted
from rfcdask.data.errors import DataError
from rfcdask.data.reader import Reader
from rfcdask.execution.cluster import current_client, local_threads
from rfcdask.execution.dask_internals import layer_options, places_of_blocks
from rfcdask.execution.executor import call_later, compute, run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import (
    Array,
    DaskArray,
    IntArray,
    Matrix,
    NotFiniteError,
    as_csr,
    check_block,
    check_finite,
    check_sparse,
    is_sparse,
)

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)
_CHECKED = "checked-"
"""What the names of arrays begin with whose blocks are looked at."""


class Rows(NamedTuple):
    """Rows in memory, their labels, and their places in the data set."""

    X: Any
    y: Array | None
    indices: IntArray


def choose_rows(reader: Reader, n_rows: int, seed: int, *, shuffled: bool) -> IntArray:
    """Choose rows uniformly without replacement, sorted.

    In a shuffled store every set of positions is a uniform sample of the rows, so whole runs of
    neighbours are taken: as few chunks as hold `n_rows` rows, chosen at random.
    """
    total = sum(reader.sizes)
    if not 0 < n_rows <= total:
        raise DataError(f"{n_rows} rows cannot be sampled from {total}: ask for 1 to {total}.")
    generator = np.random.default_rng(seed)
    if not shuffled:
        return np.sort(generator.choice(total, n_rows, replace=False, shuffle=False))
    run = reader.run_rows
    starts = np.arange(0, total, run)
    # One run more than needed: the last run of the store may be short.
    few = min(-(-n_rows // run) + 1, len(starts))
    chosen = generator.choice(starts, few, replace=False)
    lengths = np.minimum(chosen + run, total) - chosen
    order = np.argsort(-lengths, kind="stable")
    rows = [np.arange(chosen[i], chosen[i] + lengths[i]) for i in order]
    return np.sort(np.concatenate(rows)[:n_rows])


def gather(X: Matrix | DaskArray, rows: IntArray, client: Client | None = None) -> Matrix:
    """Fetch rows of X into memory, in the order asked for; a row may be asked for twice.

    The lazy rows of a data set are read by its reader, which fetches single rows. Of any other
    Dask array, also one that was rechunked or sliced from those, the blocks that hold the rows are
    computed whole: the same rows, but more is read, and a line of the log (level INFO) says so.

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
    if reader is not None:
        return fetch_rows(reader, wanted, client).X[place]
    picked = pick(X, wanted)
    log.info(
        "%d rows of %s are taken through the graph: the %d blocks that hold them are computed "
        "whole; the rows of a data set itself (Dataset.X) are fetched one by one",
        *(len(wanted), X.name, picked.numblocks[0]),
    )
    with track("gathering rows", None, "blocks"):
        return compute(picked, client)[place]


def reader_of(X: Any) -> Reader | None:
    """Return the reader of the data set whose lazy rows are X, as the graph of X itself says.

    None for everything else: the result of any further step has a name and a layer of its own.
    """
    if not isinstance(X, da.Array):
        return None
    reader: Reader | None = layer_options(X).get("reader")
    return reader if X.name == rows_name(reader) else None


def rows_name(reader: Reader | None) -> str:
    """Return the name of a data set's lazy rows, which no other array has."""
    return f"rows-{tokenize(reader)}"


def gather_finite(X: Matrix | DaskArray, rows: IntArray, client: Client | None = None) -> Matrix:
    """Fetch rows like :func:`gather`, and refuse NaN and infinity by row number and column."""
    found = gather(X, rows, client)
    try:
        check_finite(found)
    except NotFiniteError as error:
        raise NotFiniteError(int(rows[error.row]), error.column, error.value) from None
    return found


def fetch_rows(reader: Reader, indices: Any, client: Client | None = None) -> Rows:
    """Fetch rows by number, in the order asked for; repeats are allowed."""
    wanted = _checked(indices, sum(reader.sizes))
    unique, inverse = np.unique(wanted, return_inverse=True)
    tasks = [
        call_later(reader.rows, block, local) for block, local in _by_block(reader.sizes, unique)
    ]
    parts = _run(tasks, client, max(reader.sizes) * reader.row_bytes)
    stack = sparse.vstack if sparse.issparse(parts[0][0]) else np.concatenate
    X = stack([part[0] for part in parts])
    y = None if reader.label_dtype is None else np.concatenate([part[1] for part in parts])
    if not np.array_equal(inverse, np.arange(len(unique))):
        X, y = X[inverse], None if y is None else y[inverse]
    return Rows(X, y, wanted)


def _run(tasks: list[Any], client: Client | None, block_bytes: int) -> list[Any]:
    chosen, parts = current_client(client), []
    # Few at once: where workers die over blocks, the scheduler must see which block it was.
    at_once = max(local_threads(), 1) if chosen is None else None
    with track("gathering rows", len(tasks), "blocks") as bar:
        for part in run_tasks(tasks, chosen, at_once=at_once, block_bytes=block_bytes):
            parts.append(part)
            bar.advance()
    return parts


def _checked(indices: Any, n_rows: int) -> IntArray:
    wanted = np.atleast_1d(np.asarray(indices))
    if wanted.ndim != 1 or not np.issubdtype(wanted.dtype, np.integer):
        raise DataError("row numbers are a one-dimensional list of integers.")
    if not wanted.size:
        raise DataError("no row was asked for: give at least one row number.")
    wanted = wanted.astype(np.int64)
    outside = wanted[(wanted < 0) | (wanted >= n_rows)]
    if outside.size:
        raise DataError(f"row {outside[0]} is outside the data set's rows 0 to {n_rows - 1}.")
    return wanted


def pick(X: DaskArray, rows: IntArray) -> DaskArray:
    """Return the lazy dask array of some rows of X, in increasing order, one task per block."""
    X = one_column_block(checked_blocks(X))
    name = f"pick-{tokenize(X.name, rows)}"
    layer: dict[Any, Any] = {}
    sizes: list[int] = []
    tail = (0,) * (X.ndim - 1)
    for block, local in _by_block(X.chunks[0], rows):
        layer[(name, len(sizes), *tail)] = (take_rows, (X.name, block, *tail), local)
        sizes.append(len(local))
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[X])  # type: ignore[list-item]
    return da.Array(graph, name, (tuple(sizes), *X.chunks[1:]), dtype=X.dtype, meta=X._meta)


def take_rows(block: Matrix, rows: IntArray) -> Matrix:
    """Return some rows of one block."""
    return as_csr(block)[rows]


def _by_block(sizes: tuple[int, ...], rows: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each touched block with the rows wanted from it, counted from its start."""
    ends = np.cumsum(sizes)
    touched, first = np.unique(np.searchsorted(ends, rows, side="right"), return_index=True)
    for block, part in zip(touched.tolist(), np.split(rows, first[1:]), strict=True):
        yield block, part - (ends[block] - sizes[block])


def require_known_rows(X: DaskArray, name: str = "X") -> None:
    """Raise unless every block of the dask array X says how many rows and columns it has."""
    if any(np.isnan(size) for axis in X.chunks for size in axis):
        raise ValueError(
            f"{name} has unknown chunk sizes; call {name}.compute_chunk_sizes() first, or "
            "store the data and open it with rfcdask.open_dataset."
        )


def checked_blocks(X: DaskArray, name: str = "X", masked: bool = False) -> DaskArray:
    """Return X, of which each block is compared with what X says of it when it is computed.

    Blocks of other rows than they should have would get the labels of others. Those that this
    package made are known.
    """
    require_known_rows(X, name)
    known = reader_of(X) is not None or hasattr(X, "unevaluated")
    if known or X.name.startswith(_CHECKED):
        return X
    axes = tuple(range(X.ndim))
    made: DaskArray = da.blockwise(
        partial(check_block, block_name=name, kind=X.dtype.kind, masked=masked),
        axes,
        *(X, axes, places_of_blocks(X.chunks), axes),
        name=f"{_CHECKED}{tokenize(X.name, X.chunks, masked)}",
        dtype=X.dtype,
        meta=X._meta,
        align_arrays=False,
    )
    return made


def lazy_column(y: Any) -> Any:
    """Return a dask Series as a dask array, whose rows are counted first, and lazy text as objects.

    Text of zarr has a type of its own, which numpy does not compare with others yet.
    """
    if isinstance(y, da.Array) and y.dtype.kind == "T":
        return y.astype(object)
    if not hasattr(y, "to_dask_array") or y.ndim != 1:
        return y
    with warnings.catch_warnings():  # text becomes objects, as everywhere in numpy
        warnings.filterwarnings("ignore", "Dask currently has limited support")
        return y.to_dask_array(lengths=True)


def columns_by_name(estimator: Any, X: Any, *, reset: bool = False) -> Any:
    """Return the lazy rows of a store, or a frame, with columns in the order of those of `fit`.

    With `reset` the estimator learns the names of a store, and by which table it was encoded. The
    names of frames scikit-learn learns, and compares with other frames, as far as it sees them. All
    other arrays have none, and are as they are.
    """
    stored, encoding = names_in_store(X), encoding_of_store(X)
    if encoding is not None and reset:
        estimator.encoding_ = encoding
    elif encoding is not None and hasattr(estimator, "encoding_"):
        check_encoding(encoding, estimator.encoding_)
    if reset and (names := stored or _unseen_names(X)):
        estimator.columns_ = np.array(names)
    known = _known_names(estimator)
    unseen = [] if reset or known else _unseen_names(X)
    if unseen and {*unseen} == {*map(str, range(len(unseen)))}:  # of columns 0, 1, 2 it may be
        raise ValueError(
            f"columns of X are counted {', '.join(unseen[:9])}, and those of fit had no names: "
            "bring them into the order of fit, and give X.to_numpy()."
        )
    if reset or not names_are_compared(estimator, X):
        return X
    names = _names_of(X, known)
    if names == known:
        return X
    found = match_columns("X", names, known)
    if found.left_out:
        warnings.warn(
            f"columns {quoted(found.left_out)} of X are left out: the model was fitted without.",
            stacklevel=4,
        )
    if stored is not None:
        return X[:, found.places]
    return X.iloc[:, found.places] if hasattr(X, "iloc") else X.select(known)


def names_in_store(X: Any) -> list[str] | None:
    """Return the names of the columns of a store's lazy rows."""
    names = None if reader_of(X) is None else layer_options(X).get("columns")
    return None if names is None else list(names)


def encoding_of_store(X: Any) -> str | None:
    """Return by which table a store's lazy rows were encoded: "" for none, None for other rows."""
    return None if reader_of(X) is None else layer_options(X).get("encoding")


def names_are_compared(estimator: Any, X: Any) -> bool:
    """Tell whether `columns_by_name` compares: what of two frames scikit-learn does itself."""
    ours = names_in_store(X) is not None or hasattr(estimator, "columns_") or _unseen_names(X)
    known = _known_names(estimator)
    return bool(ours) and bool(known) and bool(_names_of(X, known))


@contextmanager
def without_word_of_names(compared: bool) -> Iterator[None]:
    """Keep scikit-learn from saying that names are missing which it cannot see."""
    with warnings.catch_warnings():
        if compared:
            warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")
        yield


def _names_of(X: Any, known: list[str]) -> list[str]:
    """Return the names of the columns of a store's rows or of a frame; of others none.

    A frame whose columns are only counted has none, unless those that are known are counted too.
    """
    stored = names_in_store(X)
    if stored is not None or not hasattr(X, "columns"):
        return stored or []
    from rfcdask.data.tables.encode import frame_names  # rows without a frame do without pyarrow

    names = frame_names(X)
    counted = hasattr(X, "iloc") and list(X.columns) == list(range(len(names)))
    return [] if counted and {*names} != {*known} else names


def _unseen_names(X: Any) -> list[str]:
    """Return the names of a frame that scikit-learn does not see: years, pairs, of record batches.

    Columns that are only counted have none.
    """
    if type(X).__name__ == "RecordBatch":
        return list(X.schema.names)
    names = list(X.columns) if hasattr(X, "iloc") and X.ndim == 2 else []
    seen = any(isinstance(name, str) for name in names)
    return [] if seen or names == list(range(len(names))) else [str(name) for name in names]


def _known_names(estimator: Any) -> list[str]:
    known = getattr(estimator, "columns_", getattr(estimator, "feature_names_in_", None))
    return [] if known is None else [str(name) for name in known]


def require_same_columns(model: Any, other: Any) -> None:
    """Refuse to merge sums over columns that have other names, another order or other units."""
    if hasattr(model, "encoding_") and hasattr(other, "encoding_"):
        check_encoding(other.encoding_, model.encoding_)
    mine, theirs = _known_names(model), _known_names(other)
    if mine and theirs and mine != theirs:
        raise ValueError(
            f"Both models must have the same columns to be merged: one has {quoted(mine)}, the "
            f"other {quoted(theirs)}."
        )


def forget(estimator: Any, *private: str) -> None:
    """Take from an estimator what it learned, so that a fit that fails leaves nothing of the last.

    Old coefficients with the classes or columns of new data would answer wrongly.
    """
    for name in [*vars(estimator)]:
        if name in private or (name.endswith("_") and not name.startswith("_")):
            delattr(estimator, name)


def check_container(X: Any, name: str = "X") -> None:
    """Raise for what would be read wrongly: lazy frames whole, and values behind a mask."""
    if hasattr(X, "reader") and hasattr(X, "X"):
        raise TypeError(f"{name} is a data set: give its rows and labels, dataset.X and dataset.y.")
    meta = X._meta if isinstance(X, da.Array) else X
    if isinstance(meta, np.ma.MaskedArray) and (meta is not X or np.ma.is_masked(X)):
        raise ValueError(
            f"{name} is a masked array, and a model would take what lies behind its mask for "
            f"values; fill it ({name}.filled(...), dask.array.ma.filled) or leave such rows out."
        )
    if not isinstance(X, (da.Array, np.ndarray)) and isinstance(getattr(X, "data", 0), da.Array):
        raise TypeError(f"{name} is a lazy {type(X).__name__} of xarray: pass {name}.data instead.")
    check_sparse(X, name)
    if hasattr(X, "iloc") and X.ndim == 2 and not X.columns.is_unique:
        twice = quoted([str(X.columns[X.columns.duplicated()][0])])
        raise ValueError(f"{name} has the column {twice} twice: give each a name of its own.")
    if name == "X" and hasattr(X, "iloc") and any(k.kind in "mM" for k in np.atleast_1d(X.dtypes)):
        raise ValueError("X has a column of dates: put rfcdask.TableEncoder() before this step.")
    if hasattr(X, "to_dask_array"):
        raise TypeError(
            f"{name} is a dask {type(X).__name__}; put rfcdask.TableEncoder() before this step, "
            f"pass {name}.to_dask_array(lengths=True), or store the data with rfcdask.ingest."
        )


def one_column_block(X: DaskArray) -> DaskArray:
    """Return X with all columns of a row in one block, as every row-wise step needs it."""
    return X.rechunk({1: -1}) if X.ndim == 2 and X.numblocks[1] > 1 else X


def check_dask_matrix(X: DaskArray) -> DaskArray:
    """Return a matrix of real numbers with one block of columns, or say what is wrong with X."""
    if X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimension(s) where rows and columns are expected; use X[:, None] for "
            "a single column, X[None, :] for a single row."
        )
    require_known_rows(X)
    if 0 in X.shape:
        raise ValueError(f"X of shape {X.shape} is empty; give rows and columns.")
    if X.dtype.kind not in "fiub":
        remedy = "X.real and X.imag as columns" if X.dtype.kind == "c" else "X.astype('float32')"
        raise ValueError(f"X has dtype {X.dtype}, but real numbers are needed; give {remedy}.")
    return one_column_block(checked_blocks(X))


def rows_and_labels(
    X: Any, y: Any, *, several: bool = False
) -> tuple[Matrix | DaskArray, Array | DaskArray]:
    """Return rows, CSR where they are sparse, and one label for each; what is lazy stays lazy.

    A single column of labels is made flat; `several` columns, as targets are, may be asked for.
    """
    check_container(X)
    y = lazy_column(y)
    check_container(y, "y")
    y = y if isinstance(y, da.Array) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 and not (several and y.ndim == 2 and y.dtype.kind == "f"):
        raise ValueError(
            f"y has shape {y.shape}; give one label for each row"
            f"{', or several numbers as floats' if several else ''}."
        )
    if not isinstance(X, da.Array):
        from sklearn.utils import check_array  # workers do without it

        rows = X.tocsr() if is_sparse(X) else np.asarray(X)  # objects, of a frame of several types
        X = check_array(X, ensure_all_finite=False) if rows.dtype.kind == "O" else rows
    if len(y) != X.shape[0]:
        raise ValueError(
            f"y has {len(y)} rows and X has {X.shape[0]}: give one label for each row."
        )
    return X, y
