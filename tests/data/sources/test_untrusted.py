"""Files from strangers run no code, take bounded memory and time, and fail in one sentence."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from data_helpers import refused

import rfcdask as rf
from rfcdask.data import DataError, sources
from rfcdask.data.sources import svmlight, tables, text
from rfcdask.data.sources.base import BATCH_BYTES
from rfcdask.data.sources.dialect import sniff
from rfcdask.data.sources.parquet import read_parquet

X = np.arange(40.0).reshape(10, 4)
Y = np.arange(10) % 2
# As much as it says was read: 1 MB of packed spaces took 3 GB.
LONG_HEADER = b"\x93NUMPY\x02\x00" + (2**17).to_bytes(4, "little") + b" " * 2**17
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a zarr array whose chunk is a pickle, where numcodecs would decode it."""
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True)
    array = tmp_path / "y.zarr"
    array.mkdir()
    codecs = {"filters": [{"id": "vlen-utf8"}], "compressor": {"id": "pickle", "protocol": 4}}
    about = {"zarr_format": 2, "shape": [10], "chunks": [10], "dtype": "|O", "fill_value": ""}
    (array / ".zarray").write_text(json.dumps(about | {"order": "C"} | codecs))
    (array / "0").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    return array


def test_the_payload_is_alive(pickled: Path) -> None:
    with pytest.raises(TypeError):
        zarr.open_array(pickled, mode="r")[:]
    assert (pickled.parent / "ran").exists()


@pytest.mark.parametrize("way", ["label path", "label array", "source", "member", "in memory"])
def test_no_pickle_in_zarr_is_decoded(pickled: Path, way: str) -> None:
    folder = pickled.parent
    source: Any = X
    label: Any = str(pickled)
    if way == "label array":
        label = zarr.open_array(pickled, mode="r")
    elif way == "source":
        source, label = pickled, None
    elif way == "in memory":
        source, label = zarr.open_array(pickled, mode="r"), None
    elif way == "member":
        group = zarr.open_group(folder / "g.zarr", mode="w", zarr_format=2)
        group.create_array("X", data=X)
        pickled.rename(folder / "g.zarr" / "y")
        source, label = folder / "g.zarr", None
    with pytest.raises(DataError, match="packed with 'pickle', which is not read"):
        rf.ingest(source, folder / "out.zarr", label=label)
    assert not (folder / "ran").exists()


def test_zarr_of_format_2_and_text_labels_is_read(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=2)
    group.create_array("X", data=X, chunks=(3, 2))
    group.create_array("y", data=np.array(["a", "bb"], "T")[Y], chunks=(4,))
    found = rf.ingest(tmp_path / "g.zarr", tmp_path / "out.zarr")
    np.testing.assert_array_equal(found.X.compute(), X)
    np.testing.assert_array_equal(found.y.compute(), np.array(["a", "bb"])[Y])


@pytest.mark.parametrize("number", [2, 3])
def test_a_blosc_chunk_that_is_cut_short_is_named(tmp_path: Path, number: int) -> None:
    codec: Any = zarr.codecs.BloscCodec()
    if number == 2:
        import numcodecs

        codec = numcodecs.Blosc()
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=X, compressors=[codec], zarr_format=number, chunks=(5, 4))
    chunk = path / ("1.0" if number == 2 else "c/1/0")
    chunk.write_bytes(chunk.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"a\.zarr is no array of rows, .*a chunk has"):
        rf.ingest(path, tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": [10**12, 4]}, r"declares 32,000,000,000,000 bytes where [\d,]+ are stored"),
        ({"shape": [10**9, 4], "chunks": [10**9, 4]}, "most that is read is 536,870,912"),
        ({"chunks": [0, 4]}, "its chunks are empty"),
        ({"dtype": "<M8[s]", "fill_value": 0}, "holds datetime64"),
        ({"filters": [{"id": "json2"}]}, "no zarr"),
    ],
)
def test_absurd_zarr_metadata_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=X, zarr_format=2, chunks=(5, 4))
    about = json.loads((tmp_path / "a.zarr/.zarray").read_text())
    (tmp_path / "a.zarr/.zarray").write_text(json.dumps(about | change))
    with pytest.raises(DataError, match=words) as caught:
        rf.ingest(tmp_path / "a.zarr", tmp_path / "out.zarr")
    assert "\n" not in str(caught.value)


