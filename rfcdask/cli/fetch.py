"""``rfcdask fetch``: a known data set from its official address to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.ingest import layout_options, store_options
from rfcdask.cli.outputs import whole_store


@click.command()
@click.argument("name", required=False)
@click.argument("dest", required=False)
@click.option("--list", "list_them", is_flag=True, help="List the known data sets and exit.")
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="PATH",
    help="File that is already here, instead of the download; may be repeated.",
)
@click.option("--part", type=click.Choice(["train", "test", "all"]), help="Which rows.")
@click.option("--cache", metavar="FOLDER", help="Folder of downloads.")
@store_options
@common.seed_option
@common.scheduler_options
@common.json_option
@common.output_options
def fetch(
    name: str | None,
    dest: str | None,
    list_them: bool,
    files: tuple[str, ...],
    part: str | None,
    cache: str | None,
    seed: int,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Download the data set NAME into a store at DEST, and check it.

    DEST is NAME.zarr unless given. Downloads go on where they stopped. A store that is there and
    is the right one is left as it is.

    \b
    Examples:
      rfcdask fetch --list
      rfcdask fetch covtype covtype.zarr
      rfcdask fetch adult a9a.zarr --part train --from a9a.txt
    """
    if list_them:
        _list(as_json)
        return
    if name is None:
        raise click.UsageError("Give the NAME of a data set; --list shows them.")
    import rfcdask as rf
    from rfcdask.cli.info import show_store

    dest = dest or f"{name}.zarr"
    settings: dict[str, Any] = {
        "part": part,
        "source": list(files) or None,
        "cache": cache,
        "random_state": seed,
        "overwrite": options["overwrite"],
        **_changed(layout_options(options)),
    }
    with common.session(scheduler, threads) as client:
        if Path(dest).exists() and not options["overwrite"]:
            rf.fetch(name, dest, client=client, **settings)  # looks whether it is the right one
        else:
            with whole_store(dest, options["overwrite"]) as to:
                rf.fetch(name, to, client=client, **settings)
    show_store(dest, as_json)


def _changed(layout: dict[str, Any]) -> dict[str, Any]:
    """Leave to the recipe what nobody asked for."""
    defaults = {"shuffle": False, "compressor": "zstd"}
    return {k: v for k, v in layout.items() if v != defaults.get(k)}


def _list(as_json: bool) -> None:
    from rfcdask.data.catalog import load_recipe, recipe_names

    recipes = [load_recipe(name) for name in recipe_names()]
    data = [
        {
            "name": recipe.name,
            "title": recipe.title,
            "rows": sum(part.rows for part in recipe.parts.values()),
            "columns": recipe.columns,
            "classes": len(recipe.classes),
            "home": recipe.home,
        }
        for recipe in recipes
    ]
    lines = [
        f"{r['name']:<12} {r['rows']:>12,} x {r['columns']:<9,} {r['classes']:>3} classes  "
        f"{r['title']}"
        for r in data
    ]
    common.show(data, "\n".join(lines), as_json)
