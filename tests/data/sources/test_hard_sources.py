"""Sources as people have them: files that do not quite agree, and stores that must not be lost."""

from __future__ import annotations

import multiprocessing
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import dask.array as da
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

import rfcdask as rf
from rfcdask.data.errors import DataError
from rfcdask.data.sources import detect_format
from rfcdask.data.sources.dialect import sniff

RNG = np.random.default_rng(0)
A, Y = RNG.normal(size=(200, 3)), np.arange(200) % 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 2, 3], [1.5, 2.7, -3.9]),
        (np.array([1, 2, 3], np.uint8), [300, -1, 70000]),
        ([True, False, True], [2, 3, 4]),
    ],
)
def test_parquet_files_of_several_types_lose_nothing(
    first: Any, second: Any, tmp_path: Path
) -> None:
    paths = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    for path, values in zip(paths, (first, second), strict=True):
        pd.DataFrame({"x": values, "y": [0, 1, 0]}).to_parquet(path)
    found = rf.ingest(paths, tmp_path / "o.zarr").X.compute()[:, 0]
    np.testing.assert_array_equal(found, np.concatenate([np.asarray(first, float), second]))


def test_parquet_files_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    good = pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0]})
    text = pd.DataFrame({"x": ["a", "b", "c"], "y": [0, 1, 0]})
    named = pd.DataFrame({"x": [1, 2, 3], "y": ["p", "q", "p"]})
    paths = {name: str(tmp_path / f"{name}.parquet") for name in ("good", "text", "named")}
    for name, frame in (("good", good), ("text", text), ("named", named)):
        frame.to_parquet(paths[name])
    with pytest.raises(DataError, match=r"text\.parquet, row 0: expected a number in column 'x'"):
        rf.ingest([paths["good"], paths["text"]], tmp_path / "o.zarr")
    with pytest.raises(DataError, match="'y' is text in one file and a number in another"):
        rf.ingest([paths["good"], paths["named"]], tmp_path / "o.zarr")
    assert not (tmp_path / "o.zarr").exists()


@pytest.mark.parametrize("values", [np.array(["2020", "2021"], "M8[s]"), [[1], [2, 3]], [None] * 2])
def test_labels_of_other_types_are_refused(values: Any, tmp_path: Path) -> None:
    table = pa.table({"x": [1.0, 2.0], "y": pa.array(list(values))})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: the label 'y' holds .*numbers or text"):
        rf.ingest(tmp_path / "t.parquet", tmp_path / "o.zarr")


def test_row_numbers_of_pandas_are_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4, 7], "y": [0, 1, 0, 1, 1]}).sample(4, random_state=0)
    frame.to_parquet(tmp_path / "i.parquet")
    found = rf.ingest(tmp_path / "i.parquet", tmp_path / "o.zarr").X.compute()
    np.testing.assert_array_equal(found, frame[["x"]])


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("1.0,NA,cat\n2.0,3.0,dog\n", False),
        ("1.0,2.0,cat\n2.0,,dog\n", False),
        ("0,1,2,3\n0.5,2,1,1\n3,4,1,0\n", True),
        ("0,1,2,3\n0,1,2,3\n3,4,1,0\n", False),
        ("0,1\n0.5,2\n3,4\n", False),
        ("1,2\n0,1\n", False),
        ("a,1,2\n0,3,4\n", True),
        ("x,NA\n1,2\n", True),
        ("0,1,2,3,kind\n0.5,2,1,1,cat\n3,4,1,0,dog\n", True),
        ("kind,0,1,2,3\ncat,0.5,2,1,1\ndog,3,4,1,0\n", True),
        ("0,1,2,3,cat\n0,1,2,3,dog\n", False),
        ("400.5,410,Label\n1,2,cat\n3,4,dog\n", True),
        ("1,2,class\n1,2,order\n3,4,class\n", False),
    ],
)
def test_which_line_is_a_header(text: str, header: bool, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert sniff(str(tmp_path / "t.csv"))[0].header is header


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("price;y\n1000,00;0\n5,5;1\n", ("price", "y")),
        ("a;b;c\n1,5;2,5;0\n2,5;2,5;1\n", ("a", "b", "c")),
        ("1,5;2,5;0\n2,5;2,5;1\n", ("0", "1", "2")),
        ("city,n\nNew York,5\nLos Angeles,6\n", ("city", "n")),
        ("a|b,1,2\nc|d,2,2\n", ("0", "1", "2")),
        ("x;y,1,5\nz;y,2,5\n", ("0", "1", "2")),
        ("first name,last name,y\nJo A,Bo B,1\nJo A,Bo B,0\n", ("first name", "last name", "y")),
        ("a b c\n1,5 2 3\n2,5 3 4\n", ("a", "b", "c")),
        ("one two three\n1 2\n3 4\n", ("one", "two", "three")),
        ('"n" "a, b" "y"\n1 "x, y" 1\n2 "z, w" 0\n', ("n", "a, b", "y")),  # of R
        ('1 "x, y" 1\n2 "z, w" 0\n', ("0", "1", "2")),
        ('a,b\n"5"" x",1\n"6"" x",2\n', ("a", "b")),
    ],
)
def test_commas_in_numbers_and_blanks_in_names_divide_no_columns(tmp_path, text, names):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    assert sniff(str(tmp_path / "t.csv"))[1] == names


