"""One call from data to report, or to a model: new runs, and runs to go on with."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rfcdask._version import __version__
from rfcdask.data.location import is_url, require_shared
from rfcdask.data.sources import expand
from rfcdask.execution.cluster import chosen_scheduler, connect, share_threads
from rfcdask.execution.configuration import with_progress
from rfcdask.persist import untrusted
from rfcdask.persist.files import disk_errors
from rfcdask.persist.models import refuse_files_of_others, save
from rfcdask.persist.untrusted import HIDDEN, redacted
from rfcdask.pipeline.data import about_model, absolute, identity
from rfcdask.pipeline.folder import (
    FORMAT,
    OtherRunError,
    RunExistsError,
    RunFolder,
    checksum_of,
    damage_of,
    plain,
    read_json,
    write_record,
)
from rfcdask.pipeline.phases import (
    PHASES,
    Context,
    MemoryMeter,
    Phase,
    Say,
    phases_of_fit,
    run_phases,
    write_results,
)
from rfcdask.pipeline.settings import (
    READING,
    STORING,
    Settings,
    SettingsError,
    from_mapping,
    renamed,
    show,
)


def run_job(
    source: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "rfcdask-run",
    *,
    settings: Mapping[str, Any] | None = None,
    scheduler: Any = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    ignore_plan: bool = False,
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
    ignore_plan : bool
        Begin even if it will not fit the memory.
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
    given = from_mapping(settings or {})
    folder = _folder_of(out, resume, overwrite)
    seen = (folder.is_run, folder.is_finished)
    if not resume:
        _require_comparison(Settings(**given))
        _find(absolute(source), folder)
    where = chosen_scheduler(scheduler, "local")
    with _working_in(folder, progress):
        if (folder.is_run, folder.is_finished) != seen:  # what it did would be cleared away
            raise RunExistsError(
                f"another process ran in {folder.path} meanwhile: see what it did, and call again."
            )
        begun = _go_on(folder, source, given) if resume else _begin(folder, source, given)
        folder.refused.unlink(missing_ok=True)
        if not folder.is_finished:
            try:
                with _opened(folder, begun, PHASES, where, threads, say, ignore_plan) as run:
                    write_results(run, _shown(where))
                    run.log(f"run done: {folder.final / folder.report.name}")
            except OtherRunError:
                raise  # something here is damaged, and says how it is made again
            except (ValueError, MemoryError) as error:
                folder.refuse()  # what could be gone on with would be refused again
                if folder.holds_results:
                    error.add_note(folder.how_to_mend)
                raise
        folder.tidy()
        results = read_json(folder.results)
        folder.put_in_place()
        return results


def fit_model(
    source: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
    scheduler: Any = None,
    threads: int | None = None,
    overwrite: bool = False,
    ignore_plan: bool = False,
    progress: Any = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Choose features, train on them and save the model: a run without comparison and report.

    What is done is kept in ``MODEL.unfinished``; called again with the same arguments, it goes on
    from there. With the same settings the model is that of :func:`run_job`.

    Parameters
    ----------
    source : path or URL
        A store, or a file that is read into one first.
    model : path
        Folder to write, as :func:`rfcdask.save` does.
    settings : mapping, optional
        As in :func:`run_job`; no rows are held out unless ``test_size`` is given.
    scheduler, threads, ignore_plan, progress, say
        As in :func:`run_job`; by default the work is done by threads of this process.
    overwrite : bool
        Replace a model that is there, and begin anew where an unfinished fit has other settings.

    Returns
    -------
    dict
        What is to be said of the model: its parts, sizes, errors and score.
    """
    started = time.perf_counter()
    folder = RunFolder.of_fit(model)
    refuse_files_of_others(model)  # before the work
    given = {"test_size": None} | from_mapping(settings or {})
    asked = Settings(**given)
    if asked.method == "none" and asked.learner == "none":
        raise SettingsError("method=none with learner=none leaves nothing to fit.")
    where = chosen_scheduler(scheduler, "threads")
    with _working_in(folder, progress):
        try:
            begun = _begin_or_go_on(folder, source, asked, overwrite, say)
            phases = phases_of_fit(asked)
            with _opened(folder, begun, phases, where, threads, say, ignore_plan) as run:
                result: dict[str, Any] = plain(_about_fit(run))
                about = about_model(run, run.stored) | {
                    name: result.get(name) for name in ("metric", "score")
                }
                fitted, about = folder.load(folder.model), redacted(plain(about))
                save(fitted, model, overwrite=overwrite, about=about)
        except BaseException:
            if folder.is_run and not folder.holds_work:
                folder.clear()
            raise
        folder.clear()
    return result | {"seconds": time.perf_counter() - started}


