"""``rfcdask ingest``: files to a store of lazy blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rfcdask.cli import common
from rfcdask.cli.inputs import TASKS, file_options, reading_options, require_file
from rfcdask.cli.outputs import whole_store

Function = TypeVar("Function", bound=Callable[..., Any])


def store_options(function: Function) -> Function:
    """Add what shapes a store: ``--shuffle``, ``--project``, ``--block-size``, ..."""
    for option in reversed(
        (
            click.option(
                "--shuffle", is_flag=True, help="Permute all rows, on disk rather than in memory."
            ),
            click.option(
                "--project",
                type=click.IntRange(min=1),
                metavar="K",
                help="Project rows to K columns by a sparse random projection.",
            ),
            click.option("--dtype", metavar="TYPE", help="Type on disk, such as float32."),
            click.option(
                "--compressor",
                type=click.Choice(["zstd", "lz4", "gzip", "none"]),
                default="zstd",
                show_default=True,
                help="Codec of the chunks.",
            ),
            click.option(
                "--block-size", metavar="BYTES", help="Bytes of one block, such as 128MB."
            ),
            click.option("--overwrite", is_flag=True, help="Replace a store that is there."),
        )
    ):
        function = option(function)
    return function


def layout_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of :func:`store_options` as arguments of ``rfcdask.ingest``."""
    given = {name: options[name] for name in ("shuffle", "project", "dtype", "block_size")}
    given["compressor"] = None if options["compressor"] == "none" else options["compressor"]
    return {k: v for k, v in given.items() if v is not None or k == "compressor"}


def _factor(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    from fractions import Fraction

    try:
        return None if value is None else float(Fraction(value))
    except (ValueError, ZeroDivisionError):
        raise click.BadParameter(f"{value!r} is no number; write 0.5 or 1/255.") from None


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.argument("dest")
@file_options
@store_options
@click.option(
    "--task",
    type=click.Choice(TASKS),
    default="auto",
    show_default=True,
    help="What labels mean; whole numbers with few values are classes.",
)
@click.option("--scale", callback=_factor, metavar="FACTOR", help="Factor on reading, as 1/255.")
@click.option("--columns", type=click.IntRange(min=1), help="Columns of svmlight text.")
@common.seed_option
@common.scheduler_options
@common.json_option
@common.output_options
def ingest(
    source: tuple[str, ...],
    dest: str,
    task: str,
    scale: float | None,
    columns: int | None,
    seed: int,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write SOURCE files to a store at DEST.

    SOURCE is svmlight text (plain, gz, bz2, xz), CSV or TSV, Parquet, npy, npz or zarr; several
    files of one kind become one store. Memory stays bounded. Interrupted, it goes on when it is
    called again.

    \b
    Examples:
      rfcdask ingest data.csv data.zarr --label target
      rfcdask ingest part-1.csv part-2.csv all.zarr --label target --shuffle
    """
    for path in source:
        require_file(path)
    import rfcdask as rf
    from rfcdask.cli.info import show_store

    with (
        common.session(scheduler, threads) as client,
        whole_store(dest, options["overwrite"]) as to,
    ):
        rf.ingest(
            list(source),
            to,
            **reading_options(options),
            **layout_options(options),
            task=task,
            scale=scale,
            n_columns=columns,
            random_state=seed,
            overwrite=options["overwrite"],
            client=client,
        )
    show_store(dest, as_json)
