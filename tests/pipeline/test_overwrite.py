"""A run that is replaced stays until the new one is whole; a refused one blocks nothing."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.data import DataError
from rfcdask.persist import files
from rfcdask.pipeline import RunFolder, run_job, training
from rfcdask.pipeline import folder as folders
from rfcdask.pipeline import run as runs
from rfcdask.pipeline.folder import OtherRunError, RunExistsError, UnfinishedRunError
from rfcdask.planning import PlanError
from tests.pipeline.helpers import results_of
from tests.pipeline.test_resume import wait_for
from tests.programs import start_cli

TINY = {
    "rows": 2000,
    "sizes": [20],
    "n_candidates": 100,
    "n_rows": 200,
    "refine": 0,
    "methods": ["random"],
    "method": "random",
    "epochs": 1,
}


def run(out: Path, source: Any = None, **options: Any) -> dict[str, Any]:
    changed = TINY | options.pop("settings", {})
    given = {} if options.get("resume") else changed
    return run_job(source, out, settings=given, scheduler="threads", **options)


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(folder)
    return folder


@pytest.fixture
def old(finished: Path, tmp_path: Path) -> Path:
    """A finished run, with a file that somebody put beside it."""
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "notes.txt").write_text("mine")
    return folder


OPTIONS = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}".strip())]
OPTIONS = [part.replace("['random']", "random").replace("[20]", "20") for part in OPTIONS]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("phase", ["data", "train"])
def test_a_killed_replacement_leaves_the_old_run(old: Path, phase: str) -> None:
    before, aside = contents(old), RunFolder.at(old).aside.path
    command = ("run", "--out", old, "--overwrite", "--scheduler", "threads", *OPTIONS)
    process = start_cli(*command, "--set", "random_state=1")
    assert wait_for(aside, f"phase {phase}: begins", 0, process), process.communicate()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert contents(old) == before
    with pytest.raises(UnfinishedRunError, match=r"unfinished run that is to replace .*--resume"):
        run(old)
    resume = ["run", "--resume", "--out", str(old), "--scheduler", "threads"]
    assert CliRunner().invoke(main, resume).exit_code == 0
    assert results_of(old)["seed"] == 1
    assert results_of(old)["data"]["path"] == str(old / "data.zarr")
    assert (old / "notes.txt").read_text() == "mine"
    assert not aside.exists()
    rf.load(old / "model")
    rf.open_dataset(old / "data.zarr").verify()


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("name", ["replace_folder", "sync_all", "discard", "_exchange"])
def test_killed_while_it_takes_its_place(
    old: Path, name: str, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folders if name == "replace_folder" else files
    with monkeypatch.context() as broken:
        if not exchanges:
            broken.setattr(files, "_exchange", lambda *_: False)
        broken.setattr(place, name, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(old, overwrite=True, settings={"random_state": 1})
    rf.load(old / "model")
    assert run(old, resume=True)["seed"] == 1
    assert results_of(old)["seed"] == 1
    assert (old / "notes.txt").read_text() == "mine"
    rf.open_dataset(old / "data.zarr").verify()


def test_neither_name_is_lost_between_two_renames(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where names cannot be exchanged at once: killed between, the old one gets its name back."""
    aside, before = RunFolder.at(old).aside.path, contents(old)
    old.rename(files.backup_of(aside))
    with pytest.raises(RunExistsError, match="holds a finished run"):
        run(old)
    assert contents(old) == before


def test_killed_between_clearing_a_run_and_beginning_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With files of others, or a store that is kept, it was no folder of a run any more."""
    out, X = tmp_path / "run", np.random.default_rng(0).normal(size=(300, 3))
    np.savez(tmp_path / "a.npz", X=X, y=X[:, 0] > 0)
    few = {"method": "random", "n_candidates": 100, "epochs": 1}

    def fit(size: int) -> Any:
        return runs.fit_model(
            tmp_path / "a.npz", tmp_path / "m", settings=few | {"n_components": size}
        )

    with pytest.raises(DataError, match="raise n_candidates"):
        fit(300)
    with monkeypatch.context() as broken:
        broken.setattr(runs, "write_results", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(out)
        (out / "notes.txt").write_text("mine")
        broken.setattr(runs, "write_record", lambda *_: 1 / 0)
        for begin in (lambda: run(out, overwrite=True), lambda: fit(50)):
            with pytest.raises(ZeroDivisionError):
                begin()
    assert run(out, overwrite=True)["seed"] == 0
    assert (out / "notes.txt").read_text() == "mine"
    fit(50)
    rf.load(tmp_path / "m")


def test_a_run_is_not_replaced_by_one_from_its_own_store(old: Path) -> None:
    before = contents(old)
    with pytest.raises(RunExistsError, match="lies in the folder of the run itself"):
        run(old, old / "data.zarr", overwrite=True, settings={"rows": 100})
    (old.parent / "link").symlink_to(old)
    with pytest.raises(RunExistsError, match="lies in the folder of the run itself"):
        run(old.parent / "link", old / "data.zarr", overwrite=True, settings={"rows": 100})
    assert contents(old) == before


def test_a_run_in_a_mount_point_is_not_replaced(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a volume of a container: it cannot be moved aside when the new run is done."""
    before = contents(old)
    monkeypatch.setattr("os.path.ismount", lambda path: path == old)
    with pytest.raises(files.DestinationError, match=r"run is a mount point.*a folder within it"):
        run(old, overwrite=True)
    assert contents(old) == before
    assert list(old.parent.iterdir()) == [old]
    (old / "results.json").unlink()  # an unfinished one is begun anew in its place
    run(old, overwrite=True)