def _about_fit(run: Context) -> dict[str, Any]:
    used, data, trained = run.used, run.product("data")["data"], run.product("train")
    selected = run.product("select") if "select" in run.done else {}
    features = trained["n_components"] if run.learns_features else None
    found = {
        "model": run.folder.final_model,
        "map": used["method"],
        "n_components": selected.get("n_features", features),
        "gamma": run.product("kernel")["gamma"] if selected else trained.get("gamma"),
        "heldout_error": selected.get("heldout_error"),
        "learner": used["learner"],
        "standardized": used["standardize"],
        "table": data.get("table"),
        "rows": data["train_rows"],
        "columns": data["columns"],
    }
    if "score" in run.done:
        scored = run.product("score")
        metric = "accuracy" if "accuracy" in scored else "R2"
        found |= {"test_rows": data["test_rows"], "metric": metric, "score": scored[metric]}
        found |= {name: scored[name] for name in ("metrics", "warnings")}
    return found


def _folder_of(out: str | os.PathLike[str], resume: bool, overwrite: bool) -> RunFolder:
    """Return where to work: beside a finished run that is to be replaced, which stays meanwhile."""
    folder = RunFolder.at(out)
    with disk_errors(folder.path):
        folder.recover()
        if resume:
            folder = folder.to_resume
            if not folder.is_run:
                folder.require_free(overwrite=False)
                none = f"There is no run in {folder.path} to go on with"
                raise FileNotFoundError(f"{none}: leave --resume out to begin one.")
            return folder
        folder.require_free(overwrite=overwrite)
        folder = folder.aside if folder.is_finished else folder
        folder.require_free(overwrite=overwrite)
        return folder


def _require_comparison(settings: Settings) -> None:
    for name in ("method", "learner"):
        if getattr(settings, name) == "none":
            raise SettingsError(f"{name}=none leaves no model to report on: use rfcdask fit.")


def _find(source: str | None, folder: RunFolder) -> None:
    """Raise early when the data are not there, or would go with the run that is replaced."""
    if source is None:
        return
    expand(source)
    if not is_url(source) and Path(source).resolve().is_relative_to(folder.final.resolve()):
        raise RunExistsError(
            f"{source} lies in the folder of the run itself: choose another folder with --out."
        )


@contextmanager
def _working_in(folder: RunFolder, progress: Any) -> Iterator[None]:
    """Make the folder and keep others out; one that does not stay is not left for nothing."""
    if folder.path.is_symlink():
        raise OtherRunError(f"{folder.path} is a link, and a run writes through none: remove it.")
    with disk_errors(folder.path), with_progress(progress):
        is_new = not folder.final.exists()
        folder.final.mkdir(parents=True, exist_ok=True)
        try:
            with folder.locked(), _made(folder.path, folder.path != folder.final):
                yield
        finally:
            if is_new or folder.final_model is not None:
                with suppress(OSError):  # unless something lies there
                    folder.final.rmdir()


@contextmanager
def _made(path: Path, for_now: bool) -> Iterator[None]:
    """Make a folder, which goes again if nothing lies there: only while others are kept out."""
    path.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if for_now:
            with suppress(OSError):
                path.rmdir()


