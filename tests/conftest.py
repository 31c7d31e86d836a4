"""Fixtures that every test file may use."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets and an independent solver's answers, where they lie beside the checkout."""
    if not (SHARED / "datasets").is_dir():
        pytest.skip("no shared data beside the checkout")
    return SHARED
