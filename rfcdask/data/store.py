"""Opening a store as a data set, after making sure that it is one and that it is whole."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from types import NoneType
from typing import Any

import numpy as np
from dask.base import tokenize
from scipy import sparse

from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DamagedStoreError, DataError, UnfinishedStoreError
from rfcdask.data.layout import SPARSE_FORMAT, read_rows
from rfcdask.data.location import Location
from rfcdask.data.manifest import (
    REMEDY,
    Manifest,
    damage_as,
    index_bytes,
    known_manifest,
    read_manifest,
    seal_of,
    shard_key,
)
from rfcdask.data.reader import SparseReader, StoreReader, open_checked
from rfcdask.data.tables import TableSpec
from rfcdask.data.views import load_projection
from rfcdask.execution.cluster import current_client
from rfcdask.execution.executor import call_later, run_tasks
from rfcdask.execution.progress import track
from rfcdask.persist.chunks import CHUNK_BYTES, MOST_CHARACTERS, check_expansion
from rfcdask.persist.files import NO_NAME
from rfcdask.persist.untrusted import check_width, parse_json, require_memory, shown_cause


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
        Lazy rows and labels; nothing but metadata is read. Rows are checked when they are read,
        all of them at once by :meth:`Dataset.verify`.

    Raises
    ------
    UnfinishedStoreError
        The ingest that wrote it was interrupted.
    DamagedStoreError
        A file is missing or has another size than the manifest says, or the metadata are not those
        that were written.
    """
    return open_location(Location.of(path, storage_options))


def open_location(location: Location) -> Dataset:
    """Open the store at a location."""
    data, attrs, manifest = _read_marks(location)
    if manifest is not None:
        _check_bound(location, manifest, data)
    sizes = location.sizes()
    if manifest is None:
        warnings.warn(
            f"{location} was written by an earlier version, without a manifest: each chunk has a "
            "checksum, but swapped files or changed metadata would not be noticed; "
            "'rfcdask ingest OLD NEW' copies it to a store with a manifest.",
            UserWarning,
            stacklevel=3,
        )
    elif bad := _wrong_sizes(manifest, sizes):
        more = f", and {len(bad) - 1} more files ('rfcdask info --verify' names them)"
        raise DamagedStoreError(
            f"{location} is damaged: {next(iter(bad.values()))}{more if len(bad) > 1 else ''}: "
            f"{REMEDY}."
        )
    with damage_as(f"the metadata of {location}"):
        reader = _make_reader(location, manifest, attrs, sizes)
        _check_values(reader, attrs)
    projection = None
    if "projection/zarr.json" in (sizes if manifest is None else manifest.files):
        with damage_as(f"the projection in {location}"):
            projection = load_projection(location, manifest)
            _check_projection(projection, reader, attrs)
    meta = None
    if isinstance(reader, SparseReader):
        meta = sparse.csr_matrix((0, 0), dtype=reader.dtype)
    return Dataset(reader, attrs, projection=projection, meta=meta)


def _read_marks(location: Location) -> tuple[bytes, dict[str, Any], Manifest | None]:
    """Return the metadata, the attributes in them and the manifest of a finished store."""
    data, attrs = _read_attrs(location)
    try:
        _check_marks(location, attrs)
    except UnfinishedStoreError:
        raise
    except DataError:
        # What looks like another format, or like nothing of ours, may be a damaged byte.
        manifest = None
        with suppress(DamagedStoreError):
            manifest = read_manifest(location)
        if manifest is not None:
            _check_bound(location, manifest, data)
        raise
    manifest = read_manifest(location)
    if manifest is None and attrs["format"] > 1:
        raise DamagedStoreError(f"the manifest of {location} is missing: {REMEDY}.")
    return data, attrs, manifest


def _read_attrs(location: Location) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of the group's metadata and its attributes, or say that there are none."""
    try:
        data = location.read("zarr.json")
    except (OSError, ValueError) as error:
        answers = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError)
        known = isinstance(error, answers) or error.errno in NO_NAME
        if isinstance(error, DataError) or not known:
            raise
        raise DataError(
            f"there is no zarr v3 group at {location}: give the path of a store written by "
            "rfcdask.ingest."
        ) from shown_cause(error)
    with damage_as(f"{location}/zarr.json"):
        document = parse_json(data)
        if document["node_type"] != "group":
            raise DataError(
                f"{location} is a zarr array and no rfcdask store: pass it to rfcdask.ingest first."
            )
        return data, dict(document.get("attributes") or {})


