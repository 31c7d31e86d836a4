"""What docs/command-line.md prints is executed or, where that needs other software, parsed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import click
import pytest

from rfcdask.cli import EXIT_CODES, main
from tests.cli.test_examples import parse
from tests.programs import user_environment

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
TEXT = PAGE.read_text(encoding="utf-8")


def block(marker: str, language: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```{language}\n(.*?)^```", TEXT, re.M | re.S)
    assert found is not None
    return found[1]


def take(files: Path, folder: Path) -> None:
    for name in ("data.csv", "new.csv", "test.csv"):
        shutil.copy(files / name, folder / name)


def test_the_steps_can_be_parsed() -> None:
    lines = block("steps", "bash").splitlines()
    assert len(lines) > 3
    for line in lines:
        parse(line)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_makefile_makes_everything_once(files: Path, tmp_path: Path) -> None:
    take(files, tmp_path)
    (tmp_path / "Makefile").write_text(block("makefile", "make"))
    make(tmp_path)
    assert b"<html" in (tmp_path / "report.html").read_bytes()
    assert '"accuracy"' in (tmp_path / "score.json").read_text()
    assert "Nothing to be done" in make(tmp_path)
    later = time.time() + 5
    os.utime(tmp_path / "new.csv", (later, later))
    again = make(tmp_path, "--dry-run")
    assert re.findall(r"rfcdask (\w+)", again) == ["predict"]


def make(folder: Path, *args: str) -> str:
    done = subprocess.run(
        ["make", *args],
        cwd=folder,
        env=user_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_snakemakes_commands_can_be_parsed() -> None:
    lines = re.findall(r'shell: "(rfcdask .*)"', TEXT)
    assert len(lines) == 5
    for line in lines:
        filled = re.sub(r"\{threads\}", "4", re.sub(r"\{(?!threads)[\w.]+\}", "x.csv", line))
        parse(filled)


def test_every_command_and_exit_code_is_listed() -> None:
    for name in main.list_commands(click.Context(main)):
        assert re.search(rf"^\| `{name}[ `]", TEXT, re.M), name
    for code in (*EXIT_CODES, 129, 141, 143):
        assert re.search(rf"^\| {code} \|", TEXT, re.M), code
