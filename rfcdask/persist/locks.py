"""One process at a time: locks of the operating system, which go with the process that has them."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""What file systems say that know no locks, such as Lustre mounted without them."""


def lock_beside(path: Path) -> Path:
    """Return the name of the lock that guards a file or folder, in the folder that it lies in."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def only_process(path: Path, refusal: Exception) -> Iterator[None]:
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
            return os.open(path, os.O_RDONLY | how, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        what = "it is a link, and no lock is taken through a link; remove it"
        raise OSError(errno.ELOOP, what, str(path)) from None


def _is_that_file(handle: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