def _begin(folder: RunFolder, source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    place = absolute(source)
    settings = Settings(**given)
    data = identity(place, settings)
    mended = folder.final_model is not None or folder.refused.exists()
    folder.clear(keep_data=mended and _holds(folder, source, settings.to_dict()), keep_begun=True)
    begun = {
        "format": FORMAT,
        "rfcdask": __version__,
        "source": redacted(place),
        "identity": redacted(data),
        "settings": settings.to_dict(),
        "marked": True,  # the checksum of this is part of those of all other records
    }
    write_record(folder.begun, begun)
    return begun | {"source": place}


def _begin_or_go_on(
    folder: RunFolder, source: Any, asked: Settings, overwrite: bool, say: Say | None
) -> dict[str, Any]:
    """Go on with the same fit; begin where there is none, or nothing was learned yet."""
    given = asked.to_dict()
    if not folder.is_run:
        folder.require_free(overwrite=overwrite)
    if not folder.holds_work:
        return _begin(folder, source, given)
    try:
        begun = _go_on(folder, source, given)
    except OtherRunError:
        if not overwrite and folder.holds_results:
            raise
        return _begin(folder, source, given)
    if say:
        say(f"Going on with {folder.path}.")
    return begun


def _holds(folder: RunFolder, source: Any, given: Mapping[str, Any]) -> bool:
    """Tell whether the store in a folder is, or will be, what these settings make of the source."""
    names = (*READING, *STORING, "random_state")
    try:
        begun = _go_on(folder, source, {name: given[name] for name in names})
    except OtherRunError:
        return False
    return bool(begun["source"] == absolute(source))


def _go_on(folder: RunFolder, source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
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
    with damage_of(folder.begun, folder.how_to_begin_anew):
        begun: dict[str, Any] = untrusted.read_json(folder.begun)
        if begun.pop("checksum", None) not in (None, checksum_of(begun)):  # older runs have none
            raise ValueError("it is not what was written")
        if not isinstance(begun["source"], str | None) or "identity" not in begun:
            raise ValueError("it does not say which data it is about")
        begun["settings"] = Settings(**renamed(begun["settings"])).to_dict()
        return begun


def _require_same(
    folder: RunFolder, begun: dict[str, Any], place: str | None, given: Mapping[str, Any]
) -> None:
    repeat = "give the same" if folder.final_model else "leave that out"
    remedy = f"{repeat} to go on, or {folder.how_to_begin_anew}"
    asked = Settings(**begun["settings"] | given).to_dict()  # methods have the chosen one too
    for name in given:
        before, value = begun["settings"][name], asked[name]
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
    if redacted(json.loads(json.dumps(now))) != begun["identity"]:
        raise OtherRunError(
            f"{begun['source'] or 'what was made'} has changed since the run in {folder.path} "
            f"began: {folder.how_to_begin_anew}."
        )


@contextmanager
def _opened(
    folder: RunFolder,
    begun: dict[str, Any],
    phases: Sequence[Phase],
    where: Any,
    threads: int | None,
    say: Say | None,
    ignore_plan: bool,
) -> Iterator[Context]:
    """Connect, do all phases that are not done yet, and give the run to whoever ends it."""
    again = f"go on with {folder.resume_command}"
    with disk_errors(folder.path, again), connect(where, **share_threads(where, threads)) as client:
        said, settings = say or (lambda line: None), Settings(**begun["settings"])
        run = Context(folder, settings, begun["source"], client, said, ignore_plan)
        require_shared(client, reads=[run.source or ""], writes=folder.path)
        run.log(f"rfcdask {__version__}: run begins on {_shown(where)}")
        remote = client if where not in ("local", "threads") else None
        with MemoryMeter(remote) as meter, _logged(run), folder.damage():
            run_phases(run, phases, meter)
            yield run


def _shown(where: Any) -> str:
    if isinstance(where, (str, os.PathLike)):
        return os.fspath(where)
    return str(getattr(getattr(where, "scheduler", None), "address", where))


@contextmanager
def _logged(run: Context) -> Iterator[None]:
    """Write warnings, errors and interruptions into the log too."""
    before = warnings.showwarning

    def note(message: Warning | str, *args: Any, **more: Any) -> None:
        run.log(f"warning: {' '.join(str(message).split())}")
        before(message, *args, **more)

    with warnings.catch_warnings():
        warnings.showwarning = note
        try:
            yield
        except BaseException as error:
            said = f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
            with suppress(OSError):  # the log may be on the very disk that is full
                run.log("interrupted" if isinstance(error, KeyboardInterrupt) else said)
            raise
