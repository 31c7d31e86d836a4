"""Encoded tables against scikit-learn on the whole table, in any chunking and from any frame."""

from __future__ import annotations

import json
from datetime import time
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.tables import Choices, TableSpec, read_choices
from rfcdask.data.tables.encode import (
    decide_kinds,
    summarize_block,
)
from rfcdask.data.tables.summary import (
    SKETCH,
    Sketch,
    Summary,
    conclude,
    join_summaries,
    summarize,
)


def frame(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """A table with all kinds of columns, some values of which are missing."""
    rng = np.random.default_rng(seed)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 9 * 10**7, n), unit="s")
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 12, n),
            "visits": rng.integers(0, 9, n),
            "member": rng.random(n) < 0.4,
            "city": rng.choice(["Oslo", "Rome", "Bern", "Lima"], n),
            "signup": day,
        }
    )
    for name in ("age", "city", "signup"):
        table.loc[rng.random(n) < 0.05, name] = None
    return table


def encoded(X: Any, **options: Any) -> pd.DataFrame:
    fitted = rf.TableEncoder(**options).fit(X)
    return pd.DataFrame(fitted.transform(X), columns=fitted.get_feature_names_out())


def test_numbers_are_those_of_scikit_learn() -> None:
    table = frame()
    found = encoded(table)
    pipeline = make_pipeline(SimpleImputer(strategy="median", add_indicator=True))
    filled = pipeline.fit_transform(table[["age", "visits"]])
    scaled = StandardScaler().fit_transform(filled[:, :2])
    np.testing.assert_allclose(found[["age", "visits"]], scaled, atol=1e-6)
    np.testing.assert_array_equal(found["age missing"], filled[:, 2])
    assert "visits missing" not in found


@pytest.mark.parametrize("least", [1, 0.26])
def test_categories_are_those_of_scikit_learn(least: float) -> None:
    table = frame()
    present = table[table["city"].notna()]
    encoder = OneHotEncoder(
        min_frequency=least, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    wanted = encoder.fit_transform(present[["city"]])
    found = encoded(present, min_frequency=least)
    names = [name for name in found if name.startswith("city")]
    np.testing.assert_array_equal(found[names], wanted)
    if least == 1:
        assert names == [f"city={level}" for level in encoder.categories_[0]]
    else:
        assert names[-1] == "city: other levels"


maybe = st.one_of(st.none(), st.integers(-4000, 4000).map(lambda quarters: quarters / 4))
level = st.sampled_from([None, "a", "b", "c", "d e", "é"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(maybe, level), min_size=2, max_size=60), st.integers(1, 5))
def test_any_table_is_encoded_as_by_scikit_learn(rows: list[Any], least: int) -> None:
    table = pd.DataFrame(rows, columns=["x", "c"]).astype({"x": float, "c": object})
    there = table.notna()
    assume(there.any().all())
    found = encoded(table, min_frequency=least)
    filled = SimpleImputer(add_indicator=True, strategy="median").fit_transform(table[["x"]])
    scaled = StandardScaler().fit_transform(filled[:, :1])
    np.testing.assert_allclose(found["x"], scaled[:, 0], rtol=1e-6, atol=1e-6)
    assert ("x missing" in found) == (filled.shape[1] == 2) == (not there["x"].all())
    if "x missing" in found:
        np.testing.assert_array_equal(found["x missing"], filled[:, 1])
    rare = "infrequent_if_exist"
    encoder = OneHotEncoder(min_frequency=least, handle_unknown=rare, sparse_output=False)
    wanted = encoder.fit_transform(table.loc[there["c"], ["c"]])
    levels = found[[name for name in found if name.startswith(("c=", "c:"))]]
    np.testing.assert_array_equal(levels[there["c"]], wanted)
    assert not levels[~there["c"]].any(axis=None)
    assert found.get("c missing", 0.0 * there["c"]).tolist() == (~there["c"]).tolist()


def test_dates_turn_in_circles() -> None:
    table = frame()
    found = encoded(table)
    seconds = (table["signup"] - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
    wanted = make_pipeline(SimpleImputer(strategy="median"), StandardScaler()).fit_transform(
        seconds.to_frame()
    )
    np.testing.assert_allclose(found["signup: elapsed"], wanted[:, 0], atol=1e-6)
    there = table["signup"].notna().to_numpy()
    turn = 2 * np.pi * table["signup"].dt.day_of_week / 7
    np.testing.assert_allclose(
        found["signup: day of week sin"][there], np.sin(turn[there]), atol=1e-6
    )
    hour = (
        table["signup"].dt.hour + table["signup"].dt.minute / 60 + table["signup"].dt.second / 3600
    )
    np.testing.assert_allclose(
        found["signup: hour cos"][there], np.cos(2 * np.pi * hour[there] / 24), atol=1e-6
    )
    year = 2 * np.pi * (table["signup"].dt.day_of_year - 1) / 365.25
    np.testing.assert_allclose(
        found["signup: day of year cos"][there], np.cos(year[there]), atol=1e-6
    )
    assert not found.filter(like=" sin")[~there].any(axis=None)
    midnight = encoded(pd.DataFrame({"d": ["2024-01-01", "2024-01-02", "2024-01-08"] * 9}))
    assert list(midnight) == ["d: elapsed", *(f"d: {part} {wave}" for part in
        ("day of week", "day of year") for wave in ("sin", "cos"))]  # fmt: skip


def test_columns_without_units_are_not_scaled() -> None:
    found = encoded(frame())
    for name in ("member", "age missing", "city=Oslo", "city missing", "signup missing"):
        assert set(found[name].unique()) == {0.0, 1.0}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 119), max_size=6, unique=True), st.permutations(range(7)))
