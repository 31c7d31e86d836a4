"""Reading the pages for people: their code blocks, links and anchors; and loading scripts."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
_PYTHON = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\n)?^```python\n(?P<code>.*?)^```$", re.M | re.S
)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.M)


@dataclass(frozen=True)
class Block:
    """A block of Python on a page; `reason` says why it cannot be run here."""

    page: Path
    line: int
    code: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start("code")), m["code"], m["reason"])
        for m in _PYTHON.finditer(text)
    ]


def links(page: Path) -> list[str]:
    """Return the targets of all links outside of code blocks."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [first or second for first, second in _LINK.findall(text)]


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives the headings of a page."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number, name = 0, plain
        while name in found:
            number += 1
            name = f"{plain}-{number}"
        found.add(name)
    return found


def load_script(name: str) -> ModuleType:
    """Return a script under workflows/ as a module, with the scripts beside it importable."""
    path = ROOT / "workflows" / name
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.parent))
    return sys.modules[path.stem]
