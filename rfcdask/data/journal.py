"""What an unfinished ingest remembers, in a folder of the store that goes when it is done."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rfcdask.data.location import Location
from rfcdask.data.stats import ColumnStats
from rfcdask.data.survey import Survey

FOLDER = ".ingest"
_BLOCKS = f"{FOLDER}/blocks"
_SURVEY = f"{FOLDER}/survey.json"
RUNS = f"{FOLDER}/runs"


@dataclass(frozen=True)
class Journal:
    """The records of one store. A block counts as written once its record is there."""

    location: Location

    @property
    def exists(self) -> bool:
        """Whether there is anything left of an ingest."""
        return self.location.exists(FOLDER)

    def done(self) -> set[int]:
        """Return the blocks that are written."""
        return _numbers(self.location.names(_BLOCKS), ".json")

    def record(self, block: int, stats: ColumnStats, labels: int | None = None) -> None:
        """Note that a block is written, with the statistics of its rows and a sum of its labels."""
        self._save(f"{_BLOCKS}/{block:06d}.json", stats.to_json() | {"labels": labels})

    def labels(self, block: int) -> int | None:
        """Return the checksum of the labels of a written block."""
        found: int | None = self._load(f"{_BLOCKS}/{block:06d}.json").get("labels")
        return found

    def stats(self, block: int) -> ColumnStats:
        """Return the statistics of a written block."""
        return ColumnStats.from_json(self._load(f"{_BLOCKS}/{block:06d}.json"))

    def save_survey(self, survey: Survey) -> None:
        """Keep what the first look found, so that going on does not look again."""
        self._save(_SURVEY, survey.to_json())

    def survey(self) -> Survey | None:
        """Return what the first look found, if it was finished."""
        return Survey.from_json(self._load(_SURVEY)) if self.location.exists(_SURVEY) else None

    def scattered(self) -> set[int]:
        """Return the blocks whose rows are scattered for the shuffle."""
        return _numbers(self.location.names(RUNS), ".X")

    def clear(self) -> None:
        """Remove all records."""
        self.location.delete(FOLDER)

    def _save(self, name: str, value: Any) -> None:
        self.location.write(name, json.dumps(value).encode())

    def _load(self, name: str) -> Any:
        return json.loads(self.location.read(name))


def _numbers(names: list[str], ending: str) -> set[int]:
    return {int(name.removesuffix(ending)) for name in names if name.endswith(ending)}