def _check_marks(location: Location, attrs: dict[str, Any]) -> None:
    number = attrs.get("format")
    if "complete" not in attrs or number is None:
        raise DataError(
            f"{location} is a zarr group but no rfcdask store: pass it to rfcdask.ingest first."
        )
    if type(number) is not int or number < 1:
        raise DamagedStoreError(
            f"{location}/zarr.json is damaged (format is {number!r}): {REMEDY}."
        )
    if number > SPARSE_FORMAT:
        raise DataError(
            f"{location} has format {number}, this version reads up to {SPARSE_FORMAT}: update "
            "rfcdask."
        )
    if attrs["complete"] is not True:
        raise UnfinishedStoreError(
            f"{location} is unfinished, its ingest was interrupted: run the same ingest again to "
            "go on from the last whole block."
        )


def _check_bound(location: Location, manifest: Manifest, data: bytes) -> None:
    """Compare the attributes with the manifest."""
    try:
        manifest.check_file("zarr.json", data)
    except ValueError as error:
        raise DamagedStoreError(
            f"the attributes in {location}/zarr.json are not those that the manifest of the store "
            f"binds, somebody or something changed them: {REMEDY}."
        ) from error


def _wrong_sizes(manifest: Manifest, sizes: Mapping[str, int]) -> dict[str, str]:
    """Say of each file what the listing shows that it should not."""
    return {
        name: f"{name} has {sizes[name]} bytes instead of {size}"
        if name in sizes
        else f"{name} is missing"
        for name, size in manifest.sizes().items()
        if sizes.get(name) != size
    }


