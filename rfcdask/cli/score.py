"""``rfcdask score``: how good a model is on labelled rows."""

from __future__ import annotations

from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.inputs import check_data, file_options, is_store


@click.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "--held-out",
    is_flag=True,
    help="Only the rows that 'fit --test-size' held out of the same store.",
)
@file_options
@common.scheduler_options
@common.json_option
@common.output_options
def score(
    model: str,
    data: str,
    held_out: bool,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the accuracy of MODEL on DATA, or R2 for numbers.

    \b
    Examples:
      rfcdask score model test.csv
      rfcdask score model data.zarr --json
    """
    from rfcdask.cli.using import load_model, require_learner, rows_for

    if options["no_labels"]:
        raise click.UsageError("score compares with labels: leave --no-labels out.")
    check_data(data, options)
    if held_out and not is_store(data):
        raise ValueError(
            f"--held-out needs the store that {model} was fitted on, and {data} is a file, whose "
            "rows were shuffled for the fit: ingest it once, and fit and score the store."
        )
    saved = load_model(model)
    require_learner(saved, model)
    with (
        common.session(scheduler, threads) as client,
        rows_for(saved, data, options, client, labels=True) as dataset,
    ):
        if held_out:
            dataset = _held_out(saved, dataset, model, data)
        if dataset.y is None:
            raise ValueError(_no_labels(saved.data.get("label_name"), data))
        _note_other_label(saved.data.get("label_name"), dataset, data, options["label"])
        value = float(saved.whole.score(dataset.X, dataset.y))
        rows = dataset.shape[0]
    metric = "accuracy" if hasattr(saved.learner, "classes_") else "R2"
    result = {"metric": metric, "score": value, "rows": rows, "model": model, "data": data}
    common.show(result, f"{metric} {value:.4f} on {rows:,} rows", as_json)


def _no_labels(name: str | None, data: str) -> str:
    known = "" if name is None or is_store(data) else f" its column {name!r} is missing,"
    return f"{data} has no labels to compare with:{known} pass --label."


def _note_other_label(known: str | None, dataset: Any, data: str, asked: Any) -> None:
    found = dataset.attrs.get("label_name")
    if asked is None and known and found and found != known:
        common.note(f"{data}: labels are taken from {found!r}, and the model learned {known!r}.")


def _held_out(saved: Any, dataset: Any, model: str, data: str) -> Any:
    share, known = saved.about.get("test_size"), saved.data
    if share is None:
        raise ValueError(f"{model} was fitted on all rows: fit it with --test-size.")
    labels = known.get("label_checksum")
    if dataset.shape[0] != known.get("rows") or labels not in (
        None,
        dataset.attrs.get("label_checksum"),
    ):
        raise ValueError(
            f"{data} is not the store that {model} was fitted on: it has other rows, or has them in"
            " another order. Give that store, or fit the model on this one."
        )
    return dataset.split(share, saved.about["seed"])[1]
