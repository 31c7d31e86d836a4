"""New rows find the columns of a model by their names, in any order and any file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.cli.saved import load_model, rows_for
from rfcdask.data.columns import Names
from rfcdask.data.errors import DataError
from rfcdask.persist.models import describe
from rfcdask.pipeline.settings import READING
from tests.programs import run_cli

NAMES = ("age", "height", "wind speed", "dose")
LABEL = "status"
ROWS = 40
FIT = ("--method", "none", "--learner", "ridge", "-q")

Call = Callable[..., Any]


def draw(n: int, seed: int) -> tuple[dict[str, Any], Any]:
    """Return columns in units of their own, and text labels that follow from two of them."""
    rows = np.random.default_rng(seed).normal(size=(n, 4)).astype("float32")
    rows *= np.array([1, 10, 100, 1000], "float32")
    y = np.where(rows[:, 0] + rows[:, 2] / 100 > 0, "ill", "well")
    return dict(zip(NAMES, rows.T, strict=True)), y


def write(path: Path, columns: dict[str, Any]) -> Path:
    """Write a table as its ending says."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(dict(columns)), path)
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(v).tolist() for v in columns.values()), strict=True))
    return path


def fit(folder: Path) -> None:
    """Fit a model on the store of a folder."""
    paths = (str(folder / "data.zarr"), str(folder / "model"))
    done = CliRunner().invoke(main, ["fit", *paths, *FIT])
    assert done.exit_code == 0, done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that was ingested by its label's name, and a model of it."""
    folder = tmp_path_factory.mktemp("names")
    columns, y = draw(400, 0)
    write(folder / "data.csv", {LABEL: y} | columns)
    paths = (str(folder / "data.csv"), str(folder / "data.zarr"))
    done = CliRunner().invoke(main, ["ingest", *paths, "--label", LABEL])
    assert done.exit_code == 0, done.stderr
    fit(folder)
    columns, y = draw(ROWS, 1)
    write(folder / "new.csv", columns | {LABEL: y})
    write(folder / "new.parquet", columns | {LABEL: y})
    return folder


