"""The tables of the pages list what is really written and read, neither more nor less."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from dask.utils import parse_bytes
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.features.compressed import memory_budget
from rfcdask.linear.sgd.base import LOCAL_BUDGET
from rfcdask.pipeline.folder import RESULTS_FORMAT, RunFolder
from rfcdask.pipeline.settings import describe
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "file-formats.md").read_text(encoding="utf-8")


def listed(heading: str) -> list[str]:
    """Return the names in the first column of the first table below a heading."""
    below = PAGE[PAGE.index(f"\n{heading}\n") :]
    table = re.search(r"(?:^\|.*\n)+", below, re.M)
    assert table
    cells = [line.split("|")[1] for line in table[0].splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    return X, np.where(X[:, 0] > 0, "up", "down")


def test_attributes_of_a_store(data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    stored = rf.ingest(data, tmp_path / "data.zarr")
    of_some_sources = {"table", "first_index", "standardized"}
    assert set(listed("### Attributes")) == set(stored.attrs) | of_some_sources
    assert stored.attrs["format"] == 2
    manifest = json.loads((tmp_path / "data.zarr/manifest/zarr.json").read_text())["attributes"]
    assert set(listed("### Manifest")) == set(manifest)
    files = [path for path in (tmp_path / "data.zarr").rglob("*") if path.is_file()]
    shards = sum(len(part["sizes"]) for part in manifest["shards"].values())
    assert len(manifest["files"]) + shards == len(files) - 1


def test_keys_of_a_model(data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = data
    features = rf.CompressedFeatures(5, n_candidates=20, refine=0, random_state=0)
    model = make_pipeline(features, rf.RidgeClassifier()).fit(X, y)
    rf.save(model, tmp_path / "model", about={"source": "a test"})
    whole = json.loads((tmp_path / "model" / "model.json").read_text())
    step = json.loads((tmp_path / "model" / "step-0" / "model.json").read_text())
    assert set(listed("## The saved model")) == set(step) | {"about"}
    assert set(whole) - {"steps"} <= set(listed("## The saved model"))
    assert (step["format"], whole["format"]) == (1, 2)
    assert (tmp_path / "model" / "step-0" / "arrays.zarr").is_dir()


def test_files_of_a_run() -> None:
    folder = RunFolder(Path("run"))
    paths = (folder.report, folder.results, folder.model, folder.log, folder.data, folder.begun)
    more = (folder.sample, folder.maps, folder.checkpoint, folder.phases, folder.refused)
    names = {name.strip("/").partition("/")[0] for name in listed("## The folder of a run")}
    assert names == {path.name for path in (*paths, *more)}


def test_settings_of_a_run() -> None:
    assert RESULTS_FORMAT == 1
    assert listed("### run.toml") == [name for name, _, _ in describe()]
    for name, default, about in describe():
        assert f"| `{name}` | {default.replace(',', ', ')} | {about} |" in PAGE, name


def test_keys_of_the_configuration() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "rfcdask").rglob("*.py"))
    used = set(re.findall(r"config\.get\(\"(rfcdask\.[a-z-]+)\"", sources))
    used |= {
        f"rfcdask.{name}" for name in re.findall(r"configured(?:_\w+)?\(\"([a-z-]+)\"", sources)
    }
    method = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(rfcdask\.[a-z-]+)` \| ([^|]+) \|", method, re.M))
    assert used == set(table)
    assert parse_bytes(table["rfcdask.persist-bytes"]) == parse_bytes(LOCAL_BUDGET)
    assert parse_bytes(table["rfcdask.selection-memory"]) == memory_budget()
