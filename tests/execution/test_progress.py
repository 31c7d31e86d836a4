from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Any

import dask
import pytest
from jupyter_client.manager import start_new_kernel

import rfcdask as rf
from rfcdask.cli.files import note
from rfcdask.execution import progress
from rfcdask.execution.progress import (
    SCREEN,
    BarReporter,
    LineReporter,
    SilentReporter,
    dashboard_link,
    track,
)


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_plain_lines(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with track("reading", 1000, "rows", progress="plain") as bar:
        clock.now += 1
        bar.advance(100)
        assert capsys.readouterr().err == ""  # nothing in the first two seconds
        clock.now += 1
        bar.note("block 3")
        bar.advance(100)
        first = "reading: 200 of 1,000 rows, 100.0 rows/s, 8 s left (block 3)\n"
        assert capsys.readouterr().err == first
        clock.now += 2
        bar.advance(100)
        assert capsys.readouterr().err == ""  # at most a line every five seconds
        clock.now += 4
        bar.note("")
        bar.advance(100)
        assert capsys.readouterr().err == "reading: 400 of 1,000 rows, 50.0 rows/s, 12 s left\n"


def test_plain_lines_without_a_total(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with track("steps", progress="plain") as bar:
        clock.now += 4
        bar.advance(8)
    assert capsys.readouterr().err == "steps: 8 steps, 2.0 steps/s\n"


def test_ones_own_reporter() -> None:
    told: list[object] = []

    class Mine:
        def __init__(self, *about: object) -> None:
            told.append(about)

        def advance(self, amount: float = 1) -> None:
            told.append(amount)

        def note(self, text: str) -> None:
            told.append(text)

    with track("selecting", 5, "features", progress=Mine) as bar:
        bar.advance()
        bar.note("half")
        bar.advance(4)
    assert told == [("selecting", 5, "features"), 1, "half", 4]


@pytest.mark.parametrize("choice", [False, "off"])
def test_off_shows_nothing(
    choice: object, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with track("reading", 10, progress=choice) as bar:
        clock.now += 60
        bar.advance(10)
        bar.note("done")
    assert isinstance(bar, SilentReporter)
    assert capsys.readouterr() == ("", "")


def test_a_bar_appears_after_two_seconds_and_goes_away(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with track("reading", 10, "rows", progress=True) as bar:
        assert isinstance(bar, BarReporter)
        clock.now += 1
        bar.advance()
        assert not SCREEN.bars
        clock.now += 2
        bar.note("slow")
        bar.advance()
        (task,) = SCREEN.bars
        assert (task.completed, task.total, task.fields["remark"]) == (2, 10, "slow")
        assert task.fields["speed"] == "0.7 rows/s"
    assert not SCREEN.bars
    assert capsys.readouterr().out == ""


def test_a_bar_goes_away_after_an_error(clock: Clock) -> None:
    def fail() -> None:
        with track("reading", None, progress=True) as bar:
            clock.now += 3
            bar.advance()
            assert len(SCREEN.bars) == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not SCREEN.bars


@pytest.mark.parametrize(
    ("setting", "watched", "kind"),
    [
        ("plain", False, LineReporter),
        ("off", True, SilentReporter),
        ("auto", False, SilentReporter),
        ("auto", True, BarReporter),
        (None, False, SilentReporter),
    ],
)
def test_the_configuration_decides(
    setting: str | None, watched: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rfcdask.execution.progress._somebody_watches", lambda: watched)
    settings = {} if setting is None else {"rfcdask.progress": setting}
    with dask.config.set(settings), track("work") as bar:
        assert isinstance(bar, kind)


def test_an_unknown_choice_is_refused() -> None:
    with (
        pytest.raises(ValueError, match=r"progress=.loud.*auto, plain, off"),
        track("work", progress="loud"),
    ):
        pass


def test_phases_within_phases_share_the_screen(clock: Clock) -> None:
    with track("comparing", 2, "maps", progress=True) as outer:
        clock.now += 3
        outer.note("random [bold]")  # brackets are text, not markup
        with track("training", 10, "rows", progress=True) as inner:
            clock.now += 3
            inner.advance(5)
            assert [task.description for task in SCREEN.bars] == ["comparing", "training"]
        outer.advance()
        assert [task.completed for task in SCREEN.bars] == [1]
    assert not SCREEN.bars


def test_a_phase_that_says_nothing_is_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rfcdask.execution.progress.QUIET_SECONDS", 0.01)
    with track("gathering", None, progress=True):
        deadline = time.monotonic() + 30
        while not SCREEN.bars and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [task.description for task in SCREEN.bars] == ["gathering"]
    assert not SCREEN.bars


def test_the_dashboard_is_named_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with rf.connect(n_workers=1, threads_per_worker=1) as client:
        for bokeh, link in ((object(), client.dashboard_link), (None, "")):
            monkeypatch.setattr("importlib.util.find_spec", lambda name, bokeh=bokeh: bokeh)
            assert dashboard_link() == link
    assert dashboard_link() == ""


NOTEBOOK = """
from rfcdask.execution import progress
from rfcdask.execution.progress import track
progress.QUIET_SECONDS = 0
with track("training <b>", 10, "rows") as outer:
    with track("inner", None, "rows") as inner:
        inner.advance()
    outer.note("epoch <script>")
    outer.advance(10)
"""


def test_bars_in_a_real_notebook_kernel() -> None:
    manager, client = start_new_kernel()
    shown: dict[str, str] = {}

    def listen(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown[content["transient"]["display_id"]] = content["data"]["text/html"]

    try:
        reply = client.execute_interactive(NOTEBOOK, output_hook=listen, timeout=120)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["content"]["status"] == "ok", reply["content"]
    inner, outer = sorted(shown.values())
    assert inner == ""  # inner bars give their place free
    assert "<code>training &lt;b&gt;</code>" in outer
    assert 'value="10" max="10"' in outer
    assert "epoch &lt;script&gt;" in outer


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_lines_that_nobody_can_read_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
    monkeypatch.setattr(sys, "stderr", full)
    with pytest.raises(OSError, match="No space"):
        full.write("x\n")
    LineReporter("reading", 2, "rows").advance(1)
    note("a remark")
