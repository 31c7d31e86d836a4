"""What every phase of a run is given, and what it finds again of the phases before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import dask.config
import numpy as np

from rfcdask.data import Dataset, open_dataset
from rfcdask.kernels.arrays import Array
from rfcdask.linear.standardize import Standardizer
from rfcdask.persist.files import atomic_file
from rfcdask.persist.untrusted import open_npz, redacted
from rfcdask.pipeline.folder import RunFolder, damage_of, read_json
from rfcdask.pipeline.settings import Settings

FEATURE_BLOCK = 24 * 2**20
"""Bytes of the features of one block: a few of them are in memory for each thread."""

Say = Callable[[str], None]


class Sample(NamedTuple):
    """Rows in memory, standardized like all others: to learn from, and held out."""

    X: Array
    y: Array
    test: Array
    labels: Array


@dataclass
class Context:
    """One run while it goes."""

    folder: RunFolder
    settings: Settings
    source: str | None
    client: Any
    say: Say
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    def product(self, phase: str) -> dict[str, Any]:
        """Return what a finished phase found."""
        found: dict[str, Any] = self.done[phase]["product"]
        return found

    @property
    def used(self) -> dict[str, Any]:
        """All settings, with what was settled from the data."""
        settled: dict[str, Any] = self.product("data")["settled"]
        return self.settings.to_dict() | settled

    @property
    def largest(self) -> int:
        """The largest number of features."""
        return int(max(self.used["sizes"]))

    @cached_property
    def stored(self) -> Dataset:
        """All rows as they are on disk, in blocks fit for this run."""
        place = self.product("data")["path"]
        if (self.folder.data / "zarr.json").is_file():
            place = str(self.folder.data)  # the folder may have been moved since it was recorded
        elif self.source is not None and place == redacted(self.source):
            place = self.source  # the record has no credentials
        dataset = open_dataset(place)
        row_bytes = 4 * max(self.largest, dataset.shape[1])
        return dataset.with_smaller_blocks(row_bytes, FEATURE_BLOCK)

    @cached_property
    def standardizer(self) -> Standardizer | None:
        """The map to mean 0 and variance 1, None where the columns are left as they are."""
        return Standardizer.of(self.stored) if self.used["standardize"] else None

    @cached_property
    def _parts(self) -> tuple[Dataset, Dataset]:
        dataset = self.stored.standardize() if self.used["standardize"] else self.stored
        return dataset.split(self.used["test_size"], random_state=self.settings.seed)

    @property
    def train(self) -> Dataset:
        """The rows to learn from, lazily."""
        return self._parts[0]

    @property
    def test(self) -> Dataset:
        """The rows held out, lazily."""
        return self._parts[1]

    @cached_property
    def sample(self) -> Sample:
        """The rows on which maps are compared."""
        path = self.folder.sample
        record = phase_file(self.folder, 3, "sample")
        again = f"remove {record} and call with --resume to make it again"
        with damage_of(path, again), open_npz(path) as stored:
            return Sample(*(stored[name] for name in Sample._fields))

    def keep_sample(self, sample: Sample) -> None:
        """Write the rows on which maps are compared."""
        with atomic_file(self.folder.sample) as file:
            np.savez(file, **sample._asdict())

    def log(self, text: str) -> None:
        """Add a line with the time to the run's log."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with open(self.folder.log, "a", encoding="utf-8") as file:
            file.write(f"{now} {redacted(text)}\n")

    def load_finished(self, names: list[str]) -> None:
        """Take up the records of finished phases, up to the first that is missing."""
        for number, name in enumerate(names, 1):
            path = phase_file(self.folder, number, name)
            if not path.is_file():
                return
            self.done[name] = read_json(path, "product")


def phase_file(folder: RunFolder, number: int, name: str) -> Any:
    """Return where a phase's record lies."""
    return folder.phases / f"{number:02d}-{name}.json"


@contextmanager
def in_this_process() -> Iterator[None]:
    """Compute small arrays on threads here instead of sending them to the cluster."""
    with dask.config.set(scheduler="threads"):
        yield
