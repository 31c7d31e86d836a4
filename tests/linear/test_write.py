"""Lazy rows written through the stream come back as they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import fsspec
import numpy as np
import pytest
import zarr

import rfcdask as rf
from rfcdask.data.layout import codecs
from rfcdask.data.location import Location
from rfcdask.linear import write_zarr
from rfcdask.linear.write import _BEGUN, _begin, _identity, _WriteBlock, encode_chunk
from rfcdask.persist.files import DestinationError
from tests.linear_data import blobs, lazy


@pytest.mark.parametrize("place", ["here", "cluster"])
def test_features_and_labels_come_back(place: str, tmp_path: Path, cluster_client: Any) -> None:
    X, y = blobs(1050, 4, 3)
    client = cluster_client if place == "cluster" else None
    Z = rf.RandomFeatures(20, random_state=0).fit(X).transform(lazy(X, 100))
    stored = write_zarr(Z, tmp_path / "Z.zarr", client=client)
    assert stored.chunks == Z.chunks
    assert stored.dtype == np.float32
    assert np.array_equal(stored.compute(), Z.compute())
    predicted = rf.Ridge().fit(Z, y).predict(Z)
    assert np.array_equal(
        write_zarr(predicted, tmp_path / "p.zarr", client=client).compute(), predicted.compute()
    )


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("kind", ["f4", ">f8", "f2", "i1", ">u2", "i8", "?", "c8", "U3"])
@pytest.mark.parametrize("rows", [5, 7])
def test_chunks_have_the_bytes_that_zarr_writes(tmp_path: Path, kind: str, rows: int) -> None:
    values = (np.arange(4 * rows).reshape(rows, 4) % 9).astype(kind)
    stored = write_zarr(da.from_array(values, chunks=(5, 4)), tmp_path / "ours.zarr")
    assert np.array_equal(stored.compute(), values)
    by_zarr = zarr.create_array(
        tmp_path / "theirs.zarr",
        shape=values.shape,
        dtype=np.dtype(kind),
        chunks=(5, 4),
        compressors=codecs("zstd"),
        config={"write_empty_chunks": True},
    )
    by_zarr[:] = values
    for name in (f"c/{k}/0" for k in range(-(-rows // 5))):
        ours, theirs = (tmp_path / store / name for store in ("ours.zarr", "theirs.zarr"))
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
def test_values_of_no_fixed_size_are_refused(tmp_path: Path) -> None:
    words = da.from_array(np.array(["a", "bc"], object), chunks=1)
    with pytest.raises(TypeError, match=r"astype\('U20'\)"):
        write_zarr(words, tmp_path / "words.zarr")
    assert not list(tmp_path.iterdir())
    stored = write_zarr(words.astype("U20"), tmp_path / "words.zarr")
    assert stored.compute().tolist() == ["a", "bc"]


def test_nothing_is_overwritten_and_odd_chunks_are_named(tmp_path: Path) -> None:
    X, _ = blobs(100, 4, 3)
    write_zarr(lazy(X, 30), tmp_path / "X.zarr")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_zarr(lazy(X, 30), tmp_path / "X.zarr")
    again = write_zarr(lazy(X + 1, 50), tmp_path / "X.zarr", overwrite=True)
    assert np.array_equal(again.compute(), X + 1)
    with pytest.raises(ValueError, match=r"rechunk\(\{0: 60\}\)"):
        write_zarr(lazy(X, (40, 60)), tmp_path / "odd.zarr")


def test_a_store_of_rows_is_never_replaced(tmp_path: Path) -> None:
    X = np.arange(120.0).reshape(60, 2)
    dataset = rf.ingest((X, np.arange(60) % 2), tmp_path / "rows.zarr")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="is no zarr array"):
            write_zarr(dataset.X + 1, tmp_path / "rows.zarr", overwrite=overwrite)
    assert np.array_equal(rf.open_dataset(tmp_path / "rows.zarr").X.compute(), X)


@pytest.mark.parametrize("where", ["{}", "memory://{}"])
def test_what_is_no_array_is_never_replaced(where: str, tmp_path: Path) -> None:
    path = where.format(tmp_path / "thesis")
    fs, root = fsspec.url_to_fs(path)
    fs.makedirs(root)
    fs.pipe_file(f"{root}/chapter1.tex", b"years of work")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="is no zarr array"):
            write_zarr(da.ones((6, 2), chunks=(3, 2)), path, overwrite=overwrite)
    assert fs.cat_file(f"{root}/chapter1.tex") == b"years of work"


def test_a_link_is_written_through_and_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "a.zarr"
    link.symlink_to("disk/a.zarr")
    for number in range(3):
        stored = write_zarr(da.full((6, 2), number, chunks=(3, 2)), link, overwrite=True)
        assert (stored.compute() == number).all()
    assert link.is_symlink()
    assert os.listdir(tmp_path / "disk") == ["a.zarr"]
    assert sorted(os.listdir(tmp_path)) == ["a.zarr", "disk"]


def test_arrays_of_one_place_have_different_names(tmp_path: Path) -> None:
    ones, twos = (
        write_zarr(da.full((6, 2), value, chunks=(3, 2)), tmp_path / "a.zarr", overwrite=True)
        for value in (1, 2)
    )
    assert ones.name != twos.name


class Stop:
    """Computes blocks until it has had enough."""

    def __init__(self, after: int) -> None:
        self.after, self.computed = after, list[int]()

    def __call__(self, block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if len(self.computed) >= self.after:
            raise KeyboardInterrupt
        self.computed.append(int(block[0, 0]))
        return block

    def rows(self) -> da.Array:
        rows = da.from_array(np.arange(100.0).reshape(50, 2), chunks=(10, 2), name="rows")
        return rows.map_blocks(self, name="watched", meta=np.empty((0, 0)))


def interrupted(path: Path, **options: Any) -> list[int]:
    stop = Stop(3)
    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        write_zarr(stop.rows(), path, **options)
    return stop.computed


def test_a_late_block_of_another_array_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "a.zarr", da.ones((50, 2), chunks=(10, 2))
    interrupted(path)
    work = Location.of(f"{path}.unfinished")
    late = _WriteBlock(work, (50, 2), "<f8", 10, work.read(_BEGUN), tuple(range(6)))
    write_zarr(other, path)
    for _ in range(2):  # after the other array is done, and while one is written
        with pytest.raises((FileExistsError, FileNotFoundError)):
            late(0, (np.zeros((10, 2)),), 0)
        _begin(Location.of(path), _identity(other))


def test_an_interrupted_array_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    done = interrupted(path)
    assert os.listdir(tmp_path) == ["a.zarr.unfinished"]
    for folder in (path, tmp_path / "a.zarr.unfinished"):
        with pytest.raises(rf.data.DataError):
            rf.ingest(folder, tmp_path / "store.zarr")
    again = Stop(99)
    stored = write_zarr(again.rows(), path)
    assert set(done).isdisjoint(again.computed)
    assert np.array_equal(stored.compute(), np.arange(100.0).reshape(50, 2))
    assert os.listdir(tmp_path) == ["a.zarr"]
    assert sorted(os.listdir(path)) == ["c", "zarr.json"]
    assert rf.ingest(path, tmp_path / "store.zarr").shape == (50, 2)


def test_what_a_killed_process_left_is_no_part_of_the_array(tmp_path: Path) -> None:
    path, work = tmp_path / "a.zarr", tmp_path / "a.zarr.unfinished"
    work.mkdir()  # killed before its first record
    interrupted(path)
    (work / "c" / "0" / f"0.{'a' * 32}.partial").write_bytes(b"half")
    write_zarr(Stop(99).rows(), path)
    assert sorted(os.listdir(path / "c")) == list("01234")
    assert os.listdir(path / "c" / "0") == ["0"]


def test_an_array_that_was_done_but_for_its_records_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took its place already: the same call said that it exists."""
    path = tmp_path / "a.zarr"
    with monkeypatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(Location, "delete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_zarr(Stop(99).rows(), path)
    with pytest.raises(FileExistsError, match="exists already"):
        write_zarr(da.ones((50, 2), chunks=(10, 2)), path)
    again = Stop(99)
    (tmp_path / "a.zarr.unfinished-old").mkdir()  # what it replaced, killed while it was removed
    assert write_zarr(again.rows(), path).compute().sum() == np.arange(100).sum()
    assert again.computed == []
    assert sorted(os.listdir(path)) == ["c", "zarr.json"]
    assert os.listdir(tmp_path) == ["a.zarr"]


def interrupt(*args: Any, **more: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("removed", range(6))
def test_records_that_are_half_removed_say_that_the_array_is_done(
    removed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five blocks have a record each, and the array has one, which goes last."""
    path = tmp_path / "a.zarr"
    with monkeypatch.context() as patch:
        remove = only_first(removed, os.unlink, path / ".write")
        patch.setattr(os, "unlink", remove)
        patch.setattr(os, "remove", remove)
        with pytest.raises(KeyboardInterrupt):
            write_zarr(Stop(99).rows(), path)
    again = Stop(99)
    (tmp_path / "a.zarr.unfinished-old").mkdir()  # what it replaced, killed while it was removed
    assert write_zarr(again.rows(), path).compute().sum() == np.arange(100).sum()
    assert again.computed == []
    assert sorted(os.listdir(path)) == ["c", "zarr.json"]
    assert os.listdir(tmp_path) == ["a.zarr"]


def only_first(count: int, unlink: Any, folder: Path) -> Any:
    """Return a function that removes so many files once there is a folder, and then fails."""
    left = [None] * count

    def remove(name: Any, **more: Any) -> None:
        if folder.exists() and not str(name).endswith((".partial", ".lock")):
            if not left:
                raise KeyboardInterrupt
            left.pop()
        unlink(name, **more)

    return remove


@pytest.mark.parametrize("removed", range(9))
def test_an_array_that_is_half_removed_is_begun_anew(
    removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a URL it is replaced in place: it must not be read as zeros, and is still ours."""
    url = "memory://half-removed.zarr"
    Location.of(url).delete()
    write_zarr(Stop(99).rows(), url)
    other, fs = da.ones((50, 2), chunks=(10, 2)), Location.of(url).filesystem()[0]
    left, rm_file = [None] * removed, type(fs).rm_file

    def remove(self: Any, path: str) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        rm_file(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(type(fs), "rm_file", remove)
        with pytest.raises(KeyboardInterrupt):
            write_zarr(other, url, overwrite=True)
    if Location.of(url).exists("zarr.json"):
        assert da.from_zarr(url).sum().compute() in (np.arange(100).sum(), 100)
    assert (write_zarr(other, url, overwrite=True).compute() == 1).all()


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("i1", [[300, 1]]),
        ("i8", [[0.5, 1.0]]),
        ("?", [[2, 0]]),
        ("f4", [[1e300, 1.0]]),
        ("U1", [["abc", "d"]]),
    ],
)
def test_blocks_of_another_type_than_declared_lose_nothing(
    declared: str, values: list[Any], tmp_path: Path
) -> None:
    """300 became 44, a half 0 and 'abc' 'a'."""

    def rows(found: Any) -> da.Array:
        declares = {"dtype": declared, "meta": np.empty((0, 0), declared)}
        return da.zeros((3, 2), chunks=(2, 2)).map_blocks(lambda b: found[: len(b)], **declares)

    with pytest.raises(ValueError, match=r"a block of rows holds .* where its Dask array says"):
        write_zarr(rows(np.array(values * 2)), tmp_path / "a.zarr")
    fits = np.array([[1.0, 0.0]] * 2)
    if declared != "U1":
        stored = write_zarr(rows(fits), tmp_path / "b.zarr")
        assert np.array_equal(stored.compute(), np.array([[1, 0]] * 3, declared))


@pytest.mark.parametrize("damage", ["emptied", "flipped", "exchanged", "deleted"])
def test_damaged_blocks_are_written_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.zarr"
    interrupted(path)
    chunk = next((tmp_path / "a.zarr.unfinished" / "c").glob("*/0"))
    data, rows = chunk.read_bytes(), np.arange(20.0).reshape(10, 2)
    others = (encode_chunk(rows + 0.5 + n, rows.shape, rows.dtype) for n in range(999))
    changed = {"emptied": b"", "flipped": bytes([data[0] ^ 1]) + data[1:]}
    changed["exchanged"] = next(other for other in others if len(other) == len(data))
    chunk.unlink() if damage == "deleted" else chunk.write_bytes(changed[damage])
    stored = write_zarr(Stop(99).rows(), path)
    assert np.array_equal(stored.compute(), np.arange(100.0).reshape(50, 2))


def test_the_old_array_stays_until_the_new_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    write_zarr(da.ones((4, 2), chunks=2), path)
    interrupted(path, overwrite=True)
    assert np.array_equal(da.from_zarr(path).compute(), np.ones((4, 2)))
    # Another array than the one that was begun starts anew.
    stored = write_zarr(da.zeros((30, 2), chunks=10), path, overwrite=True)
    assert np.array_equal(stored.compute(), np.zeros((30, 2)))
    assert os.listdir(tmp_path) == ["a.zarr"]
    (tmp_path / "b.zarr.unfinished").mkdir()
    (tmp_path / "b.zarr.unfinished" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="none of ours: move it away"):
        write_zarr(da.ones((4, 2), chunks=2), tmp_path / "b.zarr")
    assert (tmp_path / "b.zarr.unfinished" / "thesis.tex").exists()


@pytest.mark.parametrize("inline", [False, True])
def test_a_source_that_is_written_anew_is_not_gone_on_with(tmp_path: Path, inline: bool) -> None:
    source, path = tmp_path / "source.zarr", tmp_path / "a.zarr"

    def rows(value: float, stop: Stop) -> da.Array:
        values = np.full((50, 2), value)
        zarr.create_array(source, data=values, chunks=(10, 2), overwrite=True)
        made = da.from_zarr(source, inline_array=inline)
        return made.map_blocks(stop, name="watched", meta=np.empty((0, 0)))

    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        write_zarr(rows(1.0, Stop(3)), path)
    assert np.array_equal(write_zarr(rows(2.0, Stop(99)), path).compute(), np.full((50, 2), 2.0))


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    source, path = tmp_path / "source.zarr", tmp_path / "a.zarr"
    stored = zarr.create_array(source, data=np.zeros((50, 2)), chunks=(10, 2))

    def change(block: np.ndarray) -> np.ndarray:
        stored[:] = stored[:] + 1
        return block

    lazily = da.from_zarr(source)
    with pytest.raises(ValueError, match=r"was changed while .* was written: call the same again"):
        write_zarr(lazily.map_blocks(change, meta=np.empty((0, 0))), path)
    assert not path.exists()
    assert np.array_equal(write_zarr(lazily, path).compute(), stored[:])


def test_an_array_takes_the_place_of_what_it_is_read_from(tmp_path: Path) -> None:
    values = np.arange(10.0).reshape(5, 2)
    for place in (str(tmp_path / "a.zarr"), "memory://own/a.zarr"):
        write_zarr(da.from_array(values, chunks=2), place)
    here = write_zarr(da.from_zarr(tmp_path / "a.zarr") * 2, tmp_path / "a.zarr", overwrite=True)
    assert np.array_equal(here.compute(), 2 * values)
    # Behind a URL what is replaced goes first.
    with pytest.raises(FileExistsError, match=r"read from .* itself; choose another path"):
        write_zarr(da.from_zarr("memory://own/a.zarr") * 2, "memory://own/a.zarr", overwrite=True)
    assert np.array_equal(da.from_zarr("memory://own/a.zarr").compute(), values)


def test_an_array_is_written_to_a_url() -> None:
    for value in (1.0, 2.0):
        stored = write_zarr(da.full((5, 2), value, chunks=2), "memory://w/a.zarr", overwrite=True)
        assert np.array_equal(stored.compute(), np.full((5, 2), value))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_zarr(da.ones((5, 2), chunks=2), "memory://w/a.zarr")


@pytest.mark.parametrize("name", ["", "c", ".write"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "array.json").write_text("mine")
    link = tmp_path / "a.zarr.unfinished" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(mine)
    with pytest.raises(DestinationError, match=r"is a link, .* remove .*unfinished, and call"):
        write_zarr(da.ones((6, 2), chunks=(3, 2)), tmp_path / "a.zarr")
    assert [path.name for path in mine.iterdir()] == ["array.json"]


def test_a_pattern_behind_a_url_is_refused() -> None:
    rows = da.ones((6, 2), chunks=(3, 2))
    write_zarr(rows, "memory://written/a1")
    with pytest.raises(ValueError, match=r"holds '\*', '\?' or '\['"):
        write_zarr(rows, "memory://written/a[1]", overwrite=True)
