"""Arrays as a source: numpy, CSR, .npy and .npz files, zarr arrays, data sets of our own."""

from __future__ import annotations

import hashlib
import io
import math
import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import zarr
from dask.base import tokenize
from scipy import sparse

from rfcdask.data.errors import DataError, faults_of, limits_of
from rfcdask.data.layout import csr_row_bytes
from rfcdask.data.location import Location
from rfcdask.data.manifest import BoundedStore
from rfcdask.data.sources.base import BATCH_BYTES, Batch, Source, SourceOptions, Survey, Tally
from rfcdask.data.sources.text import file_facts
from rfcdask.execution.progress import track
from rfcdask.kernels.arrays import CSR, Array, is_sparse, native
from rfcdask.persist.chunks import (
    CHUNK_BYTES,
    NUMBERS_AND_TEXT,
    check_expansion,
    check_zarr,
    is_chunk,
    row_bytes,
)
from rfcdask.persist.files import atomic_file, disk_errors
from rfcdask.persist.untrusted import check_width, faults_as

NPY_HEADER = 2**16
_OTHER_FOLDER = "call the same again, or set TMPDIR to a folder with room"
_MANY_CHUNKS, _MOST_TARGETS = 10_000, 100_000


class Handle(ABC):
    """An array that may lie elsewhere, opened anew by whoever reads it."""

    name: str
    """What messages call it."""
    is_here = False
    """Whether the values lie in the memory of this process, or in a file that goes with it."""

    @abstractmethod
    def get(self) -> Any:
        """Return something with shape, dtype and slices of rows."""

    @abstractmethod
    def identity(self) -> Any:
        """Return a JSON value that changes with the array."""

    def cut(self, start: int, stop: int) -> Handle:
        """Return what a task needs of the array for these rows, under their old numbers."""
        return self


@dataclass(frozen=True)
class InMemory(Handle):
    """An array that is here, or an opened zarr array."""

    array: Any
    name: str

    @property
    def is_here(self) -> bool:  # type: ignore[override]
        return not isinstance(self.array, zarr.Array)

    def get(self) -> Any:
        return self.array

    def identity(self) -> Any:
        if self.is_here:
            return tokenize(self.array)
        array, place = self.array, zarr_place(self.array)
        # Its files by size and time, where there are any.
        facts = None if place is None else tokenize(place.stamps())
        return [str(array.store_path), list(array.shape), str(array.dtype), facts]

    def cut(self, start: int, stop: int) -> Handle:
        # A task should not carry all rows.
        if not self.is_here:
            return self
        part = CutArray(self.array[start:stop], start, self.array.shape, self.array.dtype)
        return InMemory(part, self.name)


def zarr_place(array: zarr.Array[Any]) -> Location | None:
    """Return where an opened zarr array lies; None where that is no folder, or nobody can know."""
    store: Any = array.store
    if (root := getattr(store, "root", None)) is not None:
        return Location.of(Path(root) / array.path)
    if (fs := getattr(store, "fs", None)) is None:
        return None
    fs = getattr(fs, "sync_fs", fs)  # zarr makes those without await look as if they had it
    options = {k: v for k, v in fs.storage_options.items() if k not in ("asynchronous", "loop")}
    return Location.of(f"{fs.unstrip_protocol(store.path)}/{array.path}", options)


@dataclass(frozen=True)
class CutArray:
    """Some neighbouring rows of an array that keep their numbers."""

    rows: Any
    start: int
    shape: tuple[int, ...]
    dtype: Any

    def __getitem__(self, span: slice) -> Any:
        """Return rows by the numbers they have in the whole array."""
        return self.rows[span.start - self.start : span.stop - self.start]


@dataclass(frozen=True)
class NpyFile(Handle):
    """A .npy file, of which rows are read as they are asked for."""

    name: str

    def get(self) -> Any:
        mapped = _map_file(self.name, self.name)
        by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
        return NpyRows(self.name, mapped.shape, mapped.dtype, mapped.offset, by_columns)

    def identity(self) -> Any:
        return file_facts(self.name)