def test_empty_shards_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(5, 4), shards=(10, 4))
    about = json.loads((tmp_path / "a.zarr/zarr.json").read_text())
    about["chunk_grid"]["configuration"]["chunk_shape"] = [0, 4]
    (tmp_path / "a.zarr/zarr.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match=r"a\.zarr is not read: its chunks are empty"):
        rf.ingest(tmp_path / "a.zarr", tmp_path / "out.zarr")


@pytest.mark.parametrize("name", ["a.svm", "a.svm.xz", "a.data.gz"])
def test_text_without_line_ends_is_not_read_on(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "LINE_BYTES", 2**20)
    monkeypatch.setattr(text, "PIECE_BYTES", 2**18)
    pack = PACK.get(Path(name).suffix, bytes)
    refused(tmp_path, name, pack(b"1 " * 2**22), "a line of more than 1 MB, the most that")


@pytest.mark.parametrize("mark", [" ", "\t"])
@pytest.mark.parametrize(("pair", "kind"), [("{}:1.5", "svmlight"), ("{}", "csv")])
def test_the_format_is_told_by_the_head_of_a_long_line(tmp_path, monkeypatch, mark, pair, kind):
    """To match all of one with 15,000,000 pairs, 60 kB as gz, took 6 GB."""
    longest = []
    real = sources._PAIR
    match = SimpleNamespace(match=lambda line: longest.append(len(line)) or real.match(line))
    monkeypatch.setattr(sources, "_PAIR", match)
    (tmp_path / "a").write_text(mark.join(["1", *(pair.format(i) for i in range(10**5))]) + "\n")
    assert sources.detect_format(str(tmp_path / "a")) == kind
    assert max(longest, default=0) <= 2**16


def test_packed_zeros_stop_at_the_limit(tmp_path):
    path = tmp_path / "a.svm.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(bytes(2**20))
    with pytest.raises(DataError, match="a line of more than 64 MB"):
        rf.ingest(path, tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"1," * 3 * 2**20, "a line of more than 4 MB, the most that is read of a table"),
        (b"a,label\n1,0\n" + b"1," * 3 * 2**20, "line 3: expected 2 fields, found 3145729"),
        (b'a,label\n1,0\n"' + b"x" * 5 * 2**20, r"line 3: field larger than .*: fix the line"),
        (b"1," * 150_000 + b"1\n", "150,001 columns, and at most 100,000 are read of a table"),
    ],
)
def test_absurdly_wide_tables_are_refused(tmp_path, text, words):
    refused(tmp_path, "a.csv", text, words, label=0)


def test_a_table_of_many_columns_is_read(tmp_path):
    names = ",".join(f"column{i}" for i in range(30_000))
    (tmp_path / "a.csv").write_text(f"label,{names}\n0{',1' * 30_000}\n1{',2' * 30_000}\n")
    dialect, found = sniff(str(tmp_path / "a.csv"))
    assert (dialect.delimiter, dialect.header, len(found)) == (",", True, 30_001)


