"""The training loop: epochs over a bounded stream of blocks, with checkpoints and early stopping.

Whether features are computed again in each epoch or kept in memory is decided here too. Memory
decides first, because a model must not need more of it the more rows there are. Where there is
room, the time of computing a block, measured on two of them, is set against that of reading a kept
block again, from memory or from another worker.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import dask
import numpy as np
from dask.utils import parse_bytes

from rfcdask.execution.blocks import Blocks, stream_and_hold, stream_rounds
from rfcdask.execution.cluster import current_client
from rfcdask.execution.dask_internals import memory_of_machine
from rfcdask.execution.executor import Executor, Handle, persist
from rfcdask.execution.failures import workers_of
from rfcdask.execution.progress import Reporter, track
from rfcdask.features.lazy import FeatureArray
from rfcdask.kernels.arrays import Array, DaskArray
from rfcdask.linear.sgd.optimizer import Preconditioner, preconditioner_rows
from rfcdask.linear.sgd.step import (
    GROUP_BYTES,
    TrainingConfig,
    TrainingState,
    blocks_mixed,
    epoch_groups,
    join_chains,
    preconditioner_from,
    sample_rows,
    train_on_blocks,
)
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


SAMPLED_BLOCKS, SAMPLED_BLOCKS_IF_SORTED = 8, 32
"""Blocks that rows for the preconditioner are taken from, at least, where there are as many."""
LOCAL_BUDGET = 2 * GROUP_BYTES
"""Locally, features up to this size are kept (``rfcdask.persist-bytes``): as much as is in flight
when there are too many rows to keep, one group of blocks in use and one ahead."""
LOCAL_SHARE = 0.1
"""And no more than this share of the machine's memory."""
CLUSTER_SHARE = 0.2
"""On a cluster, features up to this share of the workers' memory are kept."""
FREE_SHARE = 0.5
"""And no more than this share of what is free of it now."""
MEMORY_BANDWIDTH = 2e9
"""Bytes per second at which a block that has left the caches is read again."""


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
    checkpoint : Checkpoint or None
        Where the state is kept, every `checkpoint_every` blocks.
    """

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
        self.mixed = blocks_mixed(len(blocks), blocks.nbytes, config.chains)
        self.ahead = max(self.mixed * config.chains, executor.threads)
        self._held: dict[int, Handle] = {}  # blocks that the first epoch begins with

    def run(self, epochs: range, patience: int = 0, tol: float = 0.0) -> None:
        """Go through some epochs, from the checkpoint on where there is one.

        Training ends early when the held-out loss has not become better by the relative amount
        `tol` for `patience` epochs; 0 goes on to the end.
        """
        given = self._handle = self.preconditioner
        if given is None:
            self._handle = self._estimate_preconditioner()
            self.preconditioner = self.executor.result(self._handle)
        first, group = epochs.start, 0
        stored = self.checkpoint.load() if self.checkpoint else None
        if stored:
            self.state, (first, group), self.history = stored
        n_rows = float(sum(self.blocks.rows))
        with track("training", n_rows * len(epochs), "rows", progress=self.progress) as reporter:
            reporter.advance(n_rows * (first - epochs.start))
            for epoch in range(first, epochs.stop):
                self._run_epoch(epoch, group, reporter)
                group = 0
                if patience and _stopped_improving(self.history, patience, tol):
                    break
        if self.checkpoint:
            self.checkpoint.remove()
        if given is None:
            self.executor.release(self._handle)

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
        for group in epoch_groups(len(self.blocks), self.mixed, config.seed, 0):
            chosen += group
            n_rows += sum(self.blocks.rows[index] for index in group)
            if n_rows >= wanted and len(chosen) >= least:
                break
        fraction = min(wanted / n_rows, 1.0)
        n_held = self.mixed * config.chains + self.ahead
        found, self._held = stream_and_hold(executor, self.blocks, chosen, n_held)
        samples = {
            index: executor.call(sample_rows, config, index, fraction, block)
            for index, block in found
        }
        handle = executor.call(preconditioner_from, config, *(samples[k] for k in chosen))
        for sample in samples.values():
            executor.release(sample)
        return handle

    def _run_epoch(self, epoch: int, first_group: int, reporter: Reporter) -> None:
        groups = epoch_groups(len(self.blocks), self.mixed, self.config.seed, epoch)[first_group:]
        since = 0
        executor, known = self.executor, (self.config, self._handle)
        rounds = (executor, self.blocks, groups, self.config.chains, self.ahead, self._held)
        for first, parts in stream_rounds(*rounds):
            last, tasks = first + len(parts), []
            for n, handles in enumerate(parts, first):
                place = (tuple(groups[n]), epoch, first_group + n)
                tasks.append(executor.call(train_on_blocks, self.state, *known, *place, *handles))
            self.state = join_chains(self.state, list(map(executor.result, tasks)), self.config)
            for task in tasks:
                executor.release(task)
            learned = [index for group in groups[first:last] for index in group]
            reporter.advance(sum(self.blocks.rows[index] for index in learned))
            since += len(learned)
            if self.checkpoint and since >= self.checkpoint_every and last < len(groups):
                self.checkpoint.save(self.state, epoch, first_group + last, self.history)
                since = 0
        self._close_epoch(epoch, reporter)
        if self.checkpoint:
            self.checkpoint.save(self.state, epoch + 1, 0, self.history)

    def _close_epoch(self, epoch: int, reporter: Reporter) -> None:
        """Write the epoch into the history and begin counting anew."""
        state = self.state
        entry = {"epoch": float(epoch + 1), "loss": state.loss / max(state.rows, 1e-300)}
        if state.held_out_rows:
            losses = np.atleast_1d(state.held_out_loss) / state.held_out_rows
            entry["held_out_loss"] = float(np.nanmin(losses))
            best = self.config.left(state)[int(np.nanargmin(losses))]
            entry["alpha"] = self.config.penalties[best]
        self.history.append(entry)
        self.state = state._replace(loss=0.0, rows=0.0, held_out_loss=0.0, held_out_rows=0.0)
        reporter.note(f"epoch {epoch + 1}, loss {entry['loss']:.4g}")


def _stopped_improving(history: History, patience: int, tol: float) -> bool:
    if "held_out_loss" not in history[-1]:  # all blocks have one row
        return False
    best, since = np.inf, 0
    for entry in history:
        loss = entry["held_out_loss"]
        since = 0 if loss < best * (1 - tol) else since + 1
        best = min(best, loss)
    return since >= patience


def training_blocks(
    executor: Executor,
    arrays: tuple[DaskArray, DaskArray, DaskArray | None],
    epochs: int,
    keep: bool | str = False,
    client: Any = None,
) -> Blocks:
    """Return the blocks to learn from: rows whose features are evaluated where they are used.

    Where that is cheaper than computing them `epochs` times, features are kept in memory instead.
    Groups are made of as many blocks either way, so the choice never changes what is learned.
    """
    X, *others = arrays
    rows = Blocks(X.unevaluated() if isinstance(X, FeatureArray) else X, *others)
    chosen = current_client(client)
    if keep == "auto":
        keep = _is_worth_keeping(executor, X, epochs, chosen)
    if not keep:
        return rows
    kept = Blocks(persist(X, chosen), *others)
    kept.nbytes = rows.nbytes
    return kept


def _is_worth_keeping(executor: Executor, X: DaskArray, epochs: int, client: Any) -> bool:
    in_graph = hasattr(X.dask, "layers") and len(X.dask.layers) < 2  # nothing to compute or read
    if epochs < 2 or in_graph or X.nbytes > memory_for_features(client):
        return False
    if max(X.chunks[0]) * X.shape[1] * X.dtype.itemsize > GROUP_BYTES:
        return False
    blocks = Blocks(X)
    fetch = _seconds_to_fetch(blocks.nbytes, client)
    return is_cheaper_to_keep(epochs, seconds_to_compute(executor, blocks), fetch)


def is_cheaper_to_keep(epochs: int, compute: float, fetch: float) -> bool:
    """Tell whether computing a block once and fetching it in each epoch takes less time."""
    return (epochs - 1) * compute > epochs * fetch


def seconds_to_compute(executor: Executor, blocks: Blocks) -> float:
    """Return the time of computing a block: the shorter of two, as the first may compile."""
    seconds = []
    for index in range(min(2, len(blocks))):
        start = time.perf_counter()
        handle = executor.block(blocks, index)
        executor.wait(handle)
        seconds.append(time.perf_counter() - start)
        executor.release(handle)
    return min(seconds)


def _seconds_to_fetch(block_bytes: int, client: Any) -> float:
    seconds = block_bytes / MEMORY_BANDWIDTH
    if client is None:
        return seconds
    away = 1.0 - 1.0 / max(len(workers_of(client)), 1)  # the others must be sent
    bandwidth = parse_bytes(dask.config.get("distributed.scheduler.bandwidth", "100 MB"))
    return seconds + away * block_bytes / float(bandwidth)


def memory_for_features(client: Any) -> float:
    """Return the bytes of features that ``persist="auto"`` keeps at most."""
    if client is None:
        wanted = parse_bytes(dask.config.get("rfcdask.persist-bytes", LOCAL_BUDGET))
        return min(float(wanted), LOCAL_SHARE * memory_of_machine())
    workers = workers_of(client).values()
    limit = float(sum(worker.memory_limit for worker in workers))
    used = float(sum(worker.memory for worker in workers))
    return min(CLUSTER_SHARE * limit, FREE_SHARE * max(limit - used, 0.0))
