"""The store before and after its rows: the plan, the records that go when it is done, the marks."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import zarr
from dask.utils import format_bytes
from zarr.storage import MemoryStore

from rfcdask._version import __version__
from rfcdask.data.columns import ColumnStats, merge_stats
from rfcdask.data.errors import DamagedStoreError, DataError, StoreExistsError, UnreachableError
from rfcdask.data.layout import FORMAT, SPARSE_FORMAT, Layout, create_arrays, group_file
from rfcdask.data.location import Location, reaching
from rfcdask.data.manifest import KEY as MANIFEST
from rfcdask.data.manifest import Manifest, Seal, Shards, file_facts, keep_others
from rfcdask.data.sources.base import Labels, Source, Survey
from rfcdask.data.views import SparseProjection, draw_projection, save_projection
from rfcdask.kernels.seeds import seed_of
from rfcdask.persist.files import disk_errors, exclusive_lock, is_partial, lock_path
from rfcdask.persist.untrusted import redacted, shown_cause

FOLDER = ".ingest"
RUNS = f"{FOLDER}/runs"
_BLOCKS = f"{FOLDER}/blocks"
_SURVEY = f"{FOLDER}/survey.json"
_REQUEST = f"{FOLDER}/request.json"
NOT_READ = (FileNotFoundError, IsADirectoryError, ValueError)
"""What reading a file of an interrupted ingest raises that is lost or damaged."""
Files = dict[str, bytes]
"""Names of files within a store and what they hold."""


@dataclass(frozen=True)
class WritePlan:
    """Everything that is the same for all blocks of one ingest; every task carries it."""

    location: Location
    layout: Layout
    labels: Labels | None
    source_columns: int
    source_name: str
    projection_seed: int | None = None
    mark: int | None = None
    """The check of what was begun, which no other ingest of the same place has."""

    @property
    def projected(self) -> bool:
        """Whether rows are projected on their way."""
        return self.projection_seed is not None

    @property
    def arrays(self) -> list[str]:
        """Names of the arrays of the store."""
        return ["X", *([] if self.layout.label_dtype is None else [self.layout.label_array])]

    def require_same_ingest(self) -> None:
        """Refuse to write where another ingest was begun, or this one was ended, meanwhile.

        A task that was sent to a cluster may outlive the process that sent it, and its lock.
        """
        if (_attrs(self.location) or {}).get("check") != self.mark:
            raise DataError(
                f"{self.location} is no longer what this ingest began: another one writes or has "
                "written there, or a worker looks for it elsewhere, and all must see the same."
            )


@dataclass(frozen=True)
class BlockRecord:
    """What is known of a block that is written: statistics, a sum of its labels, its shards.

    A sparse block has no statistics, but files and a number of values.
    """

    stats: ColumnStats | None = None
    labels: int | None = None
    seals: Mapping[str, Seal] = field(default_factory=dict)
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    n_values: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        seals = {name: asdict(seal) for name, seal in self.seals.items()}
        stats = None if self.stats is None else self.stats.to_json()
        files = {name: list(facts) for name, facts in self.files.items()}
        found = {"stats": stats, "labels": self.labels, "seals": seals}
        return found | {"files": files, "n_values": self.n_values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlockRecord:
        """Rebuild what `to_json` wrote."""
        seals = {
            name: Seal(seal["size"], seal["index"], tuple(seal["chunks"]))
            for name, seal in data["seals"].items()
        }
        stats = None if data["stats"] is None else ColumnStats.from_json(data["stats"])
        # Records of older versions have none of the last two.
        files = {name: (size, mark) for name, (size, mark) in data.get("files", {}).items()}
        return cls(stats, data["labels"], seals, files, data.get("n_values"))


@dataclass(frozen=True)
class Journal:
    """The records of one store, each with a checksum: a damaged one counts as not there.

    A block counts as written once its record is there. Nothing is forced to the disk for that: who
    goes on compares every block with its record, and writes those anew that did not get there.
    """

    location: Location

    def recorded(self) -> list[int]:
        """Return the blocks that have a record."""
        stems = [name.removesuffix(".json") for name in self.location.names(_BLOCKS)]
        return [int(stem) for stem in stems if stem.isdecimal()]

    def record(self, block: int, record: BlockRecord) -> None:
        """Note that a block is written."""
        self._save(_block_name(block), record.to_json())

    def block(self, block: int) -> BlockRecord | None:
        """Return the record of a written block."""
        found: BlockRecord | None = self._load(_block_name(block), BlockRecord.from_json)
        return found

    def forget(self, block: int) -> None:
        """Take back that a block is written."""
        self.location.delete(_block_name(block))

    def save_survey(self, survey: Survey) -> None:
        """Keep what the first look found, so that going on does not look again."""
        self._save(_SURVEY, survey.to_json())

    def survey(self) -> Survey | None:
        """Return what the first look found, if it was finished."""
        found: Survey | None = self._load(_SURVEY, Survey.from_json)
        return found

    def save_request(self, request: IngestRequest) -> None:
        """Keep what was asked for, which the attributes of a finished store no longer say."""
        self._save(_REQUEST, asdict(request))

    def request(self) -> Any:
        """Return what was asked for, if all of it is done."""
        return self._load(_REQUEST, dict)

    def clear(self) -> None:
        """Remove all records, and last the one that says which ingest is done."""
        self.location.delete(FOLDER, last="request.json")

    def _save(self, name: str, value: Any) -> None:
        text = json.dumps(value)
        self.location.write(name, json.dumps([zlib.crc32(text.encode()), text]).encode())

    def _load(self, name: str, read: Callable[[Any], Any]) -> Any:
        try:
            mark, text = json.loads(self.location.read(name))
            return read(json.loads(text)) if zlib.crc32(text.encode()) == mark else None
        except DataError:
            raise
        except (*NOT_READ, TypeError, AttributeError, LookupError, RecursionError):
            return None


def _block_name(block: int) -> str:
    return f"{_BLOCKS}/{block:06d}.json"


def destination_errors(location: Location) -> AbstractContextManager[None]:
    """Turn failures of the disk into sentences that say how to go on with an ingest."""
    return disk_errors(location, "run the same ingest again to go on from there", DataError)


@dataclass(frozen=True)
class IngestRequest:
    """What was asked for: the source as it is now, and every option that shapes the store."""

    source: Any
    options: dict[str, Any]


@contextmanager
def same_source(rows: Source, request: IngestRequest) -> Iterator[None]:
    """Refuse rows of a source that changes while they are read, also where that ends reading."""
    failed: Exception | None = None
    try:
        yield
    except Exception as error:
        failed = error
    changed = False
    try:
        with reaching(rows.names[0]):
            changed = not rows.in_memory and redacted(rows.identity()) != request.source
    except UnreachableError as error:  # whether it was changed cannot be said
        failed = error if failed is None or isinstance(failed, FileNotFoundError) else failed
    except (FileNotFoundError, NotADirectoryError, ValueError):  # removed, or half written
        changed = True
    if changed:
        raise DataError(
            f"{', '.join(rows.names[:3])} was changed while it was read: ingest it again with "
            "overwrite=True."
        ) from failed and shown_cause(failed)
    if failed is not None:
        raise failed


def found_finished(location: Location, request: IngestRequest, *, overwrite: bool) -> bool:
    """Look at what is there: clear the way, or refuse; True when this very ingest is done.

    An ingest that was killed after its last block and before its records were gone is done.
    """
    if not location.exists():
        return False
    attrs = _attrs(location)
    if attrs is None:
        return False  # `begin` refuses what else lies there
    sound = attrs.get("check", _check_of(attrs)) == _check_of(attrs)
    if not sound and not overwrite:
        raise DamagedStoreError(
            f"{location}/zarr.json, which says what was begun there, is damaged: pass "
            "overwrite=True to start anew."
        )
    same = _is_same(attrs.get("request"), request) and attrs.get("check") == _check_of(attrs)
    if overwrite:
        if not same or attrs.get("complete"):
            keep_others(location)
            location.clear(last="zarr.json")
        return False
    if attrs.get("complete"):
        if _is_same(Journal(location).request(), request):
            location.sweep_partial_files()
            Journal(location).clear()
            return True
        raise StoreExistsError(f"{location} exists already: pass overwrite=True to replace it.")
    if not _is_request(attrs.get("request")):
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


@contextmanager
def only_writer(location: Location) -> Iterator[None]:
    """Keep a second process on this machine from writing the same local store."""
    refusal = StoreExistsError(
        f"another process is writing {location}: wait for it, or choose another destination."
    )
    with ExitStack() as held:
        if location.is_local:
            path = lock_path(Path(os.path.realpath(location.url)))
            with destination_errors(location):
                os.makedirs(path.parent, exist_ok=True)
                held.enter_context(exclusive_lock(path, refusal))
        yield


def is_finished(location: Location) -> bool:
    """Tell whether there is a whole zarr store, ours or somebody else's."""
    attrs = _attrs(location) if location.exists() else None
    return attrs is not None and ("request" not in attrs or bool(attrs.get("complete")))


