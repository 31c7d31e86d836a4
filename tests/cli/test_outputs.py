"""Where commands write: stdout that is full or narrow, links, pipes, URLs, and files they read."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rfcdask as rf
from rfcdask.cli import in_options, main
from rfcdask.cli.files import whole_file, whole_folder
from rfcdask.cli.predict import _write_csv, _write_zarr
from rfcdask.persist.files import DestinationError
from tests.programs import run_cli, user_environment

FULL = Path("/dev/full")


def _lazily(values: Any) -> Any:
    import dask.array as da

    return da.from_array(np.asarray(values), chunks=2)


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("line", ["--help", "--version", "run --help", "run --list-settings"])
def test_a_full_stdout_is_said(line: str, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    with open(FULL, "w") as full, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", full)
        with pytest.raises(SystemExit) as ended:
            main(line.split(), prog_name="rfcdask")
        assert ended.value.code == 2
    said = capfd.readouterr().err
    assert "Error: stdout cannot be written (No space left on device)" in said
    assert "call again" in said


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
def test_a_full_stdout_ends_predictions(files: Path, model: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"rfcdask predict fitted new.csv -q > {FULL}"],
        cwd=files,
        env=user_environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: stdout cannot be written (No space left on device)")
    assert "Exception ignored" not in done.stderr


def test_a_stdout_without_some_letters_is_said_with_a_remedy(tmp_path: Path) -> None:
    learned = rf.RidgeClassifier().fit(np.eye(4, dtype="f4"), ["ü", "b", "ü", "b"])
    rf.save(learned, tmp_path / "model")
    np.save(tmp_path / "new.npy", np.eye(4))
    line = ("predict", "model", "new.npy", "-q")
    done = run_cli(*line, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert r"stdout takes text as ascii, which has no '\xfc'" in done.stderr
    assert "PYTHONIOENCODING=utf-8:surrogateescape" in done.stderr
    done = run_cli(*line, cwd=tmp_path, PYTHONIOENCODING="utf-8:surrogateescape")
    assert done.returncode == 0, done.stderr
    assert "ü" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "predict fitted part*.csv part-2.csv",
        "predict fitted file://{here}/part-2.csv part-2.csv",
        "predict fitted . part-2.csv",
        "compare part-*.csv --out part-2.csv",
        "transform fitted store.zarr store.zarr",
        "ingest store.zarr store.zarr",
    ],
)
def test_what_is_read_by_another_name_is_not_replaced(
    line: str, call: Any, files: Path, model: Path
) -> None:
    text, rows = (files / "part-2.csv").read_text(), rf.open_dataset(files / "store.zarr").shape
    done = call(*line.format(here=files).split(), "--overwrite")
    assert done.exit_code == 2
    assert "is what is read: choose another destination" in done.stderr
    assert (files / "part-2.csv").read_text() == text
    assert rf.open_dataset(files / "store.zarr").shape == rows


def test_two_outputs_of_a_comparison_are_two_files(call: Any, files: Path, store: Path) -> None:
    done = call("compare", "store.zarr", "--out", "both.svg", "--plot", "./both.svg")
    assert done.exit_code == 2
    assert "--out and --plot name the same file" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "predict fitted new.csv s3://me:secret@bucket/p.csv",
        "predict fitted new.csv s3://bucket/p.zarr",
        "fit data.csv s3://bucket/model",
        "run data.csv --out s3://bucket/run",
        "tune data.csv --out https://host/tune.json",
    ],
)
def test_no_folder_is_named_by_the_parts_of_a_url(
    line: str, call: Any, files: Path, model: Path
) -> None:
    done = call(*line.split())
    assert done.exit_code == 2
    assert "is a URL" in done.stderr
    assert "secret" not in done.stderr
    assert not [*files.glob("s3:*"), *files.glob("https:*")]


def test_pipes_and_devices_are_not_replaced(call: Any, files: Path, model: Path) -> None:
    os.mkfifo(files / "pipe.csv")
    done = call("predict", "fitted", "new.csv", "pipe.csv", "--overwrite")
    assert done.exit_code == 2
    assert "pipe.csv is a pipe or a device" in done.stderr
    assert (files / "pipe.csv").is_fifo()


def test_a_file_is_written_where_a_link_leads(tmp_path: Path) -> None:
    """Through a link to another disk nothing could be renamed."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "there" / "real.csv")
    with whole_file(str(tmp_path / "link.csv")) as file:
        file.write("x")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "there" / "real.csv").read_text() == "x"


