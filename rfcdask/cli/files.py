"""What commands read and write: DATA a store or a file, outputs whole or not there."""

from __future__ import annotations

import glob
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os.path import exists
from pathlib import Path
from typing import IO, Any

import click

from rfcdask.cli import UnfinishedError, on_interrupt
from rfcdask.cli.options import is_quiet, reading_arguments
from rfcdask.display import UNSHOWABLE, printable
from rfcdask.persist import files
from rfcdask.persist.files import UNFINISHED, follow_link, replace_folder
from rfcdask.persist.untrusted import redacted


def note(text: str) -> None:
    """Say something on stderr, unless ``--quiet``."""
    if not is_quiet():
        with suppress(OSError):  # nobody may be reading it, and the work goes on
            click.echo(printable(redacted(text)), err=True)


def show(data: Any, text: str, as_json: bool) -> None:
    """Print a result: as JSON for machines, else as text."""
    sys.stdout.write((to_json(data) if as_json else printable(redacted(text))) + "\n")
    sys.stdout.flush()


def to_json(data: Any) -> str:
    """Return strict JSON: numbers of numpy as numbers, what is not finite as null, no passwords."""
    from rfcdask.pipeline.folder import plain

    text = json.dumps(redacted(plain(data)), indent=1, ensure_ascii=False, allow_nan=False)
    # JSON escapes some of what commands a terminal, not all; within it these are in texts alone.
    return UNSHOWABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def unfinished(dest: str | os.PathLike[str]) -> Path:
    """Return where an output is written before it is complete."""
    target = follow_link(Path(dest))
    return target.with_name(target.name + UNFINISHED)


def require_free(dest: str, overwrite: bool, *inputs: str) -> Path:
    """Refuse a destination that is taken, or is an input, before any work is done."""
    if "://" in dest:
        raise ValueError(
            f"{redacted(dest)} is a URL, and nothing but stores of rows is written to one: give a "
            "path, and copy what is there then."
        )
    target = Path(dest)
    if target.exists() and any(map(target.samefile, _read_by(inputs, target))):
        raise FileExistsError(f"{dest} is what is read: choose another destination.")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{dest} exists already: pass --overwrite to replace it.")
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise FileExistsError(f"{dest} is a pipe or a device: choose another destination.")
    for parent in target.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise NotADirectoryError(f"{dest} cannot be written: {parent} is not a folder.")
            break
    return target


def _read_by(inputs: tuple[str, ...], target: Path) -> Iterator[str]:
    """Name the files that inputs stand for: themselves, by a pattern, or within a folder."""
    for text in inputs:
        path = re.sub("^(file|local)://", "", text)
        yield from (name for name in (path, *glob.iglob(path, recursive=True)) if exists(name))
        if target.is_file() and target.resolve().is_relative_to(Path(path).resolve()):
            yield str(target)


@contextmanager
def _writing(dest: str, overwrite: bool, *inputs: str) -> Iterator[Path]:
    """Keep others out of a destination, and yield where it leads if it is a link."""
    target = follow_link(require_free(dest, overwrite, *inputs))
    refusal = FileExistsError(f"another process is writing {dest}: wait for it.")
    with files.disk_errors(dest):
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.exclusive_lock(files.lock_path(target), refusal):
            files.restore_backup(unfinished(target), target)
            require_free(dest, overwrite, *inputs)  # nobody else puts one there from now on
            yield target