@pytest.mark.parametrize("blank", ["\n", "\r\n", "\r", "  \n\t\n", "\ufeff\n", "\n" * 5000])
@pytest.mark.parametrize("names", ["a,b,c,y", "0,1,2,3"])
def test_blank_lines_before_the_header(names: str, blank: str, tmp_path: Path) -> None:
    end = blank[-1] if blank != "\r\n" else blank
    text = blank + end.join([names, "1,2,5,0", "3,4,6,1", ""])
    (tmp_path / "t.csv").write_text(text, encoding="utf-8", newline="")
    data = rf.ingest(tmp_path / "t.csv", tmp_path / "o.zarr", label=3)
    assert data.columns == names.split(",")[:3]
    np.testing.assert_array_equal(data.X.compute(), [[1, 2, 5], [3, 4, 6]])


def test_names_in_another_encoding_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("caf\xe9,caf\xe8,y\n1,2,0\n3,4,1\n".encode("latin-1"))
    assert rf.ingest(tmp_path / "t.csv", tmp_path / "o.zarr").columns == [r"caf\xe9", r"caf\xe8"]


def test_a_column_whose_name_is_a_number_may_be_the_label(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("2021,2022,2023\n1,2,0\n3,4,1\n")
    data = rf.ingest(tmp_path / "t.csv", tmp_path / "o.zarr", label=2023, header=True)
    assert (data.columns, data.attrs["label_name"]) == (["2021", "2022"], "2023")
    with pytest.raises(DataError, match="'2'; pass header=True if the first line names them"):
        rf.ingest(tmp_path / "t.csv", tmp_path / "p.zarr", label="2023")
    named = rf.ingest(tmp_path / "t.csv", tmp_path / "p.zarr", label="2023", header=True)
    assert named.attrs["label_name"] == "2023"


def test_underscores_make_text_of_labels(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,1_0\n2,10\n3,5\n")
    assert rf.ingest(tmp_path / "t.csv", tmp_path / "o.zarr").classes.tolist() == ["10", "1_0", "5"]


def test_masked_entries_are_missing(tmp_path: Path) -> None:
    masked = np.ma.masked_array([[1, 2], [3, 4], [5, 6]], [[True, False]] + [[False, False]] * 2)
    with pytest.raises(DataError, match="row 0"):
        rf.ingest((masked, [0, 1, 0]), tmp_path / "o.zarr")
    found = rf.ingest((masked, [0, 1, 0]), tmp_path / "o.zarr", nan="drop")
    np.testing.assert_array_equal(found.X.compute(), [[3, 4], [5, 6]])


def test_constant_columns_and_far_means_are_standardized(tmp_path: Path) -> None:
    X = A.copy()
    X[:, 2] = 0.1
    store = rf.ingest((X, Y), tmp_path / "c.zarr")
    np.testing.assert_allclose(store.standardize().X[:, 2].compute(), 0, atol=1e-12)
    new = X[:3] + np.array([0, 0, 1e-4])
    np.testing.assert_allclose(rf.Standardizer.of(store).transform(new)[:, 2], 1e-4, rtol=1e-6)
    far = (1e6 + RNG.integers(0, 4, size=(5000, 1)) * 0.0625).astype(np.float32)
    Z = rf.ingest(far, tmp_path / "f.zarr").standardize().X.compute()
    assert abs(Z.astype(float).mean()) < 1e-5
    np.testing.assert_array_equal(rf.Standardizer().fit(far).transform(far), Z)
    huge = rf.ingest(np.array([[1e200], [-1e200], [3.0]]), tmp_path / "h.zarr")
    with pytest.raises(DataError, match="column 0 holds values too large"):
        huge.standardize()


def test_a_bad_source_does_not_cost_the_store_it_should_replace(tmp_path: Path) -> None:
    dest = tmp_path / "s.zarr"
    rf.ingest((A, Y), dest)
    (tmp_path / "bad.csv").write_text("x,y\n1,0\nfoo,1\n")
    with pytest.raises(DataError):
        rf.ingest(tmp_path / "bad.csv", dest, overwrite=True)
    for wrong in ({"dtype": "junk"}, {"scale": "1/255"}, {"project": 1.5}):
        with pytest.raises(DataError):
            rf.ingest((A, Y), dest, overwrite=True, **wrong)
    np.testing.assert_array_equal(rf.open_dataset(dest).X.compute(), A)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.csv", "s.zarr"]


def test_a_store_may_be_replaced_by_its_own_rows(tmp_path: Path) -> None:
    dest = tmp_path / "s.zarr"
    rf.ingest((A, Y), dest)
    old = rf.open_dataset(dest)
    rf.ingest((old.X * 2, old.y), dest, overwrite=True)
    np.testing.assert_array_equal(rf.open_dataset(dest).X.compute(), 2 * A)
    shuffled = rf.ingest(dest, dest, overwrite=True, shuffle=True, random_state=0).X.compute()
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), np.sort(2 * A, axis=0))
    assert [p.name for p in tmp_path.iterdir()] == ["s.zarr"]


