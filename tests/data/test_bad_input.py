"""Each thing that can be wrong with data is named, with the place and the remedy."""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import re
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from data_helpers import CONTEXT, svmlight_text, tree_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import DamagedStoreError, DataError

GOOD = b"1 1:1 3:2\n-1 2:5\n"


def refused(tmp_path, name, content, words, **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=words) as caught:
        rf.ingest(path, tmp_path / "out.zarr", **options)
    assert "\n" not in str(caught.value)
    # Bad input leaves nothing behind that stands in the way of the next attempt.
    assert not (tmp_path / "out.zarr").exists()
    return str(caught.value)


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"1 2:3 nonsense", r"line 3: expected index:value, found 'nonsense'"),
        (b"1 2:x", r"line 3: expected a number after the colon, found 'x'"),
        (b"spam 2:1", r"line 3: expected a number as label, found 'spam'"),
        (b"1 3:1 2:1", r"line 3: indices must ascend"),
        (b"2:1 3:1", r"line 3: .*the labels are missing"),
        (b"1 2:nan", r"line 3: column 2 is nan, not a finite number: pass nan='drop'"),
        (b"nan 2:1", r"line 3: the label is nan"),
        (b"1 1:1 2:inf", r"line 3: column 2 is inf"),
    ],
)
def test_a_malformed_svmlight_line_is_named(tmp_path, ending, line, words):
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    message = refused(tmp_path, f"a.svm{ending}", pack(GOOD + line + b"\n" + GOOD), words)
    assert f"a.svm{ending}, line 3" in message


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 400), st.integers(30, 400))
def test_the_line_is_right_wherever_the_pieces_are_cut(tmp_path, monkeypatch, before, size):
    from rfcdask.data import svmlight, textfiles

    monkeypatch.setattr(
        svmlight, "plan_pieces", lambda path: textfiles.plan_pieces(path, piece_bytes=size)
    )
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 1:1\n" * before + b"1 1:oops\n" + b"1 1:1\n" * 50 + b"bad\n")
    with pytest.raises(DataError, match=rf"line {before + 1}: .*'oops'"):
        rf.ingest(path, tmp_path / "out.zarr")


def test_an_index_beyond_the_columns_is_named(tmp_path):
    text = GOOD + b"1 1:1 9:1\n"
    refused(
        tmp_path,
        "a.svm",
        text,
        r"a\.svm, line 3: '9:1' lies beyond the largest index 3",
        n_columns=3,
    )
    # Counted from 0, the largest index of three columns is 2.
    refused(
        tmp_path,
        "a.svm",
        b"1 0:1\n-1 3:1\n",
        r"line 2: '3:1' lies beyond the largest index 2",
        n_columns=3,
    )
    refused(
        tmp_path, "a.svm", b"1 1:1\n-1 0:1\n", r"line 2: .* pass zero_based=True", zero_based=False
    )


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,2", r"line 4: expected 3 fields, found 2"),
        ("1,2,0,9", r"line 4: expected 3 fields, found 4"),
        ("1,oops,0", r"line 4: expected a number in column 'b', found 'oops'"),
        ("1,,0", r"line 4: column 'b' is missing or not finite: pass nan='drop'"),
        ("1,nan,0", r"line 4: column 'b' is missing or not finite"),
        ("1,2,", r"line 4: the label is missing"),
    ],
)
def test_a_bad_csv_line_is_named(tmp_path, ending, line, words):
    text = f"a,b,y\n1,2,0\n3,4,1\n{line}\n5,6,1\n".encode()
    refused(tmp_path, f"a.csv{ending}", gzip.compress(text) if ending else text, words)


def test_blank_lines_count_as_lines(tmp_path):
    refused(tmp_path, "a.csv", "a,y\n1,0\n\n\n,1\n", r"line 5: column 'a'")


def test_a_csv_without_a_label_lists_its_columns(tmp_path):
    words = r"no column named label, target, class, y: pass label= .*'a', 'b', 'c'"
    refused(tmp_path, "a.csv", "a,b,c\n1,2,3\n4,5,6\n", words)
    refused(
        tmp_path, "a.csv", "a,b\n1,2\n3,4\n", "no column 'z': its columns are 'a', 'b'", label="z"
    )
    refused(tmp_path, "a.csv", "a,b\n1,2\n3,4\n", "no column 7", label=7)
    refused(tmp_path, "a.csv", "a,a,y\n1,2,3\n", "'a' occurs twice")
    refused(tmp_path, "a.csv", "justoneword\nanother\n", "no delimiter was found")


