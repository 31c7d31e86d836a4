"""The folder of a run: which files it has, how they are written, who may use it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from rfcdask.persist import untrusted
from rfcdask.persist.files import (
    PARTIAL,
    UNFINISHED,
    atomic_file,
    backup_of,
    discard,
    exclusive_lock,
    follow_link,
    links_in,
    local_path,
    replace_folder,
    require_movable,
    restore_backup,
)

FORMAT = 1
"""Raised when a run that was begun by an older version cannot be gone on with."""
RESULTS_FORMAT = 1
"""That of results.json, which ``rfcdask compare`` writes too."""
MOST_SHOWN = {"maps": 1000, "methods": 100, "points": 10_000}
"""In a report, where each is drawn; real ones have some dozens, some ten, and 1000."""
MADE_AGAIN = "remove it and call again (rfcdask run with --resume) to make it again"
LOCK = ".lock"
_PART = rf"(\.\w+)?({re.escape(PARTIAL)}|\.part)"
"""How names of half written files, and of folders to be removed, end; in earlier versions too."""


class RunExistsError(FileExistsError):
    """The folder holds a finished run, or something that is no run."""


class UnfinishedRunError(RuntimeError):
    """The folder holds a run that was interrupted."""


class OtherRunError(ValueError):
    """The folder's run has other settings or other data than were asked for."""


