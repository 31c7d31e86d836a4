"""Fixtures of the tests of saving."""

from __future__ import annotations

from pathlib import Path

import pytest

import rfcdask as rf
from tests.persist.models import fitted


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rf.save(fitted(), tmp_path / "model")
    return tmp_path / "model"