@dataclass(frozen=True)
class NpyRows:
    """Rows of a .npy file. To touch the map of one that others cut meanwhile ends the process."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    offset: int
    by_columns: bool

    def __getitem__(self, span: slice) -> Array:
        count, others = span.stop - span.start, math.prod(self.shape[1:])
        with open(self.name, "rb", buffering=0) as file:
            if not self.by_columns:
                found = self._read(file, span.start * others, count * others)
                return found.reshape(count, *self.shape[1:])
            starts = range(span.start, self.shape[0] * others, self.shape[0])
            columns = [self._read(file, start, count) for start in starts]
        return np.stack(columns).reshape(*self.shape[:0:-1], count).T

    def _read(self, file: Any, start: int, count: int) -> Array:
        file.seek(self.offset + start * self.dtype.itemsize)
        if len(values := np.fromfile(file, self.dtype, count)) < count:
            raise ValueError("it is cut short")
        return values


def _map_file(name: str, shown: str) -> Any:
    with faults_of(shown, ".npy file of numbers or text"), open(name, "rb") as file:
        _npy_bytes(file, shown)
        return np.lib.format.open_memmap(name, mode="r")


@dataclass(frozen=True)
class NpzMember(Handle):
    """An array in a .npz file, unpacked to a folder and mapped from there."""

    archive: str
    member: str
    folder: str
    opened: Any  # facts of the archive: all arrays must be of the same one
    is_here = True  # unpacked on this machine; on others nobody would remove what was unpacked

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.archive}[{self.member}]"

    def get(self) -> Any:
        # Under a name of our own: theirs may lead to another folder.
        target = Path(self.folder) / hashlib.sha256(self.member.encode()).hexdigest()
        if not target.exists():
            # Several threads or workers may come at once: what they find must be whole.
            with (
                faults_of(self.name, ".npy file in a .npz archive"),
                disk_errors(self.folder, _OTHER_FOLDER, DataError),
                atomic_file(target, shared=True, lasting=False) as file,
            ):
                self._unpack(file)
        return _map_file(str(target), self.name)

    def _unpack(self, file: IO[bytes]) -> None:
        with zipfile.ZipFile(self.archive) as archive:
            info = archive.getinfo(f"{self.member}.npy")
            free = shutil.disk_usage(self.folder).free
            if info.file_size > free:
                raise DataError(
                    f"{self.name} unpacks to {info.file_size:,} bytes, and {free:,} are free in "
                    f"{self.folder}: set TMPDIR to a folder with room, or write it as .npy."
                )
            declared = _npy_bytes(archive.open(info), self.name)
            if info.file_size < declared or info.file_size > declared + NPY_HEADER:
                raise ValueError(f"{declared:,} bytes are declared, {info.file_size:,} are there")
            with archive.open(info) as packed:
                shutil.copyfileobj(packed, file, 2**20)
        if file_facts(self.archive) != self.opened:
            raise DataError(f"{self.archive} was changed while it was read: ingest it again.")

    def identity(self) -> Any:
        return [file_facts(self.archive), self.member]


@dataclass(frozen=True)
class CsrFile(Handle):
    """A CSR matrix as ``scipy.sparse.save_npz`` writes it; its parts are mapped, not read."""

    archive: str
    folder: str
    opened: Any
    is_here = True
    MEMBERS = frozenset({"data", "indices", "indptr", "shape", "format"})

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.archive

    def get(self) -> Any:
        return self._matrix

    def of_other_format(self, kind: str) -> DataError:
        """Return what is said of all but CSR."""
        return DataError(
            f"{self.archive} holds a sparse matrix of format {kind}: write it with "
            "scipy.sparse.save_npz(path, X.tocsr())."
        )

    @cached_property
    def _matrix(self) -> CSR:
        more = self.folder, self.opened
        parts = {name: NpzMember(self.archive, name, *more).get() for name in self.MEMBERS}
        with faults_of(self.archive, "CSR matrix"):
            kind = str(parts["format"].reshape(-1)[:1].astype(str)[0])  # or text, of old scipy
            if kind != "csr":
                raise self.of_other_format(f"{kind!r}")
            rows, columns = map(int, parts["shape"])
            values = tuple(parts[name] for name in ("data", "indices", "indptr"))
            matrix: CSR = sparse.csr_matrix(values, shape=(rows, columns), copy=False)
            matrix.check_format(full_check=True)
        return native(matrix)

    def identity(self) -> Any:
        return file_facts(self.archive)


def _npy_bytes(file: Any, shown: str) -> int:
    """Return how many bytes of values the header of a .npy file declares; none are objects."""
    head = io.BytesIO(file.read(NPY_HEADER))  # numpy reads as many bytes as a header says it has
    form = np.lib.format
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    version = form.read_magic(head)
    if version not in readers:
        raise ValueError(f"version {version} of the format holds records")
    shape, _, dtype = readers[version](head)
    if dtype.hasobject:  # as pandas has text
        raise DataError(f"{shown} holds Python objects: write it with .astype(str) or (float).")
    return math.prod(shape) * int(dtype.itemsize)


@dataclass(frozen=True)
class ZarrMember(Handle):
    """A zarr array."""

    location: Location
    member: str = ""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.location}/{self.member}" if self.member else str(self.location)

    def get(self) -> Any:
        with faults_of(self.name, "zarr array of numbers or text"):
            store = BoundedStore(self.location.store())
            array = zarr.open_array(store=store, path=self.member, mode="r")
        with limits_of(self.name):
            check_zarr(array)
            store.bind(array)
        return array

    def check_size(self) -> None:
        """Refuse an array that declares far more than is stored, or rows beyond a chunk."""
        array = self.get()
        with faults_of(self.name, "zarr array of numbers or text"):
            check_expansion(array.nbytes, lambda: int(array.nbytes_stored()))
            if array.nchunks > _MANY_CHUNKS:  # zarr looks for each: half a second a thousand
                files = sum(map(is_chunk, self.location.sizes(self.member)))
                stored = files * math.prod(array.shards or array.chunks) // math.prod(array.chunks)
                if array.nchunks > 100 * stored:
                    raise ValueError(f"it declares {array.nchunks:,} chunks and has {stored:,}")
            if (size := row_bytes(array)) > CHUNK_BYTES:
                raise ValueError(
                    f"its rows have {size:,} bytes, the most that is read is {CHUNK_BYTES:,}"
                )

    def identity(self) -> Any:
        array = self.get()
        facts = tokenize(self.location.stamps(self.member))  # all its files, by size and time
        return [self.name, list(array.shape), str(array.dtype), facts]


@dataclass(frozen=True)
class ArrayRows(Source):
    """Pairs of rows and labels, one after the other, as one set."""

    parts: tuple[tuple[Handle, Handle | None], ...]

    @property
    def names(self) -> list[str]:
        return [X.name for X, _ in self.parts]

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        return any(X.is_here for X, _ in self.parts)

    def identity(self) -> Any:
        return [[X.identity(), None if y is None else y.identity()] for X, y in self.parts]

    def narrowed(self, start: int, stop: int) -> ArrayRows:
        # Of labels in memory a task carries only those that it needs.
        if not any(y is not None and y.is_here for _, y in self.parts):
            return self
        parts: list[tuple[Handle, Handle | None]] = []
        begin = 0
        for X, y in self.parts:
            span = max(start - begin, 0), max(stop - begin, 0)
            parts.append((X, None if y is None else y.cut(*span)))
            begin += int(X.get().shape[0])
        return ArrayRows(tuple(parts))

    def survey(self, options: SourceOptions) -> Survey:
        """Compare shapes, look for values that are not finite, collect the labels."""
        arrays = [X.get() for X, _ in self.parts]
        labels = [None if y is None else y.get() for _, y in self.parts]
        for (X, y), rows, tags in zip(self.parts, arrays, labels, strict=True):
            check_pair(X.name, rows, "y" if y is None else y.name, tags)
        widths = {rows.shape[1] for rows in arrays}
        if len(widths) > 1:
            raise DataError(f"the arrays have different numbers of columns: {sorted(widths)}.")
        dtype = np.result_type(*(rows.dtype for rows in arrays)).newbyteorder("=")
        n_rows = sum(rows.shape[0] for rows in arrays)
        tally = Tally()
        with track("checking the rows", n_rows, "rows", progress=options.progress) as report:
            for batch in self.read(0, n_rows):
                tally.check(", ".join(self.names), tally.n_rows, *batch, drop=options.drop)
                report.advance(batch.X.shape[0])
        found = None
        if labels[0] is not None:
            given = np.result_type(*(tags.dtype for tags in labels if tags is not None))
            kind = None if tally.labels.text else given.newbyteorder("=")
            found = tally.labels.conclude(self.parts[0][0].name, options.task, kind)
        n_values = tally.n_values if all(map(is_sparse, arrays)) else None
        return Survey(n_rows, widths.pop(), dtype.str, found, tally.bad_rows, n_values=n_values)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield slices of the arrays."""
        begin = 0
        for X, y in self.parts:
            rows, labels = X.get(), None if y is None else y.get()
            end, step = begin + rows.shape[0], _batch_rows(rows, labels)
            del rows, labels
            for a in range(max(start, begin), min(stop, end), step):
                span = slice(a - begin, min(a + step, stop, end) - begin)
                yield _read_span(X, y, span)
            begin = end


