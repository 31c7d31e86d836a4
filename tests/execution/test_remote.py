"""A cluster elsewhere: programs with TLS that share neither folder nor environment with us."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from distributed.security import Security

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.data import DataError
from rfcdask.data.location import require_shared
from rfcdask.pipeline import comparable, run_job
from tests import programs
from tests.pipeline.helpers import SMALL, pairs

HERE_ONLY = Path("/proc/self/cwd")
"""The folder of whoever asks: a path under it means something else to every worker."""
needs_proc = pytest.mark.skipif(not HERE_ONLY.exists(), reason="no /proc on this system")


class Remote(NamedTuple):
    file: Path
    security: Security
    files: dict[str, Path]

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("remote")
    security, files = programs.write_certificates(folder)
    options = programs.tls_options(files)
    with programs.scheduler(folder, *options, workers=2, security=security) as file:
        yield Remote(file, security, files)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with programs.scheduler(tmp_path_factory.mktemp("plain")) as file:
        yield file


def _call(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rfcdask", *args],
        cwd=cwd,
        env=programs.bare_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_a_run_over_tls_is_that_of_threads(remote: Remote, tmp_path: Path) -> None:
    few = {"rows": 2000, "sizes": [8], "methods": ["random", "compressed"], "gamma": "median"}
    settings = SMALL | few
    options = [*pairs(), "--set", "rows=2000", "--set", "sizes=8", "--set", "gamma=median"]
    options += ["--set", "methods=random,compressed"]
    environment = programs.tls_environment(remote.files)
    done = _call("run", "--scheduler", remote.address, *options, cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "rfcdask-run" / "results.json").read_text())
    assert results["machine"]["workers"] == 2
    assert results["machine"]["scheduler"] == remote.address
    alone = run_job(None, tmp_path / "alone", settings=settings, scheduler="threads")
    assert comparable(results) == comparable(alone)


@pytest.mark.slow
def test_a_run_over_tcp_is_that_of_threads(plain: Path, tmp_path: Path) -> None:
    done = _call("run", "--scheduler", str(plain), *pairs(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "rfcdask-run" / "results.json").read_text())
    alone = run_job(None, tmp_path / "alone", settings=SMALL, scheduler="threads")
    assert comparable(results) == comparable(alone)


def test_other_certificates_are_refused(remote: Remote) -> None:
    with (
        pytest.raises(ConnectionError, match=r"answers at tls.*certificates are those given"),
        rf.connect(remote.address, security=Security.temporary(), timeout=2),
    ):
        pass


def test_a_plain_client_is_told_to_use_tls(remote: Remote) -> None:
    address = remote.address.replace("tls", "tcp")
    with (
        pytest.raises(ConnectionError, match=rf"{address}.*speaks TLS: give {remote.address} and"),
        rf.connect(address, timeout=2),
    ):
        pass


def test_a_tls_client_is_told_to_use_tcp(plain: Path, remote: Remote) -> None:
    address = json.loads(plain.read_text())["address"]
    with (
        pytest.raises(ConnectionError, match=rf"does not speak TLS: give {address}"),
        rf.connect(address.replace("tcp", "tls"), security=remote.security, timeout=2),
    ):
        pass
    with rf.connect(address) as client:  # as the message says
        assert client.submit(sum, [1, 2]).result() == 3


def test_the_command_line_says_so_in_a_line(remote: Remote, tmp_path: Path) -> None:
    address = remote.address.replace("tls", "tcp")
    np.save(tmp_path / "X.npy", np.ones((10, 2)))
    done = _call("ingest", "X.npy", "X.zarr", "--scheduler", address, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert f"give {remote.address}" in done.stderr.splitlines()[0]
    assert not (tmp_path / "X.zarr").exists()


def _copy_with_version(folder: Path, version: str) -> str:
    shutil.copytree(Path(rf.__file__).parent, folder / "rfcdask")
    text = f'__version__ = "{version}"\n'
    (folder / "rfcdask" / "_version.py").write_text(text)
    return str(folder)


def test_another_minor_version_is_refused(remote: Remote, tmp_path: Path) -> None:
    options = programs.tls_options(remote.files)
    path = _copy_with_version(tmp_path, "0.99.3")
    with programs.worker(remote.file, *options, PYTHONPATH=path):
        programs.wait_for_workers(remote.file, 3, remote.security)
        with (
            pytest.raises(RuntimeError, match=r"worker tls\S+ runs rfcdask 0.99.3 and .*install"),
            rf.connect(remote.file, security=remote.files),
        ):
            pass


def test_another_patch_version_is_named(tmp_path: Path) -> None:
    ours = ".".join(rf.__version__.split(".")[:2])
    path = _copy_with_version(tmp_path, f"{ours}.99")
    with (
        programs.scheduler(tmp_path, PYTHONPATH=path) as file,
        pytest.warns(UserWarning, match=rf"other versions than this process: rfcdask {ours}.99"),
        rf.connect(file),
    ):
        pass


def test_a_worker_without_rfcdask_is_refused(remote: Remote) -> None:
    """Without the site module no editable install is found, and no PYTHONPATH is given."""
    packages = sysconfig.get_paths()["purelib"]
    start = f"import sys; sys.path.append({packages!r}); from dask.__main__ import main; main()"
    options = programs.tls_options(remote.files)
    with programs.worker(remote.file, *options, run=("-S", "-c", start), PYTHONPATH=""):
        programs.wait_for_workers(remote.file, 3, remote.security)
        with (
            pytest.raises(ModuleNotFoundError, match=r"has no rfcdask installed; install rfcdask"),
            rf.connect(remote.file, security=remote.files),
        ):
            pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file and a store, which is the current one: workers have another."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    np.save(tmp_path / "a.npy", X)
    rf.ingest((X, X[:, 0] > 0), tmp_path / "a.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@needs_proc
@pytest.mark.parametrize(
    "args",
    [
        ("ingest", "{here}/a.npy", "{shared}/b.zarr"),
        ("ingest", "{shared}/a.npy", "{here}/b.zarr"),
        ("fit", "{here}/a.zarr", "{shared}/model"),
        ("run", "{here}/a.zarr", "--out", "{shared}/out"),
        ("run", "{shared}/a.zarr", "--out", "{here}/out"),
    ],
    ids=["ingest from", "ingest to", "fit", "run from", "run to"],
)
def test_unseen_paths_are_said_first(plain: Path, folder: Path, args: tuple[str, ...]) -> None:
    filled = [part.format(here=HERE_ONLY, shared=folder) for part in args]
    done = CliRunner().invoke(main, [*filled, "--scheduler", str(plain)])
    assert done.exit_code == 2, done.output
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("Error")]
    assert f"does not see {HERE_ONLY}" in said
    assert "a disk that the workers share" in said
    assert "phase" not in done.stderr
    assert not list(folder.glob("**/.rfcdask-*"))
    assert not (folder / "b.zarr").exists()


@needs_proc
def test_features_of_unseen_rows(plain: Path, folder: Path) -> None:
    fit = [
        "fit",
        "a.zarr",
        "model",
        "--method",
        "random",
        "--n-components",
        "8",
        "--learner",
        "none",
    ]
    assert CliRunner().invoke(main, fit).exit_code == 0
    for data, dest in [(HERE_ONLY, folder), (folder, HERE_ONLY)]:
        paths = (f"{data}/a.zarr", f"{dest}/p.zarr")
        done = CliRunner().invoke(main, ["transform", "model", *paths, "--scheduler", str(plain)])
        assert done.exit_code == 2, done.output
        assert f"does not see {HERE_ONLY}" in done.stderr
    paths = (f"{folder}/a.zarr", f"{folder}/p.zarr")  # as the message says
    done = CliRunner().invoke(main, ["transform", "model", *paths, "--scheduler", str(plain)])
    assert done.exit_code == 0, done.output


@needs_proc
def test_another_store_of_the_same_name(plain: Path, folder: Path) -> None:
    other = plain.parent / "elsewhere" / "a.zarr"
    rf.ingest(np.ones((5, 2)), other)
    with (
        rf.connect(plain) as client,
        pytest.raises(DataError, match=r"sees something else at /proc/self/cwd/a\.zarr"),
    ):
        require_shared(client, reads=[HERE_ONLY / "a.zarr"])


@needs_proc
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_other_values_under_the_same_names(plain: Path, folder: Path, zarr_format: Any) -> None:
    """The rows, or their labels, of another array of the same shape were read without a word."""
    for seed, place in enumerate([folder, plain.parent / "elsewhere"]):
        y = np.random.default_rng(seed).integers(0, 2, 300)
        np.save(place / f"y{zarr_format}.npy", y)
        rows = place / f"plain{zarr_format}.zarr"
        zarr.create_array(rows, data=y[:, None], chunks=(100, 1), zarr_format=zarr_format)
    here = HERE_ONLY / f"plain{zarr_format}.zarr"
    labels = f"y{zarr_format}.npy"
    with rf.connect(plain) as client:
        with pytest.raises(DataError, match=r"sees something else at /proc/self/cwd/plain"):
            rf.ingest(here, "b.zarr", client=client)
        with pytest.raises(DataError, match=r"sees something else at /proc/self/cwd/y"):
            rf.ingest(folder / here.name, "c.zarr", label=HERE_ONLY / labels, client=client)
        found = rf.ingest(folder / here.name, "d.zarr", label=folder / labels, client=client)
    np.testing.assert_array_equal(found.y.compute(), np.load(labels))


def test_local_workers_are_not_asked(cluster_client: Any, folder: Path) -> None:
    require_shared(cluster_client, reads=[HERE_ONLY / "a.zarr"], writes=HERE_ONLY / "b")
