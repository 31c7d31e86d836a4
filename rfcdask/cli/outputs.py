"""What commands print, and outputs that are whole under their final name or not there at all.

Everything is written to ``NAME.unfinished`` beside its place and moved when it is done. What make
or Snakemake finds is complete, and a command that was killed goes on from what it left there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import click

from rfcdask.cli.errors import ReaderGoneError, on_interrupt
from rfcdask.cli.options import is_quiet
from rfcdask.persist import files
from rfcdask.persist.files import UNFINISHED, follow_link, replace_folder
from rfcdask.persist.untrusted import redacted


def note(text: str) -> None:
    """Say something on stderr, unless ``--quiet``."""
    if not is_quiet():
        with suppress(OSError):  # nobody may be reading it, and the work goes on
            click.echo(redacted(text), err=True)


def emit(text: str) -> None:
    """Write data to stdout; when nobody reads it any more, the command ends without a word."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None


def show(data: Any, text: str, as_json: bool) -> None:
    """Print a result: as JSON for machines, else as text."""
    emit(to_json(data) if as_json else redacted(text))


def to_json(data: Any) -> str:
    """Return strict JSON: numbers of numpy as numbers, what is not finite as null, no passwords."""
    from rfcdask.pipeline.folder import plain

    return json.dumps(redacted(plain(data)), indent=1, ensure_ascii=False, allow_nan=False)


def unfinished(dest: str | os.PathLike[str]) -> Path:
    """Return where an output is written before it is complete."""
    target = follow_link(Path(dest))
    return target.with_name(target.name + UNFINISHED)


def require_free(dest: str, overwrite: bool, *inputs: str) -> Path:
    """Refuse a destination that is taken, or is an input, before any work is done."""
    target = Path(dest)
    if any(target.exists() and os.path.exists(x) and target.samefile(x) for x in inputs):
        raise FileExistsError(f"{dest} is what is read: choose another destination.")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{dest} exists already: pass --overwrite to replace it.")
    for parent in target.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise NotADirectoryError(f"{dest} cannot be written: {parent} is not a folder.")
            break
    return target


@contextmanager
def whole_file(dest: str, *, overwrite: bool = True, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that takes its name when the block ends well."""
    target = require_free(dest, overwrite)
    if target.is_dir():
        raise IsADirectoryError(f"{dest} is a folder: give the path of a file.")
    with files.atomic_file(target, mode, part=unfinished(target)) as file:
        yield file


@contextmanager
def whole_store(dest: str, overwrite: bool) -> Iterator[str]:
    """Give the path at which to write a store; it takes its name when the block ends well.

    A store that is not local is written in place: it is marked as unfinished until it is done, and
    no command reads it before.
    """
    if "://" in dest:
        on_interrupt(f"Interrupted: call the same command again to go on with {dest}.")
        yield dest
        return
    target = Path(dest)
    if store_state(target) is False:  # begun by rfcdask.ingest in Python
        yield dest
        return
    require_free(dest, overwrite)
    if target.exists() and not (target / "zarr.json").is_file():
        raise FileExistsError(f"{dest} is no store: remove it, or choose another destination.")
    work = unfinished(target)
    on_interrupt(f"Interrupted: call the same command again to go on; {work} keeps what is done.")
    yield str(work)
    move_into_place(work, target)


def move_into_place(work: Path, target: Path) -> None:
    """Give a finished folder its name, and its time: make compares the times of folders too."""
    os.utime(work)
    replace_folder(work, follow_link(target))


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def store_state(path: Path) -> bool | None:
    """Tell a finished store (True) from an unfinished one (False) and from anything else (None)."""
    try:
        attributes = json.loads((path / "zarr.json").read_text())["attributes"]
        return bool(attributes["complete"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
