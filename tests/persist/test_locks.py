"""One process at a time, whole files on the disk, and nothing left behind."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import rfcdask as rf
from rfcdask.persist.files import (
    DestinationError,
    atomic_file,
    exclusive_lock,
    follow_link,
    lock_path,
    replace_folder,
)

TAKEN = RuntimeError("taken")


def test_a_lock_keeps_others_out_and_goes(tmp_path: Path) -> None:
    path = lock_path(tmp_path / "a.zarr")
    assert path.parent == tmp_path
    with exclusive_lock(path, TAKEN):
        with pytest.raises(RuntimeError, match="taken"), exclusive_lock(path, TAKEN):
            pass
        assert path.exists()  # whoever was refused has not removed it
    assert os.listdir(tmp_path) == []
    with pytest.raises(KeyError), exclusive_lock(path, TAKEN):
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.tex"
    precious.write_text("years of work")
    path = tmp_path / ".a.lock"
    for target in (precious, tmp_path / "new"):
        path.symlink_to(target)
        with pytest.raises(OSError, match="remove it"), exclusive_lock(path, TAKEN):
            pass
        path.unlink()
    assert precious.read_text() == "years of work"
    assert os.listdir(tmp_path) == ["thesis.tex"]
    # Nor is a file that somebody put there written to.
    path.write_text("mine")
    with exclusive_lock(path, TAKEN):
        assert path.read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_lies_in_the_place_of_a_lock_is_named(tmp_path: Path, kind: str) -> None:
    features = rf.RandomFeatures(6, random_state=0).fit(np.eye(4))
    for name in (".model.lock", ".a.zarr.lock"):
        place = tmp_path / name
        place.mkdir() if kind == "folder" else place.symlink_to("elsewhere")
    with pytest.raises(DestinationError, match=r"the lock .*\.model\.lock .*: remove it"):
        rf.save(features, tmp_path / "model")
    with pytest.raises(rf.data.DataError, match=r"the lock .*\.a\.zarr\.lock .*: remove it"):
        rf.ingest(np.eye(4), tmp_path / "a.zarr")
    assert sorted(os.listdir(tmp_path)) == [".a.zarr.lock", ".model.lock"]


def test_the_lock_of_a_killed_process_is_harmless(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from rfcdask.persist.files import exclusive_lock

        with exclusive_lock(Path(sys.argv[1]), RuntimeError()):
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    path = tmp_path / ".a.lock"
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert path.exists()
    with exclusive_lock(path, TAKEN):
        pass
    assert os.listdir(tmp_path) == []


def test_no_two_hold_a_lock_that_comes_and_goes(tmp_path: Path) -> None:
    """A lock is removed while others open it: they must see that theirs no longer counts."""
    path, inside, wrong, entered = tmp_path / ".a.lock", [], [], []
    stop = time.monotonic() + 1.0

    def work() -> None:
        while time.monotonic() < stop:
            try:
                with exclusive_lock(path, BlockingIOError()):
                    inside.append(1)
                    wrong.extend([len(inside)] * (len(inside) > 1))
                    inside.pop()
                    entered.append(1)
            except BlockingIOError:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert entered
    assert not wrong
    assert os.listdir(tmp_path) == []


def test_a_killed_replacement_is_made_up_for(tmp_path: Path) -> None:
    """The old folder was moved away, the new one not yet in its place."""
    work, target = tmp_path / "a.unfinished", tmp_path / "a"
    for folder, text in ((work, "new"), (tmp_path / "a.unfinished-old", "old")):
        folder.mkdir()
        (folder / "x").write_text(text)
    replace_folder(work, target)
    assert (target / "x").read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]
    for leftover in (work, tmp_path / "a.unfinished-old"):
        leftover.mkdir()
        (leftover / "x").write_text("newer")
    replace_folder(work, target)
    assert (target / "x").read_text() == "newer"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged at once on Linux only")
def test_a_replaced_folder_always_has_its_name(tmp_path: Path) -> None:
    target, missing, done = tmp_path / "a", [], threading.Event()
    target.mkdir()

    def watch() -> None:
        while not done.is_set():
            missing.extend([] if target.exists() else [1])

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(100):
        work = tmp_path / "a.unfinished"
        work.mkdir()
        (work / "x").write_text(str(number))
        replace_folder(work, target)
    done.set()
    watcher.join(60)
    assert not missing
    assert (target / "x").read_text() == "99"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.timeout(60)
def test_a_folder_with_links_and_pipes_of_others_takes_its_place(tmp_path: Path) -> None:
    work = tmp_path / "new"
    work.mkdir()
    (work / ".#report.html").symlink_to("me@host.123")  # as Emacs locks a file
    os.mkfifo(work / "pipe")
    replace_folder(work, tmp_path / "a")
    assert sorted(os.listdir(tmp_path / "a")) == [".#report.html", "pipe"]


def test_files_reach_the_disk_before_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    with atomic_file(tmp_path / "a.json", "w") as file:
        file.write("text")
    assert synced == [str(tmp_path / "a.json.partial"), str(tmp_path)]
    assert os.listdir(tmp_path) == ["a.json"]
    work = tmp_path / "model-new"
    (work / "arrays").mkdir(parents=True)
    (work / "arrays" / "c").write_text("numbers")
    synced.clear()
    replace_folder(work, tmp_path / "model")
    wanted = [work / "arrays" / "c", work / "arrays", work, tmp_path]
    assert set(map(str, wanted)) == set(synced)
    assert synced[-1] == str(tmp_path)


def test_a_lock_can_be_taken_over_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # There the kernel does this instead, which wants a file that is open for writing.
    monkeypatch.setattr(fcntl, "flock", fcntl.lockf)
    with exclusive_lock(tmp_path / ".a.lock", TAKEN):
        pass
    assert os.listdir(tmp_path) == []


def test_file_systems_without_locks_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.warns(RuntimeWarning, match="knows no locks"),
        exclusive_lock(tmp_path / ".a.lock", TAKEN),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_a_pipe_in_the_place_of_a_lock_is_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".a.lock")
    script = "from pathlib import Path; from rfcdask.persist.files import exclusive_lock\n"
    script += "with exclusive_lock(Path('.a.lock'), RuntimeError()): print('went on')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"went on\n"


def test_a_lock_that_cannot_be_removed_hides_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with exclusive_lock(folder / ".a.lock", TAKEN):
        folder.rename(tmp_path / "elsewhere")
        folder.touch()  # no folder any more: looking for the lock fails


def test_a_saved_model_behind_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "model"
    link.symlink_to("disk/model")
    features = rf.RandomFeatures(4, random_state=0).fit(np.eye(3))
    for _ in range(3):
        rf.save(features, link, overwrite=True)
    assert link.is_symlink()
    assert os.listdir(tmp_path / "disk") == ["model"]
    assert sorted(os.listdir(tmp_path)) == ["disk", "model"]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="leads back to itself"):
        follow_link(tmp_path / "a")