def _attrs(location: Location) -> dict[str, Any] | None:
    """Return the attributes of what is there; None when it is no zarr array or group."""
    try:
        return dict(json.loads(location.read("zarr.json")).get("attributes") or {})
    except (UnreachableError, PermissionError):  # it may be there
        raise
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        old = any(location.exists(name) for name in (".zgroup", ".zarray"))
        return {} if old else None


def _refuse_other_files(location: Location) -> None:
    # Whatever overwrite says: a folder that is no zarr store was not put there by an ingest.
    others = [name for name in location.names("") if not is_partial(name)]
    if others:
        raise StoreExistsError(
            f"{location} exists and is no zarr store ({others[0]} lies there): choose another "
            "destination."
        )


def _is_request(found: Any) -> bool:
    return isinstance(found, dict) and "source" in found and isinstance(found.get("options"), dict)


def _is_same(before: Any, request: IngestRequest) -> bool:
    same = _is_request(before) and before["options"] == request.options
    return same and _is_same_source(before["source"], request.source)


def _is_same_source(before: Any, now: Any) -> bool:
    """Compare two identities; earlier versions kept name, shape and type alone of zarr arrays."""
    if not isinstance(before, list) or not isinstance(now, list):
        return bool(before == now)
    if len(before) == 3 and len(now) == 4:
        now = now[:3]
    return len(before) == len(now) and all(map(_is_same_source, before, now))