def test_an_interrupted_replacement_costs_nothing_and_goes_on(tmp_path: Path) -> None:
    dest = tmp_path / "s.zarr"
    rf.ingest((A, Y), dest)

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.ingest((2 * A, Y), dest, overwrite=True, check=stop)
    np.testing.assert_array_equal(rf.open_dataset(dest).X.compute(), A)
    rf.ingest((2 * A, Y), dest, overwrite=True)
    np.testing.assert_array_equal(rf.open_dataset(dest).X.compute(), 2 * A)
    assert [p.name for p in tmp_path.iterdir()] == ["s.zarr"]


@pytest.mark.parametrize("dtype", [np.float32, "f4", float, np.dtype("int16"), "<f8"])
def test_types_in_every_spelling(dtype: Any, tmp_path: Path) -> None:
    X = np.arange(12).reshape(6, 2)
    found = rf.ingest(X, tmp_path / "o.zarr", dtype=dtype, scale=np.float32(0.5))
    assert found.reader.stored_dtype == np.dtype(dtype).str
    np.testing.assert_array_equal(found.X.compute(), X / 2)


def test_other_labels_make_another_store(tmp_path: Path) -> None:
    marks = {
        rf.ingest((A, labels), tmp_path / "s.zarr", overwrite=True).reader.fingerprint
        for labels in (Y, 1 - Y, Y)
    }
    assert len(marks) == 2


def _write_slowly(dest: str, value: float) -> None:
    rf.ingest(np.full((400_000, 4), value), dest, overwrite=True, block_size=40_000)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    dest = str(tmp_path / "two.zarr")
    first = multiprocessing.get_context("spawn").Process(target=_write_slowly, args=(dest, 1.0))
    first.start()
    try:
        while not os.path.exists(dest) and first.is_alive():
            time.sleep(0.01)
        assert first.is_alive(), "it was too fast to be disturbed"
        with pytest.raises(FileExistsError, match="another process is writing"):
            _write_slowly(dest, 2.0)
    finally:
        first.join()
    assert first.exitcode == 0
    assert set(np.unique(rf.open_dataset(dest).X.compute())) == {1.0}


