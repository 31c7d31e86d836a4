"""``rfcdask predict``: predicted labels of all rows, by their own names."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.errors import ReaderGoneError
from rfcdask.cli.inputs import check_data, file_options
from rfcdask.cli.outputs import (
    move_into_place,
    remove,
    require_free,
    store_state,
    unfinished,
    whole_file,
)

ENDINGS = (".csv", ".npy", ".zarr")


@click.command()
@click.argument("model")
@click.argument("data")
@click.argument("dest", default="-")
@click.option(
    "--output",
    type=click.Choice(["labels", "scores", "probabilities"]),
    default="labels",
    show_default=True,
    help="What to write of each row; probabilities need --loss log_loss in fit.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@file_options
@common.scheduler_options
@common.output_options
def predict(
    model: str,
    data: str,
    dest: str,
    output: str,
    overwrite: bool,
    scheduler: str | None,
    threads: int | None,
    **options: Any,
) -> None:
    """Write what MODEL predicts for the rows of DATA, in their order, to DEST.

    DEST ends in .csv, .npy or .zarr; - is CSV on stdout, and the default. Labels of DATA are not
    looked at.

    \b
    Examples:
      rfcdask predict model new.csv predicted.csv
      rfcdask predict model data.zarr --quiet | sort | uniq -c
    """
    from rfcdask.cli.using import load_model, require_learner, rows_for

    if dest != "-":
        if Path(dest).suffix not in ENDINGS:
            raise click.BadParameter(f"{dest!r} must end in {', '.join(ENDINGS)}, or be -.")
        require_free(dest, overwrite, data)
        _require_replaceable(Path(dest))
    check_data(data, options)
    saved = load_model(model)
    require_learner(saved, model)
    with (
        common.session(scheduler, threads) as client,
        rows_for(saved, data, options, client, labels=False) as dataset,
    ):
        lazy = _lazily(saved, dataset.X, output)
        _write(lazy, _header(saved, output), dest, overwrite, client)
    if dest != "-":
        common.note(f"{dest}: {lazy.shape[0]:,} rows")


def _require_replaceable(target: Path) -> None:
    """Refuse to replace a folder that no prediction was written to."""
    if not target.is_dir():
        return
    if store_state(target) is not None:
        raise FileExistsError(f"{target} is a store of rows: choose another destination.")
    if not (target / "zarr.json").is_file():
        raise FileExistsError(
            f"{target} is a folder and no prediction: choose another destination."
        )


def _lazily(saved: Any, X: Any, output: str) -> Any:
    name = {"labels": "predict", "scores": "decision_function", "probabilities": "predict_proba"}
    if output == "scores" and not hasattr(saved.learner, "decision_function"):
        raise ValueError("--output scores is for classes; a regression's labels are its scores.")
    if output == "probabilities" and not hasattr(saved.learner, "predict_proba"):
        raise ValueError(
            "--output probabilities needs a model fitted with --learner sgd --loss log_loss."
        )
    return getattr(saved.whole, name[output])(X)


def _header(saved: Any, output: str) -> list[str]:
    if output == "labels":
        return ["predicted"]
    names = [str(name) for name in saved.learner.classes_]
    return names[1:] if output == "scores" and len(names) == 2 else names


def _write(lazy: Any, header: list[str], dest: str, overwrite: bool, client: Any) -> None:
    if dest == "-":
        try:
            _write_csv(sys.stdout, lazy, header, client)
            sys.stdout.flush()
        except BrokenPipeError:
            raise ReaderGoneError from None
    elif dest.endswith(".csv"):
        with whole_file(dest, overwrite=overwrite) as file:
            _write_csv(file, lazy, header, client)
    elif dest.endswith(".npy"):
        with whole_file(dest, overwrite=overwrite, mode="wb") as file:
            _write_npy(file, lazy, client)
    else:
        _write_zarr(lazy, Path(dest), client)


def _blocks(lazy: Any, client: Any) -> Iterator[Any]:
    """Yield computed blocks in order, few at a time."""
    from rfcdask.execution.blocks import fold_blocks

    yield from fold_blocks([lazy], _take, None, client, "predicting")


def _take(_: Any, block: tuple[Any, ...], index: int) -> Any:
    return block[0]


def _write_csv(file: Any, lazy: Any, header: list[str], client: Any) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for block in _blocks(lazy, client):
        rows = block.tolist()
        writer.writerows(rows if block.ndim == 2 else ([value] for value in rows))


def _write_npy(file: Any, lazy: Any, client: Any) -> None:
    import numpy as np

    head = {"descr": lazy.dtype.str, "fortran_order": False, "shape": lazy.shape}
    np.lib.format.write_array_header_2_0(file, head)
    for block in _blocks(lazy, client):
        file.write(np.ascontiguousarray(block, lazy.dtype).tobytes())


def _write_zarr(lazy: Any, target: Path, client: Any) -> None:
    import zarr

    work = unfinished(target)
    remove(work)
    text = lazy.dtype.kind == "U"
    array = zarr.create_array(
        work,
        shape=lazy.shape,
        dtype="string" if text else lazy.dtype,
        chunks=(max(lazy.chunks[0]), *lazy.shape[1:]),
    )
    start = 0
    for block in _blocks(lazy, client):
        array[start : start + len(block)] = block.astype("T") if text else block
        start += len(block)
    move_into_place(work, target)