class RunFolder:
    """Names of everything that a run writes.

    Parameters
    ----------
    path : Path
    model : path, optional
        The model that ``rfcdask fit`` writes in the end, whose work this folder holds; None for
        ``rfcdask run``, whose folder stays.
    replaces : path, optional
        The finished run whose place this one takes in the end.
    """

    def __init__(
        self,
        path: Path,
        model: str | os.PathLike[str] | None = None,
        replaces: Path | None = None,
    ) -> None:
        self.path, self.final_model = path, model
        self.final = replaces or path
        self.begun = path / "run.json"  # what was asked for; written first
        self.data = path / "data.zarr"  # the store, when the run wrote one
        self.sample = path / "sample.npz"  # rows on which maps are chosen and compared
        self.phases = path / "phases"  # one file for each finished phase
        self.maps = path / "maps"  # fitted maps that later phases need
        self.checkpoint = path / "training.npz"  # state of training
        self.model = path / "model"  # the trained model
        self.log = path / "run.log"  # what happened when
        self.report = path / "report.html"  # the page for people
        self.results = path / "results.json"  # the numbers; written last
        self.refused = path / "refused"  # there when nothing but other settings can go on

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder at a path, which need not exist; where it leads if it is a link."""
        place = follow_link(local_path(path, "runs")).absolute()
        if not place.name:
            raise RunExistsError(f"{place} is no folder for a run: choose another with --out.")
        return cls(require_text(place))

    @classmethod
    def of_fit(cls, model: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of the work on a model, beside it or where it leads as a link."""
        target = require_text(follow_link(local_path(model)).absolute())
        require_movable(target)
        return cls(target.with_name(target.name + UNFINISHED), model)

    @property
    def aside(self) -> RunFolder:
        """The folder of a run that is to replace the finished one here."""
        return RunFolder(self.path.with_name(self.path.name + UNFINISHED), replaces=self.path)

    @property
    def to_resume(self) -> RunFolder:
        """The folder to go on with: the one aside, where that is the unfinished one."""
        unfinished = self.is_run and not self.is_finished
        return self.aside if self.aside.is_run and not unfinished else self

    @property
    def is_run(self) -> bool:
        """Whether a run was ever begun here."""
        return self.begun.is_file()

    @cached_property
    def mark(self) -> str:
        """The checksum of what was asked for; files that bear another one are of another run.

        Empty where an older version began the run, whose files bear none.
        """
        begun = read_json(self.begun)
        return str(begun.get("checksum")) if begun.get("marked") else ""

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return self.is_run and self.results.is_file()

    @property
    def holds_results(self) -> bool:
        """Whether anything was learned from the data."""
        return any(part.exists() for part in (self.maps, self.checkpoint, self.model))

    @property
    def holds_work(self) -> bool:
        """Whether anything lies here that took time to make."""
        return self.data.exists() or self.holds_results

    def clear(self, *, keep_data: bool = False, keep_begun: bool = False) -> None:
        """Remove what a run wrote, `begun` last, and nothing else; the store may be kept.

        Folders lose their names first: half of one is never taken for the whole. Where a run begins
        anew `begun` is kept until that of the new one replaces it: without it, and with files of
        others, this would be no folder of a run.
        """
        for folder in self._folders[1 if keep_data else 0 :]:
            if os.path.lexists(folder):
                folder.replace(folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}{PARTIAL}"))
        for file in self._files[: -1 if keep_begun else None]:
            file.unlink(missing_ok=True)
        self.sweep()

    @property
    def _files(self) -> tuple[Path, ...]:
        made = (self.results, self.report, self.sample, self.checkpoint, self.log, self.refused)
        return (*made, self.begun)

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self.data, self.phases, self.maps, self.model

    def _is_half(self, name: str) -> bool:
        """Tell what a killed process left half written, or half removed, from files of others."""
        own = "|".join(re.escape(part.name) for part in (*self._files, *self._folders))
        beside = rf"\.({own})(\.lock|-[0-9a-f]{{8}}(-old)?)"  # of an ingest, and of a saved model
        mark = r"\.rfcdask-[0-9a-f]{32}"  # put there for workers to find
        return re.fullmatch(f"({own}){_PART}|{beside}|{mark}", name) is not None

    def refuse(self) -> None:
        """Let the corrected command begin here, with the store where that is the same still."""
        if not self.holds_work:
            self.clear()
        else:
            self.refused.touch()

    def put_in_place(self) -> None:
        """Let a finished run take the place of the one that it replaces; what is others' stays."""
        if self.path == self.final:
            return
        own = {LOCK, *(part.name for part in (*self._folders, *self._files))}
        for item in list(self.final.iterdir()):
            if item.name not in own and not self._is_half(item.name):
                item.replace(self.path / item.name)
        replace_folder(self.path, self.final)

    def recover(self) -> None:
        """Take up the replacement of a finished run where that was killed: see `replace_folder`.

        Just before the two change places, the new one has the name of what is to be removed.
        """
        new = RunFolder(backup_of(self.aside.path))
        restore_backup(self.aside.path, self.path)
        if not new.is_finished:
            return
        with suppress(RunExistsError), self.locked():  # else another process is at it just now
            finished = [run.results.stat().st_mtime_ns for run in (self, new) if run.is_finished]
            if finished == sorted(set(finished)) and len(finished) == 2:
                with suppress(OSError):  # unless a later one is there already
                    new.path.replace(self.aside.path)

    def tidy(self) -> None:
        """Remove what a finished run no longer needs; raise when it has lost what it made."""
        for part in (self.model, self.report):
            if not part.exists():
                raise OtherRunError(
                    f"{part} is missing, and the run is finished: {self.how_to_begin_anew}."
                )
        for part in (self.checkpoint, self.sample, self.refused):
            part.unlink(missing_ok=True)
        shutil.rmtree(self.maps, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what a killed process left half written."""
        halves = [part for part in self.path.glob("*") if self._is_half(part.name)]
        for part in (*halves, *self.phases.glob("[0-9]*.part*")):
            discard(part)

    def phase(self, number: int, name: str) -> Path:
        """Return where a phase's record lies."""
        return self.phases / f"{number:02d}-{name}.json"

    def load(self, path: Path) -> Any:
        """Load a map or model that a phase before has kept here."""
        from rfcdask.persist.models import load  # loads numpy and zarr, as work does

        said = f"{path} is missing or damaged: {self.how_to_begin_anew}."  # nobody has a copy of it
        with untrusted.faults_as(lambda why: OtherRunError(said)):
            return load(path)

    def refuse_links(self) -> None:
        """Raise when anything in the folder is a link: writing through it would change that.

        Nor may the log be a pipe, whose reader would be waited for.
        """
        for path in links_in(self.path):
            raise OtherRunError(
                f"{path} is a link, and a run writes through none: put there what it leads to, or "
                f"{self.how_to_begin_anew}."
            )
        with damage_of(self.log):
            untrusted.require_plain(self.log)

    def require_free(self, *, overwrite: bool) -> None:
        """Raise unless a new run may begin here."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise RunExistsError(f"{self.path} is a file: choose another folder with --out.")
        if self.is_run:
            mended = self.refused.exists() and not self.is_finished and not self.holds_results
            if not (overwrite or mended):
                raise self._taken()
            if self.is_finished:
                require_movable(self.path)
            return
        # Half written files are of a process that was killed, or of one that began just now.
        names = sorted(item.name for item in self.path.iterdir())
        strangers = [name for name in names if name != LOCK and not self._is_half(name)]
        if strangers:
            remedy = "remove it" if self.final_model else "choose another with --out"
            raise RunExistsError(
                f"{self.path} is no folder of a run ({strangers[0]} lies there): {remedy}."
            )

    def _taken(self) -> Exception:
        try:  # nothing can be done here while another process works here, so that comes first
            with self.locked():
                pass
        except RunExistsError as busy:
            return busy
        except OSError:  # a folder that nobody can write to
            pass
        if self.to_resume is not self:
            return UnfinishedRunError(
                f"{self.aside.path} holds an unfinished run that is to replace the finished one in "
                f"{self.path}: pass --resume to go on with it, or --overwrite to begin anew."
            )
        if self.is_finished:
            return RunExistsError(
                f"{self.path} holds a finished run: see {self.report}, choose another folder with "
                "--out, or pass --overwrite to replace it."
            )
        if self.refused.exists():
            return UnfinishedRunError(
                f"{self.path} holds a run that was refused. {self.how_to_mend}"
            )
        return UnfinishedRunError(
            f"{self.path} holds an unfinished run: pass --resume to go on with it, or --overwrite "
            "to begin anew."
        )

    @property
    def how_to_mend(self) -> str:
        """What to do with a run that was refused after features were chosen."""
        return (
            "To mend it, call again with other settings and --overwrite: rows that were read stay, "
            f"features are chosen anew. To try it as it was: {self.resume_command}"
        )

    @property
    def how_to_begin_anew(self) -> str:
        """What to do with a run that cannot be gone on with."""
        instead = "" if self.final_model else " instead of --resume"
        return f"pass --overwrite{instead} to begin anew"

    @property
    def resume_command(self) -> str:
        """What to call after an interruption."""
        if self.final_model:
            return "the same command again"
        is_default = self.final == Path("rfcdask-run").absolute()
        where = "" if is_default else f" --out {shlex.quote(str(self.final))}"
        return f"rfcdask run --resume{where}"

    @contextmanager
    def damage(self) -> Iterator[None]:
        """Say how the store that the run wrote, or its records, are made again where damaged."""
        from rfcdask.data.errors import DamagedStoreError  # loads numpy and Dask, as work does

        is_old = self.phases.is_dir() and any(self.phases.iterdir())
        try:
            yield
        except DamagedStoreError as error:  # nobody has a copy of it
            if not self.data.exists():
                raise
            again = f"remove {self.data} and {self.phase(1, 'data')}, and call again"
            raise OtherRunError(f"{error} Here {again} (rfcdask run with --resume).") from error
        except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
            if not is_old:
                raise
            raise OtherRunError(
                f"this run cannot go on from what {self.phases} keeps, which is damaged or of "
                f"others ({untrusted.reason(error)}): {self.how_to_begin_anew}."
            ) from error

    def locked(self) -> AbstractContextManager[None]:
        """Keep a second process out of the folder; the lock goes with the process."""
        other = "model" if self.final_model else "folder with --out"
        refusal = RunExistsError(
            f"another process is running in {self.final}: wait for it, or choose another {other}."
        )
        return exclusive_lock(self.final / LOCK, refusal)


def require_text(path: Path) -> Path:
    """Refuse a name that is no text, as the records of a run are."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        said = f"{str(path)!a} has a name that is not UTF-8, and a run keeps names as text"
        raise ValueError(f"{said}: rename it.") from None
    return path


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


def write_record(path: Path, data: dict[str, Any], mark: str = "") -> None:
    """Write a JSON file of which :func:`read_record` says whether it was changed since.

    `mark` is that of the run that it belongs to.
    """
    write_json(path, data | {"checksum": checksum_of(data, mark)})


def read_record(path: Path, mark: str, name: str | None = None) -> dict[str, Any]:
    """Read what :func:`write_record` wrote; `name` is that of the phase whose record it must be."""
    found = read_json(path, *(() if name is None else ("name", "product")))
    with damage_of(path):
        known = found.pop("checksum", None if mark else checksum_of(found))  # old ones have none
        if known != checksum_of(found, mark) or name not in (None, found.get("name")):
            raise ValueError("it is not what this run wrote")
    return found


def checksum_of(data: dict[str, Any], mark: str = "") -> str:
    """Return what changes with any value of a JSON object, and with the run it belongs to."""
    return hashlib.sha256((json.dumps(data, sort_keys=True) + mark).encode()).hexdigest()


def read_results(path: Path) -> dict[str, object]:
    """Read results.json, or say what is wrong with the file."""

    def no_json(why: str) -> ValueError:
        return ValueError(f"{path} is no JSON ({why}): give a results.json.")

    with untrusted.faults_as(no_json, FileNotFoundError):
        found = untrusted.read_json(path)
    number = found.get("format") if isinstance(found, dict) else None
    if not isinstance(number, int) or not isinstance(found.get("data"), dict):
        raise ValueError(
            f"{path} does not hold results: give the results.json of 'rfcdask run' or the file of "
            "'rfcdask compare --out'."
        )
    parts = [found.get(key) for key in ("comparison", "points")]
    rows, points = (part if isinstance(part, list) else [] for part in parts)
    methods = {str(row.get("method")) for row in rows if isinstance(row, dict)}
    for listed, what in (rows, "maps"), (methods, "methods"), (points, "points"):
        if len(listed) > MOST_SHOWN[what]:
            raise ValueError(
                f"{path} has {len(listed):,} {what}, and at most {MOST_SHOWN[what]:,} are shown: "
                "leave some out."
            )
    if number > RESULTS_FORMAT:
        raise ValueError(
            f"{path} has format {number}, this version reads {RESULTS_FORMAT}: update rfcdask."
        )
    return dict(found)


def damage_of(path: Path, remedy: str = MADE_AGAIN) -> AbstractContextManager[None]:
    """Say of every fault in the block that a file of the run is damaged."""
    return untrusted.faults_as(
        lambda why: OtherRunError(f"{path} is damaged ({why}): {remedy}."), OtherRunError
    )


def plain(value: Any) -> Any:
    """Return a value made of what JSON knows; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and numbers
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
