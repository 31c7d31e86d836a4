"""Column names on their way from files to stores, and files that do not agree on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import rfcdask as rf
from rfcdask.data.columns import match_columns
from rfcdask.data.errors import DataError
from rfcdask.data.sources.base import Survey

ROWS = {"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9], "kind": ["x", "y", "x"]}


def table(path: Path, *names: str, **more: Any) -> Path:
    """Write some of the columns, in this order."""
    columns = {name: (ROWS | more)[name] for name in names}
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
        return path
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join([",".join(columns), *rows]) + "\n")
    return path


ENDINGS = pytest.mark.parametrize("ending", ["csv", "parquet"])


@ENDINGS
def test_names_go_with_the_rows(tmp_path: Path, ending: str) -> None:
    source = table(tmp_path / f"t.{ending}", "a", "kind", "b", "c")
    data = rf.ingest(source, tmp_path / "s.zarr", label="kind")
    assert data.columns == ["a", "b", "c"]
    assert (data.attrs["label_name"], data.attrs["label_column"]) == ("kind", 1)
    train, test = data.standardize().split(1, random_state=0)
    assert train.columns == test.columns == data.columns
    again = rf.ingest(data, tmp_path / "again.zarr", shuffle=True, random_state=0)
    assert (again.columns, again.attrs["label_name"]) == (data.columns, "kind")
    bare = rf.ingest(tmp_path / "s.zarr", tmp_path / "bare.zarr", label=False)
    assert (bare.columns, bare.attrs["label_name"]) == (data.columns, None)


def test_names_of_a_projected_store_are_those_before(tmp_path: Path) -> None:
    source = table(tmp_path / "t.csv", "a", "b", "c", "kind")
    data = rf.ingest(source, tmp_path / "s.zarr", label="kind", project=2, random_state=0)
    again = rf.ingest(data, tmp_path / "again.zarr")
    for stored in (data, again):
        assert stored.columns is None
        assert stored.attrs["columns_in_file"] == ["a", "b", "c"]


def test_rows_without_names_have_none(tmp_path: Path) -> None:
    data = rf.ingest((np.eye(3), [0, 1, 0]), tmp_path / "s.zarr")
    assert data.columns is None
    assert data.attrs["label_name"] is None
    (tmp_path / "t.csv").write_text("1,2,5\n3,4,6\n")
    data = rf.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", label=-1)
    assert (data.columns, data.attrs["label_column"]) == (None, 2)


def test_columns_taken_take_their_statistics_along(tmp_path: Path) -> None:
    data = rf.ingest(table(tmp_path / "t.csv", "a", "b", "c"), tmp_path / "s.zarr", label=False)
    some = data.take_columns([2, 0])
    assert (some.columns, some.shape) == (["c", "a"], (3, 2))
    np.testing.assert_array_equal(some.X.compute(), data.X.compute()[:, [2, 0]])
    np.testing.assert_array_equal(some.mean, data.mean[[2, 0]])
    np.testing.assert_array_equal(some.rows([1]).X, [[8, 2]])
    np.testing.assert_allclose(some.standardize().X.compute().mean(axis=0), 0, atol=1e-6)
    assert data.take_columns([0, 1, 2]) is data


@ENDINGS
def test_files_with_other_orders_are_one_table(tmp_path: Path, ending: str) -> None:
    first = table(tmp_path / f"1.{ending}", "a", "b", "c", "kind")
    second = table(tmp_path / f"2.{ending}", "kind", "c", "a", "b")
    data = rf.ingest([first, second], tmp_path / "s.zarr", label="kind")
    once = np.column_stack([ROWS["a"], ROWS["b"], ROWS["c"]])
    np.testing.assert_array_equal(data.X.compute(), np.vstack([once, once]))
    assert data.y is not None
    assert data.y.compute().tolist() == [*ROWS["kind"], *ROWS["kind"]]


@ENDINGS
def test_files_with_other_columns_are_refused(tmp_path: Path, ending: str) -> None:
    first = table(tmp_path / f"1.{ending}", "a", "b", "kind")
    short = table(tmp_path / f"2.{ending}", "kind", "a")
    wide = table(tmp_path / f"3.{ending}", "kind", "c", "b", "a")
    with pytest.raises(DataError, match=rf"column 'b' is missing from .*2\.{ending}"):
        rf.ingest([first, short], tmp_path / "s.zarr", label="kind")
    with pytest.raises(DataError, match=rf"3\.{ending} has 'c', which .*1\.{ending} has not"):
        rf.ingest([first, wide], tmp_path / "s.zarr", label="kind")
    data = rf.ingest(  # as the message tells
        [first, wide], tmp_path / "s.zarr", label="kind", columns=["b", "a"]
    )
    assert data.columns == ["b", "a"]
    np.testing.assert_array_equal(data.X.compute()[:, 1], [1, 2, 3, 1, 2, 3])


def test_headers_on_some_files_only_are_refused(tmp_path: Path) -> None:
    first = table(tmp_path / "1.csv", "a", "b")
    (tmp_path / "2.csv").write_text("1,2\n3,4\n")
    with pytest.raises(DataError, match=r"2\.csv has no header, unlike .*1\.csv"):
        rf.ingest([first, tmp_path / "2.csv"], tmp_path / "s.zarr", label=False)
    (tmp_path / "3.csv").write_text("1,2,3\n3,4,5\n")
    with pytest.raises(DataError, match=r"3\.csv: 2 columns expected as in .*2\.csv, 3 found"):
        rf.ingest([tmp_path / "2.csv", tmp_path / "3.csv"], tmp_path / "s.zarr", label=False)


@ENDINGS
def test_chosen_columns_leave_text_aside(tmp_path: Path, ending: str) -> None:
    note = ["p, q" if ending == "parquet" else '"p\nq"', "", "r"]
    source = table(tmp_path / f"t.{ending}", "note", "c", "kind", "a", note=note)
    data = rf.ingest(source, tmp_path / "s.zarr", label="kind", columns=["a", "c"])
    np.testing.assert_array_equal(data.X.compute(), np.column_stack([ROWS["a"], ROWS["c"]]))
    for columns, words in (
        (["a", "z"], "column 'z' is missing from"),
        (["a", "kind"], "the label 'kind' is among the columns to learn from"),
        (["a", "a"], "none twice"),
        ("a", "there is no file a"),
        ([], "at least one column"),
    ):
        with pytest.raises(DataError, match=words):
            rf.ingest(source, tmp_path / "bad.zarr", label="kind", columns=columns)


def test_chosen_columns_need_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2\n3,4\n")
    with pytest.raises(DataError, match="names no columns to choose from: leave columns= out"):
        rf.ingest(tmp_path / "t.csv", tmp_path / "s.zarr", label=False, columns=["0"])
    with pytest.raises(DataError, match="columns= is for CSV files with a header and for Parquet"):
        rf.ingest(np.eye(3), tmp_path / "s.zarr", columns=["0"])


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("a,b,a,b", r"t\.csv, line 1: the column names 'a', 'b' occur twice"),
        (",b,c,d", r"column 0 has no name .* index=False"),
        ("a,,c,", r"columns 1, 3 have no name"),
    ],
)
def test_names_that_tell_nothing_apart(tmp_path: Path, header: str, words: str) -> None:
    source = tmp_path / "t.csv"
    source.write_text(f"{header}\n1,2,3,4\n5,6,7,8\n")
    with pytest.raises(DataError, match=words):
        rf.ingest(source, tmp_path / "s.zarr", label=False)


def test_what_is_not_read_may_have_any_name(tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    source.write_text("x,,b,x,,a\np,q,2,r,s,1\np,q,4,r,s,3\n")
    data = rf.ingest(source, tmp_path / "s.zarr", label=False, columns=["a", "b"])
    np.testing.assert_array_equal(data.X.compute(), [[1, 2], [3, 4]])
    with pytest.raises(DataError, match="'x' occurs twice"):
        rf.ingest(source, tmp_path / "t.zarr", label=False, columns=["a", "x"])


def test_a_parquet_file_with_a_name_twice(tmp_path: Path) -> None:
    twice = pa.table([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="'a' occurs twice"):
        rf.ingest(tmp_path / "t.parquet", tmp_path / "s.zarr", label=False)


def test_an_ingest_of_an_older_version_begins_anew() -> None:
    found = json.loads(json.dumps(Survey(3, 2, "<f4", None).to_json()))
    assert Survey.from_json(found).n_columns == 2
    del found["names"]
    with pytest.raises(DataError, match=r"older version .* overwrite=True to begin anew"):
        Survey.from_json(found)


SHORT = st.text(max_size=6)


@settings(max_examples=60)
@given(st.lists(SHORT.filter(bool), unique=True, min_size=1, max_size=6), st.data())
def test_any_names_are_found_or_named(wanted: list[str], data: Any) -> None:
    others = st.lists(SHORT.filter(lambda name: name not in wanted), unique=True, max_size=3)
    kept = [name for name in wanted if data.draw(st.integers(0, 5))]
    found = data.draw(st.permutations(kept + data.draw(others)))
    missing = [name for name in wanted if name not in kept]
    if missing:
        with pytest.raises(DataError) as refused:
            match_columns("new", found, wanted)
        assert all(repr(name) in str(refused.value) for name in missing[:30])
        return
    places, left_out = match_columns("new", found, wanted)
    assert [found[place] for place in places] == wanted
    assert sorted([*wanted, *left_out]) == sorted(found)


def _frames(n: int = 60) -> Any:
    draw = np.random.default_rng(0)
    numbers = pd.DataFrame(draw.normal(size=(n, 4)), columns=["a", "b", "u", "v"])
    return numbers, numbers.assign(town=np.where(np.arange(n) % 2, "A", "B"))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "dask", "arrays", "dask arrays"])
def test_several_targets_are_columns_of_y(
    tmp_path: Path, kind: str, text: bool, shuffle: bool
) -> None:
    table = _frames()[text]
    label: Any = ["v", "a"]
    source: Any = table
    if kind == "csv":
        table.to_csv(tmp_path / "t.csv", index=False)
        source, label = tmp_path / "t.csv", "v, a"
    elif kind == "parquet":
        table.to_parquet(tmp_path / "t.parquet")
        source = tmp_path / "t.parquet"
    elif kind == "dask":
        source = dd.from_pandas(table, npartitions=3)
    elif kind in ("arrays", "dask arrays"):
        rows, y = table[["b", "u"]].to_numpy(), table[["v", "a"]].to_numpy()
        source, label = (rows, y), None
        if kind == "dask arrays":
            source = (da.from_array(rows, chunks=(20, 2)), da.from_array(y, chunks=(20, 2)))
    seed = {"random_state": 0} if shuffle else {}
    data = rf.ingest(source, tmp_path / "s.zarr", label=label, shuffle=shuffle, **seed)
    assert data.y is not None
    found, rows = data.y.compute(), data.X.compute()
    order = np.argsort(found[:, 0])
    wanted = table.sort_values("v")
    np.testing.assert_array_equal(found[order], wanted[["v", "a"]].to_numpy())
    if (not text and kind != "dask") or "arrays" in kind:  # others are encoded
        np.testing.assert_array_equal(rows[order], wanted[["b", "u"]].to_numpy())
    assert data.targets == (["0", "1"] if "arrays" in kind else ["v", "a"])
    data.verify()
    train, test = data.standardize().split(20, random_state=0)
    assert train.y is not None
    assert (train.y.shape, test.rows([1, 3]).y.shape) == ((40, 2), (2, 2))
    again = rf.ingest(data, tmp_path / "again.zarr")
    assert again.y is not None
    np.testing.assert_array_equal(again.y.compute(), found)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (["a", "town"], "target 'town' holds text.*give one label"),
        (["a", "grade"], "the target 'grade' is taken for classes.*task='regression'"),
        (["a", "a"], "names a column twice"),
        (["a", "q"], "no column 'q'"),
        (["a", None], "no list of columns"),
    ],
)
def test_targets_that_cannot_be_are_named(tmp_path: Path, label: Any, said: str) -> None:
    table = _frames()[1].assign(grade=np.arange(60) % 5)
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.csv", tmp_path / "t.parquet"):
        with pytest.raises(DataError, match=said):
            rf.ingest(source, tmp_path / "s.zarr", label=label)
    if "task=" in said:  # the remedy
        data = rf.ingest(tmp_path / "t.csv", tmp_path / "s.zarr", label=label, task="regression")
        assert data.targets == label


def test_rows_without_one_of_the_targets_are_named(tmp_path: Path) -> None:
    table = _frames()[1]
    table.loc[7, "v"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"'u', 'v' is missing in 1 row \(.*line 9\)"):
        rf.ingest(tmp_path / "t.csv", tmp_path / "s.zarr", label=["u", "v"])
    given: dict[str, Any] = {"label": ["u", "v"], "nan": "drop-unlabelled"}
    assert rf.ingest(tmp_path / "t.csv", tmp_path / "s.zarr", **given).shape[0] == 59


@pytest.mark.parametrize("name", ["a\nb", "a\r\nb", "a\n"])
@pytest.mark.parametrize("values", ["1 2 3", "u v u"])
def test_names_over_several_lines_are_no_row(tmp_path: Path, name: str, values: str) -> None:
    """Spreadsheets write such names; the rest of them was taken for a row with a class 'label'."""
    frame = pd.DataFrame({name: values.split(), "c": [4, 5, 6], "label": ["x", "y", "x"]})
    plain = frame.rename(columns={name: name.strip().replace("\r", "")})
    for folder, order in (("first", [0, 1, 2]), ("last", [2, 1, 0])):
        frame.iloc[:, order].to_csv(tmp_path / "long.csv", index=False)
        plain.iloc[:, order].to_parquet(tmp_path / "plain.parquet", index=False)
        given: dict[str, Any] = {} if "u" in values else {"columns": {plain.columns[0]: "number"}}
        found = rf.ingest(tmp_path / "long.csv", tmp_path / folder / "long.zarr", **given)
        right = rf.ingest(tmp_path / "plain.parquet", tmp_path / folder / "plain.zarr", **given)
        assert found.columns == right.columns
        assert found.y is not None
        assert found.y.compute().tolist() == ["x", "y", "x"]
        np.testing.assert_array_equal(found.X.compute(), right.X.compute())


def _record_batch(frame: Any, names: list[Any]) -> Any:
    return pa.RecordBatch.from_pandas(frame[names], preserve_index=False)


def _pandas(frame: Any, names: list[Any]) -> Any:
    return frame[names]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    ("names", "fitted", "given"),
    [
        ([2019, 2020, 2021], _pandas, _pandas),
        ([("a", "x"), ("a", "y"), ("b", "x")], _pandas, _pandas),
        ([*"abc"], _record_batch, _record_batch),
        ([*"abc"], _pandas, _record_batch),
        ([*"abc"], _record_batch, _pandas),
    ],
)
def test_names_that_scikit_learn_does_not_see(
    tmp_path: Path, names: list[Any], fitted: Any, given: Any, saved: bool
) -> None:
    """In another order, columns with years for names were each taken for another one."""
    X = np.random.default_rng(0).normal(size=(80, 3))
    frame = pd.DataFrame(X, columns=names)
    frame.columns = pd.Index(names, tupleize_cols=isinstance(names[0], tuple))
    for model in (rf.RidgeClassifier(), rf.PCA(2), rf.RandomFeatures(4, random_state=0)):
        found: Any = model.fit(fitted(frame, names), X[:, 0] > 0)
        if saved:
            rf.save(found, tmp_path / "model", overwrite=True)
            found = rf.load(tmp_path / "model")
        call = getattr(found, "decision_function", None) or found.transform
        expected = call(fitted(frame, names))
        np.testing.assert_allclose(call(given(frame, names[::-1])), expected, rtol=1e-9, atol=1e-12)
        with pytest.raises(DataError, match="is missing from X"):
            call(given(frame, names[:2]))


@pytest.mark.parametrize("fitted", [pd.DataFrame, np.asarray])
def test_counted_columns_in_another_order_are_refused(fitted: Any) -> None:
    """They were taken by position, each for another one."""
    X = np.random.default_rng(0).normal(size=(80, 3))
    frame = pd.DataFrame(X)
    for model in (rf.RidgeClassifier(), rf.PCA(2), rf.RandomFeatures(4, random_state=0)):
        found: Any = model.fit(fitted(X), X[:, 0] > 0)
        call = getattr(found, "decision_function", None) or found.transform
        np.testing.assert_allclose(call(frame), call(X), rtol=1e-9, atol=1e-12)
        with pytest.raises(ValueError, match=r"columns of X are counted 2, 0, 1, and .*to_numpy"):
            call(frame[[2, 0, 1]])
        call(frame[[2, 0, 1]].to_numpy())
        call(frame.set_axis([2019, 2020, 2021], axis=1))


def test_a_label_that_is_the_place_of_one_column_and_the_name_of_another(tmp_path: Path) -> None:
    """The place was taken, though the column had that name."""
    table = pd.DataFrame({"1": [0.5, 1, 2], "2": [3.5, 4, 5], "0": [*"pqp"]})
    table.to_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", table, table.set_axis([1, 2, 0], axis=1)):
        with pytest.raises(DataError, match=r"label=0 is .*label=-3 for .* label=-1 for the"):
            rf.ingest(source, tmp_path / "s", label=0, overwrite=True)
        for label, name in ((-3, "1"), (-1, "0"), ("0", "0"), ("1", "1")):
            found = rf.ingest(source, tmp_path / "s", label=label, overwrite=True)
            assert found.attrs["label_name"] == name
    counted = pd.DataFrame(np.arange(9.0).reshape(3, 3))
    assert rf.ingest(counted, tmp_path / "c", label=1).attrs["label_name"] == "1"


def test_projected_rows_of_another_matrix_or_order_are_refused_by_a_model(tmp_path: Path) -> None:
    """Projected columns have no names, and any rows of that width were taken in silence."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(300, 9)), columns=[f"c{k}" for k in range(9)])
    frame["label"] = np.where(frame["c0"] + frame["c1"] > 0, "up", "down")
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame[frame.columns[::-1]].to_csv(tmp_path / "turned.csv", index=False)
    stored = rf.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", project=6, random_state=0)
    plain = rf.ingest(tmp_path / "t.csv", tmp_path / "plain.zarr")
    model = rf.RidgeClassifier().fit(stored.X, stored.y)
    score = model.score(stored.X, stored.y)

    def again(name: str, **options: Any) -> rf.Dataset:
        dest = tmp_path / f"{len([*tmp_path.iterdir()])}.zarr"
        return rf.ingest(tmp_path / name, dest, project=6, **options)

    with pytest.raises(DataError, match="projected by another matrix"):
        model.predict(again("t.csv").X)  # each call draws a seed of its own
    with pytest.raises(DataError, match="projected by another matrix"):
        model.predict(plain.project(6, 1).X)
    with pytest.raises(DataError, match="in another order"):
        model.predict(again("turned.csv", random_state=0).X)
    # The remedies, and other ways to the same rows.
    names = stored.attrs["columns_in_file"]
    for same in (
        again("t.csv", random_state=stored.projection.seed),
        again("turned.csv", random_state=0, columns=names),
        plain.project(6, 0),
        rf.ingest(stored, tmp_path / "mixed.zarr", shuffle=True, random_state=0),
        rf.ingest((stored.projection.transform(frame[names]), frame["label"]), tmp_path / "a.zarr"),
    ):
        assert model.score(same.X, same.y) == pytest.approx(score, abs=0.01)


def test_projected_rows_of_a_table_that_was_encoded_by_itself_are_refused(tmp_path: Path) -> None:
    days = pd.date_range("2020-01-01", periods=300, freq="D")
    frame = pd.DataFrame({"day": days, "size": np.arange(300.0), "late": [0, 1] * 150})
    options: Any = {"label": "late", "project": 3, "random_state": 0}
    first = rf.ingest(frame[:200], tmp_path / "a.zarr", **options)
    model = rf.RidgeClassifier().fit(first.X, first.y)
    with pytest.raises(DataError, match="of another table"):
        model.predict(rf.ingest(frame[100:], tmp_path / "b.zarr", **options).X)
    encoder = rf.TableEncoder.of(first)
    new = rf.ingest(frame[:200], tmp_path / "c.zarr", columns=encoder, **options)
    np.testing.assert_array_equal(model.predict(new.X), model.predict(first.X))