def _difference(before: dict[str, Any], request: IngestRequest) -> str:
    if not _is_same_source(before["source"], request.source):
        return "the source differs"
    names = [k for k, v in request.options.items() if before["options"].get(k) != v]
    return ", ".join(f"{name} was {before['options'].get(name)!r}" for name in names)


def begin(
    location: Location, request: IngestRequest, random_state: Any, *, drawn: bool
) -> tuple[int | None, int]:
    """Mark the store as unfinished, or take it up again; return the seed and the mark."""
    attrs = _attrs(location) if location.exists() else None
    if attrs is None:
        _refuse_other_files(location)  # blocks of another seed would be gone on with
    elif not _is_same(attrs.get("request"), request):  # behind a URL there is no lock
        raise StoreExistsError(
            f"another process began or ended to write {location} just now: choose another "
            "destination, or call again when it is done."
        )
    location.sweep_partial_files()
    if attrs is not None:
        return attrs["seed"], attrs["check"]
    seed = seed_of(random_state) if drawn else None
    attrs = {"format": FORMAT, "complete": False, "request": asdict(request), "seed": seed}
    mark = _check_of(attrs)
    location.write("zarr.json", group_file(attrs | {"check": mark}))
    return seed, mark


def _check_of(attrs: dict[str, Any]) -> int:
    kept = {name: value for name, value in attrs.items() if name != "check"}
    return zlib.crc32(json.dumps(kept, sort_keys=True).encode())


