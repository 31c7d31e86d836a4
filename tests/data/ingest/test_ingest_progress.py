"""Progress is told while rows are read and written, and counts every row once."""

from __future__ import annotations

import doctest
import sys

import numpy as np
import pytest
from data_helpers import svmlight_text

import rfcdask as rf


class Recorder:
    def __init__(self) -> None:
        self.phases: dict[str, list[float]] = {}
        self.totals: dict[str, tuple[float | None, str]] = {}

    def __call__(self, phase, total, unit):
        self.totals[phase] = (total, unit)
        self.current = self.phases.setdefault(phase, [])
        return self

    def advance(self, amount=1):
        self.current.append(amount)

    def note(self, text):
        pass


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_row_is_counted_once(tmp_path, shuffle):
    X = np.random.default_rng(0).standard_normal((1000, 3))
    (tmp_path / "a.svm").write_bytes(svmlight_text(X, np.arange(1000) % 2))
    seen = Recorder()
    rf.ingest(
        tmp_path / "a.svm", tmp_path / "a.zarr", block_size=4000, shuffle=shuffle, progress=seen
    )
    assert sum(seen.phases["checking the text"]) == (tmp_path / "a.svm").stat().st_size
    phases = ["scattering rows", "writing rows"] if shuffle else ["writing rows"]
    for phase in phases:
        assert seen.totals[phase] == (1000, "rows")
        assert sum(seen.phases[phase]) == 1000
        assert len(seen.phases[phase]) > 4


def test_plain_lines_tell_rows_per_second_and_the_time_left(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rfcdask.execution.progress.QUIET_SECONDS", 0.0)
    X = np.random.default_rng(0).standard_normal((1000, 3))
    rf.ingest(X, tmp_path / "a.zarr", block_size=4000, progress="plain")
    assert "rows/s" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["rfcdask.data.ingest", "rfcdask.data.generators"])
def test_the_examples_run(module):
    # The package exports functions of the same names, so the modules are taken from the table.
    found = doctest.testmod(sys.modules[module])
    assert found.attempted > 0
    assert found.failed == 0
