"""From a raw table to a model and its predictions on the command line."""

from __future__ import annotations

import html
import json
import re
import shlex
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.data import DataError
from rfcdask.persist.models import load
from rfcdask.pipeline.phases import comparable
from tests.customers import customers, write_customers

FIT = ("--label", "status", "--method", "none", "--learner", "ridge")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a raw table, a store and a model of it, and new rows."""
    folder = tmp_path_factory.mktemp("tables")
    write_customers(folder / "table.csv", 1500)
    code, _, _ = call("fit", folder / "table.csv", folder / "model", *FIT, "-q")
    assert code == 0
    new = customers(5, 80)
    new.to_csv(folder / "new.csv", index=False)
    new.drop(columns="status").to_parquet(folder / "new.parquet")
    return folder


def call(*words: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, list(map(str, words)))
    return done.exit_code, done.stdout, done.stderr


def test_decisions_are_printed_and_kept(place: Path, tmp_path: Path) -> None:
    code, out, _ = call("ingest", place / "table.csv", tmp_path / "s.zarr", "--label", "status")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "column visits number" in lines
    assert any(line.startswith("column city category of 10 levels, 10 one-hot; ") for line in lines)
    for what in (tmp_path / "s.zarr", place / "model"):
        shown = [" ".join(line.split()) for line in call("info", what)[1].splitlines()]
        assert {line for line in lines if line.startswith("column ")} <= {*shown}


def test_new_rows_are_read_as_those_before(place: Path) -> None:
    model = load(place / "model")
    wanted = model.predict(pd.read_parquet(place / "new.parquet")).tolist()
    for name in ("new.csv", "new.parquet"):
        code, out, _ = call("predict", place / "model", place / name, "-q")
        assert code == 0
        assert out.split()[1:] == wanted
    code, out, _ = call("score", place / "model", place / "new.csv")
    assert code == 0
    right = (customers(5, 80)["status"] == wanted).mean()
    assert f"accuracy {right:.4f} on 80 rows" in out


FATES = st.sampled_from([*["keep"] * 9, "drop", "rename"])


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(FATES, min_size=8, max_size=8),
    st.permutations(range(9)),
    st.booleans(),
    st.sampled_from(["csv", "parquet", "frame", "dask"]),
    st.integers(1, 5),
)
def test_any_change_of_columns_is_right_or_named(
    place: Path,
    tmp_path: Path,
    fates: list[str],
    order: list[int],
    extra: bool,
    source: str,
    parts: int,
) -> None:
    rows = customers(5, 40).drop(columns="status")
    model, fate = load(place / "model"), dict(zip(rows.columns, fates, strict=True))
    gone = [name for name in fate if fate[name] != "keep"]
    table = rows.drop(columns=[name for name in gone if fate[name] == "drop"])
    table = table.rename(columns={name: f"{name}!" for name in gone})
    table = table.assign(extra=1.5) if extra or table.empty else table
    table = table[[table.columns[i] for i in order if i < table.shape[1]]]
    new_rows = (place / "model", table, source, parts, tmp_path)
    if not gone:
        assert predicted(*new_rows) == model.predict(rows).tolist()
        return
    with pytest.raises(DataError, match="missing from") as said:
        predicted(*new_rows)
    assert all(repr(name) in str(said.value) for name in gone)


def predicted(model: Path, table: Any, source: str, parts: int, folder: Path) -> list[str]:
    """Predict from a file through the command line, or from a frame in Python."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "column 'extra' is left out")
        if source == "dask":
            lazy = dd.from_pandas(table, npartitions=parts)
            return list(load(model).predict(lazy).compute(scheduler="sync"))
        if source == "frame":
            return list(load(model).predict(table))
    path = folder / f"new.{source}"
    table.to_csv(path, index=False) if source == "csv" else table.to_parquet(path)
    code, out, err = call("predict", model, path, "-q")
    if code:
        raise DataError(err)
    return out.split()[1:]


