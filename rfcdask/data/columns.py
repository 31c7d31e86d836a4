"""Which column of a table is the label, and labels of a table as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rfcdask._types import Array
from rfcdask.data.errors import DataError

LABEL_NAMES = ("label", "target", "class", "y")


def default_label(name: str, columns: Sequence[str]) -> int:
    """Return the column whose name says that it is the label."""
    lowered = [column.lower() for column in columns]
    for known in LABEL_NAMES:
        if lowered.count(known) == 1:
            return lowered.index(known)
    raise DataError(
        f"{name} has no column named {', '.join(LABEL_NAMES)}: pass label= with one of the columns "
        f"{_shown(columns)}, or label=False for rows without labels."
    )


def choose_label(name: str, columns: Sequence[str], label: Any) -> int | None:
    """Return the place of the label column, given by name or number; None for False."""
    if label is False:
        return None
    if isinstance(label, str) and label in columns:
        return list(columns).index(label)
    if isinstance(label, int | np.integer) and -len(columns) <= label < len(columns):
        return int(label) % len(columns)
    raise DataError(f"{name} has no column {label!r}: its columns are {_shown(columns)}.")


def _shown(columns: Sequence[str], most: int = 30) -> str:
    more = f", ... ({len(columns)} in all)" if len(columns) > most else ""
    return ", ".join(repr(column) for column in columns[:most]) + more


def numeric_or_text(column: Any, text: bool | None) -> Array:
    """Turn a column of strings into numbers where all of them are numbers.

    Parameters
    ----------
    column : pyarrow array of strings
        Labels, null where missing.
    text : bool or None
        Whether labels are known to be text; None tries numbers first.
    """
    values = column.to_numpy(zero_copy_only=False)
    if text:
        return np.asarray(values, object)
    try:
        return np.array([np.nan if value is None else _number(value) for value in values])
    except ValueError:
        if text is False:
            raise
        return np.asarray(values, object)


def _number(text: str) -> float:
    if "_" in text:  # Python reads 1_0 as ten, and nobody else does
        raise ValueError(text)
    return float(text)
