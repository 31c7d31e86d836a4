"""What the README and the pages under docs/ print is executed, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from rfcdask.cli import main
from tests.customers import customers
from tests.pages import PAGES, ROOT, anchors, blocks, links

README = ROOT / "README.md"
WITH_CODE = [page for page in PAGES if any(block.reason is None for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page, in order, in one namespace and an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    module = ModuleType("page")  # a place that classes defined on a page can name
    monkeypatch.setitem(sys.modules, "page", module)
    namespace: dict[str, Any] = vars(module)
    for block in blocks(page):
        if block.reason is None:
            where = "\n" * block.line + block.code  # so that errors name the line of the page
            exec(compile(where, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_all_python_blocks_are_python(page: Path) -> None:
    for block in blocks(page):
        ast.parse(block.code, f"{page.name} line {block.line}")
    text = page.read_text(encoding="utf-8")
    assert text.count("```python\n") == len(blocks(page))  # none escapes by its indentation


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert target.is_relative_to(ROOT), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_is_in_the_index() -> None:
    listed = set(links(ROOT / "docs" / "index.md"))
    pages = {page.name for page in PAGES if page != README} - {"index.md"}
    assert pages <= listed
    assert len(pages) > 3


def test_the_picture_is_small_has_text_and_knows_both_themes() -> None:
    picture = ROOT / "docs" / "how-it-works.svg"
    text = picture.read_text(encoding="utf-8")
    assert len(text.encode()) < 20_000
    name = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(text)
    assert root.find(f"{name}title") is not None
    words = " ".join(element.text or "" for element in root.iter(f"{name}text"))
    assert all(step in words for step in ("Sample", "Draw", "Select", "Refine", "Linear model"))
    assert "prefers-color-scheme: dark" in text
    assert "href=" not in text  # nothing is fetched from elsewhere


def test_the_commands_and_scripts_named_exist() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for script in set(re.findall(r"workflows/[\w/]+\.(?:py|ipynb)", text)):
            assert (ROOT / script).is_file(), f"{page.name}: {script}"
    text = README.read_text(encoding="utf-8")
    assert len(re.findall(r"<!-- test-command -->\n```bash\n.*pytest\n```", text)) == 1
    assert any(block.reason is None for block in blocks(README))


def test_the_commands_go_from_a_table_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they stand there; what takes long is told to look at less."""
    monkeypatch.chdir(tmp_path)
    customers(0, 400).to_csv("customers.csv", index=False)
    customers(1, 50).to_csv("new.csv", index=False)
    found = re.search(r"<!-- commands -->\n```bash\n(.*?)```", README.read_text("utf-8"), re.S)
    assert found is not None
    lines = [shlex.split(line, comments=True)[1:] for line in found[1].splitlines() if line]
    few = ["--scheduler", "threads", "--epochs", "1", "--methods", "random", "--sizes", "20"]
    less = {"run": few, "fit": ["--n-components", "20", "--epochs", "1"]}
    for words in lines:
        done = CliRunner().invoke(main, [*words, *less.get(words[0], ()), "-q"])
        assert done.exit_code == 0, (words, done.stderr)
    assert len(lines) == 5
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 51
    assert (tmp_path / "rfcdask-run" / "report.html").is_file()


def test_the_architecture_page_names_what_there_is() -> None:
    """Files, and the functions and classes in parentheses after them, exist."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = text[text.index("## The walk") : text.index("## Where work runs")]
    named = re.findall(r"`((?:[\w]+/)+[\w]+\.py)`(?:\s+\(((?:`[\w.]+`(?:, )?)+)\))?", text)
    assert len(named) > 30
    for file, names in named:
        path = ROOT / "rfcdask" / file
        assert path.is_file(), file
        for name in re.findall(r"[\w.]+", names):
            assert re.search(rf"(def|class) {name.split('.')[-1]}\b", path.read_text()), name
    files = set(re.findall(r"`((?:[\w]+/)+[\w]+\.py)`", walk[: walk.index("5. ")]))
    assert len(files) <= 15, sorted(files)  # a newcomer opens no more
