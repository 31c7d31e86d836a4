"""One run that nobody disturbs, for all tests of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rfcdask.pipeline import run_job
from tests.pipeline.helpers import SMALL


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run on threads, from its beginning to its end."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    lines: list[str] = []
    run_job(None, folder, settings=SMALL, scheduler="threads", say=lines.append)
    assert lines[0] == "[1/9] bringing the data to disk ..."
    assert len(lines) == 9
    return folder