def test_any_chunking_learns_the_same(cuts: list[int], order: list[int]) -> None:
    table = pa.Table.from_pandas(frame(120), preserve_index=False)
    choices = Choices()
    kinds = decide_kinds([table], table.schema.names, choices, "X")
    edges = [0, *sorted(cuts), 120]
    parts = [
        summarize_block(table.slice(a, b - a), kinds, choices, "X") for a, b in pairwise(edges)
    ]
    shuffled = [parts[i] for i in order if i < len(parts)]
    whole = summarize_block(table, kinds, choices, "X")
    joined = join_summaries(shuffled)
    for name, summary in whole.items():
        assert conclude(name, joined[name], choices) == conclude(name, summary, choices)


numbers = st.floats(-1e100, 1e100, allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=60), st.integers(0, 60))
def test_moments_are_exact(values: list[float], cut: int) -> None:
    parts = [
        summarize("number", pa.array(part, pa.float64())) for part in (values[:cut], values[cut:])
    ]
    found = parts[0].join(parts[1])
    assert Fraction(found.total, 2**1074) == sum(map(Fraction, values))
    squares = sum(Fraction(value) ** 2 for value in values)
    # Products below 1e-291 lose digits; nobody will see them beside one that is larger.
    assert abs(Fraction(found.squares, 2**1074) - squares) <= Fraction(len(values), 2**1070)
    assert found.sketch.median() == pytest.approx(float(np.median(values)), rel=1e-15)


