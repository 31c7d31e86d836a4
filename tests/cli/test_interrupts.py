"""Killed, interrupted, terminated, no longer read: what is there is whole, and the rest goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from distributed import Client, LocalCluster

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.cli.files import whole_file
from tests.programs import run_cli, start_cli, user_environment

FIT = ("fit", "many.zarr", "model", "--method", "random", "--n-components", "40", "--epochs")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of many small blocks."""
    folder = tmp_path_factory.mktemp("many")
    X = np.random.default_rng(0).normal(size=(12_000, 5)).astype("float32")
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "opposite")
    rf.ingest((X, y), folder / "many.zarr", block_size=600 * 20)
    return folder


def stop_when(process: subprocess.Popen[str], there: Any, how: signal.Signals) -> tuple[str, str]:
    """Send a signal once something is there; fail if the process ends before."""
    deadline = time.monotonic() + 120
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    return process.communicate(timeout=60)


def coefficients(path: Path) -> Any:
    return rf.load(path).named_steps["learner"].coef_


def call_here(*args: str) -> Result:
    """Call a command on the threads of this process."""
    return CliRunner().invoke(main, [*args, "--scheduler", "threads"])


def test_a_fit_goes_on_whatever_stopped_it(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(many)
    whole = call_here(*FIT[:2], "undisturbed", *FIT[3:], "40", "-q")
    assert whole.exit_code == 0, whole.stderr
    checkpoint = many / "model.unfinished" / "training.npz"

    first = start_cli(*FIT, "40", "-q", cwd=many)
    stop_when(first, checkpoint.exists, signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    assert not (many / "model").exists()

    unfinished = call_here("predict", "model", "many.zarr")
    assert unfinished.exit_code == 4
    assert "goes on where it stopped" in unfinished.stderr
    other = call_here(*FIT, "7")
    assert other.exit_code == 2
    assert "was begun with epochs=40, not 7: give the same to go on" in other.stderr

    at = checkpoint.stat().st_mtime_ns
    second = start_cli(*FIT, "40", cwd=many)
    _, said = stop_when(second, lambda: checkpoint.stat().st_mtime_ns > at, signal.SIGINT)
    assert second.returncode == 130
    assert f"Going on with {many / 'model.unfinished'}." in said
    assert "choosing features: done before" in said
    assert said.splitlines()[-1].startswith("Interrupted: call the same command again to go on")
    assert "Traceback" not in said

    last = run_cli(*FIT, "40", "-q", cwd=many)
    assert last.returncode == 0, last.stderr
    np.testing.assert_array_equal(coefficients(many / "model"), coefficients(many / "undisturbed"))
    assert not (many / "model.unfinished").exists()


def test_a_terminated_ingest_is_resumed_and_never_seen_half(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(many)
    rows = np.random.default_rng(1).normal(size=(40_000, 8))
    np.save(many / "rows.npy", rows)
    args = ("ingest", "rows.npy", "half.zarr", "--block-size", "6400")
    work = many / "half.zarr.unfinished"
    process = start_cli(*args, cwd=many)
    _, said = stop_when(process, lambda: len(list(work.glob("X/c/*"))) > 40, signal.SIGTERM)
    assert process.returncode == 143
    assert "half.zarr.unfinished keeps what is done" in said.splitlines()[-1]
    assert not (many / "half.zarr").exists()
    seen = CliRunner().invoke(main, ["info", "half.zarr"])
    assert (seen.exit_code, seen.stdout) == (4, "")
    fitted = call_here("fit", "half.zarr", "m")
    assert (fitted.exit_code, fitted.stdout) == (4, "")
    before = times(work)
    done = call_here(*args, "-q")
    assert done.exit_code == 0, done.stderr
    assert not work.exists()
    np.testing.assert_array_equal(rf.open_dataset(many / "half.zarr").X.compute(), rows)
    kept = before.items() & times(many / "half.zarr").items()
    assert len(kept) > 20  # all but those that were being written


def times(store: Path) -> dict[str, int]:
    """Return when each block was written."""
    blocks = store.glob("X/c/*/0")
    return {str(path.relative_to(store)): path.stat().st_mtime_ns for path in blocks}


def piped(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run two commands in a pipe, and print the exit code of the first after what the last does."""
    return subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"],
        cwd=folder,
        env=user_environment(),
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_store_that_is_whole_is_not_to_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rfcdask.cli.stores.show_store", interrupted)
    Path("rows.csv").write_text("a,label\n1,0\n2,1\n3,1\n")
    result = call_here("ingest", "rows.csv", "rows.zarr", "--label", "label")
    assert result.exit_code == 130
    assert "Interrupted; rows.zarr is whole." in result.stderr
    assert "again" not in result.stderr


def test_a_reader_that_goes_away_is_no_error(many: Path) -> None:
    rf.save(
        rf.RidgeClassifier().fit(np.eye(5, dtype="float32"), ["a", "b", "a", "b", "a"]),
        many / "ridge",
    )
    done = piped("rfcdask predict ridge many.zarr -q | head -n 2", many)
    lines = done.stdout.splitlines()
    assert lines[0] == "predicted"
    assert lines[1] in ("a", "b")
    assert lines[2] == "141"
    assert done.stderr == ""


def test_a_reader_of_the_help_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """What is longer than the buffer of stdout is written past it: a flush finds nothing amiss."""
    done = piped("rfcdask run --help | true", tmp_path)
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.parametrize("ending", [">&-", "<&- >&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(many: Path, ending: str) -> None:
    """Nothing is read by anybody, and no file that is written takes the number of a closed one."""
    dest = f"closed{len(ending)}.zarr"
    done = subprocess.run(
        ["bash", "-c", f"rfcdask ingest many.zarr {dest} {ending}"],
        cwd=many,
        env=user_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert done.stdout == ""
    wanted, written = rf.open_dataset(many / "many.zarr"), rf.open_dataset(many / dest)
    np.testing.assert_array_equal(written.X.compute(), wanted.X.compute())


@pytest.mark.parametrize(
    ("command", "hint"),
    [("run", "To go on: rfcdask run --resume --out"), ("fit", "Call the same command again")],
)
def test_a_lost_scheduler_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, hint: str
) -> None:
    """Dask's own words for it are the name of a task that was cancelled."""
    monkeypatch.chdir(tmp_path)
    rf.ingest((np.eye(30, 3), np.arange(30) % 2), "a.zarr")

    def lose(*_: Any, **__: Any) -> Any:
        with (
            LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            future = client.submit(sum, [1, 2])
            future.cancel()
            return future.result()

    monkeypatch.setattr("rfcdask.pipeline.run.run_phases", lose)
    to = ["a.zarr", "--out", "out"] if command == "run" else ["a.zarr", "model"]
    done = CliRunner().invoke(main, [command, *to, "--scheduler", "threads"])
    assert done.exit_code == 1, done.output
    (said,) = [line for line in done.output.splitlines() if line.startswith("Error")]
    assert "scheduler was lost" in said
    assert hint in said
    assert "cancelled" not in said


@pytest.mark.parametrize(("how", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_signal_that_strikes_where_nothing_can_be_raised(how: str, code: int) -> None:
    """As in a callback of the compiler, where Python drops what the handler raises."""
    program = f"""
import os, signal, time, click
from rfcdask.cli import reported

class Compiler:
    def __del__(self):
        os.kill(os.getpid(), signal.{how})
        time.sleep(0.01)

@click.command()
@click.pass_context
def work(ctx):
    with reported(ctx):
        compiler = Compiler()
        del compiler
        time.sleep(30)

if signal.{how} == signal.SIGHUP:  # which tests under nohup would ignore
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
work()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=user_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr == "Interrupted: call the same command again to go on.\n"


def test_a_file_that_another_command_writes_is_refused(tmp_path: Path) -> None:
    """Else the first to end would give its name to the half that the other has written."""
    dest = tmp_path / "new" / "predicted.csv"
    with whole_file(str(dest)) as first:
        first.write("all of it")
        second = whole_file(str(dest))
        with pytest.raises(FileExistsError, match="another process is writing"):
            second.__enter__()
    assert dest.read_text() == "all of it"
    assert [path.name for path in dest.parent.iterdir()] == [dest.name]


def test_nohup_is_heeded() -> None:
    program = """
import os, signal, click
from rfcdask.cli import reported

@click.command()
@click.pass_context
def work(ctx):
    with reported(ctx):
        os.kill(os.getpid(), signal.SIGHUP)
        click.echo("done")

signal.signal(signal.SIGHUP, signal.SIG_IGN)
work()
"""
    call = [sys.executable, "-c", program]
    done = subprocess.run(call, env=user_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
