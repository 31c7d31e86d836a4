"""Files and folders that get their name when they are complete and on the disk, and file locks.

Whatever the package writes to a local disk goes through here: :func:`atomic_file`,
:func:`atomic_folder` or :func:`replace_folder`. Locks are those of the operating system, which end
with the process that holds them.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import io
import os
import re
import shutil
import sys
import uuid
import warnings
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from rfcdask.persist.untrusted import NotReadableError, not_readable, redacted

UNFINISHED = ".unfinished"
"""What the name of an output ends in while it is written beside its place."""
PARTIAL = ".partial"  # what the name of a file ends in while it is written; as zarr ends them too

NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
"""What is said of a name that no file can have, or of links that lead back to themselves."""
_SENTENCES = {
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): (
        "no space left for {place} ({why}): what is whole stays; make room and {again}."
    ),
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST): (
        "no right to write to {place} ({why}): what is whole stays; change the rights or the "
        "destination and {again}."
    ),
    NO_NAME: "{place} cannot be written ({why}): choose another destination and {again}.",
}
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""What file systems say that know no locks, such as Lustre mounted without them."""


class DestinationError(OSError):
    """There is no space, or no right, to write where something should be written."""

    def __str__(self) -> str:
        return str(self.strerror)


@contextmanager
def disk_errors(
    place: object, again: str = "call the same again", kind: type[Exception] | None = None
) -> Iterator[None]:
    """Turn failures of the disk under `place` into sentences that say how to go on.

    They are raised as `kind`, a `DestinationError` unless given.
    """
    try:
        yield
    except DestinationError as error:  # a sentence already
        raise error if kind is None else kind(str(error)) from error
    except NotReadableError:
        raise
    except OSError as error:
        if os.path.isfile(error.filename or "") and not os.access(error.filename, os.R_OK):
            raise not_readable(error.filename) from error  # what is read, not what is written
        for numbers, sentence in _SENTENCES.items():
            if error.errno in numbers:
                why = os.strerror(error.errno)
                said = sentence.format(place=place, why=why, again=again)
                made = DestinationError(error.errno, said) if kind is None else kind(said)
                raise made from error
        raise


