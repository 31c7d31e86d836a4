"""DATA on the command line: a store, or a file that is read into one first."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from rfcdask.cli.common import note
from rfcdask.cli.errors import UnfinishedError
from rfcdask.cli.outputs import store_state, unfinished

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS = ("svmlight", "csv", "parquet", "npy", "npz", "zarr")
TASKS = ("auto", "classification", "regression")


def file_options(function: Function) -> Function:
    """Add what a file may need to be read: ``--format``, ``--label``, ``--no-labels``, ..."""
    for option in reversed(
        (
            click.option("--format", type=click.Choice(FORMATS), help="Format of the file."),
            click.option(
                "--label",
                metavar="NAME|NUMBER",
                callback=_column,
                help="Label column of a table; the array or file of labels of npz and npy.  "
                "[default: the column named label, target, class or y]",
            ),
            click.option("--no-labels", is_flag=True, help="The rows have no labels."),
            click.option("--delimiter", help="Between the fields of a CSV file."),
            click.option(
                "--header/--no-header", default=None, help="Whether a CSV file names its columns."
            ),
            click.option(
                "--zero-based/--one-based",
                default=None,
                help="How svmlight columns are counted.",
            ),
            click.option(
                "--drop-nan", is_flag=True, help="Leave out rows with values that are not finite."
            ),
        )
    ):
        function = option(function)
    return function


def _column(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    return int(value) if value and value.lstrip("-").isdigit() else value


def reading_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of :func:`file_options` as arguments of ``rfcdask.ingest``."""
    given = {
        "format": options["format"],
        "delimiter": options["delimiter"],
        "header": options["header"],
        "label": False if options["no_labels"] else options["label"],
        "zero_based": options["zero_based"],
        "nan": "drop" if options["drop_nan"] else None,
    }
    return {name: value for name, value in given.items() if value is not None}


@contextmanager
def opened_data(
    path: str,
    options: dict[str, Any],
    client: Any = None,
    like: dict[str, Any] | None = None,
    *,
    labels: bool = True,
) -> Iterator[Any]:
    """Open DATA; a file is read into a store that is gone afterwards.

    Parameters
    ----------
    path : str
        DATA as it was given.
    options : dict
        Values of :func:`file_options`.
    client : distributed.Client or None
        Where the rows will be read: its workers must see the store.
    like : dict, optional
        What a model remembers of the data it was fitted on, for rows that should look the same.
    labels : bool
        Whether the labels of a file are of any use; if not, they may be anything.
    """
    if is_store(path):
        from rfcdask.data.store import open_dataset

        yield open_dataset(path)
        return
    remote = client is not None and getattr(client, "cluster", None) is None
    with tempfile.TemporaryDirectory(prefix="rfcdask-", dir="." if remote else None) as folder:
        place = Path(folder).absolute() / "data.zarr"
        note(f"{path} is no store: reading it into a temporary one first.")
        yield read_file(path, place, options, like, labels=labels)


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
    from rfcdask.data.detect import detect_format
    from rfcdask.data.errors import UnfinishedStoreError
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


def check_data(path: str, options: dict[str, Any]) -> None:
    """Refuse DATA that is not there, and options that do not go with it."""
    if is_store(path) and (given := reading_options(options)):
        name = next(iter(given)).replace("_", "-")
        raise click.UsageError(f"--{name} tells how to read a file, but {path} is a store.")


def read_file(
    path: str,
    place: Path,
    options: dict[str, Any],
    like: dict[str, Any] | None = None,
    *,
    labels: bool = True,
    **more: Any,
) -> Any:
    """Read a file into a store, rows shaped as those a model was fitted on."""
    import rfcdask as rf
    from rfcdask.data.errors import DataError

    given = reading_options(options)
    if like is not None:
        given = _as_before(path, like, given, labels)
    if labels or given.get("label") in (None, False):
        return rf.ingest(path, place, **given, **more)
    try:  # as numbers labels may be all the same, which classes must not
        return rf.ingest(path, place, **given | {"task": "regression"}, **more)
    except DataError as error:
        if "labels are text" not in str(error):
            raise
    return rf.ingest(path, place, **given, **more)


def _as_before(
    path: str, like: dict[str, Any], given: dict[str, Any], labels: bool
) -> dict[str, Any]:
    known = {"scale": like.get("scale"), "task": like.get("task") or "auto"}
    if like.get("projection"):
        known |= {"project": like["columns"], "random_state": like["projection"]["seed"]}
    kind = given.get("format") or _kind(path)
    if kind == "svmlight":
        known["n_columns"] = like["columns_in_file"]
    if not labels and kind in ("svmlight", "npz"):
        known["label"] = False
    if "label" not in given and kind in ("csv", "parquet"):
        known["label"] = _label_of(path, kind, like, given)
    return {k: v for k, v in known.items() if v is not None} | given


def _kind(path: str) -> str:
    from rfcdask.data.detect import detect_format, expand

    return detect_format(expand(path)[0])


def _label_of(path: str, kind: str, like: dict[str, Any], given: dict[str, Any]) -> Any:
    """Return the label column of a table, False when its columns are just those of the model."""
    from rfcdask.data.columns import LABEL_NAMES
    from rfcdask.data.csv_dialect import sniff
    from rfcdask.data.detect import expand

    first = expand(path)[0]
    if kind == "csv":
        names = sniff(first, given.get("delimiter"), given.get("header"))[1]
    else:
        import fsspec
        import pyarrow.parquet

        with fsspec.open(first, "rb") as file:
            names = tuple(pyarrow.parquet.read_schema(file).names)
    if like.get("label") is not None and like["label"] in names:
        return like["label"]
    known = [name for name in names if name.lower() in LABEL_NAMES]
    if like.get("label") is None and len(known) == 1:  # found by its name then, and so now
        return known[0]
    if len(names) == like["columns_in_file"]:
        return False
    if isinstance(like.get("label"), int):
        return like["label"]
    return known[0] if len(known) == 1 else None


def remember(dataset: Any, path: str, label: Any = None) -> dict[str, Any]:
    """Return what a model should know of its data to read new rows the same way."""
    projection = dataset.projection
    return {
        "path": path,
        "rows": dataset.shape[0],
        "columns": dataset.shape[1],
        "columns_in_file": dataset.shape[1] if projection is None else projection.n_columns,
        "task": dataset.attrs.get("task"),
        "scale": dataset.attrs.get("scale"),
        "label": label,
        "projection": None
        if projection is None
        else {"seed": projection.seed, "checksum": projection_checksum(projection)},
    }


def projection_checksum(projection: Any) -> int:
    """Return a number that tells two projections apart."""
    import zlib

    matrix = projection.matrix
    return zlib.crc32(matrix.data.tobytes(), zlib.crc32(matrix.indices.tobytes()))


def check_like(dataset: Any, path: str, like: dict[str, Any]) -> None:
    """Refuse rows that a model cannot take, before any work is done."""
    from rfcdask.data.errors import DataError

    if dataset.shape[1] != like["columns"]:
        raise DataError(
            f"{path} has {dataset.shape[1]} columns, but the model was fitted on "
            f"{like['columns']}: give rows with the same columns."
        )
    known = like.get("projection")
    if known and (
        dataset.projection is None or projection_checksum(dataset.projection) != known["checksum"]
    ):
        raise DataError(
            f"the rows of {path} did not go through the projection that the model was fitted "
            f"behind: ingest them with --project {like['columns']} --seed {known['seed']}."
        )
