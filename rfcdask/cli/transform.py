"""``rfcdask transform``: the features of all rows, as a store."""

from __future__ import annotations

from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.inputs import check_data, file_options, is_store
from rfcdask.cli.outputs import whole_store


@click.command()
@click.argument("model")
@click.argument("data")
@click.argument("dest")
@click.option("--block-size", metavar="BYTES", help="Bytes of one block, such as 128MB.")
@click.option("--overwrite", is_flag=True, help="Replace a store that is there.")
@file_options
@common.scheduler_options
@common.json_option
@common.output_options
def transform(
    model: str,
    data: str,
    dest: str,
    block_size: str | None,
    overwrite: bool,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the features that MODEL gives the rows of DATA to a store at DEST.

    DEST is a store like any other, with the labels of DATA where there are some: other commands
    read it, and so does rfcdask.open_dataset.

    \b
    Example:
      rfcdask transform model data.zarr features.zarr
    """
    import rfcdask as rf
    from rfcdask.cli.info import show_store
    from rfcdask.cli.using import load_model, rows_for

    check_data(data, options)
    saved = load_model(model)
    if saved.features is None:
        raise ValueError(f"{model} has no feature map: it learns from the columns themselves.")
    layout: dict[str, Any] = {} if block_size is None else {"block_size": block_size}
    with (
        common.session(scheduler, threads) as client,
        whole_store(dest, overwrite) as to,
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
    show_store(dest, as_json)