def test_parquet_faults_are_named(tmp_path):
    path = tmp_path / "a.parquet"
    for table, words in (
        (pa.table({"a": ["x", "y"], "y": [0, 1]}), "column 'a' holds string, where numbers belong"),
        (pa.table({"a": [1.0, None], "y": [0, 1]}), "row 1: column 0 is nan"),
        (pa.table({"a": [1, None], "y": [0, 1]}), "row 1: column 0 is nan"),
        (pa.table({"a": [1.0, 2.0], "y": ["p", None]}), "row 1: the label is missing"),
        (pa.table({"a": [1.0], "b": [2.0]}), "no column named label"),
        (pa.table({"a": pa.array([], "f8"), "y": pa.array([], "i8")}), "holds no row"),
    ):
        pq.write_table(table, path)
        with pytest.raises(DataError, match=words):
            rf.ingest(path, tmp_path / "out.zarr")
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match=r"a\.parquet is no Parquet file"):
        rf.ingest(path, tmp_path / "out.zarr")


@pytest.mark.parametrize("name", ["a.svm", "a.csv", "a.data"])
def test_an_empty_file_is_named(tmp_path, name):
    refused(tmp_path, name, b"", rf"{name} is empty")
    refused(tmp_path, name, b"\n\n\n", rf"{name} (holds|is empty)")


def test_a_header_without_rows(tmp_path):
    refused(tmp_path, "a.csv", "a,b,y\n", "holds no row below its header")
    refused(tmp_path, "a.svm", "# nothing\n", "holds no row")
    refused(tmp_path, "a.svm", "1\n-1\n", "labels only, no index:value pair")


@pytest.mark.parametrize("name", ["a.svm", "a.csv"])
def test_labels_of_one_class(tmp_path, name):
    text = {"a.svm": "1 1:1\n1 1:2\n", "a.csv": "a,y\n1,1\n2,1\n"}[name]
    refused(tmp_path, name, text, r"all labels are of one class \(1(\.0)?\): .*label=False")
    with pytest.raises(DataError, match="one class"):
        rf.ingest((np.eye(3), np.ones(3)), tmp_path / "out.zarr")
    with pytest.raises(DataError, match="one class"):
        rf.ingest(da.eye(3), tmp_path / "out.zarr", label=np.ones(3))
    (tmp_path / name).write_text(text)
    assert rf.ingest(tmp_path / name, tmp_path / "out.zarr", label=False).y is None


def test_labels_that_cannot_be_what_they_are_said_to_be(tmp_path):
    with pytest.raises(DataError, match="needs numbers, but the labels are text"):
        rf.ingest((np.eye(2), np.array(["a", "b"])), tmp_path / "a.zarr", task="regression")
    X = np.zeros((20_000, 1))
    with pytest.raises(DataError, match="more than 10000 distinct labels"):
        rf.ingest((X, np.arange(20_000)), tmp_path / "a.zarr", task="classification")
    assert rf.ingest((X, np.arange(20_000)), tmp_path / "a.zarr").attrs["task"] == "regression"


def test_lengths_of_rows_and_labels_must_agree(tmp_path):
    words = "X has 3 rows but y has 2 labels"
    for source in ((np.eye(3), [0, 1]), (da.eye(3), da.arange(2)), (da.eye(3), [0, 1])):
        with pytest.raises(DataError, match=words):
            rf.ingest(source, tmp_path / "out.zarr")
    np.save(tmp_path / "X.npy", np.eye(3))
    np.save(tmp_path / "t.npy", np.arange(4))
    with pytest.raises(DataError, match=r"X\.npy has 3 rows but .*t\.npy has 4 labels"):
        rf.ingest(tmp_path / "X.npy", tmp_path / "out.zarr", label=tmp_path / "t.npy")
    group = zarr.create_group(tmp_path / "in.zarr")
    group.create_array("X", data=np.eye(3))
    group.create_array("y", data=np.arange(5))
    with pytest.raises(DataError, match=r"has 3 rows but .* has 5 labels"):
        rf.ingest(tmp_path / "in.zarr", tmp_path / "out.zarr")


