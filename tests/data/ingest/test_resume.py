"""Killed without warning, an ingest goes on and ends in the same bytes."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from data_helpers import CONTEXT, edit_json, flip, svmlight_text, tree_bytes

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.ingest import blocks, destination
from rfcdask.data.ingest.blocks import place_of
from rfcdask.data.ingest.destination import Journal
from rfcdask.data.sources import opened_source
from rfcdask.execution.failures import WorkerDiedError


def run(source: str, dest: str, shuffle: bool, project: int) -> None:
    rf.ingest(
        source,
        dest,
        block_size=6000,
        shuffle=shuffle,
        project=project or None,
        random_state=7,
    )


def start(*arguments: object) -> multiprocessing.Process:
    process = CONTEXT.Process(target=run, args=arguments)
    process.start()
    return process


def finish(process: multiprocessing.Process) -> None:
    process.join(120)
    assert process.exitcode == 0


def count_objects(folder: str) -> int:
    return sum(len(files) + len(folders) for _, folders, files in os.walk(folder))


def is_marked_complete(dest: Path) -> bool:
    # Only the cleaning up is left then, and the store may be read already.
    return json.loads((dest / "zarr.json").read_text())["attributes"]["complete"]


def watch(process: multiprocessing.Process, dest: str) -> int:
    """Wait for a process and return the largest number of objects that lay in its destination."""
    most = 0
    while process.is_alive():
        most = max(most, count_objects(dest))
        time.sleep(0.001)
    finish(process)
    return most


def kill_at(process: multiprocessing.Process, dest: str, progress: int, later: float) -> bool:
    """Kill once so many objects lie in the destination; False when it ended before."""
    while process.is_alive() and count_objects(dest) < progress:
        time.sleep(0.001)
    time.sleep(later)  # somewhere in the midst of the next write
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode == -signal.SIGKILL


def kill_three_times(arguments: tuple[object, ...], dest: Path, most: int) -> int:
    """Kill a run and each of its successors at a random moment; return how many kills struck.

    Objects only become more until a run ends, so ascending moments before the end are all reached.
    """
    chance = random.Random(os.urandom(8))
    kills = 0
    for progress in sorted(chance.sample(range(1, most * 4 // 5), 3)):
        process = start(arguments[0], str(dest), *arguments[1:])
        kills += kill_at(process, str(dest), progress, chance.uniform(0, 0.005))
        if (dest / "zarr.json").exists() and not is_marked_complete(dest):
            with pytest.raises(rf.data.UnfinishedStoreError, match="run the same ingest again"):
                rf.open_dataset(dest)
    return kills


@pytest.mark.parametrize(
    ("packed", "shuffle", "project"),
    [
        pytest.param(False, False, 0, marks=pytest.mark.slow),
        pytest.param(True, False, 0, marks=pytest.mark.slow),
        pytest.param(False, True, 0, marks=pytest.mark.slow),
        (True, True, 5),
    ],
)
def test_three_kills_leave_the_store_of_an_undisturbed_run(tmp_path, packed, shuffle, project):
    X = np.random.default_rng(0).standard_normal((2500, 6))
    text = svmlight_text(X, np.arange(2500) % 2)
    source = tmp_path / ("rows.svm.gz" if packed else "rows.svm")
    source.write_bytes(gzip.compress(text) if packed else text)
    arguments = (str(source), shuffle, project)
    calm, dest = tmp_path / "calm.zarr", tmp_path / "killed.zarr"
    most = watch(start(str(source), str(calm), shuffle, project), str(calm))
    for _ in range(5):
        # On a busy machine a run may slip through to its end before it is struck: begin again.
        shutil.rmtree(dest, ignore_errors=True)
        kills = kill_three_times(arguments, dest, most)
        if kills == 3:
            break
    assert kills == 3
    finish(start(str(source), str(dest), shuffle, project))
    assert tree_bytes(dest) == tree_bytes(calm)


def test_a_worker_out_of_memory_is_explained(tmp_path):
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    # With the meta given, nothing is called here: the function would end this very process.
    meta = np.empty((0, 0))
    lazy = da.ones((100, 3), chunks=(10, 3)).map_blocks(lambda block: os._exit(1), meta=meta)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        Client(local, set_as_default=False) as client,
        pytest.raises(
            rf.data.DataError, match=r"a worker died .* blocks of 1.12 kiB: .*block_size="
        ),
    ):
        rf.ingest(lazy, tmp_path / "a.zarr", block_size=1200, client=client)


class StopError(Exception):
    """Thrown in the middle of an ingest."""


def interrupted(monkeypatch, source, dest, after: int, **options):
    """Run an ingest that fails after so many blocks."""

    original = blocks.WriteBlock.__call__
    written = []

    def failing(self, block, X, y):
        if len(written) >= after:
            raise StopError
        original(self, block, X, y)
        written.append(block)

    with monkeypatch.context() as patch:
        patch.setattr(blocks.WriteBlock, "__call__", failing)
        with pytest.raises(StopError):
            rf.ingest(source, dest, **options)
    return written


@pytest.mark.parametrize("shuffle", [False, True])
def test_only_the_missing_blocks_are_written_again(tmp_path, monkeypatch, shuffle):
    X = np.random.default_rng(0).standard_normal((1000, 4))
    options = {"block_size": 3200, "shuffle": shuffle, "random_state": 1}
    calm = rf.ingest(X, tmp_path / "calm.zarr", **options)
    dest = tmp_path / "a.zarr"
    written = interrupted(monkeypatch, X, dest, 4, **options)
    stamps = {b: (dest / f"X/c/{b}/0").stat().st_mtime_ns for b in written}
    rf.ingest(X, dest, **options)
    assert {b: (dest / f"X/c/{b}/0").stat().st_mtime_ns for b in written} == stamps
    assert tree_bytes(dest) == tree_bytes(tmp_path / "calm.zarr")
    assert len(calm.X.chunks[0]) > 9


DAMAGE = {
    "emptied": ("X/c/{}/0", lambda path: path.write_bytes(b"")),
    "truncated": ("X/c/{}/0", lambda path: path.write_bytes(path.read_bytes()[:-3])),
    "deleted": ("y/c/{}", Path.unlink),
    "flipped": ("y/c/{}", flip),
    "swapped": ("X/c/{}/0", lambda path: path.write_bytes((path.parents[1] / "1/0").read_bytes())),
    "record": (".ingest/blocks/{:06d}.json", flip),
    "emptied-record": (".ingest/blocks/{:06d}.json", lambda path: path.write_bytes(b"")),
    "survey": (".ingest/survey.json", flip),
    "metadata": ("X/zarr.json", lambda path: path.write_bytes(b"{")),
    "projection": ("projection/data/c/0", lambda path: path.write_bytes(b"")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_resume_writes_damaged_blocks_anew(tmp_path, monkeypatch, damage):
    X = np.random.default_rng(0).standard_normal((600, 40))
    source = X, np.arange(600) % 2
    shuffled = damage in ("flipped", "emptied")
    options = {"block_size": 800, "shuffle": shuffled, "random_state": 1, "project": 3}
    rf.ingest(source, tmp_path / "calm.zarr", compressor=None, **options)
    dest = tmp_path / "a.zarr"
    written = interrupted(monkeypatch, source, dest, 4, compressor=None, **options)
    name, change = DAMAGE[damage]
    change(dest / name.format(next(block for block in written if block != 1)))
    rf.ingest(source, dest, compressor=None, **options).verify()
    assert tree_bytes(dest) == tree_bytes(tmp_path / "calm.zarr")


@pytest.mark.parametrize("part", ["X", "y", "counts"])
@pytest.mark.parametrize("change", ["flipped", "emptied", "deleted"])
def test_damaged_scratch_files_are_written_anew(tmp_path, monkeypatch, part, change):
    X = np.random.default_rng(0).standard_normal((600, 4))
    source = X, np.arange(600) % 2
    options = {"block_size": 800, "shuffle": True, "random_state": 1}
    rf.ingest(source, tmp_path / "calm.zarr", **options)
    dest = tmp_path / "a.zarr"
    interrupted(monkeypatch, source, dest, 2, **options)
    DAMAGE[change][1](dest / f".ingest/runs/000003.{part}")
    if change == "flipped" and part != "counts":
        with pytest.raises(rf.data.DamagedStoreError, match=r"000003.* run the same ingest again"):
            rf.ingest(source, dest, **options)
        with pytest.raises(rf.data.UnfinishedStoreError):
            rf.open_dataset(dest)
    rf.ingest(source, dest, **options)
    assert tree_bytes(dest) == tree_bytes(tmp_path / "calm.zarr")


def test_a_damaged_seed_is_not_gone_on_with(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((500, 4))
    dest = tmp_path / "a.zarr"
    options = {"block_size": 3200, "shuffle": True, "random_state": 1}
    interrupted(monkeypatch, X, dest, 2, **options)
    edit_json(dest / "zarr.json", lambda document: document["attributes"].update(seed=2))
    with pytest.raises(rf.data.DamagedStoreError, match="pass overwrite=True to start anew"):
        rf.ingest(X, dest, **options)
    calm = rf.ingest(X, tmp_path / "calm.zarr", **options)
    again = rf.ingest(X, dest, overwrite=True, **options)
    assert np.array_equal(again.X.compute(), calm.X.compute())


def test_an_ingest_leaves_nothing_beside_the_store(tmp_path, monkeypatch):
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(home))
    folder = tmp_path / "data"
    rf.ingest(np.eye(30), folder / "a.zarr")
    rf.ingest(np.eye(30), folder / "a.zarr", overwrite=True)
    with pytest.raises(rf.data.StoreExistsError):
        rf.ingest(np.eye(30), folder / "a.zarr")
    with pytest.raises(rf.data.DataError):
        rf.ingest(np.full((3, 3), np.nan), folder / "b.zarr")
    assert os.listdir(folder) == ["a.zarr"]
    assert os.listdir(home) == []


def test_the_text_is_checked_only_once(tmp_path, monkeypatch):
    from rfcdask.data.sources.svmlight import SvmlightFiles

    X = np.random.default_rng(0).standard_normal((500, 4))
    source = tmp_path / "rows.svm"
    source.write_bytes(svmlight_text(X, np.arange(500) % 2))
    interrupted(monkeypatch, source, tmp_path / "a.zarr", 2, block_size=3200)
    monkeypatch.setattr(SvmlightFiles, "survey", None)
    assert np.array_equal(rf.ingest(source, tmp_path / "a.zarr", block_size=3200).X.compute(), X)


def test_an_unfinished_store_of_another_source_is_not_mixed_up(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((500, 4))
    dest = tmp_path / "a.zarr"
    interrupted(monkeypatch, X, dest, 2, block_size=3200)
    with pytest.raises(FileExistsError, match="the source differs"):
        rf.ingest(X + 1, dest, block_size=3200)
    with pytest.raises(FileExistsError, match="block_bytes was 3200"):
        rf.ingest(X, dest, block_size=6400)
    assert np.array_equal(rf.ingest(X + 1, dest, overwrite=True).X.compute(), X + 1)


def test_a_seed_that_was_drawn_is_kept(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((500, 4))
    dest = tmp_path / "a.zarr"
    interrupted(monkeypatch, X, dest, 2, block_size=3200, shuffle=True)
    ds = rf.ingest(X, dest, block_size=3200, shuffle=True)
    again = rf.ingest(
        X, tmp_path / "b.zarr", block_size=3200, shuffle=True, random_state=ds.attrs["seed"]
    )
    assert np.array_equal(ds.X.compute(), again.X.compute())
    assert sorted(ds.X.compute()[:, 0]) == sorted(X[:, 0])


def test_killed_between_the_mark_and_the_cleaning_up(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((100, 4))
    rf.ingest(X, tmp_path / "calm.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "clear", lambda self: (_ for _ in ()).throw(StopError()))
        with pytest.raises(StopError):
            rf.ingest(X, tmp_path / "a.zarr")
    assert (tmp_path / "a.zarr" / ".ingest").exists()
    for other, options in ((X + 1, {}), (X, {"scale": 2.0})):
        with pytest.raises(rf.data.StoreExistsError, match="pass overwrite=True to replace it"):
            rf.ingest(other, tmp_path / "a.zarr", **options)
    assert np.array_equal(rf.ingest(X, tmp_path / "a.zarr").X.compute(), X)
    assert tree_bytes(tmp_path / "a.zarr") == tree_bytes(tmp_path / "calm.zarr")


def test_a_worker_that_dies_is_replaced(tmp_path):
    from distributed import Client, LocalCluster

    X = np.random.default_rng(0).standard_normal((4000, 6))
    source = tmp_path / "rows.svm"
    source.write_bytes(svmlight_text(X, np.arange(4000) % 2))
    rf.ingest(source, tmp_path / "calm.zarr", block_size=6000)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        victims = []

        def watch(phase, total, unit):
            return Killer(phase, local, victims)

        rf.ingest(source, tmp_path / "a.zarr", block_size=6000, client=client, progress=watch)
    assert victims
    assert tree_bytes(tmp_path / "a.zarr") == tree_bytes(tmp_path / "calm.zarr")


class Killer:
    """A progress reporter that kills a worker process once, in the middle of the writing."""

    def __init__(self, phase, local, victims):
        self.phase, self.local, self.victims = phase, local, victims
        self.calls = 0

    def advance(self, amount=1):
        self.calls += 1
        if self.phase == "writing rows" and self.calls == 5 and not self.victims:
            pid = self.local.workers[0].pid
            os.kill(pid, signal.SIGKILL)
            self.victims.append(pid)

    def note(self, text):
        pass


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_late_task_of_another_ingest_is_refused(tmp_path, monkeypatch, shuffle):
    # A task on a cluster may outlive the process that sent it: it is kept here, and called late.
    source, dest, kept = tmp_path / "a.npy", tmp_path / "a.zarr", []
    np.save(source, np.arange(400.0).reshape(100, 4))
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "run_tasks", lambda tasks, *_, **__: kept.extend(tasks) or iter([]))
        with pytest.raises(rf.data.DataError):
            rf.ingest(source, dest, block_size=1000, shuffle=shuffle, random_state=0)
    X = np.ones((100, 4))
    store = rf.ingest(X, dest, block_size=1000, overwrite=True)
    for task in kept[:4]:
        with pytest.raises(rf.data.DataError, match=r"ingest began: .*, or a worker looks"):
            task.compute(scheduler="sync")
    store.verify()
    assert np.array_equal(store.X.compute(), X)


@pytest.mark.parametrize("half", [True, False])
def test_what_another_began_between_two_looks_is_not_gone_on_with(monkeypatch, half):
    """Behind a URL there is no lock: the rows of the one were written with the labels of both."""
    X, module = np.random.default_rng(0).normal(size=(90, 3)), sys.modules["rfcdask.data.ingest"]
    found, url = module.found_finished, f"memory://meanwhile-{half}"

    def meanwhile(*args, **more):
        known = found(*args, **more)
        monkeypatch.setattr(module, "found_finished", found)
        with monkeypatch.context() as patch, suppress(NotImplementedError):
            if half:
                patch.setattr(module, "finish", _interrupt)
            rf.ingest((-X, np.arange(90) % 2), url)
        return known

    monkeypatch.setattr(module, "found_finished", meanwhile)
    with pytest.raises(DataError, match="another process began or ended to write"):
        rf.ingest((X, np.arange(90) % 3), url)


def _interrupt(*args):
    raise NotImplementedError


def test_a_link_is_ingested_through_and_stays(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "a.zarr"
    link.symlink_to("disk/a.zarr")
    for number in range(3):
        store = rf.ingest(np.full((9, 2), float(number)), link, overwrite=True)
        assert (store.X.compute() == number).all()
    assert link.is_symlink()
    assert os.listdir(tmp_path / "disk") == ["a.zarr"]
    assert sorted(os.listdir(tmp_path)) == ["a.zarr", "disk"]


def test_killed_between_the_old_store_and_the_new(tmp_path):
    dest = tmp_path / "a.zarr"
    rf.ingest(np.ones((9, 2)), dest)
    script = """