def test_an_archive_is_not_taken_for_another(tmp_path: Path) -> None:
    from rfcdask.data.datasets import _extract

    for name, text in (("one", "1.5"), ("two", "2.5")):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as packed:
            packed.writestr("folder/rows.txt", text)
    os.utime(tmp_path / "two.zip", (0, 0))  # older than what was taken out of the other
    found = [
        _extract(tmp_path / f"{name}.zip", "folder/rows.txt", tmp_path / "cache").read_text()
        for name in ("one", "two", "one")
    ]
    assert found == ["1.5", "2.5", "1.5"]


def test_a_zip_of_several_files_is_not_read_as_its_first(tmp_path: Path) -> None:
    text = "a,b,label\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(10))
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("one.csv", text)
    assert rf.ingest(tmp_path / "a.csv.zip", tmp_path / "o.zarr").shape == (10, 2)
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "a") as archive:
        archive.writestr("two.csv", text)
    with pytest.raises(DataError, match=r"holds 2 files \(one.csv, two.csv\)"):
        rf.ingest(tmp_path / "a.csv.zip", tmp_path / "p.zarr")


def test_stores_are_not_joined_as_bare_arrays(tmp_path: Path) -> None:
    for name, classes in {"a": ["cat", "dog"], "b": ["bird", "cat"]}.items():
        rf.ingest((A, np.array(classes)[Y]), tmp_path / f"{name}.zarr")
    paths = [str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")]
    with pytest.raises(DataError, match=r"dask.array.concatenate"):
        rf.ingest(paths, tmp_path / "o.zarr")
    first, second = map(rf.open_dataset, paths)
    pair = da.concatenate([first.X, second.X]), da.concatenate([first.y, second.y])
    assert rf.ingest(pair, tmp_path / "o.zarr").classes.tolist() == ["bird", "cat", "dog"]


def test_labels_of_a_store_are_not_replaced_in_silence(tmp_path: Path) -> None:
    store = rf.ingest((A, Y), tmp_path / "a.zarr")
    for source in (store, tmp_path / "a.zarr"):
        for label in ("other", 2, A[:, 0]):
            with pytest.raises(DataError, match="has its own labels"):
                rf.ingest(source, tmp_path / "o.zarr", label=label)
        with pytest.raises(DataError, match=r"task='regression'.*kept for classification"):
            rf.ingest(source, tmp_path / "o.zarr", task="regression")
    assert rf.ingest(store, tmp_path / "o.zarr", task="classification").y is not None


def test_true_and_arrays_are_no_names_of_labels(tmp_path: Path) -> None:
    pd.DataFrame(A, columns=list("abc")).assign(label=Y).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match="has no column True"):
        rf.ingest(tmp_path / "a.csv", tmp_path / "o.zarr", label=True)
    np.savez(tmp_path / "a.npz", X=A, y=Y)
    with pytest.raises(DataError, match="label= takes the name"):
        rf.ingest(tmp_path / "a.npz", tmp_path / "o.zarr", label=Y)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_refusing_numpy_files_at_urls_shows_no_secrets(tmp_path: Path, name: str) -> None:
    url = f"memory://me:secret@host/{name}"
    with fsspec.open(url, "wb") as file:
        file.write(b"not looked at")
    for source, label in ((url, None), (A, url)) if name == "a.npy" else ((url, None),):
        with pytest.raises(DataError, match="copy it there first") as refused:
            rf.ingest(source, tmp_path / "o.zarr", label=label)
        assert "secret" not in str(refused.value)


def packed_files(folder: Path) -> tuple[pd.DataFrame, Path]:
    """Return a table, and an archive with it as CSV, packed CSV and Parquet."""
    table = pd.DataFrame(A, columns=["a", "b", "c"]).assign(y=Y)
    table.to_csv(folder / "a.csv", index=False)
    table.to_csv(folder / "g.csv.gz", index=False)
    table.to_parquet(folder / "p.parquet")
    with zipfile.ZipFile(folder / "all.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.csv", "g.csv.gz", "p.parquet"):
            archive.write(folder / name, name)
    return table, folder / "all.csv.zip"


