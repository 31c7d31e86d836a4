"""Parquet files as a source, read by pyarrow in batches of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rfcdask.data.columns import Label, Names, choose_columns, label_names, several_are_numbers
from rfcdask.data.errors import DataError, NotNumbersError, faults_of, missing_extra
from rfcdask.data.location import is_url
from rfcdask.data.sources.base import (
    BATCH_BYTES,
    LARGEST_EXACT,
    Batch,
    Source,
    SourceOptions,
    Survey,
    Tally,
    is_text,
)
from rfcdask.data.sources.pages import CheckedPages
from rfcdask.data.sources.text import FileSource, between, file_size, open_file
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import Array
from rfcdask.persist.chunks import check_expansion
from rfcdask.persist.untrusted import require_plain

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__|__null_dask_index__")
_TEXTS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
_HELD_BYTES = 8 * BATCH_BYTES
"""Most bytes of rows that are read at once, as far as a file tells their size."""


class ParquetFiles(FileSource):
    """One or several Parquet files with the same columns as one set of rows."""

    in_parallel = False  # a stream; pyarrow itself reads columns on several threads

    def __init__(self, paths: list[str]) -> None:
        super().__init__(paths)
        self.features: list[str] = []
        self.label: Label = None
        self.dtype = np.dtype(np.float64)

    def survey(self, options: SourceOptions) -> Survey:
        """Take types from the schema, and look for missing values and at the labels."""
        schemas = {path: _open(path).schema_arrow for path in self.paths}
        names = self._choose(schemas, options)
        tally = Tally()
        with track("checking the rows", None, "rows", progress=options.progress) as report:
            for path in self.paths:
                begin = tally.n_rows
                for X, y in self._batches(path):
                    tally.check(path, tally.n_rows - begin, X, y, drop=options.drop)
                    report.advance(len(X))
        if tally.n_rows == 0:
            raise DataError(f"{self.paths[0]} holds no row: give a file with rows.")
        labels = None
        if self.label is not None:
            given = None if tally.labels.text else common_type(schemas, self.label)
            own = label_names(self.label)
            labels = tally.labels.conclude(self.paths[0], options.task, given, own)
        n_columns, dtype = len(self.features), self.dtype.str
        details = {"features": self.features, "label": self.label, "dtype": dtype}
        return Survey(tally.n_rows, n_columns, dtype, labels, tally.bad_rows, details, names)

    def adopt(self, survey: Survey) -> None:
        self.features, self.label = survey.details["features"], survey.names.label
        self.dtype = np.dtype(survey.details["dtype"])

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield rows; files that end before `start` are not read."""
        begin = 0
        for path in self.paths:
            size = _open(path).metadata.num_rows
            if start < begin + size and begin < stop:
                yield from between(
                    self._batches(path), max(start - begin, 0), min(stop - begin, size)
                )
            begin += size

    def as_table(self, options: SourceOptions) -> Source:
        from rfcdask.data.sources.tables import ParquetTable, Table

        parts = [ParquetTable(path, tuple(names_in_parquet(path))) for path in self.paths]
        return Table(parts, self)

    def _choose(self, schemas: dict[str, Any], options: SourceOptions) -> Names:
        """Choose columns and label, the same of all files; return what they are called."""
        tables = {path: _names(schema) for path, schema in schemas.items()}
        names = choose_columns(tables, options.label, options.columns)
        self.features, self.label = list(names.columns or ()), names.label
        if not self.features:
            raise DataError(f"{self.paths[0]} has no column besides the label.")
        self.dtype = np.result_type(*(_number_type(schemas, name) for name in self.features))
        if self.label is not None:
            check_label(schemas, self.label)
        return names

    def _batches(self, path: str) -> Iterator[Batch]:
        width = max(1, len(self.features) * self.dtype.itemsize)
        wanted = [*self.features, *label_names(self.label)]
        with faults_of(path, "Parquet file"):
            yield from map(self._arrays, read_parquet(path, wanted, max(1, BATCH_BYTES // width)))

    def _arrays(self, batch: Any) -> Batch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        holes = any(columns[name].null_count for name in self.features)
        if holes and self.dtype.kind != "f":  # one missing value makes floats of all columns
            for name in self.features:
                _require_exact(self.paths[0], name, columns[name])
        dtype = np.result_type(self.dtype, np.float32) if holes else self.dtype
        X = np.empty((batch.num_rows, len(self.features)), dtype)
        for place, name in enumerate(self.features):
            X[:, place] = columns[name].to_numpy(zero_copy_only=False)
        return Batch(X, label_columns(self.paths[0], batch, self.label))


def label_columns(where: str, block: Any, label: Label) -> Array | None:
    """Return the labels of a block, of several targets as columns of numbers."""
    names = label_names(label)
    found = [_label_values(where, name, block.column(name)) for name in names]
    if len(found) < 2:
        return found[0] if found else None
    for name, values in zip(names, found, strict=True):
        if is_text(values):
            raise several_are_numbers(where, name)
    return np.column_stack(found)


def _label_values(where: str, name: str, column: Any) -> Array:
    """Return labels as numpy has them: numbers, NaN where they are missing, or text as objects."""
    import pyarrow as pa

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_null(column.type):  # of a partition that has no label
        _require_label(where, name, column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count and pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())  # else they would be objects, and so text
    if column.null_count:
        _require_exact(where, name, column)
    found = np.asarray(column.to_numpy(zero_copy_only=False))
    return found.astype(object) if found.dtype.kind in "UST" else found


def _require_exact(where: str, name: str, column: Any) -> None:
    """Refuse whole numbers that a missing value beside them would round."""
    if _is_beyond_floats(column):
        raise DataError(
            f"{where}: column {name!r} holds whole numbers beyond 2**53, which are not read "
            "exactly where values are missing: fill or drop the rows with missing values first, or "
            "write that column as float64."
        )


def _is_beyond_floats(column: Any) -> bool:
    """Whether these are whole numbers of which float64 does not hold each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(column.type) or column.type.bit_width < 64:
        return False
    low, high = pc.min_max(column).as_py().values()
    return max(-(low or 0), high or 0) > LARGEST_EXACT


def read_parquet(path: str, columns: list[str], rows: int) -> Iterator[Any]:
    """Yield some columns of a file in record batches of so many rows."""
    file, found = _open(path), 0
    schema = file.schema_arrow
    texts = [name for name in columns if str(schema.field(name).type) in _TEXTS]
    file = _open(path, texts, file.metadata) if texts else file
    with faults_of(path, "Parquet file"):
        nbytes = file.metadata.num_rows * 8 * len(columns)
        check_expansion(nbytes, lambda: file_size(path))
        file.pages.watch(len(columns), file_size(path))
        rows = min(rows, max(1, _HELD_BYTES // _row_bytes(file.metadata, schema, columns)))
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        groups = [group for group, count in enumerate(counts) if count]  # others have no pages
        for batch in _batches_of(file.iter_batches(rows, row_groups=groups, columns=columns), path):
            found += batch.num_rows
            for part in _small_parts(batch):
                yield _written_out(part, texts, schema)
        if found != file.metadata.num_rows:
            raise ValueError(f"{file.metadata.num_rows} rows are declared, {found} are there")


def _batches_of(batches: Iterator[Any], path: str) -> Iterator[Any]:
    """Yield batches, but refuse texts that pyarrow cannot give as a dictionary.

    Written out, a small file may hold any amount of these: each may begin as the one before it.
    """
    try:
        yield from batches
    except (OSError, NotImplementedError) as error:  # pyarrow's own derive from them
        if "DictAccumulator" not in str(error):
            raise
        raise DataError(
            f"{path} holds text in the encoding DELTA_BYTE_ARRAY or DELTA_LENGTH_BYTE_ARRAY, which "
            "is not read in parts: write it again without, as pyarrow.parquet.write_table("
            "pyarrow.parquet.read_table(path), other) or PARQUET_VERSION v1 of DuckDB does, or "
            "leave such columns out."
        ) from error


def _row_bytes(metadata: Any, schema: Any, columns: list[str]) -> int:
    """Return about how many bytes a row takes, by what the file says of its groups of rows."""
    import pyarrow as pa

    groups = map(metadata.row_group, range(metadata.num_row_groups))
    told = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    kinds = [schema.field(name).type for name in columns]
    # Of bytes of a fixed length a file may have each once, for any number of rows.
    fixed = sum(kind.byte_width for kind in kinds if pa.types.is_fixed_size_binary(kind))
    return max(1, int(told), 2 * fixed)


def _small_parts(batch: Any) -> Iterator[Any]:
    """Cut a batch where its texts, which a file has once each, take much room when written out."""
    if batch.num_rows < 2 or sum(map(_text_bytes, batch.columns)) <= BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    for part in (batch.slice(0, half), batch.slice(half)):
        yield from _small_parts(part)


def _text_bytes(column: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or str(column.type.value_type) not in _TEXTS:
        return 0
    return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _written_out(batch: Any, texts: list[str], schema: Any) -> Any:
    """Return a batch with the types of the file, where texts were read as a dictionary."""
    for name in texts:
        place = batch.schema.get_field_index(name)
        column = batch.column(place)
        if str(column.type) != str(schema.field(name).type):
            plain = column.dictionary_decode().cast(schema.field(name).type)
            batch = batch.set_column(place, name, plain)
    return batch


def parquet_schema(path: str) -> Any:
    """Return the Arrow types of the columns of a file."""
    return _open(path).schema_arrow


def names_in_parquet(path: str) -> list[str]:
    """Return the names of the columns of a file."""
    return _names(_open(path).schema_arrow)


def _names(schema: Any) -> list[str]:
    # What pandas and Dask write for an index without a name are row numbers, and no feature.
    return [name for name in schema.names if not _UNNAMED_INDEX.fullmatch(name)]


def _open(path: str, as_dictionary: Sequence[str] = (), metadata: Any = None) -> Any:
    try:
        from pyarrow import OSFile, PythonFile, parquet
    except ImportError:
        raise missing_extra("pyarrow", "tables", "Reading Parquet") from None
    given: dict[str, Any] = {"metadata": metadata, "read_dictionary": as_dictionary}
    given["page_checksum_verification"] = True  # where the file has some, as those of Spark
    given["coerce_int96_timestamp_unit"] = "us"  # in nanoseconds the year 9999 becomes 1816
    given["pre_buffer"] = False  # what is read at once is of one column: see CheckedPages
    with faults_of(path, "Parquet file"):
        if is_url(path):
            opened = open_file(path)
            pages = CheckedPages(PythonFile(opened.open(), mode="r"), path)
        else:
            require_plain(Path(path))  # also one that takes the place of the file meanwhile
            opened, pages = None, CheckedPages(OSFile(path), path)
        file = parquet.ParquetFile(pages, **given)
        file.pages = pages
        file.opened = opened  # fsspec wants it kept while what it opened is read
        return file


def _number_type(schemas: dict[str, Any], name: str) -> np.dtype[Any]:
    """Return the type of a column of numbers over all files."""
    for path, schema in schemas.items():
        if numpy_type(schema.field(name).type) is None:
            raise NotNumbersError(
                f"{path}: column {name!r} holds {schema.field(name).type}, where numbers belong."
            )
    kind = common_type(schemas, name)
    assert kind is not None
    return kind


def common_type(schemas: dict[str, Any], name: Label) -> np.dtype[Any] | None:
    """Return the type of numbers that holds columns of all files; None where one has others."""
    fields = [schema.field(one) for schema in schemas.values() for one in label_names(name)]
    kinds = [numpy_type(field.type) for field in fields]
    known = [kind for kind in kinds if kind is not None]
    return np.result_type(*known) if len(known) == len(kinds) else None


def check_label(schemas: dict[str, Any], label: Label) -> None:
    """Refuse labels that are neither numbers nor text, or not the same in all files."""
    if not isinstance(label, str):
        for path, schema in schemas.items():
            for name in label_names(label):
                if numpy_type(schema.field(name).type) is None:
                    raise several_are_numbers(path, name)
        return
    texts: dict[bool, str] = {}
    digits: dict[int, str] = {}
    for path, schema in schemas.items():
        kind = schema.field(label).type
        _require_label(path, label, kind)
        texts.setdefault(numpy_type(kind) is None, path)
        if hasattr(kind, "scale"):
            digits.setdefault(kind.scale, path)
    if len(texts) > 1:
        first, other = texts.values()
        raise DataError(
            f"the label {label!r} is text in one file and a number in another ({first}, {other}): "
            "write it in one way."
        )
    if len(digits) > 1:  # classes are the text of decimals: 1.5 and 1.50 would be two
        first, other = list(digits.values())[:2]
        raise DataError(
            f"the label {label!r} is a decimal with more digits in one file than in another "
            f"({first}, {other}): write it in one way."
        )


def _require_label(where: str, name: str, kind: Any) -> None:
    """Refuse labels that are neither numbers nor text: dates would become numbers."""
    if not _is_label(kind):
        raise DataError(
            f"{where}: the label {name!r} holds {kind}: labels are numbers or text, so write it as "
            "one of them, or choose another label column."
        )


def _is_label(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_label(kind.value_type)
    fixed = pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)
    return numpy_type(kind) is not None or fixed or str(kind) in _TEXTS


def numpy_type(kind: Any) -> np.dtype[Any] | None:
    """Return numpy's type for a numeric Arrow type; None for any other."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        made: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return made
    return None