@pytest.mark.parametrize("size", [64, 1024])
def test_median_of_many_values_is_near(size: int) -> None:
    values = np.random.default_rng(0).normal(1000, 1, 20_000)
    values[:9000] = 999.5  # a value of many rows must not be lost
    whole = Sketch.of(values, size)
    parts = [Sketch.of(part, size) for part in np.array_split(values, 13)]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.join(part)
    assert joined.median() == whole.median()
    assert size // 2 <= len(whole.bins) <= size
    width = (values.max() - values.min()) / (size // 2)
    assert abs(whole.median() - np.median(values)) < 2 * width


def test_many_levels_are_hashed_to_few_columns() -> None:
    n = 30_000
    table = pd.DataFrame({"id": [f"u{i // 2}" for i in range(n)], "x": np.arange(n)})
    fitted = rf.TableEncoder(hash_columns=8).fit(table)
    column = fitted.spec_of_table().columns[0]
    assert column.levels == ()
    assert abs(column.n_levels - n / 2) < 0.15 * n / 2
    rows = fitted.transform(table)[:, :8]
    np.testing.assert_array_equal(rows.sum(axis=1), 1)
    assert rows.sum(axis=0).min() > n / 8 * 0.9
    fewer = rf.TableEncoder(max_levels=3).fit(
        pd.DataFrame({"c": list("aabbccddee") * 9 + ["a"] * 5})
    )
    assert fewer.get_feature_names_out()[:4].tolist() == ["c=a", "c=b", "c=c", "c: hash 0"]


def test_free_text_is_refused_all_at_once() -> None:
    table = pd.DataFrame({k: [f"{k}{i}" for i in range(90)] for k in ("note", "mail")} | {"x": 1})
    with pytest.raises(
        DataError, match=r"'note' is text with 90.*'mail' is text.*columns="
    ) as said:
        rf.TableEncoder().fit(table)
    remedy = {"note": "drop", "mail": "category"}
    assert "{'note': 'drop', 'mail': 'drop'}" in str(said.value)
    assert encoded(table, columns=remedy).shape == (90, 50 + 32 + 1)


def test_columns_of_lists_are_refused_all_at_once() -> None:
    table = pa.table({"a": [[1], [2]], "b": [b"x", b"y"], "c": [1, 2]})
    with pytest.raises(DataError, match=r"'a' holds list.*'b' holds binary.*'a': 'drop'"):
        rf.TableEncoder().fit(table)
    assert list(encoded(table, columns={"a": "drop", "b": "drop"})) == ["c"]


def test_new_rows_find_their_columns_by_name() -> None:
    table = frame()
    fitted = rf.TableEncoder().fit(table)
    wanted = fitted.transform(table)
    np.testing.assert_array_equal(fitted.transform(table[table.columns[::-1]]), wanted)
    with pytest.warns(UserWarning, match="column 'extra' is left out"):
        np.testing.assert_array_equal(fitted.transform(table.assign(extra=1)), wanted)
    with pytest.raises(DataError, match=r"column 'city' is missing from X: .*rename 'City'"):
        fitted.transform(table.rename(columns={"city": "City"}))


def test_unseen_levels_and_newly_missing_values() -> None:
    table = pd.DataFrame({"c": list("aab") * 10, "x": np.arange(30.0), "r": ["p"] * 29 + ["q"]})
    fitted = rf.TableEncoder(min_frequency=2).fit(table)
    names = fitted.get_feature_names_out().tolist()
    assert names == ["c=a", "c=b", "x", "r=p", "r: other levels"]
    new = pd.DataFrame({"c": ["z", None], "x": [np.nan, 14.5], "r": ["new", "p"]})
    np.testing.assert_array_equal(fitted.transform(new), [[0, 0, 0, 0, 1], [0, 0, 0, 1, 0]])


def test_a_value_of_another_kind_is_named() -> None:
    fitted = rf.TableEncoder().fit(frame())
    new = frame(seed=1).astype({"age": object, "signup": object})
    new["age"] = new["age"].astype(str).replace("nan", None)
    new.loc[7, "age"] = "old"
    with pytest.raises(DataError, match="X, row 7: expected a number in column 'age', found 'old'"):
        fitted.transform(new)
    infinite = frame(seed=1).assign(age=np.inf)
    with pytest.raises(DataError, match="row 0: expected a number in column 'age', found 'inf'"):
        fitted.transform(infinite)


def test_mixed_values_are_named() -> None:
    with pytest.raises(DataError, match=r"column 'a' mixes values .*\(int, str\).*astype\(str\)"):
        rf.TableEncoder().fit(pd.DataFrame({"a": [1, "x", 2.0], "b": 1}).assign(a=[1, "x", 2]))


def test_sparse_columns_of_pandas_are_numbers() -> None:
    """They were said to mix values, and to be made numbers."""
    plain = pd.DataFrame({"a": [0.0, 0.0, 3.0, 1.0]})
    fitted = rf.TableEncoder().fit(plain.astype(pd.SparseDtype(float, 0.0)))
    np.testing.assert_array_equal(fitted.transform(plain), rf.TableEncoder().fit_transform(plain))


@pytest.mark.parametrize("X", [np.array([["a", 1]], object), np.ones((3, 2)), [[1, 2]]])
def test_arrays_without_names_are_refused(X: Any) -> None:
    with pytest.raises(DataError, match=r"no named columns: give a DataFrame"):
        rf.TableEncoder().fit(X)


def test_names_that_collide_stay_apart() -> None:
    table = pd.DataFrame({"a": ["b", "c"] * 5, "a=b": np.arange(10), "<script>": np.arange(10)})
    names = rf.TableEncoder().fit(table).get_feature_names_out().tolist()
    assert names == ["a=b", "a=c", "a=b (2)", "<script>"]
    with pytest.raises(DataError, match="name 'a' occurs twice"):
        rf.TableEncoder().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(DataError, match="column 1 has no name"):
        rf.TableEncoder().fit(pd.DataFrame([[1, 2]], columns=["a", ""]))


def test_kinds_may_be_given(tmp_path: Path) -> None:
    table = pd.DataFrame({"zip": [100, 200] * 5, "day": ["31.12.2020", "01.02.2021"] * 5, "n": "x"})
    chosen = {"zip": "category", "day": {"kind": "date", "format": "%d.%m.%Y"}, "n": "drop"}
    found = encoded(table, columns=chosen)
    assert {"zip=100", "zip=200", "day: elapsed"} <= set(found)
    path = tmp_path / "spec.toml"
    day = 'kind = "date"\nformat = "%d.%m.%Y"\n'
    path.write_text(f'[columns]\nzip = "category"\nn = "drop"\n[columns.day]\n{day}')
    pd.testing.assert_frame_equal(encoded(table, columns=path), found)
    with pytest.raises(DataError, match="decides on 'zap', which X has not"):
        encoded(table, columns={"zap": "drop"})
    with pytest.raises(DataError, match="zip = 'numbr' is no kind of column"):
        encoded(table, columns={"zip": "numbr"})
    with pytest.raises(DataError, match="max_levels = -1 cannot be used"):
        encoded(table, max_levels=-1)


def test_arrow_and_polars_frames_are_the_same() -> None:
    table = frame().drop(columns="signup")
    wanted = encoded(table)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    pd.testing.assert_frame_equal(encoded(arrow), wanted)
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}).lazy()
    with pytest.raises(DataError, match=r"frame\.collect\(\)"):
        rf.ingest(lazy, "never.zarr", label="y")
    frame_of_polars = polars.DataFrame(arrow)
    pd.testing.assert_frame_equal(encoded(frame_of_polars), wanted)
    levels = frame_of_polars.with_columns(polars.col("city").cast(polars.Categorical))
    pd.testing.assert_frame_equal(encoded(levels), wanted)


