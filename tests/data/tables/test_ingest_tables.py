"""Tables with text, dates and gaps into a store: from any source, in any cut, and back by name."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.sources.csv import BLOCK_BYTES, TableColumns, read_csv
from rfcdask.data.sources.dialect import Dialect
from rfcdask.data.tables.summary import level_hash, summarize
from tests.customers import customers, lazy_customers, write_customers
from tests.data.data_helpers import refused, same_bits, tree_bytes

ROWS = 700
SHOP = {"shop": "category"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same table as CSV, Parquet and in a store."""
    folder = tmp_path_factory.mktemp("customers")
    for ending in ("csv", "parquet"):
        write_customers(folder / f"table.{ending}", ROWS)
    rf.ingest(folder / "table.csv", folder / "store.zarr", label="status")
    return folder


def test_every_source_gives_the_same_store(files: Path, tmp_path: Path) -> None:
    wanted = rf.open_dataset(files / "store.zarr")
    frame = customers().head(ROWS)
    sources: dict[str, Any] = {
        "parquet": files / "table.parquet",
        "frame": frame,
        "arrow": pa.Table.from_pandas(frame, preserve_index=False),
        "dask": lazy_customers(ROWS),
        "pair": (frame.drop(columns="status"), frame["status"]),
    }
    for name, source in sources.items():
        label = None if name == "pair" else "status"
        found = rf.ingest(source, tmp_path / f"{name}.zarr", label=label)
        assert found.columns == wanted.columns
        assert found.attrs["table"] == wanted.attrs["table"]
        assert same_bits(found.X.compute(), wanted.X.compute())
        np.testing.assert_array_equal(found.y.compute(), wanted.y.compute())
    encoder = rf.TableEncoder().fit(frame.drop(columns="status"))
    assert encoder.table_ == wanted.attrs["table"]
    assert same_bits(encoder.transform(frame.drop(columns="status")), wanted.X.compute())
    assert rf.TableEncoder.of(wanted).table_ == encoder.table_


def test_any_block_size_gives_the_same_rows(files: Path, tmp_path: Path) -> None:
    wanted = rf.open_dataset(files / "store.zarr")
    for size in (20_000, 60_000):
        found = rf.ingest(
            files / "table.csv", tmp_path / f"{size}.zarr", label="status", block_size=size
        )
        assert len(found.reader.sizes) > 1
        assert same_bits(found.X.compute(), wanted.X.compute())
    mixed = rf.ingest(
        files / "table.csv", tmp_path / "s.zarr", label="status", shuffle=True, random_state=0
    )
    assert mixed.attrs["table"] == wanted.attrs["table"]
    again = rf.ingest(mixed, tmp_path / "again.zarr")
    assert again.attrs["table"] == wanted.attrs["table"]


def test_an_interrupted_ingest_goes_on(files: Path, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(phase: str, total: Any, unit: str) -> Any:
        class Reporter:
            def advance(self, amount: float = 1) -> None:
                if phase == "writing rows" and amount:
                    raise StopError

            def note(self, text: str) -> None: ...

        return Reporter()

    options = {"label": "status", "block_size": 40_000}
    whole = rf.ingest(files / "table.csv", tmp_path / "whole.zarr", **options)
    with pytest.raises(StopError):
        rf.ingest(files / "table.csv", tmp_path / "part.zarr", progress=stop, **options)
    looked: list[str] = []

    def note(phase: str, total: Any, unit: str) -> Any:
        looked.append(phase)
        from rfcdask.execution.progress import SilentReporter

        return SilentReporter()

    rf.ingest(files / "table.csv", tmp_path / "part.zarr", progress=note, **options)
    assert "looking at the columns" not in looked
    assert tree_bytes(tmp_path / "part.zarr") == tree_bytes(tmp_path / "whole.zarr")
    assert whole.attrs["table"]["rows"] == ROWS


def test_numbers_alone_are_written_as_they_are(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 300], "b": [4, 5, 6], "y": [0, 1, 0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for name, source in (("csv", tmp_path / "t.csv"), ("frame", frame)):
        found = rf.ingest(source, tmp_path / f"{name}.zarr")
        assert "table" not in found.attrs
        np.testing.assert_array_equal(found.X.compute(), frame[["a", "b"]])
        assert found.columns == ["a", "b"]
    assert rf.ingest(tmp_path / "t.csv", tmp_path / "u.zarr").X.dtype == np.uint16


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_gaps_are_filled_dropped_or_refused(ending: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 8.0], "y": ["p", "q", "p", "q"]})
    source: Any = frame if ending == "frame" else tmp_path / f"t.{ending}"
    if ending == "csv":
        frame.to_csv(source, index=False)
    elif ending == "parquet":
        frame.to_parquet(source)
    filled = rf.ingest(source, tmp_path / "filled.zarr")
    assert filled.columns == ["a", "a missing"]
    dropped = rf.ingest(source, tmp_path / "dropped.zarr", nan="drop")
    assert dropped.attrs["dropped_rows"] == 1
    np.testing.assert_array_equal(dropped.X.compute(), [[1], [3], [8]])
    with pytest.raises(DataError, match="pass nan='drop'"):
        rf.ingest(source, tmp_path / "refused.zarr", nan="raise")
    assert not (tmp_path / "refused.zarr").exists()


