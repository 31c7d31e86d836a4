"""The report of a run: one HTML file with a plain recommendation at its top."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from rfcdask.display.html import colour_sheet
from rfcdask.display.html import render as render_template
from rfcdask.display.style import finite, number, seconds
from rfcdask.pipeline.folder import RESULTS_FORMAT
from rfcdask.pipeline.report import figures, scores, sections
from rfcdask.pipeline.report.metric import Metric, Results, section
from rfcdask.pipeline.report.recommendation import recommend

__all__ = ["recommend", "render"]

SECTIONS = (
    sections.what_was_run,
    sections.the_data,
    figures.comparison,
    figures.selection,
    scores.scores,
    figures.confusion,
    scores.importances,
    sections.phases,
    sections.plan,
    sections.settings,
    sections.reproduce,
)


def render(results: Results) -> str:
    """Return the report as one HTML page.

    Parameters
    ----------
    results : mapping
        The content of ``results.json``. Sections that are missing or null are left out.
    """
    found = results.get("format")
    if found != RESULTS_FORMAT:
        raise ValueError(
            f"The results have format {found!r}, but this version reads {RESULTS_FORMAT}: make "
            "the report with the version of rfcdask that wrote them, or run again."
        )
    said = section(results, "recommendation")
    made = [make(results) for make in SECTIONS]
    page = render_template(
        "report",
        name=section(results, "data").get("name") or "your data",
        made=_made(results),
        recommendation=said if said.get("text") else recommend(results),
        warnings=[str(said) for said in results.get("warnings") or ()],
        tiles=_tiles(results),
        sections=[one for one in made if one is not None],
        colours=colour_sheet(),
    )
    return str(page)


def _made(results: Results) -> str:
    created = str(results.get("created") or "")
    with suppress(ValueError):
        created = datetime.fromisoformat(created).strftime("%d %B %Y, %H:%M").lstrip("0")
    version = results.get("rfcdask")
    return " · ".join(filter(None, [f"rfcdask {version}" if version else "rfcdask", created]))


def _tiles(results: Results) -> list[tuple[str, str]]:
    """Return the figures one asks for first, each with its meaning."""
    metric = Metric.of(results)
    shares = metric.words(
        "of held-out rows are classified right", f"{metric.word} on held-out rows"
    )
    model = section(results, "model")
    mine, linear = metric.value(model), metric.value(section(results, "linear"))
    error = section(results, "selection").get("refined_heldout")
    if model.get("method") in ("learned", "none"):  # which approximate no kernel
        error = None
    beside = "with a linear model on the raw columns"
    if aside := section(model, "set_aside"):
        linear, beside = metric.value(aside), f"with {scores.name_of(aside)}, which was set aside"
    shown: list[tuple[Any, Any, str]] = [
        (mine, lambda v: metric.show(v, 1), shares),
        (linear, lambda v: metric.show(v, 1), beside),
        (error, number, "relative kernel error on held-out pairs"),
        (sections.total_seconds(results) or None, seconds, "for the whole run"),
    ]
    return [(show(value), text) for value, show, text in shown if finite(value) is not None]
