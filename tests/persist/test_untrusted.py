"""A model from a stranger runs no code, reads no other file and takes bounded memory and time."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import google_crc32c
import numpy as np
import pytest
import zarr
from sklearn.pipeline import Pipeline, make_pipeline

import rfcdask as rf
from rfcdask.persist import models as persist
from rfcdask.persist.files import save_arrays
from rfcdask.persist.untrusted import open_npz, read_toml
from tests.persist.models import edit, rows

HUGE = 10**8


def array_metadata(model: Path, name: str, **changes: Any) -> None:
    path = model / "arrays.zarr" / name / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_no_pickle_in_a_model_is_decoded(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True)
    array = saved / "arrays.zarr" / "weights_"
    shutil.rmtree(array)
    array.mkdir()
    codecs = {"filters": [{"id": "vlen-utf8"}], "compressor": {"id": "pickle", "protocol": 4}}
    about = {"zarr_format": 2, "shape": [8], "chunks": [8], "dtype": "|O", "fill_value": ""}
    (array / ".zarray").write_text(json.dumps(about | {"order": "C"} | codecs))
    (array / "0").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    edit(saved, lambda r: r["state"]["weights_"].update(dtype="|O", shape=[8]))
    with pytest.raises(ValueError, match=r"Array 'weights_' in .* is damaged"):
        rf.load(saved)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", "a/b", "/etc", "a\\b", "x\x00y", 5])
def test_names_that_lead_elsewhere_are_refused(saved: Path, name: Any) -> None:
    outside = saved.parent / "x"
    shutil.copytree(saved / "arrays.zarr" / "weights_", outside)
    if name == "/etc":
        name = str(outside)
    edit(saved, lambda r: r["state"]["weights_"].update(array=name))
    with pytest.raises(ValueError, match="that is no name of an array"):
        rf.load(saved)


def test_many_declared_chunks_are_refused_at_once(saved: Path) -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1]}}
    array_metadata(saved, "weights_", shape=[HUGE], chunk_grid=grid)
    edit(saved, lambda r: r["state"]["weights_"].update(shape=[HUGE]))
    with pytest.raises(ValueError, match="there are 1 files for 100,000,000"):
        rf.load(saved)


def test_a_huge_chunk_is_refused(saved: Path) -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [HUGE]}}
    array_metadata(saved, "weights_", shape=[HUGE], chunk_grid=grid)
    edit(saved, lambda r: r["state"]["weights_"].update(shape=[HUGE]))
    with pytest.raises(ValueError, match="chunks have 800,000,000 bytes, the most that is read"):
        rf.load(saved)


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "bytes"}, {"name": "blosc"}],
        [{"name": "bytes", "configuration": {"endian": "little"}}],
        [{"name": "numcodecs.zlib", "configuration": {}}],
    ],
)
def test_arrays_packed_in_another_way_are_refused(saved: Path, codecs: Any) -> None:
    array_metadata(saved, "weights_", codecs=codecs)
    with pytest.raises(ValueError, match=r"Array 'weights_' in .* is damaged"):
        rf.load(saved)


@pytest.mark.parametrize("number", [-5, 0, True, 1.0, None, "1"])
def test_formats_never_written_are_refused(saved: Path, number: Any) -> None:
    edit(saved, lambda record: record.update(format=number))
    with pytest.raises(ValueError, match=r"model\.json is damaged: format .* none that was ever"):
        rf.load(saved)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, '{"format": 1, "x": "%s"}'])
def test_deep_or_large_records_are_refused(
    saved: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rfcdask.persist.untrusted.JSON_BYTES", 2**22)
    (saved / "model.json").write_text(text % ("x" * 65 * 2**20) if "%s" in text else text)
    words = r"model\.json is damaged: (it is nested too deeply|it is larger than 67,108,864 bytes)"
    for read in (rf.load, persist.describe):
        with pytest.raises(ValueError, match=words):
            read(saved)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    X = rows(sparse=False)
    steps = (rf.RandomFeatures(6, random_state=0), rf.RidgeClassifier())
    rf.save(make_pipeline(*steps).fit(X, np.arange(len(X)) % 3), tmp_path / "pipeline")
    return tmp_path / "pipeline"


@pytest.mark.parametrize("place", [".", "..", "step-0/..", "step-1", "/", 7, None])
def test_a_step_lies_in_its_own_folder(pipeline: Path, place: Any) -> None:
    edit(pipeline, lambda record: record["steps"][0].update(folder=place))
    for read in (rf.load, persist.describe):
        with pytest.raises(ValueError, match="is no folder of a step"):
            read(pipeline)


@pytest.mark.parametrize("itself", [True, False])
def test_a_step_that_is_a_link_is_refused(pipeline: Path, tmp_path: Path, itself: bool) -> None:
    """Two links to one folder, with two to the next in it, and so on, would be read for hours."""
    (pipeline / "step-0").rename(tmp_path / "moved")
    os.symlink(pipeline if itself else tmp_path / "moved", pipeline / "step-0")
    for read in (rf.load, persist.describe):
        with pytest.raises(ValueError, match="step-0 is missing, a link or a step of another"):
            read(pipeline)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_text_that_nobody_can_write_is_refused(tmp_path: Path, text: str) -> None:
    X = rows(sparse=False)
    rf.save(rf.RidgeClassifier().fit(X, np.where(X[:, 0] > 0, "a", "\U0001f600")), tmp_path / "m")
    assert rf.load(tmp_path / "m").classes_.tolist() == ["a", "\U0001f600"]
    edit(tmp_path / "m", lambda record: record["state"]["classes_"].update(strings=["a", text]))
    with pytest.raises(ValueError, match=r"model\.json is damaged: .*surrogates not allowed"):
        rf.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["deviation_", "weights_"])
def test_numbers_that_make_others_infinite_are_refused(tmp_path: Path, name: str) -> None:
    X, place = rows(sparse=False, dtype="float64"), tmp_path / "model"
    model = rf.Standardizer() if name == "deviation_" else rf.RandomFeatures(6, random_state=0)
    rf.save(model.fit(X), place)
    zarr.open_array(place / "arrays.zarr" / name, mode="r+")[0] = -(name == "weights_")
    edit(place, lambda record: record["state"][name].pop("sha256"))
    with pytest.raises(ValueError, match=rf"model\.json is damaged: {name} holds (0|-1)\.0"):
        rf.load(place)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    X = rows(sparse=False, dtype="float64")
    model = rf.Ridge().fit(X, X[:, 0])
    rf.save(model, tmp_path / "model")
    array = zarr.open_array(tmp_path / "model" / "arrays.zarr" / "coef_", mode="r+")
    array[:] = value
    edit(tmp_path / "model", lambda record: record["state"]["coef_"].pop("sha256"))
    with pytest.raises(ValueError, match=r"Array 'coef_' in .* is damaged: .* not finite"):
        rf.load(tmp_path / "model")
    model.coef_ = np.full_like(model.coef_, value)
    with pytest.raises(ValueError, match="coef_ holds values that are not finite; fit the model"):
        rf.save(model, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_chunks_of_another_array_are_detected(tmp_path: Path) -> None:
    X = rows(sparse=False, dtype="float64")
    model = rf.Standardizer().fit(X)
    rf.save(model, tmp_path / "model")
    arrays = tmp_path / "model" / "arrays.zarr"
    shutil.copy(arrays / "mean_/c/0", arrays / "deviation_/c/0")
    with pytest.raises(ValueError, match=r"Array 'deviation_' in .* holds values of another array"):
        rf.load(tmp_path / "model")


def test_models_without_digests_still_open(saved: Path) -> None:
    def forget(record: Any) -> None:
        for value in record["state"].values():
            value.pop("sha256", None)

    edit(saved, forget)
    assert rf.load(saved).weights_.shape == (8,)


@pytest.mark.parametrize("dtype", ["<U100000000", "|O", "|V9", "M8[s]", "nonsense"])
def test_lists_of_absurd_types_are_refused(saved: Path, dtype: str) -> None:
    edit(saved, lambda r: r["parameters"].update(kernel={"list": ["a"], "dtype": dtype}))
    with pytest.raises(ValueError, match=r"model\.json is damaged"):
        rf.load(saved)


def test_sparse_rows_that_point_outside_are_refused(tmp_path: Path) -> None:
    from tests.persist.models import fitted

    rf.save(fitted("nystroem", sparse=True), tmp_path / "model")
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    name = next(k for k, v in record["state"].items() if "csr" in v)
    indices = record["state"][name]["csr"][1]
    array = zarr.open_array(tmp_path / "model" / "arrays.zarr" / indices["array"], mode="r+")
    array[0] = 10**6
    edit(tmp_path / "model", lambda r: r["state"][name]["csr"][1].pop("sha256"))
    with pytest.raises(ValueError, match=r"model\.json is damaged"):
        rf.load(tmp_path / "model")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["zarr.json", "c/0/0"])
def test_a_pipe_in_a_model_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    X, y = rows(sparse=False), np.arange(90) % 2
    rf.save(rf.SGDClassifier(random_state=0).fit(X, y), tmp_path / "m")
    place = tmp_path / "m" / "arrays.zarr" / "coef_" / name
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(ValueError, match=r"no plain file|a chunk is missing"):
        rf.load(tmp_path / "m")


def test_a_chunk_of_a_model_that_claims_more_than_it_has_room_for(tmp_path: Path) -> None:
    X, y = rows(sparse=False), np.arange(90) % 2
    rf.save(rf.SGDClassifier(random_state=0).fit(X, y), tmp_path / "m")
    huge = b"\x28\xb5\x2f\xfd\xe0" + (2**50).to_bytes(8, "little") + b"\x01\0\0"
    data = huge + google_crc32c.value(huge).to_bytes(4, "little")
    (tmp_path / "m" / "arrays.zarr" / "coef_" / "c" / "0" / "0").write_bytes(data)
    with pytest.raises(
        ValueError, match=r"'coef_' in .* is damaged: .* says that it has 1,125,899"
    ):
        rf.load(tmp_path / "m")


def test_a_model_names_no_file_to_be_written(tmp_path: Path) -> None:
    """Neither the path of the machine that trained, nor one that a stranger chose."""
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = rf.SGDClassifier(epochs=1, random_state=0, checkpoint=tmp_path / "mine.npz")
    rf.save(model.fit(X, X[:, 0] > 0), tmp_path / "model")
    assert "mine.npz" not in (tmp_path / "model/model.json").read_text()
    record = json.loads((tmp_path / "model/model.json").read_text())
    del record["checksum"]
    record["parameters"]["checkpoint"] = str(tmp_path / "theirs.npz")
    record["checksum"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (tmp_path / "model/model.json").write_text(json.dumps(record))
    assert rf.load(tmp_path / "model").checkpoint is None


@pytest.mark.parametrize("text", ["a." * 200_000 + "b = 1", "[" + "'a'. " * 100_000 + "b]"])
def test_keys_of_very_many_parts_are_refused_at_once(tmp_path: Path, text: str) -> None:
    """The parser takes the square of their number: minutes for a file of a few 100 kB."""
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_toml(tmp_path / "deep.toml", 2**20)
    (tmp_path / "fine.toml").write_text("a." * 20 + "b = 1.5\n'x.y' = 'a.b'")
    assert read_toml(tmp_path / "fine.toml", 2**20)["x.y"] == "a.b"


def long_text() -> list[str]:
    return ["x" * 10**6, *map(str, range(100))]


@pytest.mark.parametrize(
    "value", [{"strings": long_text()}, {"value": {"list": long_text(), "dtype": "<U1"}}]
)
def test_one_long_text_does_not_make_all_of_them_long(saved: Path, value: Any) -> None:
    edit(saved, lambda r: r["state"].update(columns_=value))
    with pytest.raises(ValueError, match="101 texts of up to 1,000,000 characters"):
        rf.load(saved)


@pytest.mark.parametrize("names", ["abcde", [list("abcde")], list("abcd")])
def test_names_of_columns_are_one_for_each(saved: Path, names: Any) -> None:
    edit(saved, lambda r: r["state"].update(feature_names_in_={"strings": names}))
    with pytest.raises(ValueError, match="feature_names_in_ are not the names of all columns"):
        rf.load(saved)


def test_a_pipeline_has_steps(tmp_path: Path) -> None:
    rf.save(make_pipeline(rf.PCA(2)).fit(rows(sparse=False)), tmp_path / "model")
    edit(tmp_path / "model", lambda r: r.update(steps=[]))
    with pytest.raises(ValueError, match="it is a pipeline without steps"):
        rf.load(tmp_path / "model")


def test_steps_of_a_pipeline_hand_rows_on(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    first, last = (rf.SGDClassifier(random_state=0).fit(X, X[:, 0] > 0) for _ in range(2))
    rf.save(Pipeline([("first", first), ("last", last)]), tmp_path / "model")
    with pytest.raises(persist.DamagedModelError, match="its step 'first' has no transform"):
        rf.load(tmp_path / "model")


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("name", ["class", "version", "parameters", "steps"])
@pytest.mark.parametrize("value", [None, 3, "x", [1], {}])
def test_what_every_model_says_of_itself(
    tmp_path: Path, pipeline: bool, name: str, value: Any
) -> None:
    """`rfcdask info` ended in raw exceptions where it was something else."""
    model = rf.PCA(2).fit(rows(sparse=False))
    rf.save(make_pipeline(model) if pipeline else model, tmp_path / "model")
    needed: Any = {"version": str, "parameters": dict, "steps": list}.get(name, ())
    if isinstance(value, needed) or (name == "parameters" and pipeline):
        return
    edit(tmp_path / "model", lambda r: r.update({name: value}))
    if name == "steps" and not pipeline:
        persist.describe(tmp_path / "model")
        return
    with pytest.raises(persist.DamagedModelError, match=rf"damaged: {name} is "):
        persist.describe(tmp_path / "model")


def test_an_archive_whose_array_declares_fewer_rows_is_refused(tmp_path: Path) -> None:
    """A checksum stands at the end of each array, to which nobody reads then."""
    save_arrays(path := tmp_path / "sample.npz", {"X": np.ones((6000, 8))})
    path.write_bytes(path.read_bytes().replace(b"(6000, ", b"(2000, "))
    with pytest.raises(BadZipFile, match=r"CRC-32 .*X\.npy"):
        open_npz(path)
