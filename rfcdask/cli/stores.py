"""Commands about stores: ``ingest``, ``fetch``, ``synthesize`` and ``info``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rfcdask.cli import options as opt
from rfcdask.cli.files import is_store, require_file, show, whole_store

store_options = opt.all_of(
    click.option(
        "--shuffle", is_flag=True, help="Permute all rows, on disk rather than in memory."
    ),
    opt.setting_options("project", "sparse", block_size=None),
    click.option("--dtype", metavar="TYPE", help="Type on disk, such as float32."),
    click.option(
        "--compressor",
        type=click.Choice(["zstd", "lz4", "gzip", "none"]),
        help="Codec of the chunks.  [default: zstd]",
    ),
    opt.overwrite_option("a store"),
    opt.setting_options("random_state"),
)
"""What shapes a store."""


def _layout(options: dict[str, Any]) -> dict[str, Any]:
    """Return what was given of :data:`store_options` as arguments of ``rfcdask.ingest``."""
    names = ("project", "sparse", "dtype", "block_size", "compressor", "random_state")
    given = {name: options[name] for name in names if options[name] is not None}
    given |= {name: True for name in ("shuffle", "overwrite") if options[name]}
    if options["compressor"] == "none":
        given["compressor"] = None
    return {"random_state": 0} | given


def _factor(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    from fractions import Fraction

    try:
        return None if value is None else float(Fraction(value))
    except (ValueError, ZeroDivisionError):
        raise click.BadParameter(f"{value!r} is no number; write 0.5 or 1/255.") from None


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.argument("dest")
@opt.file_options
@store_options
@opt.setting_options("task")
@click.option("--scale", callback=_factor, metavar="FACTOR", help="Factor on reading, as 1/255.")
@opt.count_option("--n-columns", None, "Columns of svmlight text.")
@opt.work_options
def ingest(source: tuple[str, ...], dest: str, **options: Any) -> None:
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

    arguments = opt.reading_arguments(options) | _layout(options)
    arguments |= {name: options[name] for name in ("scale", "n_columns")}
    with opt.session(options) as client, whole_store(dest, options["overwrite"], *source) as to:
        rf.ingest(list(source), to, task=options["task"] or "auto", client=client, **arguments)
    show_store(dest, options["as_json"])


@click.command()
@click.argument("name", required=False)
@click.argument("dest", required=False)
@click.option("--list", "list_them", is_flag=True, help="List the known data sets and exit.")
@click.option(
    "--source",
    "files",
    multiple=True,
    metavar="PATH",
    help="File that is already here, instead of the download; may be repeated.",
)
@click.option("--part", type=click.Choice(["train", "test", "all"]), help="Which rows.")
@click.option("--cache", metavar="FOLDER", help="Folder of downloads.")
@store_options
@opt.work_options
def fetch(
    name: str | None, dest: str | None, list_them: bool, files: tuple[str, ...], **options: Any
) -> None:
    """Download the data set NAME into a store at DEST, and check it.

    DEST is NAME.zarr unless given. Downloads go on where they stopped. A store that is there and
    is the right one is left as it is.

    \b
    Examples:
      rfcdask fetch --list
      rfcdask fetch covtype covtype.zarr
      rfcdask fetch adult a9a.zarr --part train --source a9a.txt
    """
    if list_them:
        _list(options["as_json"])
        return
    if name is None:
        raise click.UsageError("Give the NAME of a data set; --list shows them.")
    import rfcdask as rf

    dest, overwrite = dest or f"{name}.zarr", options["overwrite"]
    settings = {"part": options["part"], "source": list(files) or None, "cache": options["cache"]}
    settings |= _layout(options)
    with opt.session(options) as client:
        if Path(dest).exists() and not overwrite:
            rf.fetch(name, dest, client=client, **settings)  # looks whether it is the right one
        else:
            with whole_store(dest, overwrite) as to:
                rf.fetch(name, to, client=client, **settings)
    show_store(dest, options["as_json"])


def _list(as_json: bool) -> None:
    from rfcdask.data.datasets import load_recipe, recipe_names

    data = [
        {
            "name": recipe.name,
            "title": recipe.title,
            "rows": sum(part.rows for part in recipe.parts.values()),
            "columns": recipe.columns,
            "classes": len(recipe.classes),
            "home": recipe.home,
            "verified": recipe.verified,
        }
        for recipe in map(load_recipe, recipe_names())
    ]
    line = "{name:<12} {rows:>12,} x {columns:<9,} {classes:>3} classes  {verified:<7}  {title}"
    shown = [line.format(**recipe) for recipe in data]
    note = "Before each title: what is compared with a checksum."
    show(data, "\n".join([*shown, note]), as_json)


@click.command()
@click.argument("name", type=click.Choice(["higgs", "criteo"]))
@click.argument("dest")
@opt.count_option("--rows", 1_000_000, "How many.")
@store_options
@opt.work_options
def synthesize(name: str, dest: str, rows: int, **options: Any) -> None:
    """Make rows in the shape of HIGGS or Criteo and write them to a store at DEST.

    Two classes, with a boundary that no linear model finds; five percent of the labels are wrong.
    criteo has a million columns and needs --project.

    \b
    Examples:
      rfcdask synthesize higgs higgs.zarr --rows 20000
      rfcdask synthesize criteo criteo.zarr --rows 20000 --project 50
    """
    import rfcdask as rf

    with opt.session(options) as client, whole_store(dest, options["overwrite"]) as to:
        rf.synthetic(name, rows, dest=to, client=client, **_layout(options))
    show_store(dest, options["as_json"])


@click.command()
@click.argument("path")
@click.option("--verify", is_flag=True, help="Read all of it, and name every file that is damaged.")
@opt.json_option
@opt.output_options
def info(path: str, verify: bool, as_json: bool) -> None:
    """Say what the store or the saved model at PATH holds.

    Only metadata are read, unless --verify is given. An unfinished store ends with exit code 4, a
    damaged one with 2.

    \b
    Examples:
      rfcdask info data.zarr
      rfcdask info data.zarr --verify
      rfcdask info model --json
    """
    if (Path(path) / "model.json").is_file():
        show_model(path, as_json, verify)
        return
    if not is_store(path):
        raise ValueError(
            f"{path} is neither a store nor a saved model: 'rfcdask ingest FILE DEST' makes a "
            "store of a file."
        )
    show_store(path, as_json, verify)


def show_store(path: str, as_json: bool, verify: bool = False) -> None:
    """Print what a store holds."""
    from rfcdask.data import open_dataset
    from rfcdask.data.dataset import describe_store
    from rfcdask.data.location import Location
    from rfcdask.data.store import verify_location

    # First: opening stops at the first file of a wrong size, and all of them are to be named.
    size = verify_location(Location.of(path)) if verify else None
    dataset = open_dataset(path)
    pairs = [("store", path), *dataset.facts()]
    data = {"kind": "store"} | describe_store(dataset, path)
    if size is not None:
        pairs.append(("verified", f"all {size:,} bytes are what was written"))
        data["verified_bytes"] = size
    show(data, _aligned(pairs), as_json)


def show_model(path: str, as_json: bool, verify: bool = False) -> None:
    """Print what a saved model says of itself."""
    from rfcdask.persist.models import describe, load

    record = describe(path)
    if verify:
        load(path)  # reads every array and compares checksums
    size = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    data = {"kind": "model", "path": path, "bytes": size, **record}
    pairs = [("model", path), ("written by", f"rfcdask {record['version']}")]
    for name, step in record.get("steps", {record["class"]: record}).items():
        pairs.append((name, _as_call(step)))
    if any(s["class"] == "TableEncoder" for s in record.get("steps", {"": record}).values()):
        pairs += _columns_of(path)
    pairs += [(k, str(v)) for k, v in _told(record.get("about")).items()]
    show(data, _aligned([*pairs, ("bytes", f"{size:,}")]), as_json)


def _columns_of(path: str) -> list[tuple[str, str]]:
    """Return how the columns of a table are encoded before they come to a model, if they are."""
    from rfcdask.persist.models import load

    model = load(path)
    first = model[0] if hasattr(model, "steps") else model
    if not hasattr(first, "spec_of_table"):
        return []
    return [(f"column {name}", said) for name, said in first.describe()]


def _as_call(step: dict[str, Any]) -> str:
    """Return an estimator with the parameters that are not the default."""
    from inspect import signature

    from rfcdask.persist.models import PERSISTABLE, saved_class

    kind = step["class"]
    known = signature(saved_class(kind)).parameters if kind in PERSISTABLE else {}
    changed = (
        f"{k}={v!r}"
        for k, v in step["parameters"].items()
        if k not in known or known[k].default != v
    )
    return f"{kind}({', '.join(changed)})"


def _told(about: Any) -> dict[str, Any]:
    """Return the plain values of what was kept with a model, and what is known of its data."""
    from rfcdask.data.columns import first_names

    if not isinstance(about, dict):  # notes of a stranger
        return {}
    shown: dict[str, Any] = {k: v for k, v in about.items() if isinstance(v, (str, int, float))}
    data = about.get("data")
    if isinstance(data, dict):
        names = data.get("column_names")
        shown["data"] = data.get("path")
        named = list(map(str, names)) if isinstance(names, list) else []
        shown["columns"] = first_names(named) if named else data.get("columns")
        label = data.get("label_name")
        shown["label"] = ", ".join(map(str, label)) if isinstance(label, list) else label
    return {k: v for k, v in shown.items() if v is not None}


def _aligned(pairs: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs)
