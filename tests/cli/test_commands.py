"""Bad calls of each command, JSON on stdout, and what make relies on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import rfcdask as rf
from tests.cli.conftest import Cli, make_rows, write_csv
from tests.programs import run_cli

BAD = {
    "ingest-missing-file": ("ingest nowhere.csv bad.zarr", "nowhere.csv does not exist"),
    "ingest-wrong-label": ("ingest data.csv bad.zarr --label nope", "no column 'nope'"),
    "ingest-taken": ("ingest data.csv store.zarr --label target", "pass --overwrite"),
    "fetch-unknown": ("fetch imagenet bad.zarr", "no recipe 'imagenet'"),
    "synthesize-taken": ("synthesize higgs store.zarr --rows 9", "pass --overwrite"),
    "info-no-store": ("info data.csv", "'rfcdask ingest FILE DEST' makes a store"),
    "plan-option-of-a-file": ("plan store.zarr --label x", "store.zarr is a store"),
    "tune-scheduler-file": ("tune store.zarr --scheduler nowhere.txt", "nowhere.txt"),
    "fit-taken": ("fit store.zarr fitted", "pass --overwrite"),
    "transform-no-model": ("transform nowhere data.csv bad.zarr", "is not a saved model"),
    "predict-taken": ("predict fitted new.csv data.csv", "data.csv exists already"),
    "score-no-model": ("score store.zarr test.csv", "is not a saved model"),
    "compare-no-data": ("compare nowhere.zarr", "nowhere.zarr does not exist"),
    "report-no-json": ("report data.csv bad.html", "is no JSON"),
}
"""Each command called badly, through the real entry point."""


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(name: str, files: Path, model: Path) -> None:
    line, words = BAD[name]
    done = run_cli(*line.split(), cwd=files)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not list(files.glob("bad*"))


MORE = {
    "ingest-no-label": ("ingest new.csv bad.zarr", "pass --label with one of"),
    "ingest-over-a-file": ("ingest data.csv new.csv --overwrite", "new.csv is no store"),
    "synthesize-too-wide": ("synthesize criteo bad.zarr --rows 99", "pass --project 250"),
    "tune-no-classes": ("tune new.csv --no-label", "no labels to judge by"),
    "tune-threads": ("tune store.zarr --scheduler tcp://x:1 --threads 2", "its own workers"),
    "fit-no-labels": ("fit new.csv bad --no-label", "no labels to learn from"),
    "transform-columns": (
        "transform fitted wide.csv bad.zarr --no-label --no-header",
        "4 columns expected, 5 found",
    ),
    "transform-no-map": ("transform linear store.zarr bad.zarr", "has no feature map"),
    "predict-no-learner": ("predict map store.zarr", "without a learner"),
    "predict-probabilities": ("predict linear new.csv --output probabilities", "--loss log_loss"),
    "score-no-labels": ("score fitted new.csv", "no labels to compare with"),
    "score-not-held-out": ("score fitted store.zarr --held-out", "fit it with --test-size"),
    "compare-no-classes": ("compare new.csv --no-label", "no labels to judge by"),
    "report-other-json": ("report other.json bad.html", "does not hold results"),
    "report-newer": ("report newer.json bad.html", "update rfcdask"),
}
"""More of them, within this process."""


@pytest.mark.parametrize("name", MORE)
def test_more_bad_input(name: str, call: Any, files: Path, model: Path) -> None:
    line, words = MORE[name]
    X, y = make_rows(20, 2)
    write_csv(files / "wide.csv", X, X[:, 0])
    (files / "other.json").write_text("[1]")
    (files / "newer.json").write_text('{"format": 99, "data": {}}')
    rf.save(rf.RidgeClassifier().fit(X, y), files / "linear", overwrite=True)
    rf.save(rf.RandomFeatures(5, random_state=0).fit(X), files / "map", overwrite=True)
    done = call(*line.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())
    assert not list(files.glob("bad*"))


def test_what_will_not_fit_is_refused_first(call: Any, files: Path, store: Path) -> None:
    size = ("--method", "compressed", "--n-components", "2000000", "--n-candidates", "3000000")
    done = run_cli("fit", "store.zarr", "bad", *size, cwd=files)
    assert (done.returncode, done.stdout) == (3, "")
    assert "fewer candidates (n_candidates)" in done.stderr
    assert not list(files.glob("bad*"))
    planned = call("plan", "store.zarr", "--no-probe", "--json", *size)
    assert planned.exit_code == 3
    assert json.loads(planned.stdout)["problems"]


def test_debug_shows_the_traceback(files: Path) -> None:
    done = run_cli("info", "nowhere.zarr", "--debug", cwd=files)
    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.rstrip().endswith("give the path of a store or a file.")


JSON: dict[str, tuple[str, dict[str, Any]]] = {
    "synthesize": ("synthesize higgs json2.zarr --rows 50", {"rows": 50, "columns": 28}),
    "info": ("info store.zarr", {"classes": ["in, or near", "outside"], "kind": "store"}),
    "tune": (
        "tune store.zarr --gammas 0.3 --Cs 1 --Cs 10 --n-rows 200 --strategy grid",
        {"gamma": 0.3, "standardize": True},
    ),
    "plan": ("plan store.zarr --no-probe", {"blocks": 1, "problems": []}),
    "fit": (
        "fit store.zarr json-model --method random --n-components 30 --test-size 0.3",
        {"map": "random", "n_components": 30, "metric": "accuracy", "test_rows": 180},
    ),
    "transform": ("transform fitted test.csv json3.zarr --label target", {"columns": 20}),
    "score": ("score fitted test.csv", {"metric": "accuracy", "rows": 200}),
}


@pytest.mark.parametrize("name", JSON)
def test_stdout_is_json_and_nothing_else(name: str, call: Any, model: Path) -> None:
    line, expected = JSON[name]
    done = call(*line.split(), "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert {key: found[key] for key in expected} == expected


def test_compare_writes_a_table_a_picture_and_results(call: Any, files: Path, store: Path) -> None:
    line = "compare store.zarr --methods random,nystroem --n-components 10,20"
    done = call(*line.split(), "--out", "c.json", "--plot", "c.png", "--json")
    assert done.exit_code == 0, done.stderr
    table = json.loads(done.stdout)
    assert [(row["method"], row["n_components"]) for row in table] == [
        ("random", 10),
        ("random", 20),
        ("nystroem", 10),
        ("nystroem", 20),
    ]
    results = json.loads((files / "c.json").read_text())
    assert results["comparison"] == table
    assert results["data"]["rows"] == 600
    assert (files / "c.png").read_bytes().startswith(b"\x89PNG")


def test_compare_again_and_again_tells_the_spread(call: Any, store: Path) -> None:
    line = "compare store.zarr --methods random --n-components 10 --repeats 2 --json"
    done = call(*line.split())
    assert done.exit_code == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["accuracy_spread"] >= 0
    assert row["kernel_error_spread"] > 0


def test_predictions_in_every_form_are_the_same(call: Any, files: Path, model: Path) -> None:
    for dest in ("p.npy", "p.zarr", "p.csv"):
        done = call("predict", "fitted", "new.csv", dest, "-q")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    printed = call("predict", "fitted", "new.csv", "-q")
    assert printed.stdout == (files / "p.csv").read_text()
    named = np.load(files / "p.npy", allow_pickle=False)
    assert set(named) == {"in, or near", "outside"}
    assert named.tolist() == zarr.open_array(files / "p.zarr", mode="r")[:].tolist()
    again = call("predict", "fitted", "new.csv", "p.npy")
    assert again.exit_code == 2  # what is there is not replaced unasked


def test_labels_of_rows_to_predict_may_be_anything(call: Any, files: Path, model: Path) -> None:
    X, _ = make_rows(200, 1)
    write_csv(files / "zeros.csv", X, np.zeros(200, int))
    for dest, extra in (("z.csv", ("--label", "target")), ("y.csv", ())):
        done = call("predict", "fitted", "zeros.csv", dest, *extra)
        assert done.exit_code == 0, done.stderr
    assert call("predict", "fitted", "new.csv", "x.csv").exit_code == 0
    assert (files / "z.csv").read_text() == (files / "x.csv").read_text()
    assert (files / "y.csv").read_text() == (files / "x.csv").read_text()


def test_columns_of_svmlight_are_counted_as_in_training(call: Any, tmp_path: Path) -> None:
    """New rows that are zero in the first column do not tell from where they count."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    lines = [f"{int(a + b > 0)} 0:{a:.5f} 1:{b:.5f} 2:{c:.5f}\n" for a, b, c in X]
    (tmp_path / "train.svm").write_text("".join(lines))
    (tmp_path / "new.svm").write_text("0 1:0.5\n0 1:-0.25 2:1\n")
    fit = ("--method", "random", "--n-components", "20", "--learner", "ridge", "--no-standardize")
    assert call("fit", "train.svm", "m", *fit, cwd=tmp_path).exit_code == 0
    done = call("predict", "m", "new.svm", "-q", "--output", "scores", cwd=tmp_path)
    found = [float(line) for line in done.stdout.splitlines()[1:]]
    expected = rf.load(tmp_path / "m").decision_function(np.array([[0, 0.5, 0], [0, -0.25, 1]]))
    np.testing.assert_allclose(found, expected, rtol=1e-4)

    lines = [f"{int(a + b > 0)} 1:{a:.5f} 2:{b:.5f} 3:{c:.5f}\n" for a, b, c in X]
    (tmp_path / "one.svm").write_text("".join(lines))
    assert call("fit", "one.svm", "n", *fit, cwd=tmp_path).exit_code == 0
    done = call("predict", "n", "train.svm", cwd=tmp_path)
    assert done.exit_code == 2
    assert "line 1" in done.stderr
    assert "counted from 1: count the columns as there, or train again" in done.stderr


