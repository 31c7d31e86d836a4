"""``rfcdask run``: from data to a model and a report."""

from __future__ import annotations

from typing import Any

import click

from rfcdask.cli.common import (
    emit,
    json_option,
    note,
    on_interrupt,
    output_options,
    progress_on_stderr,
    to_json,
)
from rfcdask.cli.errors import UnfinishedError


def _list_settings(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from rfcdask.pipeline.settings import describe

        for name, default, about in describe():
            click.echo(f"{name + '=' + default:<30}  {about}")
        ctx.exit()


@click.command(
    epilog="\b\nExamples:\n  rfcdask run\n"
    "  rfcdask run flights.csv --label late --out flights-run\n"
    "  rfcdask run higgs.zarr --scheduler tcp://10.0.0.1:8786 --set sizes=300,1000\n"
    "  rfcdask run --resume"
)
@click.argument("source", required=False, metavar="[PATH]")
@click.option(
    "--out",
    default="rfcdask-run",
    show_default=True,
    metavar="DIR",
    help="Folder for the report, the results, the model, the log and the data made.",
)
@click.option("--label", metavar="COLUMN", help="Label column by name or number, where unclear.")
@click.option("--config", metavar="FILE", help="TOML file with settings.")
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="One setting, such as sizes=100,300; may be given again.",
)
@click.option(
    "--list-settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_settings,
    help="List all settings with their defaults and exit.",
)
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed.  [default: 0]")
@click.option("--resume", is_flag=True, help="Go on after the last finished phase.")
@click.option("--overwrite", is_flag=True, help="Replace a run that is there.")
@click.option(
    "--scheduler",
    metavar="ADDRESS|FILE",
    help="Dask scheduler to work on: tcp://... or tls://..., a scheduler file, 'local' for a "
    "cluster of processes here, or 'threads'.  [default: DASK_SCHEDULER_ADDRESS if set, else "
    "local]",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads of a cluster here.  [default: one a core]",
)
@json_option
@output_options
def run(
    source: str | None,
    out: str,
    label: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    seed: int | None,
    resume: bool,
    overwrite: bool,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Go from data to a model and a report, in one go.

    PATH is a store, or svmlight, CSV or Parquet data with labels; without it a million rows are
    made whose classes no linear model can tell apart. Feature maps are compared on held-out rows
    and a model is trained on all others. DIR gets report.html, results.json, model and run.log.

    A run that was stopped goes on with --resume.
    """
    if resume and overwrite:
        raise click.UsageError("--resume goes on with a run and --overwrite replaces it: give one.")
    settings = _settings(config, pairs, seed, label)
    from rfcdask.pipeline import RunFolder, UnfinishedRunError, run_job

    folder = RunFolder.at(out)
    on_interrupt(f"Interrupted; what is finished stays. To go on: {folder.resume_hint()}")
    try:
        with progress_on_stderr():
            results = run_job(
                source,
                out,
                settings=settings,
                scheduler=scheduler,
                threads=threads,
                resume=resume,
                overwrite=overwrite,
                say=note,
            )
    except UnfinishedRunError as error:
        raise UnfinishedError(str(error)) from error
    emit(to_json(results) if as_json else _summary(results, folder))


def _settings(
    config: str | None, pairs: tuple[str, ...], seed: int | None, label: str | None
) -> dict[str, Any]:
    from rfcdask.pipeline.settings import from_pairs, from_toml

    settings = from_toml(config) if config else {}
    settings |= from_pairs(pairs)
    if seed is not None:
        settings["seed"] = seed
    if label is not None:
        settings["label"] = int(label) if label.lstrip("-").isdigit() else label
    return settings


def _summary(results: dict[str, Any], folder: Any) -> str:
    model, linear = results["model"], results["linear"]
    advice = results["recommendation"]
    return "\n".join(
        [
            f"{advice['text']} {advice['reason']}",
            f"Model: {model['accuracy']:.2%} of {results['data']['test_rows']:,} held-out rows "
            f"right, against {linear['accuracy']:.2%} for a linear model; saved in {folder.model}",
            f"Report: {folder.report}",
        ]
    )
