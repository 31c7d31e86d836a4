"""Labels: which there are, what they mean, and how they are kept on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rfcdask.data.errors import DataError
from rfcdask.kernels.arrays import Array

TASKS = ("auto", "classification", "regression")
AUTO_CLASSES = 100
"""Whole-numbered labels with at most so many distinct values are taken for classes."""
MOST_CLASSES = 10_000


@dataclass(frozen=True)
class Labels:
    """What the labels of a data set are."""

    dtype: str  # on disk
    classes: tuple[Any, ...] | None  # sorted distinct labels; None for regression targets
    text: bool = False  # whether they are text, kept on disk as their positions in `classes`

    def encode(self, y: Array) -> Array:
        """Return labels as they are kept on disk."""
        if not self.text:
            return np.asarray(y).astype(self.dtype)
        names = np.asarray(self.classes)
        return np.searchsorted(names, np.asarray(y).astype(names.dtype)).astype(self.dtype)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Labels:
        """Rebuild what `dataclasses.asdict` made plain."""
        classes = data["classes"]
        return cls(data["dtype"], None if classes is None else tuple(classes), data["text"])


@dataclass
class LabelTally:
    """Collects the distinct labels, batch by batch, and gives up counting when there are many."""

    distinct: set[Any] = field(default_factory=set)
    text: bool = False
    whole: bool = True
    many: bool = False
    numbers: bool = False

    @property
    def mixed(self) -> bool:
        """Whether some batches were numbers and others text."""
        return self.text and self.numbers

    def add(self, y: Array) -> None:
        """Take the labels of some rows."""
        values = np.asarray(y)
        try:
            found = np.unique(values.astype(str) if is_text(values) else values)
        except UnicodeDecodeError as error:
            raise DataError(
                f"the labels are bytes and no plain text ({error.object[:20]!r}): decode them "
                "first, with numpy.char.decode."
            ) from None
        self.join(
            LabelTally(
                set(found.tolist()) if len(found) <= MOST_CLASSES else set(),
                is_text(values),
                is_text(values) or bool(np.all(found == np.rint(found.astype(np.float64)))),
                len(found) > MOST_CLASSES,
                not is_text(values),
            )
        )

    def join(self, other: LabelTally) -> None:
        """Take what another tally has seen."""
        self.distinct |= other.distinct
        self.text |= other.text
        self.numbers |= other.numbers
        self.whole &= other.whole
        self.many |= other.many or len(self.distinct) > MOST_CLASSES
        if self.many:
            self.distinct.clear()

    def conclude(self, name: str, task: str, dtype: Any = None) -> Labels:
        """Decide between classes and targets; `dtype` is the given type, None for text files."""
        if self.text and task == "regression":
            raise DataError(f"{name}: task='regression' needs numbers, but the labels are text.")
        if not self._are_classes(name, task):
            return Labels(np.dtype(dtype or np.float64).str, None)
        if dtype is None and not self.text:
            self._require_exact(name)
        if len(self.distinct) < 2:
            only = next(iter(self.distinct), "none")
            raise DataError(
                f"{name}: all labels are of one class ({only}): choose another label column, or "
                "pass label=False for rows without labels."
            )
        classes = tuple(sorted(self.distinct))
        if self.text:
            return Labels(np.min_scalar_type(len(classes) - 1).str, classes, text=True)
        if dtype is None and self.whole:
            return Labels(np.dtype(np.int64).str, tuple(int(value) for value in classes))
        return Labels(np.dtype(dtype or np.float64).str, classes)

    def _require_exact(self, name: str) -> None:
        """Refuse numbers in text that float64 may have rounded to the class beside them."""
        large = [value for value in self.distinct if abs(value) >= 2.0**53]
        if large:
            raise DataError(
                f"{name}: the label {large[0]:.0f} has so many digits that it cannot be told from "
                "its neighbours: give the classes smaller numbers, or pass task='regression'."
            )

    def _are_classes(self, name: str, task: str) -> bool:
        if task == "regression":
            return False
        if self.many and (task == "classification" or self.text):
            raise DataError(
                f"{name}: there are more than {MOST_CLASSES} distinct labels: choose another "
                "label column, or pass task='regression' for numbers."
            )
        if task == "classification" or self.text:
            return True
        return self.whole and not self.many and len(self.distinct) <= AUTO_CLASSES


def is_text(y: Array) -> bool:
    """Whether labels are strings (or bytes, or objects) rather than numbers."""
    return y.dtype.kind in "OUST"


def is_missing(y: Array) -> Array:
    """Return which labels are absent: NaN, None, or empty text."""
    if y.dtype.kind == "f":
        return ~np.isfinite(y)
    if y.dtype.kind == "O":
        return np.array([value is None or value == "" or value != value for value in y], bool)
    if y.dtype.kind in "UST":
        return np.asarray(y == y.dtype.type(""))
    return np.zeros(len(y), bool)
