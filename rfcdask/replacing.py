"""Folders that take their name when they are whole: what was there before stays until then."""

from __future__ import annotations

import shutil
from pathlib import Path

UNFINISHED = ".unfinished"
"""What the name of an output ends in while it is written beside its place."""


def put_in_place(work: Path, target: Path) -> None:
    """Move a complete folder to its final name; an older one is kept until that is done."""
    if not target.exists():
        work.replace(target)
        return
    old = work.with_name(f"{work.name}-old")
    target.replace(old)
    try:
        work.replace(target)
    except BaseException:
        old.replace(target)
        raise
    shutil.rmtree(old)