def test_one_large_index_is_no_width(tmp_path, monkeypatch):
    text = "1 1:1 1000000:2\n-1 2:5\n"
    refused(tmp_path, "a.svm", text, "rows of 1,000,000 columns, and more than 100,000 are not")
    monkeypatch.setattr(svmlight, "WIDEST", 5000)
    wide = 5001
    text = f"1 1:1 {wide}:2\n-1 2:5\n"
    words = rf"rows of 5,001 columns, .* pass project= .* or n_columns={wide}"
    refused(tmp_path, "a.svm", text, words)
    shorter = rf.ingest(tmp_path / "a.svm", tmp_path / "p.zarr", project=3, random_state=0)
    assert shorter.shape == (2, 3)
    assert rf.ingest(tmp_path / "a.svm", tmp_path / "n.zarr", n_columns=wide).shape == (2, wide)
    text = "1 1:1 2000000000:2\n-1 2:5\n"
    refused(tmp_path, "a.svm", text, "at most 50,000,000 are read", project=3)


def npy(shape: tuple[int, ...], body: bytes, descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    about = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue() + body


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npy((10**10, 4), bytes(64)), "no .npy file of numbers or text"),
        (npy((2, 4), bytes(64), "|O"), r"a\.npy holds Python objects: write it with .astype"),
        (npy((2, 2), bytes(64), "<f16"), "holds float128"),
        (npy((2, 2), bytes(64))[:40], "no .npy file"),
        (b"\x93NUMPY\x01\x00\x08\x00{'a': (\n", "no .npy file"),
        (npz(**{"X.npy": npy((2, 4), bytes(64))}), "no .npy file"),
        (LONG_HEADER, "expected 131072 bytes got 65524"),
    ],
)
def test_damaged_npy_files_are_named(tmp_path, content, words):
    refused(tmp_path, "a.npy", content, words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npz(**{"X.npy": npy((10**10, 4), bytes(64))}), "320,000,000,000 bytes are declared, 192"),
        (npz(**{"X.npy": npy((2, 4), bytes(2**24))}), "64 bytes are declared, 16,777,344 are"),
        (npz(**{"X.npy": npy((2, 4), bytes(64), "|O")}), r"npz\[X\] holds Python objects: write"),
        (npz(**{"X.npy": npy((2, 4), bytes(64)), "X": b""}), "two arrays of the same name"),
        (b"GIF8" + npz(**{"X.npy": npy((2, 4), bytes(64))}), "does not begin with an array"),
        (npz(**{"X.npy": npy((2, 4), bytes(64))})[:-30], "no .npz archive"),
        (b"no archive", "no .npz archive"),
        (npz(**{"X.npy": b"\x93NUMPX" + bytes(64)}), "is no .npy file"),
        (npz(**{"X.npy": LONG_HEADER}), "expected 131072 bytes got 65524"),
    ],
)
def test_damaged_npz_files_are_named(tmp_path, content, words):
    refused(tmp_path, "a.npz", content, words)


@pytest.mark.parametrize("name", ["a.npz", "a.csv.zip"])
@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_are_packed_by_deflate(tmp_path, name, method):
    """Other decoders unpack all at once: 2 kB of zeros took 4 GB."""
    source = tmp_path / name
    with zipfile.ZipFile(source, "w", method) as archive:
        archive.writestr("X.npy", npy((2, 4), bytes(64)))
        archive.writestr("a.csv", "a,y\n1,2\n")
    with pytest.raises(DataError, match=r"X\.npy is not packed by deflate"):
        rf.ingest(source, tmp_path / "b.zarr", label=False)


def test_an_array_in_npz_leads_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp" / "deep"))
    (tmp_path / "tmp" / "deep").mkdir(parents=True)
    content = npz(**{"../../../stolen.npy": npy((2, 4), bytes(64))})
    (tmp_path / "a.npz").write_bytes(content)
    rf.ingest(tmp_path / "a.npz", tmp_path / "out.zarr", label=False)
    assert not list(tmp_path.rglob("stolen*"))


