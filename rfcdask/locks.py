"""One process at a time: locks of the operating system, which go with the process that has them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_process(path: Path, refusal: Exception) -> Iterator[None]:
    """Hold the lock of a file, which is made for it and stays; raise `refusal` if it is taken."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise refusal from None
        yield
