"""Rows as people have them: from whatever the caller has to a source of rows."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

from rfcdask.data.dataset import Dataset
from rfcdask.data.errors import DataError, faults_of, limits_of
from rfcdask.data.location import (
    UNUSABLE,
    Location,
    file_system,
    is_url,
    path_text,
    reaching,
)
from rfcdask.data.sources.arrays import (
    ArrayRows,
    CsrFile,
    Handle,
    InMemory,
    NpyFile,
    NpzMember,
    ZarrMember,
    unmasked,
)
from rfcdask.data.sources.base import Source
from rfcdask.data.sources.csv import CsvFiles
from rfcdask.data.sources.dask_arrays import DaskRows, DatasetRows
from rfcdask.data.sources.parquet import ParquetFiles
from rfcdask.data.sources.svmlight import SvmlightFiles
from rfcdask.data.sources.text import file_facts, stream_lines
from rfcdask.data.store import open_location
from rfcdask.execution.executor import compute
from rfcdask.kernels.arrays import as_csr, check_sparse, is_sparse
from rfcdask.persist.chunks import check_zarr
from rfcdask.persist.untrusted import check_zip, require_open, shown_cause

FORMATS = ("svmlight", "csv", "parquet", "npy", "npz", "zarr")
SUFFIXES = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
    ".zarr": "zarr",
}
_COMPRESSED = (".gz", ".bz2", ".xz")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
_FILE_SOURCES = {"svmlight": SvmlightFiles, "csv": CsvFiles, "parquet": ParquetFiles}
_X_NAMES = ("X", "x", "data", "X_train")
_Y_NAMES = ("y", "label", "labels", "target", "y_train")
Pair = tuple[Handle, Handle | None]
"""Rows, and labels where there are any."""
_TOLD_BY = 2**16  # bytes of the first line by which text without a known ending is told
_PAIR = re.compile(rb"^\s*([^\s:]+|\d+:\S+)(\s+qid:\d+)?(\s+\d+:\S+)*\s*(#.*)?$")


@contextmanager
def opened_source(
    source: Any, format: str | None, label: Any, client: Any = None
) -> Iterator[Source]:
    """Make a source of rows; what had to be unpacked for it is removed afterwards.

    Frames and labels of Dask, which may be kept on the cluster of `client`, are computed there.
    """
    if format is not None and str(format) not in FORMATS:
        raise DataError(f"format={format!r} is not one of {FORMATS}.")
    listed = source if isinstance(source, list | tuple) else [source]
    remote = [path for path in listed if isinstance(path, str) and is_url(path)]
    with reaching(remote[0] if remote else ""), ExitStack() as unpacked:
        if client is not None:
            unpacked.enter_context(client.as_current())
        yield _open(source, format, label, unpacked)


def _open(source: Any, format: str | None, label: Any, unpacked: ExitStack) -> Source:
    if isinstance(source, Dataset):
        return _from_dataset(source, label)
    source = _unwrapped(source)
    if isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "shape"):
        return _from_frame(*source) if _is_frame(source[0]) else _from_array(*source)
    if _is_frame(source):
        return _from_frame(source, label)
    if hasattr(source, "shape"):
        return _from_array(source, None if label is None or label is False else label)
    paths = expand(source)
    kinds = {format or detect_format(path) for path in paths}
    if len(kinds) > 1:
        raise DataError(f"the files have different formats {sorted(kinds)}: pass format=.")
    return _from_files(paths, kinds.pop(), label, unpacked)


def _unwrapped(source: Any) -> Any:
    """Return what an array or a data set of xarray holds: an array, lazy or not, or a frame."""
    if isinstance(source, tuple):
        return tuple(map(_unwrapped, source))
    if type(source).__name__ == "LazyFrame":
        raise DataError(
            "a LazyFrame of polars cannot be read in parts: pass frame.collect(), or write it with "
            "frame.sink_parquet(path) and give that path."
        )
    if type(source).__module__.partition(".")[0] != "xarray":
        return source
    if not hasattr(source, "data_vars"):
        return source.data
    frame = source.to_dask_dataframe()
    # A dimension without values of its own would be a column of row numbers.
    return frame[[name for name in frame.columns if name in source.variables]]


def _is_frame(source: Any) -> bool:
    """Whether rows come as a frame, which has columns with names."""
    arrow = hasattr(source, "__arrow_c_stream__") or hasattr(source, "to_dask_array")
    kind = type(source).__module__.partition(".")[0]
    return hasattr(source, "columns") and (arrow or kind == "pandas")


def _from_frame(frame: Any, label: Any) -> Source:
    from rfcdask.data.sources.tables import FrameRows

    own = label is None or isinstance(label, str | int | np.integer)
    if isinstance(label, list | tuple) and all(isinstance(one, str) for one in label):
        # Names of several targets, unless there is one text for each row.
        own = hasattr(frame, "to_dask_array") or len(label) != len(frame)
        own = own or {*label} <= {*frame.columns}
    return FrameRows(frame, None if own else label)


def _from_files(paths: list[str], kind: str, label: Any, unpacked: ExitStack) -> Source:
    if kind in _FILE_SOURCES:
        return _FILE_SOURCES[kind](paths)
    if kind == "npz":
        folder = unpacked.enter_context(tempfile.TemporaryDirectory(prefix="rfcdask-"))
        pairs = (_npz_pair(_here(path), label, f"{folder}/{i}") for i, path in enumerate(paths))
        return ArrayRows(tuple(pairs))
    if kind == "npy":
        return ArrayRows(_with_labels([NpyFile(_here(path)) for path in paths], label))
    return _from_zarr(paths, label)


def _here(path: str) -> str:
    """Return the path of a file that is mapped into memory, which no URL can be."""
    if is_url(path):
        raise DataError(f"{path} is read from a disk of this machine only: copy it there first.")
    return path


def expand(source: Any) -> list[str]:
    """Return the files that a path, a glob or a list of paths names."""
    if isinstance(source, list | tuple):
        if not source:
            raise DataError("no file was given.")
        return [path for item in source for path in expand(item)]
    text = path_text(source, "the source")
    with reaching(text, *UNUSABLE):
        found = _expand_text(text)
    for path in found:
        here = not is_url(path) and os.path.exists(path)
        if here and not os.path.isfile(path) and not os.path.isdir(path):
            raise DataError(
                f"{path} is a pipe or a device and cannot be read twice: write it to a file first."
            )
    return found


def _expand_text(text: str) -> list[str]:
    fs, root = file_system(text)
    prefix = f"{text.partition('://')[0]}://" if is_url(text) else ""
    marked = text.removeprefix(prefix)
    # An address of the web may have brackets around its server, and a query after a question mark.
    if prefix.startswith("http"):
        marked = marked.partition("/")[2].partition("?")[0]
    if any(mark in marked for mark in "*?[") and not fs.exists(root):
        found, refusal = fs.glob(root), f"no file matches {text}."
    elif not fs.exists(root):
        if is_url(text):  # a server in trouble, or closed to us, is told from one without the file
            with suppress(FileNotFoundError), reaching(text):
                fs.info(root)
        raise DataError(f"{text} does not exist: give the path of a file or a store.")
    elif _is_folder(fs, root) and not _is_zarr(fs, root):
        if not prefix:
            require_open(root)
        found = _parquet_files(fs, root, text)
        refusal = f"{text} is a folder without zarr store or Parquet files."
    else:
        return [text if prefix else str(Path(os.path.expanduser(text)).absolute())]
    if not found:
        raise DataError(refusal)
    return [f"{prefix}{name}" for name in sorted(found)]


def _parquet_files(fs: Any, root: str, text: str) -> list[str]:
    """Return the Parquet files of a folder; those in folders within it would be left out."""
    if fs.exists(f"{root}/_delta_log"):
        raise DataError(
            f"{text} is a Delta table, of whose files only some hold rows that it still has: write "
            "its rows to a Parquet file first."
        )
    found = [name for name in fs.find(root) if _known_format(name) == "parquet"]
    here = [name for name in found if os.path.dirname(name) == root.rstrip("/")]
    inner = [name.removeprefix(root).strip("/") for name in found]
    # Other programs keep what is no part of a table in folders whose names begin with these.
    inner = [name for name in inner if "/" in name and not re.search(r"(^|/)[._]", name)]
    if inner:
        alone = "/*.parquet for those of the folder alone, or in " if here else ""
        lost = ", without the columns that names of folders hold" if "=" in inner[0] else ""
        raise DataError(
            f"{text} has Parquet files in folders within it ({inner[0]}): give a pattern that "
            f"ends in {alone}/**/*.parquet for all{lost}."
        )
    return here


def _is_folder(fs: Any, root: str) -> bool:
    if "http" not in fs.protocol:
        return bool(fs.isdir(root))
    # A web server has no folders: to look for links, fsspec would fetch the whole file.
    return _known_format(root) in (None, "zarr") and "?" not in root and _is_zarr(fs, root)


def _is_zarr(fs: Any, root: str) -> bool:
    return any(fs.exists(f"{root.rstrip('/')}/{name}") for name in _ZARR_FILES)


def detect_format(path: str) -> str:
    """Tell the format by the ending of the name, else by the first line."""
    name = path_text(path)
    with reaching(path, *UNUSABLE):
        fs, root = file_system(name)
        if _is_folder(fs, root):
            return "zarr"
    known = _known_format(root)
    if known is not None:
        return known
    for text in stream_lines(path):
        for line in text.tobytes().splitlines():
            if line.strip() and not line.lstrip().startswith(b"#"):
                # Matching takes a hundred bytes of memory for each of a long line.
                head = line[:_TOLD_BY].rsplit(None, 1)[0] if len(line) > _TOLD_BY else line
                return "svmlight" if b":" in head and _PAIR.match(head) else "csv"
    raise DataError(f"{path} is empty: give a file with rows.")


def _known_format(path: str) -> str | None:
    """Return the format that the ending of a name stands for."""
    plain = path.lower()
    for ending in _COMPRESSED:
        plain = plain.removesuffix(ending)
    return SUFFIXES.get(Path(plain).suffix)


def _from_dataset(dataset: Dataset, label: Any) -> Source:
    known = dataset.attrs.get("label_name")
    given = list(label) if isinstance(label, tuple) else label
    if isinstance(label, str) and isinstance(known, list):
        given = [one.strip() for one in label.split(",")]
    own = label is None or label is False or (isinstance(given, str | list) and given == known)
    if not own:
        said = f"label={label!r}" if isinstance(label, str | int) else "label="
        raise DataError(
            f"{said}: a data set has its own labels{f' ({known})' if known else ''}: leave label= "
            "out, pass label=False for rows without labels, or give (dataset.X, y) for others."
        )
    return DatasetRows.of(dataset, labelled=label is not False)


def _from_array(X: Any, y: Any) -> Source:
    if isinstance(X, da.Array):
        return DaskRows(X, _lazy_labels(X, y))
    if isinstance(X, zarr.Array):
        return ArrayRows(((_opened_array(X), _label_handle(y)),))
    check_sparse(X)
    rows: Any = as_csr(X) if is_sparse(X) else unmasked(X)
    return ArrayRows(((InMemory(rows, "X"), _label_handle(y)),))


def _opened_array(array: zarr.Array[Any]) -> InMemory:
    name = f"zarr array {array.path or array.store}"
    with limits_of(name):
        check_zarr(array)
    return InMemory(array, name)


def _lazy_labels(X: Any, y: Any) -> Any:
    if y is None or isinstance(y, da.Array):
        return y
    labels = unmasked(y)
    if labels.shape[:1] != X.shape[:1]:
        return da.from_array(labels)  # the comparison of lengths will say so
    return da.from_array(labels, chunks=(X.chunks[0], *labels.shape[1:]))


def _label_handle(label: Any) -> Handle | None:
    if label is None or label is False:
        return None
    if isinstance(label, str | os.PathLike):
        path = expand(label)[0]
        if detect_format(path) == "npy":
            return NpyFile(_here(path))
        member = ZarrMember(Location.of(path))
        member.check_size()
        return member
    if isinstance(label, zarr.Array):
        return _opened_array(label)
    return InMemory(unmasked(compute(label) if isinstance(label, da.Array) else label), "y")


def _with_labels(rows: list[Any], label: Any) -> tuple[Pair, ...]:
    if label is None or label is False:
        return tuple((X, None) for X in rows)
    labels = label if isinstance(label, list) and len(rows) > 1 else [label]
    if len(labels) != len(rows):
        raise DataError(f"there are {len(rows)} files of rows but {len(labels)} of labels.")
    return tuple((X, _label_handle(y)) for X, y in zip(rows, labels, strict=True))


def _npz_pair(path: str, label: Any, folder: str) -> Pair:
    place = folder, file_facts(path)
    with faults_of(path, ".npz archive"), zipfile.ZipFile(path) as archive:
        check_zip(archive)
        if min((info.header_offset for info in archive.infolist()), default=0):
            # An archive behind other bytes: numpy takes such a file for a pickle.
            raise ValueError("it does not begin with an array")
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if len(set(names)) < len(names):
            raise DataError(f"{path} holds two arrays of the same name: write it again.")
    if set(names) >= CsrFile.MEMBERS:
        found = next((name for name in _Y_NAMES if name in names), None)
        given = found if label is None else None if label is False else label
        if given is not None and not (isinstance(given, str) and given in names):
            raise DataError(f"{path} has no array {given!r}: its arrays are {', '.join(names)}.")
        return CsrFile(path, *place), None if not given else NpzMember(path, given, *place)
    X, y = _choose_arrays(path, names, label, _X_NAMES, _Y_NAMES)
    if X == "data" and {"shape", "format"} <= set(names):  # its diagonals are no rows
        raise CsrFile(path, *place).of_other_format("DIA or COO")
    if y is None and label is None and len(names) > 1:
        raise DataError(
            f"{path}: which array holds the labels? Pass label= with one of {', '.join(names)}, or "
            "label=False."
        )
    return NpzMember(path, X, *place), None if y is None else NpzMember(path, y, *place)


def _choose_arrays(
    path: str, names: list[str], label: Any, X_names: Sequence[str], y_names: Sequence[str]
) -> tuple[str, str | None]:
    """Return which of several arrays holds the rows, and which the labels."""
    X = next((name for name in X_names if name in names), names[0] if len(names) == 1 else None)
    if X is None:
        raise DataError(f"{path} has no array named X: its arrays are {', '.join(names)}.")
    if label is None or label is False:
        found = None if label is False else next((n for n in y_names if n in names), None)
        return X, found
    if not isinstance(label, str):
        raise DataError(
            f"{path} holds several arrays: label= takes the name of one of them, or False."
        )
    if label not in names:
        raise DataError(f"{path} has no array {label!r}: its arrays are {', '.join(names)}.")
    return X, label


def _from_zarr(paths: list[str], label: Any) -> Source:
    places = [Location.of(path) for path in paths]
    found = [open_zarr(place) for place in places]
    stores = [isinstance(node, zarr.Group) and "complete" in node.attrs for node in found]
    if stores == [True]:
        return _from_dataset(open_location(places[0]), label)
    if any(stores):
        # Their arrays alone are not their rows: each has classes, a scale and a manifest.
        raise DataError(
            f"{places[stores.index(True)]} is a store of its own, and is not joined with others: "
            "open each with rfcdask.open_dataset, and give dask.array.concatenate of their X and "
            "of their y as a pair."
        )
    if all(isinstance(node, zarr.Array) for node in found):
        pairs = list(_with_labels([ZarrMember(place) for place in places], label))
    else:
        pairs = [_zarr_pair(place, node, label) for place, node in zip(places, found, strict=True)]
    for member in (part for pair in pairs for part in pair):
        if isinstance(member, ZarrMember):
            member.check_size()
    return ArrayRows(tuple(pairs))


def open_zarr(place: Location) -> Any:
    """Open a zarr array or group, of which only the metadata is read."""
    try:
        with faults_of(str(place), "zarr array or group"):
            return zarr.open(store=place.store(), mode="r")
    except FileNotFoundError as error:
        raise DataError(f"{place} is no zarr array or group.") from shown_cause(error)


def _zarr_pair(place: Location, group: Any, label: Any) -> Pair:
    with faults_of(str(place), "zarr group"):
        if group.metadata.consolidated_metadata is not None:
            names = sorted(group.array_keys())
        else:  # one by one: of two that are damaged, zarr leaves an error to asyncio
            nodes = {name: group.get(name) for name in place.names("")}
            # Where metadata lack a key, zarr finds nothing at all or, in format 2, a group.
            for name, node in nodes.items():
                files = _ZARR_FILES if node is None else (".zarray",)
                none = not isinstance(node, zarr.Array)
                if none and any(place.exists(f"{name}/{file}") for file in files):
                    raise ValueError(f"the metadata of {name} lack what those of an array have")
            names = [name for name, node in nodes.items() if isinstance(node, zarr.Array)]
    X, y = _choose_arrays(str(place), names, label, _X_NAMES[:3], _Y_NAMES[:1])
    return ZarrMember(place, X), None if y is None else ZarrMember(place, y)