def test_gaps_beside_text_are_dropped_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,c,y\n1,x,p\n2,,q\n4,y,p\n,x,q\n9,y,q\n")
    dropped = rf.ingest(path, tmp_path / "d.zarr", nan="drop")
    assert dropped.shape == (3, 3)
    column = dropped.attrs["table"]["columns"][0]
    assert column["center"] == pytest.approx(14 / 3)
    words = r"t\.csv, line 3: column 'c' has no value: pass nan='auto'"
    refused(tmp_path, "t.csv", path.read_text(), words, nan="raise")


@pytest.mark.parametrize("task", ["auto", "classification", "regression"])
def test_dates_are_no_labels_of_dask_frames_either(task: str, tmp_path: Path) -> None:
    """They were taken for microseconds, or ended in a raw TypeError."""
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(40) % 3, unit="h")
    frame = pd.DataFrame({"a": np.arange(40.0), "when": times})
    frame["took"] = frame["when"] - frame["when"].min()
    lazy = dd.from_pandas(frame, npartitions=2)
    for label in ("when", "took", ["when", "took"]):
        with pytest.raises(DataError, match=r"holds (timestamp|duration).*: labels are numbers or"):
            rf.ingest(lazy, tmp_path / "s.zarr", label=label, task=task)


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_missing_labels_are_named_and_dropped(ending: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": range(6), "c": list("xyxyxy"), "y": ["p", None, "q", None, "p", "q"]}
    )
    source: Any = frame if ending == "frame" else tmp_path / f"t.{ending}"
    if ending == "csv":
        frame.to_csv(source, index=False)
    elif ending == "parquet":
        frame.to_parquet(source)
    place = r"line 3, .*line 5" if ending == "csv" else r"row 1, .*row 3"
    words = rf"label 'y' is missing in 2 rows \(.*{place}\): pass nan='drop-unlabelled'"
    with pytest.raises(DataError, match=words):
        rf.ingest(source, tmp_path / "o.zarr")
    assert not (tmp_path / "o.zarr").exists()
    found = rf.ingest(source, tmp_path / "o.zarr", nan="drop-unlabelled")
    assert found.y.compute().tolist() == ["p", "q", "p", "q"]
    assert found.attrs["table"]["rows"] == 4


def test_a_late_fault_is_named_by_line(tmp_path: Path) -> None:
    n = 60_000
    lines = [f"2024-01-{i % 28 + 1:02d},{i % 7},{'pq'[i % 2]}" for i in range(n)]
    lines[n - 2] = "soon,1,p"
    text = "when,x,y\n" + "\n".join(lines) + "\n"
    words = rf"t\.csv, line {n}: expected a date in column 'when', found 'soon': .*'category'"
    refused(tmp_path, "t.csv", text, words)
    lines[n - 2], lines[n - 3] = "2024-01-01,x,p", "2024-01-01,,p"
    text = "when,x,y\n" + "\n".join(lines) + "\n"
    refused(tmp_path, "t.csv", text, rf"line {n}: expected a number in column 'x', found 'x'")
    (tmp_path / "t.csv").write_text(text)
    found = rf.ingest(tmp_path / "t.csv", tmp_path / "o.zarr", columns={"x": "category"})
    assert "x=x" not in found.columns  # too rare to have a column
    assert "x: other levels" in found.columns


