"""Where a store lies: a local directory or any fsspec URL, small enough to travel in every task.

The second half asks whether the workers of a cluster see the same files as this process.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.core import url_to_fs
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from rfcdask.data.errors import DataError, reachable
from rfcdask.execution.failures import ask_workers
from rfcdask.persist.chunks import is_chunk
from rfcdask.persist.files import (
    PARTIAL,
    UNFINISHED,
    atomic_file,
    follow_link,
    is_partial,
    refuse_links,
    require_movable,
    sync_all,
)
from rfcdask.persist.untrusted import (
    redacted,
    require_absent,
    require_plain,
    rights_said,
    shown_cause,
    usable_url,
)

if TYPE_CHECKING:
    from distributed import Client

_LOCAL = ("file://", "local://")
_INDIRECT = re.compile(
    "async_?wrapper|blockcache|cached|dask|data|dir|filecache|generic|libarchive|reference|"
    "simplecache|tar|zip"
)
"""Protocols of fsspec that name other addresses, wherever those are, or hold the bytes."""
LOOKED_AT = 16
"""Files of a folder that are compared with those a worker sees under its name."""
UNUSABLE = (TypeError, ValueError, AttributeError)
"""What file systems raise of addresses and options that they cannot use."""


def _reaching(name: str) -> Any:
    """Return a method of zarr's store behind a URL whose failures are errors of this package."""

    async def call(self: FsspecStore, *args: Any, **options: Any) -> Any:
        with reachable(self.path, *UNUSABLE):
            return await getattr(FsspecStore, name)(self, *args, **options)

    return call


class _LocalStore(LocalStore):
    """A zarr store in a folder, of which only plain files are read."""

    async def get(self, key: str, *args: Any, **more: Any) -> Any:
        """Return the bytes of an object, None where there is none."""
        require_plain(self.root / key)
        with rights_said():
            found = await super().get(key, *args, **more)
        if found is None and is_chunk(key):  # zarr takes it for zeros
            require_absent(self.root / key, self.root)
        return found


class _RemoteStore(FsspecStore):
    """A zarr store behind a URL."""

    get = _reaching("get")
    get_partial_values = _reaching("get_partial_values")
    exists = _reaching("exists")
    set = _reaching("set")


def is_url(path: str) -> bool:
    """Tell fsspec URLs from local paths."""
    return "://" in path and not path.startswith(_LOCAL)


