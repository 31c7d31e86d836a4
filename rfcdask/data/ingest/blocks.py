"""Driving the blocks of an ingest: which are left, how many at once, what is shown meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dask.delayed import delayed
from dask.utils import format_bytes

from rfcdask.data.errors import DataError, OutOfMemoryError
from rfcdask.data.ingest.journal import Journal
from rfcdask.data.ingest.shuffle import (
    Deal,
    ScatterBlock,
    gather_block,
    pieces_of,
    read_run,
    whole_runs,
)
from rfcdask.data.ingest.write import (
    Plan,
    Sink,
    WriteBlock,
    fill,
    holds_block,
    put_computed,
    put_rows,
)
from rfcdask.data.sources.base import Source, cut, keep_rows
from rfcdask.data.sources.dask_arrays import DaskRows
from rfcdask.data.sources.survey import Survey
from rfcdask.execution.executor import call_later, run_tasks
from rfcdask.execution.failures import WorkerDiedError
from rfcdask.execution.progress import track


def write_blocks(plan: Plan, rows: Source, survey: Survey, progress: Any, client: Any) -> None:
    """Write every block that is not written yet."""
    done = written_blocks(plan, progress, client)
    tasks = block_tasks(plan, rows, survey, WriteBlock(plan), done)
    _run("writing rows", plan, tasks, len(done), progress, place_of(rows, client))


def written_blocks(plan: Plan, progress: Any, client: Any) -> set[int]:
    """Return the blocks that an earlier attempt wrote and that are still whole; read them all."""
    recorded = Journal(plan.location).recorded()
    if not recorded:
        return set()
    n_chunks = plan.layout.chunks_a_block
    tasks = (call_later(holds_block, plan.location, block, n_chunks) for block in recorded)
    done = set()
    with track("checking blocks", len(recorded), "blocks", progress=progress) as report:
        for block, whole in zip(recorded, run_tasks(tasks, client), strict=True):
            report.advance(1)
            if whole and block < plan.layout.n_blocks:
                done.add(block)
    return done


def place_of(rows: Source, client: Any) -> Any:
    """Return where blocks of a source are written: None means by threads of this process.

    Streams are read here and arrays in memory lie here: sending their rows to a worker, which
    writes them to the same store, costs more than writing them.
    """
    return client if rows.in_parallel and not getattr(rows, "in_memory", False) else None


def shuffle_blocks(
    plan: Plan, rows: Source, survey: Survey, seed: int, progress: Any, client: Any
) -> None:
    """Scatter all blocks into runs, then gather the permuted blocks from them.

    Without a cluster one block is handled at a time: with the copy that is permuted and what the
    encoder holds, that is up to four blocks of memory.
    """
    written = written_blocks(plan, progress, client)
    left = [block for block in range(plan.layout.n_blocks) if block not in written]
    if not left:
        return
    deal = Deal(plan.layout.n_rows, seed)
    scattered = whole_runs(plan, deal)
    if len(scattered) < plan.layout.n_blocks:
        tasks = block_tasks(plan, rows, survey, ScatterBlock(plan, deal), scattered)
        place = place_of(rows, client)
        _run("scattering rows", plan, tasks, len(scattered), progress, place, _at_once(place))
    gathers = _gather_tasks(plan, deal, left)
    _run("writing rows", plan, gathers, len(written), progress, client, _at_once(client))


def _at_once(place: Any) -> int | None:
    return 1 if place is None else None


def _gather_tasks(plan: Plan, deal: Deal, left: list[int]) -> Iterator[Any]:
    runs = [read_run(plan, deal, block) for block in range(plan.layout.n_blocks)]
    for block in left:
        yield call_later(gather_block, plan, deal, block, pieces_of(plan, deal, runs, block))


def block_tasks(
    plan: Plan, rows: Source, survey: Survey, sink: Sink, done: set[int]
) -> Iterator[Any]:
    """Give a delayed task for every block that is not done; it returns its number of rows."""
    left = [block for block in range(plan.layout.n_blocks) if block not in done]
    if not rows.in_parallel:
        yield from _stream_tasks(plan, rows, survey, sink, left)
        return
    for block in left:
        span = survey.span(*plan.layout.span(block))
        part, dropped = rows.narrowed(*span), survey.dropped_within(*span)
        if isinstance(rows, DaskRows):
            call = delayed(put_computed, pure=False)
            yield call(plan, sink, block, part.X, part.y, span[0], dropped)
        else:
            yield call_later(put_rows, plan, sink, block, part, span, dropped)


def _stream_tasks(
    plan: Plan, rows: Source, survey: Survey, sink: Sink, left: list[int]
) -> Iterator[Any]:
    """Read the stream here, from the first block that is left, and pass filled blocks on."""
    if not left:
        return
    layout = plan.layout
    first = survey.source_row(layout.span(left[0])[0])
    batches = keep_rows(rows.read(first, survey.n_rows), first, survey.dropped)
    wanted = set(left)
    blocks = range(left[0], layout.n_blocks)
    sizes = (stop - start for start, stop in map(layout.span, blocks))
    for block, run in zip(blocks, cut(batches, sizes), strict=True):
        if block in wanted:
            X, y = fill(plan, block, run)
            yield call_later(_put_filled, sink, block, X, y)
            del X, y
        else:
            for _ in run:
                pass


def _put_filled(sink: Sink, block: int, X: Any, y: Any) -> int:
    sink(block, X, y)
    return len(X)


def _run(
    phase: str,
    plan: Plan,
    tasks: Iterable[Any],
    n_done: int,
    progress: Any,
    client: Any,
    at_once: int | None = None,
) -> None:
    layout = plan.layout
    try:
        _count(phase, plan, run_tasks(tasks, client, at_once=at_once), n_done, progress)
    except WorkerDiedError as error:
        raise OutOfMemoryError(
            f"a worker died while {phase}, most likely for want of memory; each of its threads "
            f"holds about four blocks of {format_bytes(layout.block_bytes)}: pass a smaller "
            "block_size= or give workers more memory; what is written stays."
        ) from error


def _count(phase: str, plan: Plan, done: Iterator[int], n_done: int, progress: Any) -> None:
    layout = plan.layout
    with track(phase, layout.n_rows, "rows", progress=progress) as report:
        report.advance(min(n_done * layout.block_rows, layout.n_rows))
        for number, rows in enumerate(done):
            report.advance(rows)
            if number == 0:
                _check_room(plan, n_done + 1)


def _check_room(plan: Plan, written: int) -> None:
    """After the first block its compressed size is known: refuse early what will not fit."""
    free = plan.location.free_bytes()
    left = plan.layout.n_blocks - written
    if free is None or left < 1 or not plan.location.exists("X/c"):
        return
    fs, root = plan.location.filesystem()
    size = fs.du(f"{root}/X/c") // max(1, len(fs.ls(f"{root}/X/c", detail=False)))
    if size * left > free:
        raise DataError(
            f"no space for {plan.location}: about {format_bytes(size * left)} more are needed, "
            f"{format_bytes(free)} are free: make room and run the same ingest again to go on."
        )
