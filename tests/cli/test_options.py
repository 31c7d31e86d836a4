"""Options are named as parameters are, and old names say what to use."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.cli.options import RENAMED
from rfcdask.pipeline.report.sections import reproduce
from rfcdask.pipeline.settings import Settings, from_pairs
from tests.cli.test_examples import parse
from tests.pages import ROOT

CONTEXT = click.Context(main)
OWN = {"--json", "--quiet", "-q", "--debug", "--scheduler", "--threads", "--out", "--help", "-h"}
"""Options of the command line, which are no parameters."""
MORE = {
    "run": {"--resume", "--overwrite", "--config", "--set", "--tuned", "--ignore-plan"},
    "fit": {"--overwrite", "--config", "--set", "--tuned", "--ignore-plan"},
    "fetch": {"--list"},
    "tune": {"--overwrite", "--standardize", "--no-standardize"},
    "compare": {"--overwrite", "--standardize", "--no-standardize", "--plot"},
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "run": (Settings,),
    "fit": (Settings,),
    "ingest": (rf.ingest,),
    "fetch": (rf.fetch, rf.ingest),
    "synthesize": (rf.synthetic, rf.ingest),
    "plan": (rf.plan, rf.ingest),
    "tune": (rf.tune, rf.ingest),
    "compare": (rf.compare, rf.ingest),
}
USED = {
    "--candidates": "plan",
    "--components": "fit",
    "--drop-nan": "predict",
    "--from": "fetch",
    "--map": "fit",
    "--method": "compare",
    "--no-labels": "ingest",
    "--sample-rows": "tune",
    "--seed": "run",
    "--step": "plan",
    "--test-rows": "compare",
    "--train-rows": "compare",
}
"""A command that had each of the old options."""


def options(name: str) -> set[str]:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    found = [param for param in command.params if isinstance(param, click.Option)]
    return {name for option in found for name in (*option.opts, *option.secondary_opts)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_are_named_as_parameters(name: str) -> None:
    known = {p for function in FUNCTIONS[name] for p in inspect.signature(function).parameters}
    listed = options(name) - OWN - MORE.get(name, set()) - {"--list-settings", "--one-based"}
    named = {re.sub(r"^--(no-(?!probe))?", "", option).replace("-", "_") for option in listed}
    assert {re.sub("^no_", "", name) for name in named} - known == set()


@pytest.mark.parametrize("old", RENAMED)
def test_old_options_say_what_to_use(old: str, call: Any) -> None:
    done = call(USED[old], old, "5")
    assert done.exit_code == 2
    assert f"Error: {old} is called {RENAMED[old]} now." in done.stderr
    assert RENAMED[old].split()[0] in options(USED[old])
    assert old not in options(USED[old])


def test_old_options_are_listed_for_people() -> None:
    assert USED.keys() == RENAMED.keys()
    for page in ("CHANGELOG.md", "docs/command-line.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        table = dict(re.findall(r"^ *\| `(--[a-z-]+)` \| `(--[a-z -]+)` \|", text, re.M))
        assert {old: table.get(old) for old in RENAMED} == RENAMED, page


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("rfcdask run 'my data.csv'", Settings(label="late, or not", shuffle=False).to_dict()),
        ("rfcdask run", Settings(label=False, sizes=[5, 9], zero_based=False).to_dict()),
        ("rfcdask compare a.zarr", {"methods": ["jl", "giga"], "n_test": 5, "standardize": True}),
        ("rfcdask run", {"seed": 7, "epochs": 4}),  # as older versions called it
    ],
)
def test_the_command_of_a_report_can_be_typed(command: str, settings: dict[str, Any]) -> None:
    found = reproduce({"command": command, "seed": 7, "settings": settings})
    assert found is not None
    parsed = parse(found.blocks[0][1].replace("\\\n", " ")).params
    parsed |= from_pairs(parsed.get("pairs", ()))
    assert parsed["random_state"] == settings.get("random_state", 7)
    for name, value in settings.items():
        if name in parsed and value not in (None, "auto", False):
            assert parsed[name] == value, name
    assert parsed["no_label"] == (settings.get("label") is False)


def test_old_settings_say_what_to_use(call: Any) -> None:
    done = call("run", "--set", "seed=1")
    assert done.exit_code == 2
    assert "seed is called random_state now" in done.stderr


@pytest.mark.parametrize("line", ["run --epochs 0", "fit a b --kernel gauss", "run --sizes 1,2"])
def test_values_are_checked_at_once(line: str, call: Any, tmp_path: Path) -> None:
    done = call(*line.split(), cwd=tmp_path)
    assert done.exit_code == 2
    assert "cannot be used; it is" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_remedies_of_messages_can_be_typed(call: Any, files: Path, tmp_path: Path) -> None:
    """A message of the package says nan='drop' in Python, and the option here."""
    (tmp_path / "a.csv").write_text("a,b,target\n1,2,x\n,3,y\n4,5,x\n6,7,y\n")
    done = call("ingest", "a.csv", "a.zarr", "--nan", "raise", cwd=tmp_path)
    assert done.exit_code == 2
    assert "pass --nan drop to leave such rows out" in done.stderr
    assert call("ingest", "a.csv", "a.zarr", "--nan", "drop", cwd=tmp_path).exit_code == 0
    done = call("ingest", str(files / "new.csv"), "b.zarr", cwd=tmp_path)
    assert "pass --label with one of the columns" in done.stderr
    assert "or --no-label" in done.stderr
    done = call("ingest", str(files / "new.csv"), "b.zarr", "--no-label", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    "line", ["info ~/nothing", "predict a ~/nothing b.csv", "run --set=columns=~/nothing"]
)
def test_the_home_is_expanded_where_no_shell_does(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(tmp_path / "nothing") in CliRunner().invoke(main, line.split()).output
