"""DATA on the command line: a store, or a file that is read into one first."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
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
        from rfcdask.data.location import require_shared
        from rfcdask.data.store import open_dataset

        require_shared(client, reads=[Path(path).absolute()])
        yield open_dataset(path)
        return
    remote = client is not None and getattr(client, "cluster", None) is None
    with tempfile.TemporaryDirectory(prefix="rfcdask-", dir="." if remote else None) as folder:
        place = Path(folder).absolute() / "data.zarr"
        note(f"{path} is no store: reading it into a temporary one first.")
        dataset = read_file(path, place, options, like, labels=labels)
        _note_dropped(path, dataset)
        yield dataset


def _note_dropped(path: str, dataset: Any) -> None:
    if dropped := dataset.attrs["dropped_rows"]:
        rows = "1 row is" if dropped == 1 else f"{dropped:,} rows are"
        note(f"{path}: {rows} left out for values that are not finite, and no result stands there.")


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
        try:
            return rf.ingest(path, place, **given, **more)
        except DataError as error:
            raise _in_words_of_the_model(error, like) from None
    try:  # as numbers labels may be all the same, which classes must not
        return rf.ingest(path, place, **given | {"task": "regression"}, **more)
    except DataError as error:
        if "labels are text" not in str(error):
            raise
    return rf.ingest(path, place, **given, **more)


def _in_words_of_the_model(error: Exception, like: dict[str, Any] | None) -> Exception:
    """Return the fault of a file with the remedies that new rows for a model have."""
    from rfcdask.data.errors import DataError

    said = str(error)
    if like is not None and "beyond the largest index" in said:
        where = said.partition(": pass")[0]
        return DataError(f"{like['columns_in_file']} columns expected: {where}.")
    if like is not None and "all labels are of one class" in said:
        where = said.partition(": choose")[0]
        return DataError(
            f"{where}: score needs rows of two or more classes; predict, and transform with "
            "--no-labels, take any."
        )
    return error


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
    table = _table_as_before(path, kind, like, given, labels) if kind in ("csv", "parquet") else {}
    return {k: v for k, v in known.items() if v is not None} | given | table


def _kind(path: str) -> str:
    from rfcdask.data.sources.detect import detect_format, expand

    return detect_format(expand(path)[0])


def _table_as_before(
    path: str, kind: str, like: dict[str, Any], given: dict[str, Any], labels: bool
) -> dict[str, Any]:
    """Return how to read the columns that a model knows: by their names where both have some."""
    from rfcdask.data.columns import choose_label

    wanted = like.get("column_names")
    names, named = _names_of_table(path, kind, given, wanted)
    label = given.get("label")
    place = None if label is None else choose_label(path, names, label)
    if not (wanted and named):
        if label is None:
            return {"label": _label_by_place(path, names, named, like)}
        _check_number(path, like["columns_in_file"], len(names) - (place is not None))
        return {}
    own = like.get("label_name") if place is None else names[place]
    if own in wanted:
        raise click.UsageError(f"--label {own} names a column that the model learned from.")
    return {
        "columns": wanted,
        "label": _label_by_name(names, wanted, own) if labels and label is not False else False,
        "check": lambda survey: note_left_out(path, survey.names.left_out, own),
    } | ({"header": True} if kind == "csv" else {})


def _names_of_table(
    path: str, kind: str, given: dict[str, Any], wanted: list[str] | None
) -> tuple[Sequence[str], bool]:
    """Return the names of a table's columns, and whether they are names rather than numbers."""
    from rfcdask.data.sources.csv import sniff
    from rfcdask.data.sources.detect import expand
    from rfcdask.data.sources.parquet import names_in_parquet

    first = expand(path)[0]
    if kind == "parquet":
        return names_in_parquet(first), True
    dialect, names = sniff(first, given.get("delimiter"), given.get("header"))
    if not dialect.header and wanted and given.get("header") is None:
        # Names may look like numbers: a line with all names of the model is no row.
        line = sniff(first, dialect.delimiter, True)[1]
        if set(wanted) <= set(line):
            return line, True
    return names, dialect.header


def _label_by_name(names: Sequence[str], wanted: Sequence[str], known: str | None) -> Any:
    from rfcdask.data.columns import LABEL_NAMES

    if known is not None:
        return known if known in names else False
    others = [name for name in names if name.lower() in LABEL_NAMES and name not in wanted]
    return others[0] if len(others) == 1 else False