def test_a_finished_run_without_its_model_is_not_called_done(old: Path) -> None:
    shutil.rmtree(old / "model")
    with pytest.raises(OtherRunError, match=r"model is missing.*: pass --overwrite instead"):
        run(old, resume=True)
    run(old, overwrite=True)
    rf.load(old / "model")


def table(path: Path) -> Path:
    X = np.random.default_rng(0).normal(size=(200, 4))
    rows = np.column_stack([X, X[:, 0] * X[:, 1] > 0])
    np.savetxt(path, rows, "%.6g", ",", header="a,b,c,d,label", comments="")
    return path


def test_a_refused_run_does_not_block_the_next(tmp_path: Path) -> None:
    """What is found wrong when the rows are written needs no --overwrite, and no second reading."""
    source, out = table(tmp_path / "a.csv"), tmp_path / "run"
    for wrong, words in (({"test_size": 199}, "too few"), ({"n_candidates": 10}, "raise n_cand")):
        with pytest.raises(DataError, match=words):
            run(out, source, settings=wrong)
        assert (out / "data.zarr").exists()
    shard = next((out / "data.zarr/X/c").rglob("0"))
    written = shard.stat().st_mtime_ns
    assert run(out, source)["data"]["rows"] == 200
    assert shard.stat().st_mtime_ns == written
    with pytest.raises(RunExistsError, match="holds a finished run"):
        run(out, source)


def test_a_late_refusal_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features were chosen: they go only when that is asked for, and the rows stay then too."""
    source, out = table(tmp_path / "a.csv"), tmp_path / "run"

    def refuse(*_: Any) -> None:
        raise ValueError("no such penalty")

    with monkeypatch.context() as broken:
        broken.setattr(training, "make_learner", refuse)
        with pytest.raises(ValueError, match="no such penalty") as refused:
            run(out, source)
    assert "with other settings and --overwrite" in refused.value.__notes__[0]
    with pytest.raises(UnfinishedRunError, match=r"was refused. .*other settings and --overwrite"):
        run(out, source, settings={"alpha": 0.1})
    with pytest.raises(OtherRunError, match=r"begun with alpha=auto, not 0.1"):
        run_job(None, out, settings={"alpha": 0.1}, resume=True, scheduler="threads")
    shard = next((out / "data.zarr/X/c").rglob("0"))
    written = shard.stat().st_mtime_ns
    assert run(out, source, settings={"alpha": 0.1}, overwrite=True)["settings"]["alpha"] == 0.1
    assert shard.stat().st_mtime_ns == written


def test_after_a_refusal_other_data_are_read_anew(tmp_path: Path) -> None:
    source, out = table(tmp_path / "a.csv"), tmp_path / "run"
    with pytest.raises(DataError, match="too few"):
        run(out, source, settings={"test_size": 199})
    assert run(out)["data"]["rows"] == 2000


def test_a_plan_that_was_refused_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = table(tmp_path / "a.csv"), tmp_path / "run"

    def refuse(_: Any) -> None:
        raise PlanError("it will not fit")

    with monkeypatch.context() as small:
        small.setattr("rfcdask.planning.Plan.check", refuse)
        with pytest.raises(PlanError):
            run(out, source)
    assert run(out, source, ignore_plan=True)["data"]["rows"] == 200


def test_a_refused_replacement_leaves_nothing_behind(old: Path) -> None:
    before = contents(old)
    with pytest.raises(DataError, match="no column 'nothing'"):
        run(old, table(old.parent / "a.csv"), overwrite=True, settings={"label": "nothing"})
    assert contents(old) == before
    assert not RunFolder.at(old).aside.path.exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_that_ended_meanwhile_is_not_cleared(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """The folder was free when this process looked; then it waited, and another one ran."""
    folder = tmp_path / "run"

    def ends_meanwhile(*_: Any) -> str:
        shutil.copytree(finished, folder)
        return "threads"

    monkeypatch.setattr(runs, "chosen_scheduler", ends_meanwhile)
    with pytest.raises(RunExistsError, match=r"another process ran in .* meanwhile"):
        run(folder, overwrite=overwrite)
    assert contents(folder) == contents(finished)