def prepare(plan: WritePlan, request: IngestRequest, inherited: SparseProjection | None) -> Files:
    """Write the metadata of the arrays and the projection, also over those of a first attempt."""
    _check_space(plan, scratch=bool(request.options["shuffle"]))
    projection, layout = inherited, plan.layout
    if plan.projection_seed is not None:
        projection = draw_projection(plan.source_columns, layout.n_columns, plan.projection_seed)
    kept: dict[str, Any] = {}
    group = zarr.create_group(store=MemoryStore(kept), zarr_format=3)
    create_arrays(group, layout, plan.arrays)
    if projection is not None:
        save_projection(group, projection)
    files = {name: data.to_bytes() for name, data in kept.items() if name != "zarr.json"}
    for name, data in files.items():
        plan.location.write(name, data)
    return files


def _check_space(plan: WritePlan, *, scratch: bool) -> None:
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


def finish(
    plan: WritePlan,
    rows: Source,
    survey: Survey,
    request: IngestRequest,
    seed: int | None,
    files: Files,
) -> None:
    """Put the statistics of all blocks together and mark the store as complete."""
    records = list(filter(None, map(Journal(plan.location).block, range(plan.layout.n_blocks))))
    if len(records) < plan.layout.n_blocks:
        raise DamagedStoreError(
            f"the record of a block in {plan.location}/{FOLDER} was lost or damaged: run the same "
            "ingest again, which writes that block anew."
        )
    label_sums = [record.labels for record in records]
    scale = request.options["scale"]
    attrs = {
        "format": SPARSE_FORMAT if plan.layout.sparse else FORMAT,
        "version": __version__,
        "complete": True,
        "n_rows": plan.layout.n_rows,
        "n_columns": plan.layout.n_columns,
        # Names of files need not be UTF-8.
        "source": [name.encode(errors="replace").decode() for name in redacted(rows.names)],
        **_label_attributes(plan),
        "shuffled": request.options["shuffle"] or rows.shuffled,
        "seed": seed,
        "scale": rows.scale if scale is None else scale,
        "dropped_rows": len(survey.dropped),
        # It tells two sets of labels of the same rows apart.
        "label_checksum": None if None in label_sums else zlib.crc32(repr(label_sums).encode()),
        **({} if survey.table is None else {"table": survey.table}),
        **({} if rows.standardized is None else {"standardized": rows.standardized}),
        **survey.names.attributes(projected=plan.projected),
        **_row_attributes(records),
    }
    plan.location.sweep_partial_files()
    root = group_file(attrs)
    facts = {name: file_facts(data) for name, data in (files | {"zarr.json": root}).items()}
    for record in records:
        facts |= record.files
    sharded = [name for name in plan.arrays if name in records[0].seals]
    seals = {name: Shards.of(record.seals[name] for record in records) for name in sharded}
    manifest = Manifest(plan.layout.n_rows, facts, seals)
    plan.location.write(MANIFEST, manifest.to_bytes())
    Journal(plan.location).save_request(request)
    # The mark comes last, when all the rest is on the disk: a store that says it is complete has a
    # manifest of all that it is. Before that, whoever goes on reads every block that was written.
    plan.location.sync()
    plan.location.write("zarr.json", root, lasting=True)
    Journal(plan.location).clear()


def _row_attributes(records: list[BlockRecord]) -> dict[str, Any]:
    """Return what blocks say of their values: column statistics, or how many sparse rows have."""
    stats = [record.stats for record in records if record.stats is not None]
    if stats:
        return merge_stats(stats).attributes()
    return {"sparse": True, "n_values": sum(record.n_values or 0 for record in records)}


def _label_attributes(plan: WritePlan) -> dict[str, Any]:
    labels = plan.labels
    if labels is None:
        return {"task": None, "labels": None, "classes": None}
    return {
        "task": "regression" if labels.classes is None else "classification",
        "labels": "text" if labels.text else "targets" if labels.targets else "numbers",
        "classes": None if labels.classes is None else list(labels.classes),
    }
