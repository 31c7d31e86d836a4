"""``rfcdask plan``: what a fit costs, before it begins."""

from __future__ import annotations

from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.errors import NO_FIT, in_options
from rfcdask.cli.inputs import check_data, file_options, opened_data
from rfcdask.cli.models import size_options

STEPS = ("fit", "transform", "train")


@click.command()
@click.argument("data")
@size_options
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Passes over the rows.",
)
@click.option(
    "--step",
    "steps",
    type=click.Choice(STEPS),
    multiple=True,
    default=STEPS,
    show_default=True,
    help="What is to be done; may be repeated.",
)
@click.option(
    "--probe/--no-probe",
    default=True,
    show_default=True,
    help="Measure this machine for two seconds to tell the time.",
)
@file_options
@common.scheduler_options
@common.json_option
@common.output_options
def plan(
    data: str,
    components: int,
    candidates: int,
    sample_rows: int,
    epochs: int,
    steps: tuple[str, ...],
    probe: bool,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Say what fitting DATA takes: blocks, tasks, bytes, memory and time.

    Ends with exit code 3, and the remedy, when it will not fit the memory.

    \b
    Example:
      rfcdask plan data.zarr --components 200
    """
    check_data(data, options)
    from rfcdask.planning import plan as make_plan

    with (
        common.session(scheduler, threads) as client,
        opened_data(data, options, client) as dataset,
    ):
        made = make_plan(
            dataset,
            n_components=components,
            n_candidates=candidates,
            n_rows=sample_rows,
            epochs=epochs,
            steps=tuple(dict.fromkeys(steps)),
            client=client,
            probe=probe,
        )
    common.show(made.to_dict(), in_options(repr(made)), as_json)
    if not made.fits:
        click.get_current_context().exit(NO_FIT)
