"""Options that would count for nothing, wrong ones that would block the right ones after them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import FIT, make_rows, write_csv

RUN = ("--scheduler", "threads", "--sizes", "6", "--n-candidates", "60", "--n-rows", "150", "-q")
QUICK = (*RUN, "--refine", "2", "--methods", "random", "--method", "random")


@pytest.mark.parametrize("option", ["--project=2", "--task=regression", "--no-shuffle"])
@pytest.mark.parametrize("command", ["fit", "run"])
def test_store_is_not_written_anew(call: Any, store: Path, command: str, option: str) -> None:
    where = ["ignored"] if command == "fit" else ["--out", "ignored"]
    done = call(command, "store.zarr", *where, option)
    assert done.exit_code == 2
    assert "tells how to read a file, but store.zarr is a store" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "data.csv", "--rows", "100"), "--rows is for data that are made"),
        (("run", "--label", "target"), "--label tells how to read a file: give PATH"),
        (("run", "store.zarr", "--test-size", "none"), "test_size=none leaves no rows"),
        (("fit", "store.zarr", "x", "--alpha", "1", "--C", "1"), "C and alpha both"),
        (("fit", "store.zarr", "x", "--learner", "ridge", "--C", "1"), "give alpha"),
        (("fit", "store.zarr", "x", "--learner", "svm", "--loss", "hinge"), "is for learner=sgd"),
        (("fit", "store.zarr", "x", "--loss", "huber", *FIT), "use hinge, log_loss, squared_hinge"),
        (("fit", "store.zarr", "x", "--n-candidates", "99"), "pass --method compressed"),
        (("fit", "store.zarr", "x", "--set", "n_rows=99"), "--n-rows is for features that are"),
        (("fit", "store.zarr", "x", "--refine", "0"), "pass --method compressed"),
        (("fit", "store.zarr", "x", "--gamma", "median"), "is a rule for features that are"),
        (
            ("fit", "new.csv", "x", "--no-label", "--learner=none", "--method=compressed-labels"),
            "pass --method compressed for",
        ),
    ],
)
def test_options_for_nothing_are_refused(
    call: Any, files: Path, store: Path, args: tuple[str, ...], words: str
) -> None:
    more = ("--out", "nothing", "--scheduler", "threads") if args[0] == "run" else ()
    done = call(*args, *more)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not any((files / "nothing").glob("*"))
    assert not (files / "x.unfinished").exists()


def test_delimiter_may_be_a_tab(call: Any, files: Path, tmp_path: Path) -> None:
    lines = [f"{i}\t{i + 1};0\t{i % 2}" for i in range(30)]
    (tmp_path / "tab.csv").write_text("\n".join(["a\tb;c\ttarget", *lines]).replace(";0", ""))
    done = call("ingest", "tab.csv", "t.zarr", "--delimiter", "\t", "--json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["column_names"] == ["a", "b;c"]
    done = call("ingest", "tab.csv", "u.zarr", "--delimiter", " ", cwd=tmp_path)
    assert done.exit_code == 2


def test_none_counts_more_than_tuning(call: Any, files: Path, store: Path, tmp_path: Path) -> None:
    tuned = {"kernel": "rbf", "gamma": 0.1, "C": 5.0, "label_weight": None, "standardize": True}
    (tmp_path / "tune.json").write_text(json.dumps(tuned))
    for options, alpha in (
        (("--C", "none"), "auto"),
        (("--learner", "ridge"), 1.0),
        (("--alpha", "0.5"), 0.5),
        ((), 1 / (5 * 600)),
    ):
        place = str(tmp_path / "model")
        done = call(
            *("fit", "store.zarr", place, "--tuned", str(tmp_path / "tune.json"), "--overwrite"),
            *("--method", "none", "-q", *options),
        )
        assert done.exit_code == 0, done.stderr
        shown = json.loads(call("info", place, "--json").stdout)
        assert shown["steps"]["learner"]["parameters"]["alpha"] == alpha


@pytest.mark.parametrize(
    "wrong",
    [
        ("--learner", "logistic"),
        ("--test-size", "90"),
        ("--class-weight", "balanced"),
        ("--loss", "hinge"),
        ("--method", "compressed", "--n-candidates", "5"),
    ],
)
def test_wrong_fit_does_not_block_the_right_one(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, ...]
) -> None:
    X = make_rows(90, 0)[0]
    write_csv(tmp_path / "numbers.csv", X, X[:, 0] / 3)
    fit = ("fit", "numbers.csv", "m", *FIT, "--label", "target")
    assert call(*fit, *wrong, cwd=tmp_path).exit_code == 2
    from rfcdask.data.ingest import blocks

    def again(*_: Any) -> None:
        raise AssertionError("the rows were written already")

    monkeypatch.setattr(blocks.WriteBlock, "__call__", again)
    done = call(*fit, cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert not (tmp_path / "m.unfinished").exists()


def test_fit_reads_anew_what_is_read_otherwise(call: Any, tmp_path: Path) -> None:
    X = make_rows(90, 0)[0]
    write_csv(tmp_path / "numbers.csv", X, X[:, 0] / 3)
    fit = ("fit", "numbers.csv", "m", *FIT, "--json")
    wrong = ("--label", "target", "--class-weight", "balanced")
    assert call(*fit, *wrong, cwd=tmp_path).exit_code == 2
    done = call(*fit, "--label", "a", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    shown = json.loads(call("info", "m", "--json", cwd=tmp_path).stdout)
    assert shown["about"]["data"]["label_name"] == "a"


def test_folder_of_a_fit_that_is_not_ours_is_kept(call: Any, store: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "m.unfinished"
    theirs.mkdir()
    (theirs / "report.html").write_text("thesis")
    done = call("fit", str(store), "m", *FIT, cwd=tmp_path)
    assert done.exit_code == 2
    assert (theirs / "report.html").read_text() == "thesis"


def test_wrong_run_does_not_block_the_right_one(call: Any, files: Path, tmp_path: Path) -> None:
    run = ("run", str(files / "data.csv"), "--out", "r", *QUICK)
    assert call(*run, "--label", "nothing", cwd=tmp_path).exit_code == 2
    done = call(*run, "--label", "target", "--methods", "giga", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    again = call(*run, "--label", "target", "--methods", "giga", "--resume", cwd=tmp_path)
    assert again.exit_code == 0, again.stderr
    other = call(*run, "--label", "target", "--resume", cwd=tmp_path)
    assert other.exit_code == 2
    assert "methods=random,giga, not random" in other.stderr


def test_few_rows_cannot_be_held_out(call: Any, tmp_path: Path) -> None:
    X = make_rows(4, 0)[0]
    write_csv(tmp_path / "few.csv", X, np.array(["a", "b", "a", "b"]))
    done = call("fit", "few.csv", "m", "--label", "target", "--test-size", "auto", cwd=tmp_path)
    assert done.exit_code == 2
    assert "test_size=auto holds out none of 4 rows" in done.stderr


def test_chosen_features_take_what_learned_ones_refuse(call: Any, files: Path, store: Path) -> None:
    few = ("--n-components", "5", "--n-candidates", "50", "--n-rows", "99", "--refine", "0")
    done = call("fit", "store.zarr", "chosen", *few, "--gamma", "median", "--method", "compressed")
    assert done.exit_code == 0, done.stderr
