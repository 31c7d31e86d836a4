"""The store before and after its rows: who may write there, what is marked, what is recorded."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import zarr
from dask.utils import format_bytes

from rfcdask._version import __version__
from rfcdask.data.errors import DataError, StoreExistsError
from rfcdask.data.journal import Journal
from rfcdask.data.layout import FORMAT, create_arrays
from rfcdask.data.location import Location
from rfcdask.data.projection import SparseProjection, draw_projection, save_projection
from rfcdask.data.source import Source
from rfcdask.data.stats import merge
from rfcdask.data.survey import Survey
from rfcdask.data.write import Plan
from rfcdask.locks import only_process
from rfcdask.redact import redacted
from rfcdask.seeds import seed_of


@dataclass(frozen=True)
class Request:
    """What was asked for: the source as it is now, and every option that shapes the store."""

    source: Any
    options: dict[str, Any]


def found_finished(location: Location, request: Request, *, overwrite: bool) -> bool:
    """Look at what is there: clear the way, or refuse; True when this very ingest is done.

    An ingest that was killed after its last block and before its records were gone is done.
    """
    if not location.exists():
        return False
    attrs = _attrs(location)
    if attrs is None:
        _refuse_strangers(location)
        return False
    same = attrs.get("request") == asdict(request)
    if overwrite:
        if not (same and not attrs.get("complete")):
            location.delete()
        return False
    if attrs.get("complete"):
        if Journal(location).exists:
            location.sweep_partial_files()
            Journal(location).clear()
            return True
        raise StoreExistsError(f"{location} exists already: pass overwrite=True to replace it.")
    if "request" not in attrs:
        raise StoreExistsError(
            f"{location} holds a zarr group that is not ours: choose another destination, or pass "
            "overwrite=True to replace it."
        )
    if not same:
        raise StoreExistsError(
            f"{location} is unfinished, from another source or with other options "
            f"({_difference(attrs['request'], request)}): repeat that ingest, or pass "
            "overwrite=True to start anew."
        )
    return False


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else "user"


def only_writer(location: Location) -> AbstractContextManager[None]:
    """Keep a second process on this machine from writing the same local store."""
    if not location.is_local:
        return nullcontext()
    # Not in the store nor beside it: what lies there is for people to see.
    mark = hashlib.sha256(os.path.realpath(location.url).encode()).hexdigest()[:24]
    path = Path(tempfile.gettempdir()) / f"rfcdask-{_user()}-{mark}.lock"
    refusal = StoreExistsError(
        f"another process is writing {location}: wait for it, or choose another destination."
    )
    return only_process(path, refusal)


def is_finished(location: Location) -> bool:
    """Tell whether there is a whole zarr store, ours or somebody else's."""
    attrs = _attrs(location) if location.exists() else None
    return attrs is not None and ("request" not in attrs or bool(attrs.get("complete")))


def _attrs(location: Location) -> dict[str, Any] | None:
    try:
        node = zarr.open(store=location.store(), mode="r")
    except (FileNotFoundError, KeyError, ValueError):
        return None
    return dict(node.attrs)


def _refuse_strangers(location: Location) -> None:
    # Whatever overwrite says: a folder that is no zarr store was not put there by an ingest.
    strangers = [name for name in location.names("") if not name.endswith(".partial")]
    if strangers:
        raise StoreExistsError(
            f"{location} exists and is no zarr store ({strangers[0]} lies there): choose another "
            "destination."
        )


def _difference(before: dict[str, Any], request: Request) -> str:
    if before["source"] != request.source:
        return "the source differs"
    names = [k for k, v in request.options.items() if before["options"].get(k) != v]
    return ", ".join(f"{name} was {before['options'].get(name)!r}" for name in names)


def begin(location: Location, request: Request, random_state: Any, *, drawn: bool) -> int | None:
    """Mark the store as unfinished, or take it up again; return the seed in either case."""
    attrs = _attrs(location) if location.exists() else None
    if attrs is not None:
        location.sweep_partial_files()
        seed: int | None = attrs["seed"]
        return seed
    seed = seed_of(random_state) if drawn else None
    zarr.create_group(
        store=location.store(read_only=False),
        zarr_format=3,
        attributes={
            "format": FORMAT,
            "complete": False,
            "request": asdict(request),
            "seed": seed,
        },
    )
    return seed


def prepare(plan: Plan, request: Request, inherited: SparseProjection | None) -> None:
    """Make the arrays and the projection, unless a first attempt did."""
    check_space(plan, scratch=bool(request.options["shuffle"]))
    group = zarr.open_group(store=plan.location.store(read_only=False), mode="r+")
    missing = [name for name in _arrays(plan) if name not in group]
    if missing:
        create_arrays(group, plan.layout, missing)
    if plan.projected:
        seed = plan.projection_seed
        assert seed is not None  # drawn in `begin`
        projection = draw_projection(plan.source_columns, plan.layout.n_columns, seed)
        save_projection(group, projection)
    elif inherited is not None:
        save_projection(group, inherited)


def _arrays(plan: Plan) -> list[str]:
    return ["X"] if plan.layout.label_dtype is None else ["X", "y"]


def check_space(plan: Plan, *, scratch: bool) -> None:
    """Refuse what certainly does not fit: scratch files, and data that is not compressed."""
    free = plan.location.free_bytes()
    layout = plan.layout
    size = layout.block_bytes * layout.n_rows // layout.block_rows
    certain = size * (scratch + (layout.compressor is None))
    if free is not None and certain > free:
        remedy = "project= makes rows shorter" if plan.source_columns > 1000 else "make room"
        raise DataError(
            f"no space for {plan.location}: {format_bytes(certain)} are needed, "
            f"{format_bytes(free)} are free: {remedy} or choose another destination."
        )


def _label_checksum(journal: Journal, plan: Plan) -> int | None:
    """Return what tells two sets of labels of the same rows apart."""
    sums = [journal.labels(block) for block in range(plan.layout.n_blocks)]
    return None if None in sums else zlib.crc32(repr(sums).encode())


def finish(plan: Plan, rows: Source, survey: Survey, request: Request, seed: int | None) -> None:
    """Put the statistics of all blocks together and mark the store as complete."""
    journal = Journal(plan.location)
    stats = merge(journal.stats(block) for block in range(plan.layout.n_blocks))
    labels = plan.labels
    kind = None if labels is None else "text" if labels.text else "numbers"
    task = None
    if labels is not None:
        task = "regression" if labels.classes is None else "classification"
    scale = request.options["scale"]
    attrs = {
        "format": FORMAT,
        "version": __version__,
        "complete": True,
        "n_rows": plan.layout.n_rows,
        "n_columns": plan.layout.n_columns,
        "source": redacted(rows.names),
        "task": task,
        "labels": kind,
        "classes": None if labels is None or labels.classes is None else list(labels.classes),
        "shuffled": request.options["shuffle"] or getattr(rows, "shuffled", False),
        "seed": seed,
        "scale": getattr(rows, "scale", None) if scale is None else scale,
        "dropped_rows": len(survey.dropped),
        "label_checksum": _label_checksum(journal, plan),
        **survey.names.attributes(projected=plan.projected),
        **stats.attributes(),
    }
    group = zarr.open_group(store=plan.location.store(read_only=False), mode="r+")
    plan.location.sweep_partial_files()
    group.attrs.put(attrs)
    journal.clear()
