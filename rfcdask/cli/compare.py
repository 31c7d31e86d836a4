"""``rfcdask compare``: feature maps side by side on the same rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.inputs import check_data, file_options, opened_data
from rfcdask.cli.models import MAPS, kernel_options, standardize_option
from rfcdask.cli.outputs import require_free, whole_file

PICTURES = (".png", ".svg", ".pdf")


@click.command()
@click.argument("data")
@click.option(
    "--method",
    "methods",
    type=click.Choice(MAPS),
    multiple=True,
    help="What to compare; may be repeated.  [default: all]",
)
@click.option(
    "--components",
    type=click.IntRange(min=1),
    multiple=True,
    default=(300,),
    show_default=True,
    metavar="N",
    help="Number of features; may be repeated.",
)
@click.option(
    "--candidates",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    metavar="N",
    help="Random features to choose from.",
)
@click.option(
    "--train-rows",
    type=click.IntRange(min=2),
    default=50_000,
    show_default=True,
    metavar="N",
    help="Rows to learn from.",
)
@click.option(
    "--test-rows",
    type=click.IntRange(min=2),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Rows held out, at most a fifth of all.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Repeat with other rows and features, for means and their spread.",
)
@kernel_options
@standardize_option
@click.option("--out", metavar="FILE", help="JSON file to write, for 'rfcdask report'.")
@click.option("--plot", metavar="FILE", help="Picture to draw: .png, .svg or .pdf.")
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
@file_options
@common.seed_option
@common.scheduler_options
@common.json_option
@common.output_options
def compare(
    data: str,
    out: str | None,
    plot: str | None,
    overwrite: bool,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Fit feature maps on the same rows of DATA and measure each on rows none of them saw.

    \b
    Example:
      rfcdask compare data.zarr --method compressed --method random --out comparison.json
    """
    if plot and Path(plot).suffix not in PICTURES:
        raise click.BadParameter(f"{plot!r} must end in {', '.join(PICTURES)}.")
    check_data(data, settings)
    for path in (out, plot):
        if path:
            require_free(path, overwrite, data)
    with (
        common.session(scheduler, threads) as client,
        opened_data(data, settings, client) as dataset,
    ):
        table, results = _measure(dataset, data, settings, client)
    if out:
        with whole_file(out, overwrite=overwrite) as file:
            file.write(common.to_json(results) + "\n")
    if plot:
        _draw(table, Path(plot))
    common.show(results["comparison"], repr(table), as_json)


def _measure(
    dataset: Any, path: str, settings: dict[str, Any], client: Any
) -> tuple[Any, dict[str, Any]]:
    import rfcdask as rf
    from rfcdask.linear.standardize import wants_standardizing

    if dataset.classes is None:
        raise ValueError(f"{path} has no classes to tell apart: compare needs labels of classes.")
    asked = settings["standardize"]
    standard = wants_standardizing(dataset) if asked is None else asked
    seen = dataset.standardize() if standard else dataset
    used = {
        "methods": list(settings["methods"] or MAPS),
        "n_components": sorted(set(settings["components"])),
        "n_candidates": settings["candidates"],
        "n_rows": settings["train_rows"],
        "n_test": settings["test_rows"],
        "repeats": settings["repeats"],
        "kernel": settings["kernel"],
        "gamma": settings["gamma"],
    }
    table = rf.compare(seen.X, seen.y, random_state=settings["seed"], client=client, **used)
    results = {
        "format": 1,
        "rfcdask": rf.__version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": "rfcdask compare",
        "seed": settings["seed"],
        "settings": used | {"standardize": standard},
        "data": data_section(dataset, path),
        "comparison": list(table),
    }
    return table, results


def data_section(dataset: Any, path: str) -> dict[str, Any]:
    """Return what a report says of the data."""
    from rfcdask.cli.info import store_facts

    facts = store_facts(dataset, path)
    source = facts["source"]
    return {
        "name": Path(path.rstrip("/")).name.partition(".")[0],
        "source": ", ".join(source) if isinstance(source, list) else source,
        "classes": [str(name) for name in facts["classes"] or ()],
    } | {
        key: facts[key]
        for key in [
            "path",
            "rows",
            "columns",
            "dtype",
            "bytes",
            "blocks",
            "block_bytes",
            "shuffled",
        ]
    }


def _draw(table: Any, target: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    table.plot(figure.subplots(1, 2))
    with whole_file(str(target), mode="wb") as file:
        figure.savefig(file, format=target.suffix[1:], dpi=150)