def test_numbers_probabilities_and_other_formats(call: Any, tmp_path: Path) -> None:
    """svmlight with fewer columns in the new file, integer classes, probabilities, regression."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, 7, -7)
    lines = [
        f"{label} " + " ".join(f"{i + 1}:{v:.5f}" for i, v in enumerate(row))
        for row, label in zip(X, y, strict=True)
    ]
    (tmp_path / "train.svm").write_text("\n".join(lines) + "\n")
    (tmp_path / "new.svm").write_text("0 1:0.5\n0 2:0.25\n")
    fit = ("--method", "random", "--n-components", "60", "--loss", "log_loss", "--no-standardize")
    done = call("fit", "train.svm", "m", *fit, cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "reading it into m.unfinished/data.zarr" in done.stderr
    assert not (tmp_path / "m.unfinished").exists()
    wanted = ("predict", "m", "new.svm", "-q", "--output", "probabilities")
    done = call(*wanted, cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header == "-7,7"
    shares = np.array([[float(v) for v in row.split(",")] for row in rows])
    expected = rf.load(tmp_path / "m").predict_proba(np.array([[0.5, 0, 0], [0, 0.25, 0]]))
    np.testing.assert_allclose(shares, expected, rtol=1e-5)

    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "t.npy", X[:, 0] ** 2 + X[:, 1])
    numbers = (
        "fit",
        "X.npy",
        "r",
        "--label",
        "t.npy",
        "--learner",
        "ridge",
        "--n-components",
        "80",
    )
    done = call(
        *numbers,
        "--method",
        "random",
        "--alpha",
        "0.01",
        "--test-size",
        "0.2",
        "--json",
        cwd=tmp_path,
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["metric"] == "R2"
    assert found["score"] > 0.8


def test_a_map_of_rows_without_labels(call: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    np.save(tmp_path / "X.npy", X)
    fit = "fit X.npy m --no-label --learner none --n-components 8 --n-candidates 50 --refine 0"
    wrong = call(*f"{fit} --method compressed-labels".split(), cwd=tmp_path)
    assert wrong.exit_code == 2
    assert "no labels to learn from" in wrong.stderr
    done = call(*fit.split(), "--json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["map"] == "compressed"
    assert rf.load(tmp_path / "m").transform(X).shape == (200, 8)


def test_a_fit_that_was_refused_is_in_nobodys_way(call: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    for name, y in (("numbers", X[:, 0]), ("classes", X[:, 0] > 0)):
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    fit = ("--label", "y", "--method", "none", "--learner", "svm", "-q")
    refused = call("fit", "numbers.npz", "m", *fit, cwd=tmp_path)
    assert refused.exit_code == 2
    assert "learner=svm is for classes, and the labels are numbers" in refused.stderr
    done = call("fit", "classes.npz", "m", *fit, cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert [path.name for path in tmp_path.glob("m*")] == ["m"]


def test_fit_and_run_write_the_same_model(call: Any, store: Path, tmp_path: Path) -> None:
    few = "--n-components 12 --test-size 0.25 -q"
    compared = "--methods random --n-candidates 60 --n-rows 200 --refine 5"
    for command in (f"run {{}} {compared} --scheduler threads", "fit {} model"):
        done = call(*f"{command.format(store)} {few}".split(), cwd=tmp_path)
        assert done.exit_code == 0, done.stderr
    one, two = (rf.load(tmp_path / name) for name in ("rfcdask-run/model", "model"))
    np.testing.assert_array_equal(one["learner"].frequencies_, two["learner"].frequencies_)
    np.testing.assert_array_equal(one["learner"].coef_, two["learner"].coef_)
    held_out = call("score", "model", str(store), "--held-out", "--json", cwd=tmp_path)
    results = json.loads((tmp_path / "rfcdask-run/results.json").read_text())
    assert json.loads(held_out.stdout)["score"] == pytest.approx(results["model"]["accuracy"])


def test_a_projected_store_and_new_rows_of_a_file(call: Any, tmp_path: Path) -> None:
    """A model fitted behind a projection sends new files through the very same one."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 40))
    y = np.where(X[:, :20].sum(axis=1) > 0, "up", "down")
    head = ",".join(f"c{i}" for i in range(40))
    for name, part in (("train", slice(0, 250)), ("test", slice(250, 300))):
        rows = (",".join(map(repr, row.tolist())) for row in X[part])
        text = "\n".join(f"{row},{label}" for row, label in zip(rows, y[part], strict=True))
        (tmp_path / f"{name}.csv").write_text(f"{head},label\n{text}\n")
    made = ("ingest", "train.csv", "train.zarr", "--project", "15", "--random-state", "3", "-q")
    assert call(*made, cwd=tmp_path).exit_code == 0
    fit = ("fit", "train.zarr", "m", "--method", "none", "--learner", "ridge", "-q")
    assert call(*fit, cwd=tmp_path).exit_code == 0
    done = call("predict", "m", "test.csv", "-q", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    projection = rf.open_dataset(tmp_path / "train.zarr").projection
    assert projection is not None
    expected = rf.load(tmp_path / "m").predict(projection.transform(X[250:]))
    assert done.stdout.splitlines()[1:] == expected.tolist()


def test_a_cluster_gives_the_same_and_is_used(
    cli: Cli, call: Any, store: Path, model: Path, cluster_client: Any
) -> None:
    def tasks(dask_scheduler: Any) -> int:
        return int(dask_scheduler.transition_counter)

    alone = call("score", "fitted", "store.zarr", "--json")
    for way in ("option", "environment"):
        before = cluster_client.run_on_scheduler(tasks)
        address = cluster_client.scheduler.address
        if way == "option":
            done = cli("score", "fitted", "store.zarr", "--json", "--scheduler", address)
        else:
            env = {"DASK_SCHEDULER_ADDRESS": address}
            done = cli("score", "fitted", "store.zarr", "--json", **env)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == json.loads(alone.stdout)
        assert cluster_client.run_on_scheduler(tasks) > before


def test_overwriting_replaces_whole_and_keeps_on_failure(
    call: Any, files: Path, tmp_path: Path
) -> None:
    shutil.copy(files / "data.csv", tmp_path / "data.csv")
    shutil.copy(files / "test.csv", tmp_path / "test.csv")
    args = ("--label", "target", "-q", "--overwrite")
    assert call("ingest", "data.csv", "d.zarr", *args, cwd=tmp_path).exit_code == 0
    (tmp_path / "broken.csv").write_text("a,b,target\n1,2,x\n1,oops,y\n")
    done = call("ingest", "broken.csv", "d.zarr", *args, cwd=tmp_path)
    assert done.exit_code == 2
    assert "line 3" in done.stderr
    assert rf.open_dataset(tmp_path / "d.zarr").shape == (600, 4)
    assert call("ingest", "test.csv", "d.zarr", *args, cwd=tmp_path).exit_code == 0
    assert rf.open_dataset(tmp_path / "d.zarr").shape == (200, 4)
    assert sorted(path.name for path in tmp_path.glob("d.zarr*")) == ["d.zarr"]


def test_the_python_interface_reads_what_fit_wrote(model: Path, store: Path) -> None:
    pipeline = rf.load(model)
    dataset = rf.open_dataset(store)
    predicted = pipeline.predict(dataset.X)
    assert isinstance(predicted, da.Array)
    assert dataset.y is not None
    assert float((predicted == dataset.y).mean()) > 0.9


def test_info_verify_names_every_damaged_file(call: Any, store: Path, tmp_path: Path) -> None:
    good = call("info", "store.zarr", "--verify")
    assert good.exit_code == 0
    assert "bytes are what was written" in good.stdout
    assert json.loads(call("info", "store.zarr", "--verify", "--json").stdout)["verified_bytes"] > 0
    bad = tmp_path / "bad.zarr"
    shutil.copytree(store, bad)
    (bad / "X/c/0/0").write_bytes(b"")
    (bad / "y/c/0").unlink()
    done = call("info", str(bad), "--verify")
    assert done.exit_code == 2
    assert "X/c/0/0 has 0 bytes instead of" in done.stderr
    assert "y/c/0 is missing" in done.stderr
    assert "Traceback" not in done.stderr
    assert call("info", str(bad)).exit_code == 2


@pytest.mark.filterwarnings("ignore:.*without a manifest")
def test_an_old_store_is_named_and_copied(call: Any, store: Path, tmp_path: Path) -> None:
    """What the note and the refusal of --verify advise: rfcdask ingest OLD NEW."""
    old, new = tmp_path / "old.zarr", tmp_path / "new.zarr"
    shutil.copytree(store, old)
    shutil.rmtree(old / "manifest")
    document = json.loads((old / "zarr.json").read_text())
    document["attributes"]["format"] = 1
    (old / "zarr.json").write_text(json.dumps(document))
    done = run_cli("info", str(old), cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("'rfcdask ingest OLD NEW'") == 1
    refused = call("info", str(old), "--verify")
    assert refused.exit_code == 2
    assert "'rfcdask ingest OLD NEW'" in refused.stderr
    assert call("ingest", str(old), str(new)).exit_code == 0
    assert call("info", str(new), "--verify").exit_code == 0


def test_info_verify_reads_a_model(call: Any, model: Path, tmp_path: Path) -> None:
    assert call("info", str(model), "--verify").exit_code == 0
    bad = tmp_path / "model"
    shutil.copytree(model, bad)
    chunk = next(path for path in sorted(bad.rglob("arrays.zarr/*/c/*")) if path.is_file())
    chunk.write_bytes(b"")
    assert call("info", str(bad)).exit_code == 0
    done = call("info", str(bad), "--verify")
    assert done.exit_code == 2
    assert "is damaged" in done.stderr


def test_score_warns_first_of_a_class_never_predicted(call: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    kinds = np.where(rng.uniform(size=1500) < 0.03, "rare", np.where(X[:, 0] > 0, "left", "right"))
    lines = [f"{a},{b},{c},{kind}" for (a, b, c), kind in zip(X, kinds, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,kind", *lines]))
    fit = ("fit", "data.csv", "model", "--label", "kind", "--method", "none", "--learner", "ridge")
    fitted = call(*fit, "--test-size", "0.3", cwd=tmp_path)
    assert fitted.stdout.startswith("Warning: Class 'rare' is never predicted")
    shown = call("score", "model", "data.csv", cwd=tmp_path).stdout.splitlines()
    assert shown[0].startswith("Warning: Class 'rare' is never predicted")
    assert "fit with --class-weight balanced if" in shown[0]
    assert shown[1].startswith("accuracy 0.9")
    assert any(line.startswith("balanced accuracy") for line in shown)
    assert next(line for line in shown if line.startswith("rare")).split()[2:] == ["0.0%", "0.0%"]