def require_flag(name: str, value: Any) -> None:
    """Refuse a text such as "no", which counts as true, where something may be replaced."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is neither True nor False.")


@contextmanager
def atomic_file(
    path: Path,
    mode: str = "wb",
    *,
    part: Path | None = None,
    shared: bool = False,
    lasting: bool = True,
) -> Iterator[IO[Any]]:
    """Open a file for writing that appears under its name when the block ends well.

    Parameters
    ----------
    path : path
        Its final name; what is there before stays until then. Folders above it are made.
    mode : {"wb", "w"}
        Bytes, or text with line ends as they are given.
    part : path, optional
        Its name while it is written.
    shared : bool
        Whether several processes may write it at once: each then has a name of its own meanwhile.
    lasting : bool
        Whether its bytes and its name reach the disk before the block is left: a record that is
        written afterwards is then never there without the file, whatever happens to the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = f".{uuid.uuid4().hex}" if shared else ""
    part = path.with_name(f"{path.name}{own}{PARTIAL}") if part is None else part
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    part.unlink(missing_ok=True)  # left by a process that was killed, or a link to something else
    try:
        with open(part, mode.replace("w", "x"), **text) as file:
            yield file
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if lasting:
        sync(path.parent)


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write an npz file, which appears under its name when it is complete."""
    import numpy as np

    # In memory first: on a full disk, numpy's archive fails once more when it is collected, and
    # Python prints that beside the error.
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    with atomic_file(path) as file:
        file.write(packed.getbuffer())


@contextmanager
def atomic_folder(target: Path, own: Collection[str]) -> Iterator[Path]:
    """Give a new folder to fill, which takes the name of `target` when the block ends well.

    Called with the lock of the target. `own` are patterns of the names in such a folder.
    """
    _remove_left_over(target, own)
    require_movable(target)
    refuse_others(target, own)
    # Not tempfile.mkdtemp: what it makes nobody else may read.
    work = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    work.mkdir()
    try:
        yield work
        replace_folder(work, target)
    except BaseException:
        discard(work)
        raise


def _remove_left_over(target: Path, own: Collection[str]) -> None:
    """Remove what `atomic_folder` left beside its target when it was killed, as the lock says.

    What was moved aside gets its name back where nothing took its place.
    """
    names = glob.escape(f".{target.name}-") + "[0-9a-f]" * 8
    for folder in (*target.parent.glob(names), *target.parent.glob(f"{names}-old")):
        ours = folder.is_dir() and not folder.is_symlink()
        if ours and not _others(folder, own):
            if folder.name.endswith("-old") and not target.exists():  # see _replace_in_two_steps
                folder.replace(target)
            discard(folder)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """Bring all files of a folder and their names to the disk.

    What others put there may be a link to nowhere, a pipe or a file that is closed to us.
    """
    folders = [Path(place) for place, _, _ in os.walk(folder)]
    found = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    files = [path for path in found if path.is_file() and os.access(path, os.R_OK)]
    # Many at once: the file system then writes its own records once for all of them.
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(sync, files))
        list(pool.map(sync, folders))


def local_path(path: str | os.PathLike[str], what: str = "models") -> Path:
    """Return the path of a model, its home expanded; a URL would become folders of its parts."""
    if "://" in os.fspath(path):
        raise ValueError(
            f"{redacted(os.fspath(path))} is a URL, and {what} are saved to and loaded from disks: "
            "give a path, and copy the folder."
        )
    return Path(os.path.expanduser(path))


def follow_link(path: Path) -> Path:
    """Return where a path leads that is a link itself, so that it stays a link.

    Links above it are left alone: on other machines of a cluster they may lead elsewhere.
    """
    for _ in range(40):  # as many as Linux follows
        if not os.path.islink(path):
            return path
        path = path.parent / path.readlink()
    said = f"{path} is a link that leads back to itself: remove it, or choose another destination."
    raise DestinationError(errno.ELOOP, said)


def links_in(folder: Path) -> Iterator[str]:
    """Yield the links below a folder, none of which is followed."""
    for place, folders, files in os.walk(folder):
        yield from filter(os.path.islink, (os.path.join(place, n) for n in (*folders, *files)))


def refuse_links(work: Path) -> None:
    """Refuse to go on in a folder with links, or behind one: what they lead to would change."""
    found = str(work) if os.path.islink(work) else next(links_in(work), None)
    if found is not None:
        said = f"{found} is a link, and nothing is written through one: remove {work}, and call"
        raise DestinationError(errno.ELOOP, f"{said} the same again.")


def require_movable(folder: Path) -> None:
    """Refuse to replace what cannot be, such as a volume of a container, before any work is done.

    Nor may there be no room in the name for what it is kept under meanwhile, or no right to remove
    it then: it would stay, and stand in the way of the next.
    """
    kept = backup_of(folder.with_name(folder.name + UNFINISHED))
    try:
        os.lstat(kept)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            said = f"{folder} has too long a name: choose one of at most 240 bytes."
            raise DestinationError(error.errno, said) from error
    for place in (folder, kept):
        if os.path.isdir(place) and not os.access(place, os.W_OK):
            said = f"no right to remove {place}: change its rights or choose another destination."
            raise DestinationError(errno.EACCES, said)
    stores = [p for p in folder.absolute().parents if (p / "manifest" / "zarr.json").is_file()]
    if stores and folder.is_dir():
        said = f"{folder} is part of the store {stores[0]}: choose a place outside of it."
        raise DestinationError(errno.EBUSY, said)
    if os.path.ismount(folder):
        said = f"{folder} is a mount point, and nothing can take the place of one: choose a folder"
        raise DestinationError(errno.EBUSY, f"{said} within it, or remove what lies there.")


def refuse_others(folder: Path, own: Collection[str]) -> None:
    """Refuse to replace a folder into which somebody put files of theirs, which would be lost."""
    names = _others(folder, own) if os.path.isdir(folder) else []
    if others := sorted(name for name in names if not name.startswith(".")):
        said = f"{folder} holds {', '.join(others[:3])}, which would be lost: move that away first."
        raise DestinationError(errno.ENOTEMPTY, said)


def _others(folder: Path, own: Collection[str]) -> list[str]:
    """Return the names in a folder that none of the patterns is of."""
    return [name for name in os.listdir(folder) if not any(fnmatchcase(name, one) for one in own)]


def is_partial(name: str) -> bool:
    """Tell a file that a killed process left half written from files of others."""
    return re.search(rf"\.[0-9a-f]{{32}}{re.escape(PARTIAL)}$", name) is not None


def restore_backup(work: Path, target: Path) -> None:
    """Give the older folder its name back, where `replace_folder` was killed in between."""
    if not target.exists() and os.path.exists(backup_of(work)):  # False for names too long
        backup_of(work).replace(target)


def backup_of(work: Path) -> Path:
    """Return the name that the older folder has while `work` takes its place."""
    return work.with_name(f"{work.name}-old")


def replace_folder(work: Path, target: Path) -> None:
    """Move a complete folder to its final name; an older one is kept until that is done.

    All of it reaches the disk first: a name that can be seen stands for what it says, also after
    the machine has lost its power.
    """
    sync_all(work)
    old = backup_of(work)
    discard(old)  # left by a process that was killed here
    if not target.exists():
        work.replace(target)
    elif not _exchange(work.replace(old), target):
        _replace_in_two_steps(old.replace(work), target, old)
    sync(target.parent)
    discard(old)


def _exchange(one: Path, other: Path) -> bool:
    """Let two names change places at once, where the system can; return whether it did."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE in linux/fs.h
    return rename is not None and not rename(
        here, os.fsencode(one), here, os.fsencode(other), exchange
    )


