"""The meter sees what this process and its children hold; phases give back what they freed."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from rfcdask.pipeline import phases
from rfcdask.pipeline.phases import MemoryMeter, _give_back

HOLD = "import time; held = bytearray(b'x') * (150 * 2**20); print('here', flush=True); input()"


def test_memory_that_was_given_back_counts_once() -> None:
    with MemoryMeter() as meter:
        before = meter.lap()
        held = np.ones(20 * 2**20)
        time.sleep(0.4)
        del held
        during, after = meter.lap(), meter.lap()
    assert during - before > 140 * 2**20
    assert during - after > 140 * 2**20


def test_children_count_too() -> None:
    with MemoryMeter() as meter:
        before = meter.lap()
        child = subprocess.Popen(
            [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        during = meter.lap()
        child.communicate("\n")
    assert during - before > 150 * 2**20


def test_memory_is_given_back_here_and_on_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cluster:
        _run = "run"

        def sync(self, function: Any, *args: Any, **options: Any) -> dict[str, Any]:
            assert function == "run"
            args[0]()
            raise OSError("it is gone: not what giving back memory has to say")

    asked: list[int] = []
    monkeypatch.setattr(phases, "release_memory", lambda: asked.append(1))
    _give_back(None)
    assert len(asked) == 1
    _give_back(Cluster())
    assert len(asked) == 3
