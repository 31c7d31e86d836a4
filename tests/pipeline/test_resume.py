"""Runs that are killed in any phase end as if nothing had happened."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from rfcdask.cli import main
from rfcdask.pipeline import OtherRunError, comparable, run_job
from rfcdask.pipeline.folder import RunExistsError
from rfcdask.pipeline.phases import PHASES
from tests.pipeline.helpers import SMALL, pairs, results_of
from tests.programs import run_cli, start_cli

RACES = 8
"""A phase may end before the signal arrives; then its record is taken away and it begins anew."""


def wait_for(folder: Path, text: str, after: int, process: subprocess.Popen[str]) -> bool:
    """Wait until the log says something new; False when the process ended before."""
    log = folder / "run.log"
    while process.poll() is None:
        if log.exists() and text in log.read_text()[after:]:
            return True
        time.sleep(0.001)
    return False


def stop_in(folder: Path, phase: int, number: int, *args: str) -> subprocess.Popen[str]:
    """Begin or resume a run and send it a signal within a phase."""
    name = PHASES[phase].name
    record = folder / "phases" / f"{phase + 1:02d}-{name}.json"
    for _ in range(RACES):
        log = folder / "run.log"
        after = len(log.read_text()) if log.exists() else 0
        how = ["--resume"] if (folder / "run.json").exists() else [*args]
        process = start_cli("run", "--out", folder, "--scheduler", "threads", *how)
        assert wait_for(folder, f"phase {name}: begins", after, process), process.communicate()
        process.send_signal(number)
        process.wait(60)
        if not record.exists():
            return process
        for later in sorted((folder / "phases").glob("*.json"))[phase:]:
            later.unlink()
        (folder / "results.json").unlink(missing_ok=True)
    pytest.fail(f"phase {name} was always over before the signal came")


@pytest.mark.timeout(900)  # up to eleven processes, however busy the machine is
@pytest.mark.parametrize("apart", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_in_every_phase_it_ends_the_same(whole: Path, tmp_path: Path, apart: int) -> None:
    folder = tmp_path / "run"
    for phase in range(0, len(PHASES), apart):
        process = stop_in(folder, phase, signal.SIGKILL, *pairs())
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (folder / "results.json").exists()
    ended = run_cli("run", "--resume", "--out", folder, "--scheduler", "threads")
    assert ended.returncode == 0, ended.stderr
    assert comparable(results_of(folder)) == comparable(results_of(whole))
    assert ended.stderr.count("done before") == len(PHASES) - 1
    kept = {"data.zarr", "model", "phases", "report.html", "results.json", "run.json", "run.log"}
    assert {item.name for item in folder.iterdir()} == kept


@pytest.mark.timeout(600)
def test_ctrl_c_says_how_to_go_on(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    compare = [phase.name for phase in PHASES].index("compare")
    process = stop_in(folder, compare, signal.SIGINT, *pairs())
    _, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert f"rfcdask run --resume --out {folder}" in stderr
    assert "Traceback" not in stderr
    assert "interrupted" in (folder / "run.log").read_text()
    again = CliRunner().invoke(main, ["run", "--out", str(folder)])
    assert again.exit_code == 4
    assert "pass --resume to go on" in again.stderr
    ended = run_cli("run", "--resume", "--out", folder, "--threads", "2", "--json")
    assert ended.returncode == 0, ended.stderr
    assert '"recommendation"' in ended.stdout
    # Begun on threads, ended on a cluster: where the work was done makes no difference.
    assert results_of(folder)["machine"]["scheduler"] == "local"
    assert comparable(results_of(folder)) == comparable(results_of(whole))


def test_another_run_is_refused_with_the_difference(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    before = results_of(folder)
    with pytest.raises(RunExistsError, match="holds a finished run"):
        run_job(None, folder, settings=SMALL, scheduler="threads")
    with pytest.raises(OtherRunError, match=r"begun with refine=20, not 30: leave that out"):
        run_job(None, folder, settings={"refine": 30}, resume=True)
    with pytest.raises(OtherRunError, match=r"begun with data of its own, not .*other\.csv"):
        run_job("other.csv", folder, resume=True)
    assert run_job(None, folder, settings=SMALL, resume=True) == before
    with pytest.raises(FileNotFoundError, match=r"no run in .* to go on with"):
        run_job(None, tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


def test_changed_data_are_refused(tmp_path: Path) -> None:
    source, folder = tmp_path / "d.csv", tmp_path / "run"
    source.write_text("a,b,label\n" + "".join(f"{i},{i * i % 7},{i % 2}\n" for i in range(60)))
    process = stop_in_sample(folder, source)
    assert process.returncode == -signal.SIGKILL
    with source.open("a") as file:
        file.write("1,2,1\n")
    with pytest.raises(OtherRunError, match=r"d\.csv has changed since the run"):
        run_job(None, folder, resume=True)


def stop_in_sample(folder: Path, source: Path) -> subprocess.Popen[str]:
    """Kill a run on a file as soon as its data are on disk."""
    process = start_cli("run", source, "--out", folder, "--scheduler", "threads")
    assert wait_for(folder, "phase plan: begins", 0, process), process.communicate()
    process.kill()
    process.communicate()
    return process


def test_a_damaged_store_of_the_run_is_made_again_as_it_says(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def stop(line: str) -> None:
        if "training on the features" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(None, folder, settings=SMALL, scheduler="threads", say=stop)
    store = folder / "data.zarr"
    chunk = next(path for path in sorted((store / "X" / "c").rglob("*")) if path.is_file())
    chunk.write_bytes(chunk.read_bytes() + b"x")
    for _ in range(2):  # the first refusal left the damaged store to a second, also to --overwrite
        with pytest.raises(OtherRunError, match=r"damaged.* remove \S+data\.zarr and \S+01-"):
            run_job(None, folder, scheduler="threads", resume=True)
    assert not (folder / "refused").exists()
    shutil.rmtree(store)
    (folder / "phases" / "01-data.json").unlink()
    run_job(None, folder, scheduler="threads", resume=True)
    assert comparable(results_of(folder)) == comparable(results_of(whole))