import os, pathlib, sys
import rfcdask as rf

from rfcdask.persist import files

def replace(old, new):
    os.replace(old, new)
    old == pathlib.Path(sys.argv[1]) and os._exit(9)
    return new

files._exchange = lambda *names: False  # as on file systems that cannot
pathlib.Path.replace = replace
rf.ingest(sys.argv[1], sys.argv[1], compressor=None, overwrite=True)
"""
    killed = subprocess.run([sys.executable, "-c", script, str(dest)], timeout=120, check=False)
    assert killed.returncode == 9
    assert not dest.exists()
    # The rows are read from the store that lost its name as it was replaced.
    again = rf.ingest(dest, dest, compressor=None, overwrite=True)
    assert np.array_equal(again.X.compute(), np.ones((9, 2)))
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_zarr_source_that_was_written_anew_is_another(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((500, 4))
    source, dest = tmp_path / "x.zarr", tmp_path / "a.zarr"
    zarr.create_array(str(source), data=X, chunks=(50, 4))
    interrupted(monkeypatch, source, dest, 2, block_size=3200)
    zarr.create_array(str(source), data=X + 1, chunks=(50, 4), overwrite=True)
    with pytest.raises(FileExistsError, match="the source differs"):
        rf.ingest(source, dest, block_size=3200)


def test_workers_that_die_over_the_check_are_told_the_size(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((500, 4))
    interrupted(monkeypatch, X, tmp_path / "a.zarr", 2, block_size=3200)

    def dying(*args, **more):
        raise WorkerDiedError("no size")

    monkeypatch.setattr(blocks, "run_tasks", dying)
    with pytest.raises(MemoryError, match=r"checking blocks.*of 3.00 kiB.*overwrite=True"):
        rf.ingest(X, tmp_path / "a.zarr", block_size=3200)


def test_a_zarr_array_taken_up_from_an_earlier_version(tmp_path, monkeypatch):
    """Earlier versions kept name, shape and type of a zarr source, and no times of its files."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    zarr.save_array(tmp_path / "X.zarr", X)
    zarr.save_array(tmp_path / "y.zarr", np.arange(40) % 2)
    arguments = (tmp_path / "X.zarr", tmp_path / "a.zarr")
    options = {"label": tmp_path / "y.zarr", "block_size": 240}
    with monkeypatch.context() as broken:
        broken.setattr(blocks, "_check_room", lambda *_: 1 / 0)  # after the first block
        with pytest.raises(ZeroDivisionError):
            rf.ingest(*arguments, **options)

    def forget(document):
        attrs = document["attributes"]
        for pair in attrs["request"]["source"]:
            for identity in pair:
                assert len(identity) == 4
                identity.pop()
        attrs["check"] = destination._check_of(attrs)

    edit_json(tmp_path / "a.zarr/zarr.json", forget)
    first = (tmp_path / "a.zarr/X/c/0/0").stat().st_mtime_ns
    assert np.array_equal(rf.ingest(*arguments, **options).X.compute(), X)
    assert (tmp_path / "a.zarr/X/c/0/0").stat().st_mtime_ns == first


