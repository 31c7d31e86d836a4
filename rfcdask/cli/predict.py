"""Commands that use a saved model: ``transform``, ``predict`` and ``score``."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rfcdask.cli import in_options
from rfcdask.cli import options as opt
from rfcdask.cli.files import (
    check_data,
    is_store,
    note,
    require_free,
    show,
    store_state,
    whole_file,
    whole_folder,
    whole_store,
)
from rfcdask.cli.stores import show_store

ENDINGS = (".csv", ".npy", ".zarr")
MOST_CLASSES = 20
"""Of more classes than this, those that are found least are printed."""


@click.command()
@click.argument("model")
@click.argument("data")
@click.argument("dest")
@opt.setting_options(block_size=None)
@opt.overwrite_option("a store")
@opt.file_options
@opt.work_options
def transform(model: str, data: str, dest: str, overwrite: bool, **options: Any) -> None:
    """Write the features that MODEL gives the rows of DATA to a store at DEST.

    DEST is a store like any other, with the labels of DATA where there are some: other commands
    read it, and so does rfcdask.open_dataset.

    \b
    Example:
      rfcdask transform model data.zarr features.zarr
    """
    import rfcdask as rf
    from rfcdask.cli.saved import load_model, rows_for

    check_data(data, options)
    saved = load_model(model, predicts=False)
    if saved.features is None:
        raise ValueError(f"{model} has no feature map: it learns from the columns themselves.")
    layout = {"block_size": options["block_size"]} if options["block_size"] else {}
    with (
        opt.session(options) as client,
        whole_store(dest, overwrite, data) as to,
        rows_for(saved, data, options, client, labels=True) as dataset,
    ):
        features = saved.features.transform(dataset.X)
        rows = features if dataset.y is None else (features, dataset.y)
        rf.ingest(
            rows,
            to,
            task=dataset.attrs.get("task") or "auto",
            overwrite=overwrite or not is_store(data),  # a temporary store is never the same again
            client=client,
            **layout,
        )
    show_store(dest, options["as_json"])


@click.command()
@click.argument("model")
@click.argument("data")
@click.argument("dest", default="-")
@click.option(
    "--output",
    type=click.Choice(["labels", "scores", "probabilities"]),
    default="labels",
    show_default=True,
    help="What to write of each row; probabilities need fit --learner logistic or --calibration.",
)
@opt.overwrite_option("a file")
@opt.file_options
@opt.scheduler_options("threads")
@opt.output_options
def predict(model: str, data: str, dest: str, output: str, overwrite: bool, **options: Any) -> None:
    """Write what MODEL predicts for the rows of DATA, in their order, to DEST.

    DEST ends in .csv, .npy or .zarr; - is CSV on stdout, and the default. Labels of DATA are not
    looked at. With --nan drop CSV has a column of the rows' numbers in DATA, counted from 0.

    \b
    Examples:
      rfcdask predict model new.csv predicted.csv
      rfcdask predict model data.zarr --quiet | sort | uniq -c
    """
    from rfcdask.cli.saved import load_model, rows_for

    _check_dest(dest, overwrite, data)
    check_data(data, options)
    saved = load_model(model, predicts=True)
    with (
        opt.session(options) as client,
        rows_for(saved, data, options, client, labels=False) as dataset,
    ):
        lazy = _lazily(saved, dataset.X, output)
        numbers = None
        if options["nan"] == "drop" and "dropped_numbers" in dataset.attrs:
            numbers = _numbers_without(dataset.attrs["dropped_numbers"])
        _write(lazy, _header(saved, output), dest, overwrite, client, numbers)
    if dest != "-":
        note(f"{dest}: {lazy.shape[0]:,} rows")


def _check_dest(dest: str, overwrite: bool, data: str) -> None:
    """Refuse an unknown ending, and to replace a folder that no prediction was written to."""
    target = Path(dest)
    if dest == "-":
        return
    if target.suffix not in ENDINGS:
        raise click.BadParameter(f"{dest!r} must end in {', '.join(ENDINGS)}, or be -.")
    require_free(dest, overwrite, data)
    if store_state(target) is not None:
        raise FileExistsError(f"{target} is a store of rows: choose another destination.")
    if target.is_dir() and not (target / "zarr.json").is_file():
        raise FileExistsError(
            f"{target} is a folder and no prediction: choose another destination."
        )


def _lazily(saved: Any, X: Any, output: str) -> Any:
    name = {"labels": "predict", "scores": "decision_function", "probabilities": "predict_proba"}
    if output == "scores" and not hasattr(saved.learner, "decision_function"):
        raise ValueError("--output scores is for classes; a regression's labels are its scores.")
    if output == "probabilities" and not hasattr(saved.learner, "predict_proba"):
        raise ValueError(
            "--output probabilities needs a model fitted with --learner logistic, or --loss "
            "log_loss."
        )
    return getattr(saved.whole, name[output])(X)


def _header(saved: Any, output: str) -> list[str]:
    if output == "labels":
        targets = _target_names(saved)
        return [f"predicted {name}" for name in targets] if targets else ["predicted"]
    names = [str(name) for name in saved.learner.classes_]
    return names[1:] if output == "scores" and len(names) == 2 else names


def _target_names(saved: Any) -> list[str]:
    """Return the names of the targets of a model that has several, numbers without names."""
    k = saved.learner.coef_.shape[0] if saved.learner.coef_.ndim == 2 else 1
    if hasattr(saved.learner, "classes_") or k < 2:
        return []
    known = saved.data.get("label_name")
    return list(known) if isinstance(known, list) else [str(n) for n in range(k)]


def _numbers_without(left_out: Any) -> Iterator[int]:
    """Count the rows of a file but for those that are left out."""
    gone = {*left_out.tolist()}
    return (number for number in itertools.count() if number not in gone)


def _write(
    lazy: Any,
    header: list[str],
    dest: str,
    overwrite: bool,
    client: Any,
    numbers: Iterator[int] | None,
) -> None:
    if dest == "-":
        _write_csv(sys.stdout, lazy, header, client, numbers)
        sys.stdout.flush()
    elif dest.endswith(".csv"):
        with whole_file(dest, overwrite=overwrite) as file:
            _write_csv(file, lazy, header, client, numbers)
    elif dest.endswith(".npy"):
        with whole_file(dest, overwrite=overwrite, mode="wb") as file:
            _write_npy(file, lazy, client)
    else:
        with whole_folder(dest, overwrite=overwrite) as work:
            _write_zarr(lazy, work, client)


def _blocks(lazy: Any, client: Any) -> Iterator[Any]:
    """Yield computed blocks in order, few at a time."""
    from rfcdask.execution.blocks import fold_blocks

    yield from fold_blocks([lazy], lambda _, block, index: block[0], None, client, "predicting")


class _Lines:
    """Takes the lines of a CSV writer, and ends them with a line feed alone.

    A writer whose lines end so does not quote a carriage return, at which readers end a line too.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, line: str) -> None:
        """Write one line."""
        self._file.write(line.removesuffix("\r\n") + "\n")


