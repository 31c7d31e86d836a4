"""The scripts of the experiments: each runs in its small form, goes on, and measures rightly."""

from __future__ import annotations

import csv
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl
from sklearn.metrics.pairwise import rbf_kernel

import rfcdask as rf
from tests.programs import run_forked

FOLDER = Path(__file__).parents[1] / "workflows" / "experiments"
SCRIPTS = sorted(
    p.stem
    for p in FOLDER.glob("*.py")
    if p.stem not in ("harness", "data", "figures", "write_results")
)


def run(script: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_forked(_run, script, "--quick", "--out", str(out), *options, timeout=280)


def _run(script: str, *options: str) -> None:
    path = str(FOLDER / f"{script}.py")
    sys.argv, sys.path[:0] = [path, *options], [str(FOLDER)]
    # Threads of OpenMP wait by spinning, which on few cores costs more than the small work.
    os.environ["OMP_NUM_THREADS"] = "1"
    with threadpoolctl.threadpool_limits(1):
        runpy.run_path(path, run_name="__main__")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("script", sorted(set(SCRIPTS) - {"solvers"}))  # which runs below
def test_the_small_form_runs(script: str, tmp_path: Path) -> None:
    require_small_form(script, tmp_path)


def require_small_form(script: str, folder: Path) -> list[dict[str, str]]:
    """Run the small form of a script, look at what it writes, and return its rows."""
    done = run(script, folder, "--trials", "1")
    assert done.returncode == 0, done.stderr
    rows = read(folder / f"{script}.csv")
    assert {row["trial"] for row in rows} == {"0"}
    figures = list(folder.glob("*.svg"))
    assert figures
    assert all("<text" in figure.read_text(encoding="utf-8") for figure in figures)
    assert "|---|" in done.stdout
    return rows


def test_a_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    first = require_small_form("solvers", tmp_path)
    path = tmp_path / "solvers.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))  # without the last trial
    done = run("solvers", tmp_path, "--trials", "1")
    assert done.stdout.count("solvers: synthetic") == 1
    again = read(path)
    timed = ("fit_seconds",)
    assert [{k: v for k, v in row.items() if k not in timed} for row in first] == [
        {k: v for k, v in row.items() if k not in timed} for row in again
    ]


def test_data_that_are_missing_are_asked_for(tmp_path: Path) -> None:
    done = run("solvers", tmp_path, "--data", str(tmp_path), "--sets", "covtype")
    assert done.returncode != 0
    assert "rfcdask fetch covtype" in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rf.kernel_error, numpy's norm and the singular values have them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from kernel_error import errors, floor  # type: ignore[import-not-found]

    X = np.random.default_rng(0).normal(size=(120, 4))
    features = rf.RandomFeatures(30, gamma=0.3, random_state=0).fit(X)
    Z, K = features.transform(X), rbf_kernel(X, gamma=0.3)
    eigenvalues = np.linalg.eigvalsh(K)[::-1]
    found = errors(Z, K, eigenvalues[0])
    assert found["error"] == pytest.approx(rf.kernel_error(features, X, n_points=120), rel=1e-6)
    spectral = np.linalg.norm(Z @ Z.T - K, 2) / np.linalg.norm(K, 2)
    assert found["spectral_error"] == pytest.approx(spectral, rel=1e-3)
    U, s, V = np.linalg.svd(K)
    best = (U[:, :30] * s[:30]) @ V[:30]
    expected = np.linalg.norm(best - K) / np.linalg.norm(K)
    assert floor(30, eigenvalues)["error"] == pytest.approx(expected, rel=1e-8)
    assert floor(200, eigenvalues) == {"error": 0.0, "spectral_error": 0.0}


PAGE = FOLDER.parent / "RESULTS.md"


def test_pages_have_the_tables_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from write_results import PAGES, fill  # type: ignore[import-not-found]

    assert PAGE in PAGES
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- end -->") > 2
        assert fill(text) == text, "run workflows/experiments/write_results.py"


def test_figures_and_results_of_the_page_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"experiments/results/[\w.]+\.(?:svg|csv)", text))
    assert {name.rpartition(".")[2] for name in named} == {"svg", "csv"}
    missing = [name for name in named if not (PAGE.parent / name).is_file()]
    assert not missing
    scripts = set(re.findall(r"experiments/(\w+)\.py", text))
    assert set(SCRIPTS) <= scripts, "every experiment has its command on the page"


def test_a_win_exceeds_two_standard_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from write_results import values, verdicts

    near, far = [0.80, 0.82, 0.81], [0.90, 0.91, 0.92]
    columns = {"A": far, "B": near, "C": [0.79, 0.83, 0.82], "E": [0.81]}
    lines = ["data,method,trial,J,accuracy,error"]
    for name, found in columns.items():
        lines += [f"mnist,{name},{t},100,{v},{v}" for t, v in enumerate(found)]
    (tmp_path / "made.csv").write_text("\n".join(lines))

    spread = np.sqrt(np.var(far, ddof=1) / 3 + np.var(near, ddof=1) / 3)
    table = verdicts(tmp_path, "made", "accuracy", "A:100/B:100", "C:100/B:100", "A:100/D:100")
    assert f"| **win**, +0.1000 ± {spread:.4f} | same, " in table
    assert "| not measured |" in table
    assert "| **loss**, +" in verdicts(tmp_path, "made", "error", "A:100/B:100")
    assert "| one trial: +0.1 |" in verdicts(tmp_path, "made", "error", "A:100/E:100")
    found = values(tmp_path, "made", "data,method", "J=100", "method=B", "accuracy")
    assert "| mnist, B | 0.8100 ± 0.0100 |" in found
