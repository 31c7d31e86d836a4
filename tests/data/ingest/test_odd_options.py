"""Options of the wrong kind: one sentence that names the option, before anything is touched."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.linear.write import write_zarr

X = np.random.default_rng(0).normal(size=(40, 4))
Y = np.arange(40) % 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("shuffle", "no"),
        ("shuffle", 1),
        ("shuffle", np.array([True, False])),
        ("header", 0),
        ("header", "yes"),
        ("zero_based", "no"),
        ("zero_based", 1),
        ("sparse", None),
        ("overwrite", "no"),
        ("overwrite", None),
        ("task", np.array(["auto", "auto"])),
        ("nan", 3),
        ("compressor", ["zstd"]),
        ("delimiter", 3),
        ("delimiter", b","),
        ("format", np.array([1, 2])),
        ("storage_options", 3),
        ("storage_options", "key=value"),
        ("storage_options", {3: "x"}),
        ("random_state", "a"),
        ("random_state", -1),
        ("random_state", 1.5),
        ("random_state", [1]),
    ],
)
def test_odd_values_are_refused_by_name(tmp_path: Path, option: str, value: Any) -> None:
    rf.ingest((X, Y), tmp_path / "store")
    kept = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    options = {"overwrite": True, option: value}
    with pytest.raises(ValueError, match=f"^{option}"):
        rf.ingest((X, Y), tmp_path / "store", **options)
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == kept


def test_flags_of_numpy_are_taken(tmp_path: Path) -> None:
    flag, seed = np.bool_(True), np.int64(3)
    made = rf.ingest((X, Y), tmp_path / "a", shuffle=flag, random_state=seed)
    same = rf.ingest((X, Y), tmp_path / "b", shuffle=True, random_state=3)
    np.testing.assert_array_equal(made.X.compute(), same.X.compute())


def test_storage_options_of_an_opened_store(tmp_path: Path) -> None:
    rf.ingest((X, Y), tmp_path / "store")
    with pytest.raises(DataError, match=r"^storage_options"):
        rf.open_dataset(tmp_path / "store", storage_options=3)  # type: ignore[arg-type]


def test_no_text_allows_replacing(tmp_path: Path) -> None:
    model = rf.RandomFeatures(2, random_state=0).fit(X)
    rf.save(model, tmp_path / "model")
    with pytest.raises(TypeError, match="overwrite='no' is neither True nor False"):
        rf.save(model, tmp_path / "model", overwrite="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="overwrite='no' is neither True nor False"):
        write_zarr(model.transform(X), tmp_path / "rows", overwrite="no")  # type: ignore[arg-type]


def test_what_is_no_client_is_said(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"client='no' is no distributed.Client"):
        rf.ingest((X, Y), tmp_path / "store", client="no")


@pytest.mark.parametrize("seed", range(4))
def test_projection_to_one_column(tmp_path: Path, seed: int) -> None:
    """Its indices are all zero, and with few columns it may hold nothing at all."""
    made = rf.ingest((X, Y), tmp_path / "store", project=1, random_state=seed)
    again = rf.open_dataset(tmp_path / "store")
    assert again.projection is not None
    np.testing.assert_array_equal(made.X.compute(), again.projection.transform(X))


@pytest.mark.parametrize("value", ["a", -1, 1.5, [1], object()])
def test_odd_seeds_are_refused_by_name(value: Any) -> None:
    features = rf.RandomFeatures(4, random_state=0).fit(X)
    model = rf.Ridge().fit(X, Y)
    calls = [
        lambda: rf.RandomFeatures(2, random_state=value).fit(X),
        lambda: rf.CompressedFeatures(2, random_state=value).fit(X),
        lambda: rf.SGDClassifier(random_state=value).fit(X, Y),
        lambda: rf.KernelRegressor(random_state=value).fit(X, Y),
        lambda: rf.kernel_error(features, X, random_state=value),
        lambda: rf.permutation_importance(model, X, Y, random_state=value),
        lambda: rf.compare(X, Y, methods=["random"], random_state=value),
        lambda: rf.tune(X, Y, random_state=value),
        lambda: rf.synthetic("higgs", 10, random_state=value),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="random_state"):
            call()


@pytest.mark.parametrize("dest", ["/", "//", "file:///", "memory://", "memory:///", "s3://"])
def test_all_of_a_file_system_is_no_destination(tmp_path, monkeypatch, dest):
    """They were taken for a folder in the current one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="is all of a file system and no place in it: name a"):
        rf.ingest(np.eye(3), dest)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["run[1].zarr", "run?.zarr", "run*"])
def test_a_pattern_behind_a_url_removes_nothing(name):
    """File systems of fsspec find what they remove by patterns, which fit other stores too."""
    other = f"memory://patterns-{len(name)}/run1.zarr"
    rf.ingest(np.eye(3), other)
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"holds '\*', '\?' or '\[', by which .*: choose a"):
            rf.ingest(np.eye(2), other.replace("run1.zarr", name), overwrite=overwrite)
    assert rf.open_dataset(other).shape == (3, 3)


def test_a_tilde_before_no_user_is_part_of_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~old.csv").write_text("a,y\n" + "1,0\n2,1\n" * 9)
    rf.ingest("~old.csv", "~new.zarr")
    assert rf.open_dataset("~new.zarr").shape == (18, 1)
    write_zarr(rf.open_dataset("~new.zarr").X, "~features.zarr")
    names = ["~features.zarr", "~new.zarr", "~old.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with pytest.raises(DataError, match=r"no zarr v3 group at .*/~none\.zarr"):
        rf.open_dataset("~none.zarr")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such names")
def test_files_whose_names_are_no_utf8_make_stores_that_open(tmp_path):
    """All rows were written, and then the store was said to be damaged."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/donn\xe9es.csv")
    with open(path, "w") as file:
        file.write("a,y\n" + "1,0\n2,1\n" * 9)
    data = rf.ingest(path, tmp_path / "a.zarr")
    assert data.attrs["source"] == [f"{tmp_path}/donn?es.csv"]
    data.verify(progress=False)