@pytest.mark.parametrize(
    "address",
    ["zip://a.csv::{}/all.csv.zip", "tar://a.csv::{}/a.tar", "simplecache::http://127.0.0.1:9/a.csv",
     "reference://a::{}/a.json", "reference://a", "cached://a.csv"],
)  # fmt: skip
def test_addresses_within_addresses_are_refused(address: str, tmp_path: Path) -> None:
    """What is there may be any file of the machine, or unpack to any size."""
    packed_files(tmp_path)
    for read in (detect_format, rf.open_dataset, lambda url: rf.ingest(url, tmp_path / "o.zarr")):
        with pytest.raises(DataError, match=r"leads from one address to another .* unpack or copy"):
            read(address.format(tmp_path))
    with zipfile.ZipFile(tmp_path / "all.csv.zip") as archive:  # the remedy
        archive.extract("a.csv", tmp_path / "unpacked")
    found = rf.ingest(tmp_path / "unpacked" / "a.csv", tmp_path / "o.zarr")
    np.testing.assert_array_equal(found.X.compute(), A)


def test_an_address_of_a_local_file_is_its_path(tmp_path: Path) -> None:
    packed_files(tmp_path)
    for name in ("a.csv", "g.csv.gz", "p.parquet", "*.csv"):
        found = rf.ingest(f"file://{tmp_path}/{name}", tmp_path / "o.zarr", overwrite=True)
        np.testing.assert_array_equal(found.X.compute(), A)
    with pytest.raises(DataError, match="give a path or a URL"):
        rf.open_dataset("file://")


def test_two_colons_in_the_name_of_a_file_divide_nothing(tmp_path: Path) -> None:
    table, _ = packed_files(tmp_path)
    (tmp_path / "wind").write_text("a,y\n1,0\n2,1\n", encoding="utf-8")  # this one was read
    table.to_csv(tmp_path / "wind::day.csv", index=False)
    found = rf.ingest(tmp_path / "wind::day.csv", tmp_path / "o.zarr")
    np.testing.assert_array_equal(found.X.compute(), A)


@pytest.mark.parametrize("label", [3, np.int64(3), "target"])
def test_the_label_of_a_lazy_array_is_no_column_of_it(label: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"y has shape \(\): one label per row is needed"):
        rf.ingest(da.from_array(A, chunks=50), tmp_path / "o.zarr", label=label)


def test_labels_are_put_beside_a_lazy_frame_as_the_refusal_says(tmp_path: Path) -> None:
    import dask.dataframe as dd

    frame = dd.from_pandas(pd.DataFrame(A, columns=["a", "b", "c"]), npartitions=4)
    with pytest.raises(DataError, match=r"y from dask\.array in chunks of the rows"):
        rf.ingest((frame, Y), tmp_path / "o.zarr")
    chunks = tuple(frame.map_partitions(len).compute())
    labelled = frame.assign(label=da.from_array(Y, chunks=(chunks,)))
    found = rf.ingest(labelled, tmp_path / "o.zarr", label="label")
    np.testing.assert_array_equal(found.y.compute(), Y)


@pytest.mark.parametrize("text", [False, True])
def test_labels_of_parquet_with_gaps_stay_what_they_are(text: bool, tmp_path: Path) -> None:
    """Where a label is missing, numpy makes objects of booleans, and rounds large numbers."""
    paths = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    more = {"t": ["u", "v", "u", "v"]} if text else {}
    for path, labels in zip(paths, ([True, None, False, True], [True] * 4), strict=True):
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], **more, "y": labels}), path)
    read = rf.ingest(paths, tmp_path / "o.zarr", nan="drop-unlabelled")
    assert read.attrs["classes"] == [False, True]
    assert read.y.compute().tolist() == [True, False, *[True] * 5]

    large = pa.array([2**53, 2**53 + 1, None, 5])
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], **more, "y": large}), paths[0])
    with pytest.raises(DataError, match=r"'y' holds whole numbers beyond 2\*\*53"):
        rf.ingest(paths[0], tmp_path / "large.zarr", nan="drop-unlabelled")