@pytest.mark.parametrize("kind", ["numpy", "npy", "zarr", "dask", "csr"])
def test_values_that_are_not_finite_are_refused_or_dropped(tmp_path, kind):
    from scipy import sparse

    X = np.random.default_rng(0).standard_normal((50, 3)) + 10
    X[7, 2], X[30, 0] = np.nan, np.inf
    y = (np.arange(50) % 2).astype(float)
    y[31] = np.nan
    source = {"numpy": X, "dask": da.from_array(X, chunks=(9, 2)), "csr": sparse.csr_matrix(X)}.get(
        kind
    )
    if kind == "npy":
        np.save(tmp_path / "X.npy", X)
        source = tmp_path / "X.npy"
    if kind == "zarr":
        zarr.save_array(tmp_path / "X.zarr", X)
        source = tmp_path / "X.zarr"
    options = {"label": y, "block_size": 400}
    with pytest.raises(DataError, match=r"row (7: column 2 is nan|31: the label is missing)"):
        rf.ingest(source, tmp_path / "out.zarr", **options)
    ds = rf.ingest(source, tmp_path / "drop.zarr", nan="drop", **options)
    keep = np.isfinite(X).all(axis=1) & np.isfinite(y)
    assert np.array_equal(ds.X.compute(), X[keep])
    assert np.array_equal(ds.y.compute(), y[keep])
    assert ds.attrs["dropped_rows"] == 3
    assert ds.attrs["n_rows"] == 47


def test_bad_values_of_a_lazy_array_are_found_while_writing(tmp_path):
    X = np.ones((50, 2))
    X[33, 1] = np.inf
    with pytest.raises(DataError, match="row 33: column 1 is inf"):
        rf.ingest(da.from_array(X, chunks=(7, 2)), tmp_path / "out.zarr", block_size=160)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sets(st.integers(0, 59), max_size=59), st.sampled_from(["svm", "svm.gz", "csv"]))
def test_dropped_rows_are_the_bad_ones_and_no_others(tmp_path, bad, ending):
    X = np.arange(120.0).reshape(60, 2) + 1
    text = X.astype(object)
    for row in bad:
        text[row, row % 2] = "nan"
    if ending == "csv":
        lines = "".join(f"{a},{b},{i % 2}\n" for i, (a, b) in enumerate(text))
        content = ("a,b,y\n" + lines).encode()
    else:
        content = "".join(f"{i % 2} 1:{a} 2:{b}\n" for i, (a, b) in enumerate(text)).encode()
        content = gzip.compress(content) if ending.endswith("gz") else content
    path = tmp_path / f"a.{ending}"
    path.write_bytes(content)
    keep = np.array([i for i in range(60) if i not in bad])
    shutil.rmtree(tmp_path / "out.zarr", ignore_errors=True)
    if len(set((keep % 2).tolist())) < 2:
        with pytest.raises(DataError, match=r"of one class|every row"):
            rf.ingest(path, tmp_path / "out.zarr", nan="drop", block_size=200)
        return
    ds = rf.ingest(path, tmp_path / "out.zarr", nan="drop", block_size=200)
    assert np.array_equal(ds.X.compute(), X[keep])
    assert np.array_equal(ds.y.compute(), keep % 2)
    assert ds.attrs["dropped_rows"] == len(bad)


def test_arrays_that_are_no_rows_of_numbers(tmp_path):
    for X, words in (
        (np.arange(3), "has shape"),
        (np.empty((0, 3)), "has shape"),
        (np.empty((3, 0)), "has shape"),
        (np.array([["a"], ["b"]]), "where numbers belong"),
        (np.ones((2, 2), complex), "where numbers belong"),
    ):
        with pytest.raises(DataError, match=words):
            rf.ingest(X, tmp_path / "out.zarr")
    with pytest.raises(DataError, match="one label a row"):
        rf.ingest((np.eye(2), np.eye(2)), tmp_path / "out.zarr")


def test_npz_and_zarr_groups_name_their_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.eye(3), other=np.arange(3))
    with pytest.raises(DataError, match="no array named X: its arrays are features, other"):
        rf.ingest(tmp_path / "a.npz", tmp_path / "out.zarr")
    np.savez(tmp_path / "a.npz", X=np.eye(3), other=np.arange(3))
    with pytest.raises(DataError, match="which array holds the labels"):
        rf.ingest(tmp_path / "a.npz", tmp_path / "out.zarr")
    assert rf.ingest(tmp_path / "a.npz", tmp_path / "b.zarr", label="other").classes.tolist() == [
        0,
        1,
        2,
    ]


def test_arguments_are_checked(tmp_path):
    for options, words in (
        ({"format": "xml"}, "format='xml'"),
        ({"task": "ranking"}, "task='ranking'"),
        ({"nan": "ignore"}, "nan='ignore'"),
        ({"scale": 0}, "scale=0"),
        ({"compressor": "zip"}, "compressor='zip'"),
        ({"block_size": 0}, "block_size=0"),
        ({"project": 0}, "project=0"),
    ):
        with pytest.raises(DataError, match=words):
            rf.ingest(np.eye(3), tmp_path / "out.zarr", overwrite=True, **options)
    with pytest.raises(DataError, match="does not exist"):
        rf.ingest(tmp_path / "nothing.svm", tmp_path / "out.zarr")
    with pytest.raises(DataError, match="no file matches"):
        rf.ingest(str(tmp_path / "*.svm"), tmp_path / "out.zarr")


