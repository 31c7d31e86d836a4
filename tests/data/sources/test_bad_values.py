"""Labels, lengths, values and arguments that cannot be are refused by name."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import os
import shutil
import threading

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from data_helpers import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.sources import detect_format, expand
from rfcdask.data.sources.base import Labels
from rfcdask.persist.files import DestinationError


def test_parquet_faults_are_named(tmp_path):
    path = tmp_path / "a.parquet"
    for table, words in (
        (pa.table({"a": [[0], [1]], "y": [0, 1]}), "column 'a' holds list"),
        (pa.table({"a": [1.0, None], "y": [0, 1]}), "row 1: column 0 is nan"),
        (pa.table({"a": [1, None], "y": [0, 1]}), "row 1: column 0 is nan"),
        (pa.table({"a": ["x", None], "y": [0, 1]}), "row 1: column 'a' has no value"),
        (pa.table({"a": [1.0, 2.0], "y": ["p", None]}), "row 1: the label is missing"),
        (pa.table({"a": [1.0], "b": [2.0]}), "no column named label"),
        (pa.table({"a": pa.array([], "f8"), "y": pa.array([], "i8")}), "holds no row"),
    ):
        pq.write_table(table, path)
        with pytest.raises(DataError, match=words):
            rf.ingest(path, tmp_path / "out.zarr", nan="raise")
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match=r"a\.parquet is no Parquet file"):
        rf.ingest(path, tmp_path / "out.zarr")


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
    with pytest.raises(DataError, match="give one label, or pass task='regression'"):
        rf.ingest((np.eye(2), np.eye(2)), tmp_path / "out.zarr")


@pytest.mark.skipif(np.longdouble(0).itemsize == 8, reason="longdouble is float64 here")
@pytest.mark.parametrize("lazy", [False, True])
def test_labels_wider_than_float64(tmp_path, lazy):
    X, y = np.ones((20, 3)), (np.arange(20) % 2).astype(np.longdouble)
    pair = (da.from_array(X), da.from_array(y)) if lazy else (X, y)
    with pytest.raises(DataError, match=r"y holds .*: use y.astype\(float\)"):
        rf.ingest(pair, tmp_path / "a.zarr")
    assert list(rf.ingest((X, y.astype(float)), tmp_path / "a.zarr").classes) == [0, 1]


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


def test_the_number_of_columns_must_be_the_one_that_was_said(tmp_path):
    with pytest.raises(DataError, match="X has 3 columns, but n_columns=4"):
        rf.ingest(np.eye(3), tmp_path / "a.zarr", n_columns=4)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("text", [False, True])
def test_masked_values_and_labels_are_missing(tmp_path, lazy, text):
    X = np.ma.masked_equal(np.arange(60.0).reshape(30, 2), 12.0)
    y = np.ma.array(np.array(["a", "b"])[np.arange(30) % 2] if text else np.arange(30) % 2)
    y[9] = np.ma.masked
    pair = (da.from_array(X, chunks=(10, 2)), da.from_array(y, chunks=10)) if lazy else (X, y)
    for bad in (pair, (pair[0], np.arange(30) % 2), (X.data, pair[1])):
        with pytest.raises(DataError, match=r"not a finite number|label is missing"):
            rf.ingest(bad, tmp_path / "bad.zarr", overwrite=True)
    found = rf.ingest(pair, tmp_path / "a.zarr", nan="drop")
    kept = np.delete(np.arange(30), [6, 9])
    assert np.array_equal(found.X.compute(), X.data[kept])
    assert np.array_equal(found.y.compute(), y.data[kept])


def test_bytes_as_labels_that_are_no_text_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(4), y=np.array([b"\xff", b"a"] * 2))
    with pytest.raises(DataError, match=r"numpy.char.decode"):
        rf.ingest(tmp_path / "a.npz", tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["a.csv", "a.svm"])
def test_classes_that_float64_would_join_are_refused(tmp_path, name):
    line = "{i},{y}" if name == "a.csv" else "{y} 1:{i}"
    rows = [line.format(i=i, y=2**53 + i % 4) for i in range(20)]
    rows = ["a,label", *rows] if name == "a.csv" else rows
    refused(tmp_path, name, "\n".join(rows).encode(), "cannot be told from its neighbours")
    assert rf.ingest(tmp_path / name, tmp_path / "r.zarr", task="regression").classes is None


def test_remedies_after_the_first_rows_work_as_they_are_said(tmp_path):
    X = np.arange(60.0).reshape(30, 2) * 10
    with pytest.raises(DataError, match="another dtype, and overwrite=True"):
        rf.ingest(X, tmp_path / "a.zarr", dtype="int8")
    assert rf.ingest(X, tmp_path / "a.zarr", dtype="int16", overwrite=True).X.dtype == np.int16
    X[20, 0] = np.nan
    lazy = da.from_array(X, chunks=(10, 2))
    with pytest.raises(DataError, match="pass nan='drop', and overwrite=True"):
        rf.ingest(lazy, tmp_path / "b.zarr")
    assert len(rf.ingest(lazy, tmp_path / "b.zarr", nan="drop", overwrite=True)) == 29


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "the source is None: give a path or a URL"),
        (3, "the source is 3: give a path"),
        ([[1.0, 2.0]], "the source is 1.0: give a path"),
        ("", "the source is '': give a path"),
        ("a\0.csv", "holds a zero byte"),
        ("nothing://host/a.csv", r"Protocol not known: nothing\): give a local path"),
        ("x" * 300 + ".csv", "does not exist"),
        ("loop.csv", "does not exist"),
    ],
)
def test_what_is_no_path_is_named(tmp_path, monkeypatch, source, words):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop.csv", "loop.csv")
    with pytest.raises(DataError, match=words):
        rf.ingest(source, "out.zarr")
    assert os.listdir() == ["loop.csv"]


@pytest.mark.parametrize("name", [None, 3, "", "a\0b", "nothing://h/a", "x" * 300, "loop"])
def test_names_that_no_store_can_have(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    with pytest.raises((DataError, DestinationError), match=r"give a|choose another|zero byte"):
        rf.ingest(np.eye(3), name)
    with pytest.raises(DataError, match=r"give |zero byte"):
        rf.open_dataset(name)
    assert os.listdir() == ["loop"]


def test_names_that_no_model_can_have(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    model = rf.Standardizer().fit(np.eye(3))
    for name in ("x" * 300, "loop"):
        with pytest.raises(FileNotFoundError, match="is not a saved rfcdask model"):
            rf.load(name)
        with pytest.raises(DestinationError, match="choose another destination"):
            rf.save(model, name)


@pytest.mark.parametrize("size", ["many", None, [1], float("nan"), True, -1, "0 MB"])
def test_sizes_of_blocks_that_are_none(tmp_path, size):
    for call in (
        lambda: rf.ingest(np.eye(3), tmp_path / "a.zarr", block_size=size),
        lambda: rf.synthetic("higgs", 10, block_size=size),
    ):
        with pytest.raises(DataError, match=r"block_size=.* is no size: give bytes, such as"):
            call()


def test_a_projection_is_to_fewer_columns(tmp_path):
    with pytest.raises(DataError, match=r"project=1000000000000: X has 3 columns"):
        rf.ingest(np.eye(3), tmp_path / "a.zarr", project=10**12)
    assert not (tmp_path / "a.zarr").exists()


HUGE = 2**27


class _Answers(http.server.BaseHTTPRequestHandler):
    """Answers with the number that is asked for; what it sends is counted."""

    sent = 0

    def do_GET(self):
        code = int(self.path[1:4])
        self.send_response(code)
        self.send_header("Content-Length", str(HUGE if code == 200 else 0))
        self.end_headers()
        if self.command == "GET" and code == 200:
            with contextlib.suppress(OSError):  # whoever has seen enough hangs up
                while _Answers.sent < HUGE:
                    _Answers.sent += self.wfile.write(b"0,1\n" * 2**14)

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def web():
    _Answers.sent = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("code", [500, 503, 403, 404, 410])
def test_what_a_server_answers_is_said(tmp_path, web, code):
    words = "does not exist" if code in (404, 410) else f"cannot be reached .*{code}.*call again"
    with pytest.raises(DataError, match=words):
        rf.ingest(f"{web}/{code}.csv", tmp_path / "a.zarr")
    with pytest.raises(DataError, match=r"no zarr v3 group|cannot be reached"):
        rf.open_dataset(f"{web}/{code}.zarr")


def test_a_host_that_is_not_there_is_said(tmp_path):
    with pytest.raises(DataError, match="cannot be reached"):
        rf.ingest("http://127.0.0.1:9/a.csv", tmp_path / "a.zarr")


def test_looking_at_a_url_does_not_fetch_the_file(web):
    path = f"{web}/200.csv"
    assert expand(path) == [path]
    assert detect_format(path) == "csv"
    assert _Answers.sent < HUGE / 2  # what lies in buffers is sent


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("hole", ["big", "small", "label"])
def test_large_whole_numbers_beside_missing_ones(tmp_path, hole, sign):
    big = [sign * (2**53 + 1 + i) for i in range(6)]
    table = {"big": big, "small": list(range(6)), "label": [0, 1] * 3}
    if hole == "label":
        table = {"small": table["small"], "label": big}
    whole = {k: list(v) for k, v in table.items()}
    table[hole] = [*table[hole][:5], None]
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    options = {"nan": "drop", "task": "regression" if hole == "label" else "auto"}
    with pytest.raises(DataError, match=r"whole numbers beyond 2\*\*53.*fill or drop the rows"):
        rf.ingest(tmp_path / "a.parquet", tmp_path / "a.zarr", **options)
    rows = pa.table({k: v[:5] for k, v in whole.items()})  # the remedy
    pq.write_table(rows, tmp_path / "a.parquet")
    found = rf.ingest(tmp_path / "a.parquet", tmp_path / "a.zarr", **options)
    if hole != "label":
        assert found.X.compute()[:, 0].tolist() == big[:5]


@pytest.mark.parametrize("labels", [["a\0", "a", "b"], [1, "1", "b"]], ids=["NUL", "number"])
def test_labels_that_differ_are_never_one_class(tmp_path, labels):
    y = np.array(labels * 20, object)
    X = np.arange(60.0)[:, None]
    lazy = (da.from_array(X, chunks=(15, 1)), da.from_array(y, chunks=15))
    for source in ((X, y), lazy):
        with pytest.raises(DataError, match=r"differ and would become one class"):
            rf.ingest(source, tmp_path / "store")
    if labels[0] != 1:
        (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"1.5,{label}\n" for label in y))
        with pytest.raises(DataError, match="differ and would become one class"):
            rf.ingest(tmp_path / "t.csv", tmp_path / "store")


@pytest.mark.parametrize("labels", [[1, 0, None], [1.5, 0.5, float("nan")]])
def test_objects_that_are_numbers_do_not_become_text(tmp_path, labels):
    """A frame with the same labels has numbers, and a model of the text "1" never predicts 1."""
    X, y = np.arange(60.0)[:, None], np.array(labels * 20, object)
    lazy = (da.from_array(X, chunks=(15, 1)), da.from_array(y, chunks=15))
    for source in ((X, y), lazy):
        with pytest.raises(DataError, match=r"objects of type (int|float), .* y.astype\(float\)"):
            rf.ingest(source, tmp_path / "store", nan="drop")
    found = rf.ingest((X, y.astype(float)), tmp_path / "a.zarr", nan="drop").y.compute()
    assert found.tolist() == labels[:2] * 20  # the remedy
    found = rf.ingest((X, y.astype(str)), tmp_path / "b.zarr").y.compute()
    assert found.tolist() == y.astype(str).tolist()


def test_labels_that_were_not_counted_are_no_class():
    """The place of the next label was written for them, and a longer one was cut to a class."""
    labels = Labels("|u1", ("ab", "c"), text=True)
    assert labels.encode(np.array(["c", "ab"], object)).tolist() == [1, 0]
    for strange in ("abc", "b", "d"):
        with pytest.raises(DataError, match=f"label '{strange}' was not there when"):
            labels.encode(np.array(["c", strange], object))


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_a_label_as_long_as_a_text_is_no_class(tmp_path, kind):
    """Every row of a block would have the room of the longest label."""
    labels = ["b", "x" * 1001, "c"]
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "target": labels})
    path = tmp_path / f"a.{kind}"
    if kind == "npz":
        np.savez(path, X=frame[["a"]], y=np.array(labels))
    else:
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    with pytest.raises(DataError, match=r"a label of 1,001 characters begins with 'xxx"):
        rf.ingest(path, tmp_path / "a.zarr")
    y = np.array(["b", "x" * 1000, "c"])
    assert rf.ingest((frame[["a"]].to_numpy(), y), tmp_path / "b.zarr").y.compute().tolist() == (
        y.tolist()
    )


@pytest.mark.parametrize("letter", [0xD800, 0x110000, 0xFFFFFFFF])
def test_labels_that_are_no_text_are_refused_before_they_are_written(tmp_path, letter):
    """Half a pair of UTF-16 gave a store that could not be opened, other numbers a SystemError."""
    y = np.array(["a", "b"] * 5)
    y.view(np.uint32)[1] = letter
    np.savez(tmp_path / "a.npz", X=np.ones((10, 2)), y=y)
    with pytest.raises(DataError, match=r"a label is no text .*: write the labels again, as UTF-8"):
        rf.ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()
