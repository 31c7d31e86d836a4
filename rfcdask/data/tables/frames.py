"""Frames in memory and Dask's: their names, their blocks as Arrow tables, what is learned of them.

Everything that looks at several blocks takes an iterator of Arrow tables, so that files, frames and
partitions are learned from in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
from dask.base import tokenize
from dask.delayed import delayed

from rfcdask.data.columns import check_names, match_columns
from rfcdask.data.errors import DataError
from rfcdask.data.tables.encode import ValueKindError, as_kind, encode, kind_of
from rfcdask.data.tables.spec import KINDS, Choices, ColumnSpec, TableSpec, list_faults
from rfcdask.data.tables.summary import (
    SKETCH,
    SKETCH_OF_ALL,
    Summary,
    conclude,
    is_free_text,
    join_summaries,
    summarize,
)
from rfcdask.execution.executor import run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import Array, DaskArray

BATCH_ROWS = 2**16
Decided = dict[str, str]
"""Kinds of columns by name."""


def is_dask_frame(X: Any) -> bool:
    """Whether this is a dask DataFrame."""
    return hasattr(X, "to_dask_array") and hasattr(X, "columns")


def is_frame(X: Any) -> bool:
    """Whether this is a table in memory: of pandas, polars, pyarrow or what else gives Arrow."""
    columns = hasattr(X, "columns") and getattr(X, "ndim", 2) == 2
    arrow = hasattr(X, "__arrow_c_stream__") and columns
    return isinstance(X, pa.Table | pa.RecordBatch) or arrow or _is_pandas(X)


def _is_pandas(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pandas" and hasattr(X, "iloc") and X.ndim == 2


def frame_names(X: Any) -> list[str]:
    """Return the names of the columns of any frame."""
    found = X.schema.names if isinstance(X, pa.Table | pa.RecordBatch) else list(X.columns)
    return [str(name) for name in found]


def to_arrow(X: Any, name: str = "X") -> Any:
    """Return a frame in memory as an Arrow table."""
    names = frame_names(X)
    check_names(name, names)
    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if not _is_pandas(X):
        return pa.table(X)
    columns = [_arrow_column(X.iloc[:, place], names[place], name) for place in range(len(names))]
    return pa.Table.from_arrays(columns, names=names)


def _arrow_column(column: Any, name: str, where: str) -> Any:
    try:
        found = pa.Array.from_pandas(column)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise DataError(
            f"{where}: column {name!r} mixes values that no column holds together "
            f"({', '.join(kinds[:5])}): make them all numbers, or all text with astype(str)."
        ) from error
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def batches(table: Any) -> Iterator[Any]:
    """Yield a table in batches of rows."""
    yield from table.to_batches(BATCH_ROWS)


def decide_kinds(
    blocks: Iterable[Any],
    names: Sequence[str],
    choices: Choices,
    where: str,
    *,
    from_text: bool = False,
) -> Decided:
    """Tell the kind of each column, from as many blocks as that takes; all bad ones are named.

    In a file of text numbers are text too, and told by `from_text`.
    """
    choices.require_known(names, where)
    found: dict[str, str | None] = {name: choices.kind(name) for name in names}
    for block in blocks:
        open_ones = [name for name, kind in found.items() if kind is None]
        if not open_ones:
            break
        found |= {name: kind_of(_whole(block.column(name)), from_text) for name in open_ones}
    bad = [
        f"column {name!r} holds {kind}"
        for name, kind in found.items()
        if kind not in (None, *KINDS)
    ]
    if bad:
        drop = ", ".join(f"{n!r}: 'drop'" for n, k in found.items() if k not in (None, *KINDS))
        raise list_faults(where, bad, f"leave such columns out with columns={{{drop}}}")
    return {name: kind or "drop" for name, kind in found.items()}


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def convert_block(block: Any, kinds: Decided, choices: Choices) -> dict[str, Any]:
    """Return the columns of a block that are not left out, each with the type of its kind."""
    return {
        name: as_kind(block.column(name), name, kind, choices.format(name))
        for name, kind in kinds.items()
        if kind != "drop"
    }


def summarize_columns(columns: dict[str, Any], kinds: Decided) -> dict[str, Summary]:
    """Look at the converted columns of a block."""
    size = max(1024, min(SKETCH, SKETCH_OF_ALL // max(1, len(kinds))))
    return {name: summarize(kinds[name], column, size) for name, column in columns.items()}


def summarize_block(block: Any, kinds: Decided, choices: Choices) -> dict[str, Summary]:
    """Look at all columns of a block."""
    return summarize_columns(convert_block(block, kinds, choices), kinds)


def conclude_all(
    found: dict[str, Summary], kinds: Decided, choices: Choices, n_rows: int, where: str
) -> TableSpec:
    """Decide on all columns; text that is no category is refused, all such columns at once."""
    free = [
        name
        for name, summary in found.items()
        if choices.kind(name) is None and is_free_text(summary, choices)
    ]
    if free:
        drop = ", ".join(f"{name!r}: 'drop'" for name in free)
        faults = [
            f"column {name!r} is text with {found[name].distinct:,} different values in "
            f"{found[name].present:,} rows"
            for name in free
        ]
        remedy = f"leave out what tells rows apart with columns={{{drop}}}, or give 'category'"
        raise list_faults(where, faults, f"{remedy} for 'drop' to hash it")
    columns = []
    for name, kind in kinds.items():
        if kind == "drop":
            why = "as asked" if choices.kind(name) == "drop" else "every value is missing"
            columns.append(ColumnSpec(name, "drop", why=why))
        else:
            columns.append(conclude(name, found[name], choices))
    spec = TableSpec(tuple(columns), n_rows)
    if not spec.names:
        raise DataError(f"{where} has no column to learn from: all are left out or missing.")
    return spec


def learn_table(table: Any, choices: Choices, where: str) -> TableSpec:
    """Learn the columns of a table in memory."""
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows: give some.")
    kinds = decide_kinds(batches(table), table.schema.names, choices, where)
    found: list[dict[str, Summary]] = []
    for start, block in _numbered(batches(table)):
        with_place = _at_row(where, start)
        found = [join_summaries([*found, with_place(summarize_block, block, kinds, choices)])]
    return conclude_all(found[0], kinds, choices, table.num_rows, where)


def _numbered(blocks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    start = 0
    for block in blocks:
        yield start, block
        start += block.num_rows


def _at_row(where: str, start: int) -> Callable[..., Any]:
    """Return what calls a function on a block and names the row of a value that is wrong."""

    def call(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except ValueKindError as fault:
            raise fault.at(f"{where}, row {start + fault.row}") from None

    return call


def encode_table(table: Any, spec: TableSpec, where: str = "X", start: int = 0) -> Array:
    """Encode a table in memory whose columns may stand in any order, block by block."""
    parts = [
        _at_row(where, start + first)(encode, block, spec)
        for first, block in _numbered(batches(table))
    ]
    width = len(spec.names)
    return np.concatenate(parts) if parts else np.empty((0, width), np.float32)


def require_columns(names: Sequence[str], spec: TableSpec, where: str) -> list[str]:
    """Refuse rows that lack a column; return those that are not looked at."""
    known = {column.name for column in spec.columns}
    left_out = match_columns(where, names, spec.inputs).left_out
    return [name for name in left_out if name not in known]


# Dask DataFrames: one pass to learn from and to count the rows of the partitions.


def partitions(frame: Any) -> list[Any]:
    """Return the partitions of a dask DataFrame as delayed frames."""
    return list(frame.to_delayed())


def learn_partitions(
    frame: Any, choices: Choices, client: Any = None, progress: Any = None
) -> tuple[TableSpec, list[int]]:
    """Learn the columns of a dask DataFrame; return them with the rows of each partition."""
    names, parts = frame_names(frame), partitions(frame)
    check_names("X", names)
    kinds = decide_kinds(arrow_blocks(parts, client), names, choices, "X")
    look = delayed(_look_at, pure=False)
    found: list[dict[str, Summary]] = []
    lengths: list[int] = []
    with track("looking at the columns", len(parts), "partitions", progress=progress) as report:
        tasks = (look(part, kinds, choices, place) for place, part in enumerate(parts))
        for rows, summary in run_tasks(tasks, client):
            lengths.append(rows)
            found = [join_summaries([*found, summary])] if rows else found
            report.advance(1)
    if not found:
        raise DataError("X has no rows: give some.")
    return conclude_all(found[0], kinds, choices, sum(lengths), "X"), lengths


def arrow_blocks(parts: list[Any], client: Any = None) -> Iterator[Any]:
    """Compute partitions one after another, and yield them as Arrow tables."""
    for frame in run_tasks(iter(parts), client, at_once=1):
        table = to_arrow(frame)
        if table.num_rows:
            yield table


def _look_at(
    frame: Any, kinds: Decided, choices: Choices, place: int
) -> tuple[int, dict[str, Summary]]:
    table = to_arrow(frame)
    return table.num_rows, _in_partition(place)(summarize_block, table, kinds, choices)


def _in_partition(place: int) -> Callable[..., Any]:
    return _at_row(f"X, partition {place}", 0)


def count_rows(frame: Any, client: Any = None, progress: Any = None) -> list[int]:
    """Count the rows of each partition of a dask DataFrame, for which it is computed once."""
    parts = partitions(frame)
    count = delayed(len, pure=False)
    lengths = []
    with track("counting rows", len(parts), "partitions", progress=progress) as report:
        for rows in run_tasks(map(count, parts), client):
            lengths.append(int(rows))
            report.advance(1)
    return lengths


def encode_partitions(frame: Any, spec: TableSpec, lengths: Sequence[int]) -> DaskArray:
    """Return the encoded rows of a dask DataFrame lazily, with a block for each partition."""
    width, name = len(spec.names), tokenize(frame, spec)
    call = delayed(_encode_part, pure=True)
    blocks = [
        da.from_delayed(
            call(part, spec, place, dask_key_name=f"encode-{name}-{place}"),
            (rows, width),
            dtype=np.float32,
        )
        for place, (part, rows) in enumerate(zip(partitions(frame), lengths, strict=True))
        if rows
    ]
    return da.concatenate(blocks) if blocks else da.empty((0, width), dtype=np.float32)


def _encode_part(frame: Any, spec: TableSpec, place: int) -> Array:
    return encode_table(to_arrow(frame), spec, f"X, partition {place}")
