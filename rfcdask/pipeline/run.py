"""One call from data to report: new runs, runs to go on with, and what may not be mixed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import dask.config

from rfcdask._version import __version__
from rfcdask.data.location import require_shared
from rfcdask.execution.cluster import connect
from rfcdask.persist import untrusted
from rfcdask.persist.files import disk_errors
from rfcdask.persist.untrusted import HIDDEN, redacted
from rfcdask.pipeline.context import Context, Say
from rfcdask.pipeline.data import absolute, identity
from rfcdask.pipeline.folder import (
    FORMAT,
    OtherRunError,
    RunFolder,
    damage_of,
    locked,
    read_json,
    write_json,
)
from rfcdask.pipeline.meter import MemoryMeter
from rfcdask.pipeline.phases import run_phases
from rfcdask.pipeline.results import write_results
from rfcdask.pipeline.settings import Settings, from_mapping, show

CORES_A_WORKER = 4


def run_job(
    source: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "rfcdask-run",
    *,
    settings: Mapping[str, Any] | None = None,
    scheduler: Any = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Any = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Go from data to a trained model and a report, in phases that survive an interruption.

    The rows are brought to disk, some are held out, our features and those of other methods are
    chosen on samples of the training rows and compared, and a model is trained on all of them.
    The same seed and data give the same results for any number of workers.

    Parameters
    ----------
    source : path or URL, optional
        A store, or svmlight, CSV, Parquet, npy, npz or zarr data with labels. Without it a million
        rows are made whose classes no linear model can tell apart.
    out : path
        Folder for everything that is written: ``report.html``, ``results.json``, ``model``,
        ``run.log``, and the store where one is made.
    settings : mapping, optional
        Settings by name, as in :class:`rfcdask.pipeline.Settings`.
    scheduler : str, path, client or None
        Where to compute, as in :func:`rfcdask.connect`; by default ``DASK_SCHEDULER_ADDRESS`` if
        that is set, else a local cluster.
    threads : int, optional
        Threads of a local cluster.
    resume : bool
        Go on with the run in `out` after its last finished phase. Settings that are given must be
        those of the run.
    overwrite : bool
        Replace a run that is there.
    progress : bool, str or callable, optional
        See :func:`rfcdask.execution.progress.track`.
    say : callable, optional
        Called with one line at the beginning of each phase.

    Returns
    -------
    dict
        What results.json holds.

    Examples
    --------
    >>> import tempfile
    >>> from rfcdask.pipeline import run_job
    >>> few = {"rows": 2000, "sizes": [20], "n_candidates": 100, "n_rows": 200, "refine": 0}
    >>> few |= {"methods": ["random"], "method": "random"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run_job(None, f"{folder}/run", settings=few, scheduler="threads")
    >>> results["data"]["test_rows"]
    400
    """
    folder = RunFolder.at(out)
    given = from_mapping(settings or {})
    if resume:
        _require_run(folder)
    else:
        folder.require_free(overwrite=overwrite)
        Settings(**given)  # a wrong value must not cost the run that is there
        _find(absolute(source))
    with disk_errors(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    with disk_errors(folder.path), locked(folder), _progress(progress):
        begun = _go_on(folder, source, given) if resume else _begin(folder, source, given)
        if folder.is_finished:
            folder.tidy()
            results: dict[str, Any] = read_json(folder.results)
            return results
        return _run(folder, begun, scheduler, threads, say or (lambda line: None))


def _require_run(folder: RunFolder) -> None:
    if not folder.is_run:
        raise FileNotFoundError(
            f"There is no run in {folder.path} to go on with: leave --resume out to begin one."
        )


def _find(source: str | None) -> None:
    """Raise early, before an older run is removed, when the data are not there."""
    from rfcdask.data.sources.detect import expand

    if source is not None:
        expand(source)


def _begin(folder: RunFolder, source: Any, given: dict[str, Any]) -> dict[str, Any]:
    place = absolute(source)
    settings = Settings(**given)
    data = identity(place, settings)
    folder.clear()
    begun = {
        "format": FORMAT,
        "rfcdask": __version__,
        "source": redacted(place),
        "identity": redacted(data),
        "settings": settings.to_dict(),
    }
    write_json(folder.begun, begun)
    return begun | {"source": place}


def _go_on(folder: RunFolder, source: Any, given: dict[str, Any]) -> dict[str, Any]:
    folder.refuse_links()
    begun = _read_begun(folder)
    if begun.get("format") != FORMAT or begun.get("rfcdask") != __version__:
        raise OtherRunError(
            f"{folder.path} was begun by rfcdask {begun.get('rfcdask')} and this is "
            f"{__version__}: go on with that version, or pass --overwrite to begin anew."
        )
    place = begun["source"] if source is None else absolute(source)
    _require_same(folder, begun, place, given)
    folder.sweep()
    return begun | {"source": place}


def _read_begun(folder: RunFolder) -> dict[str, Any]:
    with damage_of(folder.begun, "pass --overwrite instead of --resume to begin anew"):
        begun: dict[str, Any] = untrusted.read_json(folder.begun)
        if not isinstance(begun["source"], str | None) or "identity" not in begun:
            raise ValueError("it does not say which data it is about")
        begun["settings"] = Settings(**begun["settings"]).to_dict()
        return begun


def _require_same(
    folder: RunFolder, begun: dict[str, Any], place: str | None, given: dict[str, Any]
) -> None:
    remedy = "leave that out to go on, or pass --overwrite instead of --resume to begin anew"
    for name, value in given.items():
        before = begun["settings"][name]
        if value != before:
            raise OtherRunError(
                f"{folder.path} was begun with {name}={show(before)}, not {show(value)}: {remedy}."
            )
    if redacted(place) != begun["source"]:
        raise OtherRunError(
            f"{folder.path} was begun with {begun['source'] or 'data of its own'}, not "
            f"{redacted(place)}: {remedy}."
        )
    if place is not None and "://" in place and HIDDEN in place:
        raise OtherRunError(
            f"{folder.path} was begun with {place}, whose credentials are not kept: give the whole "
            "URL again, with --resume."
        )
    now = identity(place, Settings(**begun["settings"]))
    if redacted(_plain(now)) != begun["identity"]:
        raise OtherRunError(
            f"{begun['source']} has changed since the run in {folder.path} began: pass --overwrite "
            "instead of --resume to begin anew."
        )


def _plain(value: Any) -> Any:
    import json

    return json.loads(json.dumps(value))


def _run(
    folder: RunFolder, begun: dict[str, Any], scheduler: Any, threads: int | None, say: Say
) -> dict[str, Any]:
    where = _where(scheduler)
    again = f"go on with {folder.resume_hint()}"
    with disk_errors(folder.path, again), connect(where, **_size(where, threads)) as client:
        run = Context(folder, Settings(**begun["settings"]), begun["source"], client, say)
        require_shared(client, reads=[run.source or ""], writes=folder.path)
        run.log(f"rfcdask {__version__}: run begins on {_shown(where)}")
        remote = client if where not in ("local", "threads") else None
        with MemoryMeter(remote) as meter, _logged(run):
            run_phases(run, meter)
            results = write_results(run, _shown(where))
        run.log(f"run done: {folder.report}")
    folder.tidy()
    return results


def _where(scheduler: Any) -> Any:
    if scheduler is not None:
        return scheduler
    configured = os.environ.get("DASK_SCHEDULER_ADDRESS")
    return configured or dask.config.get("scheduler-address", None) or "local"


def _shown(where: Any) -> str:
    if isinstance(where, (str, os.PathLike)):
        return os.fspath(where)
    return str(getattr(getattr(where, "scheduler", None), "address", where))


def _size(where: Any, threads: int | None) -> dict[str, Any]:
    if threads is None or where not in ("local", "threads"):
        return {}
    if where == "threads":
        return {"threads_per_worker": threads}
    workers = max(1, round(threads / CORES_A_WORKER))
    return {"n_workers": workers, "threads_per_worker": -(-threads // workers)}


@contextmanager
def _logged(run: Context) -> Iterator[None]:
    """Write warnings, errors and interruptions into the log too."""
    before = warnings.showwarning

    def note(message: Warning | str, *args: Any, **more: Any) -> None:
        run.log(f"warning: {' '.join(str(message).split())}")
        before(message, *args, **more)

    warnings.showwarning = note
    try:
        yield
    except BaseException as error:
        said = f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
        with suppress(OSError):  # the log may be on the very disk that is full
            run.log("interrupted" if isinstance(error, KeyboardInterrupt) else said)
        raise
    finally:
        warnings.showwarning = before


def _progress(choice: Any) -> Any:
    return nullcontext() if choice is None else dask.config.set({"rfcdask.progress": choice})