def test_other_rows_are_refused_by_name(place: Path, tmp_path: Path) -> None:
    customers(5, 9).rename(columns={"city": "town"}).to_csv(tmp_path / "n.csv", index=False)
    code, _, err = call("predict", place / "model", tmp_path / "n.csv")
    assert code == 2
    assert "column 'city' is missing from" in err
    customers(5, 9).assign(more=1).to_csv(tmp_path / "n.csv", index=False)
    code, _, err = call("predict", place / "model", tmp_path / "n.csv")
    assert code == 0
    assert "column 'more' is left out" in err
    store = rf.ingest(customers(6, 300), tmp_path / "other.zarr", label="status")
    assert store.columns
    code, _, err = call("predict", place / "model", tmp_path / "other.zarr")
    assert code == 2
    assert "encoded by what was learned of another table" in err
    code, _, err = call("predict", place / "model", place / "new.csv", "--columns", "x.toml")
    assert code == 2


def test_a_model_of_numbers_takes_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,status\n" + "1,2,p\n3,5,q\n" * 20)
    call("fit", tmp_path / "t.csv", tmp_path / "m", *FIT, "-q")
    (tmp_path / "n.csv").write_text("a,b\n1,x\n2,y\n")
    code, _, err = call("predict", tmp_path / "m", tmp_path / "n.csv")
    assert code == 2
    assert "the model was fitted on numbers, and text" in err
    (tmp_path / "n.csv").write_text("a,b\n1,2\n2,\n")
    code, _, err = call("predict", tmp_path / "m", tmp_path / "n.csv")
    assert code == 2
    assert "line 3: column 'b' is missing" in err


