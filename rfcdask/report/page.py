"""The page itself: sections in order, one style sheet, nothing from anywhere else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rfcdask.replacing import whole_file
from rfcdask.report import comparison, confusion, costs, overview, reproduce, selection
from rfcdask.report.measured import Results, section
from rfcdask.report.style import style_sheet
from rfcdask.svg.markup import Markup, el

SECTIONS: tuple[tuple[str, str, Callable[[Results], Markup | None]], ...] = (
    ("run", "What was run", overview.what_was_run),
    ("data", "Data", overview.the_data),
    ("comparison", "Methods", comparison.comparison),
    ("selection", "Features", selection.selection),
    ("confusion", "Confusions", confusion.confusion),
    ("costs", "Time and memory", costs.phases),
    ("plan", "Plan", costs.plan),
    ("settings", "Settings", reproduce.settings),
    ("reproduce", "Do it again", reproduce.reproduce),
)
# Even a fault in the escaping could then neither run nor fetch anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(results: Results) -> str:
    """Return the report as one HTML page.

    Parameters
    ----------
    results : mapping
        The content of ``results.json``. Sections that are missing or null are left out.
    """
    _check(results)
    made = [(name, title, make(results)) for name, title, make in SECTIONS]
    there = [(name, title) for name, title, body in made if body is not None]
    name = section(results, "data").get("name") or "your data"
    page = el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", f"{name}: rfcdask report"),
            Markup(f"<style>{style_sheet()}</style>"),
        ),
        el(
            "body",
            overview.head(results),
            overview.contents(there),
            el("main", *(body for _, _, body in made)),
            el("footer", "Made by rfcdask; this page needs no network."),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def write_report(results: Results, path: str | os.PathLike[str]) -> Path:
    """Write the report to a file and return its path.

    Parameters
    ----------
    results : mapping
        The content of ``results.json``.
    path : path
        Of the HTML file; an old one is replaced only when the new one is whole.
    """
    target = Path(path)
    page = render(results)
    with whole_file(target, "w") as file:
        file.write(page)
    return target


def _check(results: Results) -> None:
    found = results.get("format")
    if found != 1:
        raise ValueError(
            f"The results have format {found!r}, but this version reads format 1: make the report "
            "with the version of rfcdask that wrote them, or run again."
        )