def test_other_types_of_arrow() -> None:
    import datetime as dt
    from decimal import Decimal

    table = pa.table(
        {
            "cat": pa.array(["a", "b", "a"]).dictionary_encode(),
            "dec": [Decimal("1.5"), Decimal("2.5"), None],
            "date": [dt.date(2020, 1, 1), dt.date(2021, 5, 1), dt.date(2020, 1, 1)],
            "time": [dt.time(1), dt.time(7), None],
            "span": [dt.timedelta(seconds=1), dt.timedelta(seconds=3), dt.timedelta(seconds=2)],
            "zone": pa.array([0, 10**15, None], pa.timestamp("us", "Europe/Oslo")),
            "large": pa.array(["x", "", "y"], pa.large_string()),
            "none": pa.nulls(3),
        }
    )
    fitted = rf.TableEncoder().fit(table)
    kinds = [column.kind for column in fitted.spec_of_table().columns]
    assert kinds == ["category", "number", "date", "date", "number", "date", "category", "drop"]
    assert fitted.spec_of_table().columns[4].center == 2.0
    assert np.isfinite(fitted.transform(table)).all()
    assert dict(fitted.describe())["none"] == "left out (every value is missing)"


def test_levels_may_be_views_of_text() -> None:
    """As those of polars, from which Arrow cannot take."""
    levels = pa.array(["u", "v"], pa.string_view())
    try:
        levels.cast(pa.string())
    except pa.ArrowNotImplementedError:
        pytest.skip("this pyarrow cannot cast views of text")
    codes = pa.array([0, None, 1], pa.uint32())
    table = pa.table({"c": pa.DictionaryArray.from_arrays(codes, levels)})
    assert list(encoded(table)) == ["c=u", "c=v", "c missing"]


