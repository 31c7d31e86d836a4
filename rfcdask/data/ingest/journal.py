"""What one ingest is and remembers: its plan, and a folder of records that goes when it is done."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from rfcdask.data.columns import ColumnStats
from rfcdask.data.errors import DataError
from rfcdask.data.layout import Layout
from rfcdask.data.location import Location
from rfcdask.data.manifest import Seal
from rfcdask.data.sources.base import Survey
from rfcdask.data.sources.labels import Labels
from rfcdask.persist.files import disk_errors

FOLDER = ".ingest"
RUNS = f"{FOLDER}/runs"
_BLOCKS = f"{FOLDER}/blocks"
_SURVEY = f"{FOLDER}/survey.json"


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
        return ["X"] if self.layout.label_dtype is None else ["X", "y"]

    def require_same_ingest(self) -> None:
        """Refuse to write where another ingest was begun, or this one was ended, meanwhile.

        A task that was sent to a cluster may outlive the process that sent it, and its lock.
        """
        mark = None
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            mark = json.loads(self.location.read("zarr.json"))["attributes"]["check"]
        if mark != self.mark:
            raise DataError(
                f"{self.location} is no longer what this ingest began: another one writes or has "
                "written there."
            )


@dataclass(frozen=True)
class BlockRecord:
    """What is known of a block that is written: statistics, a sum of its labels, its shards."""

    stats: ColumnStats
    labels: int | None
    seals: Mapping[str, Seal]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        seals = {name: asdict(seal) for name, seal in self.seals.items()}
        return {"stats": self.stats.to_json(), "labels": self.labels, "seals": seals}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlockRecord:
        """Rebuild what `to_json` wrote."""
        seals = {
            name: Seal(seal["size"], seal["index"], tuple(seal["chunks"]))
            for name, seal in data["seals"].items()
        }
        return cls(ColumnStats.from_json(data["stats"]), data["labels"], seals)


@dataclass(frozen=True)
class Journal:
    """The records of one store, each with a checksum: a damaged one counts as not there.

    A block counts as written once its record is there. Nothing is forced to the disk for that: who
    goes on compares every block with its record, and writes those anew that did not get there.
    """

    location: Location

    @property
    def exists(self) -> bool:
        """Whether there is anything left of an ingest."""
        return self.location.exists(FOLDER)

    def recorded(self) -> list[int]:
        """Return the blocks that have a record."""
        stems = [name.removesuffix(".json") for name in self.location.names(_BLOCKS)]
        return [int(stem) for stem in stems if stem.isdecimal()]

    def record(self, block: int, record: BlockRecord) -> None:
        """Note that a block is written."""
        self._save(_block_name(block), record.to_json())

    def block(self, block: int) -> BlockRecord | None:
        """Return the record of a written block."""
        found = self._load(_block_name(block))
        return None if found is None else BlockRecord.from_json(found)

    def forget(self, block: int) -> None:
        """Take back that a block is written."""
        self.location.delete(_block_name(block))

    def save_survey(self, survey: Survey) -> None:
        """Keep what the first look found, so that going on does not look again."""
        self._save(_SURVEY, survey.to_json())

    def survey(self) -> Survey | None:
        """Return what the first look found, if it was finished."""
        found = self._load(_SURVEY)
        return None if found is None else Survey.from_json(found)

    def clear(self) -> None:
        """Remove all records."""
        self.location.delete(FOLDER)

    def _save(self, name: str, value: Any) -> None:
        text = json.dumps(value)
        self.location.write(name, json.dumps([zlib.crc32(text.encode()), text]).encode())

    def _load(self, name: str) -> Any:
        try:
            mark, text = json.loads(self.location.read(name))
            return json.loads(text) if zlib.crc32(text.encode()) == mark else None
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return None


def _block_name(block: int) -> str:
    return f"{_BLOCKS}/{block:06d}.json"


def destination_errors(location: Location) -> AbstractContextManager[None]:
    """Turn failures of the disk into sentences that say how to go on with an ingest."""
    return disk_errors(location, "run the same ingest again to go on from there", DataError)
