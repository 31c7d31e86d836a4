"""The folder of a run: whole files only, nothing of others touched, one process at a time."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rfcdask as rf
from rfcdask._version import __version__
from rfcdask.data import DataError
from rfcdask.evaluation.compare import Split
from rfcdask.persist.files import atomic_file
from rfcdask.pipeline import fit_model, run_job
from rfcdask.pipeline.folder import (
    OtherRunError,
    RunExistsError,
    RunFolder,
    UnfinishedRunError,
    read_json,
    write_json,
    write_record,
)
from rfcdask.pipeline.phases import Context
from rfcdask.pipeline.settings import Settings

BEGUN = {"format": 1, "rfcdask": __version__, "source": None, "identity": None, "settings": {}}
MARKED = BEGUN | {"marked": True}


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"a": [1, 2]})
    with pytest.raises(TypeError, match="bytes-like"), atomic_file(path) as file:
        file.writelines([b"half", None])
    assert read_json(path) == {"a": [1, 2]}
    assert [item.name for item in path.parent.iterdir()] == ["a.json"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, float("nan"))
    path.write_text("{")
    with pytest.raises(OtherRunError, match=r"a\.json is damaged"):
        read_json(path)


def test_only_a_free_folder_or_a_run_to_replace_is_taken(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.require_free(overwrite=False)
    folder.path.mkdir()
    folder.require_free(overwrite=False)
    (folder.path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(RunExistsError, match=r"no folder of a run \(thesis.tex lies there\)"):
            folder.require_free(overwrite=overwrite)
    write_json(folder.begun, {})
    with pytest.raises(UnfinishedRunError, match="pass --resume to go on"):
        folder.require_free(overwrite=False)
    write_json(folder.results, {})
    with pytest.raises(RunExistsError, match=r"holds a finished run.*--overwrite"):
        folder.require_free(overwrite=False)
    folder.require_free(overwrite=True)
    with pytest.raises(RunExistsError, match="is a file"):
        RunFolder(folder.path / "thesis.tex").require_free(overwrite=True)


def test_clearing_leaves_what_is_not_of_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for directory in (folder.data, folder.phases, folder.maps, folder.model):
        directory.mkdir()
        (directory / "x").write_text("x")
    for file in (folder.begun, folder.results, folder.report, folder.sample, folder.log):
        file.write_text("x")
    (tmp_path / "notes.txt").write_text("mine")
    for mine in ("film.part", "x.json.partial", "data.zarr.film.part.old"):
        (tmp_path / mine).write_text("mine")
    for half in ("results.json.abc.part", "run.json.partial", "data.zarr.0123abcd.partial"):
        (tmp_path / half).write_text("x")
    for beside in (".data.zarr.lock", ".training.npz.lock", ".model-0123abcd", ".model-old"):
        (tmp_path / beside).write_text("of a killed ingest or save")
    (tmp_path / f".rfcdask-{'0f' * 16}").write_text("of one killed while workers looked for it")
    folder.clear()
    kept = {"notes.txt", "film.part", "x.json.partial", "data.zarr.film.part.old", ".model-old"}
    assert {item.name for item in tmp_path.iterdir()} == kept
    with pytest.raises(RunExistsError, match="no folder of a run"):
        folder.require_free(overwrite=True)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.part").write_text("mine")
    (mine / "profile").write_text("mine")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    write_json(folder.begun, BEGUN)
    for place, target in ((folder.log, mine / "profile"), (folder.phases, mine)):
        place.symlink_to(target)
        with pytest.raises(OtherRunError, match=rf"{place.name} is a link.* pass --overwrite"):
            run_job(None, folder.path, scheduler="threads", resume=True)
        place.unlink()
    folder.maps.symlink_to(mine)
    folder.clear()
    assert list(folder.path.iterdir()) == []
    (tmp_path / "run.json.partial").symlink_to(mine / "profile")
    write_json(tmp_path / "run.json", {"a": 1})
    assert read_json(tmp_path / "run.json") == {"a": 1}
    assert {path.name: path.read_text() for path in mine.iterdir()} == {
        "letter.part": "mine",
        "profile": "mine",
    }


def test_a_link_beside_a_model_leads_to_no_other_run(tmp_path: Path) -> None:
    """A run that it leads to would be gone on with, or cleared away to begin anew."""
    other = RunFolder(tmp_path / "other")
    other.maps.mkdir(parents=True)
    write_json(other.begun, MARKED)
    (tmp_path / "model.unfinished").symlink_to(other.path)
    np.save(tmp_path / "a.npy", np.eye(30))
    asked = {"settings": {"learner": "none", "label": False}, "overwrite": True}
    with pytest.raises(OtherRunError, match="is a link"):
        fit_model(tmp_path / "a.npy", tmp_path / "model", **asked)
    assert {item.name for item in other.path.iterdir()} == {"maps", "run.json"}


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with (
        folder.locked(),
        pytest.raises(RunExistsError, match="another process"),
        folder.locked(),
    ):
        pass
    with folder.locked():
        assert folder.path.is_dir()


def test_who_is_kept_out_leaves_the_folder_of_the_other_there(whole: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole, folder.path)
    with folder.locked():
        folder.aside.path.mkdir()  # as the other has it before its first file
        with pytest.raises(RunExistsError, match="another process"):
            run_job(None, folder.path, scheduler="threads", overwrite=True)
        assert folder.aside.path.is_dir()


def test_that_a_folder_is_busy_comes_before_what_to_do_with_it(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path)
    write_json(folder.begun, {})
    with folder.locked(), pytest.raises(RunExistsError, match="another process"):
        folder.require_free(overwrite=False)
    with pytest.raises(UnfinishedRunError, match="--resume"):
        folder.require_free(overwrite=False)


@pytest.mark.parametrize("text", ["[" * 10**6, "[]", "3", '"text"', '{"a": 1}', "\x00", ""])
def test_odd_records_of_a_run_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "01-data.json"
    path.write_text(text)
    with pytest.raises(
        OtherRunError, match=r"01-data\.json is damaged .* call again \(rfcdask run with --resume"
    ):
        read_json(path, "product")


@pytest.mark.parametrize(
    ("before", "after"), [("0.75", "0.95"), ('"score"', '"train"'), ('"product"', '"produce"')]
)
def test_changed_records_of_a_run_are_named(tmp_path: Path, before: str, after: str) -> None:
    folder = RunFolder(tmp_path)
    write_record(folder.begun, MARKED)
    path = folder.phase(1, "score")
    record = {"name": "score", "product": {"accuracy": 0.75, "größe": None}}
    write_record(path, record, folder.mark)
    run = Context(folder, Settings(), None, None, lambda line: None)
    run.load_finished(["score"])
    assert run.product("score") == {"accuracy": 0.75, "größe": None}
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(OtherRunError, match=r"01-score\.json is damaged .*: remove it and call"):
        run.load_finished(["score"])
    write_record(path, record | {"name": "train"}, folder.mark)  # whole, but of another phase
    with pytest.raises(OtherRunError, match=r"01-score\.json is damaged .*: remove it and call"):
        run.load_finished(["score"])
    write_record(path, record, RunFolder(tmp_path).mark + "0")  # whole, but of another run
    with pytest.raises(OtherRunError, match=r"01-score\.json is damaged .*: remove it and call"):
        run.load_finished(["score"])


@pytest.mark.parametrize(
    ("phase", "change"),
    [
        (1, {"product": {}}),
        (1, {"settled": {"method": "../../mine"}}),
        (1, {"settled": {"n_components": 10**12}}),
        (2, {"problems": 1e308}),
        (7, {"seconds": 5, "product": {"rows": [5]}}),
    ],
)
def test_records_that_were_changed_and_sealed_again_are_named(
    whole: Path, tmp_path: Path, phase: int, change: dict[str, Any]
) -> None:
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole, folder.path)
    folder.results.unlink()
    (path,) = folder.phases.glob(f"{phase:02d}-*")
    record = read_json(path)
    del record["checksum"]
    for name, value in change.items():
        part = record if name in record else record["product"]
        part[name] = part[name] | value if name == "settled" else value
    write_record(path, record, folder.mark)
    with pytest.raises(OtherRunError, match=r"(is damaged|this run wrote).*: pass --overwrite"):
        run_job(None, folder.path, scheduler="threads", resume=True)


def test_the_record_of_a_run_names_no_other_store(tmp_path: Path) -> None:
    run = Context(RunFolder(tmp_path), Settings(), "/data/a.csv", None, lambda line: None)
    run.done["data"] = {"product": {"path": "/home/somebody/else.zarr"}}
    with pytest.raises(DataError, match=rf"no zarr v3 group at {tmp_path}/data\.zarr"):
        _ = run.columns


@pytest.mark.timeout(60)
def test_a_log_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write_record(folder.begun, MARKED)
    os.mkfifo(folder.log)
    with pytest.raises(OtherRunError, match=r"run\.log is damaged .* no plain file\): remove it"):
        run_job(None, folder.path, scheduler="threads", resume=True)


def test_what_to_do_where_the_beginning_of_a_run_is_gone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no run in .*: leave --resume out"):
        run_job(None, tmp_path / "run", resume=True)
    (tmp_path / "run" / "data.zarr").mkdir()
    with pytest.raises(RunExistsError, match=r"data\.zarr lies there\): choose another with --out"):
        run_job(None, tmp_path / "run", resume=True)


@pytest.mark.parametrize("checksum", [True, False])
def test_records_and_sample_of_an_older_run_are_read(tmp_path: Path, checksum: bool) -> None:
    """Its records have no checksum, or one without the mark of the run; its sample has no mark."""
    folder, write = RunFolder(tmp_path), write_record if checksum else write_json
    write(folder.begun, BEGUN)
    write(folder.phase(1, "score"), {"name": "score", "product": {"accuracy": 0.75}})
    run = Context(folder, Settings(), None, None, lambda line: None)
    run.load_finished(["score"])
    assert run.product("score") == {"accuracy": 0.75}
    np.savez(folder.sample, **{name: np.zeros((4, 2)) for name in Split._fields})
    assert run.sample.X.shape == (4, 2)


def test_a_sample_of_another_run_is_refused(tmp_path: Path) -> None:
    runs = []
    for seed in range(2):
        folder = RunFolder(tmp_path / str(seed))
        write_record(folder.begun, MARKED | {"settings": {"random_state": seed}})
        runs.append(Context(folder, Settings(random_state=seed), None, None, lambda line: None))
        X, held_out = np.full((4, 2), seed), np.zeros((2, 2))
        runs[-1].keep_sample(Split(X, np.zeros(4), held_out, np.zeros(2)))
    shutil.copy(runs[1].folder.sample, runs[0].folder.sample)
    assert runs[1].sample.X.tolist() == [[1, 1]] * 4
    words = r"sample\.npz is damaged \(.*another run\): remove .*03-sample\.json and call"
    with pytest.raises(OtherRunError, match=words):
        _ = runs[0].sample


@pytest.mark.timeout(60)
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive", None, "a pipe"])
def test_a_damaged_sample_is_named(tmp_path: Path, content: bytes | str | None) -> None:
    folder = RunFolder(tmp_path)
    if isinstance(content, bytes):
        folder.sample.write_bytes(content)
    elif content:
        os.mkfifo(folder.sample)
    run = Context(folder, Settings(), None, None, lambda line: None)
    words = r"sample\.npz is damaged .*: remove .*03-sample\.json and call .* with --resume"
    with pytest.raises(OtherRunError, match=words):
        _ = run.sample


def test_a_damaged_map_is_named(tmp_path: Path) -> None:
    """Nobody has a copy of one, nor can anybody save it again."""
    folder = RunFolder(tmp_path)
    kept = folder.maps / "a"
    rf.save(rf.PCA(1).fit(np.eye(2)), kept)
    for part in (kept / "arrays.zarr" / "mean_" / "c" / "0", kept / "model.json"):
        part.unlink()
        with pytest.raises(OtherRunError, match=r"maps/a is missing or damaged: pass --overwrite"):
            folder.load(kept)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": []},
        {"settings": {"no such": 1}},
        {"settings": {"seed": -1}},
        {"source": 5},
        {"settings": None},
    ],
)
def test_a_damaged_beginning_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.begun, BEGUN | change)
    with pytest.raises(OtherRunError, match=r"run\.json is damaged .*: pass --overwrite instead"):
        run_job(None, tmp_path, resume=True)


def test_a_changed_beginning_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write_record(folder.begun, BEGUN)
    folder.begun.write_text(folder.begun.read_text().replace('"source"', '"source": null, "more"'))
    with pytest.raises(OtherRunError, match=r"run\.json is damaged .*: pass --overwrite instead"):
        run_job(None, tmp_path, resume=True)


def test_the_command_to_go_on_can_be_typed(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path / "my run")
    assert shlex.split(folder.resume_command)[-2:] == ["--out", str(tmp_path / "my run")]


def test_a_run_killed_at_its_first_file_can_begin_again(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path / "run")
    folder.path.mkdir()
    (folder.path / "run.json.partial").write_text("{")
    folder.require_free(overwrite=False)
    with (
        folder.locked(),
        pytest.raises(RunExistsError, match="another process is running"),
        folder.locked(),
    ):
        pass
    (folder.path / "mine.txt").write_text("")
    with pytest.raises(RunExistsError, match=r"no folder of a run \(mine.txt lies there\)"):
        folder.require_free(overwrite=False)


def test_a_run_lies_where_a_link_leads(tmp_path: Path) -> None:
    """What is to replace it lay beside the link, which it then took the place of."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folder = RunFolder.at(tmp_path / "link")
    assert folder.path == tmp_path / "real"
    assert folder.aside.path == tmp_path / "real.unfinished"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/", "is no folder for a run: choose another with --out"),
        ("s3://me:secret@bucket/run", r"s3://\*\*\*@bucket/run is a URL, and runs"),
        (os.fsdecode(b"/tmp/\xff"), "has a name that is not UTF-8"),
    ],
)
def test_places_that_no_run_can_have(place: str, words: str) -> None:
    with pytest.raises((ValueError, RunExistsError), match=words):
        RunFolder.at(place)


def test_data_with_a_name_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has a name that is not UTF-8.*: rename it"):
        fit_model(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"), tmp_path / "model")
