"""A saved model, and new rows with the columns that it was fitted on.

Unlike the files of commands this one may import anything: commands import it when they are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from sklearn.pipeline import Pipeline

from rfcdask.cli import UnfinishedError
from rfcdask.cli.files import note, opened_data, unfinished
from rfcdask.cli.options import reading_arguments
from rfcdask.data import DataError, ingest
from rfcdask.data.columns import (
    LABEL_NAMES,
    choose_labels,
    match_columns,
    names_in_file,
    projection_checksum,
    quoted,
)
from rfcdask.data.sources import detect_format, expand
from rfcdask.data.sources.dialect import sniff
from rfcdask.data.sources.parquet import names_in_parquet
from rfcdask.persist.models import TRIALS, describe, folder_identity, load

Known = dict[str, Any]
"""What a model remembers of the data it was fitted on."""


class Saved(NamedTuple):
    """A saved model in three parts, and what it remembers of its data."""

    whole: Any
    features: Any
    learner: Any
    about: dict[str, Any]
    table: Any = None
    """What encodes the columns of a table before the first step, if anything does."""

    @property
    def data(self) -> dict[str, Any]:
        """What is known of its data; of a model that was saved in Python, what it says itself."""
        if _is_known(self.about.get("data")):
            return self.about["data"]
        first = self.whole[0] if hasattr(self.whole, "steps") else self.whole
        names = getattr(first, "columns_", getattr(first, "feature_names_in_", None))
        size = getattr(first, "n_features_in_", None)
        if size is None:
            raise DataError("the model was saved before it was fitted: fit it, and save it again.")
        if self.table is not None:
            names = self.table.get_feature_names_out()
        return {
            "columns": size,
            "columns_in_file": size,
            "column_names": None if names is None else [str(name) for name in names],
        }


def _is_known(data: Any) -> bool:
    """Tell what `fit` and `run` keep of their data from notes of one's own under that name."""
    if not isinstance(data, dict):
        return False
    sizes = [data.get(name) for name in ("columns", "columns_in_file")]
    names, projection = data.get("column_names"), data.get("projection")
    label, drawn = data.get("label_name"), {} if projection is None else projection
    return (
        all(isinstance(size, int) for size in sizes)
        and (names is None or (_are_names(names) and len(names) == sizes[1]))
        and (label is None or isinstance(label, str) or _are_names(label))
        and isinstance(drawn, dict)
        and (not drawn or {"seed", "checksum"} <= set(drawn))
    )