def _batch_rows(rows: Any, labels: Any) -> int:
    """Return how many rows make a batch; whole chunks where these, and their labels, are small."""
    width = row_bytes(rows)
    if is_sparse(rows):
        width = csr_row_bytes(rows.nnz / rows.shape[0], rows.dtype)
    count = max(1, BATCH_BYTES // width)
    most = max(1, CHUNK_BYTES // max(width, 1 if labels is None else row_bytes(labels)))
    for chunk in (getattr(rows, "shards", None), getattr(rows, "chunks", None)):
        if chunk and chunk[0] <= most:
            return max(min(count, most) // chunk[0], 1) * int(chunk[0])
    return int(min(count, most) if getattr(rows, "chunks", None) is None else most)


def _read_span(X: Handle, y: Handle | None, span: slice) -> Batch:
    # Files are opened anew for every batch: the pages of a map count as memory until it goes.
    with faults_of(X.name, "array of rows"):
        rows = X.get()[span]
        values = rows if is_sparse(rows) else np.array(rows)
    if y is None:
        return Batch(values, None)
    with faults_of(y.name, "array of labels"):
        return Batch(values, flat(np.array(y.get()[span])))


def check_pair(name: str, X: Any, label_name: str, y: Any) -> None:
    """Refuse arrays that are no rows and labels of one another."""
    if len(X.shape) != 2 or 0 in X.shape:
        raise DataError(f"{name} has shape {tuple(X.shape)}: rows and columns are needed.")
    if np.dtype(X.dtype).kind not in "biuf" or np.dtype(X.dtype).itemsize > 8:
        raise DataError(f"{name} holds {X.dtype}, where numbers belong: encode text first.")
    if is_sparse(X):
        with faults_as(lambda why: DataError(f"{name}: {why}: give it fewer columns.")):
            check_width(X.shape[1])
    if y is None:
        return
    if y.dtype.kind not in NUMBERS_AND_TEXT + "O":
        raise DataError(f"{label_name} holds {y.dtype}: labels are numbers or text.")
    if y.dtype.kind == "f" and y.dtype.itemsize > 8:
        raise DataError(f"{label_name} holds {y.dtype}: use y.astype(float).")
    if len(y.shape) not in (1, 2) or not all(0 < n <= _MOST_TARGETS for n in y.shape[1:]):
        shape, most = tuple(y.shape), f"one label per row is needed, or up to {_MOST_TARGETS:,}"
        raise DataError(f"{label_name} has shape {shape}: {most} targets.")
    if len(y.shape) == 2 and y.shape[1] > 1 and y.dtype.kind not in "biuf":
        raise DataError(
            f"{label_name} has shape {tuple(y.shape)} and holds {y.dtype}: several targets must be "
            "numbers, or give one label per row."
        )
    if X.shape[0] != y.shape[0]:
        raise DataError(
            f"{name} has {X.shape[0]} rows but {label_name} has {y.shape[0]} labels: they must "
            "be equally many."
        )


def unmasked(values: Any) -> Array:
    """Return an array whose masked entries are missing, which `nan=` then rules on."""
    if not np.ma.is_masked(values):
        return np.asarray(values)
    numbers = values.dtype.kind in "biuf"
    found: Array = values.data.astype(
        np.result_type(values.dtype, np.float32) if numbers else object
    )
    found[np.ma.getmaskarray(values)] = np.nan if numbers else None
    return found


def flat(y: Any) -> Array:
    """Return labels as one row of values, also when they came as one column."""
    labels = unmasked(y)
    if labels.dtype.kind == "T":  # text of zarr, which numpy does not yet cast to its own
        labels = labels.astype(object)
    return labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
