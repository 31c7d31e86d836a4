"""DATA on the command line: a store, or a file that is read into one first."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rfcdask.cli.errors import UnfinishedError
from rfcdask.cli.options import reading_arguments
from rfcdask.cli.outputs import note, store_state, unfinished


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
    remote = client is not None and getattr(client, "cluster", None) is None
    with tempfile.TemporaryDirectory(prefix="rfcdask-", dir="." if remote else None) as folder:
        place = Path(folder).absolute() / "data.zarr"
        note(f"{path} is no store: reading it into a temporary one first.")
        dataset = read(place) if read else _ingest(path, place, options)
        if dropped := dataset.attrs["dropped_rows"]:
            rows = "1 row is" if dropped == 1 else f"{dropped:,} rows are"
            why = "left out for values that are not finite, and no result stands there"
            note(f"{path}: {rows} {why}.")
        yield dataset


def _ingest(path: str, place: Path, options: dict[str, Any]) -> Any:
    import rfcdask as rf

    return rf.ingest(path, place, **reading_arguments(options))


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
    from rfcdask.data.sources.detect import detect_format
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
    from rfcdask.linear.standardize import wants_standardizing

    chosen = wants_standardizing(dataset) if wanted is None else wanted
    return (dataset.standardize() if chosen else dataset), chosen


def scoring_of(dataset: Any, path: str, wanted: str | None) -> str:
    """Return the metric for the labels of a store; refuse rows without labels."""
    from rfcdask.evaluation.scorers import check_scoring

    if dataset.y is None:
        raise ValueError(f"{path} has no labels to judge by: name the label column with --label.")
    numbers = dataset.classes is None
    return check_scoring(None if wanted == "auto" else wanted, numbers=numbers)
