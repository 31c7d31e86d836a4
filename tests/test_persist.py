from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask import persist
from rfcdask.kernels import Kernel
from tests.reference import random_csr

MAPS: dict[str, Any] = {
    "random": rf.RandomFeatures(20, random_state=0),
    "fastfood": rf.RandomFeatures(20, sampling="fastfood", phases="paired", random_state=1),
    "compressed": rf.CompressedFeatures(8, n_candidates=60, n_rows=60, refine=20, random_state=2),
    "selected": rf.CompressedFeatures.paper(8, n_candidates=60, n_pairs=200, random_state=2),
    "paired": rf.CompressedFeatures(
        8, n_candidates=60, n_rows=60, refine=0, phases="paired", kernel="cauchy", random_state=3
    ),
    "jl": rf.JLFeatures(16, n_candidates=64, projection="fast", random_state=4),
    "nystroem": rf.NystroemFeatures(12, landmarks="rpcholesky", random_state=5),
}


def rows(sparse: bool, dtype: str = "float32") -> Any:
    X = random_csr(np.random.default_rng(0), (90, 5), dtype, density=0.7)
    return X if sparse else X.toarray()


def fitted(name: str = "compressed", *, sparse: bool = False) -> Any:
    from sklearn.base import clone

    return clone(MAPS[name]).fit(rows(sparse))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rf.save(fitted(), tmp_path / "model")
    return tmp_path / "model"


def chunk_files(model: Path) -> list[Path]:
    return [path for path in model.rglob("*") if path.is_file() and path.suffix != ".json"]


def edit(model: Path, change: Any) -> None:
    record = json.loads((model / "model.json").read_text())
    change(record)
    record.pop("checksum")
    record["checksum"] = persist._checksum(record)  # what lies behind it is to be tested
    (model / "model.json").write_text(json.dumps(record))