def _write_csv(
    file: Any, lazy: Any, header: list[str], client: Any, numbers: Iterator[int] | None
) -> None:
    writer = csv.writer(_Lines(file))
    writer.writerow(header if numbers is None else ["row", *header])
    for block in _blocks(lazy, client):
        rows = block.reshape(len(block), -1).tolist()
        writer.writerows(rows if numbers is None else ([next(numbers), *row] for row in rows))


def _write_npy(file: Any, lazy: Any, client: Any) -> None:
    import numpy as np

    head = {"descr": lazy.dtype.str, "fortran_order": False, "shape": lazy.shape}
    np.lib.format.write_array_header_2_0(file, head)
    for block in _blocks(lazy, client):
        file.write(np.ascontiguousarray(block, lazy.dtype).tobytes())


def _write_zarr(lazy: Any, work: Path, client: Any) -> None:
    import zarr

    text, start = lazy.dtype.kind == "U", 0
    chunks = (max(lazy.chunks[0]), *lazy.shape[1:])
    dtype = "string" if text else lazy.dtype
    array = zarr.create_array(work, shape=lazy.shape, dtype=dtype, chunks=chunks)
    for block in _blocks(lazy, client):
        array[start : start + len(block)] = block.astype("T") if text else block
        start += len(block)


@click.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "--held-out",
    is_flag=True,
    help="Only the rows that 'fit --test-size' held out of the same store.",
)
@opt.file_options
@opt.work_options
def score(model: str, data: str, held_out: bool, **options: Any) -> None:
    """Print how good MODEL is on DATA: accuracy and more for classes, R2 and errors for numbers.

    A class that has rows and is never predicted is warned of.

    \b
    Examples:
      rfcdask score model test.csv
      rfcdask score model data.zarr --json
    """
    from rfcdask.cli.saved import load_model, rows_for

    if options["no_label"]:
        raise click.UsageError("score compares with labels: leave --no-label out.")
    check_data(data, options)
    if held_out and not is_store(data):
        raise ValueError(
            f"--held-out needs the store that {model} was fitted on, and {data} is a file, whose "
            "rows were shuffled for the fit: ingest it once, and fit and score the store."
        )
    saved = load_model(model, predicts=True)
    with (
        opt.session(options) as client,
        rows_for(saved, data, options, client, labels=True) as dataset,
    ):
        if held_out:
            dataset = _held_out(saved, dataset, model, data)
        known, found = saved.data.get("label_name"), dataset.attrs.get("label_name")
        if dataset.y is None:
            own = ", ".join(map(repr, known if isinstance(known, list) else [known]))
            missing = "" if known is None or is_store(data) else f" its column {own} is missing,"
            raise ValueError(f"{data} has no labels to compare with:{missing} {_remedy(data)}.")
        y = _same_targets(saved, dataset, data)
        one = isinstance(known, str) and isinstance(found, str)
        if options["label"] is None and one and found != known:
            note(f"{data}: labels are taken from {found!r}, and the model learned {known!r}.")
        _check_kind(data, dataset.classes, saved.learner)
        found = _measured(saved, dataset.X, y, client)
    metric = "R2" if found.labels is None else "accuracy"
    result = {
        "metric": metric,
        "score": found[metric.lower()],
        "rows": found.n_rows,
        "model": model,
        "data": data,
        "metrics": found.values,
        "targets": found.targets,
        "target_names": _target_names(saved),
        "classes": list(found.per_class),
        "warnings": [said] if (said := found.warning()) else [],
    }
    show(result, _score_text(result), options["as_json"])


