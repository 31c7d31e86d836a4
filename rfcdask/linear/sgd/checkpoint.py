"""A run's state on disk, written so that a crash at any moment leaves the last good one."""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rfcdask.kernels.arrays import Array
from rfcdask.linear.sgd.step import TrainingState
from rfcdask.persist.files import atomic_file, disk_errors
from rfcdask.persist.untrusted import faults_as, open_npz

History = list[dict[str, float]]
"""The losses of each epoch."""
FORMAT = 1
"""Raised when what a checkpoint holds changes its meaning."""


SOME_ROWS = "some_rows"
"""Name of the norms and projections of a few rows in a fingerprint."""


def _look_alike(stored: Any, now: Any) -> bool:
    if stored is None or now is None:
        return True
    before, after = np.array(stored, float), np.array(now, float)
    near = before.shape == after.shape and np.abs(before - after) <= 1e-3 * before[:, :1]
    return bool(np.all(near))


class Checkpoint:
    """One file that always holds a whole state.

    Parameters
    ----------
    path : str or path
        Where it lies. It is removed when training has come to its end.
    fingerprint : dict
        Settings and shape of the data. A checkpoint of another run is refused.
    """

    arrays: ClassVar[tuple[str, ...]] = ("W", "mean")
    """Names of the arrays of a state."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: dict[str, Any]) -> None:
        self.path = Path(path)
        self.fingerprint = json.loads(json.dumps(fingerprint))

    def save(self, state: TrainingState, epoch: int, group: int, history: History) -> None:
        """Write a new state beside the old one and put it in its place."""
        scalars = {key: np.asarray(value).tolist() for key, value in state._asdict().items()}
        scalars |= {"W": None, "mean": None}
        arrays = {"W": state.W, "mean": state.mean}
        self._write(arrays, position=[epoch, group], history=history, scalars=scalars)

    def load(self) -> tuple[TrainingState, tuple[int, int], History] | None:
        """Return state, position and history, or None when there is no checkpoint."""
        if not self.path.exists():
            return None
        about, arrays = self._read()
        self._require_same_run(about)
        with self._faults():
            scalars = dict(about["scalars"])
            scalars["held_out_loss"] = np.asarray(scalars["held_out_loss"], float)
            scalars["left"] = tuple(scalars.get("left", ()))
            state = TrainingState(**(scalars | arrays))
            epoch, group = map(int, about["position"])
            return state, (epoch, group), list(about["history"])

    def stored_seed(self) -> int | None:
        """Return the seed of the stored run, for a model whose own is left open."""
        if not self.path.exists():
            return None
        return int(self._read()[0]["run"]["seed"])

    def _write(self, arrays: dict[str, Array], **about: Any) -> None:
        about = {"format": FORMAT, "run": self.fingerprint} | about
        with disk_errors(self.path), atomic_file(self.path) as file:
            values: dict[str, Any] = {"about": np.array(json.dumps(about)), **arrays}
            np.savez(file, **values)

    def _read(self) -> tuple[dict[str, Any], dict[str, Array]]:
        with self._faults(), open_npz(self.path) as stored:
            about = json.loads(str(stored["about"]))
            int(about["run"]["seed"])
            arrays = {name: stored[name] for name in self.arrays}
            if not all(np.isfinite(values).all() for values in arrays.values()):
                raise ValueError("it holds values that are not finite")
            return about, arrays

    def _faults(self) -> AbstractContextManager[None]:
        return faults_as(
            lambda why: ValueError(
                f"{self.path} is not a checkpoint that can be read ({why}); remove it to start "
                "from the beginning."
            )
        )

    def remove(self) -> None:
        """Remove the file: the run is over."""
        self.path.unlink(missing_ok=True)

    def _require_same_run(self, about: dict[str, Any]) -> None:
        if about.get("format") != FORMAT:
            raise ValueError(
                f"{self.path} was written by another version of rfcdask; remove it to start anew."
            )
        stored, now = about["run"], dict(self.fingerprint)
        # Other threads or machines end in other last bits of features; earlier versions kept none.
        if not _look_alike(stored.get(SOME_ROWS), now.pop(SOME_ROWS, None)):
            raise ValueError(
                f"{self.path} belongs to another run (some rows of X are others now); remove it, "
                "or give another checkpoint path."
            )
        differs = [key for key, value in now.items() if stored.get(key, None) != value]
        if differs:
            key = differs[0]
            raise ValueError(
                f"{self.path} belongs to another run ({key} was {stored.get(key)!r} and is now "
                f"{self.fingerprint[key]!r}); remove it, or give another checkpoint path."
            )