def _replace_in_two_steps(work: Path, target: Path, old: Path) -> None:
    """Move the old folder aside first: for an instant neither has the name."""
    target.replace(old)
    try:
        work.replace(target)
    except BaseException:
        old.replace(target)
        raise


def discard(path: Path) -> None:
    """Remove a file or folder, if it is there; of a link the link, never what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def lock_path(path: Path) -> Path:
    """Return the name of the lock that guards a file or folder, in the folder that it lies in."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def exclusive_lock(path: Path, refusal: Exception) -> Iterator[None]:
    """Hold the lock of a file, which is made for it and removed; raise `refusal` if it is taken.

    A file that a killed process left is harmless: its lock went with the process.
    """
    if sys.platform == "win32":
        yield
        return
    handle = _take(path, refusal)
    try:
        yield
    finally:
        # Removed while the lock is held: whoever waits for it looks again whether it still counts.
        # Where it cannot be removed any more, it stays and is harmless.
        with suppress(OSError):
            if _is_that_file(handle, path):
                path.unlink(missing_ok=True)
        os.close(handle)


def _take(path: Path, refusal: Exception) -> int:
    import fcntl

    while True:
        handle = _open(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_that_file(handle, path):
                return handle
        except OSError as error:
            if error.errno in _NO_LOCKS:
                _note_no_locks(path)
                return handle
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):  # NFS says either
                raise refusal from None
            raise OSError(error.errno, f"{error.strerror}; remove this lock", str(path)) from error
        os.close(handle)  # the process before removed this file: the lock is another one now


def _note_no_locks(path: Path) -> None:
    warnings.warn(
        f"The file system of {path.parent} knows no locks: see to it that no other process writes "
        "there meanwhile.",
        RuntimeWarning,
        stacklevel=5,
    )


def _open(path: Path) -> int:
    """Open the file, never through a link and without waiting; what lies there stays as it is.

    For writing, although nothing is written: over NFS only such a file can be locked. What another
    user left is opened for reading, which is enough for a disk of this machine.
    """
    how = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        try:
            return os.open(path, os.O_RDWR | how, 0o666)
        except PermissionError:
            # Not to be made: in a folder for all, Linux lets nobody "make" a file of another user.
            with suppress(FileNotFoundError):
                return os.open(path, os.O_RDONLY | how & ~os.O_CREAT)
            raise
    except (PermissionError, IsADirectoryError) as error:
        if not os.path.lexists(path):
            raise
        said = f"the lock {path} cannot be opened ({error.strerror}): remove it, and call again."
        raise DestinationError(error.errno, said) from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        said = f"the lock {path} is a link, and no lock is taken through a link: remove it."
        raise DestinationError(errno.ELOOP, said) from None


def _is_that_file(handle: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