# --- round trips ------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_a_loaded_map_gives_the_same_bits(name: str, sparse: bool, tmp_path: Path) -> None:
    features = fitted(name, sparse=sparse)
    rf.save(features, tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert type(loaded) is type(features)
    assert loaded.get_params() == features.get_params()
    for X in (rows(sparse), rows(not sparse), rows(sparse, "float64")):
        np.testing.assert_array_equal(loaded.transform(X), features.transform(X))
    learned = {k: v for k, v in vars(features).items() if k.endswith("_")}
    assert {k for k in vars(loaded) if k.endswith("_")} == set(learned)
    for key, value in learned.items():
        same(getattr(loaded, key), value)


def same(mine: Any, theirs: Any) -> None:
    if sp.issparse(theirs):
        assert sp.issparse(mine)
        mine, theirs = mine.toarray(), theirs.toarray()
    assert np.asarray(mine).dtype == np.asarray(theirs).dtype or isinstance(theirs, tuple)
    assert type(mine) is type(theirs)
    if isinstance(theirs, tuple):
        for a, b in zip(mine, theirs, strict=True):
            same(a, b)
    else:
        np.testing.assert_array_equal(mine, theirs)


def test_feature_names_come_back(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rows(False), columns=list("abcde"))
    rf.save(rf.RandomFeatures(6, random_state=0).fit(X), tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list("abcde")
    assert loaded.transform(X).shape == (90, 6)
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(X.rename(columns={"a": "z"}))


@pytest.mark.parametrize("state", [np.random.RandomState(0), np.random.default_rng(0)])
def test_a_generator_is_replaced_by_the_seed_it_gave(state: Any, tmp_path: Path) -> None:
    features = rf.RandomFeatures(6, random_state=state).fit(rows(False))
    rf.save(features, tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert loaded.random_state is None
    assert loaded.seed_ == features.seed_
    np.testing.assert_array_equal(loaded.transform(rows(False)), features.transform(rows(False)))


def test_numpy_numbers_as_parameters(tmp_path: Path) -> None:
    features = rf.RandomFeatures(np.int64(6), gamma=np.float32(0.5), random_state=np.int64(1))
    rf.save(features.fit(rows(False)), tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert (loaded.n_components, loaded.gamma, loaded.random_state) == (6, 0.5, 1)


def test_the_record_says_what_wrote_it(saved: Path) -> None:
    record = json.loads((saved / "model.json").read_text())
    assert record["format"] == 1  # older versions read it too
    assert record["version"] == rf.__version__
    assert record["class"] == "CompressedFeatures"
    assert record["seed"] == 2


@pytest.mark.parametrize("name", MAPS)
def test_nothing_is_pickled(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("pickle was used")

    features = fitted(name)
    for function in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, function, refuse)
    rf.save(features, tmp_path / "model")
    rf.load(tmp_path / "model")
    monkeypatch.undo()
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert len(files) > 1
    for path in files:
        content = path.read_bytes()
        assert content[:1] != b"\x80"
        assert b"sklearn" not in content
        assert b"pickle" not in content


def test_others_may_read_a_saved_model(saved: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o777 & ~umask


# --- what is refused --------------------------------------------------------------------------


def test_a_newer_format_is_refused_with_the_remedy(saved: Path) -> None:
    edit(saved, lambda record: record.update(format=persist.FORMAT + 1, version="99.0"))
    with pytest.raises(ValueError, match=r"model format 3, written by rfcdask 99.0.*upgrade"):
        rf.load(saved)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", '{"format": "one"}', '{"format": 1}', "\x00\x01", '{"format": true}'],
)
def test_a_damaged_record_is_named(saved: Path, content: str) -> None:
    (saved / "model.json").write_text(content)
    with pytest.raises(ValueError, match=r"model\.json is damaged"):
        rf.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(state=[1]),
        lambda r: r.update(parameters=None),
        lambda r: r["state"].update(weights_={}),
        lambda r: r["state"].update(weights_=None),
        lambda r: r["state"].update(weights_={"array": 5, "shape": [8], "dtype": "<f8"}),
        lambda r: r["state"].update(weights_={"array": "weights_"}),
        lambda r: r["state"].update(error_path_={"tuple": "Nothing", "fields": {}}),
        lambda r: r["state"].update(error_path_={"tuple": "ErrorPath", "fields": {"a": {}}}),
        lambda r: r["state"].update({"__class__": {"value": 1}}),
        lambda r: r["state"].update({"transform": {"value": 1}}),
        lambda r: r["parameters"].update(unheard_of=1),
        lambda r: r.pop("class"),
        lambda r: r.pop("state"),
    ],
)
def test_a_changed_record_is_named(saved: Path, change: Any) -> None:
    edit(saved, change)
    with pytest.raises(ValueError, match=r"is damaged"):
        rf.load(saved)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_record_is_detected(saved: Path, place: float, bit: int) -> None:
    path = saved / "model.json"
    good = path.read_bytes()
    bad = bytearray(good)
    bad[int(place * len(bad))] ^= 1 << bit
    path.write_bytes(bytes(bad))
    try:
        with contextlib.suppress(ValueError):
            rf.load(saved)
            # Only a blank that became another blank says the same.
            assert json.loads(path.read_text()) == json.loads(good)
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize("name", ["Ghost", "os.system", "ErrorPath", ""])
def test_unknown_classes_are_not_made(saved: Path, name: str) -> None:
    edit(saved, lambda record: record.update({"class": name}))
    with pytest.raises(ValueError, match=r"damaged|not know"):
        rf.load(saved)


@pytest.mark.parametrize("name", MAPS)
def test_a_flipped_bit_in_any_chunk_is_detected(name: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    rf.save(fitted(name), model)
    files = chunk_files(model)
    assert files or name == "jl"
    for path in files:
        good = path.read_bytes()
        for place in {0, len(good) // 2, len(good) - 1}:
            bad = bytearray(good)
            bad[place] ^= 4
            path.write_bytes(bytes(bad))
            with pytest.raises(ValueError, match=r"Array '.*' in .* is damaged"):
                rf.load(model)
        path.write_bytes(good)
    rf.load(model)


@pytest.mark.parametrize("what", ["empty", "short", "gone"])
def test_a_chunk_cut_short_or_lost_is_detected(what: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    rf.save(fitted("paired"), model)  # its phases are all zero
    files = chunk_files(model)
    assert any("phases_" in str(path) for path in files)
    for path in files:
        good = path.read_bytes()
        if what == "gone":
            path.unlink()
        else:
            path.write_bytes(good[: len(good) // 2 if what == "short" else 0])
        with pytest.raises(ValueError, match=r"Array '.*' in .* is damaged"):
            rf.load(model)
        path.write_bytes(good)
    rf.load(model)


def test_a_missing_array_is_named(saved: Path) -> None:
    import shutil

    shutil.rmtree(saved / "arrays.zarr" / "frequencies_")
    with pytest.raises(ValueError, match=r"Array 'frequencies_' in .* is damaged"):
        rf.load(saved)


def test_arrays_of_another_shape_are_detected(saved: Path) -> None:
    group = zarr.open_group(saved / "arrays.zarr")
    group.create_array("weights_", data=np.ones(3), overwrite=True)
    with pytest.raises(ValueError, match=r"Array 'weights_' in .* is damaged"):
        rf.load(saved)


@pytest.mark.parametrize("what", ["nothing", "file", "folder"])
def test_a_path_without_a_model_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "thing"
    if what == "file":
        path.write_text("text")
    if what == "folder":
        path.mkdir()
    with pytest.raises(FileNotFoundError, match=r"thing is not a saved rfcdask model"):
        rf.load(path)


@pytest.mark.parametrize("obj", [object(), {"a": 1}, np.ones(3), None])
def test_other_objects_are_refused(obj: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Cannot save a .*; save one of RandomFeatures"):
        rf.save(obj, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_of_ones_own_is_refused(tmp_path: Path) -> None:
    own = Kernel("own", radius=lambda u, gamma: gamma * np.sqrt(u))
    features = rf.RandomFeatures(6, kernel=own, gamma=1.0, random_state=0).fit(rows(False))
    with pytest.raises(ValueError, match=r"kernel='own' is a kernel of your own"):
        rf.save(features, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_map_that_is_not_fitted_comes_back_so(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    rf.save(rf.RandomFeatures(6), tmp_path / "model")
    with pytest.raises(NotFittedError):
        rf.load(tmp_path / "model").transform(rows(False))


# --- overwriting and interruption -------------------------------------------------------------


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


@pytest.mark.parametrize("when", ["_write_array", "put_in_place"])
def test_an_interrupted_replacement_keeps_the_old_model(
    when: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rf.load(saved).transform(rows(False))

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(persist, when, interrupted)
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
        from rfcdask import persist

        def die(*args):
            os.kill(os.getpid(), signal.SIGKILL)

        features = rf.RandomFeatures(6, random_state=0).fit(np.eye(4))
        persist.put_in_place = die
        rf.save(features, sys.argv[1])
        """
    )
    target = tmp_path / "model"
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    with pytest.raises(FileNotFoundError):
        rf.load(target)
    rf.save(fitted("random"), target)
    assert rf.load(target).n_components == 20