def test_classes_that_the_files_together_cannot_keep_apart_are_refused(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    kinds: list[list[Any]] = [
        [pa.array([2**53, 2**53 + 1], pa.uint64()), pa.array([2**53, 2**53 + 1], pa.int64())],
        [pa.array([1, 2], pa.decimal128(5, 1)), pa.array([1, 2], pa.decimal128(5, 2))],
    ]
    for labels, said in zip(kinds, ("so many digits", "decimal with more digits"), strict=True):
        for path, y in zip(paths, labels, strict=True):
            pq.write_table(pa.table({"x": [1.0, 2.0], "y": y}), path)
        with pytest.raises(DataError, match=said):
            rf.ingest(paths, tmp_path / "o.zarr")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("label", [None, False])
def test_text_in_utf16_is_said_to_be(encoding: str, label: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("a,b,y\n1,2,0\n3,4,1\n".encode(encoding))
    with pytest.raises(DataError, match=r"a\.csv .* UTF-16 .* write it as UTF-8"):
        rf.ingest(path, tmp_path / "o.zarr", label=label)


@pytest.mark.parametrize("name", ["a.csv.zst", "a.svm.zst", "a.csv.lz4"])
def test_packing_that_hides_a_cut_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"(\xb5/\xfd" + bytes(range(60)))
    with pytest.raises(DataError, match="unpack it, or pack it as gz, bz2 or xz"):
        rf.ingest(tmp_path / name, tmp_path / "o.zarr")


def test_a_folder_of_parquet_files_is_read_whole_or_refused(tmp_path: Path) -> None:
    """Files with the other ending, and those in folders within it, were left out in silence."""
    table = pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]})
    folder = tmp_path / "folder"
    for name in ("a.parquet", "b.pq", "c.PARQUET", "_temporary/d.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table.to_parquet(folder / name)
    assert rf.ingest(folder, tmp_path / "a.zarr").shape == (6, 1)
    (folder / "k=1").mkdir()
    table.to_parquet(folder / "k=1" / "e.parquet")
    with pytest.raises(DataError, match=r"\(k=1/e.parquet\): give a pattern that ends in"):
        rf.ingest(folder, tmp_path / "b.zarr")
    for ending, n_rows in (("/*.parquet", 2), ("/**/*.parquet", 6)):
        found = rf.ingest(f"{folder}{ending}", tmp_path / f"{n_rows}.zarr")
        assert found.shape == (n_rows, 1)


def test_parquet_as_dask_and_duckdb_lay_it_out(tmp_path: Path) -> None:
    """Row numbers were a column, and a folder of folders was said to have no Parquet files."""
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]})
    table.assign(__null_dask_index__=range(4)).to_parquet(tmp_path / "a.parquet")
    found = rf.ingest(tmp_path / "a.parquet", tmp_path / "a.zarr", label="y")
    assert found.columns == ["a"]
    np.testing.assert_array_equal(found.X.compute(), table[["a"]])
    table.assign(k=[1, 1, 2, 2]).to_parquet(tmp_path / "hive", partition_cols=["k"])
    with pytest.raises(DataError, match=r"ends in /\*\*/\*\.parquet for all, without the columns"):
        rf.ingest(tmp_path / "hive", tmp_path / "b.zarr", label="y")
    found = rf.ingest(f"{tmp_path}/hive/**/*.parquet", tmp_path / "b.zarr", label="y")
    np.testing.assert_array_equal(found.X.compute(), table[["a"]])


def test_a_table_with_a_colon_in_its_names_is_no_svmlight_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("time:s,b,y\n1,2,0\n3,4,1\n")
    assert rf.ingest(tmp_path / "a.txt", tmp_path / "a.zarr").columns == ["time:s", "b"]


def test_a_delta_table_is_not_read_with_the_rows_that_it_lost(tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    (folder / "_delta_log").mkdir(parents=True)
    pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}).to_parquet(folder / "part-0.parquet")
    with pytest.raises(DataError, match=r"is a Delta table.*write its rows to a Parquet file"):
        rf.ingest(folder, tmp_path / "o.zarr")


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_in_an_encoding_that_is_not_read_are_no_damage(encoding: str, tmp_path: Path) -> None:
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    table = pa.table({"x": np.arange(9.0), "y": ["yes", "no", "no"] * 3})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"y": encoding})
    with pytest.raises(DataError, match=f"{encoding}.*not read in parts: write it"):
        rf.ingest(path, tmp_path / "o.zarr")
    assert rf.ingest(path, tmp_path / "x.zarr", columns=["x"], label=False).shape == (9, 1)
    pq.write_table(pq.read_table(path), other)  # the remedy that the message names
    assert rf.ingest(other, tmp_path / "o.zarr").shape == (9, 1)