def test_dask_frames_are_lazy_and_give_the_same() -> None:
    dd = pytest.importorskip("dask.dataframe")
    table = frame()
    whole = rf.TableEncoder().fit(table)
    for parts in (1, 3, 7):
        lazy = dd.from_pandas(table, npartitions=parts)
        fitted = rf.TableEncoder().fit(lazy)
        assert fitted.table_ == whole.table_
        rows = fitted.transform(lazy)
        assert rows.numblocks[0] == parts
        assert sum(rows.chunks[0]) == len(table)
        np.testing.assert_array_equal(rows.compute(), whole.transform(table))
    some = lazy[lazy["visits"] > 3]  # of unknown lengths, and other than those of the fit
    rows = fitted.transform(some)
    np.testing.assert_array_equal(rows.compute(), whole.transform(table[table["visits"] > 3]))


def test_a_pipeline_fits_a_dask_frame_and_is_saved(tmp_path: Path) -> None:
    dd = pytest.importorskip("dask.dataframe")
    table = frame()
    y = pd.Series(np.where(table["city"] == "Oslo", "yes", "no"))
    model = make_pipeline(rf.TableEncoder(), rf.KernelClassifier(30, epochs=3, random_state=0))
    lazy, labels = dd.from_pandas(table, npartitions=4), dd.from_pandas(y, npartitions=3)
    model.fit(lazy, labels)
    predicted = model.predict(table)
    np.testing.assert_array_equal(model.predict(lazy).compute(), predicted)
    rf.save(model, tmp_path / "model")
    again = rf.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(table), predicted)
    assert again[0].table_ == model[0].table_
    clone(again).fit(table, y)


def test_scalers_of_scikit_learn_are_saved(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X[:, 0] > 0
    model = make_pipeline(
        MinMaxScaler((-1, 1)), RobustScaler(), StandardScaler(), rf.RidgeClassifier()
    )
    rf.save(model.fit(X, y), tmp_path / "model")
    again = rf.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    clone(again).fit(X, y)
    with pytest.raises(TypeError, match=r"OneHotEncoder \(step 'onehotencoder'.*TableEncoder"):
        rf.save(make_pipeline(OneHotEncoder(), rf.Ridge()), tmp_path / "other")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "object"},
        {"hashed": 10**9},
        {"unit": "parsec"},
        {"levels": [1, 2]},
        {"scale": 0.0},
        {"unknown": 1},
        {"circles": ["month"]},
        {"circles": ["hour", "hour"]},
        {"levels": ["a", "a"]},
        {"levels": [str(level) for level in range(70_000)]},
        {"fill": float("nan")},
        {"scale": float("inf")},
        {"scale": 1e-320},
        {"missing": -1},
    ],
    ids=str,
)
def test_a_record_of_columns_is_checked(change: dict[str, Any]) -> None:
    record = json.loads(json.dumps(rf.TableEncoder().fit(frame()).table_))
    assert TableSpec.from_json(record).to_json() == record
    record["columns"][0] |= change
    for wrong in (record, record | {"rows": 0}, record | {"columns": []}):
        with pytest.raises(DataError, match="record of the table's columns is damaged"):
            TableSpec.from_json(wrong)


def test_summaries_stay_small() -> None:
    found = summarize("category", pa.array([str(i) for i in range(20_000)]))
    assert isinstance(found, Summary)
    assert found.levels is None
    assert len(found.hashes) == 1024
    sketch = Sketch.of(np.random.default_rng(0).normal(size=3 * SKETCH), SKETCH)
    assert len(sketch.bins) <= SKETCH


