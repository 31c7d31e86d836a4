"""A folder with files as users have them, and the command line as users call it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfcdask.cli import main
from tests.programs import run_cli

COLUMNS = "a,b,c,d"

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(files: Path) -> Cli:
    """Call ``rfcdask`` in the folder of files."""

    def call(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return run_cli(*args, **{"cwd": files, **more})

    return call


def make_rows(n: int, seed: int) -> tuple[Any, Any]:
    """Return rows in units of their own, and the names of two classes that no line parts."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, 4))
    y = np.where(X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4, "outside", "in, or near")
    return X * [1, 10, 100, 1] + [0, 5, 0, 0], y


def write_csv(path: Path, X: Any, y: Any = None) -> None:
    """Write rows as a CSV file, with a label column named target where there are labels."""
    head = COLUMNS + ("" if y is None else ",target")
    with open(path, "w", encoding="utf-8") as file:
        print(head, file=file)
        for i, row in enumerate(X):
            label = "" if y is None else f',"{y[i]}"'
            print(",".join(f"{value:.6g}" for value in row) + label, file=file)


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the examples name; tests add outputs of their own."""
    folder = tmp_path_factory.mktemp("cli")
    X, y = make_rows(600, 0)
    write_csv(folder / "data.csv", X, y)
    write_csv(folder / "part-1.csv", X[:300], y[:300])
    write_csv(folder / "part-2.csv", X[300:], y[300:])
    test, truth = make_rows(200, 1)
    write_csv(folder / "test.csv", test, truth)
    write_csv(folder / "new.csv", test)
    return folder


@pytest.fixture(scope="package")
def store(files: Path) -> Path:
    """A store, made by the command itself."""
    done = run_cli("ingest", "data.csv", "store.zarr", "--label", "target", "--json", cwd=files)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 600
    return files / "store.zarr"


FIT = ("--n-components", "20", "-q")


@pytest.fixture(scope="package")
def model(store: Path) -> Path:
    """A model fitted on that store by the command itself."""
    done = run_cli("fit", "store.zarr", "fitted", *FIT, "--json", cwd=store.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_components"] == 20
    return store.parent / "fitted"


@pytest.fixture
def call(files: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Call the command line within this process, which spares the imports; for options only."""
    from click.testing import CliRunner

    def invoke(*args: str, cwd: Path = files) -> Any:
        monkeypatch.chdir(cwd)
        return CliRunner().invoke(main, list(args))

    return invoke