def test_long_lines_are_read_in_larger_blocks(tmp_path: Path) -> None:
    lines = [f"{'xy'[i % 2]},{i % 5},{'pq'[i % 3 == 0]}" for i in range(30_000)]
    lines[20_000] = f"{'z' * (3 * BLOCK_BYTES // 2)},7,p"
    (tmp_path / "t.csv").write_text("a,b,y\n\n" + "\n".join(lines) + "\n\n")
    found = rf.ingest(tmp_path / "t.csv", tmp_path / "o.zarr")
    assert found.shape[0] == 30_000
    table = pd.read_csv(tmp_path / "t.csv")
    wanted = rf.ingest(table, tmp_path / "p.zarr", label="y")
    assert same_bits(found.X.compute(), wanted.X.compute())
    assert found.y.compute().tolist() == table["y"].tolist()


def test_little_text_is_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "t.csv", [0]
    path.write_bytes(b"a,y\n" + b"1.5,0\n2.5,1\n" * (5 * 2**20))  # 60 MB

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            text = super().read(size)
            read[0] += len(text)
            return text

    monkeypatch.setattr("rfcdask.data.sources.csv.open_text", lambda path: Counted(path))
    batches = read_csv(str(path), Dialect(",", True), TableColumns(("a", "y"), ("a",), "y"))
    assert next(batches).num_rows
    time.sleep(0.5)  # reading goes on behind
    assert read[0] < 40 * BLOCK_BYTES


def test_a_column_of_very_many_levels(tmp_path: Path) -> None:
    n = 60_000
    table = pa.table(
        {"key": [f"k{i}" for i in range(n)], "x": [1, 2] * (n // 2), "y": [0, 1] * (n // 2)}
    )
    words = (
        r"column 'key' is text with about ([\d,]+) different values in 60,000 rows: .*'key': 'drop'"
    )
    with pytest.raises(DataError, match=words) as said:
        rf.ingest(table, tmp_path / "o.zarr")
    about = int(re.search(words, str(said.value))[1].replace(",", ""))
    assert 0.9 * n < about <= n  # an estimate, and never more than there are rows
    assert not (tmp_path / "o.zarr").exists()
    hashed = rf.ingest(table, tmp_path / "o.zarr", columns={"key": "category"})
    assert hashed.shape == (n, 33)
    left = rf.ingest(table, tmp_path / "p.zarr", columns={"key": "drop"})
    assert left.columns == ["x"]


def test_long_levels_are_counted_and_not_kept(tmp_path: Path) -> None:
    """Of 9000 with 120,000 characters each, 5 MB as gz, all were in memory: 1.5 GB."""
    levels = [f"{'a' * 10**5}{i % 60}" for i in range(120)] + ["b"] * 80
    kept = summarize("category", pa.array(levels)).levels
    assert kept is not None
    assert sorted(kept.values()) == [2] * 60 + [80]
    assert sum(map(len, kept)) < 60 * 300
    table = pa.table({"key": levels, "y": [0, 1] * 100})
    found = rf.ingest(table, tmp_path / "o.zarr", columns={"key": "category"})
    (column,) = found.attrs["table"]["columns"]
    assert (column["levels"], column["n_levels"], column["hashed"]) == (["b"], 61, 32)
    codes = found.X.compute(), [1 + level_hash(level) % 32 for level in levels[:120]]
    assert codes[0][:120].argmax(axis=1).tolist() == codes[1]


def test_types_that_differ_between_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,c,y\n1,u,0\n2,v,1\n")
    (tmp_path / "b.csv").write_text("c,y,x\nu,0,1\nv,1,many\n")
    both = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    with pytest.raises(DataError, match=r"b\.csv, line 3: expected a number in column 'x', found"):
        rf.ingest(both, tmp_path / "o.zarr")
    assert not (tmp_path / "o.zarr").exists()
    found = rf.ingest(both, tmp_path / "o.zarr", columns={"x": "category"})
    assert found.columns == ["x=1", "x=2", "x=many", "c=u", "c=v"]
    for name, x in (("a", [1, 2]), ("b", ["1", "many"])):
        parquet.write_table(
            pa.table({"x": x, "c": ["u", "v"], "y": [0, 1]}), tmp_path / f"{name}.pq"
        )
    with pytest.raises(DataError, match=r"b\.pq, row 1: expected a number in column 'x', found"):
        rf.ingest(sorted(map(str, tmp_path.glob("*.pq"))), tmp_path / "p.zarr")


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("a,a,y", "the column name 'a' occurs twice"),
        ("a,,y", r"column 1 has no name \(counted from 0\)"),
        ("<script>alert(1)</script>,b,z", "no column named label"),
    ],
)
def test_bad_names_are_refused(head: str, words: str, tmp_path: Path) -> None:
    refused(tmp_path, "t.csv", f"{head}\nx,1,p\nz,2,q\n", words)


