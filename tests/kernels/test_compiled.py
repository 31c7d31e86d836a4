"""Machine code on disk: damage, classes that are gone, changes in other files, full disks."""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher

import rfcdask
from rfcdask.kernels.runtime import CompiledCache

FACTOR = """
from typing import NamedTuple
from rfcdask.kernels.runtime import compiled

class Pair(NamedTuple):
    a: float
    b: float

@compiled()
def factor(x):
    return 2.0 * x
"""
USER = """
from shop.factor import Pair, factor
from rfcdask.kernels.runtime import compiled

@compiled()
def price(pair, x):
    return factor(x) + pair.a
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Return a function that imports, as a new process would, a package of two files."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "factor.py").write_text(FACTOR)
    (tmp_path / "shop" / "user.py").write_text(USER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]

    def load() -> Any:
        forget()
        importlib.invalidate_caches()
        return importlib.import_module("shop.user")

    yield load
    forget()


def price(user: Any) -> float:
    return float(user.price(user.Pair(1.0, 100.0), 10.0))


def hits(user: Any) -> int:
    return sum(user.price.stats.cache_hits.values())


def files(folder: Path, kind: str) -> list[Path]:
    found = sorted(folder.rglob(f"user.price*.{kind}"))
    assert found
    return found


def test_code_is_found_again(shop: Callable[[], Any]) -> None:
    assert price(shop()) == 21
    again = shop()
    assert price(again) == 21
    assert hits(again) == 1


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "garbled"])
def test_damaged_code_is_compiled_anew(
    shop: Callable[[], Any], tmp_path: Path, kind: str, damage: str
) -> None:
    price(shop())
    for file in files(tmp_path, kind):
        good = file.read_bytes()
        bad = {"empty": b"", "cut": good[: len(good) // 2], "zeros": bytes(len(good))}
        file.write_bytes(bad.get(damage, os.urandom(64) + good[64:]))
    assert price(shop()) == 21
    again = shop()
    assert (price(again), hits(again)) == (21, 1)  # what is damaged was replaced


def test_classes_that_are_gone(shop: Callable[[], Any], tmp_path: Path) -> None:
    price(shop())
    for name in ("factor.py", "user.py"):
        file = tmp_path / "shop" / name
        file.write_text(file.read_text().replace("Pair", "Twin").replace("Twin, factor", "factor"))
    user = shop()
    twin = importlib.import_module("shop.factor").Twin
    assert user.price(twin(1.0, 100.0), 10.0) == 21


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("2.0 * x", "3.0 * x", 31), ("    a: float\n    b: float", "    b: float\n    a: float", 120)],
    ids=["function", "order of fields"],
)
def test_changes_of_another_file_count(
    shop: Callable[[], Any], tmp_path: Path, old: str, new: str, expected: float
) -> None:
    price(shop())
    file = tmp_path / "shop" / "factor.py"
    file.write_text(file.read_text().replace(old, new))
    assert price(shop()) == expected


def test_one_file_taken_by_two_processes(shop: Callable[[], Any], tmp_path: Path) -> None:
    user = shop()
    price(user)
    assert float(user.price(user.Pair(1, 100), 10)) == 21
    one, two = files(tmp_path, "nbc")
    one.write_bytes(two.read_bytes())
    assert price(shop()) == 21


@pytest.mark.parametrize("step", ["_save_index", "_save_data", "_open_for_write"])
def test_a_full_disk_costs_time_only(
    shop: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, step, full)
    assert price(shop()) == 21


def test_without_a_place_each_process_compiles(
    shop: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert price(shop()) == 21


def test_all_cached_functions_are_cached_so() -> None:
    """Nothing of the package is left to the cache of numba itself."""
    for info in pkgutil.walk_packages(rfcdask.__path__, "rfcdask."):
        if info.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, Dispatcher) and value.stats.cache_path is not None:
                assert isinstance(value._cache, CompiledCache), f"{info.name}.{name}"


def test_index_is_what_numba_writes(shop: Callable[[], Any], tmp_path: Path) -> None:
    """Guard the private name of numba that this rests on."""
    user = shop()
    price(user)
    with files(tmp_path, "nbi")[0].open("rb") as file:
        pickle.load(file)
        stamp, overloads = pickle.load(file)
    assert stamp == user.price._cache.stamp
    assert len(overloads) == 1
    assert np.isfinite(price(user))
