"""``rfcdask tune``: gamma, the penalty and the label weight by cross-validation on a sample."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.inputs import check_data, file_options, opened_data
from rfcdask.cli.models import KERNELS, standardize_option
from rfcdask.cli.outputs import require_free, whole_file


@click.command()
@click.argument("data")
@click.option("--out", metavar="FILE", help="JSON file to write, for 'fit --tuned'.")
@click.option(
    "--kernel", type=click.Choice(KERNELS), default="rbf", show_default=True, help="Kernel."
)
@click.option("--gammas", type=float, multiple=True, metavar="G", help="Repeat for each to try.")
@click.option("--Cs", "cs", type=float, multiple=True, metavar="C", help="Repeat for each to try.")
@click.option(
    "--sample-rows",
    type=click.IntRange(min=10),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Rows to try on; a fold needs about 10 N^2 bytes.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    metavar="N",
    help="Parts of the cross-validation.",
)
@click.option(
    "--strategy",
    type=click.Choice(["grid", "halving"]),
    default="halving",
    show_default=True,
    help="All pairs on all rows, or the best ones only.",
)
@click.option("--label-weights", is_flag=True, help="Choose the weight of the labels too.")
@standardize_option
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@file_options
@common.seed_option
@common.scheduler_options
@common.json_option
@common.output_options
def tune(
    data: str,
    out: str | None,
    kernel: str,
    gammas: tuple[float, ...],
    cs: tuple[float, ...],
    sample_rows: int,
    folds: int,
    strategy: str,
    label_weights: bool,
    standardize: bool | None,
    overwrite: bool,
    seed: int,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Choose gamma and C for DATA by exact kernel machines on a sample of its rows.

    \b
    Example:
      rfcdask tune data.zarr --out tune.json
    """
    check_data(data, options)
    import rfcdask as rf
    from rfcdask.linear.standardize import wants_standardizing

    if out:
        require_free(out, overwrite, data)
    with (
        common.session(scheduler, threads) as client,
        opened_data(data, options, client) as dataset,
    ):
        if dataset.classes is None:
            raise ValueError(f"{data} has no classes to tell apart: tune needs labels of classes.")
        standard = wants_standardizing(dataset) if standardize is None else standardize
        seen = dataset.standardize() if standard else dataset
        found = rf.tune(
            seen.X,
            seen.y,
            kernel=kernel,
            gammas=gammas or None,
            Cs=cs or None,
            n_rows=sample_rows,
            folds=folds,
            strategy=strategy,
            label_weights=label_weights or None,
            random_state=seed,
            client=client,
        )
    result = _plain(found) | {"standardize": standard, "data": data}
    if out:
        with whole_file(out, overwrite=overwrite) as file:
            file.write(common.to_json(result) + "\n")
    common.show(result, _text(result), as_json)


def _plain(found: Any) -> dict[str, Any]:
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    tables = ("table", "label_table")
    return {k: list(v) if k in tables and v is not None else v for k, v in fields.items()}


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"kernel        {result['kernel']}",
        f"gamma         {result['gamma']:.6g}",
        f"C             {result['C']:g}",
        f"alpha         {result['alpha']:.6g}",
        f"accuracy      {result['accuracy']:.4f} on {result['n_rows']:,} rows",
        f"standardized  {'yes' if result['standardize'] else 'no'}",
    ]
    if result["label_weight"] is not None:
        lines.append(f"label weight  {result['label_weight']:g}")
    return "\n".join(lines)