def test_names_are_only_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("<script>,y\nu,p\nv,q\n")
    data = rf.ingest(tmp_path / "t.csv", tmp_path / "o.zarr")
    assert data.columns == ["<script>=u", "<script>=v"]
    assert "<script>" not in data._repr_html_()


def test_a_table_without_names_is_refused(tmp_path: Path) -> None:
    words = r"line 1: expected a number in column '1', found 'x': give the file a first line"
    refused(tmp_path, "t.csv", "1,x,0\n2,y,1\n", words, label=-1)


def test_a_spec_in_a_file_and_from_an_encoder(files: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'max_levels = 5\nhash_columns = 4\n[columns]\nage = "drop"\nvisits = "category"\n'
    )
    found = rf.ingest(files / "table.csv", tmp_path / "o.zarr", label="status", columns=spec)
    assert "age" not in found.columns
    assert [name for name in found.columns if name.startswith("shop: hash")] == [
        f"shop: hash {i}" for i in range(4)
    ]
    encoder = rf.TableEncoder.of(found)
    new = rf.ingest(
        customers(3, 50).drop(columns="age"), tmp_path / "n.zarr", label="status", columns=encoder
    )
    assert new.attrs["table"] == found.attrs["table"]
    with pytest.raises(DataError, match="column 'city' is missing from the frame"):
        rf.ingest(
            customers(3, 50).drop(columns="city"),
            tmp_path / "m.zarr",
            label="status",
            columns=encoder,
        )
    with pytest.raises(DataError, match="has no named columns to decide on"):
        rf.ingest(np.eye(3), tmp_path / "m.zarr", columns={"a": "number"})


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(order=st.permutations(range(9)), extra=st.booleans(), ending=st.sampled_from(["csv", "pq"]))
def test_new_rows_in_any_order(
    files: Path, tmp_path: Path, order: list[int], extra: bool, ending: str
) -> None:
    encoder = rf.TableEncoder.of(rf.open_dataset(files / "store.zarr"))
    rows = customers(1, 40)
    wanted = encoder.transform(rows.drop(columns="status"))
    new = rows[[rows.columns[place] for place in order]]
    new = new.assign(extra="a") if extra else new
    path = tmp_path / f"new.{ending}"
    new.to_csv(path, index=False) if ending == "csv" else new.to_parquet(path)
    found = rf.ingest(path, tmp_path / "n.zarr", label="status", columns=encoder, overwrite=True)
    assert same_bits(found.X.compute(), wanted)
    dropped = rows.columns[order[0]] if rows.columns[order[0]] != "status" else "age"
    new.drop(columns=dropped).to_parquet(tmp_path / "less.pq")
    with pytest.raises(DataError, match=f"column '{dropped}' is missing from"):
        rf.ingest(tmp_path / "less.pq", tmp_path / "l.zarr", label="status", columns=encoder)


