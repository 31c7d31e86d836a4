"""Parquet files as a source, read by pyarrow in batches of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import fsspec
import numpy as np

from rfcdask.data.columns import Names, check_names, check_same, choose_columns
from rfcdask.data.errors import DataError, missing_extra
from rfcdask.data.sources.arrays import BATCH_BYTES, say_bad
from rfcdask.data.sources.base import Batch, Wishes, between
from rfcdask.data.sources.labels import LabelTally
from rfcdask.data.sources.survey import Survey, bad_rows_of
from rfcdask.data.sources.text import file_facts
from rfcdask.execution.progress import track
from rfcdask.kernels.types import Array
from rfcdask.persist.untrusted import faults_as

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


class ParquetFiles:
    """One or several Parquet files with the same columns as one set of rows."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.features: list[str] = []
        self.label: str | None = None
        self.found = Names()
        self.dtype = np.dtype(np.float64)

    @property
    def names(self) -> list[str]:
        """The files."""
        return self.paths

    @property
    def in_parallel(self) -> bool:
        """Streams only; pyarrow itself reads columns on several threads."""
        return False

    def identity(self) -> Any:
        """Names, sizes and times of the files."""
        return [file_facts(path) for path in self.paths]

    def survey(self, wishes: Wishes) -> Survey:
        """Take types from the schema, and look for missing values and at the labels."""
        schemas = [_open(path).schema_arrow for path in self.paths]
        self._choose(schemas, wishes)
        bad, tally, place = [np.empty(0, np.int64)], LabelTally(), 0
        with track("checking the rows", None, "rows", progress=wishes.progress) as report:
            for path in self.paths:
                begin = place
                for X, y in self._batches(path):
                    found = bad_rows_of(X, y)
                    if len(found) and not wishes.drop:
                        row = int(found[0])
                        label = None if y is None else y[row]
                        raise DataError(say_bad(path, place - begin + row, X[row], label))
                    bad.append(found + place)
                    if y is not None and len(y) > len(found):
                        tally.add(np.delete(y, found))
                    place += len(X)
                    report.advance(len(X))
        if place == 0:
            raise DataError(f"{self.paths[0]} holds no row: give a file with rows.")
        labels = None
        if self.label is not None:
            given = None if tally.text else self._common_type(schemas, self.label)
            labels = tally.conclude(self.paths[0], wishes.task, given)
        details = {"features": self.features, "label": self.label, "dtype": self.dtype.str}
        dtype = self.dtype.str
        n_columns = len(self.features)
        return Survey(place, n_columns, dtype, labels, np.concatenate(bad), details, self.found)

    def adopt(self, survey: Survey) -> None:
        """Take the columns from an earlier survey."""
        self.features, self.label = survey.details["features"], survey.details["label"]
        self.dtype = np.dtype(survey.details["dtype"])

    def narrowed(self, start: int, stop: int) -> ParquetFiles:
        """Return itself."""
        return self

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Give rows; files that end before `start` are not read."""
        begin = 0
        for path in self.paths:
            size = _open(path).metadata.num_rows
            if start < begin + size and begin < stop:
                batches = (Batch(X, y) for X, y in self._batches(path))
                yield from between(batches, max(start - begin, 0), min(stop - begin, size))
            begin += size

    def _choose(self, schemas: list[Any], wishes: Wishes) -> None:
        tables = [_names(schema) for schema in schemas]
        first, names = self.paths[0], tables[0]
        if wishes.columns is None:
            for path, table in zip(self.paths, tables, strict=True):
                check_names(path, table)
        self.features, self.label = choose_columns(first, names, wishes.label, wishes.columns)
        known = [*self.features] if self.label is None else [*self.features, self.label]
        for path, table in zip(self.paths, tables, strict=True):
            check_same(path, table, first, known, more=wishes.columns is not None)
        there = dict.fromkeys(name for table in tables for name in table)
        self.found = Names(
            tuple(self.features),
            label=self.label,
            label_column=None if self.label is None else names.index(self.label),
            left_out=tuple(name for name in there if name not in set(known)),
        )
        if not self.features:
            raise DataError(f"{self.paths[0]} has no column besides the label.")
        self.dtype = np.result_type(*(self._numbers(schemas, name) for name in self.features))
        if self.label is not None:
            for path, schema in zip(self.paths, schemas, strict=True):
                if not _is_label(kind := schema.field(self.label).type):
                    raise DataError(
                        f"{path}: the label {self.label!r} holds {kind}: labels are numbers or "
                        "text, so write it as one of them, or choose another label column."
                    )
            kinds = [numpy_type(schema.field(self.label).type) is None for schema in schemas]
            if len(set(kinds)) > 1:
                other = self.paths[kinds.index(not kinds[0])]
                raise DataError(
                    f"the label {self.label!r} is text in one file and a number in another "
                    f"({self.paths[0]}, {other}): write it in one way."
                )

    def _numbers(self, schemas: list[Any], name: str) -> np.dtype[Any]:
        """Return the type that holds a feature of every file."""
        for path, schema in zip(self.paths, schemas, strict=True):
            if numpy_type(schema.field(name).type) is None:
                raise DataError(
                    f"{path}: column {name!r} holds {schema.field(name).type}, where numbers "
                    "belong: encode or drop it first."
                )
        kind = self._common_type(schemas, name)
        assert kind is not None
        return kind

    def _common_type(self, schemas: list[Any], name: str) -> np.dtype[Any] | None:
        kinds = [numpy_type(schema.field(name).type) for schema in schemas]
        known = [kind for kind in kinds if kind is not None]
        return np.result_type(*known) if len(known) == len(kinds) else None

    def _batches(self, path: str) -> Iterator[tuple[Array, Array | None]]:
        width = max(1, len(self.features) * self.dtype.itemsize)
        wanted = self.features if self.label is None else [*self.features, self.label]
        file, found = _open(path), 0
        with _faults_of(path):
            for batch in file.iter_batches(max(1, BATCH_BYTES // width), columns=wanted):
                found += batch.num_rows
                yield self._arrays(batch)
            if found != file.metadata.num_rows:
                raise ValueError(f"{file.metadata.num_rows} rows are declared, {found} are there")

    def _arrays(self, batch: Any) -> tuple[Array, Array | None]:
        columns = {name: batch.column(name) for name in batch.schema.names}
        X = np.empty((batch.num_rows, len(self.features)), self._type_with_nulls(columns))
        for place, name in enumerate(self.features):
            X[:, place] = columns[name].to_numpy(zero_copy_only=False)
        return X, None if self.label is None else _label_values(columns[self.label])

    def _type_with_nulls(self, columns: dict[str, Any]) -> np.dtype[Any]:
        holes = any(columns[name].null_count for name in self.features)
        return np.result_type(self.dtype, np.float32) if holes else self.dtype


def names_in_parquet(path: str) -> list[str]:
    """Return the names of the columns of a file."""
    return _names(_open(path).schema_arrow)


def _names(schema: Any) -> list[str]:
    # What pandas writes for an index without a name are row numbers, and no feature.
    return [name for name in schema.names if not _UNNAMED_INDEX.fullmatch(name)]


def _label_values(column: Any) -> Array:
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    return values.astype(object) if values.dtype.kind in "UST" else values


def _open(path: str) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise missing_extra("pyarrow", "tables", "Reading Parquet") from None
    source = fsspec.open(path, "rb").open() if "://" in path else path
    with _faults_of(path):
        return parquet.ParquetFile(source)


def _faults_of(path: str) -> AbstractContextManager[None]:
    return faults_as(
        lambda why: DataError(f"{path} is no Parquet file, is damaged or is cut short ({why})."),
        DataError,
        FileNotFoundError,
    )


def _is_label(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_label(kind.value_type)
    text = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    fixed = pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)
    return numpy_type(kind) is not None or fixed or str(kind) in text


def numpy_type(kind: Any) -> np.dtype[Any] | None:
    """Return numpy's type for a numeric Arrow type; None for any other."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        made: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return made
    return None