@pytest.mark.parametrize("name", ["a.svm", "a.csv"])
@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("damage", ["middle", "short", "start", "none"])
def test_damaged_packed_text_is_named(tmp_path, name, ending, damage):
    rows = [f"{i % 2} 1:{i}" if name == "a.svm" else f"{i % 2},{i * i},{i}" for i in range(999)]
    content = PACK[ending]("\n".join(rows).encode())
    half = len(content) // 2
    content = {
        "middle": content[:half] + bytes(20) + content[half + 20 :],
        "short": content[:half],
        "start": b"\x00" + content[1:],
        "none": b"this was never packed",
    }[damage]
    words = "cut short or damaged" if damage != "none" or name == "a.csv" else "a.svm"
    refused(tmp_path, name + ending, content, words, label=0 if name == "a.csv" else None)


def test_damaged_parquet_pages_are_named(tmp_path):
    import pandas as pd

    pd.DataFrame(X).assign(label=Y).rename(columns=str).to_parquet(tmp_path / "a.parquet")
    good = (tmp_path / "a.parquet").read_bytes()
    refused(tmp_path, "a.parquet", good[:4] + b"\xff" * 60 + good[64:], "damaged or is cut short")
    refused(tmp_path, "a.parquet", good[: len(good) // 2], "damaged or is cut short")


@pytest.mark.parametrize("kind", ["<M8[s]", "<c16", "|V8"])
def test_labels_that_are_no_labels_are_refused(tmp_path, kind):
    np.save(tmp_path / "y.npy", np.zeros(10, kind))
    with pytest.raises(DataError, match="labels are numbers or text"):
        rf.ingest(X, tmp_path / "out.zarr", label=str(tmp_path / "y.npy"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["zarr.json", "manifest/zarr.json", "X/zarr.json", "X/c/0/0"])
def test_a_pipe_in_a_store_is_refused_and_not_waited_for(tmp_path, name):
    rf.ingest(X, tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / name).unlink()
    os.mkfifo(tmp_path / "a.zarr" / name)
    with pytest.raises(DataError, match=r"no zarr v3 group|damaged"):
        rf.open_dataset(tmp_path / "a.zarr")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["zarr.json", "c/0/0"])
def test_a_pipe_in_a_zarr_source_is_refused_too(tmp_path, name):
    zarr.create_array(str(tmp_path / "x.zarr"), data=X)
    (tmp_path / "x.zarr" / name).unlink()
    os.mkfifo(tmp_path / "x.zarr" / name)
    with pytest.raises(DataError, match=r"no plain file|no zarr array"):
        rf.ingest(tmp_path / "x.zarr", tmp_path / "a.zarr")


@pytest.mark.parametrize(("version", "name"), [(2, "0.0"), (3, "c/0/0")])
def test_a_chunk_behind_a_broken_link_is_not_taken_for_zeros(tmp_path, version, name):
    """As git-annex leaves it where the file was not fetched."""
    zarr.create_array(str(tmp_path / "x.zarr"), data=X, zarr_format=version)
    (tmp_path / "x.zarr" / name).unlink()
    (tmp_path / "x.zarr" / name).symlink_to("annex/not-here")
    with pytest.raises(DataError, match=f"{name} is a link that leads nowhere"):
        rf.ingest(tmp_path / "x.zarr", tmp_path / "a.zarr")


@pytest.mark.parametrize(
    ("version", "name", "what"),
    [
        (2, "0.0", "a folder"),
        (3, "c/0/0", "a folder"),
        (3, "c/0", "a file"),
        (3, "c/0", "a link that leads nowhere"),
        (3, "c", "a link that leads nowhere"),
    ],
)
def test_a_chunk_or_its_folder_of_another_kind_is_not_taken_for_zeros(
    tmp_path, version, name, what
):
    zarr.create_array(str(tmp_path / "x.zarr"), data=X, zarr_format=version)
    place = tmp_path / "x.zarr" / name
    place.unlink() if what == "a folder" else shutil.rmtree(place)
    if what == "a folder":
        place.mkdir()
    elif what == "a file":
        place.write_text("")
    else:
        place.symlink_to("not/mounted")
    with pytest.raises(DataError, match=f"{name} is {what}"):
        rf.ingest(tmp_path / "x.zarr", tmp_path / "a.zarr")


@pytest.mark.parametrize("columns", [["a", "label"], ["a", "town", "label"]])
def test_checksums_of_parquet_pages_are_compared(tmp_path, columns):
    """A changed bit of a number is another number; only the checksum tells."""
    rows = {"a": np.arange(500) + 0.25, "town": ["ulm", "bonn"] * 250, "label": [0, 1] * 250}
    table = pa.table({name: rows[name] for name in columns})
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, tmp_path / "good.parquet", **plain)
    data = bytearray((tmp_path / "good.parquet").read_bytes())
    assert rf.ingest(tmp_path / "good.parquet", tmp_path / "good.zarr").shape[0] == 500
    data[data.index(np.float64(100.25).tobytes()) + 6] ^= 1
    refused(tmp_path, "a.parquet", bytes(data), "damaged or is cut short")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "a.csv", "a"])
