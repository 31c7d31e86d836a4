"""The folder of a run: which files it has, how they are written, who may use it."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rfcdask.persist import untrusted
from rfcdask.persist.files import PARTIAL, atomic_file, discard, exclusive_lock

FORMAT = 1
"""Raised when a run that was begun by an older version cannot be gone on with."""


_PARTS = (PARTIAL, ".part")
"""How names of half written files end, here and in earlier versions."""


class RunExistsError(FileExistsError):
    """The folder holds a finished run, or something that is no run."""


class UnfinishedRunError(RuntimeError):
    """The folder holds a run that was interrupted."""


class OtherRunError(ValueError):
    """The folder's run has other settings or other data than were asked for."""


@dataclass(frozen=True)
class RunFolder:
    """Names of everything that a run writes."""

    path: Path

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder at a path, which need not exist."""
        return cls(Path(path).expanduser().absolute())

    @property
    def begun(self) -> Path:
        """What was asked for; written first."""
        return self.path / "run.json"

    @property
    def data(self) -> Path:
        """The store, when the run wrote one."""
        return self.path / "data.zarr"

    @property
    def sample(self) -> Path:
        """Rows on which maps are compared."""
        return self.path / "sample.npz"

    @property
    def phases(self) -> Path:
        """One file for each finished phase."""
        return self.path / "phases"

    @property
    def maps(self) -> Path:
        """Fitted maps that later phases need."""
        return self.path / "maps"

    @property
    def checkpoint(self) -> Path:
        """State of training."""
        return self.path / "training.npz"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / "model"

    @property
    def log(self) -> Path:
        """What happened when."""
        return self.path / "run.log"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    @property
    def results(self) -> Path:
        """The numbers; written last."""
        return self.path / "results.json"

    @property
    def is_run(self) -> bool:
        """Whether a run was ever begun here."""
        return self.begun.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return self.is_run and self.results.is_file()

    def clear(self) -> None:
        """Remove what a run wrote, `begun` last, and nothing else.

        Folders lose their names first: half of one is never taken for the whole.
        """
        for folder in (self.data, self.phases, self.maps, self.model):
            if os.path.lexists(folder):
                folder.replace(folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}{PARTIAL}"))
        for file in (self.results, self.report, self.sample, self.checkpoint, self.log, self.begun):
            file.unlink(missing_ok=True)
        self.sweep()

    def tidy(self) -> None:
        """Remove what a finished run no longer needs."""
        self.checkpoint.unlink(missing_ok=True)
        self.sample.unlink(missing_ok=True)
        shutil.rmtree(self.maps, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what a killed process left half written."""
        for end in _PARTS:
            for part in (*self.path.glob(f"*{end}"), *self.phases.glob(f"*{end}")):
                discard(part)

    def refuse_links(self) -> None:
        """Raise when anything in the folder is a link: writing through it would change that."""
        for place, folders, files in os.walk(self.path):
            for name in (*folders, *files):
                if os.path.islink(path := os.path.join(place, name)):
                    raise OtherRunError(
                        f"{path} is a link, and a run writes through none: put there what it leads "
                        "to, or pass --overwrite instead of --resume to begin anew."
                    )

    def require_free(self, *, overwrite: bool) -> None:
        """Raise unless a new run may begin here."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise RunExistsError(f"{self.path} is a file: choose another folder with --out.")
        if self.is_run:
            if not overwrite:
                raise self._taken()
            return
        strangers = sorted(item.name for item in self.path.iterdir() if item.name != LOCK)
        if strangers:
            raise RunExistsError(
                f"{self.path} is no folder of a run ({strangers[0]} lies there): choose another "
                "with --out."
            )

    def _taken(self) -> Exception:
        if self.is_finished:
            return RunExistsError(
                f"{self.path} holds a finished run: see {self.report}, choose another folder with "
                "--out, or pass --overwrite to replace it."
            )
        return UnfinishedRunError(
            f"{self.path} holds an unfinished run: pass --resume to go on with it, or --overwrite "
            "to begin anew."
        )

    def resume_hint(self) -> str:
        """Return the command that goes on with this run."""
        where = "" if self.path == Path("rfcdask-run").absolute() else f" --out {self.path}"
        return f"rfcdask run --resume{where}"


LOCK = ".lock"


def locked(folder: RunFolder) -> AbstractContextManager[None]:
    """Keep a second process out of the folder; the lock goes with the process."""
    refusal = RunExistsError(
        f"another process is running in {folder.path}: wait for it, or choose another folder with "
        "--out."
    )
    return exclusive_lock(folder.path / LOCK, refusal)


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file that is there whole or not at all."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(path) as file:
        file.write(text.encode())


def read_json(path: Path, *needed: str) -> dict[str, Any]:
    """Read what :func:`write_json` wrote, an object with at least the needed names."""
    with damage_of(path):
        found = untrusted.read_json(path)
        if not isinstance(found, dict) or not all(name in found for name in needed):
            raise ValueError(f"it does not hold {', '.join(needed) or 'an object'}")
        return found


def damage_of(path: Path, remedy: str | None = None) -> AbstractContextManager[None]:
    """Say of every fault in the block that a file of the run is damaged."""
    remedy = remedy or "remove it and call with --resume to make it again"
    return untrusted.faults_as(
        lambda why: OtherRunError(f"{path} is damaged ({why}): {remedy}."), OtherRunError
    )
