"""Commands that would have lost a folder, or told somebody to use an option that is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rfcdask as rf
from rfcdask.cli.files import to_json
from rfcdask.pipeline.folder import RunFolder, read_record, write_record


def test_predictions_replace_nothing_else(call: Any, files: Path, store: Path, model: Path) -> None:
    (files / "keep.zarr").mkdir()
    (files / "keep.zarr" / "thesis.txt").write_text("x")
    for data, dest, words in (
        ("store.zarr", "keep.zarr", "and no prediction"),
        ("store.zarr", "store.zarr", "is what is read"),
        ("new.csv", "store.zarr", "a store of rows"),
    ):
        done = call("predict", "fitted", data, dest, "--overwrite")
        assert done.exit_code == 2
        assert words in done.stderr
    assert (files / "keep.zarr" / "thesis.txt").read_text() == "x"
    for _ in range(2):
        done = call("predict", "fitted", "store.zarr", "p.zarr", "--overwrite", "-q")
        assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "predict fitted mine.csv mine.csv",
        "predict fitted mine.csv here/../mine.csv",
        "report mine.csv mine.csv",
        "tune mine.csv --out mine.csv",
        "compare mine.csv --out mine.csv",
    ],
)
def test_what_is_read_is_not_replaced(line: str, call: Any, files: Path, model: Path) -> None:
    (files / "here").mkdir(exist_ok=True)
    text = (files / "data.csv").read_text()
    (files / "mine.csv").write_text(text)
    done = call(*line.split(), "--overwrite")
    assert done.exit_code == 2
    assert "mine.csv is what is read: choose another destination" in done.stderr
    assert (files / "mine.csv").read_text() == text


def test_json_that_is_kept_has_no_credentials() -> None:
    kept = json.loads(to_json({"data": "https://me:secret@host/a.csv", "n": 1}))
    assert kept == {"data": "https://***@host/a.csv", "n": 1}


def test_a_folder_that_is_no_model_is_refused_before_the_work(call: Any, files: Path) -> None:
    (files / "papers").mkdir()
    (files / "papers" / "thesis.txt").write_text("x")
    done = call("fit", "new.csv", "papers", "--overwrite")
    assert done.exit_code == 2
    assert "papers is no saved model" in done.stderr
    assert not (files / "papers.unfinished").exists()


def test_rows_held_out_of_a_file_are_not_known(call: Any, files: Path, model: Path) -> None:
    done = call("score", "fitted", "new.csv", "--held-out")
    assert done.exit_code == 2
    assert "--held-out needs the store" in done.stderr


def test_a_label_by_name_is_never_a_feature(call: Any, files: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 2] > 0).astype(int)
    np.savetxt(files / "whole.csv", np.c_[X, y], delimiter=",", header="a,b,c,target", comments="")
    short = np.c_[X[:, :2], y]
    np.savetxt(files / "short.csv", short, delimiter=",", header="a,b,target", comments="")
    line = "fit whole.csv known --method none --learner ridge -q"
    assert call(*line.split()).exit_code == 0
    done = call("predict", "known", "short.csv")
    assert done.exit_code == 2
    assert "column 'c' is missing from" in done.stderr


@pytest.mark.parametrize("command", ["predict", "score"])
def test_a_model_that_was_never_fitted(command: str, call: Any, files: Path) -> None:
    if not (files / "unfitted").exists():
        rf.save(rf.KernelClassifier(), files / "unfitted")
    done = call(command, "unfitted", "data.csv")
    assert done.exit_code == 2
    assert "the model was saved before it was fitted: fit it, and save it again" in done.stderr


def test_a_table_of_which_all_is_left_out(call: Any, files: Path) -> None:
    (files / "none.toml").write_text('columns = {a="drop", b="drop", c="drop", d="drop"}\n')
    done = call("ingest", "data.csv", "none.zarr", "--columns", "none.toml")
    assert done.exit_code == 2
    assert "data.csv has no column to learn from" in done.stderr
    (files / "one.toml").write_text('columns = {a="drop", b="drop", c="drop"}\n')  # the remedy
    done = call("ingest", "data.csv", "none.zarr", "--columns", "one.toml", "--json")
    assert done.exit_code == 0


@pytest.mark.parametrize("damaged", ["{}", '{"model": {}, "linear": 3}'])
def test_results_of_a_run_that_are_damaged_are_made_again(
    damaged: str, call: Any, files: Path
) -> None:
    few = ["--methods", "random", "--sizes", "10", "--epochs", "1", "--scheduler", "threads"]
    first = call("run", "data.csv", "--out", "damaged-run", "--overwrite", *few)
    assert first.exit_code == 0
    results = files / "damaged-run" / "results.json"
    results.write_text(damaged)
    again = ("run", "--resume", "--out", "damaged-run", "--scheduler", "threads")
    done = call(*again)
    assert done.exit_code == 2
    assert f"{results} is damaged" in done.stderr
    assert "remove it and call again" in done.stderr
    results.unlink()
    assert call(*again).stdout == first.stdout


def test_records_of_a_stranger_make_results_that_cannot_be_told(call: Any, files: Path) -> None:
    few = ["--methods", "random", "--sizes", "10", "--epochs", "1", "--scheduler", "threads"]
    begun = ("run", "data.csv", "--out", "strange-run", "--overwrite", *few)
    assert call(*begun).exit_code == 0
    folder = RunFolder(files / "strange-run")
    record = read_record(folder.phase(4, "linear"), folder.mark)
    record["product"]["accuracy"] = "high"
    write_record(folder.phase(4, "linear"), record, folder.mark)
    for _ in range(2):  # the results are made of the same records again
        folder.results.unlink()
        done = call("run", "--resume", "--out", "strange-run", "--scheduler", "threads")
        assert done.exit_code == 2
        assert f"{folder.results} is damaged" in done.stderr
    assert "or pass --overwrite instead of --resume to begin anew" in done.stderr
    assert call(*begun).exit_code == 0


@pytest.mark.parametrize(
    "about",
    [
        3,
        {"data": 3},
        *(
            {"data": {"columns": 4, "columns_in_file": 4} | strange}
            for strange in (
                {"column_names": 5},
                {"column_names": [1, 2, 3, 4]},
                {"column_names": {"a": 1}},
                {"label_name": 5},
                {"label_name": [1, 2]},
                {"projection": 5},
                {"projection": ["seed", "checksum"]},
            )
        ),
    ],
)
def test_notes_of_a_stranger_in_a_model(call: Any, tmp_path: Path, about: Any) -> None:
    """They ended in raw exceptions; the model itself says what it needs."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    rf.save(rf.Ridge().fit(X, X[:, 0]), tmp_path / "model", about=about)
    (tmp_path / "a.csv").write_text("a,b,c,d\n" + "1,2,3,4\n" * 3)
    for args in (["info", "model"], ["predict", "model", "a.csv", "p.csv"]):
        done = call(*args, cwd=tmp_path)
        assert done.exit_code == 0, done.stderr