def test_xarray_is_read_lazily(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    X = da.random.default_rng(0).normal(size=(50, 3), chunks=(10, 3))
    rows = xarray.DataArray(X, dims=("row", "column"))
    y = np.arange(50) % 2
    np.testing.assert_array_equal(rf.ingest((rows, y), tmp_path / "o.zarr").X.compute(), X)
    with pytest.raises(TypeError, match=r"a lazy DataArray of xarray: pass X\.data instead"):
        rf.RidgeClassifier().fit(rows, y)
    assert rf.RidgeClassifier().fit(rows.data, y).predict(rows.data).chunks == (X.chunks[0],)
    columns = {"a": ("row", X[:, 0]), "y": ("row", da.from_array(y, chunks=10))}
    table = rf.ingest(xarray.Dataset(columns), tmp_path / "t.zarr", label="y")
    assert table.columns == ["a"]  # and no numbers of rows
    dated = xarray.Dataset(columns, coords={"row": np.arange(50) / 7})
    found = rf.ingest(dated, tmp_path / "d.zarr", label="y")
    assert found.columns == ["row", "a"]


def test_the_record_is_bound_by_the_manifest(files: Path, tmp_path: Path) -> None:
    data = rf.ingest(files / "table.parquet", tmp_path / "o.zarr", label="status")
    path = tmp_path / "o.zarr" / "zarr.json"
    record = json.loads(path.read_text())
    record["attributes"]["table"]["columns"][0]["center"] += 1
    path.write_text(json.dumps(record))
    with pytest.raises(DataError):
        rf.open_dataset(tmp_path / "o.zarr")
    assert data.columns


def test_dates_with_zones_are_the_same_as_text_and_as_times(tmp_path: Path) -> None:
    """As text they were taken for levels, without a word."""
    text = ["2021-01-01T00:00:00+02:00", "2021-06-01 12:00:00Z", "2021-07-01 12:00:00.5-0500"] * 9
    rows = pd.DataFrame({"when": text, "label": [0, 1, 0] * 9})
    times = rows.assign(when=pd.to_datetime(rows["when"], utc=True, format="ISO8601"))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "text.parquet")
    times.to_parquet(tmp_path / "times.parquet")
    places = ["rows.csv", "text.parquet", "times.parquet"]
    stores = [rf.ingest(tmp_path / name, tmp_path / f"{name}.zarr") for name in places]
    for store in stores:
        assert store.columns == stores[-1].columns
        assert np.array_equal(store.X.compute(), stores[-1].X.compute())
    mixed = pd.DataFrame({"when": ["2021-01-01T00:00:00Z", "2021-01-01T00:00:00"] * 9})
    with pytest.raises(DataError, match=r"row 1: expected a date in column 'when'"):
        rf.TableEncoder().fit(mixed)


def test_dates_that_nanoseconds_cannot_count(tmp_path: Path) -> None:
    """Spark keeps dates as 96 bits, and Arrow made a day of 1816 of the last one of 9999."""
    days = [datetime(9999, 12, 31), datetime(1, 1, 1), datetime(2020, 5, 17, 6), None]
    table = pa.table({"day": pa.array(days, pa.timestamp("us")), "label": [0, 1, 0, 1]})
    found = []
    for old in (False, True):
        path = tmp_path / f"{old}.parquet"
        parquet.write_table(table, path, use_deprecated_int96_timestamps=old, store_schema=False)
        found.append(rf.ingest(path, tmp_path / f"{old}.zarr"))
    assert found[0].attrs["table"] == found[1].attrs["table"]
    np.testing.assert_array_equal(*(rows.X.compute() for rows in found))


