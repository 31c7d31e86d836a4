"""A saved model that is damaged, changed or not there is refused with the reason."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.persist import models as persist
from tests.persist.models import MAPS, chunk_files, edit, fitted


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
            with pytest.raises(
                ValueError, match=r"Array '.*' in .* is damaged: [^;]*[^;.]; save the model again"
            ):
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
