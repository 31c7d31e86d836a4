"""What the README prints is executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {"__name__": "readme"})


def test_the_commands_and_scripts_named_exist() -> None:
    text = README.read_text(encoding="utf-8")
    root = README.parent
    for script in set(re.findall(r"workflows/[\w/]+\.py", text)):
        assert (root / script).is_file(), script
    assert len(re.findall(r"<!-- test-command -->\n```bash\n.*pytest\n```", text)) == 1
    assert BLOCKS