def _label_by_place(path: str, names: Sequence[str], named: bool, like: dict[str, Any]) -> Any:
    """Return the label column of a table whose columns are matched by their number alone."""
    from rfcdask.data.columns import LABEL_NAMES

    before = like.get("label", like.get("label_name"))  # older models kept what was given
    if named and before is not None and before in names:
        return before
    known = [name for name in names if name.lower() in LABEL_NAMES]
    if named and before is None and len(known) == 1:  # found by its name then, and so now
        return known[0]
    place = before if isinstance(before, int) else like.get("label_column")
    if len(names) == like["columns_in_file"] + 1 and (place is not None or len(known) == 1):
        return known[0] if place is None else place
    _check_number(path, like["columns_in_file"], len(names))
    return False


def _check_number(path: str, expected: int, found: int) -> None:
    from rfcdask.data.errors import DataError

    if expected != found:
        label = ", and --label for the label" if found == expected + 1 else ""
        raise DataError(
            f"{path}: {expected} columns expected, {found} found: give rows with the columns that "
            f"the model was fitted on{label}."
        )


def note_left_out(path: str, names: Sequence[str], label: str | None = None) -> None:
    """Say which columns of new rows are not looked at; the label goes without saying."""
    from rfcdask.data.columns import shown

    if extra := [name for name in names if name != label]:
        said = f"columns {shown(extra)} are" if len(extra) > 1 else f"column {extra[0]!r} is"
        note(f"{path}: {said} left out, because the model was fitted without.")


def matched(dataset: Any, path: str, like: dict[str, Any]) -> Any:
    """Return rows with the columns of a model in its order, or refuse them before any work is done.

    Parameters
    ----------
    dataset : Dataset
        The new rows.
    path : str
        What messages call them.
    like : dict
        What a model remembers of the data it was fitted on.
    """
    from rfcdask.data.columns import match_columns, names_in_file
    from rfcdask.data.errors import DataError

    wanted, found = like.get("column_names"), names_in_file(dataset)
    _note_other_scale(dataset, path, like)
    if not (wanted and found):
        _check_projection(dataset, path, like)
        _note_by_position(dataset, path, like)
        _check_number(path, like["columns"], dataset.shape[1])
        return dataset
    places, left_out = match_columns(path, found, wanted)
    _check_projection(dataset, path, like)
    if dataset.projection is None:
        note_left_out(path, left_out)
        return dataset.take_columns(places)
    if found != wanted:
        raise DataError(
            f"the rows of {path} were projected from columns in another order than those of the "
            "model: give the file that they came from, whose columns are put in order by name."
        )
    return dataset


def _note_by_position(dataset: Any, path: str, like: dict[str, Any]) -> None:
    """Say that columns are not matched by name, and why."""
    old = "was written before column names were kept"
    if "column_names" not in like:
        why = f"the model {old}"
    elif "format" in dataset.attrs and "columns" not in dataset.attrs:
        why = f"{path} {old}"
    elif like["column_names"]:
        why = f"{path} names no columns"
    elif dataset.columns:
        why = "the model was fitted on columns without names"
    else:
        return
    note(f"{why}: columns are taken by position.")


def _note_other_scale(dataset: Any, path: str, like: dict[str, Any]) -> None:
    """Say that values are in another unit than those of the model, which may be meant."""
    known, found = (data.get("scale") or 1.0 for data in (like, dataset.attrs))
    if "scale" in like and known != found:
        note(
            f"{path}: values are multiplied by {found:g} on reading, and those that the model was "
            f"fitted on by {known:g}: ingest it with --scale {known!r} unless that is meant."
        )


def _check_projection(dataset: Any, path: str, like: dict[str, Any]) -> None:
    from rfcdask.data.columns import projection_checksum
    from rfcdask.data.errors import DataError

    known, found = like.get("projection"), dataset.projection
    if known and (found is None or projection_checksum(found) != known["checksum"]):
        raise DataError(
            f"the rows of {path} did not go through the projection that the model was fitted "
            f"behind: ingest them with --project {like['columns']} --seed {known['seed']}."
        )
    if "projection" in like and not known and found is not None:
        raise DataError(
            f"the rows of {path} are projected, and those that the model was fitted on were not: "
            "give the file that they came from."
        )