def test_values_that_a_type_cannot_hold(tmp_path):
    X = np.array([[1.0], [300.0], [2.5]])
    with pytest.raises(
        DataError, match=r"row 1: column 0 is 300\.0, which dtype=uint8 cannot hold"
    ):
        rf.ingest(X, tmp_path / "a.zarr", dtype="u1")
    with pytest.raises(DataError, match="dtype=float16 cannot hold"):
        rf.ingest(X * 1e6, tmp_path / "b.zarr", dtype="f2")


def test_a_packed_file_that_is_cut_short(tmp_path):
    whole = gzip.compress(svmlight_text(np.random.default_rng(0).random((5000, 4)), [0, 1] * 2500))
    refused(tmp_path, "a.svm.gz", whole[: len(whole) // 2], "cut short or damaged")


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


def test_other_failures_of_the_disk_pass_through(tmp_path):
    from rfcdask.data.location import Location
    from rfcdask.data.write import destination_errors

    with pytest.raises(OSError, match="odd"), destination_errors(Location.of(tmp_path)):
        raise OSError(errno.EIO, "odd")


@pytest.fixture
def stored(tmp_path):
    X = np.random.default_rng(0).standard_normal((1000, 4))
    return rf.ingest((X, np.arange(1000) % 2), tmp_path / "a.zarr", block_size=8000)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damaged_byte_is_seen(tmp_path, stored, data):
    shards = sorted((tmp_path / "a.zarr").glob("[Xy]/c/**/*"))
    shards = [shard for shard in shards if shard.is_file()]
    shard = data.draw(st.sampled_from(shards))
    whole = shard.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    shard.write_bytes(whole[:place] + flipped + whole[place + 1 :])
    try:
        array = stored.X if shard.relative_to(tmp_path / "a.zarr").parts[0] == "X" else stored.y
        with pytest.raises(DamagedStoreError, match=r"chunk|shard"):
            array.compute(scheduler="sync")
    finally:
        shard.write_bytes(whole)
    stored.X.compute()


def test_a_damaged_chunk_is_named(tmp_path, stored):
    shard = tmp_path / "a.zarr/X/c/2/0"
    layout = stored.reader
    whole = bytearray(shard.read_bytes())
    whole[len(whole) // 2] ^= 1
    shard.write_bytes(whole)
    with pytest.raises(DamagedStoreError) as caught:
        stored.X.compute()
    first = 2 * layout.block_rows
    found = re.search(
        r"chunk (\d+) of array X \(rows (\d+) to (\d+), in shard 2\)", str(caught.value)
    )
    chunk, start, stop = map(int, found.groups())
    assert start == chunk * layout.run_rows
    assert first <= start <= stop < first + layout.block_rows
    with pytest.raises(DamagedStoreError, match=f"chunk {chunk} of array X"):
        stored.rows([start])
    # Rows of other chunks can still be fetched.
    other = first if start != first else first + layout.block_rows - 1
    assert stored.rows([other]).X.shape == (1, 4)


def test_a_lost_shard_is_not_taken_for_zeros(tmp_path, stored):
    (tmp_path / "a.zarr/X/c/1/0").unlink()
    with pytest.raises(DamagedStoreError, match=r"shard 1 of array X \(rows .*\) is missing"):
        stored.X.compute()
    shard = tmp_path / "a.zarr/y/c/0"
    shard.write_bytes(shard.read_bytes()[:-7])
    with pytest.raises(DamagedStoreError, match="array y"):
        stored.y.compute()


def test_faults_are_named_through_a_cluster_too(tmp_path, cluster):
    (tmp_path / "a.svm").write_bytes(GOOD * 100 + b"1 1:oops\n")
    with pytest.raises(DataError, match=r"a\.svm, line 201: .*'oops'"):
        rf.ingest(tmp_path / "a.svm", tmp_path / "out.zarr", client=cluster)
    X = np.ones((50, 2))
    X[33, 1] = np.inf
    with pytest.raises(DataError, match="row 33: column 1 is inf"):
        rf.ingest(
            da.from_array(X, chunks=(7, 2)), tmp_path / "b.zarr", block_size=160, client=cluster
        )


def test_svmlight_has_its_label_first(tmp_path):
    refused(tmp_path, "a.svm", GOOD, "label='y': svmlight lines begin with their label", label="y")


def test_the_number_of_columns_must_be_the_one_that_was_said(tmp_path):
    with pytest.raises(DataError, match="X has 3 columns, but n_columns=4"):
        rf.ingest(np.eye(3), tmp_path / "a.zarr", n_columns=4)
