"""The soak script: its look for growth, and a few of its runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.pages import ROOT, load_script

SCRIPT = ROOT / "workflows" / "reliability" / "soak.py"


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    return load_script("reliability/soak.py")


def test_growth_is_told_from_noise(soak: ModuleType) -> None:
    noise = np.random.default_rng(0).normal(scale=3, size=100)
    assert not soak.trend(list(300 + noise))["grows"]
    assert not soak.trend([5.0] * 100)["grows"]
    assert not soak.trend(list(300 + noise - np.arange(100)))["grows"]
    assert soak.trend(list(300 + noise + 0.2 * np.arange(100)))["grows"]
    assert soak.trend([float(number // 10) for number in range(100)])["grows"]


def test_one_bad_run_spoils_the_soak(soak: ModuleType) -> None:
    good = {"session": "0", "fault": "f", "errors": [], "usage": {"locks": 0}, "seconds": 1.0}
    runs = [good | {"run": number, "outcome": "same"} for number in range(6)]
    assert soak.is_good(soak.summary(runs))
    assert not soak.is_good(soak.summary([*runs, good | {"run": 6, "outcome": "wrong"}]))
    raw = good | {"run": 6, "outcome": "same", "errors": ["distributed.client.Cancelled: x"]}
    assert not soak.is_good(soak.summary([*runs, raw]))
    grown = [good | {"run": n, "outcome": "same", "usage": {"locks": n}} for n in range(6)]
    later = [good | {"run": n, "outcome": "same", "session": "1"} for n in (6, 7)]
    assert not soak.is_good(soak.summary([*grown, *later]))  # the longest session is judged
    hung = good | {"run": 6, "outcome": "hung", "usage": None}
    assert not soak.is_good(soak.summary([*runs, hung]))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_few_runs_and_some_more(tmp_path: Path) -> None:
    out = tmp_path / "soak.jsonl"
    for runs in (3, 4):
        command = [sys.executable, str(SCRIPT), "--runs", str(runs), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert [record["run"] for record in records] == list(range(runs)), done.stderr
        assert {record["outcome"] for record in records} == {"same"}, done.stderr
        assert f"{runs} runs: " in done.stdout
    assert len({record["session"] for record in records}) == 2
