"""Fixtures of the fault matrix, and the table of its outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.faults import FAULTS, ON_DISK, Bench
from tests.faults.phases import PHASES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- fault table -->", "<!-- end of fault table -->"
OUTCOMES = pytest.StashKey[dict[tuple[str, str], str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-table", action="store_true", help="put the fault table into docs/reliability.md"
    )


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Data, clusters and undisturbed results for all cells."""
    made = Bench(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    report = yield
    name = getattr(item, "originalname", "")
    if name == "test_cell" and (report.when == "call" or report.skipped):
        noted = dict(item.user_properties).get("outcome")
        outcomes = item.config.stash.setdefault(OUTCOMES, {})
        failed = "**hung**" if "Timeout" in str(report.longrepr) else "**failed**"
        said = noted if report.passed else "not run" if report.skipped else failed
        outcomes[item.callspec.params["phase"].name, item.callspec.params["fault"]] = said
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    outcomes = config.stash.get(OUTCOMES, {})
    if not outcomes:
        return
    terminalreporter.section("fault matrix")
    terminalreporter.write_line(table(outcomes))
    if config.getoption("--write-table", False):
        put_table(PAGE, table(outcomes))


def table(outcomes: dict[tuple[str, str], str]) -> str:
    """Return the outcomes as a Markdown table, a row a fault."""
    names = [phase.name for phase in PHASES]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for fault in FAULTS:
        absent = {p.name: "not run" if p.writes or fault not in ON_DISK else "-" for p in PHASES}
        cells = [outcomes.get((name, fault), absent[name]) for name in names]
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put_table(page: Path, text: str) -> None:
    """Replace what lies between the two marks of a page."""
    before = page.read_text()
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    after, found = re.subn(pattern, lambda _: f"{BEGIN}\n{text}\n{END}", before, flags=re.DOTALL)
    assert found == 1, f"{page} has no marks for the table"
    page.write_text(after)
