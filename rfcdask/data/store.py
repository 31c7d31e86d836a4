"""Opening a store as a data set, after making sure that it is one and that it is whole."""

from __future__ import annotations

import os
from typing import Any

import zarr
from dask.base import tokenize

from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DataError, UnfinishedStoreError
from rfcdask.data.layout import FORMAT
from rfcdask.data.location import Location
from rfcdask.data.projection import load_projection
from rfcdask.data.reader import StoreReader


def open_dataset(
    path: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> Dataset:
    """Open a store that :func:`rfcdask.ingest` wrote.

    Parameters
    ----------
    path : path or URL
        A local directory or any fsspec URL (``s3://``, ``gs://``, ``memory://``).
    storage_options : dict, optional
        Options of the remote file system, such as credentials.

    Returns
    -------
    Dataset
        Lazy rows and labels; nothing but metadata is read.

    Raises
    ------
    UnfinishedStoreError
        The ingest that wrote it was interrupted.
    """
    return open_location(Location.of(path, storage_options))


def open_location(location: Location) -> Dataset:
    """Open the store at a location."""
    group = open_group(location)
    attrs = dict(group.attrs)
    check_attrs(location, attrs)
    reader = make_reader(location, group, attrs)
    return Dataset(reader, attrs, projection=load_projection(group))


def open_group(location: Location) -> zarr.Group:
    """Open the zarr group, or say that there is none."""
    try:
        return zarr.open_group(store=location.store(), mode="r", zarr_format=3)
    except (FileNotFoundError, KeyError) as error:
        raise DataError(
            f"there is no zarr v3 group at {location}: give the path of a store written by "
            "rfcdask.ingest."
        ) from error


def check_attrs(location: Location, attrs: dict[str, Any]) -> None:
    """Refuse what is not a finished store of a known format."""
    number = attrs.get("format")
    if "complete" not in attrs or number is None:
        raise DataError(
            f"{location} is a zarr group but no rfcdask store: pass it to rfcdask.ingest first."
        )
    if number > FORMAT:
        raise DataError(
            f"{location} has format {number}, this version reads up to {FORMAT}: update rfcdask."
        )
    if not attrs["complete"]:
        raise UnfinishedStoreError(
            f"{location} is unfinished, its ingest was interrupted: run the same ingest again to "
            "go on from the last whole block."
        )


def make_reader(location: Location, group: zarr.Group, attrs: dict[str, Any]) -> StoreReader:
    """Take the blocks from the shards of X."""
    X: Any = group["X"]
    y: Any = group.get("y")
    n_rows, block = X.shape[0], X.shards[0]
    return StoreReader(
        location=location,
        fingerprint=tokenize(attrs, X.metadata.to_dict(), str(y and y.metadata.to_dict())),
        sizes=tuple(min(block, n_rows - start) for start in range(0, n_rows, block)),
        n_columns=X.shape[1],
        block_rows=block,
        run_rows=X.chunks[0],
        stored_dtype=X.dtype.str,
        scale=attrs.get("scale"),
        stored_label_dtype=None if y is None else y.dtype.str,
        label_names=tuple(attrs["classes"]) if attrs.get("labels") == "text" else None,
    )
