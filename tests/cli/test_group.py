"""The group itself: fast, lazy, and of good help."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import rfcdask
from rfcdask.cli import EXIT_CODES, SECTIONS, main, reported, rfc
from tests.programs import run_cli, user_environment

HEAVY = ("numba", "sklearn", "scipy", "zarr", "dask.array", "distributed", "pandas", "numpy")
NAMES = [name for name in main.list_commands(click.Context(main)) if name != "run"]


def imported(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement],
        capture_output=True,
        text=True,
        check=True,
        env=user_environment(),
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.parametrize("statement", ["import rfcdask.cli", "import rfcdask"])
def test_importing_the_entry_point_loads_nothing_heavy(statement: str) -> None:
    loaded = imported(statement)
    assert "rfcdask" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_importing_the_commands_loads_nothing_heavy() -> None:
    files = {file for section in SECTIONS.values() for file, _ in section.values()}
    loaded = imported(f"import {', '.join(f'rfcdask.cli.{file}' for file in files)}")
    assert "rfcdask.cli.run" in loaded
    assert loaded.isdisjoint({*HEAVY, "dask"})


def test_ingest_of_text_loads_no_learning_and_no_frames(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:2 3:4\n0 2:1\n" * 50)
    call = ["ingest", str(tmp_path / "a.svm"), str(tmp_path / "a.zarr"), "--quiet"]
    loaded = imported(f"from rfcdask.cli import main; main({call}, standalone_mode=False)")
    assert "zarr" in loaded
    # 100 MB that rows would have to share
    assert loaded.isdisjoint({"sklearn", "scipy.stats", "pandas", "pyarrow", "matplotlib"})


def test_workers_read_train_and_score_without_scikit_learn() -> None:
    run_there = ("data", "features.lazy", "linear.kernel.stream", "linear.rows", "linear.write")
    training = ("linear.moments", "linear.sgd.training")
    loaded = imported("import " + ", ".join(f"rfcdask.{name}" for name in run_there + training))
    assert "rfcdask.linear.kernel.gradient" in loaded
    assert loaded.isdisjoint({"sklearn", "scipy.stats", "pandas", "matplotlib"})


def test_public_names_come_when_they_are_used() -> None:
    script = """
import sys, rfcdask as rf
assert "sklearn" not in sys.modules
from rfcdask import compare, plan, tune
assert compare is rf.compare and callable(plan) and callable(tune)
assert rf.kernels.__name__ == "rfcdask.kernels"
assert set(rf.__all__) <= set(dir(rf))
for name in rf.__all__:
    getattr(rf, name)
namespace = {}
exec("from rfcdask import *", namespace)
assert set(rf.__all__) <= set(namespace)
try:
    rf.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=user_environment())


def test_type_checkers_and_python_see_the_same_names() -> None:
    tree = ast.parse(Path(str(rfcdask.__file__)).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (line.module, name.name)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for name in line.names
    }
    assert typed == {(module, name) for name, module in rfcdask._HOME.items()}
    assert {name for _, name in typed} | {"__version__"} == set(rfcdask.__all__)


def test_help_lists_every_command_and_exit_code(tmp_path: Path) -> None:
    done = run_cli("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for name in [*NAMES, "run"]:
        assert re.search(rf"^  {name} ", done.stdout, re.M), name
    for code in EXIT_CODES:
        assert re.search(rf"^  {code} ", done.stdout, re.M), code
    assert "_RFCDASK_COMPLETE" in done.stdout


def test_dask_knows_the_group(tmp_path: Path) -> None:
    done = run_cli("rfc", "--help", cwd=tmp_path, script="dask")
    assert done.returncode == 0, done.stderr
    assert "Usage: dask rfc" in done.stdout
    assert "ingest" in done.stdout
    listed = run_cli("--help", cwd=tmp_path, script="dask")
    assert re.search(r"^  rfc ", listed.stdout, re.M)
    bad = run_cli("rfc", "info", "nowhere.zarr", cwd=tmp_path, script="dask")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("Error: nowhere.zarr does not exist")


def test_python_dash_m_and_version(tmp_path: Path) -> None:
    done = run_cli("-m", "rfcdask", "--version", cwd=tmp_path, script="python")
    assert done.stdout == f"rfcdask {rfcdask.__version__}\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("infos",), "Did you mean 'info'?"),
        (("fit",), "Missing argument 'DATA'"),
        (
            ("fit", "x.zarr", "m", "--method", "bset"),
            "method=bset cannot be used; it is one of",
        ),
        (
            ("fit", "x.zarr", "m", "--gamma", "-1"),
            "gamma=-1 cannot be used; it is a number",
        ),
        (("predict", "m", "x.zarr", "out.txt"), "must end in .csv, .npy, .zarr"),
        (("fetch",), "--list shows them"),
        (("ingest", "only-one.csv"), "Missing argument 'SOURCE...'"),
        (("synthesize", "mnist", "x.zarr"), "'mnist' is not one of"),
        (("compare", "x.zarr", "--plot", "x.gif"), "must end in .png"),
        (("fit", "x.zarr", "m", "--method", "none", "--learner", "none"), "nothing to fit"),
        (
            ("fit", "x.zarr", "m", "--method", "jl", "--label-weight", "1"),
            "--method compressed-labels",
        ),
        (("fit", "x.zarr", "m", "--tuned", "nowhere.json"), "No such file"),
    ],
)
def test_bad_usage_is_told_without_starting_anything(
    args: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = run_cli(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_both_groups_are_the_same() -> None:
    context = click.Context(main)
    assert (main.name, rfc.name) == ("rfcdask", "rfc")
    assert main.list_commands(context) == rfc.list_commands(context)


@pytest.mark.parametrize("name", NAMES)
def test_the_list_and_the_help_agree(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert "Example" in (command.help or "")
    undescribed = [
        option.opts
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert undescribed == []


def test_numba_finds_a_place_where_nothing_may_be_written() -> None:
    code = (
        "import os; os.environ.pop('NUMBA_CACHE_DIR', None); os.access = lambda *a, **k: False\n"
        "import rfcdask as rf, numpy as np\n"
        "place = os.environ['NUMBA_CACHE_DIR']\n"
        "rf.RandomFeatures(2, random_state=0).fit_transform(np.eye(3))\n"
        "print(len(os.listdir(place)) > 0, place)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, place = done.stdout.split()
    assert found == "True"
    assert not Path(place).exists()  # and it is gone with the process


@pytest.mark.parametrize("debug", [False, True])
def test_dask_logs_no_traceback_of_a_lost_scheduler(
    debug: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = click.Context(main)
    ctx.meta["rfcdask.debug"] = debug
    log = logging.getLogger("distributed.client")
    monkeypatch.setattr(log, "handlers", [caplog.handler])
    monkeypatch.setattr(log, "propagate", False)  # as in older versions
    with reported(ctx):
        for error in (asyncio.CancelledError(), ConnectionError("gone"), ValueError("other")):
            log.error("failed", exc_info=error)
    found = [record.exc_info[0] for record in caplog.records if record.exc_info]
    lost = [asyncio.CancelledError, ConnectionError] if debug else []
    assert found == [*lost, ValueError]
