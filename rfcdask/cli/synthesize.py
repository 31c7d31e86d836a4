"""``rfcdask synthesize``: data of any size, in the shape of well-known sets."""

from __future__ import annotations

from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.ingest import layout_options, store_options
from rfcdask.cli.outputs import whole_store


@click.command()
@click.argument("name", type=click.Choice(["higgs", "criteo"]))
@click.argument("dest")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="How many.",
)
@store_options
@common.seed_option
@common.scheduler_options
@common.json_option
@common.output_options
def synthesize(
    name: str,
    dest: str,
    rows: int,
    seed: int,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Make rows in the shape of HIGGS or Criteo and write them to a store at DEST.

    Two classes, with a boundary that no linear model finds; five percent of the labels are wrong.
    criteo has a million columns and needs --project.

    \b
    Examples:
      rfcdask synthesize higgs higgs.zarr --rows 20000
      rfcdask synthesize criteo criteo.zarr --rows 20000 --project 50
    """
    from dask.utils import parse_bytes

    import rfcdask as rf
    from rfcdask.cli.info import show_store

    layout = layout_options(options)
    if "block_size" in layout:
        layout["block_size"] = parse_bytes(layout["block_size"])
    with (
        common.session(scheduler, threads) as client,
        whole_store(dest, options["overwrite"]) as to,
    ):
        rf.synthetic(
            name,
            rows,
            dest=to,
            random_state=seed,
            overwrite=options["overwrite"],
            client=client,
            **layout,
        )
    show_store(dest, as_json)