def test_a_store_in_the_home_folder(call: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A '~' that no shell has seen: rows were written there, and looked for elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    done = call("synthesize", "higgs", "~/a.zarr", "--rows", "50", "-q", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert os.listdir(tmp_path) == ["home"]
    assert os.listdir(tmp_path / "home") == ["a.zarr"]


def test_a_store_in_a_mount_point_is_not_replaced(call: Any, store: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) == "store.zarr")
    done = call("ingest", "part-1.csv", "store.zarr", "--label", "target", "--overwrite", "-q")
    assert done.exit_code == 2
    assert "store.zarr is a mount point, and nothing can take the place of one" in done.stderr
    assert rf.open_dataset(store).shape[0] == 600


def test_no_room_for_a_file_is_said_with_its_name(tmp_path: Path) -> None:
    with (
        pytest.raises(DestinationError, match=r"no space left for .*a\.csv"),
        whole_file(str(tmp_path / "a.csv")),
    ):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_predictions_leave_an_unfinished_store_alone(
    call: Any, files: Path, store: Path, model: Path
) -> None:
    work = files / "later.zarr.unfinished"
    work.mkdir()
    (work / "zarr.json").write_text('{"attributes": {"complete": false}}')
    done = call("predict", "fitted", "new.csv", "later.zarr", "-q")
    assert done.exit_code == 0, done.stderr
    assert (work / "zarr.json").is_file()


def test_two_writers_of_predictions_do_not_mix(
    call: Any, files: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one removed what the first had written, which then ended with gaps."""
    second = []

    def write(*args: Any) -> None:
        monkeypatch.undo()
        second.append(call("predict", "fitted", "new.csv", "one.zarr", "-q"))
        _write_zarr(*args)

    monkeypatch.setattr("rfcdask.cli.predict._write_zarr", write)
    done = call("predict", "fitted", "new.csv", "one.zarr", "-q")
    assert done.exit_code == 0, done.stderr
    assert second[0].exit_code == 2
    assert "another process is writing one.zarr" in second[0].stderr


def test_a_store_that_was_killed_before_it_had_its_name_is_made_again(
    call: Any, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it touched by a second command while the first gives it its name."""
    second = []

    def kill(*_: Any) -> None:
        second.append(call("ingest", "data.csv", "named.zarr", "-q"))
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr("rfcdask.cli.files.move_into_place", kill)
        done = call("ingest", "data.csv", "named.zarr", "-q")
    assert "call the same command again" in done.stderr
    assert "another process is writing named.zarr" in second[0].stderr
    done = call("ingest", "data.csv", "named.zarr", "-q")
    assert done.exit_code == 0, done.stderr
    assert rf.open_dataset(files / "named.zarr").shape[0] == 600
    assert not (files / "named.zarr.unfinished").exists()


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_a_store_is_not_written_through_a_link_beside_it(
    call: Any, files: Path, store: Path, overwrite: tuple[str, ...]
) -> None:
    link = files / "linked.zarr.unfinished"
    link.symlink_to(store)
    done = call("ingest", "data.csv", "linked.zarr", "-q", *overwrite)
    link.unlink()
    assert done.exit_code == 2
    assert "nothing is written through one" in done.stderr
    assert rf.open_dataset(store).shape[0] == 600


def test_names_of_classes_are_read_back_as_they_are(tmp_path: Path) -> None:
    names = ["a,b", "c\nd", 'e"f', "g\rh", "i\r\nj", " k ", "=1+1", "\r\n", ""]
    with open(tmp_path / "a.csv", "w", encoding="utf-8", newline="") as file:
        _write_csv(file, _lazily(names), ["predicted"], None, None)
    assert (tmp_path / "a.csv").read_bytes().startswith(b'predicted\n"a,b"\n')
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        assert [row for (row,) in csv.reader(file)] == ["predicted", *names]


@pytest.mark.parametrize(
    "name",
    ["columns={:}", "columns={'a'}", r"columns={'a': '\x'}", "data/label=1/x.csv", "label=1/x.csv"],
)
def test_names_of_files_stay_as_they_are_in_messages(name: str) -> None:
    assert in_options(f"{name} does not exist.") == f"{name} does not exist."


def test_remedies_are_still_options() -> None:
    assert in_options("pass label=3.") == "pass --label 3."
    assert in_options("pass label=, or nan='drop'") == "pass --label, or --nan drop"
    assert "columns = {" in in_options("pass columns={'a': 'text', 'b': 'date'}.")


def test_a_current_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    here = Path.cwd()
    os.chdir(tmp_path / "gone")
    try:
        (tmp_path / "a.csv").touch()
        (tmp_path / "gone").rmdir()
        done = CliRunner().invoke(main, ["run", str(tmp_path / "a.csv")])
    finally:
        os.chdir(here)
    assert done.exit_code == 2
    assert "the current folder was removed: change to another one" in done.stderr


def test_what_a_killed_prediction_left_goes_with_the_next(tmp_path: Path) -> None:
    for name, part in ((".p.zarr-0123abcd", "zarr.json"), (".p.zarr-89abcdef", "letter.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / part).write_text("{}")
    with whole_folder(str(tmp_path / "p.zarr")) as work:
        (work / "zarr.json").write_text("{}")
    assert {path.name for path in tmp_path.iterdir()} == {"p.zarr", ".p.zarr-89abcdef"}


def test_a_prediction_replaces_nothing_unasked(tmp_path: Path, monkeypatch: Any, call: Any) -> None:
    """Another command may take its name while rows are predicted."""
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,5\n")
    rf.save(rf.Ridge().fit(np.eye(2), [1, 2]), tmp_path / "m")
    made, predict = tmp_path / "p.zarr", sys.modules["rfcdask.cli.predict"]
    write = predict._write
    monkeypatch.setattr(predict, "_write", lambda *a: (made.mkdir(exist_ok=True), write(*a)))
    done = call("predict", *(str(tmp_path / name) for name in ("m", "a.csv", "p.zarr")))
    assert "exists already: pass --overwrite" in done.stderr
    assert not list(made.iterdir())
    (made / "zarr.json").write_text("{}")
    (made / "notes.txt").write_text("years of work")
    done = call("predict", str(tmp_path / "m"), str(tmp_path / "a.csv"), str(made), "--overwrite")
    assert "holds notes.txt, which would be lost" in done.stderr


def test_names_in_data_are_no_commands_to_the_terminal(call: Any, tmp_path: Path) -> None:
    """A name in a file could set the title, clear the screen or hide what was said before."""
    name = "a\x1b]0;mine\x07\x9b2J\u2028\u202e\u061c"
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10) % 2
    lines = [f"{name},b,{name}label", *(f"{a},{b},{name}{a // 2 % 2}" for a, b in X)]
    (tmp_path / "a.csv").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "b.csv").write_text("\n".join(lines[:2]), encoding="utf-8")
    label = ("--label", "2")
    rf.save(rf.Ridge().fit(X, y), tmp_path / "m", about={"data": {"label_name": name}})
    done = [call("ingest", str(tmp_path / "a.csv"), str(tmp_path / "s.zarr"), *label)]
    done += [call("info", str(tmp_path / place)) for place in ("s.zarr", "m")]
    done += [call("info", str(tmp_path / "s.zarr"), "--json")]
    assert [one.exit_code for one in done] == [0, 0, 0, 0]
    assert name in json.loads(done[-1].stdout)["column_names"]
    done += [call("ingest", str(tmp_path / "b.csv"), str(tmp_path / "t.zarr"), *label)]
    assert "all labels are of one class (a" in done[-1].stderr
    said = "".join(one.stdout + one.stderr for one in done).replace("\n", "")
    assert said.isprintable()