def _same_targets(saved: Any, dataset: Any, data: str) -> Any:
    """Return the targets of rows in the order of the model, by name where both have some."""
    from rfcdask.data.columns import match_columns

    wanted, found = _target_names(saved), dataset.targets
    if not wanted and found is None:
        return dataset.y
    if len(wanted or [""]) != len(found or [""]) or not wanted:
        said = f"the targets {', '.join(map(repr, wanted))}" if wanted else "one label"
        raise ValueError(f"{data} does not have what {said} can be compared with: {_remedy(data)}.")
    if not (isinstance(saved.data.get("label_name"), list) and dataset.attrs.get("label_name")):
        return dataset.y
    return dataset.y[:, match_columns(data, found, wanted).places]


def _remedy(data: str) -> str:
    """Say how rows get other labels: of a store they are decided."""
    if is_store(data):
        return "give the file that it came from, with --label, or a store that has them"
    return "pass --label"


def _check_kind(data: str, found: Any, learner: Any) -> None:
    """Refuse text in the place of numbers or booleans, and these in the place of text."""
    known = getattr(learner, "classes_", None)
    if found is None or known is None:
        return
    if (found.dtype.kind in "biuf") != (known.dtype.kind in "biuf"):
        shown = [", ".join(map(repr, labels[:3].tolist())) for labels in (found, known)]
        raise ValueError(
            f"the labels of {data} are {shown[0]}, and those that the model learned {shown[1]}: "
            "give rows whose labels are of the same type."
        )


def _measured(saved: Any, X: Any, y: Any, client: Any) -> Any:
    from rfcdask.evaluation.evaluate import measured
    from rfcdask.linear.rows import encode_labels

    found = measured(saved.whole, X, y, client=client)
    # Labels of another kind would only all be wrong.
    if found.labels is not None and found.confusion is not None:
        encode_labels(found.labels[found.confusion.sum(1) > 0], saved.learner.classes_)
    return found


def _score_text(result: dict[str, Any]) -> str:
    metric = result["metric"]
    lines = [f"Warning: {in_options(said)}" for said in result["warnings"]]
    lines.append(f"{metric} {result['score']:.4f} on {result['rows']:,} rows")
    others = {name: v for name, v in result["metrics"].items() if name not in (metric, "r2")}
    lines += [f"{name.replace('_', ' '):<24} {value:.4g}" for name, value in others.items()]
    if names := result["target_names"]:
        width, each = max(map(len, ("target", *names))), result["targets"]
        lines.append(f"{'target':<{width}}      R2  mean absolute error")
        values = zip(names, each["r2"], each["mean_absolute_error"], strict=True)
        lines += [f"{name:<{width}}  {r2:6.4f}  {error:.4g}" for name, r2, error in values]
    classes = sorted(result["classes"], key=lambda row: (row["recall"], -row["rows"]))
    if classes:
        width = max(5, *(len(str(row["class"])) for row in classes[:MOST_CLASSES]))
        lines.append(f"{'class':<{width}}  {'rows':>9}  recall  precision")
        lines += [
            f"{row['class']!s:<{width}}  {row['rows']:>9,.0f}  {row['recall']:6.1%}  "
            f"{row['precision']:9.1%}"
            for row in classes[:MOST_CLASSES]
        ]
    if len(classes) > MOST_CLASSES:
        lines.append(f"and {len(classes) - MOST_CLASSES:,} classes that are found more often")
    return "\n".join(lines)


def _held_out(saved: Any, dataset: Any, model: str, data: str) -> Any:
    share, known = saved.about.get("test_size"), saved.data
    if share is None:
        raise ValueError(f"{model} was fitted on all rows: fit it with --test-size.")
    labels = known.get("label_checksum") in (None, dataset.attrs.get("label_checksum"))
    if dataset.shape[0] != known.get("rows") or not labels:
        raise ValueError(
            f"{data} is not the store that {model} was fitted on: it has other rows, or has them in"
            " another order. Give that store, or fit the model on this one."
        )
    return dataset.split(share, saved.about["seed"])[1]