def _are_names(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def load_model(path: str, *, predicts: bool) -> Saved:
    """Load a model: a pipeline, or one of its steps alone; one that predicts, where it must."""
    if not Path(path).exists() and unfinished(path).exists():
        raise UnfinishedError(
            f"{path} is unfinished: run the command that writes it again, it goes on where it "
            "stopped."
        )
    if not (Path(path) / "model.json").is_file():
        raise FileNotFoundError(f"{path} is not a saved model: give a folder that fit wrote.")
    about, model = _read_whole(path)
    steps = model.steps if isinstance(model, Pipeline) else [("model", model)]
    table = None
    if hasattr(steps[0][1], "spec_of_table") and len(steps) > 1:
        (_, table), *steps = steps
        model = Pipeline(steps)
    learner = steps[-1][1] if hasattr(steps[-1][1], "predict") else None
    if learner is None and predicts:
        raise ValueError(
            f"{path} is a feature map without a learner: fit it with --learner svm or ridge."
        )
    before = steps if learner is None else steps[:-1]
    if learner is not None and hasattr(learner, "features_"):  # its features learned with it
        before = [*before, ("features", learner.features_)]
    known = about if isinstance(about, dict) else {}
    return Saved(model, Pipeline(before) if before else None, learner, known, table)


def _read_whole(path: str) -> tuple[Any, Any]:
    """Return what a model says of its data, and itself: another may take its place in between."""
    for _ in range(TRIALS):
        seen = folder_identity(Path(path))
        found = describe(path).get("about"), load(path)
        if folder_identity(Path(path)) == seen:
            return found
    raise UnfinishedError(f"{path} was replaced again and again while it was read: call again.")


@contextmanager
def rows_for(
    saved: Saved, data: str, options: dict[str, Any], client: Any, *, labels: bool
) -> Iterator[Any]:
    """Open DATA with the columns that a model needs, in its order."""
    like, given = saved.data, reading_arguments(options)
    if "columns" in given:
        raise click.UsageError(
            "--columns is for rows to learn from: a model takes new rows as those before."
        )

    def read(place: Path) -> Any:
        before = _as_before(data, like, given, labels, saved.table)
        dropped: list[Any] = []

        def check(survey: Any) -> None:
            dropped.append(survey.dropped)
            if "check" in before:
                before["check"](survey)

        dataset = _read_file(data, place, before | {"check": check}, like, labels)
        dataset.attrs["dropped_numbers"] = dropped[-1]
        return dataset

    with opened_data(data, options, client, read) as dataset:
        _check_table(dataset, data, saved.table)
        yield matched(dataset, data, like)


def _check_table(dataset: Any, path: str, table: Any) -> None:
    """Refuse rows that were encoded by what was learned of another table, or not at all."""
    found = dataset.attrs.get("table")
    if table is None and found is not None:
        others = [c["name"] for c in found["columns"] if c["kind"] != "number" or c.get("missing")]
        raise DataError(
            f"{path}: the model was fitted on numbers, and text, dates or missing values are in "
            f"{quoted(others)}: give rows of numbers."
        )
    if table is not None and found != table.table_:
        other = "were encoded by what was learned of another table than that of the model"
        raise DataError(
            f"the rows of {path} {other if found else 'are no encoded table, as the model takes'}: "
            "give the file that they came from."
        )


def _read_file(path: str, place: Path, given: dict[str, Any], like: Known, labels: bool) -> Any:
    """Read a file into a store; labels that nobody looks at may be anything."""
    if labels or given.get("label") in (None, False):
        try:
            return ingest(path, place, **given)
        except DataError as error:
            raise _in_words_of_the_model(error, like) from None
    try:  # as numbers labels may be all the same, which classes must not
        return ingest(path, place, **given | {"task": "regression"})
    except DataError as error:
        if "labels are text" not in str(error):
            raise
    return ingest(path, place, **given)


def _in_words_of_the_model(error: Exception, like: Known) -> Exception:
    """Return the fault of a file with the remedies that new rows for a model have."""
    said = str(error)
    if "beyond the largest index" in said:
        where = said.partition(": pass")[0]
        return DataError(f"{like['columns_in_file']} columns expected: {where}.")
    if "has an index below" in said:
        where = said.partition(": pass")[0]
        return DataError(
            f"{where}, and the rows that the model was trained on are counted from 1: count the "
            "columns as there, or train again with --zero-based."
        )
    if "all labels are of one class" in said:
        where = said.partition(": choose")[0]
        return DataError(
            f"{where}: score needs rows of two or more classes; predict, and transform with "
            "--no-label, take any."
        )
    return error


def _as_before(
    path: str, like: Known, given: dict[str, Any], labels: bool, encoder: Any = None
) -> dict[str, Any]:
    """Return how to read a file as that of the model was read, but for what is given."""
    known = {"scale": like.get("scale"), "task": like.get("task") or "auto"}
    if encoder is None:
        known["nan"] = "raise"  # the model knows of nothing to fill gaps with
    if like.get("projection"):
        known |= {"project": like["columns"], "random_state": like["projection"]["seed"]}
    kind = given.get("format") or detect_format(expand(path)[0])
    if kind == "svmlight":
        known["n_columns"] = like["columns_in_file"]
        if like.get("first_index") is not None:  # older models do not say
            known["zero_based"] = like["first_index"] == 0
    if not labels and kind in ("svmlight", "npz"):
        known["label"] = False
    table: dict[str, Any] = {}
    if kind in ("csv", "parquet"):
        table = _table_as_before(path, kind, like, given, labels, encoder)
    return {k: v for k, v in known.items() if v is not None} | given | table


def _table_as_before(
    path: str, kind: str, like: Known, given: dict[str, Any], labels: bool, encoder: Any
) -> dict[str, Any]:
    """Return how to read the columns that a model knows: by their names where both have some."""
    wanted = like.get("column_names") if encoder is None else encoder.spec_of_table().inputs
    names, named = _names_of_table(path, kind, given, wanted)
    label = given.get("label")
    place = None if label is None else choose_labels(path, names, label)
    places = [] if place is None else [place] if isinstance(place, int) else list(place)
    if not (wanted and named):
        if label is None:
            return {"label": _label_by_place(path, names, named, like)}
        _check_number(path, like["columns_in_file"], len(names) - len(places))
        return {}
    own = [names[one] for one in places] or _label_list(like)
    if both := [name for name in own if name in wanted]:
        raise click.UsageError(f"--label {both[0]} names a column that the model learned from.")
    return {
        "columns": wanted if encoder is None else encoder,
        "label": _label_by_name(names, wanted, own) if labels and label is not False else False,
        "check": lambda survey: note_left_out(path, survey.names.left_out, own),
    } | ({"header": True} if kind == "csv" else {})


def _names_of_table(
    path: str, kind: str, given: dict[str, Any], wanted: list[str] | None
) -> tuple[Sequence[str], bool]:
    """Return the names of a table's columns, and whether they are names rather than numbers."""
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


def _label_list(like: Known) -> list[str]:
    known = like.get("label_name")
    return [known] if isinstance(known, str) else list(known or ())


def _label_by_name(names: Sequence[str], wanted: Sequence[str], known: list[str]) -> Any:
    if known:
        return known if set(known) <= set(names) else False
    others = [name for name in names if name.lower() in LABEL_NAMES and name not in wanted]
    return others[0] if len(others) == 1 else False


def _label_by_place(path: str, names: Sequence[str], named: bool, like: Known) -> Any:
    """Return the label column of a table whose columns are matched by their number alone."""
    before = like.get("label", like.get("label_name"))  # older models kept what was given
    own = before if isinstance(before, list) else [before]
    if named and before is not None and set(own) <= set(names):
        return before
    known = [name for name in names if name.lower() in LABEL_NAMES]
    if named and before is None and len(known) == 1:  # found by its name then, and so now
        return known[0]
    place = before if isinstance(before, int) else like.get("label_column")
    more = len(place) if isinstance(place, list) else 1
    if len(names) == like["columns_in_file"] + more and (place is not None or len(known) == 1):
        return known[0] if place is None else place
    _check_number(path, like["columns_in_file"], len(names))
    return False


def _check_number(path: str, expected: int, found: int) -> None:
    if expected != found:
        label = ", and --label for the label" if found == expected + 1 else ""
        raise DataError(
            f"{path}: {expected} columns expected, {found} found: give rows with the columns that "
            f"the model was fitted on{label}."
        )


def note_left_out(path: str, names: Sequence[str], label: Sequence[str] = ()) -> None:
    """Say which columns of new rows are not looked at; the label goes without saying."""
    if extra := [name for name in names if name not in label]:
        said = f"columns {quoted(extra)} are" if len(extra) > 1 else f"column {extra[0]!r} is"
        note(f"{path}: {said} left out, because the model was fitted without.")


def matched(dataset: Any, path: str, like: Known) -> Any:
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
    known, found = like.get("projection"), names_in_file(dataset)
    if known and dataset.sparse and dataset.shape[1] == like["columns_in_file"]:
        dataset = dataset.project(like["columns"], known["seed"])
    wanted = like.get("column_names")
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


def _note_by_position(dataset: Any, path: str, like: Known) -> None:
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


def _note_other_scale(dataset: Any, path: str, like: Known) -> None:
    """Say that values are in another unit than those of the model, which may be meant."""
    known, found = (data.get("scale") or 1.0 for data in (like, dataset.attrs))
    if "scale" in like and known != found:
        note(
            f"{path}: values are multiplied by {found:g} on reading, and those that the model was "
            f"fitted on by {known:g}: ingest it with --scale {known!r} unless that is meant."
        )


def _check_projection(dataset: Any, path: str, like: Known) -> None:
    known, found = like.get("projection"), dataset.projection
    if known and (found is None or projection_checksum(found) != known["checksum"]):
        raise DataError(
            f"the rows of {path} did not go through the projection that the model was fitted "
            f"behind: ingest them with --project {like['columns']} --random-state {known['seed']}."
        )
    if "projection" in like and not known and found is not None:
        raise DataError(
            f"the rows of {path} are projected, and those that the model was fitted on were not: "
            "give the file that they came from."
        )
