"""The training loop: epochs over a stream of blocks, with checkpoints and early stopping."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rfcdask.execution.blocks import Blocks, stream_and_hold, stream_rounds
from rfcdask.execution.executor import Executor, Handle
from rfcdask.execution.progress import Reporter, track
from rfcdask.kernels.arrays import Array
from rfcdask.kernels.seeds import blocks_ahead, epoch_groups
from rfcdask.linear.rows import check_mean_weight
from rfcdask.linear.scorers import as_lists
from rfcdask.linear.sgd.optimizer import Preconditioner, preconditioner_rows
from rfcdask.linear.sgd.step import (
    TrainingConfig,
    TrainingState,
    blocks_mixed,
    held_out_values,
    join_chains,
    preconditioner_from,
    sample_rows,
    train_on_blocks,
)
from rfcdask.persist.files import disk_errors, exclusive_lock, lock_path, save_arrays
from rfcdask.persist.untrusted import faults_as, open_npz

History = list[dict[str, float]]
"""The losses of each epoch."""
FORMAT = 1
"""Raised when what a checkpoint holds changes its meaning."""
EARLIER = {"chains": "1", "scoring": "None"}
"""Parameters of runs that say nothing of them, as those of versions without them."""


SCORE = "held_out_score"
"""Name of the score of an epoch in a history."""
SOME_ROWS = "some_rows"
"""Name of the norms and projections of a few rows in a fingerprint."""
SOME_TARGETS = "some_targets"
"""Name of those of the targets and weights of a few blocks."""


def _look_alike(stored: Any, now: Any) -> bool:
    if not stored or not now:
        return True
    before, after = np.array(stored, float), np.array(now, float)
    near = before.shape == after.shape and np.abs(before - after) <= 1e-3 * before[:, :1]
    return bool(np.all(near))


def require_numbers(*values: Any) -> None:
    """Refuse what is no finite number of at least 0, and a first one that is not whole."""
    require_scores(*values)
    for value in values:
        if value < 0:
            raise ValueError(f"it holds {str(value)[:40]!r} where a number from 0 on is expected")
    if type(values[0]) is not int or values[0] > 2**53:
        raise ValueError(f"it counts {values[0]!r} steps or epochs")


def require_scores(*values: Any) -> None:
    """Refuse what is no finite number; scores may be below 0, as R2 and negated losses are."""
    for value in values:
        if type(value) not in (int, float, np.float64) or not abs(value) <= sys.float_info.max:
            raise ValueError(f"it holds {str(value)[:40]!r} where a finite number is expected")


def fitting(arrays: dict[str, Array], like: dict[str, Array]) -> dict[str, Array]:
    """Return arrays as compiled code reads them, unless it would read beyond their ends."""
    for name, expected in like.items():
        found = arrays[name]
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise ValueError(
                f"{name} is {found.dtype} {found.shape}, and {expected.dtype} {expected.shape} "
                "belongs to this model"
            )
    return {name: np.ascontiguousarray(arrays[name]) for name in like}


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

    def save(
        self,
        state: TrainingState,
        epoch: int,
        group: int,
        history: History,
        best: TrainingState | None = None,
    ) -> None:
        """Write a new state beside the old one and put it in its place."""
        arrays = {"W": state.W, "mean": state.mean}
        about = {"position": [epoch, group], "history": history, "scalars": _scalars(state)}
        if best is not None:
            arrays |= {"best_W": best.W, "best_mean": best.mean}
            about["best"] = _scalars(best)
        self._write(arrays, **about)

    def load(
        self, config: TrainingConfig, n_rows: int
    ) -> tuple[TrainingState, TrainingState | None, tuple[int, int], History] | None:
        """Return state, best state, position and history, or None when there is no checkpoint.

        `n_rows` are those of a model's array: one for each column, and one of intercepts.
        """
        if not self.path.exists():
            return None
        about, arrays = self._read()
        self._require_same_run(about)
        with self._faults():
            state = self._state(config, n_rows, about["scalars"], arrays)
            best = None
            if "best" in about:
                kept = {name: arrays[f"best_{name}"] for name in self.arrays}
                best = self._state(config, n_rows, about["best"], kept)
            return state, best, *self._progress(about)

    def _state(
        self, config: TrainingConfig, n_rows: int, about: dict[str, Any], arrays: dict[str, Array]
    ) -> TrainingState:
        """Make a state of its parts, after making sure that they belong together."""
        scalars = dict(about)
        scalars["held_out_loss"] = np.asarray(scalars["held_out_loss"], float)
        scalars["left"] = tuple(scalars.get("left", ()))
        restored = config.score.restored if config.score else tuple
        scalars["counts"] = tuple(map(restored, scalars.get("counts", ())))
        state = TrainingState(**(scalars | {name: arrays[name] for name in self.arrays}))
        left = config.left(state)
        if any(type(k) is not int for k in left) or not set(left) <= {
            *range(len(config.penalties))
        }:
            raise ValueError(f"it has models of the penalties {left}")
        if len(state.counts) not in (0, len(left)):
            raise ValueError("it has not one count for each penalty")
        like = np.empty((n_rows, len(left) * config.n_outputs))
        known = fitting(arrays, dict.fromkeys(self.arrays, like))
        state = state._replace(W=known["W"], mean=known["mean"])
        if config.score is not None:
            for counts in state.counts:
                config.score.require_whole(counts, config.n_outputs)
        sums = [state.loss, state.rows, state.held_out_rows, *np.ravel(state.held_out_loss)]
        require_numbers(state.step, *sums)
        if len(sums) - 3 not in (1, len(left)):
            raise ValueError("it has not one sum of losses for each penalty")
        return state

    def _progress(self, about: dict[str, Any]) -> tuple[tuple[int, int], History]:
        """Return the epoch and group to go on with, and the losses of the epochs before."""
        (epoch, group), history = about["position"], list(about["history"])
        require_numbers(group)
        losses = [{**entry} for entry in history]
        require_scores(*(entry.pop(SCORE) for entry in losses if SCORE in entry))
        require_numbers(epoch, *(value for entry in losses for value in entry.values()))
        if not len(history) == epoch or not all({"epoch", "loss"} <= {*e} for e in history):
            raise ValueError(f"it has the losses of {len(history)} epochs, not of {epoch}")
        return (int(epoch), int(group)), history

    def groups_left(self, groups: list[list[int]], first: int) -> list[list[int]]:
        """Return the groups of an epoch that were not learned from yet."""
        with self._faults():
            if first >= len(groups):
                raise ValueError(f"it goes on with group {first} of {len(groups)}")
            return groups[first:]

    def stored_seed(self) -> int | None:
        """Return the seed of the stored run, for a model whose own is left open."""
        if not self.path.exists():
            return None
        return int(self._read()[0]["run"]["seed"])

    def _write(self, arrays: dict[str, Array], **about: Any) -> None:
        about = {"format": FORMAT, "run": self.fingerprint} | about
        refusal = FileExistsError(f"another process is writing {self.path}: give each its own.")
        values: dict[str, Any] = {"about": np.array(json.dumps(about)), **arrays}
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with exclusive_lock(lock_path(self.path), refusal):
                save_arrays(self.path, values)

    def _read(self) -> tuple[dict[str, Any], dict[str, Array]]:
        with self._faults(), open_npz(self.path) as stored:
            about = json.loads(str(stored["about"]))
            if int(about["run"]["seed"]) < 0:
                raise ValueError("its seed is below 0")
            more = [name for name in stored.files if name.startswith("best_")]
            arrays = {name: stored[name] for name in {*self.arrays, *more}}
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
        stored, now = EARLIER | about["run"], dict(self.fingerprint)
        # Other threads or machines end in other last bits of features; earlier versions kept none.
        looks = {SOME_ROWS: "rows of X", SOME_TARGETS: "values of y or sample_weight"}
        for name, words in looks.items():
            with self._faults():
                alike = _look_alike(stored.get(name), now.pop(name, None))
            if not alike:
                raise ValueError(
                    f"{self.path} belongs to another run (some {words} are others now); remove it, "
                    "or give another checkpoint path."
                )
        differs = [key for key, value in now.items() if stored.get(key, None) != value]
        if differs:
            key = differs[0]
            raise ValueError(
                f"{self.path} belongs to another run ({key} was {stored.get(key)!r} and is now "
                f"{self.fingerprint[key]!r}); remove it, or give another checkpoint path."
            )


def _scalars(state: TrainingState) -> dict[str, Any]:
    """Return what a state holds beside its arrays, for JSON."""
    known = state._asdict()
    return {key: as_lists(value) for key, value in known.items() if key not in ("W", "mean")}


SAMPLED_BLOCKS, SAMPLED_BLOCKS_IF_SORTED = 8, 32
"""Blocks that rows for the preconditioner are taken from, at least, where there are as many."""


class TrainingLoop:
    """Trains on blocks, epoch after epoch.

    Parameters
    ----------
    executor : Executor
        Where blocks are computed and trained on.
    blocks : Blocks
    config : TrainingConfig
    state : TrainingState
        Where to start.
    progress : object
        See :func:`rfcdask.execution.progress.track`.

    Attributes
    ----------
    state : TrainingState
        Where training has come to.
    history : list of dict
        Losses of the epochs that are over.
    preconditioner : Preconditioner or None
        Estimated on the blocks where none is set before `run`.
    held_out : array
        What was wrong with each penalty that is left on the rows held out, in the last epoch.
    best : TrainingState or None
        After the epoch with the best score on rows held out, where training ends early by one.
    checkpoint : Checkpoint or None
        Where the state is kept, every `checkpoint_every` blocks.
    """

    best: TrainingState | None = None
    preconditioner: Preconditioner | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_every = 64

    def __init__(
        self,
        executor: Executor,
        blocks: Blocks,
        config: TrainingConfig,
        state: TrainingState,
        progress: Any = None,
    ) -> None:
        self.executor, self.blocks, self.config = executor, blocks, config
        self.state, self.progress = state, progress
        self.history: History = []
        self.held_out = np.zeros(0)
        self.mixed = blocks_mixed(len(blocks), blocks.nbytes, config.chains)
        self.ahead = blocks_ahead(self.mixed * config.chains, executor.threads, executor.local)
        self._held: dict[int, Handle] = {}  # blocks that the first epoch begins with

    def run(self, epochs: range, patience: int = 0, tol: float = 0.0) -> None:
        """Go through some epochs, from the checkpoint on where there is one.

        Training ends early when the held-out loss has not become better by the relative amount
        `tol` for `patience` epochs, or the score where there is one; 0 goes on to the end.
        """
        self._known: Any = self.preconditioner
        estimate: Handle | None = None
        if self.preconditioner is None:
            estimate = self._known = self._estimate_preconditioner()
            self.preconditioner = self.executor.result(estimate)
        if self.config.chains > 1:  # all of which Dask would send to where the estimate lies
            self._known = self.preconditioner
        first, group = epochs.start, 0
        stored = None
        if self.checkpoint:
            stored = self.checkpoint.load(self.config, len(self.state.W))
        if stored:
            self.state, self.best, (first, group), self.history = stored
        n_rows = float(sum(self.blocks.rows))
        with track("training", n_rows * len(epochs), "rows", progress=self.progress) as reporter:
            reporter.advance(n_rows * (first - epochs.start))
            for epoch in range(first, epochs.stop):
                # Asked before an epoch: a checkpoint may be of the very end of the last one.
                if patience and _stopped_improving(self.history, patience, tol):
                    break
                last = epoch + 1 == epochs.stop
                self._run_epoch(epoch, group, reporter, keep_best=patience > 0, last=last)
                group = 0
        if self.checkpoint:
            self.checkpoint.remove()
        if estimate is not None:
            self.executor.release(estimate)

    def _estimate_preconditioner(self) -> Any:
        """Start estimating the preconditioner on rows of the first blocks of the first epoch.

        A geometry found on rows of one kind makes steps on others far too long. The rows therefore
        come from many places, a few of each block. Only they are kept, and as many blocks as are in
        memory when training begins: with those.
        """
        config, executor = self.config, self.executor
        wanted = preconditioner_rows(self.state.W.shape[0] - 1)
        least = SAMPLED_BLOCKS_IF_SORTED if config.sorted_rows else SAMPLED_BLOCKS
        chosen: list[int] = []
        n_rows = 0
        for group in self._groups(0):
            chosen += group
            n_rows += sum(self.blocks.rows[index] for index in group)
            if n_rows >= wanted and len(chosen) >= least:
                break
        fraction = min(wanted / n_rows, 1.0)
        n_held = self.mixed * config.chains + self.ahead
        apart = config.chains > 1
        found, self._held = stream_and_hold(executor, self.blocks, chosen, n_held, apart)
        samples = {
            index: executor.call(sample_rows, config, index, fraction, block)
            for index, block in found
        }
        handle = executor.call(preconditioner_from, config, *(samples[k] for k in chosen))
        for sample in samples.values():
            executor.release(sample)
        return handle

    def _run_epoch(
        self, epoch: int, first_group: int, reporter: Reporter, *, keep_best: bool, last: bool
    ) -> None:
        groups = self._groups(epoch)
        groups = self.checkpoint.groups_left(groups, first_group) if self.checkpoint else groups
        since = 0
        executor, known = self.executor, (self.config, self._known)
        rounds = (executor, self.blocks, groups, self.config.chains, self.ahead, self._held)
        for first, parts in stream_rounds(*rounds):
            end, tasks = first + len(parts), []
            state = self.state if self.config.chains == 1 else self.state._replace(counts=())
            for n, handles in enumerate(parts, first):
                place = (tuple(groups[n]), epoch, first_group + n)
                tasks.append(executor.call(train_on_blocks, state, *known, *place, *handles))
            self.state = join_chains(self.state, list(map(executor.result, tasks)), self.config)
            for task in tasks:
                executor.release(task)
            learned = [index for group in groups[first:end] for index in group]
            reporter.advance(sum(self.blocks.rows[index] for index in learned))
            since += len(learned)
            if self.checkpoint and since >= self.checkpoint_every and end < len(groups):
                position = (epoch, first_group + end)
                self.checkpoint.save(self.state, *position, self.history, self.best)
                since = 0
        self._close_epoch(epoch, reporter)
        if keep_best and self.best_epoch() == epoch:
            self.best = self.state
        if self.checkpoint and not last:  # what the end needs beside the state is not in the file
            self.checkpoint.save(self.state, epoch + 1, 0, self.history, self.best)

    def _groups(self, epoch: int) -> list[list[int]]:
        config = self.config
        return epoch_groups(len(self.blocks), self.mixed, config.seed, epoch, config.chains)

    def best_epoch(self) -> int | None:
        """Return the number of the epoch with the best score, None where there are no scores."""
        scores = [entry.get(SCORE, -np.inf) for entry in self.history]
        return int(np.argmax(scores)) if np.isfinite(max(scores)) else None

    def _close_epoch(self, epoch: int, reporter: Reporter) -> None:
        """Write the epoch into the history and begin counting anew."""
        state = self.state
        check_mean_weight(state.rows, sum(self.blocks.rows))
        entry = {"epoch": float(epoch + 1), "loss": state.loss / max(state.rows, 1e-300)}
        if state.held_out_rows:
            values = self.held_out = held_out_values(state, self.config)
            best = int(np.nanargmin(values))
            losses = np.atleast_1d(state.held_out_loss) / state.held_out_rows
            entry["held_out_loss"] = float(losses[best])
            if self.config.score is not None:
                entry[SCORE] = -float(values[best])
            entry["alpha"] = self.config.penalties[self.config.left(state)[best]]
        self.history.append(entry)
        counted: dict[str, Any] = dict.fromkeys(
            ("loss", "rows", "held_out_loss", "held_out_rows"), 0.0
        )
        self.state = state._replace(**counted, counts=())
        reporter.note(f"epoch {epoch + 1}, loss {entry['loss']:.4g}")


def _stopped_improving(history: History, patience: int, tol: float) -> bool:
    if not history or "held_out_loss" not in history[-1]:  # all blocks have one row
        return False
    best, since = np.inf, 0
    for entry in history:
        loss = -entry[SCORE] if SCORE in entry else entry["held_out_loss"]
        better = loss < best - tol * abs(best) if np.isfinite(best) else True
        since = 0 if better else since + 1
        best = min(best, loss)
    return since >= patience
