"""Whole stores of a stranger, whose manifest binds what is wrong, are not believed."""

from __future__ import annotations

import json
import shutil

import google_crc32c
import numpy as np
import pytest
import zarr
from data_helpers import as_format_1, edit_json
from scipy import sparse
from zarr.storage import MemoryStore

import rfcdask as rf
from rfcdask.data import DamagedStoreError, DataError
from rfcdask.data.layout import codecs
from rfcdask.data.location import Location
from rfcdask.data.manifest import KEY, Manifest, Seal, Shards, file_facts, seal_of


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", ["a"]),
        ("columns", [1, 2, 3]),
        ("columns", 3),
        ("columns", {"a": 1}),
        ("columns_in_file", True),
        ("columns_in_file", [None]),
        ("classes", []),
        ("classes", ["a", "b"]),
        ("mean", ["a", "b", "c"]),
        ("variance", [["a"], 1, 2]),
        ("variance", [10**400, 1, 2]),
        ("mean", [float("nan"), 1, 2]),
        ("label_name", 3),
        ("label_column", "first"),
        ("source", []),
    ],
)
def test_a_whole_store_of_a_stranger_is_not_believed(tmp_path, name, value):
    """Its manifest binds what it says, so what it says must make sense."""
    path = tmp_path / "store"
    rf.ingest((np.arange(30.0).reshape(10, 3), np.arange(10) % 2), path)
    seal_with(path, name, value)
    with pytest.raises(DamagedStoreError, match=r"the metadata of .* damaged"):
        rf.open_dataset(path)


def seal_with(path, name, value):
    document = json.loads((path / "zarr.json").read_text())
    document["attributes"][name] = value
    data = json.dumps(document).encode()
    (path / "zarr.json").write_bytes(data)
    manifest = Manifest.from_bytes((path / KEY).read_bytes())
    files = {**manifest.files, "zarr.json": file_facts(data)}
    (path / KEY).write_bytes(Manifest(manifest.n_rows, files, manifest.shards).to_bytes())


def test_a_class_of_a_stranger_is_no_long_text(tmp_path):
    """Every row of a block would have its room."""
    path = tmp_path / "store"
    rf.ingest((np.arange(30.0).reshape(10, 3), np.array(["a", "b"] * 5)), path)
    seal_with(path, "classes", ["a", "b" * 10**6])
    with pytest.raises(DamagedStoreError, match="a class has more than 1,000 characters"):
        rf.open_dataset(path)


def sign(path, total, n_chunks, **attributes):
    """Write a manifest that binds what lies there, as whoever made it up would."""
    document = json.loads((path / "zarr.json").read_text())
    document["attributes"].update(attributes)
    (path / "zarr.json").write_text(json.dumps(document))
    shards = {}
    if (path / "X/c").exists():
        found = [seal_of((path / "X/c/0/0").read_bytes(), n_chunks)]
        shards["X"] = Shards.of(found)
    names = [str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()]
    names = [name for name in names if name != KEY and not (shards and name.startswith("X/c/"))]
    files = {name: file_facts((path / name).read_bytes()) for name in names}
    (path / KEY).write_bytes(Manifest(total, files, shards).to_bytes())


