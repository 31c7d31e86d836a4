"""Columns of all kinds as numbers: a scikit-learn transformer, lazy on dask DataFrames."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import delayed
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from rfcdask.data.columns import check_names, match_columns, quoted
from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DataError
from rfcdask.data.tables import Choices, TableSpec, checked_numbers, read_choices
from rfcdask.data.tables.encode import (
    BATCH_ROWS,
    arrow_blocks,
    decide_kinds,
    encode_partition,
    encode_table,
    frame_names,
    is_dask_frame,
    is_frame,
    look_at_partition,
    numbered_batches,
    summarize_block,
    to_arrow,
)
from rfcdask.data.tables.summary import Summary, conclude_all, join_summaries
from rfcdask.execution.blocks import lazy_on_dask
from rfcdask.execution.cluster import current_client
from rfcdask.execution.executor import run_tasks
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import Array, DaskArray


@lazy_on_dask
class TableEncoder(TransformerMixin, BaseEstimator):
    """Encodes the columns of a table as numbers, each by its kind.

    Numbers are filled with their median and brought to mean 0 and variance 1, as
    ``SimpleImputer(strategy="median")`` and ``StandardScaler`` do. Categories become a column of 0
    and 1 for each level; levels rarer than `min_frequency` share one; of more than `max_levels` the
    most frequent get columns of their own, and all others are spread over `hash_columns` by their
    hash. Dates become the elapsed time, standardized, and the turn of day, week and year as sine
    and cosine, where they vary. A column with missing values gets one more that marks them.

    New rows are matched by the names of their columns: in any order, and with others left out
    under a warning. A level never seen goes where rare levels went, else to no column; a value that
    is missing where none was before is filled with the median, and of a category goes to no column.

    Parameters
    ----------
    columns : "auto", mapping or path
        Kinds by name, for columns that are to be taken otherwise than they look: ``"number"``,
        ``"boolean"``, ``"category"``, ``"date"``, ``"drop"``, or ``{"kind": "date", "format":
        "%d.%m.%Y"}``; or a TOML file of them.
    max_levels : int
        Most levels of a category with a column of their own.
    hash_columns : int
        Columns for the levels beyond that.
    min_frequency : float or int
        Share of the rows, or their number, below which a level is rare.

    Attributes
    ----------
    table_ : dict
        What was learned of each column, as plain values.
    feature_names_in_ : array of str
        Columns that new rows must have.

    Examples
    --------
    >>> import pyarrow as pa, rfcdask as rf
    >>> table = pa.table({"age": [20, 40], "city": ["Oslo", "Rome"]})
    >>> encoder = rf.TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'city=Oslo', 'city=Rome']
    >>> encoder.transform(table)
    array([[-1.,  1.,  0.],
           [ 1.,  0.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        columns: Any = "auto",
        *,
        max_levels: int = 50,
        hash_columns: int = 32,
        min_frequency: float = 0.001,
    ) -> None:
        self.columns = columns
        self.max_levels = max_levels
        self.hash_columns = hash_columns
        self.min_frequency = min_frequency

    def fit(self, X: Any, y: Any = None, *, client: Any = None) -> Self:
        """Learn the columns of a table; of a dask DataFrame in one pass over its partitions.

        Parameters
        ----------
        X : DataFrame of pandas, polars or Dask, or pyarrow Table
        y : ignored
        client : distributed.Client, optional
            Where the partitions of a dask DataFrame are computed: this client, else the current
            one, else local threads.
        """
        _require_table(X)
        choices = self._choices()
        if is_dask_frame(X):
            spec, lengths = learn_partitions(X, choices, client)
            self._remember(X, lengths)
        else:
            spec = learn_table(to_arrow(X), choices, "X")
        return self._keep(spec)

    @classmethod
    def of(cls, dataset: Dataset) -> TableEncoder:
        """Return the encoder that a store was written through, for new rows to follow."""
        record = dataset.attrs.get("table")
        if record is None:
            raise DataError(
                "this data set was not made from a table of text, dates or missing values: its "
                "columns are taken as they are."
            )
        return cls()._keep(TableSpec.from_json(record))

    def transform(self, X: Any) -> Any:
        """Encode rows: a frame in memory gives a float32 array, a dask DataFrame a lazy one.

        The rows of the partitions of a dask DataFrame other than that of `fit` are counted first,
        for which it is computed once, on the current client where there is one.
        """
        check_is_fitted(self, "table_")
        _require_table(X)
        spec = self.spec_of_table()
        left_out = require_columns(frame_names(X), spec, "X")
        if left_out:
            many = ("s", "are") if len(left_out) > 1 else ("", "is")
            said = f"column{many[0]} {quoted(left_out)} {many[1]} left out"
            warnings.warn(f"{said}: the encoder was fitted without.", stacklevel=2)
        if not is_dask_frame(X):
            return encode_table(to_arrow(X), spec)
        known = getattr(self, "_counted", None)
        lengths = known[1] if known and known[0] == X._name else count_rows(X)
        self._remember(X, lengths)
        return encode_partitions(X, spec, lengths)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the encoded columns."""
        check_is_fitted(self, "table_")
        return np.array(self.spec_of_table().names, dtype=object)

    def sources(self) -> dict[str, list[str]]:
        """Return each column of the table and the encoded columns that come from it."""
        check_is_fitted(self, "table_")
        return self.spec_of_table().sources

    def describe(self) -> list[tuple[str, str]]:
        """Return each column of the table and how it is encoded, in words."""
        check_is_fitted(self, "table_")
        return self.spec_of_table().describe()

    def spec_of_table(self) -> TableSpec:
        """Return what was learned, after a check of what may have come from a file."""
        return TableSpec.from_json(self.table_)

    def _choices(self) -> Choices:
        names = ("max_levels", "hash_columns", "min_frequency")
        numbers = checked_numbers({name: getattr(self, name) for name in names}, "TableEncoder")
        chosen = read_choices(self.columns)
        return Choices(chosen.kinds, chosen.formats, **numbers)

    def _keep(self, spec: TableSpec) -> Self:
        self.table_ = spec.to_json()
        self.feature_names_in_ = np.array(spec.inputs, dtype=object)
        self.n_features_in_ = len(spec.inputs)
        return self

    def _remember(self, X: Any, lengths: list[int]) -> None:
        """Keep the rows of the partitions of a frame, which is known by its name."""
        self._counted = (X._name, lengths)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        return tags


def _require_table(X: Any) -> None:
    if not (is_dask_frame(X) or is_frame(X)):
        raise DataError(
            f"X is a {type(X).__name__}, which has no named columns: give a DataFrame of pandas, "
            "polars or Dask, such as pandas.DataFrame(X, columns=[...]), or take rf.Standardizer "
            "for an array of numbers."
        )


def learn_table(table: Any, choices: Choices, where: str) -> TableSpec:
    """Learn the columns of a table in memory."""
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows: give some.")
    kinds = decide_kinds(table.to_batches(BATCH_ROWS), table.schema.names, choices, where)
    found = [
        summarize_block(block, kinds, choices, where, first)
        for first, block in numbered_batches(table)
    ]
    return conclude_all(join_summaries(found), kinds, choices, table.num_rows, where)


def require_columns(names: Sequence[str], spec: TableSpec, where: str) -> list[str]:
    """Refuse rows that lack a column; return those that are not looked at."""
    known = {column.name for column in spec.columns}
    left_out = match_columns(where, names, spec.inputs).left_out
    return [name for name in left_out if name not in known]


def learn_partitions(
    frame: Any, choices: Choices, client: Any = None, progress: Any = None
) -> tuple[TableSpec, list[int]]:
    """Learn the columns of a dask DataFrame; return them with the rows of each partition."""
    names, parts = frame_names(frame), frame.to_delayed()
    check_names("X", names)
    kinds = decide_kinds(arrow_blocks(parts, client), names, choices, "X")
    look = delayed(look_at_partition, pure=False)
    found: list[dict[str, Summary]] = []
    lengths: list[int] = []
    with track("looking at the columns", len(parts), "partitions", progress=progress) as report:
        tasks = (look(part, kinds, choices, place) for place, part in enumerate(parts))
        for rows, summary in run_tasks(tasks, current_client(client)):
            lengths.append(rows)
            found = [join_summaries([*found, summary])] if rows else found
            report.advance(1)
    if not found:
        raise DataError("X has no rows: give some.")
    return conclude_all(found[0], kinds, choices, sum(lengths), "X"), lengths


def count_rows(frame: Any, client: Any = None, progress: Any = None) -> list[int]:
    """Count the rows of each partition of a dask DataFrame, for which it is computed once."""
    parts = frame.to_delayed()
    count = delayed(len, pure=False)
    lengths = []
    with track("counting rows", len(parts), "partitions", progress=progress) as report:
        for rows in run_tasks(map(count, parts), current_client(client)):
            lengths.append(int(rows))
            report.advance(1)
    return lengths


def encode_partitions(frame: Any, spec: TableSpec, lengths: Sequence[int]) -> DaskArray:
    """Return the encoded rows of a dask DataFrame lazily, with a block for each partition."""
    width, name = len(spec.names), tokenize(frame, spec)
    call = delayed(encode_partition, pure=True)
    blocks = [
        da.from_delayed(
            call(part, spec, place, rows, dask_key_name=f"encode-{name}-{place}"),
            (rows, width),
            dtype=np.float32,
        )
        for place, (part, rows) in enumerate(zip(frame.to_delayed(), lengths, strict=True))
        if rows
    ]
    return da.concatenate(blocks) if blocks else da.empty((0, width), dtype=np.float32)
