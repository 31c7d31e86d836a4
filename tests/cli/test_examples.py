"""Every example in every ``--help`` is executed, in the order of the workflow.

Together they are the good call of each command.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shlex
import subprocess
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import rfcdask as rf
from rfcdask.cli import main
from tests.cli.conftest import make_rows
from tests.programs import run_cli, user_environment

ORDER = ["ingest", "synthesize", "tune", "plan", "fit", "info", "transform", "predict", "score"]
ORDER += ["compare", "report", "fetch"]
CONTEXT = click.Context(main)
NEEDS_THE_NET = ("rfcdask fetch covtype", "rfcdask fetch adult")


def examples(name: str) -> list[str]:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    return re.findall(r"^ +(rfcdask .*)$", command.help or "", re.M)


def parse(line: str) -> click.Context:
    """Parse a command line, without doing what it says."""
    words = shlex.split(line.partition("|")[0])
    assert words[0] == "rfcdask"
    command = main.get_command(CONTEXT, words[1])
    assert command is not None, line
    return command.make_context(words[1], words[2:])


def test_the_order_names_every_command() -> None:
    assert sorted([*ORDER, "run"]) == sorted(main.list_commands(CONTEXT))


@pytest.mark.parametrize("name", ORDER)
def test_examples_can_be_parsed(name: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    wanted = dict.fromkeys(("kernel", "gamma", "C", "label_weight", "standardize"))
    (files / "tune.json").write_text(json.dumps(wanted))  # read while parsing
    lines = examples(name)
    assert lines
    for line in lines:
        parse(line)
    (files / "tune.json").unlink()


@pytest.fixture(scope="module")
def folder(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples are executed, one after the other."""
    place = tmp_path_factory.mktemp("examples")
    for name in ("data.csv", "part-1.csv", "part-2.csv", "new.csv", "test.csv"):
        (place / name).write_bytes((files / name).read_bytes())
    return place


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What each example printed."""
    return {}


@pytest.mark.parametrize("name", ORDER)
def test_examples_run(name: str, folder: Path, said: dict[str, str]) -> None:
    for line in examples(name):
        if line.startswith(NEEDS_THE_NET):
            continue
        said[line] = run_shell(line, folder) if "|" in line else run_here(line, folder)
        if "--json" in line:
            json.loads(said[line])
    assert not list(folder.glob("*.unfinished"))


def run_here(line: str, folder: Path) -> str:
    """Run a command within this process, which spares the imports of another one."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(main, shlex.split(line)[1:])
    assert done.exit_code == 0, f"{line}\n{done.stderr}"
    return done.stdout


def run_shell(line: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=user_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_stores_are_right(folder: Path) -> None:
    X, y = make_rows(600, 0)
    data = rf.open_dataset(folder / "data.zarr")
    assert data.y is not None
    np.testing.assert_allclose(data.X.compute(), X, rtol=1e-4)
    assert data.y.compute().tolist() == y.tolist()
    both = rf.open_dataset(folder / "all.zarr")
    assert sorted(both.X[:, 0].compute()) == sorted(data.X[:, 0].compute())
    assert both.X[:, 0].compute().tolist() != data.X[:, 0].compute().tolist()
    assert rf.open_dataset(folder / "higgs.zarr").shape == (20_000, 28)
    assert rf.open_dataset(folder / "criteo.zarr").shape == (20_000, 50)
    features = rf.open_dataset(folder / "features.zarr")
    assert features.shape == (600, 50)
    pipeline = rf.load(folder / "model")
    np.testing.assert_allclose(
        features.X.compute(),
        pipeline[-1].features_.transform(pipeline[:-1].transform(data.X.compute())),
        rtol=1e-6,
        atol=1e-7,
    )


def test_the_models_are_right(said: dict[str, str], folder: Path) -> None:
    test, truth = make_rows(200, 1)
    pipeline = rf.load(folder / "model")
    with open(folder / "predicted.csv", newline="") as file:
        header, *rows = csv.reader(file)
    predicted = [row[0] for row in rows]
    assert header == ["predicted"]
    assert predicted == pipeline.predict(np.round(test, 6)).tolist()
    accuracy = np.mean(np.array(predicted) == truth)
    assert accuracy > 0.85  # no linear model gets above the share of the larger class
    shown = re.match(r"accuracy (\S+) on 200 rows\n", said["rfcdask score model test.csv"])
    assert shown is not None
    assert float(shown[1]) == pytest.approx(accuracy, abs=1e-4)
    counted = said["rfcdask predict model data.zarr --quiet | sort | uniq -c"]
    assert sum(int(line.split()[0]) for line in counted.splitlines()) == 601
    assert b"<html" in (folder / "report.html").read_bytes()
    tuned = json.loads((folder / "tune.json").read_text())
    assert rf.load(folder / "model3").named_steps["features"].gamma == tuned["gamma"]


def test_fetch_takes_a_file_that_is_here(shared_data: Path, tmp_path: Path) -> None:
    with np.load(shared_data / "datasets" / "a9a.npz") as data:
        X, y = data["X_train"], data["y_train"]
    with open(tmp_path / "a9a.txt", "w") as file:
        for row, label in zip(X, y, strict=True):
            pairs = " ".join(f"{i + 1}:{row[i]:g}" for i in np.flatnonzero(row))
            print(f"{'+1' if label > 0 else '-1'} {pairs}", file=file)
    line = next(line for line in examples("fetch") if "--source" in line)
    done = run_cli(*shlex.split(line)[1:], "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 32561