def test_a_block_beyond_all_memory_is_refused_before_it_is_made(tmp_path):
    """Each of its chunks is the same few bytes: kilobytes on disk. Cut into parts, none is."""
    path, rows, chunk = tmp_path / "store", 2 * 10**12, 10**8
    rf.ingest(np.zeros((10, 1), "float32"), path)
    shutil.rmtree(path / "X")
    group = zarr.open_group(str(path), mode="r+", zarr_format=3)
    packed = {"compressors": codecs("zstd"), "dtype": "float32"}
    group.create_array("X", shape=(rows, 1), chunks=(chunk, 1), shards=(rows, 1), **packed)
    made = {}
    zeros = zarr.create_array(MemoryStore(made), shape=(chunk, 1), chunks=(chunk, 1), **packed)
    zeros.with_config({"write_empty_chunks": True})[:] = 0
    data = made["c/0/0"].to_bytes()
    index = np.tile(np.array([0, len(data)], "<u8"), rows // chunk).tobytes()
    index += google_crc32c.value(index).to_bytes(4, "little")
    (path / "X/c/0").mkdir(parents=True)
    (path / "X/c/0/0").write_bytes(data + index)
    sign(path, rows, rows // chunk, n_rows=rows)
    with pytest.raises(
        DamagedStoreError, match=r"declares 8,000,.* bytes where [0-9,]+ are stored"
    ):
        rf.open_dataset(path)


@pytest.mark.parametrize("part", ["indptr", "indices", "data"])
def test_sparse_blocks_of_many_equal_chunks_are_refused(tmp_path, part):
    path = tmp_path / "store"
    rows = sparse.random(50, 20, 0.2, format="csr", random_state=0, dtype=np.float32)
    rf.ingest((rows, np.arange(50) % 2), path, sparse=True)
    shutil.rmtree(path / f"X/0/{part}")
    group = zarr.open_group(str(path), mode="r+", zarr_format=3)
    kind = np.float32 if part == "data" else np.int32
    array = group.create_array(
        f"X/0/{part}", shape=(10**12,), chunks=(10**5,), dtype=kind, compressors=codecs("zstd")
    )
    array.with_config({"write_empty_chunks": True})[: 10**5] = 0
    sign(path, 50, 0, labels=None, classes=None)
    with pytest.raises(DamagedStoreError, match="other shapes than were written"):
        rf.open_dataset(path).X.compute()


@pytest.mark.parametrize("value", [-1, 10**30, 1.5, True, None, "7"])
def test_a_number_of_values_that_cannot_be(tmp_path, value):
    path = tmp_path / "store"
    rows = sparse.random(50, 20, 0.2, format="csr", random_state=0, dtype=np.float32)
    rf.ingest(rows, path, sparse=True)
    sign(path, 50, 0, n_values=value)
    with pytest.raises(DamagedStoreError, match="n_values is"):
        rf.open_dataset(path)


def test_more_columns_than_memory_has_room_for(tmp_path):
    path = tmp_path / "store"
    rows = sparse.random(50, 20, 0.2, format="csr", random_state=0, dtype=np.float32)
    rf.ingest(rows, path, sparse=True)
    found = json.loads((path / "X/zarr.json").read_text())
    found["attributes"]["shape"] = [50, 10**12]
    (path / "X/zarr.json").write_text(json.dumps(found))
    sign(path, 50, 0, n_values=rows.nnz)
    with pytest.raises(DamagedStoreError, match="a linear model of 1,000,000,000,000 columns"):
        rf.open_dataset(path)


def rewritten(path, change):
    """Change the bytes of the first chunk of X, or of all of its shard, and bind what comes out."""
    shard, key = path / "X/c/0/0", path / KEY
    manifest = Manifest.from_bytes(key.read_bytes())
    seals = dict(manifest.shards)
    n_chunks = seals["X"].chunks.shape[1]
    data, seal = change(shard.read_bytes(), n_chunks)
    shard.write_bytes(data)
    others = [seals["X"].seal(block) for block in range(1, len(seals["X"].sizes))]
    seals["X"] = Shards.of([seal, *others])
    key.write_bytes(Manifest(manifest.n_rows, manifest.files, seals).to_bytes())


def cut(size):
    def change(data, n_chunks):
        return data[:size], Seal(size, 0, (0,) * n_chunks)

    return change


def packed_as(first):
    def change(data, n_chunks):
        n_index = 16 * n_chunks + 4
        chunk = first + google_crc32c.value(first).to_bytes(4, "little")
        places = np.frombuffer(data[-n_index:-4], "<u8").copy()
        places[:2] = len(data) - n_index, len(chunk)
        index = places.tobytes()
        index += google_crc32c.value(index).to_bytes(4, "little")
        changed = data[:-n_index] + chunk + index
        return changed, seal_of(changed, n_chunks)

    return change


HUGE = b"\x28\xb5\x2f\xfd\xe0" + (2**50).to_bytes(8, "little") + b"\x01\0\0"  # a frame of zstd


@pytest.mark.parametrize("read", [lambda rows: rows.X.compute(), lambda rows: rows.rows([3])])
@pytest.mark.parametrize(
    "change", [cut(0), cut(3), packed_as(b""), packed_as(HUGE), packed_as(b"\x28\xb5\x2f\xfd\0\0")]
)
@pytest.mark.parametrize("place", ["local", "remote"])
def test_shards_that_a_stranger_bound_are_refused(tmp_path, stored, change, read, place):
    """A chunk that says it has a petabyte was a MemoryError, a short shard an OSError."""
    path = tmp_path / "a.zarr"
    rewritten(path, change)
    where = path
    if place == "remote":
        where = f"memory://{tmp_path}/a.zarr"
        memory = Location.of(where)
        for file in (file for file in path.rglob("*") if file.is_file()):
            memory.write(str(file.relative_to(path)), file.read_bytes())
    with pytest.raises(DamagedStoreError, match=r"chunk 0 of array X .* is damaged"):
        read(rf.open_dataset(where))


def test_labels_that_are_not_in_the_manifest_are_no_zeros(tmp_path, stored):
    key = tmp_path / "a.zarr" / KEY
    manifest = Manifest.from_bytes(key.read_bytes())
    bound = {"X": manifest.shards["X"]}
    key.write_bytes(Manifest(manifest.n_rows, manifest.files, bound).to_bytes())
    with pytest.raises(DamagedStoreError, match="not in the manifest"):
        rf.open_dataset(tmp_path / "a.zarr").y.compute()


@pytest.mark.parametrize("named", [("default", "."), ("v2", "/"), ("v2", ".")])
@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("old", [True, False])
@pytest.mark.filterwarnings("ignore:.*without a manifest")
def test_shards_under_other_names_are_no_zeros(tmp_path, name, named, old):
    """One byte of the metadata says how shards are called; zarr takes what is not there for 0."""
    path = tmp_path / "a.zarr"
    labels = 1 + np.arange(200) % 2
    rf.ingest((np.ones((200, 4)), labels), path, block_size=2000, compressor="gzip")
    encoding = {"name": named[0], "configuration": {"separator": named[1]}}
    edit_json(path / name / "zarr.json", lambda found: found.update(chunk_key_encoding=encoding))
    if old:
        as_format_1(path)
    else:
        bind_again(path, f"{name}/zarr.json")
    with pytest.raises(DamagedStoreError, match=f"array {name} .* is damaged"):
        getattr(rf.open_dataset(path), name).compute()


def bind_again(path, *names):
    """Bind files as they are now, as whoever changed them on purpose would."""
    manifest = Manifest.from_bytes((path / KEY).read_bytes())
    files = {name: file_facts((path / name).read_bytes()) for name in names}
    bound = Manifest(manifest.n_rows, {**manifest.files, **files}, manifest.shards)
    (path / KEY).write_bytes(bound.to_bytes())


def test_rows_of_shards_that_are_wider_than_rows(tmp_path):
    """Their index has places of chunks beyond the last column, which were taken for rows of 0."""
    path, X = tmp_path / "a.zarr", np.arange(1.0, 65).reshape(16, 4)
    rf.ingest(X, path)
    shutil.rmtree(path / "X")
    array = zarr.open_group(path, mode="a").create_array(
        "X", shape=X.shape, dtype=X.dtype, chunks=(2, 4), shards=(16, 8), compressors=codecs("zstd")
    )
    array[:] = X
    sign(path, 16, 16)
    assert np.array_equal(rf.open_dataset(path).X.compute(), X)


@pytest.mark.parametrize("classes", [[1, 0], [0, float("nan")], [float("nan")], [0, 2**70]])
def test_classes_of_a_stranger_are_sorted_labels(tmp_path, classes):
    path = tmp_path / "store"
    rf.ingest((np.arange(30.0).reshape(10, 3), np.arange(10) % 2), path)
    seal_with(path, "classes", classes)
    with pytest.raises(DamagedStoreError, match=r"the metadata of .* damaged"):
        rf.open_dataset(path)


@pytest.mark.parametrize("classes", [[0], [0, 5], [1, 2]])
def test_labels_that_are_no_class_are_not_counted_as_another(tmp_path, classes):
    path = tmp_path / "store"
    rf.ingest((np.arange(30.0).reshape(10, 3), np.arange(10) % 2), path)
    seal_with(path, "classes", classes)
    with pytest.raises(DamagedStoreError, match="labels that are none of its classes"):
        rf.open_dataset(path).class_counts()


def test_several_targets_have_no_classes(tmp_path):
    path = tmp_path / "store"
    rf.ingest((np.arange(30.0).reshape(10, 3), np.arange(20.0).reshape(10, 2) + 0.5), path)
    seal_with(path, "classes", [0, 1])
    with pytest.raises(DamagedStoreError, match="several targets have no classes"):
        rf.open_dataset(path)


def test_statistics_that_are_null(tmp_path):
    path = tmp_path / "store"
    rf.ingest(np.arange(30.0).reshape(10, 3), path)
    seal_with(path, "mean", None)
    with pytest.raises(DataError, match="no column statistics"):
        rf.open_dataset(path).standardize()


@pytest.mark.filterwarnings("ignore:.*without a manifest")
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", ["X", "targets"])
def test_shards_of_more_chunks_than_they_list(tmp_path, name, old):
    """zarr counts them before it reads any: 24 GiB for a sample of ten rows."""
    path = tmp_path / "store"
    rf.ingest((np.arange(30.0).reshape(10, 3), np.arange(20.0).reshape(10, 2) + 0.5), path)
    edit_json(path / name / "zarr.json", lambda found: widen(found, 2**31))
    as_format_1(path) if old else bind_again(path, f"{name}/zarr.json")
    with pytest.raises(DamagedStoreError, match=rf"{name} declares [\d,]+ chunks in a shard"):
        rf.open_dataset(path).sample(10)


def widen(found, factor):
    found["chunk_grid"]["configuration"]["chunk_shape"][1] *= factor


@pytest.mark.parametrize("table", [3, {}, {"version": 1, "rows": 5, "columns": [{"name": "a"}]}])
def test_a_record_of_a_table_that_is_none(tmp_path, table):
    """`rfcdask predict` ended in a raw KeyError."""
    path = tmp_path / "store"
    rf.ingest(np.arange(30.0).reshape(10, 3), path)
    seal_with(path, "table", table)
    with pytest.raises(DataError, match="the record of the table's columns is damaged"):
        rf.open_dataset(path)