def test_a_file_of_kinds(place: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('[columns]\nshop = "drop"\nvisits = "category"\n')
    call_ = ("fit", place / "table.csv", tmp_path / "m", *FIT, "--columns", spec)
    code, _, err = call(*call_)
    assert code == 0
    assert "column shop: left out (as asked)" in err
    assert "column visits: category" in err
    code, _, _ = call("predict", tmp_path / "m", place / "new.csv")
    assert code == 0
    spec.write_text('[columns]\nshop = "dropp"\n')
    code, _, err = call("ingest", place / "table.csv", tmp_path / "s.zarr", "--columns", spec)
    assert code == 2
    assert "shop = 'dropp' is no kind of column" in err


def test_run_goes_from_a_table_to_a_report(place: Path, tmp_path: Path) -> None:
    few = ("--methods", "random", "--sizes", "20", "--epochs", "1", "--class-weight", "balanced")
    where = ("--out", tmp_path / "run", "--scheduler", "threads")
    code, _, err = call("run", place / "table.csv", "--label", "status", *few, *where, "-q")
    assert code == 0, err
    model = load(tmp_path / "run" / "model")
    new = customers(5, 80).drop(columns="status")
    assert set(model.predict(new)) <= {"good", "late", "lost"}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "category of 10 levels, 10 one-hot" in page
    assert "All that a column of the table was encoded to is permuted together" in page
    results = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    needed = {row["column"] for row in results["importances"]["columns"]}
    assert needed == {*new.columns} & {*model["table"].feature_names_in_}


def test_the_remedy_for_missing_labels_works(tmp_path: Path) -> None:
    table = customers(0, 300)
    table.loc[7, "status"] = None
    table.to_csv(tmp_path / "table.csv", index=False)
    words = ("fit", tmp_path / "table.csv", tmp_path / "model", *FIT, "-q")
    code, _, err = call(*words)
    assert code == 2
    assert "'status' is missing in 1 row" in err
    assert "pass --nan drop-unlabelled to leave such rows out" in err
    run = ("run", tmp_path / "table.csv", "--label", "status", "--out", tmp_path / "run", "-q")
    assert call(*run, "--scheduler", "threads")[0] == 2
    assert not (tmp_path / "run").exists()
    code, out, err = call(*words, "--nan", "drop-unlabelled")
    assert code == 0, err
    assert "299 rows" in out


ODD = 'it\'s {a} "b" = é'


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"key": [f"k{i}" for i in range(200)], ODD: [f"m{i}" for i in range(200)]},
            "is text with",
        ),
        ({"key": [[1, 2]] * 200, ODD: [b"x"] * 200}, "holds list<"),
        ({ODD: ["1", "2"] * 99 + ["3", "many"]}, "found 'many'"),
        ({"key": ["2024-01-31"] * 199 + ["soon"]}, "expected a date in column 'key', found 'soon'"),
    ],
    ids=["text", "lists", "number", "date"],
)
def test_the_remedy_for_kinds_of_columns_works(
    table: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """A message says columns={...} in Python, and here the line of a file that can be given."""
    made = pa.table(table | {"x": [1, 2] * 100, "status": ["p", "q"] * 100})
    path = tmp_path / "table.parquet"
    pq.write_table(made, path)
    if "found" in said:  # where values are text, what is a number is told by most of them
        path = tmp_path / "table.csv"
        made.to_pandas().to_csv(path, index=False)
    words = ("ingest", path, tmp_path / "s.zarr", "--label", "status")
    code, _, err = call(*words)
    assert (code, list(tmp_path.glob("s.zarr*"))) == (2, [])
    assert said in err
    assert "columns={" not in err
    line = err.partition("--columns spec.toml (a file of the line ")[2].partition("})")[0] + "}"
    (tmp_path / "spec.toml").write_text(line, encoding="utf-8")
    code, _, err = call(*words, "--columns", tmp_path / "spec.toml")
    assert code == 0, err
    if said == "is text with":
        (tmp_path / "spec.toml").write_text(line.replace("drop", "category"), encoding="utf-8")
        code, out, _ = call(*words, "--columns", tmp_path / "spec.toml", "--overwrite")
        assert "hashed to 32 columns" in out


def test_new_rows_of_another_kind_have_a_typed_remedy(place: Path, tmp_path: Path) -> None:
    """The kinds of a model are fixed: its commands have no --columns."""
    new = customers(5, 9).astype({"age": str})
    new.loc[3, "age"] = "old"
    new.to_csv(tmp_path / "new.csv", index=False)
    code, _, err = call("predict", place / "model", tmp_path / "new.csv")
    assert code == 2
    assert "line 5: expected a number in column 'age', found 'old': fix it, or leave" in err
    assert "columns" not in err


QUICK = ("--sizes", "8", "--methods", "random,learned", "--n-candidates", "40", "--n-rows", "200",
         "--epochs", "1", "--scheduler", "threads", "-q")  # fmt: skip


def printed(page: Path) -> list[str]:
    """Return the words of the command that a report ends with."""
    found = re.findall("<pre[^>]*>(.*?)</pre>", page.read_text("utf-8"), re.S)[-1]
    text = html.unescape(re.sub("<.*?>", "", found))
    return shlex.split(text.replace("\\\n", " "))[1:]


@pytest.mark.parametrize(
    "more",
    [
        ("--label", "status", "--class-weight", "balanced", "--nan", "drop"),
        ("--label", "income, net", "--label", "age", "--columns", "kinds.toml",
         "--set", "label_weight=0.5"),
    ],
)  # fmt: skip
def test_the_command_of_a_report_does_it_again(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    customers(0, 400).fillna({"age": 40, "income": 1e4}).rename(
        columns={"income": "income, net"}
    ).to_csv("a.csv", index=False)
    Path("kinds.toml").write_text('[columns]\nshop = "drop"\n')
    assert call("run", "a.csv", "--out", "first", *QUICK, *more) == (0, *[ANY] * 2)
    command = printed(Path("first/report.html"))
    assert command[0] == "run"
    Path("kinds.toml").unlink()
    code, _, said = call(*command, "--out", "second", "--scheduler", "threads", "-q")
    assert code == 0, said
    first, second = (
        json.loads(Path(name, "results.json").read_text()) for name in ("first", "second")
    )
    assert comparable(first) == comparable(second)


def test_the_command_of_a_comparison_does_it_again(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ("--methods", "random,jl", "--n-components", "5", "--n-candidates", "20", "-q")
    table = place / "table.csv"
    done = call("compare", table, "--label", "status", *quick, "--out", "a.json")
    assert done[0] == 0, done[2]
    assert call("report", "a.json", "a.html", "-q")[0] == 0
    code, _, said = call(*printed(Path("a.html")), "--out", "b.json", "-q")
    assert code == 0, said
    first, second = (json.loads(Path(name).read_text()) for name in ("a.json", "b.json"))
    assert first["settings"] == second["settings"]
    kept = ("method", "n_components", "accuracy", "kernel_error")
    assert [[row[k] for k in kept] for row in first["comparison"]] == [
        [row[k] for k in kept] for row in second["comparison"]
    ]
