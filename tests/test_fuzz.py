"""A small share of the mutated files that ``workflows/reliability/fuzz.py`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pages import load_script

NAMES = ("svmlight", "csv", "npy", "npz", "parquet", "zarr", "store", "model", "run")
NAMES += ("recipe", "config")
INPUTS = 30


@pytest.fixture(scope="module")
def fuzz() -> Any:
    return load_script("reliability/fuzz.py")


def test_every_format_is_tried(fuzz: Any) -> None:
    assert set(NAMES) == set(fuzz.FORMATS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_are_read_or_refused(fuzz: Any, name: str, tmp_path: Path) -> None:
    fuzz.prepare([name], tmp_path)
    outcomes = {n: fuzz.run_input(name, n, 0, tmp_path) for n in range(INPUTS)}
    assert {outcome for outcome, _ in outcomes.values()} >= {"refused"}
    assert {n: o for n, o in outcomes.items() if o[0] not in fuzz.FINE} == {}


@pytest.mark.filterwarnings("ignore")
def test_the_same_numbers_make_the_same_input(fuzz: Any, tmp_path: Path) -> None:
    fuzz.prepare(["npy"], tmp_path)
    assert fuzz.make_input("npy", 7, 3)[0] == fuzz.make_input("npy", 7, 3)[0]
    made = [fuzz.make_input("npy", n, 3)[0]["a.npy"] for n in range(50)]
    assert len(set(made)) > 40