@pytest.fixture
def call(place: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call the command line within this process, in the folder."""
    monkeypatch.chdir(place)
    return lambda *args: CliRunner().invoke(main, list(args))


OPTIONS = dict.fromkeys(READING) | {"no_label": False}


def scores(place: Path, data: Path, model: str = "model", **options: Any) -> tuple[Any, str]:
    """Return the scores that `predict` would write, and what it would say on stderr."""
    said = io.StringIO()
    saved = load_model(str(place / model), predicts=True)
    with (
        redirect_stderr(said),
        rows_for(saved, str(data), OPTIONS | options, None, labels=False) as rows,
    ):
        found = saved.whole.decision_function(rows.X).compute()
    return found, said.getvalue()


def test_columns_in_another_order_predict_the_same(place: Path) -> None:
    columns, y = draw(ROWS, 1)
    write(place / "turned.csv", {LABEL: y} | {name: columns[name] for name in NAMES[::-1]})
    known = run_cli("predict", "model", "new.csv", cwd=place)
    turned = run_cli("predict", "model", "turned.csv", cwd=place)
    assert (turned.returncode, turned.stdout) == (0, known.stdout), turned.stderr
    assert "left out" not in turned.stderr
    assert np.mean(np.array(known.stdout.split()[1:]) == y) > 0.9


EXTRA = ("id", "note", "status ", "Age", "über")


@st.composite
def tables(draw_one: Any) -> tuple[str, list[tuple[str, str]], list[str]]:
    """Draw a format, the columns of a file as pairs of name and content, and those left out."""
    kind = draw_one(st.sampled_from([".csv", ".parquet", ".zarr"]))
    fate = {name: draw_one(st.sampled_from(["keep"] * 6 + ["drop", "rename"])) for name in NAMES}
    there = [(name, name) for name in NAMES if fate[name] == "keep"]
    there += [(f"{name}!", name) for name in NAMES if fate[name] == "rename"]
    extra = draw_one(st.lists(st.sampled_from(EXTRA), unique_by=str.strip, max_size=3))
    contents = ["number"] if kind == ".zarr" else ["number", "text", "holes"]
    there += [(name, draw_one(st.sampled_from(contents))) for name in extra]
    if kind != ".zarr" and draw_one(st.booleans()):
        there.append((LABEL, "text"))
    there = there or [("id", "number")]
    return kind, draw_one(st.permutations(there)), [n for n in NAMES if fate[n] != "keep"]


CONTENT = {
    "number": np.arange(ROWS, dtype="float32"),
    "text": ["a, b\nc", "d"] * (ROWS // 2),
    "holes": [None, "1"] * (ROWS // 2),
}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_any_table_is_right_or_named(place: Path, tmp_path: Path, table: Any) -> None:
    kind, pairs, missing = table
    columns = {name: (draw(ROWS, 1)[0] | CONTENT)[content] for name, content in pairs}
    if kind == ".csv" and len(columns) == 1:
        columns["more"] = CONTENT["number"]  # one column alone has no delimiter to find
    data = write(tmp_path / f"new{'.parquet' if kind == '.zarr' else kind}", columns)
    if kind == ".zarr":
        rf.ingest(data, tmp_path / "new.zarr", label=False, overwrite=True)
        data = tmp_path / "new.zarr"
    if missing:
        with pytest.raises(DataError, match="missing from") as refused:
            scores(place, data)
        assert all(repr(name) in str(refused.value) for name in missing)
        return
    found, said = scores(place, data)
    np.testing.assert_array_equal(found, scores(place, place / "new.parquet")[0])
    there = {name.strip() if kind == ".csv" else name for name in columns}
    extra = there - {*NAMES, LABEL}
    assert all(repr(name) in said for name in extra)
    assert ("left out" in said) == bool(extra)


def test_csv_and_parquet_predict_the_same(place: Path) -> None:
    known, said = scores(place, place / "new.csv")
    np.testing.assert_array_equal(known, scores(place, place / "new.parquet")[0])
    assert "position" not in said


def test_a_renamed_column_is_named_with_its_like(place: Path, tmp_path: Path) -> None:
    columns, y = draw(ROWS, 1)
    columns = {"Age": columns.pop("age"), "id": y} | columns
    columns.pop("dose")
    data = write(tmp_path / "new.csv", columns)
    done = CliRunner().invoke(main, ["predict", str(place / "model"), str(data)])
    assert (done.exit_code, done.stdout) == (2, "")
    words = f"column 'age' is missing from {data} (and 1 more: 'dose')"
    assert words in done.stderr
    assert "rename 'Age' to 'age'" in done.stderr
    columns = {"age": columns.pop("Age"), "dose": draw(ROWS, 1)[0]["dose"]} | columns
    found, said = scores(place, write(data, columns))  # as the message told
    np.testing.assert_array_equal(found, scores(place, place / "new.csv")[0])
    assert "column 'id' is left out" in said


def test_the_labels_name_survives_a_store(place: Path, call: Call) -> None:
    done = call("score", "model", "new.csv", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["score"] > 0.9
    assert "left out" not in done.stderr
    columns, y = draw(ROWS, 1)
    write(place / "other.csv", columns | {"verdict": y})
    refused = call("score", "model", "other.csv")
    assert refused.exit_code == 2
    assert "no labels to compare with: its column 'status' is missing" in refused.stderr
    named = call("score", "model", "other.csv", "--label", "verdict", "--json")
    assert json.loads(named.stdout)["score"] == json.loads(done.stdout)["score"]


def test_a_store_with_another_label_is_told(place: Path, call: Call) -> None:
    columns, y = draw(ROWS, 1)
    source = write(place / "third.csv", {"verdict": y} | dict(reversed(columns.items())))
    rf.ingest(source, place / "third.zarr", label="verdict")
    done = call("score", "model", "third.zarr")
    assert done.exit_code == 0, done.stderr
    assert "labels are taken from 'verdict', and the model learned 'status'" in done.stderr
    assert done.stdout == call("score", "model", "new.csv").stdout


def test_held_out_rows_are_those_of_one_order(place: Path, call: Call, tmp_path: Path) -> None:
    data = str(tmp_path / "data.zarr")
    paths = {"--random-state 1": data, "--random-state 2": str(tmp_path / "other.zarr")}
    for seed, path in paths.items():
        ingest = ("ingest", "data.csv", path, "--label", LABEL, "--shuffle", *seed.split())
        assert call(*ingest).exit_code == 0
    model = str(tmp_path / "model")
    assert call("fit", data, model, "--test-size", "0.25", *FIT).exit_code == 0
    assert call("score", model, data, "--held-out").exit_code == 0
    done = call("score", model, paths["--random-state 2"], "--held-out")
    assert done.exit_code == 2
    assert "has other rows, or has them in another order" in done.stderr


def test_rows_left_out_of_predictions_are_counted(place: Path, call: Call, tmp_path: Path) -> None:
    columns, _ = draw(ROWS, 1)
    columns["age"][[3, 5]] = np.nan
    new = str(write(tmp_path / "holes.csv", columns))
    done = call("predict", "model", new, "--nan", "drop")
    assert "2 rows are left out for values that are not finite" in done.stderr
    lines = [line.split(",") for line in done.stdout.splitlines()]
    assert lines[0] == ["row", "predicted"]
    whole = call("predict", "model", "new.csv").stdout.splitlines()[1:]
    kept = [number for number in range(ROWS) if number not in (3, 5)]
    assert lines[1:] == [[str(number), whole[number]] for number in kept]


def test_values_in_another_unit_are_told(place: Path, call: Call, tmp_path: Path) -> None:
    scaled = str(tmp_path / "scaled.zarr")
    told = "multiplied by 0.1 on reading, and those that the model was fitted on by 1"
    assert call("ingest", "data.csv", scaled, "--label", LABEL, "--scale", "1/10").exit_code == 0
    assert told in call("score", "model", scaled).stderr
    model = str(tmp_path / "model")
    assert call("fit", scaled, model, *FIT).exit_code == 0
    remedy = "ingest it with --scale 0.1 unless that is meant"
    assert remedy in call("score", model, "data.zarr").stderr
    again = call("score", model, scaled)
    assert "multiplied" not in again.stderr
    assert again.stdout == call("score", model, "data.csv").stdout


def test_what_score_cannot_do_is_said(place: Path, call: Call, tmp_path: Path) -> None:
    columns, _ = draw(ROWS, 1)
    one = str(write(tmp_path / "one.csv", columns | {LABEL: ["ill"] * ROWS}))
    done = call("score", "model", one)
    assert "all labels are of one class (ill): score needs rows of two or more" in done.stderr
    assert call("predict", "model", one).exit_code == 0
    features = str(tmp_path / "features.zarr")
    done = call("transform", "model", one, features, "--no-label")
    assert done.exit_code == 0, done.stderr
    done = call("score", "model", "new.csv", "--no-label")
    assert (done.exit_code, "leave --no-label out" in done.stderr) == (2, True)


NOTES = [
    "text",
    [1],
    {"data": "from the lab"},
    {"data": {"columns": 4}},
    {"data": {"columns": 4, "columns_in_file": 4, "column_names": ["age"]}},
    {"data": {"columns": 4, "columns_in_file": 4, "projection": [1]}},
]


@pytest.mark.parametrize("about", NOTES)
def test_notes_of_ones_own_do_no_harm(place: Path, tmp_path: Path, about: Any) -> None:
    known, _ = scores(place, place / "new.csv")
    model = rf.load(place / "model")
    rf.save(model, tmp_path / "model", about=about)
    found, said = scores(tmp_path, place / "new.csv")
    np.testing.assert_array_equal(found, known)  # the model knows its columns itself
    assert "by position" not in said
    del model[0].columns_  # as older versions wrote it
    rf.save(model, tmp_path / "model", about=about, overwrite=True)
    columns, _ = draw(ROWS, 1)
    found, said = scores(tmp_path, write(tmp_path / "new.csv", columns))
    np.testing.assert_array_equal(found, known)
    assert "columns are taken by position" in said
    with pytest.raises(DataError, match=r"4 columns expected, 5 found.* and --label for the label"):
        scores(tmp_path, place / "new.csv")
    np.testing.assert_array_equal(scores(tmp_path, place / "new.csv", label=LABEL)[0], known)


def test_a_column_of_the_model_is_no_label(call: Call) -> None:
    for command in ("predict", "score"):
        done = call(command, "model", "new.csv", "--label", "age")
        assert done.exit_code == 2
        assert "--label age names a column that the model learned from" in done.stderr


def test_transform_takes_columns_by_name(place: Path, call: Call) -> None:
    fit = (
        "fit",
        "data.zarr",
        "map",
        "--method",
        "random",
        "--n-components",
        "5",
        "--learner",
        "none",
    )
    assert call(*fit, "-q").exit_code == 0
    columns, y = draw(ROWS, 1)
    write(place / "turned.csv", {"id": y, LABEL: y} | {n: columns[n] for n in NAMES[::-1]})
    for name in ("new", "turned"):
        done = call("transform", "map", f"{name}.csv", f"{name}-f.zarr")
        assert done.exit_code == 0, done.stderr
    one, two = (rf.open_dataset(place / f"{name}-f.zarr") for name in ("new", "turned"))
    np.testing.assert_array_equal(one.X.compute(), two.X.compute())
    assert one.y is not None
    assert two.y is not None
    np.testing.assert_array_equal(one.y.compute(), two.y.compute())


def test_numbers_as_names_are_no_row(place: Path, tmp_path: Path) -> None:
    columns, y = draw(60, 3)
    numbered = dict(zip("9876", columns.values(), strict=True))
    data = write(tmp_path / "data.csv", numbered | {"label": y})
    rf.ingest(data, tmp_path / "data.zarr", label="label", header=True)
    fit(tmp_path)
    turned = write(tmp_path / "turned.csv", dict(reversed(numbered.items())))
    found, _ = scores(tmp_path, turned)
    np.testing.assert_array_equal(found, scores(tmp_path, tmp_path / "data.zarr")[0])


def test_rows_without_names_need_the_number(place: Path, tmp_path: Path) -> None:
    rows = np.column_stack([*draw(ROWS, 1)[0].values()])
    for width, path in ((4, tmp_path / "new.npy"), (3, tmp_path / "short.npy")):
        np.save(path, rows[:, :width])
    found, said = scores(place, tmp_path / "new.npy")
    np.testing.assert_array_equal(found, scores(place, place / "new.csv")[0])
    assert "new.npy names no columns: columns are taken by position" in said
    with pytest.raises(DataError, match="4 columns expected, 3 found"):
        scores(place, tmp_path / "short.npy")
    for width, options in ((3, {}), (6, {}), (4, {"label": 0}), (5, {"no_label": True})):
        np.savetxt(tmp_path / "bare.csv", rows[:, np.arange(width) % 4], delimiter=",")
        wrong = width - (options == {"label": 0})
        with pytest.raises(DataError, match=f"4 columns expected, {wrong} found"):
            scores(place, tmp_path / "bare.csv", **options)
    (tmp_path / "wide.svm").write_text("1 1:0.5 5:1\n")
    with pytest.raises(DataError, match=r"^4 columns expected: .*line 1.*5:1.* beyond the largest"):
        scores(place, tmp_path / "wide.svm")


def test_the_labels_place_is_kept_without_names(place: Path, tmp_path: Path) -> None:
    columns, y = draw(60, 3)
    rows = np.column_stack([*columns.values()])
    rows = np.round(rows.astype(float), 3)
    columns = dict(zip(NAMES, rows.T, strict=True))
    whole = np.insert(rows.astype(str).astype(object), 1, y, axis=1)
    np.savetxt(tmp_path / "data.csv", whole, "%s", ",")
    rf.ingest(tmp_path / "data.csv", tmp_path / "data.zarr", label=1, header=False)
    fit(tmp_path)
    np.savetxt(tmp_path / "bare.csv", rows, "%.9g", ",")
    known, said = scores(tmp_path, tmp_path / "data.zarr")
    assert "position" not in said  # neither has names
    for name in ("data.csv", "bare.csv"):
        np.testing.assert_array_equal(scores(tmp_path, tmp_path / name)[0], known)
    named, said = scores(tmp_path, write(tmp_path / "named.csv", columns))
    np.testing.assert_array_equal(named, known)
    assert "fitted on columns without names: columns are taken by position" in said


def test_models_saved_in_python_take_the_number(tmp_path: Path) -> None:
    columns, y = draw(60, 3)
    rf.save(rf.RidgeClassifier().fit(np.column_stack([*columns.values()]), y), tmp_path / "model")
    data = write(tmp_path / "new.csv", columns)
    found, said = scores(tmp_path, data)
    assert len(found) == 60
    assert "taken by position" in said
    columns.pop("dose")
    with pytest.raises(DataError, match="4 columns expected, 3 found"):
        scores(tmp_path, write(data, columns))


def test_old_models_and_stores_open_with_a_note(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, _ = scores(place, place / "new.csv")
    about = describe(place / "model")["about"]
    about["data"] = {
        k: v
        for k, v in about["data"].items()
        if k not in Names().attributes(projected=False) and k not in ("column_names",)
    } | {"columns_in_file": 4, "columns": 4, "label": LABEL}
    rf.save(rf.load(place / "model"), tmp_path / "model", about=about)
    found, said = scores(tmp_path, place / "new.csv")
    np.testing.assert_array_equal(found, known)
    assert "the model was written before column names were kept" in said
    monkeypatch.setattr(Names, "attributes", lambda self, projected: {})
    old = rf.ingest(place / "new.csv", tmp_path / "old.zarr", label=LABEL)
    assert old.columns is None
    found, said = scores(place, tmp_path / "old.zarr")
    np.testing.assert_array_equal(found, known)
    assert "old.zarr was written before column names were kept: columns are taken" in said


def test_projected_rows_are_matched_before(place: Path, tmp_path: Path) -> None:
    columns, y = draw(60, 3)
    write(tmp_path / "data.csv", columns | {LABEL: y})
    turned = write(tmp_path / "turned.csv", dict(reversed(columns.items())))
    options: dict[str, Any] = {"project": 3, "random_state": 0}
    data = rf.ingest(tmp_path / "data.csv", tmp_path / "data.zarr", label=LABEL, **options)
    assert data.columns is None
    assert data.attrs["columns_in_file"] == list(NAMES)
    fit(tmp_path)
    known, _ = scores(tmp_path, tmp_path / "data.zarr")
    np.testing.assert_array_equal(scores(tmp_path, turned)[0], known)
    rf.ingest(turned, tmp_path / "turned.zarr", label=False, **options)
    with pytest.raises(DataError, match=r"another order .* give the file that they came from"):
        scores(tmp_path, tmp_path / "turned.zarr")
    with pytest.raises(DataError, match="'dose' is missing"):
        scores(tmp_path, write(turned, {name: columns[name] for name in NAMES[:3]}))


def test_projected_rows_are_refused_by_other_models(place: Path, tmp_path: Path) -> None:
    stored = rf.ingest(place / "new.csv", tmp_path / "p.zarr", label=LABEL, project=4)
    assert stored.shape == (ROWS, 4)
    with pytest.raises(DataError, match="are projected, and those that the model"):
        scores(place, tmp_path / "p.zarr")


def test_info_shows_the_names(call: Call) -> None:
    store = call("info", "data.zarr")
    assert "columns  4: age, height, wind speed, dose" in store.stdout
    assert "2 classes: ill, well (column status)" in store.stdout
    model = call("info", "model")
    assert "age, height, wind speed, dose" in model.stdout
    found = json.loads(call("info", "data.zarr", "--json").stdout)
    assert (found["column_names"], found["label_name"]) == (list(NAMES), LABEL)
    about = json.loads(call("info", "model", "--json").stdout)["about"]["data"]
    assert (about["column_names"], about["label_name"]) == (list(NAMES), LABEL)


def test_a_label_that_names_one_column_and_counts_another(tmp_path: Path) -> None:
    """The other was taken, and there was no way to name the one."""
    (tmp_path / "t.csv").write_text("1,2,0\n" + "0.5,3,p\n1.5,4,q\n" * 9)
    words = ["ingest", str(tmp_path / "t.csv"), str(tmp_path / "s.zarr"), "--header", "--label"]
    refused = CliRunner().invoke(main, [*words, "0"])
    assert refused.exit_code == 2
    assert "--label -3 for the former or --label -1 for the latter" in refused.stderr
    assert CliRunner().invoke(main, [*words, "-1"]).exit_code == 0
    assert rf.open_dataset(tmp_path / "s.zarr").attrs["label_name"] == "0"