def test_pipes_keep_nobody_waiting(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=r"is a pipe or a device .*: write it to a file first"):
        rf.ingest(tmp_path / name, tmp_path / "store")


def test_more_columns_than_memory_has_room_for(tmp_path):
    """A sparse file of a few bytes may declare any number of columns, and so may a store."""
    parts = {"data": np.ones(4), "indices": np.arange(4), "indptr": np.arange(5)}
    for width in (10**7, 10**12):
        shape = np.array([4, width])
        np.savez(tmp_path / f"{width}.npz", **parts, shape=shape, format=np.array(b"csr"))
    with pytest.raises(DataError, match="a linear model of 1,000,000,000,000 columns takes"):
        rf.ingest(tmp_path / f"{10**12}.npz", tmp_path / "wide.zarr", label=False)
    store = tmp_path / "store.zarr"
    assert rf.ingest(tmp_path / f"{10**7}.npz", store, label=False).shape == (4, 10**7)


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "string_view", "binary", "binary_view", "dictionary"]
)
def test_texts_that_a_parquet_file_has_once_are_not_all_written_out_at_once(tmp_path, kind):
    import pyarrow as pa
    from pyarrow import parquet

    n, texts = 999, pa.array(["x" * 10**5, "é"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None] * 333, pa.int32()), texts)
    stored = column if kind == "dictionary" else column.dictionary_decode().cast(kind)
    try:
        parquet.write_table(pa.table({"a": np.arange(n), "b": stored}), tmp_path / "a.parquet")
    except NotImplementedError as error:  # the oldest versions neither write nor read views
        pytest.skip(str(error))
    parts = list(read_parquet(str(tmp_path / "a.parquet"), ["a", "b"], n))
    assert max(part.nbytes for part in parts) < 2 * BATCH_BYTES
    whole = pa.Table.from_batches(parts)
    assert whole.schema.field("b").type == stored.type
    assert whole.column("a").to_pylist() == list(range(n))
    assert whole.column("b").to_pylist() == stored.to_pylist()


def test_rows_that_a_parquet_file_declares_and_hardly_stores(tmp_path, monkeypatch):
    """One value and how often it occurs: 217 bytes were read for minutes, 80 kB would take days."""
    pq.write_table(pa.table({"a": np.ones(10**5), "b": np.ones(10**5)}), tmp_path / "a.parquet")
    assert len(rf.ingest(tmp_path / "a.parquet", tmp_path / "a.zarr", label=False).X) == 10**5
    monkeypatch.setattr("rfcdask.persist.chunks._SMALL", 10**6)
    monkeypatch.setattr("rfcdask.persist.chunks.MOST_EXPANSION", 100)
    with pytest.raises(DataError, match=r"a\.parquet is no .*it declares 1,600,000 bytes"):
        rf.ingest(tmp_path / "a.parquet", tmp_path / "b.zarr", label=False)