def test_an_opened_zarr_array_that_changed_is_another(tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(40, 3))
    zarr.save_array(tmp_path / "X.zarr", X)
    with monkeypatch.context() as broken:
        broken.setattr(blocks, "_check_room", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rf.ingest(zarr.open_array(tmp_path / "X.zarr"), tmp_path / "a.zarr", block_size=240)
    shutil.rmtree(tmp_path / "X.zarr")
    zarr.save_array(tmp_path / "X.zarr", X + 1)
    changed = zarr.open_array(tmp_path / "X.zarr")
    with pytest.raises(DataError, match="the source differs"):
        rf.ingest(changed, tmp_path / "a.zarr", block_size=240)


def test_archives_are_unpacked_where_they_are_removed(tmp_path, monkeypatch):
    """A worker on another machine would keep what it unpacked: tasks do not go there."""
    np.savez(tmp_path / "a.npz", X=np.eye(40), y=np.arange(40) % 2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    with opened_source(str(tmp_path / "a.npz"), None, None) as rows:
        assert place_of(rows, object()) is None
        list(rows.read(0, 40))
        assert list((tmp_path / "scratch").rglob("*"))
    assert not list((tmp_path / "scratch").rglob("*"))


X_CUT, Y_CUT = np.arange(400.0).reshape(100, 4), np.arange(100) % 2


def begun(monkeypatch, dest: Path) -> Path:
    """Break an ingest off after two blocks, and return its folder."""
    whole = blocks.WriteBlock.__call__

    def broken(self, block, X, y):
        if block > 1:
            raise RuntimeError("broken off")
        whole(self, block, X, y)

    with monkeypatch.context() as patch:
        patch.setattr(blocks.WriteBlock, "__call__", broken)
        with pytest.raises(RuntimeError, match="broken off"):
            rf.ingest((X_CUT, Y_CUT), dest, block_size=800)
    return dest


@pytest.mark.parametrize("name", [".ingest", "X", "X/c/0"])
def test_nothing_is_written_or_removed_through_a_link(tmp_path, monkeypatch, name):
    place = begun(monkeypatch, tmp_path / "a.zarr")
    other = tmp_path / "other"
    (place / name).rename(other)
    (other / "runs").mkdir()
    (other / "runs" / "mine").write_text("mine")
    (place / name).symlink_to(other)
    before = tree_bytes(other)
    with pytest.raises(DataError, match=rf"{name} is a link, .* remove .*a\.zarr, and call"):
        rf.ingest((X_CUT, Y_CUT), place, block_size=800)
    assert tree_bytes(other) == before
    shutil.rmtree(place)  # as the message says
    assert rf.ingest((X_CUT, Y_CUT), place, block_size=800).shape == (100, 4)


def test_a_link_in_the_place_of_the_new_store_is_refused(tmp_path):
    rf.ingest((X_CUT, Y_CUT), tmp_path / "a.zarr")
    (tmp_path / "mine").mkdir()
    (tmp_path / "a.zarr.unfinished").symlink_to(tmp_path / "mine")
    with pytest.raises(DataError, match=r"a\.zarr\.unfinished is a link"):
        rf.ingest((X_CUT + 1, Y_CUT), tmp_path / "a.zarr", overwrite=True)
    assert not list((tmp_path / "mine").iterdir())


def test_unfinished_files_of_others_stay(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    film = tmp_path / "mine" / "film.mkv.partial"
    film.write_text("film")
    with pytest.raises(DataError, match=r"is no zarr store \(film"):
        rf.ingest((X_CUT, Y_CUT), tmp_path / "mine")
    place = begun(monkeypatch, tmp_path / "a.zarr")
    film.rename(place / film.name)
    ours = place / "X" / f"zarr.json.{'0' * 32}.partial"
    ours.write_text("{")
    rf.ingest((X_CUT, Y_CUT), place, block_size=800)
    assert (place / film.name).read_text() == "film"
    assert not ours.exists()


def test_files_of_others_in_an_unfinished_store_are_not_removed_with_it(tmp_path, monkeypatch):
    place = begun(monkeypatch, tmp_path / "a.zarr")
    (place / "notes.txt").write_text("years of work")
    other = X_CUT + 1, Y_CUT
    with pytest.raises(DataError, match=r"a\.zarr holds notes\.txt, .* move that away first"):
        rf.ingest(other, place, overwrite=True)
    (place / "notes.txt").rename(tmp_path / "notes.txt")  # as the message says
    assert rf.ingest(other, place, overwrite=True).shape == (100, 4)


@pytest.mark.parametrize("removed", [0, 1, 3, 6])
def test_an_unfinished_store_that_is_half_removed_is_ours(tmp_path, monkeypatch, removed):
    dest = begun(monkeypatch, tmp_path / "a.zarr")
    left, unlink = [None] * removed, os.unlink

    def remove(name, **more):
        if not str(name).endswith((".partial", ".lock")):
            if not left:
                raise KeyboardInterrupt
            left.pop()
        unlink(name, **more)

    other = np.ones((900, 3)), np.arange(900) % 2
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", remove)
        patch.setattr(os, "remove", remove)
        with pytest.raises(KeyboardInterrupt):
            rf.ingest(other, dest, overwrite=True)
    assert (rf.ingest(other, dest, overwrite=True).X.compute() == 1).all()


def record_of(value) -> bytes:
    text = json.dumps(value)
    return json.dumps([zlib.crc32(text.encode()), text]).encode()


@pytest.mark.parametrize("name", ["survey.json", "blocks/000000.json"])
@pytest.mark.parametrize(
    "data", [b"[" * 100_000, record_of({"names": 1}), None], ids=["deep", "odd", "dir"]
)
def test_a_strange_record_counts_as_none(tmp_path, monkeypatch, name, data):
    place = begun(monkeypatch, tmp_path / "a.zarr")
    record = place / ".ingest" / name
    record.unlink()
    if data is not None:
        record.write_bytes(data)
    elif name.startswith("blocks"):
        record.mkdir()
    found = rf.ingest((X_CUT, Y_CUT), place, block_size=800)
    assert np.array_equal(found.X.compute(), X_CUT)


def test_a_folder_in_the_place_of_a_shard_is_said(tmp_path, monkeypatch):
    place = begun(monkeypatch, tmp_path / "a.zarr")
    (place / "X/c/0/0").unlink()
    (place / "X/c/0/0").mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        rf.ingest((X_CUT, Y_CUT), place, block_size=800)


def test_a_strange_request_is_none_of_ours(tmp_path, monkeypatch):
    place = begun(monkeypatch, tmp_path / "a.zarr")
    strange = {"attributes": {"request": {}, "complete": False}}
    edit_json(place / "zarr.json", lambda document: document.update(strange))
    with pytest.raises(DataError, match="holds a zarr group that is not ours"):
        rf.ingest((X_CUT, Y_CUT), place, block_size=800)


def test_only_archives_take_a_temporary_folder(tmp_path, monkeypatch):
    """A process that is killed leaves it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    np.save(tmp_path / "a.npy", X_CUT)
    np.savez(tmp_path / "a.npz", X=X_CUT)
    for name, folders in (("a.npy", 0), ("a.npz", 1)):
        with opened_source(tmp_path / name, None, None):
            assert len(list((tmp_path / "temporary").iterdir())) == folders
    assert not list((tmp_path / "temporary").iterdir())