def test_set_output_leaves_lazy_rows_lazy() -> None:
    dd = pytest.importorskip("dask.dataframe")
    table = frame(60)
    encoder = rf.TableEncoder().set_output(transform="pandas").fit(table)
    here = encoder.transform(table)
    assert list(here.columns) == list(encoder.get_feature_names_out())
    lazy = encoder.transform(dd.from_pandas(table, npartitions=3))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), here)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([10**15, 0, 1], pa.timestamp("s")), "row 0: expected a date in column 'c'"),
        (pa.array([0, 2**62, 1], pa.timestamp("ms")), "row 1: expected a date in column 'c'"),
        (pa.array([0, 1, 2**31 - 1], pa.date32()), "row 2: expected a date in column 'c'"),
        (
            pa.StringArray.from_buffers(
                3,
                pa.py_buffer(np.arange(0, 7, 2, dtype="i4").tobytes()),
                pa.py_buffer(b"\xff\xfe" * 3),
            ),
            "column 'c' holds bytes that are no text",
        ),
    ],
    ids=["seconds", "milliseconds", "days", "bytes"],
)
def test_values_that_their_type_cannot_hold_are_named(column: Any, words: str) -> None:
    """Dates beyond what microseconds can count came back as others."""
    table = pa.table({"a": [1.0, 2.0, 3.0], "c": column})
    with pytest.raises(DataError, match=words):
        rf.TableEncoder().fit(table)


def test_nanoseconds_are_dates_as_they_were() -> None:
    times = pa.array([0, 10**18 + 1, 2 * 10**18 + 2], pa.timestamp("ns"))
    Z = rf.TableEncoder().fit_transform(pa.table({"t": times}))
    assert np.allclose(Z[:, 0], [-np.sqrt(1.5), 0, np.sqrt(1.5)], atol=1e-6)


def test_a_partition_that_has_grown_is_refused() -> None:
    """Its rows would be given the labels of others."""
    dd = pytest.importorskip("dask.dataframe")
    rows = [3, 3]

    def read(place: int) -> pd.DataFrame:
        return pd.DataFrame({"a": np.arange(rows[place]) + 0.5})

    frame = dd.from_map(read, [0, 1], meta=read(0).iloc[:0])
    lazy = rf.TableEncoder().fit_transform(frame)
    assert lazy.compute(scheduler="sync").shape == lazy.shape == (6, 1)
    rows[1] = 4
    with pytest.raises(DataError, match=r"partition 1 has 4 rows and had 3 .*transform it again"):
        lazy.compute(scheduler="sync")


@pytest.mark.parametrize(
    "line", ["max_levels = inf", "max_levels = nan", "min_frequency = nan", "hash_columns = 0.5"]
)
def test_numbers_in_a_file_of_columns_are_looked_at(tmp_path: Path, line: str) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=r"columns\.toml: .* cannot be used"):
        rf.TableEncoder(columns=path).fit(frame())


DATES = pd.Series(pd.to_datetime(["2024-01-01", "2024-05-02", "2024-09-03"]))
UNITS = {
    "a date": DATES,
    "a time of day": pd.Series([time(1), time(2, 30), time(5)]),
    "a duration": DATES - DATES[0],
    "a number": pd.Series([1, 2, 4]),
}


@pytest.mark.parametrize(
    ("learned", "given"),
    [("a date", "a time of day"), ("a number", "a duration")],
    ids=["dates and times", "numbers and durations"],
)
def test_values_in_other_units_than_those_learned_are_refused(learned: str, given: str) -> None:
    for known, other in ((learned, given), (given, learned)):
        encoder = rf.TableEncoder().fit(pd.DataFrame({"a": UNITS[known]}))
        assert TableSpec.from_json(json.loads(json.dumps(encoder.table_))).to_json() == (
            encoder.table_
        )
        gaps = pd.DataFrame({"a": [None, *UNITS[other]]})
        with pytest.raises(DataError, match=f"row 1: expected {known} in column 'a', found"):
            encoder.transform(gaps)
        assert np.isfinite(encoder.transform(pd.DataFrame({"a": [None, None]}))).all()