def test_standardized_rows_keep_no_encoding_of_their_table(files: Path, tmp_path: Path) -> None:
    """A model of such a store encoded new tables, did not standardize them, and was wrong."""
    stored = rf.open_dataset(files / "store.zarr")
    projected = rf.ingest(stored.project(3, 0), tmp_path / "projected.zarr")
    assert "table" in projected.attrs
    views = {
        "plain": stored.standardize(),
        "first": projected.standardize(),
        "then": stored.standardize().split(0.5, 0)[0].project(3, 0),
    }
    for name, view in views.items():
        found = rf.ingest(view, tmp_path / f"{name}.zarr")
        np.testing.assert_array_equal(found.X.compute(), view.X.compute())
        assert found.projection is None
        assert found.columns == (stored.columns if name == "plain" else None)
        with pytest.raises(DataError, match="not made from a table"):
            rf.TableEncoder.of(found)


@pytest.mark.parametrize("saved", [False, True])
def test_rows_that_another_table_encoded_are_refused(tmp_path: Path, saved: bool) -> None:
    """Each table standardizes its dates and numbers by itself, under the same names."""
    days = pd.date_range("2020-01-01", periods=400, freq="D")
    table = pd.DataFrame({"day": days, "size": np.arange(400.0)})
    table["late"] = np.where(table["size"] > 150, "yes", "no")
    early, late = table[:300], table[100:]
    data = rf.ingest(early, tmp_path / "early", label="late")
    other = rf.ingest(late, tmp_path / "late", label="late")
    assert data.columns == other.columns
    model: Any = rf.SGDClassifier(random_state=0).fit(data.X, data.y)
    if saved:
        rf.save(model, tmp_path / "model")
        model = rf.load(tmp_path / "model")
    for call in (model.score, model.partial_fit):
        with pytest.raises(DataError, match="learned of another table than that of `fit`"):
            call(other.X, other.y)
    with pytest.raises(DataError, match="learned of another table than that of `fit`"):
        rf.RidgeClassifier().fit(data.X, data.y).merge(rf.RidgeClassifier().fit(other.X, other.y))
    part = data.split(0.5, 0)[1]
    assert model.score(part.X, part.y) > 0.9
    alike = rf.ingest(late, tmp_path / "alike", label="late", columns=rf.TableEncoder.of(data))
    assert model.score(alike.X, alike.y) > 0.9
    turned = alike.take_columns([*range(data.shape[1])][::-1])
    assert model.score(turned.X, turned.y) > 0.9


def test_numbers_as_they_are_and_an_encoded_table_are_told_apart(tmp_path: Path) -> None:
    numbers = pd.DataFrame({"size": np.arange(300.0), "late": np.repeat(["no", "yes"], 150)})
    gaps = numbers.assign(size=numbers["size"].where(numbers["size"] != 7))
    plain = rf.ingest(numbers, tmp_path / "plain", label="late")
    filled = rf.ingest(gaps, tmp_path / "filled", label="late")
    model = rf.RidgeClassifier().fit(plain.X, plain.y)
    with pytest.raises(DataError, match="are an encoded table, unlike those of `fit`"):
        model.predict(filled.X)
    without = rf.ingest(gaps, tmp_path / "without", label="late", nan="drop")
    assert model.score(without.X, without.y) > 0.9
    with pytest.raises(DataError, match="are no encoded table, unlike those of `fit`"):
        rf.RidgeClassifier().fit(filled.X, filled.y).predict(plain.X)


@pytest.mark.parametrize("fitted", ["t.csv", "t.parquet"])
def test_levels_are_the_same_in_files_of_another_format(tmp_path: Path, fitted: str) -> None:
    """A level that CSV writes as True or 1.0 was taken for one never seen in Parquet."""
    table = pd.DataFrame({"a": [True, False] * 30, "b": [1.0, 2.0, 0.5] * 20, "c": ["u", "v"] * 30})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet", index=False)
    given: dict[str, Any] = {"label": "c", "columns": {"a": "category", "b": "category"}}
    learned = rf.TableEncoder.of(rf.ingest(tmp_path / fitted, tmp_path / "fit.zarr", **given))
    rows = [
        rf.ingest(tmp_path / name, tmp_path / f"{name}.zarr", label="c", columns=learned)
        for name in ("t.csv", "t.parquet")
    ]
    np.testing.assert_array_equal(rows[0].X.compute(), rows[1].X.compute())
    assert (rows[0].X.compute().sum(axis=1) == 2).all()