def _make_reader(
    location: Location,
    manifest: Manifest | None,
    attrs: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> StoreReader:
    """Take the blocks from the shards of X, or from its groups where rows are sparse."""
    labelled = attrs.get("labels") is not None
    several = attrs.get("labels") == "targets"
    y = open_checked(location, manifest, "targets" if several else "y") if labelled else None
    _check_index(y, sizes)
    if attrs["format"] == SPARSE_FORMAT and manifest is not None:
        return _make_sparse_reader(location, manifest, attrs, y)
    X = open_checked(location, manifest, "X")
    n_rows, block = X.shape[0], X.shards[0]
    n_blocks = -(-n_rows // block)
    _check_shards(location, manifest, n_rows, n_blocks, sizes)
    _check_index(X, sizes)
    if X.ndim != 2 or not _fit_together(y, several, n_rows, block):
        raise ValueError(f"X has shape {X.shape}, y {None if y is None else y.shape}")
    documents = X.metadata.to_dict(), str(y and y.metadata.to_dict())
    row_bytes, label_bytes = X.shape[1] * X.dtype.itemsize, _label_bytes(attrs, y)
    part = read_rows(block, X.chunks[0], row_bytes, label_bytes)
    _check_labels(min(part, n_rows), label_bytes)
    require_memory(min(part, n_rows) * row_bytes, "a block of its rows takes")
    check_expansion(X.nbytes, lambda: sum(n for k, n in sizes.items() if k.startswith("X/c/")))
    return StoreReader(
        location=location,
        fingerprint=tokenize(dict(attrs), *documents) if manifest is None else manifest.digest,
        sizes=tuple(min(part, n_rows - start) for start in range(0, n_rows, part)),
        n_columns=X.shape[1],
        block_rows=part,
        shard_rows=block,
        run_rows=X.chunks[0],
        stored_dtype=X.dtype.str,
        scale=attrs.get("scale"),
        has_manifest=manifest is not None,
        **_label_facts(attrs, y),
    )


def _make_sparse_reader(
    location: Location, manifest: Manifest, attrs: Mapping[str, Any], y: Any
) -> SparseReader:
    data = location.read("X/zarr.json")
    manifest.check_file("X/zarr.json", data)
    marks = json.loads(data)["attributes"]
    (n_rows, n_columns), block = map(int, marks["shape"]), int(marks["block_rows"])
    dtype = np.dtype(marks["dtype"])
    if min(n_rows, n_columns, block) < 1 or dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"X has shape {marks['shape']} and holds {marks['dtype']}")
    check_width(n_columns)
    if n_rows != manifest.n_rows or -(-n_rows // block) > len(manifest.files):
        raise ValueError(f"X declares {n_rows} rows, the manifest {manifest.n_rows}")
    if not _fit_together(y, attrs.get("labels") == "targets", n_rows, block):
        raise ValueError(f"X has {n_rows} rows, y {y.shape}")
    _check_labels(min(block, n_rows), _label_bytes(attrs, y))
    n_values = attrs["n_values"]
    if type(n_values) is not int or not 0 <= n_values <= n_rows * n_columns:
        raise ValueError(f"n_values is {n_values!r}")
    return SparseReader(
        location=location,
        fingerprint=manifest.digest,
        sizes=tuple(min(block, n_rows - start) for start in range(0, n_rows, block)),
        n_columns=n_columns,
        block_rows=block,
        shard_rows=block,
        run_rows=block,
        stored_dtype=dtype.str,
        scale=attrs.get("scale"),
        has_manifest=True,
        n_values=n_values,
        **_label_facts(attrs, y),
    )


def _fit_together(y: Any, several: bool, n_rows: int, block: int) -> bool:
    """Whether labels have the blocks of the rows, and as many columns as they should."""
    if y is None:
        return True
    width = y.shape[1:2]
    good = len(width) == several and (not several or width[0] > 1)
    return good and (y.shape, y.shards) == ((n_rows, *width), (block, *width))


def _label_bytes(attrs: Mapping[str, Any], y: Any) -> int:
    """Return what the labels of a row take as they are read; of text, the longest."""
    if y is None:
        return 0
    text = attrs.get("labels") == "text"
    item = 4 * max(map(len, attrs["classes"])) if text else int(y.dtype.itemsize)
    return item * math.prod(y.shape[1:])


def _check_labels(n_rows: int, label_bytes: int) -> None:
    if (size := n_rows * label_bytes) > CHUNK_BYTES:
        raise ValueError(f"labels of a block take {size:,} bytes, at most {CHUNK_BYTES:,} are read")


def _label_facts(attrs: Mapping[str, Any], y: Any) -> dict[str, Any]:
    return {
        "stored_label_dtype": None if y is None else y.dtype.str,
        "n_targets": int(y.shape[1]) if attrs.get("labels") == "targets" else None,
        "label_names": tuple(attrs["classes"]) if attrs.get("labels") == "text" else None,
    }


def _check_shards(
    location: Location,
    manifest: Manifest | None,
    n_rows: int,
    n_blocks: int,
    sizes: Mapping[str, int],
) -> None:
    """Compare the number of rows and shards that the metadata declare with what is there."""
    if manifest is not None:
        if n_rows != manifest.n_rows or n_blocks != len(manifest.shards["X"].sizes):
            raise ValueError(f"X declares {n_rows} rows, the manifest {manifest.n_rows}")
        return
    there = sum(name.startswith("X/c/") for name in sizes)
    if n_blocks > there:
        missing = next(i for i in range(n_blocks) if shard_key("X", i) not in sizes)
        raise DamagedStoreError(f"shard {missing} of array X is missing from {location}: {REMEDY}.")


def _check_index(array: Any, sizes: Mapping[str, int]) -> None:
    """Refuse shards of more chunks than a file lists: zarr counts them all, in memory."""
    if array is None or not array.shards:
        return
    n_chunks = math.prod(n // m for n, m in zip(array.shards, array.chunks, strict=True))
    largest = max((n for key, n in sizes.items() if key.startswith(f"{array.path}/c/")), default=0)
    if index_bytes(n_chunks) > largest:
        raise ValueError(f"{array.path} declares {n_chunks:,} chunks in a shard of {largest} bytes")


def _check_values(reader: StoreReader, attrs: Mapping[str, Any]) -> None:
    """Compare what the attributes say with each other and with the arrays."""
    classes, scale = attrs.get("classes"), reader.scale
    if [attrs["n_rows"], attrs["n_columns"]] != [sum(reader.sizes), reader.n_columns]:
        raise ValueError(f"n_rows is {attrs['n_rows']}, but X has {sum(reader.sizes)} rows")
    if max(map(len, reader.label_names or ()), default=0) > MOST_CHARACTERS:
        raise ValueError(f"a class has more than {MOST_CHARACTERS:,} characters")
    labels = (str,) if reader.label_names is not None else (bool, int, float)
    if classes is not None and not (
        _is_list(classes, labels) and classes and all(a < b for a, b in pairwise(classes))
    ):
        raise ValueError("classes is no list of different labels, sorted")
    if classes is not None and reader.n_targets is not None:
        raise ValueError("several targets have no classes")
    if classes is not None and np.asarray(classes, reader.label_dtype).tolist() != classes:
        raise ValueError("classes are no labels of their type")
    if reader.label_names is not None and (reader.stored_label_dtype or "??")[1] not in "bui":
        raise ValueError("text labels are not stored as whole numbers")
    if scale is not None and (
        type(scale) not in (int, float) or not math.isfinite(scale) or not scale
    ):
        raise ValueError(f"scale is {scale!r}")
    for name, kind in _OF_COLUMNS.items():
        if (values := attrs.get(name)) is None:
            continue
        if not _is_list(values, kind):
            raise ValueError(f"{name} is no list of what columns have")
        if kind is _NUMBER and not all(v is None or math.isfinite(v) for v in values):
            raise ValueError(f"{name} holds what is not finite")
        if name != "columns_in_file" and len(values) != reader.n_columns:
            raise ValueError(f"{name} has {len(values)} values for {reader.n_columns} columns")
    for name, kinds in _OF_SOURCE.items():
        if not isinstance(attrs.get(name), kinds):
            raise ValueError(f"{name} is {attrs[name]!r}")
    for name, one in (("label_name", str), ("label_column", int)):
        values = attrs.get(name)
        good = _is_list(values, one) and len(values or ()) == reader.n_targets
        if isinstance(values, list) and not good:
            raise ValueError(f"{name} does not name {reader.n_targets} targets")
    if attrs.get("table") is not None:
        TableSpec.from_json(attrs["table"])
    if isinstance(source := attrs.get("source"), list) and not (source and _is_list(source, str)):
        raise ValueError("source is no list of names")


def _check_projection(projection: Any, reader: StoreReader, attrs: Mapping[str, Any]) -> None:
    named = attrs.get("columns_in_file")
    if named is not None and len(named) != projection.n_columns:
        raise ValueError(f"it has {projection.n_columns} columns, {len(named)} of them have names")
    if projection.n_components != reader.n_columns:
        raise ValueError(f"it makes {projection.n_components} columns of {reader.n_columns}")


def _is_list(values: Any, kind: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


_NUMBER = (int, float, NoneType)  # None stands for infinity, which JSON does not know
_OF_COLUMNS = dict.fromkeys(("mean", "variance", "min", "max"), _NUMBER) | dict.fromkeys(
    ("columns", "columns_in_file"), (str,)
)
_OF_SOURCE = {
    "label_name": (str, list, NoneType),
    "label_column": (int, list, NoneType),
    "first_index": (int, NoneType),
    "source": (str, list, NoneType),
    "standardized": (str, NoneType),
}


def verify_location(location: Location, *, progress: Any = None, client: Any = None) -> int:
    """Read every byte of a store and compare it with the manifest.

    Returns
    -------
    int
        Bytes that were read.

    Raises
    ------
    DamagedStoreError
        With the name of every file that is missing or is not what was written.
    """
    *_, manifest = _read_marks(location)
    if manifest is None:
        raise DataError(
            f"{location} was written by an earlier version and has no manifest to compare it with: "
            "'rfcdask ingest OLD NEW' reads every chunk and writes a store with one."
        )
    bad, sizes = _wrong_sizes(manifest, location.sizes()), manifest.sizes()
    names = [name for name in sizes if name not in bad]
    tasks = (call_later(_file_problem, location, manifest.digest, name) for name in names)
    with track("verifying", sum(map(sizes.__getitem__, names)), "bytes", progress=progress) as bar:
        largest = max(sizes.values(), default=0)
        problems = run_tasks(tasks, current_client(client), block_bytes=largest)
        for name, problem in zip(names, problems, strict=True):
            bar.advance(sizes[name])
            if problem is not None:
                bad[name] = f"{name}: {problem}"
    if bad:
        raise DamagedStoreError(
            f"{location} is damaged, {len(bad)} of its {len(sizes)} files: "
            f"{'; '.join(bad.values())}: {REMEDY}."
        )
    return sum(sizes.values())


def _file_problem(location: Location, digest: str, name: str) -> str | None:
    """Say what is wrong with a file of a store; None when it is what was written."""
    seal = (manifest := known_manifest(location, digest)).seal(name)
    try:
        data = location.read(name)
        if seal is None:
            manifest.check_file(name, data)
        elif seal_of(data, len(seal.chunks), deep=True) != seal:
            return "it is not the shard that was written here"
    except FileNotFoundError:
        return "it is missing"
    except OSError:
        raise  # of the file system or the network: nothing is known to be damaged
    except ValueError as error:
        return str(error)
    return None
