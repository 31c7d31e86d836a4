"""A destination without space or rights loses nothing that was written."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from data_helpers import CONTEXT, tree_bytes
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.data import DataError
from rfcdask.linear.write import write_zarr
from rfcdask.persist.files import DestinationError
from rfcdask.persist.untrusted import NotReadableError
from rfcdask.pipeline.folder import RunFolder

REMEDY = "change its rights, or give another place."


def fill_disk(dest: str, note: str, limit: int | None) -> None:
    """Ingest with a limit on the size of files: early blocks compress well, later ones do not."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    X = np.random.default_rng(0).standard_normal((4000, 10))
    X[:2000] = 0
    write_note(note, lambda: rf.ingest(X, dest, block_size=40_000))


def ingest_as_nobody(dest: str, note: str) -> None:
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    write_note(note, lambda: rf.ingest(np.eye(3), dest))


def read_as_nobody(folder: str, note: str) -> None:
    """Note what is said of a store, an array and a model that are closed to their owner."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    store, array, model = (Path(folder, name) for name in ("a.zarr", "b.zarr", "model"))
    X = rf.ingest(np.eye(3), store).X
    written = write_zarr(X, array)
    rf.save(fitted := rf.RandomFeatures(4).fit(X), model)
    said = []
    for place, work in (
        (store / "zarr.json", lambda: rf.open_dataset(store)),
        (store / "zarr.json", lambda: rf.ingest(np.eye(3), store)),
        (store / "X/c/0/0", lambda: write_zarr(X, f"{folder}/other.zarr")),
        (store / "X/c/0/0", lambda: X.compute()),
        (array / "c/0/0", lambda: rf.ingest(written + 1, f"{folder}/other")),
        (array / "c/0/0", lambda: write_zarr(written + 1, f"{folder}/other.zarr")),
        (array / "zarr.json", lambda: write_zarr(X, array)),
        (array, lambda: rf.ingest(array, f"{folder}/other")),
        (model, lambda: rf.load(model)),
        (model / "model.json", lambda: rf.load(model)),
        (model, lambda: rf.save(fitted, model, overwrite=True)),
    ):
        mode = os.stat(place).st_mode
        os.chmod(place, 0)
        with pytest.raises(NotReadableError) as caught:
            work()
        os.chmod(place, mode)
        said.append(str(caught.value) == f"{place} may not be opened: {REMEDY}")
    Path(note).write_text(str(said))


def write_note(path: str, work) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        work()
    except DataError as error:
        os.write(file, str(error).encode())


def in_child(tmp_path, function, *arguments) -> str:
    """Run a function in a process of its own; return what it was refused with."""
    note = tmp_path / "note"
    note.write_text("")
    note.chmod(0o666)
    process = CONTEXT.Process(target=function, args=(arguments[0], str(note), *arguments[1:]))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return note.read_text()


def test_a_full_disk_keeps_what_was_written(tmp_path):
    dest = tmp_path / "a.zarr"
    said = in_child(tmp_path, fill_disk, str(dest), 20_000)
    assert "no space left for" in said
    assert "run the same ingest again" in said
    assert list((dest / ".ingest/blocks").iterdir())
    shards = {path: path.stat().st_mtime_ns for path in dest.glob("X/c/*/0")}
    assert shards
    assert in_child(tmp_path, fill_disk, str(dest), None) == ""
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in shards.items())
    assert in_child(tmp_path, fill_disk, str(tmp_path / "calm.zarr"), None) == ""
    assert tree_bytes(dest) == tree_bytes(tmp_path / "calm.zarr")


def test_a_disk_that_is_full_when_a_store_is_replaced_keeps_the_old_one(tmp_path, monkeypatch):
    """Some file systems say so no earlier than when bytes are brought to the disk."""
    dest = tmp_path / "a.zarr"
    rf.ingest(np.eye(3), dest)

    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as then:
        then.setattr("rfcdask.persist.files.sync_all", full)
        with pytest.raises(DataError, match="run the same ingest again"):
            rf.ingest(np.eye(4), dest, overwrite=True)
    assert rf.open_dataset(dest).shape == (3, 3)
    assert rf.ingest(np.eye(4), dest, overwrite=True).shape == (4, 4)
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_disk_that_is_too_small_is_noticed_before_the_work(tmp_path, monkeypatch):
    from rfcdask.data.location import Location

    X = np.random.default_rng(0).standard_normal((2000, 10))
    monkeypatch.setattr(Location, "free_bytes", lambda self: 100_000)
    for options in ({"compressor": None}, {"shuffle": True}):
        with pytest.raises(DataError, match=r"no space for .*: 156\.25 kiB are needed, 97\.66 kiB"):
            rf.ingest(X, tmp_path / "a.zarr", overwrite=True, **options)
    # Compressed sizes are known after the first block.
    with pytest.raises(DataError, match=r"more are needed, .* run the same ingest again"):
        rf.ingest(X, tmp_path / "a.zarr", overwrite=True, block_size=16_000)
    monkeypatch.undo()
    assert np.array_equal(rf.ingest(X, tmp_path / "a.zarr", block_size=16_000).X.compute(), X)


def test_no_right_to_write_is_said(tmp_path):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        # Not below pytest's own folder, which nobody else may enter.
        note = Path(tempfile.mkdtemp())
        note.chmod(0o755)
        said = in_child(note, ingest_as_nobody, f"{folder}/a.zarr")
        os.chmod(folder, 0o755)
        shutil.rmtree(note)
    assert "no right to write to" in said
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"no right to write|exists"):
        rf.ingest(np.eye(3), tmp_path / "file" / "a.zarr")


def test_no_right_to_read_is_said(tmp_path):
    folder = Path(tempfile.mkdtemp())  # not below pytest's own, which nobody else may enter
    folder.chmod(0o777)
    assert in_child(folder, read_as_nobody, str(folder)) == str([True] * 11)
    shutil.rmtree(folder)


def test_files_of_the_user_are_not_replaced_with_a_store(tmp_path):
    rows = da.from_array(np.eye(3))
    model = make_pipeline(rf.PCA(1)).fit(np.eye(3))
    rf.save(model, tmp_path / "m")
    rf.ingest(rows, tmp_path / "a.zarr")
    write_zarr(rows, tmp_path / "b.zarr")
    for name, work in (
        ("a.zarr", lambda: rf.ingest(rows + 1, tmp_path / "a.zarr", overwrite=True)),
        ("b.zarr", lambda: write_zarr(rows + 1, tmp_path / "b.zarr", overwrite=True)),
        ("m", lambda: rf.save(model, tmp_path / "m", overwrite=True)),
    ):
        (mine := tmp_path / name / "notes.txt").write_text("years of work")
        with pytest.raises(DestinationError, match=r"holds notes\.txt, .* move that away"):
            work()
        mine.rename(tmp_path / "notes.txt")
        work()


@pytest.mark.parametrize("name", ["a.zarr", "b.zarr"])
def test_what_was_replaced_when_a_process_was_killed_stays(tmp_path, name):
    """Where two names cannot change places at once, neither has the name for an instant."""
    rows, place = da.from_array(np.eye(3)), tmp_path / name
    if name == "a.zarr":
        rf.ingest(rows, place)
        (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
        command = ["ingest", str(tmp_path / "bad.csv"), str(place), "--label", "c", "--overwrite"]
    else:
        write_zarr(rows, place)
    before = tree_bytes(place)
    place.rename(tmp_path / f"{name}.unfinished-old")
    if name == "a.zarr":
        assert CliRunner().invoke(main, command).exit_code == 2
    else:
        with pytest.raises(ZeroDivisionError):
            write_zarr(rows.map_blocks(lambda block: 1 / 0, dtype=float), place, overwrite=True)
    assert tree_bytes(place) == before


def test_a_mount_point_is_not_replaced(tmp_path, monkeypatch):
    """It cannot be moved aside, which was found out when all rows were written."""
    store = rf.ingest(np.eye(3), tmp_path / "a.zarr")
    write_zarr(store.X, tmp_path / "b.zarr")
    mounted = {str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")}
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) in mounted)
    with pytest.raises(DestinationError, match=r"a\.zarr is a mount point.*a folder within it"):
        rf.ingest(np.eye(4), tmp_path / "a.zarr", overwrite=True)
    with pytest.raises(DestinationError, match=r"b\.zarr is a mount point.*a folder within it"):
        write_zarr(store.X + 1, tmp_path / "b.zarr", overwrite=True)
    store.verify()
    assert sorted(os.listdir(tmp_path)) == ["a.zarr", "b.zarr"]


def test_a_part_of_a_store_is_not_replaced(tmp_path):
    """Neither by a store nor by features: the store that it is of could not be read any more."""
    store = rf.ingest(np.eye(3), tmp_path / "a.zarr")
    for replace in (
        lambda: rf.ingest(np.eye(4), tmp_path / "a.zarr" / "X", overwrite=True),
        lambda: write_zarr(da.ones((4, 1)), tmp_path / "a.zarr" / "X", overwrite=True),
    ):
        with pytest.raises(DestinationError, match=r"X is part of the store \S*a\.zarr: choose a"):
            replace()
    store.verify()


@pytest.mark.parametrize("damaged", [False, True])
def test_files_in_a_store_that_are_not_of_it_are_not_lost(tmp_path, damaged):
    """Also where its manifest cannot say what is of it."""
    rf.ingest(np.eye(3), path := tmp_path / "a.zarr")
    (path / "predicted.csv").write_text("years of work")
    if damaged:
        (path / "manifest" / "zarr.json").write_text("{")
    with pytest.raises(DestinationError, match=r"a\.zarr holds predicted\.csv, .* move that away"):
        rf.ingest(np.eye(4), path, overwrite=True)
    (path / "predicted.csv").rename(tmp_path / "predicted.csv")
    assert rf.ingest(np.eye(4), path, overwrite=True).X.shape == (4, 4)


@pytest.mark.parametrize("closed", ["", ".unfinished-old"])
def test_what_cannot_be_removed_is_not_replaced(tmp_path, monkeypatch, closed):
    """That of another user stayed beside it, and the next replacement ended in an OSError."""
    made = {
        "a.zarr": lambda path, **more: rf.ingest(np.eye(3), path, **more),
        "b.zarr": lambda path, **more: write_zarr(da.ones((4, 1)), path, **more),
    }
    for name, make in made.items():
        make(tmp_path / name)
        place = tmp_path / f"{name}{closed}"
        place.mkdir(exist_ok=True)
        monkeypatch.setattr("os.access", lambda path, mode, place=place: str(path) != str(place))
        with pytest.raises(
            DestinationError, match=f"no right to remove {place}: change its rights"
        ):
            make(tmp_path / name, overwrite=True)
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_name_without_room_for_longer_ones_is_refused_before_the_work(tmp_path):
    """What is replaced is kept under a longer name, which was missed when all was written."""
    rows = da.map_blocks(pytest.fail, chunks=((2, 2), (1,)), meta=np.ones((0, 0)))
    fits, too_long = tmp_path / ("a" * 240), tmp_path / ("a" * 241)
    with pytest.raises(DestinationError, match="too long a name: choose one of at most 240 bytes"):
        write_zarr(rows, too_long)
    with pytest.raises(DestinationError, match="too long a name"):
        RunFolder.of_fit(too_long)
    assert os.listdir(tmp_path) == []
    write_zarr(da.ones((4, 1)), fits)
    write_zarr(da.zeros((4, 1)), fits, overwrite=True)


def test_other_failures_of_the_disk_pass_through(tmp_path):
    from rfcdask.data.ingest.destination import destination_errors
    from rfcdask.data.location import Location

    with pytest.raises(OSError, match="odd"), destination_errors(Location.of(tmp_path)):
        raise OSError(errno.EIO, "odd")


@pytest.mark.parametrize("number", [errno.EFBIG, errno.EDQUOT])
def test_a_full_folder_for_temporary_files_is_no_damage(tmp_path, monkeypatch, number):
    """The archive was called damaged, or the system's own error was raised."""

    def full(*args):
        raise OSError(number, os.strerror(number))

    np.savez(tmp_path / "a.npz", X=np.eye(3))
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(DataError, match=r"no space left for .*again, or set TMPDIR to a folder"):
        rf.ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
