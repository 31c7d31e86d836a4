from __future__ import annotations

import dask
import pytest

from rfcdask import progress
from rfcdask.progress import BarReporter, LineReporter, SilentReporter, track


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
        assert bar._bar is None
        clock.now += 2
        bar.note("slow")
        bar.advance()
        assert bar._bar.live.is_started
        task = bar._bar.tasks[0]
        assert (task.completed, task.total, task.fields["remark"]) == (2, 10, "slow")
    assert not bar._bar.live.is_started
    assert capsys.readouterr().out == ""


def test_a_bar_goes_away_after_an_error(clock: Clock) -> None:
    bars: list[BarReporter] = []

    def fail() -> None:
        with track("reading", None, progress=True) as bar:
            bars.append(bar)
            clock.now += 3
            bar.advance()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not bars[0]._bar.live.is_started


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
    monkeypatch.setattr(progress, "_somebody_watches", lambda: watched)
    settings = {} if setting is None else {"rfcdask.progress": setting}
    with dask.config.set(settings), track("work") as bar:
        assert isinstance(bar, kind)


def test_an_unknown_choice_is_refused() -> None:
    with (
        pytest.raises(ValueError, match=r"progress=.loud.*auto, plain, off"),
        track("work", progress="loud"),
    ):
        pass
