"""Examples in docstrings are executed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import rfcdask

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(rfcdask.__path__, "rfcdask.")
    if "__main__" not in module.name
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples() -> None:
    found = doctest.DocTestFinder().find(rfcdask.CompressedFeatures)
    assert any(test.examples for test in found)