def test_units_that_are_mixed_between_blocks_are_refused() -> None:
    frames = [pd.DataFrame({"a": UNITS[unit]}) for unit in ("a number", "a duration")]
    parts = [
        summarize_block(pa.Table.from_pandas(f), {"a": "number"}, Choices(), "X") for f in frames
    ]
    with pytest.raises(DataError, match="column 'a' mixes duration and other values"):
        join_summaries(parts)
    gap = summarize_block(pa.table({"a": [None]}), {"a": "number"}, Choices(), "X")
    assert join_summaries([gap, parts[1]])["a"].unit == "duration"


def test_times_of_a_day_that_an_older_version_learned_are_taken() -> None:
    frame = pd.DataFrame({"a": UNITS["a time of day"]})
    encoder = rf.TableEncoder().fit(frame)
    expected = encoder.transform(frame)
    del encoder.table_["columns"][0]["unit"]
    np.testing.assert_array_equal(encoder.transform(frame), expected)


def test_hashed_levels_have_one_spelling_in_all_formats() -> None:
    days = pd.date_range("2024-01-01", periods=9)
    spelled = {
        "numbers": ([f"{n}.0" for n in range(9)], list(range(9))),
        "dates": (days.strftime("%Y-%m-%d").tolist(), days),
        "large numbers": (
            [f"1234567890{n}.0" for n in range(9)],
            [1234567890e1 + n for n in range(9)],
        ),
        "zones": (days.strftime("%Y-%m-%d 00:00:00+00:00").tolist(), days.tz_localize("UTC")),
        "times of a day": ([f"0{n}:30:00" for n in range(9)], [time(n, 30) for n in range(9)]),
    }
    for text, values in spelled.values():
        encoder = rf.TableEncoder({"a": "category"}, max_levels=2, hash_columns=16)
        encoder.fit(pd.DataFrame({"a": text}))
        expected = encoder.transform(pd.DataFrame({"a": text}))
        np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"a": values})), expected)
        assert len(np.unique(expected, axis=0)) > 4
        # Of older versions each spelling had a hash of its own, which their models know.
        del encoder.table_["columns"][0]["alike"]
        older = encoder.transform(pd.DataFrame({"a": text}))
        assert (older == expected).all() == (not text[0].endswith(".0"))


def test_counted_levels_have_one_spelling_in_all_blocks() -> None:
    """Of two CSV files of pandas one has whole numbers as 1.0 where the other has gaps."""
    frame = pd.DataFrame({"a": ["1", "1.0", "10000000000.0", "1e+10", "True", "true"]})
    encoder = rf.TableEncoder({"a": "category"}).fit(frame)
    assert encoder.get_feature_names_out().tolist() == ["a=1", "a=10000000000", "a=true"]
    np.testing.assert_array_equal(encoder.transform(frame), np.repeat(np.eye(3), 2, axis=0))


def test_a_level_that_begins_as_a_time_takes_no_time() -> None:
    """The search went over its zeros again for each of them: 60 kB took minutes."""
    level, begin = f"00:00:00.{'0' * 10_000}x", process_time()
    rf.TableEncoder({"a": "category"}).fit(pd.DataFrame({"a": [level, "b"]}))
    assert process_time() - begin < 1


def test_the_remedy_for_levels_that_are_no_text_works() -> None:
    frame = pd.DataFrame({"a": pd.cut([1, 2, 3], 2)})
    with pytest.raises(DataError, match=r"make it text first, in pandas with astype\(str\)"):
        rf.TableEncoder().fit(frame)
    assert rf.TableEncoder().fit(frame.astype(str)).transform(frame.astype(str)).shape == (3, 2)


def test_a_small_record_does_not_make_millions_of_columns() -> None:
    columns = [{"name": str(n), "kind": "category", "hashed": 2**16} for n in range(100)]
    record = {"version": 1, "rows": 1, "columns": columns}
    with pytest.raises(DataError, match=r"damaged \(it makes more than 1,000,000 columns\)"):
        TableSpec.from_json(record)


def test_choices_are_the_same_when_they_are_read_again() -> None:
    given = {"a": {"kind": "date", "format": "%d"}, "b": "drop"}
    chosen = read_choices(given)
    assert read_choices(json.loads(json.dumps(chosen.to_json()))) == chosen
