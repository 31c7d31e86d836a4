"""What an unfinished ingest remembers, in a folder of the store that goes when it is done."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rfcdask.data.location import Location
from rfcdask.data.manifest import Seal
from rfcdask.data.sources.survey import Survey
from rfcdask.data.stats import ColumnStats

FOLDER = ".ingest"
_BLOCKS = f"{FOLDER}/blocks"
_SURVEY = f"{FOLDER}/survey.json"
RUNS = f"{FOLDER}/runs"


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
        names = self.location.names(_BLOCKS)
        return [
            int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()
        ]

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