@pytest.mark.parametrize("kind", ["date", "number", "category"])
def test_periods_are_no_dates(kind: str) -> None:
    """Arrow casts what they are made of: days since 1970 were read as microseconds."""
    days = pd.date_range("2024-01-01", periods=60)
    values = {"date": days, "number": np.arange(60), "category": ["u", "v", "w"] * 20}
    encoder = rf.TableEncoder().fit(pd.DataFrame({"d": values[kind]}))
    with pytest.raises(DataError, match=r"column 'd', found 'extension<pandas\.period"):
        encoder.transform(pd.DataFrame({"d": days.to_period("D")}))
    if kind == "date":  # the remedy
        encoder.transform(pd.DataFrame({"d": days.to_period("D").to_timestamp()}))


def test_numbers_with_commas_and_powers_are_no_levels_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("price;y\n" + "5;0\n2,5;1\n1,5E-05;0\n-2,25e+3;1\n" * 10)
    with pytest.raises(DataError, match="column 'price' holds numbers with commas"):
        rf.ingest(path, tmp_path / "a.zarr", label="y")


@pytest.mark.parametrize("group", ["", ".", "'", " ", "\u00a0", "\u202f", ","])
def test_numbers_with_commas_are_no_levels_in_silence(tmp_path: Path, group: str) -> None:
    """Each became a column of its own, and only the printed store told."""
    values = 1000.0 + np.arange(40) * 777
    texts = [f"{v:,.0f}".replace(",", group) for v in values]
    texts = texts if group == "," else [f"{text},50" for text in texts]
    path, dest = tmp_path / "a.csv", tmp_path / "a.zarr"
    rows = [f"{text};{i % 2}" for i, text in enumerate(texts)]
    path.write_text("\n".join(["price;y", *rows]), encoding="utf-8")
    with pytest.raises(DataError, match=r"column 'price' holds numbers with commas \(write them"):
        rf.ingest(path, dest, label="y")
    assert rf.ingest(path, dest, label="y", columns={"price": "category"}).shape[1] > 2
    plain = "\n".join(["price;y", *rows]).replace(",", "")
    path.write_text(plain.replace(group, ""), encoding="utf-8")
    assert rf.ingest(path, dest, label="y", overwrite=True).columns == ["price"]


@pytest.mark.parametrize("fitted", ["csv", "parquet"])
def test_a_level_called_na_is_read_as_it_was_learned(tmp_path: Path, fitted: str) -> None:
    region = ["NA", "EU", "US", "EU", "null"] * 40
    table = pd.DataFrame({"region": region, "y": [0, 1] * 100, "size": range(200)})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    first = rf.ingest(tmp_path / f"t.{fitted}", tmp_path / "first")
    encoder = rf.TableEncoder.of(first)
    assert ("region=NA" in first.columns) == (fitted == "parquet")
    assert ("region missing" in first.columns) == (fitted == "csv")
    for name, source in (("c", tmp_path / "t.csv"), ("p", tmp_path / "t.parquet"), ("f", table)):
        again = rf.ingest(source, tmp_path / name, columns=encoder)
        assert same_bits(again.X.compute(), first.X.compute()), name
    assert same_bits(encoder.transform(table[["size", "region"]]), first.X.compute())


def test_gaps_beside_a_level_called_na_stay_gaps(tmp_path: Path) -> None:
    """R writes NA for a gap in any column."""
    table = pd.DataFrame({"region": ["NA", "EU", "US"] * 9, "y": [0, 1, 1] * 9, "x": [1.0] * 27})
    table.loc[::5, "x"] = None
    first = rf.ingest(table, tmp_path / "first")
    table.to_csv(tmp_path / "r.csv", index=False, na_rep="NA")
    again = rf.ingest(tmp_path / "r.csv", tmp_path / "r", columns=rf.TableEncoder.of(first))
    assert same_bits(again.X.compute(), first.X.compute())
