"""``rfcdask run PATH`` with nothing but a path, on what people have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file, load_iris, load_wine

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.data import DataError
from rfcdask.pipeline import run_job
from tests.pipeline.helpers import results_of
from tests.programs import run_cli


def iris_csv(path: Path, label: str = "class") -> Path:
    """Write measurements with names as labels, sorted by class as people keep them."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    rows = [",".join([*map(str, row), name]) for row, name in zip(X, names, strict=True)]
    path.write_text("\n".join([f"a,b,c,d,{label}", *rows]) + "\n")
    return path


def test_a_csv_with_names_as_labels(tmp_path: Path) -> None:
    path = iris_csv(tmp_path / "iris.csv")
    ended = run_cli("run", path, "--scheduler", "threads", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Report: " in ended.stdout
    results = results_of(tmp_path / "rfcdask-run")
    assert results["command"] == f"rfcdask run {path}"
    assert results["data"]["classes"] == ["setosa", "versicolor", "virginica"]
    assert results["data"]["class_counts"] == [50, 50, 50]
    assert results["settings"]["sizes"] == [30]
    assert results["settings"]["n_candidates"] == 1200
    assert results["model"]["accuracy"] > 0.8
    fresh = rf.load(tmp_path / "rfcdask-run" / "model")
    assert fresh.predict(load_iris().data[[0]]).tolist() == ["setosa"]


def test_a_parquet_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    X, y = load_wine(return_X_y=True)
    columns = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    parquet.write_table(pyarrow.table({"grape": y} | columns), tmp_path / "wine.parquet")
    where = ("--label", "grape", "--out", tmp_path / "out", "--scheduler", "threads")
    ended = CliRunner().invoke(main, ["run", *map(str, (tmp_path / "wine.parquet", *where))])
    assert ended.exit_code == 0, ended.stderr
    results = results_of(tmp_path / "out")
    assert results["data"]["column_names"] == list(columns)
    assert results["data"]["label_name"] == "grape"
    _score_by_name(tmp_path, columns | {"grape": y}, results["model"]["accuracy"])
    assert results["data"]["name"] == "wine.parquet"
    assert results["settings"]["standardize"] is True
    assert results["model"]["accuracy"] > 0.9


def _score_by_name(folder: Path, columns: dict[str, Any], accuracy: float) -> None:
    """The model of a run knows names too: rows in another order score as before."""
    import pandas as pd

    pd.DataFrame(dict(reversed(columns.items()))).to_csv(folder / "turned.csv", index=False)
    model = str(folder / "out" / "model")
    for data in ("wine.parquet", "turned.csv"):
        done = CliRunner().invoke(main, ["score", model, str(folder / data), "--json"])
        assert done.exit_code == 0, done.stderr
        assert "position" not in done.stderr
        assert json.loads(done.stdout)["score"] > 0.9
    held_out = ["score", model, str(folder / "out" / "data.zarr"), "--held-out", "--json"]
    found = json.loads(CliRunner().invoke(main, held_out).stdout)
    assert found["score"] == pytest.approx(accuracy)


@pytest.mark.slow
def test_a9a_as_svmlight_text(tmp_path: Path, shared_data: Path) -> None:
    with np.load(shared_data / "datasets" / "a9a.npz") as stored:
        X, y = stored["X_train"][:600].astype(float), stored["y_train"][:600]
    path = tmp_path / "a9a.txt"  # nothing in the name tells the format
    dump_svmlight_file(X, y, str(path), zero_based=False)
    ended = run_cli("run", path, "--out", tmp_path / "out", "--scheduler", "threads")
    assert ended.returncode == 0, ended.stderr
    results = results_of(tmp_path / "out")
    assert results["data"]["rows"] == 600
    assert results["settings"]["standardize"] is False  # columns are switches
    most = max(results["data"]["class_counts"]) / 600
    assert results["model"]["accuracy"] > most
    assert not (tmp_path / "out" / "sample.npz").exists()


def test_a_store_is_used_where_it_lies(tmp_path: Path) -> None:
    store = tmp_path / "digits.zarr"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    y = (np.abs(X[:, 0]) > 0.7).astype(int)
    rf.ingest((X, y), store)
    few = {"methods": ["random"], "method": "random", "sizes": [40]}
    results = run_job(store, tmp_path / "out", settings=few, scheduler="threads")
    assert results["data"]["path"] == str(store)
    assert not (tmp_path / "out" / "data.zarr").exists()
    assert results["model"]["accuracy"] > results["linear"]["accuracy"] + 0.05


def test_a_class_of_held_out_rows_alone_stops_no_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.arange(200) % 2
    y[17] = 7
    few = {"methods": ["random"], "method": "random", "refine": 0}
    held_out = []
    for seed in range(6):
        store = tmp_path / "s.zarr"
        rf.ingest((X, y), store, overwrite=True)
        out = tmp_path / str(seed)
        results = run_job(store, out, settings=few | {"random_state": seed}, scheduler="threads")
        assert results["confusion"]["labels"] == ["0", "1", "7"]
        held_out.append(sum(results["confusion"]["matrix"][2]))
        if len(set(held_out)) == 2:  # one run learned from the row, another did not
            break
    assert sorted(set(held_out)) == [0, 1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("plain.csv", "a,b\n1,2\n3,4\n", "plain.csv has no column named label.*label"),
        ("few.csv", "a,y\n1,0\n2,1\n3,0\n", "few.csv has 3 rows; give at least 20"),
        (
            "wide.svm",
            "".join(f"{i % 2} 1:1 {20_000 + i}:1\n" for i in range(40)),
            "wide.svm has 20,039 columns.*pass project=250",
        ),
        ("one.csv", "a,y\n" + "1,1\n" * 30, "all labels are of one class"),
    ],
)
def test_data_that_cannot_be_used_are_named(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        run_job(tmp_path / name, tmp_path / "out", scheduler="threads")


def test_wide_sparse_rows_are_projected_when_asked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{i % 2} {1 + i % 2}:1 " + " ".join(f"{c}:1" for c in np.sort(rng.choice(30_000, 5) + 3))
        for i in range(300)
    ]
    (tmp_path / "wide.svm").write_text("\n".join(lines) + "\n")
    few = {"project": 20, "methods": ["random"], "method": "random"}
    results = run_job(tmp_path / "wide.svm", tmp_path / "out", settings=few, scheduler="threads")
    assert results["data"]["columns"] == 20


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["missing.csv"], 2, "missing.csv does not exist"),
        (["--set", "refin=3"], 2, "did you mean 'refine'"),
        (["--resume", "--overwrite"], 2, "give one"),
        (["--resume"], 2, "leave --resume out to begin one"),
        (["--config", "none.toml"], 2, "There is no file none.toml"),
    ],
)
def test_bad_calls_end_with_a_sentence(
    tmp_path: Path, args: list[str], code: int, message: str
) -> None:
    ended = run_cli("run", *args, cwd=tmp_path)
    assert ended.returncode == code
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not any(tmp_path.iterdir())


def test_the_settings_can_be_listed(tmp_path: Path) -> None:
    ended = run_cli("run", "--list-settings", cwd=tmp_path)
    assert ended.returncode == 0
    assert "refine=300" in ended.stdout
