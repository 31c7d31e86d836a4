"""Saving over a model, and being interrupted at it, never loses one."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import rfcdask as rf
from rfcdask.persist import files
from rfcdask.persist import models as persist
from rfcdask.pipeline import fit_model
from tests.persist.models import fitted, rows


def test_an_existing_model_is_replaced_only_when_asked(saved: Path) -> None:
    other = fitted("random")
    with pytest.raises(FileExistsError, match=r"model exists already.*overwrite=True"):
        rf.save(other, saved)
    assert type(rf.load(saved)) is rf.CompressedFeatures
    rf.save(other, saved, overwrite=True)
    assert type(rf.load(saved)) is rf.RandomFeatures
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_what_is_no_model_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis exists already.*not a saved model"):
        rf.save(fitted("random"), tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_a_model_with_files_of_the_user_is_not_replaced(saved: Path) -> None:
    (saved / "predicted.csv").write_text("1")
    for replace in (
        lambda: rf.save(fitted("random"), saved, overwrite=True),
        lambda: fit_model("nowhere.csv", saved, overwrite=True),
    ):
        with pytest.raises(files.DestinationError, match=r"holds predicted\.csv, .* move that"):
            replace()
    assert (saved / "predicted.csv").read_text() == "1"


def test_a_link_to_a_model_stays_a_link(saved: Path) -> None:
    (link := saved.with_name("link")).symlink_to(saved)
    rf.save(fitted("random"), link, overwrite=True)
    assert link.is_symlink()
    assert (type(rf.load(link)), type(rf.load(saved))) == (rf.RandomFeatures, rf.RandomFeatures)
    assert sorted(path.name for path in saved.parent.iterdir()) == ["link", "model"]


def test_the_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    rf.save(fitted("random"), "~/model")
    assert rf.load(tmp_path / "model").n_components == rf.load("~/model").n_components == 20


def test_parents_are_made(tmp_path: Path) -> None:
    rf.save(fitted("random"), tmp_path / "a" / "b" / "model")
    assert rf.load(str(tmp_path / "a" / "b" / "model")).n_components == 20


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_save_leaves_nothing(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        raise error

    monkeypatch.setattr(persist, "_write_array", interrupted)
    with pytest.raises(error):
        rf.save(fitted("random"), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("where", "when"), [(persist, "_write_array"), (files, "replace_folder")])
def test_an_interrupted_replacement_keeps_the_old_model(
    where: ModuleType, when: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rf.load(saved).transform(rows(False))

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, when, interrupted)
    with pytest.raises(KeyboardInterrupt):
        rf.save(fitted("random"), saved, overwrite=True)
    np.testing.assert_array_equal(rf.load(saved).transform(rows(False)), before)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_failing_move_brings_the_old_model_back(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rf.load(saved).transform(rows(False))
    move = Path.replace

    def full_disk(self: Path, target: Path) -> Path:
        if Path(target) == saved and (self / "model.json").exists() and "-old" not in self.name:
            raise OSError("disk is full")
        return move(self, target)

    monkeypatch.setattr(files, "_exchange", lambda *names: False)  # as where it is not known
    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(OSError, match="disk is full"):
        rf.save(fitted("random"), saved, overwrite=True)
    np.testing.assert_array_equal(rf.load(saved).transform(rows(False)), before)


def test_a_killed_save_leaves_nothing_under_the_final_name(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, signal, sys
        import numpy as np
        import rfcdask as rf
        from rfcdask.persist import files

        def die(*args):
            os.kill(os.getpid(), signal.SIGKILL)

        features = rf.RandomFeatures(6, random_state=0).fit(np.eye(4))
        files.replace_folder = die
        rf.save(features, sys.argv[1])
        """
    )
    target = tmp_path / "model"
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    with pytest.raises(FileNotFoundError):
        rf.load(target)
    (left_over,) = tmp_path.glob(".model-????????")
    older = tmp_path / ".model-89abcdef-old"  # as a kill leaves it before the new one has its name
    rf.save(fitted("jl"), older)
    other = tmp_path / ".model-0123abcd"
    other.mkdir()
    (other / "letter.txt").write_text("of somebody else")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        rf.save(fitted("random"), target)
    assert isinstance(rf.load(target), rf.JLFeatures)  # the older one has its name again
    shutil.copytree(target, older)  # as a kill leaves it after the two changed places
    rf.save(fitted("random"), target, overwrite=True)
    assert rf.load(target).n_components == 20
    assert not left_over.exists()  # nobody else would ever remove it
    assert not older.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"model", ".model-0123abcd"}


def test_a_model_that_is_replaced_meanwhile_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps are all of the older or all of the newer one, never some of each."""
    X = np.random.default_rng(0).normal(size=(50, 3))
    one, two = (
        make_pipeline(rf.Standardizer(), rf.Ridge(alpha=alpha)).fit(X * alpha, X[:, 0])
        for alpha in (1.0, 2.0)
    )
    rf.save(one, tmp_path / "model")
    steps = persist._steps

    def replaced(*args: Any) -> Any:
        found = steps(*args)
        monkeypatch.setattr(persist, "_steps", steps)
        rf.save(two, tmp_path / "model", overwrite=True)
        return found

    monkeypatch.setattr(persist, "_steps", replaced)
    found = rf.load(tmp_path / "model")
    np.testing.assert_array_equal(found.predict(X), two.predict(X))


def test_two_processes_do_not_save_over_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = rf.Ridge().fit(np.eye(3), np.arange(3.0))
    write = persist._write

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(persist, "_write", write)
        with pytest.raises(FileExistsError, match=r"another process is saving .*: wait for it"):
            rf.save(model, tmp_path / "model")
        return write(*args)

    monkeypatch.setattr(persist, "_write", slow)
    rf.save(model, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_that_cannot_be_removed_is_not_replaced(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was moved aside under a hidden name, and stayed there."""
    monkeypatch.setattr(files.os, "access", lambda place, mode: mode != files.os.W_OK)
    with pytest.raises(files.DestinationError, match=r"no right to remove .*model: change its"):
        rf.save(fitted("random"), saved, overwrite=True)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]
