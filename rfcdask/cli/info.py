"""``rfcdask info``: what a store or a saved model holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.inputs import is_store


@click.command()
@click.argument("path")
@click.option("--verify", is_flag=True, help="Read all of it, and name every file that is damaged.")
@common.json_option
@common.output_options
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
            f"{path} is neither a store nor a saved model: 'rfcdask ingest {path} DEST' makes a "
            "store of a file."
        )
    show_store(path, as_json, verify)


def show_store(path: str, as_json: bool, verify: bool = False) -> None:
    """Print what a store holds."""
    from rfcdask.data import open_dataset
    from rfcdask.data.location import Location
    from rfcdask.data.store import verify_location

    # First: opening stops at the first file of a wrong size, and all of them are to be named.
    size = verify_location(Location.of(path)) if verify else None
    dataset = open_dataset(path)
    pairs = [("store", path), *dataset.facts()]
    data = store_facts(dataset, path)
    if size is not None:
        pairs.append(("verified", f"all {size:,} bytes are what was written"))
        data["verified_bytes"] = size
    common.show(data, _aligned(pairs), as_json)


def store_facts(dataset: Any, path: str) -> dict[str, Any]:
    """Return what a store holds, for machines."""
    from rfcdask.data.columns import names_in_file

    attrs, reader = dataset.attrs, dataset.reader
    width = reader.n_columns * reader.dtype.itemsize
    return {
        "kind": "store",
        "path": path,
        "rows": dataset.shape[0],
        "columns": dataset.shape[1],
        "column_names": names_in_file(dataset),
        "label_name": attrs.get("label_name"),
        "dtype": str(reader.dtype),
        "task": attrs.get("task"),
        "classes": None if dataset.classes is None else dataset.classes.tolist(),
        "blocks": len(reader.sizes),
        "block_rows": max(reader.sizes),
        "block_bytes": max(reader.sizes) * width,
        "bytes": dataset.shape[0] * width,
        "shuffled": bool(attrs.get("shuffled")),
        "projected_from": None if dataset.projection is None else dataset.projection.n_columns,
        "scale": attrs.get("scale"),
        "seed": attrs.get("seed"),
        "dropped_rows": attrs.get("dropped_rows"),
        "source": attrs.get("source"),
        "format": attrs.get("format"),
        "version": attrs.get("version"),
    }


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
    pairs += [(k, str(v)) for k, v in _told(record.get("about") or {}).items()]
    common.show(data, _aligned([*pairs, ("bytes", f"{size:,}")]), as_json)


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


def _told(about: dict[str, Any]) -> dict[str, Any]:
    """Return the plain values of what was kept with a model, and what is known of its data."""
    from rfcdask.data.columns import first_names

    shown: dict[str, Any] = {k: v for k, v in about.items() if isinstance(v, (str, int, float))}
    data = about.get("data")
    if isinstance(data, dict):
        names = data.get("column_names")
        shown["data"] = data.get("path")
        shown["columns"] = first_names(names) if names else data.get("columns")
        shown["label"] = data.get("label_name")
    return {k: v for k, v in shown.items() if v is not None}


def _aligned(pairs: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs)