def test_bytes_of_a_fixed_length_are_read_in_small_batches(tmp_path):
    """2,000,000 labels of 1000 bytes, 600 kB, took 4 GB."""
    n, size = 999, 10**5
    column = pa.array([b"a" * size, b"b" * size], pa.binary(size)).take(np.arange(n) % 2)
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    parts = list(read_parquet(str(tmp_path / "a.parquet"), ["a"], n))
    assert sum(len(part) for part in parts) == n
    assert max(len(part) for part in parts) * size <= 8 * BATCH_BYTES


def test_rows_of_long_texts_are_read_in_small_batches(tmp_path, monkeypatch):
    asked = []
    real = pq.ParquetFile.iter_batches
    spied = lambda self, rows, **more: asked.append(rows) or real(self, rows, **more)  # noqa: E731
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spied)
    texts = [f"{i}" * 10**5 for i in range(200)]
    pq.write_table(pa.table({"a": texts}), tmp_path / "a.parquet", use_dictionary=False)
    found = pa.Table.from_batches(read_parquet(str(tmp_path / "a.parquet"), ["a"], 10**6))
    assert found.column("a").to_pylist() == texts
    assert max(asked) * 10**5 <= 8 * BATCH_BYTES


def test_columns_that_are_left_out_or_refused_are_not_read(tmp_path, monkeypatch):
    """A row may have 10**9 values in a list, in a file of 1 kB."""
    read = []
    real = tables.read_parquet
    spied = lambda path, names, rows: read.append(names) or real(path, names, rows)  # noqa: E731
    monkeypatch.setattr(tables, "read_parquet", spied)
    table = {"a": [[0.0] * 9] * 10, "b": ["x", "y"] * 5, "c": [b"xyz"] * 10, "label": Y}
    table["c"] = pa.array(table["c"], pa.binary(3))
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"column 'a' holds list<.*column 'c' holds fixed_size"):
        rf.ingest(tmp_path / "a.parquet", tmp_path / "b.zarr")
    assert not read
    kinds = {"a": "drop", "c": "drop"}
    assert rf.ingest(tmp_path / "a.parquet", tmp_path / "b.zarr", columns=kinds).shape == (10, 2)
    assert {"b"} <= set().union(*read) <= {"b", "label"}


@pytest.mark.timeout(60)
def test_bytes_that_are_no_text_far_down_a_parquet_file(tmp_path):
    # The first rows tell the kind, and spaces are looked for at the ends of a text alone.
    values = [b"a%d" % (n % 3) for n in range(3000)]
    values[2500] = b"a\xffb"
    text = pa.Array.from_buffers(pa.string(), 3000, pa.array(values, pa.binary()).buffers())
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"city": text, "y": np.arange(3000) % 2}), path)
    words = "a.parquet, row 2500: expected text in column 'city', found 'string'"
    with pytest.raises(DataError, match=words):
        rf.ingest(path, tmp_path / "a.zarr", label="y", progress=False)


@pytest.mark.parametrize("nested", [True, False])
def test_a_column_of_tensors_can_be_left_out(tmp_path, nested):
    column: Any = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((10, 2, 2)))
    column = pa.StructArray.from_arrays([column], ["t"]) if nested else column
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": column, "city": ["a", "b"] * 5, "y": Y}), path)
    with pytest.raises(DataError, match=r"leave such columns out with columns=\{'t': 'drop'\}"):
        rf.ingest(path, tmp_path / "a.zarr", label="y", progress=False)
    made = rf.ingest(path, tmp_path / "a.zarr", label="y", columns={"t": "drop"}, progress=False)
    assert made.shape == (10, 2)


def test_a_pipe_that_takes_the_place_of_a_parquet_file(tmp_path):
    os.mkfifo(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet is no plain file"):
        next(read_parquet(str(tmp_path / "a.parquet"), ["a"], 5))