@contextmanager
def whole_file(dest: str, *, overwrite: bool = True, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that takes its name when the block ends well."""
    if Path(dest).is_dir():
        raise IsADirectoryError(f"{dest} is a folder: give the path of a file.")
    with (
        _writing(dest, overwrite) as target,
        files.atomic_file(target, mode, part=unfinished(target)) as file,
    ):
        yield file


@contextmanager
def whole_folder(dest: str, *, overwrite: bool = True) -> Iterator[Path]:
    """Give a folder to fill that takes its name, and its time, when the block ends well.

    Unlike a store it is never gone on with, and has a name of its own meanwhile.
    """
    with (
        _writing(dest, overwrite) as target,
        files.atomic_folder(target, ("zarr.json", "c")) as work,
    ):
        yield work
        os.utime(work)


@contextmanager
def whole_store(dest: str, overwrite: bool, *inputs: str) -> Iterator[str]:
    """Give the path at which to write a store; it takes its name when the block ends well.

    A store that is not local is written in place: it is marked as unfinished until it is done, and
    no command reads it before.
    """
    if "://" in dest:
        on_interrupt(f"Interrupted: call the same command again to go on with {dest}.")
        yield dest
        return
    dest = os.path.expanduser(dest)  # as `ingest` itself does
    target = Path(dest)
    if store_state(target) is False:  # begun by rfcdask.ingest in Python
        yield dest
        return
    from rfcdask.data.location import Location
    from rfcdask.data.manifest import beside

    with _writing(dest, overwrite, *inputs) as place:
        if place.exists() and not (place / "zarr.json").is_file():
            raise FileExistsError(f"{dest} is no store: remove it, or choose another destination.")
        files.require_movable(place)
        beside(Location.to_write(place))  # refuses to replace files of others
        work = unfinished(target)
        files.refuse_links(work)
        if store_state(work):  # killed before it took its name; what was asked is not known now
            Location.of(work).delete(last="zarr.json")
        said = f"Interrupted: call the same command again to go on; {work} keeps what is done."
        on_interrupt(said)
        yield str(work)
        move_into_place(work, target)
        on_interrupt(f"Interrupted; {dest} is whole.")  # called again, it would be taken


def move_into_place(work: Path, target: Path) -> None:
    """Give a finished folder its name, and its time: make compares the times of folders too."""
    os.utime(work)
    replace_folder(work, follow_link(target))


def store_state(path: Path) -> bool | None:
    """Tell a finished store (True) from an unfinished one (False) and from anything else (None)."""
    try:
        attributes = json.loads((path / "zarr.json").read_text())["attributes"]
        return bool(attributes["complete"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


@contextmanager
def opened_data(
    path: str,
    options: dict[str, Any],
    client: Any = None,
    read: Callable[[Path], Any] | None = None,
) -> Iterator[Any]:
    """Open DATA; a file is read into a store that is gone afterwards.

    Parameters
    ----------
    path : str
        DATA as it was given.
    options : dict
        Values of the options for files.
    client : distributed.Client or None
        Where the rows will be read: its workers must see the store.
    read : callable, optional
        What writes the file to a store at a path; as the options say unless given.
    """
    if is_store(path):
        from rfcdask.data.location import require_shared
        from rfcdask.data.store import open_dataset

        require_shared(client, reads=[Path(path).absolute()])
        yield open_dataset(path)
        return
    from rfcdask.data import ingest

    remote = client is not None and getattr(client, "cluster", None) is None
    with tempfile.TemporaryDirectory(prefix="rfcdask-", dir="." if remote else None) as folder:
        place = Path(folder).absolute() / "data.zarr"
        note(f"{path} is no store: reading it into a temporary one first.")
        dataset = read(place) if read else ingest(path, place, **reading_arguments(options))
        if dropped := dataset.attrs["dropped_rows"]:
            rows = "1 row is" if dropped == 1 else f"{dropped:,} rows are"
            why = "left out for values that are not finite, and no result stands there"
            note(f"{path}: {rows} {why}.")
        yield dataset


def is_store(path: str) -> bool:
    """Tell a store from a file, and say so where neither is there or an ingest was interrupted.

    Nothing is imported for a local path: commands ask this before they start anything.
    """
    if "://" in path:
        return _is_remote_store(path)
    place = Path(path)
    state = store_state(place)
    if state is False or (not place.exists() and unfinished(place).exists()):
        raise UnfinishedError(
            f"{path} is unfinished: run the command that writes it again, it goes on where it "
            "stopped."
        )
    require_file(path)
    return bool(state)


def require_file(path: str) -> None:
    """Refuse a local path at which there is nothing, unless it is a pattern."""
    if not ("://" in path or any(mark in path for mark in "*?[") or Path(path).exists()):
        raise FileNotFoundError(f"{path} does not exist: give the path of a store or a file.")


def _is_remote_store(path: str) -> bool:
    from rfcdask.data.errors import UnfinishedStoreError
    from rfcdask.data.sources import detect_format
    from rfcdask.data.store import open_dataset

    if detect_format(path) != "zarr":
        return False
    try:
        open_dataset(path)
    except UnfinishedStoreError:
        raise
    except ValueError:
        return False
    return True


def check_data(path: str, options: dict[str, Any], *others: str) -> None:
    """Refuse DATA that is not there, and options that do not go with it.

    `others` are options of the command that count for files alone, beside those that all have.
    """
    if not is_store(path):
        return
    given = [*reading_arguments(options), *(x for x in others if options[x] is not None)]
    if given:
        name = given[0].replace("_", "-")
        raise click.UsageError(f"--{name} tells how to read a file, but {path} is a store.")


def standardized(dataset: Any, wanted: bool | None) -> tuple[Any, bool]:
    """Return rows of mean 0 and variance 1 if wanted, or if the values say so, and whether."""
    from rfcdask.linear.transform import wants_standardizing

    chosen = wants_standardizing(dataset) if wanted is None else wanted
    return (dataset.standardize() if chosen else dataset), chosen


def scoring_of(dataset: Any, path: str, wanted: str | None) -> str:
    """Return the metric for the labels of a store; refuse rows without labels."""
    from rfcdask.linear import check_scoring

    if dataset.y is None:
        raise ValueError(f"{path} has no labels to judge by: name the label column with --label.")
    numbers = dataset.classes is None
    return check_scoring(None if wanted == "auto" else wanted, numbers=numbers)
