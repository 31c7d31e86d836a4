"""How a data set shows itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask.utils import format_bytes

if TYPE_CHECKING:
    from rfcdask.data.dataset import Dataset

MANY = 10
"""More classes than this are counted, not listed."""


def facts(dataset: Dataset) -> list[tuple[str, str]]:
    """Return what a reader wants to know first, as pairs of name and text."""
    n_rows, n_columns = dataset.shape
    reader = dataset.reader
    found = [
        ("rows", f"{n_rows:,}"),
        ("columns", f"{n_columns:,}{_names(dataset)}"),
        ("type", str(reader.dtype)),
        ("labels", _labels(dataset)),
        ("blocks", f"{len(reader.sizes)} of up to {max(reader.sizes):,} rows{_size(dataset)}"),
        ("order", "shuffled" if dataset.attrs.get("shuffled") else "as given"),
    ]
    if dataset.attrs.get("standardized"):
        found.append(("columns are", "standardized"))
    if dataset.projection is not None:
        found.append(("projected from", f"{dataset.projection.n_columns:,} columns"))
    source = dataset.attrs.get("source")
    return [*found, ("source", _short(source))] if source else found


def _names(dataset: Dataset) -> str:
    return f": {first_names(dataset.columns)}" if dataset.columns else ""


def first_names(names: list[str]) -> str:
    """Return some names, and dots for the others."""
    return ", ".join([*names[:MANY], *(["..."] if len(names) > MANY else [])])


def _short(source: object) -> str:
    if isinstance(source, list):
        more = f" and {len(source) - 1} more" if len(source) > 1 else ""
        return f"{source[0]}{more}"
    return str(source)


def _size(dataset: Dataset) -> str:
    reader = dataset.reader
    if reader.n_columns * reader.dtype.itemsize > 2**20:
        return ""
    return f", {format_bytes(max(reader.sizes) * reader.n_columns * reader.dtype.itemsize)}"


def _labels(dataset: Dataset) -> str:
    if dataset.reader.label_dtype is None:
        return "none"
    name = dataset.attrs.get("label_name")
    return _classes(dataset) + ("" if name is None else f" (column {name})")


def _classes(dataset: Dataset) -> str:
    classes = dataset.classes
    if classes is None:
        return "regression targets"
    if len(classes) > MANY:
        return f"{len(classes)} classes"
    return f"{len(classes)} classes: " + ", ".join(str(name) for name in classes)