def file_system(path: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path within it.

    Of a local path it is that of this machine: '::' in it divides nothing and is part of a name.
    """
    if is_url(path):
        fs, root = url_to_fs(path)
        fs.invalidate_cache()  # others may have written there since a folder was listed
        return fs, str(root)
    here = fsspec.filesystem("file")
    return here, str(here._strip_protocol(path))


def path_text(path: Any, name: str = "the path") -> str:
    """Return a path or URL as text, after making sure that it can be one; file:// is left out.

    Parameters
    ----------
    path : path or URL
    name : str
        What the caller calls it, for the message.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        text = ""
    if text.startswith(_LOCAL):
        text = text.partition("://")[2]
    if not text:
        raise DataError(f"{name} is {path!r}: give a path or a URL.")
    if "\0" in text:
        raise DataError(f"{name} {text!r} holds a zero byte, which no name of a file may hold.")
    if is_url(text):
        protocol = usable_url(text).partition("://")[0]
        if "::" in text or _INDIRECT.fullmatch(protocol):
            raise DataError(
                f"{text} leads from one address to another ('::', zip://, reference://), and what "
                "is there may be any file: unpack or copy it to a disk or a bucket, and give the "
                "address of that (of an IPv6 server all parts, as in [0:0:0:0:0:0:0:1])."
            )
        try:
            fsspec.get_filesystem_class(protocol)
        except (ValueError, ImportError) as error:
            raise DataError(
                f"{redacted(text)} cannot be opened ({error}): give a local path or an address "
                "such as s3://bucket/name, and install what its protocol needs."
            ) from shown_cause(error)
    return text


def reaching(path: str, *also: type[Exception]) -> AbstractContextManager[None]:
    """Turn failures of the network, if the path leads there, into errors of this package."""
    return reachable(redacted(path), *also) if is_url(path) else nullcontext()


@dataclass(frozen=True)
class Location:
    """A directory of objects, local or remote."""

    url: str  # an absolute local path, or an fsspec URL such as s3://bucket/higgs.zarr
    options: tuple[tuple[str, Any], ...] = ()  # of the file system, as dict.items gives them

    @classmethod
    def of(cls, path: str | os.PathLike[str], options: dict[str, Any] | None = None) -> Location:
        """Make a location that means the same in every worker, whatever its directory."""
        text = path_text(path)
        if not is_url(text):
            text = str(Path(os.path.expanduser(text)).absolute())
        named = isinstance(options, Mapping) and all(isinstance(name, str) for name in options)
        if options is not None and not named:
            raise DataError(
                "storage_options is no dictionary of options by name: give those that the file "
                "system of the address takes, or leave it out."
            )
        url = text.rstrip("/")
        if not url or url.endswith(":") != text.endswith(":"):
            raise DataError(f"{text} is all of a file system and no place in it: name a folder.")
        return cls(url, tuple(sorted(dict(options or {}).items())))

    @classmethod
    def to_write(cls, path: Any, options: dict[str, Any] | None = None) -> Location:
        """Make the location of something new; a link that is there leads to its place."""
        place = cls.of(path, options)
        if not place.is_local and re.search(r"[*?\[]", place.url):
            raise DataError(
                f"{place} holds '*', '?' or '[', by which file systems behind a URL find and "
                "remove others too: choose a name without them."
            )
        if not place.is_local:
            return place
        return replace(place, url=str(follow_link(Path(place.url))))

    def __str__(self) -> str:
        return str(redacted(self.url))

    def __hash__(self) -> int:
        # Options may hold dictionaries, as those of S3 do, which have no hash.
        return hash(self.url)

    def __repr__(self) -> str:
        """Name the options without their values, which are credentials more often than not."""
        return f"Location({str(self)!r}, options={[name for name, _ in self.options]})"

    @property
    def is_local(self) -> bool:
        """Whether plain file operations reach it."""
        return not is_url(self.url)

    def overlaps(self, other: Location) -> bool:
        """Whether this is the same place as another, or one of them lies within the other."""
        (fs, here), (other_fs, there) = self.filesystem(), other.filesystem()
        ours, theirs = here.rstrip("/") + "/", there.rstrip("/") + "/"
        return type(fs) is type(other_fs) and (ours.startswith(theirs) or theirs.startswith(ours))

    def beside(self) -> Location:
        """Return where that is written which is to take this place, on a disk."""
        require_movable(Path(self.url))
        return Location.of(self.url + UNFINISHED)

    def store(self, *, read_only: bool = True) -> Store:
        """Return the zarr store of this place."""
        if self.is_local:
            return _LocalStore(self.url, read_only=read_only)
        with reaching(self.url, *UNUSABLE):
            return _RemoteStore.from_url(
                self.url, storage_options=dict(self.options) or None, read_only=read_only
            )

    def filesystem(self) -> tuple[Any, str]:
        """Return the fsspec file system and the path within it."""
        if self.is_local:
            return fsspec.filesystem("file"), self.url
        with reaching(self.url, *UNUSABLE):  # some connect at once
            fs, root = url_to_fs(self.url, **dict(self.options))
        return fs, str(root)

    @contextmanager
    def _at(self, name: str, *, anew: bool = True) -> Iterator[tuple[Any, str]]:
        """Yield the file system and a path in it; failures of the network are our errors.

        What others wrote or removed since a folder was listed is only seen when it is listed anew.
        """
        fs, root = self.filesystem()
        with reaching(self.url, *UNUSABLE):
            if anew:
                fs.invalidate_cache()
            yield fs, f"{root}/{name}" if name else root

    def exists(self, name: str = "") -> bool:
        """Whether there is an object or directory of that name below."""
        with self._at(name) as (fs, path):
            return bool(fs.exists(path))

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Return the bytes of one object, or a range of them."""
        with self._at(name, anew=False) as (fs, path):
            if self.is_local:
                require_plain(Path(path))
            with rights_said():
                data: bytes = fs.cat_file(path, start=start, end=stop)
        return data

    def write(self, name: str, data: bytes | memoryview, *, lasting: bool = False) -> None:
        """Write one object so that it is there whole or not at all.

        Only a `lasting` one is on the disk for certain, with all that :meth:`sync` was called for.
        """
        if not self.is_local:
            with self._at(name, anew=False) as (fs, path):
                fs.pipe_file(path, data if isinstance(data, bytes) else bytes(data))
            return
        # A task that is tried again may write the same object at the same time.
        with atomic_file(Path(self.url) / name, shared=True, lasting=lasting) as file:
            file.write(data)

    def sync(self) -> None:
        """Bring everything that was written to the disk; object stores do that by themselves."""
        if self.is_local:
            sync_all(Path(self.url))

    def delete(self, name: str = "", *, last: str | None = None) -> None:
        """Remove an object or everything below it, if it is there.

        Of a folder, what is named `last` goes last: whoever is interrupted finds by it what it was.
        """
        with self._at(name) as (fs, path):
            if not fs.exists(path):
                return
            if last is not None:
                first = [item for item in fs.ls(path, detail=False) if _last_part(item) != last]
                if first:
                    fs.rm(first, recursive=True)
                    fs.invalidate_cache()
            # Of a bucket all that lies in it: removed as a whole, it would be gone itself.
            whole = self.is_local or "/" in path.rstrip("/")
            if found := path if whole else fs.find(path):
                fs.rm(found, recursive=whole)

    def clear(self, *, last: str) -> None:
        """Remove all of it, and make sure: s3fs passes over what a bucket refused to remove."""
        self.delete(last=last)
        if not self.is_local and (left := next(iter(self.sizes()), None)):
            raise DataError(
                f"{self}/{left} could not be removed: get the right to delete there, or choose "
                "another destination."
            )

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the objects in a folder; none if it is not there."""
        with self._at(folder) as (fs, path):
            found = fs.ls(path, detail=False) if fs.exists(path) else []
        return sorted(map(_last_part, found))

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the sizes of all objects below a folder by their names, from one listing."""
        with self._at(folder) as (fs, path):
            top = str(fs._strip_protocol(path))
            found = fs.find(top, detail=True)
        return {str(path)[len(top) + 1 :]: self._size(item) for path, item in found.items()}

    def stamps(self, folder: str = "") -> dict[str, tuple[int, str | None]]:
        """Return size and time of all objects below a folder by their names."""
        with self._at(folder) as (fs, path):
            found = fs.find(path, detail=True)
        return {str(path): (self._size(item), file_time(item)) for path, item in found.items()}

    def _size(self, item: dict[str, Any]) -> int:
        if item["size"] is None:
            raise DataError(
                f"{self} lies on a server that lists files without their sizes: copy it to a disk "
                "or an object store (s3://bucket/name), and open that."
            )
        return int(item["size"])

    def sweep_partial_files(self) -> None:
        """Remove what a killed process left half written, from a folder without links."""
        if self.is_local:
            refuse_links(Path(self.url))
            for part in Path(self.url).rglob(f"*{PARTIAL}"):
                if is_partial(part.name):
                    part.unlink(missing_ok=True)

    def free_bytes(self) -> int | None:
        """Return the free space of the disk, None where nobody can know."""
        if not self.is_local:
            return None
        folder = Path(self.url)
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free


def _last_part(item: Any) -> str:
    return str(item).rstrip("/").rpartition("/")[2]


def file_time(info: Mapping[str, Any]) -> str | None:
    """Return when a file was written, as its file system says it; None where it does not."""
    stamp = info.get("mtime", info.get("LastModified", info.get("created")))
    return None if stamp is None else str(stamp)


def require_shared(
    client: Client | None,
    *,
    reads: Iterable[str | os.PathLike[str]] = (),
    writes: str | os.PathLike[str] = "",
) -> None:
    """Raise unless workers elsewhere see local paths as this process does.

    Workers that arrive later are not asked.

    Parameters
    ----------
    client : distributed.Client or None
        Nothing is asked of workers that this machine started for itself.
    reads : iterable of paths
        What will be read; paths at which there is nothing here are passed over.
    writes : path, optional
        A folder or file that will be written: a file is put beside it for the workers to find.

    Raises
    ------
    DataError
        Naming the first path that a worker does not see, and the worker.
    """
    if client is None or _is_local(client):
        return
    for path in (os.fspath(item) for item in reads):
        if (here := _file_facts(path)) is not None:
            _require_same(client, path, here)
    if writes and "://" not in os.fspath(writes):
        folder = Path(writes).absolute()
        while not folder.is_dir():
            folder = folder.parent
        with _marker(folder) as mark:
            if mark is not None:
                _require_same(client, str(folder), _file_facts(mark), mark)


def _is_local(client: Client) -> bool:
    from distributed import LocalCluster

    return client.asynchronous or isinstance(getattr(client, "cluster", None), LocalCluster)


@contextmanager
def _marker(folder: Path) -> Iterator[str | None]:
    """Put a file into a folder for a moment; None where that is not allowed: it is said later."""
    mark = folder / f".rfcdask-{uuid.uuid4().hex}"
    try:
        mark.write_text(mark.name, encoding="utf-8")
    except OSError:
        yield None
        return
    try:
        yield str(mark)
    finally:
        mark.unlink(missing_ok=True)


def _file_facts(path: str) -> list[Any] | None:
    """Return what tells two files, or two folders, of one name apart; None where there is none.

    Of a folder it is that of its first files: arrays of the same shape have the same zarr.json.
    """
    if os.path.isfile(path):
        with suppress(OSError), open(path, "rb") as file:
            return [os.stat(path).st_size, zlib.crc32(file.read(2**16))]
    if not os.path.isdir(path):
        return None
    found: list[Any] = [-1]
    for place, folders, names in os.walk(path):
        folders.sort()
        files = [os.path.join(place, name) for name in sorted(names)[:LOOKED_AT]]
        found += [[os.path.relpath(file, path), _file_facts(file)] for file in files]
        if len(found) > LOOKED_AT:
            break
    return found


def _require_same(client: Client, path: str, here: Any, look_at: str | None = None) -> None:
    for worker, there in ask_workers(client, _file_facts, look_at or path).items():
        if isinstance(there, Exception):
            raise there
        if there != here:
            seen = "does not see" if there is None else "sees something else at"
            raise DataError(
                f"the worker {worker} {seen} {path} of this machine: use a disk that the workers "
                "share under the same name, or an address such as s3://bucket/name, or work "
                "without that scheduler."
            )
