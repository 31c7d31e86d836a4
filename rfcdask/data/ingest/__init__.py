"""Ingest: from a source of rows to a store of lazy blocks, in bounded memory, resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from dask.base import tokenize

from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DataError, NotNumbersError
from rfcdask.data.ingest.blocks import place_of, write_blocks
from rfcdask.data.ingest.destination import (
    IngestRequest,
    Journal,
    WritePlan,
    begin,
    destination_errors,
    finish,
    found_finished,
    is_finished,
    only_writer,
    prepare,
    same_source,
)
from rfcdask.data.ingest.shuffle import shuffle_blocks
from rfcdask.data.layout import (
    BLOCK_BYTES,
    COMPRESSORS,
    SPARSE_BLOCK_BYTES,
    plan_layout,
    size_in_bytes,
    sparse_layout,
)
from rfcdask.data.location import Location, require_shared
from rfcdask.data.manifest import beside
from rfcdask.data.sources import opened_source
from rfcdask.data.sources.base import TASKS, Source, SourceOptions, Survey
from rfcdask.data.sources.dask_arrays import paths_read, places_read
from rfcdask.data.store import open_location
from rfcdask.execution.cluster import current_client
from rfcdask.kernels.seeds import seed_of
from rfcdask.persist.files import UNFINISHED, backup_of, replace_folder, restore_backup
from rfcdask.persist.untrusted import redacted, rights_said

NAN = ("auto", "raise", "drop", "drop-unlabelled")
_CHOICES = {
    "task": TASKS,
    "nan": NAN,
    "shuffle": (True, False),
    "overwrite": (True, False),
    "header": (True, False, None),
    "zero_based": (True, False, "auto"),
    "sparse": (True, False, "auto"),
    "compressor": COMPRESSORS,
}
WIDEST = 1_000_000
"""Columns of dense rows unless more are asked for: their statistics are kept as text."""
SPARSE_GAIN = 10
"""Sparse rows are stored as such where dense ones would take this many times their bytes."""


def ingest(
    source: Any,
    dest: str | os.PathLike[str],
    *,
    format: str | None = None,
    label: Any = None,
    columns: Any = "auto",
    shuffle: bool = False,
    project: int | None = None,
    sparse: bool | str = "auto",
    random_state: Any = None,
    task: str = "auto",
    nan: str = "auto",
    dtype: Any = None,
    scale: float | None = None,
    n_columns: int | None = None,
    zero_based: bool | str = "auto",
    delimiter: str | None = None,
    header: bool | None = None,
    compressor: str | None = "zstd",
    block_size: int | str = BLOCK_BYTES,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
    check: Callable[[Survey], None] | None = None,
    progress: Any = None,
    client: Any = None,
) -> Dataset:
    """Write rows to a store whose shards are lazy blocks, and open it.

    Text is read twice, first to check every line and to find the shape, then to write. Called
    again after an interruption with the same arguments, it goes on from the last whole block, and
    the store ends byte for byte as if nothing had happened.

    Parameters
    ----------
    source : path, glob, list of paths, array, (X, y), frame or Dataset
        svmlight text (plain, gz, bz2, xz), CSV or TSV, Parquet, npy, npz, zarr, a numpy, CSR or
        Dask array, a DataFrame of pandas, polars or Dask, a pyarrow Table, or a data set of this
        package.
    dest : path or URL
        The store to write: a local directory or an fsspec URL.
    format : {"svmlight", "csv", "parquet", "npy", "npz", "zarr"}, optional
        Told by the file's name or first line unless given.
    label : str, int, list of these, array, path or False, optional
        The label column of a table by name or number, the array of labels of a .npz or zarr
        group, or the labels of an array; False for rows without labels. By default a column named
        label, target, class or y. Several columns of a table, as a list or with commas between, or
        several columns of an array, are targets to be predicted together, which are numbers.
    columns : "auto", mapping, path, TableEncoder or sequence of str
        How the columns of a table (CSV, Parquet, frame) are taken. A table of numbers without gaps
        is written as it is; text, dates and missing values, and every dask DataFrame, are encoded
        as :class:`rfcdask.TableEncoder` does, whose `columns` this takes: kinds by name, or a TOML
        file of them. A fitted encoder reads the table as the one it was fitted on. A list of names
        takes these columns alone, in this order. By default all but the label.
    shuffle : bool
        Permute all rows uniformly, out of core. Needs the size of the data as scratch space in
        the destination, and at most four blocks of memory.
    project : int, optional
        Project rows to so many columns by a very sparse random projection, kept with the store.
    sparse : bool or "auto"
        Whether the rows of sparse sources (svmlight, scipy CSR, Dask arrays of CSR blocks) are
        stored as CSR blocks, which have no column statistics and are not standardized. By
        default where dense rows take more than 16 MiB and ten times the bytes of sparse ones.
    random_state : int, Generator, RandomState or None
        Seed of shuffle and projection; recorded in the store.
    task : {"auto", "classification", "regression"}
        What labels mean. By default text, and whole numbers with at most 100 distinct values, are
        classes.
    nan : {"auto", "raise", "drop", "drop-unlabelled"}
        What becomes of rows with missing values: in a table gaps are filled and marked, and all
        else is refused; refuse any; drop such rows and count them; or drop those without a label.
    dtype : dtype, optional
        Type on disk. By default that of the array; for text, whose numbers are read as float64, the
        smallest integer, else float32 or float64, that holds each of these.
    scale : float, optional
        Factor that is applied when the store is read, such as 1/255; the values on disk stay.
    n_columns : int, optional
        Number of columns of svmlight text, when its last ones may be absent.
    zero_based : bool or "auto"
        Whether svmlight columns are counted from 0.
    delimiter, header : str and bool, optional
        How a CSV file looks; detected unless given.
    compressor : {"zstd", "lz4", "gzip", None}
        Codec of the chunks; a checksum is kept in any case.
    block_size : int or str
        Bytes of one block, such as "128MB".
    overwrite : bool
        Replace a store that is there.
    storage_options : dict, optional
        Options of the destination's file system.
    check : callable, optional
        Called with the survey of the source (shape, type, labels) before a row is written;
        what it raises stops the ingest.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.
    client : distributed.Client, optional
        Where to read and write; without one, the current client or threads of this process.

    Returns
    -------
    Dataset
        The opened store.

    Examples
    --------
    >>> import numpy as np, rfcdask as rf
    >>> X, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 2
    >>> rf.ingest((X, y), "memory://doctest.zarr", overwrite=True).X.shape
    (100, 3)
    """
    options = {
        "label": redacted(label) if _is_name(label) else tokenize(label),
        "shuffle": _choice("shuffle", shuffle),
        "project": _number("project", project, int),
        # A generator moves on between calls, so the seed that was drawn from it first is kept.
        "random_state": None if _moves_on(random_state) else seed_of(random_state),
        "task": _choice("task", task),
        "nan": _choice("nan", nan),
        "dtype": None if dtype is None else _type_name(dtype),
        "scale": _number("scale", scale, float),
        "n_columns": _number("n_columns", n_columns, int),
        "zero_based": _choice("zero_based", zero_based),
        "delimiter": delimiter,
        "header": _choice("header", header),
        "compressor": _choice("compressor", compressor),
        "block_bytes": size_in_bytes(block_size),
        "sparse": _choice("sparse", sparse),
    }
    _check(options)
    overwrite = _choice("overwrite", overwrite)
    if options["sparse"] == "auto":
        del options["sparse"]  # an ingest that was begun before there was a choice goes on
    names, table = _checked_columns(columns)
    if names is not None:
        options["columns"] = list(names)
    if table is not None:
        options["table"] = table.to_json()
    client = current_client(client)
    final = Location.to_write(dest, storage_options)
    with destination_errors(final):
        _recover(final)
    of_source = ("task", "nan", "n_columns", "zero_based", "delimiter", "header", "project")
    asked = SourceOptions(
        label=label,
        columns=names,
        sparse=sparse,
        table=table,
        progress=progress,
        client=client,
        **{name: options[name] for name in of_source},
    )
    with (
        rights_said(),
        opened_source(source, format, label, client) as rows,
        only_writer(final),
    ):
        # A store that is whole stays until the new one is too: a source that turns out to be bad
        # costs nothing, and rows may be read from the very store that they replace.
        aside = overwrite and final.is_local and is_finished(final)
        location = beside(final) if aside else final
        if client is not None and (shuffle or place_of(rows, client) is not None):
            here = location.url if location.is_local else ""
            require_shared(client, reads=paths_read(rows), writes=here)
        if overwrite and not final.is_local:
            _require_other_place(final, rows)
        request = IngestRequest(redacted(rows.identity()), options)
        with destination_errors(location):
            finished = found_finished(location, request, overwrite=overwrite)
        if finished:
            return open_location(location)
        with destination_errors(location):
            drawn = shuffle or project is not None
            seed, mark = begin(location, request, random_state, drawn=drawn)
        with same_source(rows, request):
            rows, survey = _survey(rows, asked, Journal(location), check)
            plan = _plan(location, rows, survey, options, seed, mark)
            with destination_errors(location):
                files = prepare(plan, request, rows.projection)
            if shuffle:
                assert seed is not None  # drawn in `begin`
                shuffle_blocks(plan, rows, survey, seed, progress, client)
            else:
                write_blocks(plan, rows, survey, progress, client)
        with destination_errors(location):
            finish(plan, rows, survey, request, seed, files)
            if location != final:
                replace_folder(Path(location.url), Path(final.url))
    return open_location(final)


def _require_other_place(final: Location, rows: Source) -> None:
    """Refuse to remove the source itself: behind a URL what is replaced goes first."""
    if any(map(final.overlaps, places_read(rows))):
        raise DataError(f"{final} is what the rows are read from: choose another destination.")


def _is_name(label: Any) -> bool:
    if isinstance(label, list | tuple):
        return all(isinstance(one, str) for one in label)
    return isinstance(label, str | int | None)


def _recover(final: Location) -> None:
    """Give a store its name back that was being replaced when the process was killed."""
    place, work = Path(final.url), Path(final.url + UNFINISHED)
    if final.is_local and not place.exists() and backup_of(work).exists():
        with only_writer(final):
            restore_backup(work, place)


def _choice(name: str, value: Any) -> Any:
    """Return one of the values that an option may have, as Python writes it."""
    value = bool(value) if isinstance(value, np.bool_) else value
    for known in _CHOICES[name]:
        if type(value) is type(known) and value == known:
            return known
    raise DataError(f"{name}={value!r} is not one of {_CHOICES[name]}.")


def _moves_on(random_state: Any) -> bool:
    kinds = (np.random.Generator, np.random.RandomState, ModuleType)  # numpy.random itself
    return random_state is None or isinstance(random_state, kinds)


def _check(options: dict[str, Any]) -> None:
    scale, delimiter = options["scale"], options["delimiter"]
    if scale is not None and not 0 < abs(scale) < float("inf"):
        raise DataError(f"scale={scale} is no finite factor other than 0.")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise DataError(f"delimiter={delimiter!r} is not one character.")
    if (project := options["project"]) is not None and project < 1:
        raise DataError(f"project={project}: give the number of columns to keep, at least 1.")
    if options["sparse"] is True and project is not None:
        raise DataError("sparse=True: projected rows are dense: leave project= or sparse= out.")


def _checked_columns(columns: Any) -> tuple[tuple[str, ...] | None, Any]:
    """Return the names of columns to take, if given, and what else was said of columns, if any."""
    if columns is None or (isinstance(columns, str) and columns == "auto"):
        return None, None
    if isinstance(columns, Sequence) and not isinstance(columns, str):
        if not all(isinstance(name, str) for name in columns):
            raise DataError(f"columns={columns!r} is no list of names.")
        if not columns or len(set(columns)) < len(columns):
            raise DataError("columns= must name at least one column, and none twice.")
        return tuple(columns), None
    from rfcdask.data.tables import Choices, TableSpec, read_choices

    if hasattr(columns, "spec_of_table"):
        return None, columns.spec_of_table()
    if isinstance(columns, TableSpec | Choices | Mapping | str | os.PathLike):
        return None, columns if isinstance(columns, TableSpec) else read_choices(columns)
    raise DataError(f"columns={columns!r} is neither names nor kinds of columns.")


def _type_name(dtype: Any) -> str:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "biuf" or kind.itemsize > 8:
        raise DataError(f"dtype={dtype!r} is no type of numbers that a store holds.")
    return str(kind.name)


def _number(name: str, value: Any, kind: type) -> Any:
    """Return a number of Python, which JSON can hold; None stays None."""
    if value is None:
        return None
    good = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not good or not np.isfinite(value) or kind(value) != value:
        raise DataError(f"{name}={value!r} is no {'number' if kind is float else 'whole number'}.")
    return kind(value)


def _survey(
    rows: Source,
    asked: SourceOptions,
    journal: Journal,
    check: Callable[[Survey], None] | None,
) -> tuple[Source, Survey]:
    known = journal.survey()
    if known is not None:
        if known.table is not None:
            rows = rows.as_table(asked) or rows
        rows.adopt(known)
        return rows, known
    name = rows.names[0]
    try:
        rows, survey = _look(rows, asked)
        if survey.n_kept == 0:
            raise DataError(f"{name}: every row holds a value that is not finite.")
        if asked.n_columns not in (None, survey.n_columns):
            raise DataError(
                f"{name} has {survey.n_columns} columns, but n_columns={asked.n_columns}."
            )
        if asked.project is not None and asked.project > survey.n_columns:
            raise DataError(
                f"project={asked.project}: {name} has {survey.n_columns} columns, and a projection "
                "is to fewer: give a smaller number, or leave project= out."
            )
        if asked.sparse is True and survey.n_values is None:
            raise DataError(
                f"sparse=True: the rows of {name} are dense: give svmlight text, a CSR matrix of "
                "scipy or a Dask array of such blocks, or leave sparse= out."
            )
        if survey.n_columns > WIDEST:
            _require_narrow(name, survey, asked)
        if survey.table is None and asked.columns not in (None, survey.names.columns):
            raise DataError(
                f"{name} has no named columns to choose from: columns= is for CSV files with a "
                "header and for Parquet."
            )
        if check is not None:
            check(survey)
    except Exception:
        # Nothing is written yet: leave no unfinished store behind that stands in the way.
        journal.location.delete(last="zarr.json")
        raise
    with destination_errors(journal.location):
        journal.save_survey(survey)
    return rows, survey


def _require_narrow(name: str, survey: Survey, asked: SourceOptions) -> None:
    """Refuse very many dense columns unasked: a file of a few bytes may declare as many zeros."""
    if asked.n_columns is asked.project is None and not stays_sparse(survey, asked.sparse):
        raise DataError(
            f"{name} has {survey.n_columns:,} columns, and of dense rows more than {WIDEST:,} are "
            f"not written unasked: pass project=, or n_columns={survey.n_columns} to have them so."
        )


def _look(rows: Source, asked: SourceOptions) -> tuple[Source, Survey]:
    """Survey a source: numbers as they are, a table of anything else with all its kinds."""
    if asked.table is not None:
        table = rows.as_table(asked)
        if table is None:
            raise DataError(
                f"{rows.names[0]} has no named columns to decide on: columns= is for CSV files "
                "with a header, Parquet and frames."
            )
        return table, table.survey(asked)
    try:
        return rows, rows.survey(asked)
    except NotNumbersError as error:
        table = rows.as_table(asked)
        if table is None or (error.missing and asked.nan == "raise"):
            raise
        return table, table.survey(asked)


def stays_sparse(survey: Survey, asked: bool | str) -> bool:
    """Tell whether the rows of a source that are not projected are stored as CSR."""
    if survey.n_values is None or asked != "auto":
        return survey.n_values is not None and bool(asked)
    item = np.dtype(survey.dtype).itemsize
    dense = survey.n_kept * survey.n_columns * item
    compact = survey.n_values * (item + 4) + 8 * survey.n_kept  # columns in 4 bytes, row ends in 8
    return dense > SPARSE_BLOCK_BYTES and dense >= SPARSE_GAIN * compact


def _plan(
    location: Location,
    rows: Source,
    survey: Survey,
    options: dict[str, Any],
    seed: int | None,
    mark: int,
) -> WritePlan:
    projected = options["project"] is not None
    layout = plan_layout(
        survey.n_kept,
        options["project"] if projected else survey.n_columns,
        options["dtype"] or ("float32" if projected else survey.dtype),
        label_dtype=None if survey.labels is None else survey.labels.dtype,
        n_targets=None if survey.labels is None else survey.labels.targets,
        compressor=options["compressor"],
        block_bytes=options["block_bytes"],
    )
    if not projected and stays_sparse(survey, options.get("sparse", "auto")):
        layout = sparse_layout(layout, survey.n_values or 0, options["block_bytes"])
    name = redacted(", ".join(rows.names[:3]))
    drawn_from = seed if projected else None
    return WritePlan(location, layout, survey.labels, survey.n_columns, name, drawn_from, mark)
