"""The top of the report: the recommendation, what was run, and the data."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from rfcdask.report.measured import Results, section
from rfcdask.report.parts import cards, facts, figure, note, part
from rfcdask.report.recommendation import recommend
from rfcdask.svg.dots import Dot, bar_chart
from rfcdask.svg.markup import Markup, el, join
from rfcdask.svg.numbers import count, finite, number, seconds, share, size
from rfcdask.svg.styles import Style, title_of

MOST_CLASSES = 12
RULES = {
    "scale": "from the variance of the columns",
    "median": "from the median distance of rows",
    "given": "as given",
    "tuned": "tuned by cross-validation",
}
LEARNERS = {
    "svm": "linear support vector machine",
    "logistic": "logistic regression",
    "ridge": "ridge classifier",
}


def head(results: Results) -> Markup:
    """Return title, recommendation and the figures one asks for first."""
    data = section(results, "data")
    said = section(results, "recommendation")
    if not said.get("text"):
        said = dict(recommend(results))
    return el(
        "header",
        el("p", _when(results), class_="note"),
        el("h1", "Kernel features for ", el("span", data.get("name") or "your data")),
        el(
            "div",
            el("p", said.get("text"), class_="say"),
            el("p", said["reason"]) if said.get("reason") else None,
            class_="hero",
        ),
        _tiles(results),
    )


def _when(results: Results) -> str:
    created = str(results.get("created") or "")
    with suppress(ValueError):
        created = datetime.fromisoformat(created).strftime("%d %B %Y, %H:%M").lstrip("0")
    version = results.get("rfcdask")
    return " · ".join(filter(None, [f"rfcdask {version}" if version else "rfcdask", created]))


def _tiles(results: Results) -> Markup | None:
    model, linear = section(results, "model"), section(results, "linear")
    accuracy, flat = finite(model.get("accuracy")), finite(linear.get("accuracy"))
    total = total_seconds(results)
    selection = section(results, "selection")
    error = finite(selection.get("refined_heldout"))
    shown = [
        (share(accuracy), "of held-out rows are classified right")
        if accuracy is not None
        else None,
        (share(flat), "with a linear model on the raw columns") if flat is not None else None,
        (number(error), "relative kernel error on held-out pairs") if error is not None else None,
        (seconds(total), "for the whole run") if total else None,
    ]
    tiles = [el("div", el("b", big), el("span", small)) for big, small in filter(None, shown)]
    return el("div", *tiles, class_="tiles") if tiles else None


def total_seconds(results: Results) -> float:
    """Return how long all phases took together."""
    return sum(finite(phase.get("seconds")) or 0.0 for phase in results.get("phases") or ())


def what_was_run(results: Results) -> Markup | None:
    """Return which kernel, map, model and machine."""
    kernel, model = section(results, "kernel"), section(results, "model")
    chosen, machine = section(results, "selection"), section(results, "machine")
    pairs = [
        ("kernel", _kernel(kernel)),
        ("feature map", _map(model, chosen)),
        ("model", _model(model)),
        ("machine", _machine(machine)),
        ("computed on", _scheduler(machine)),
        ("command", el("code", results["command"]) if results.get("command") else None),
    ]
    if all(value is None for _, value in pairs):
        return None
    return part("What was run", "run", facts(pairs))


def _kernel(kernel: dict[str, Any]) -> str | None:
    if not kernel:
        return None
    rule = RULES.get(str(kernel.get("rule")), kernel.get("rule"))
    gamma = finite(kernel.get("gamma"))
    width = f", gamma {number(gamma)}" if gamma is not None else ""
    return f"{kernel.get('name', 'kernel')}{width}{f' ({rule})' if rule else ''}"


def _map(model: dict[str, Any], chosen: dict[str, Any]) -> str | None:
    kept = finite(model.get("n_components")) or finite(chosen.get("chosen_size"))
    method = model.get("method") or chosen.get("method")
    if not method:
        return None
    said = title_of(str(method)) + (f", {count(kept)} features" if kept else "")
    if chosen.get("n_candidates"):
        said += f", of {count(chosen['n_candidates'])} candidates"
    if chosen.get("n_rows"):
        said += f", chosen on {count(chosen['n_rows'])} rows"
    return said


def _model(model: dict[str, Any]) -> str | None:
    if not model.get("learner"):
        return None
    said = LEARNERS.get(str(model["learner"]), str(model["learner"]))
    if model.get("epochs"):
        said += f", {count(model['epochs'])} epochs"
    if finite(model.get("train_seconds")) is not None:
        said += f", trained in {seconds(model['train_seconds'])}"
    if finite(model.get("rows_per_second")) is not None:
        said += f" ({count(model['rows_per_second'])} rows a second)"
    return said


def _machine(machine: dict[str, Any]) -> str | None:
    said = []
    if machine.get("cores"):
        said.append(f"{count(machine['cores'])} cores")
    if finite(machine.get("memory_bytes")) is not None:
        said.append(size(machine["memory_bytes"]) + " memory")
    if machine.get("platform"):
        said.append(str(machine["platform"]))
    return ", ".join(said) or None


def _scheduler(machine: dict[str, Any]) -> str | None:
    if not machine.get("scheduler"):
        return None
    said = str(machine["scheduler"])
    for key in ("workers", "threads"):
        if finite(machine.get(key)) is not None:
            said += f", {count(machine[key])} {key}"
    return said


def the_data(results: Results) -> Markup:
    """Return the shape of the data and how often each class occurs."""
    data = section(results, "data")
    pairs = [
        ("rows", count(data.get("rows")) if data.get("rows") is not None else None),
        ("to learn from", count(data["train_rows"]) if data.get("train_rows") else None),
        ("held out", count(data["test_rows"]) if data.get("test_rows") else None),
        ("columns", count(data["columns"]) if data.get("columns") else None),
        ("classes", count(len(data["classes"])) if data.get("classes") else None),
        ("numbers", data.get("dtype")),
        ("size", size(data["bytes"]) if data.get("bytes") else None),
        ("blocks", _blocks(data)),
        ("order", _order(data.get("shuffled"))),
        ("source", data.get("source")),
        ("store", data.get("path")),
    ]
    counts = _class_counts(data)
    return part("The data", "data", facts(pairs, "facts brief"), counts)


def _order(shuffled: Any) -> str | None:
    return None if shuffled is None else ("shuffled" if shuffled else "as given")


def _blocks(data: dict[str, Any]) -> str | None:
    if not data.get("blocks"):
        return None
    each = f" of {size(data['block_bytes'])}" if data.get("block_bytes") else ""
    return count(data["blocks"]) + each


def _class_counts(data: dict[str, Any]) -> Markup | None:
    names, counts = data.get("classes") or [], data.get("class_counts") or []
    known = [(str(n), finite(c) or 0.0) for n, c in zip(names, counts, strict=False)]
    total = sum(c for _, c in known)
    if len(known) < 2 or not total:
        return None
    known.sort(key=lambda pair: -pair[1])
    dots = [
        Dot(name, c, Style(5), f"{count(c)} ({share(c / total)})", f"{name}: {count(c)} rows")
        for name, c in known[:MOST_CLASSES]
    ]
    left = len(known) - MOST_CLASSES
    rest = (
        note(
            f"The {MOST_CLASSES} commonest of {count(len(known))} classes; the rarest has "
            f"{count(known[-1][1])} rows."
        )
        if left > 0
        else None
    )
    return cards(figure("Rows of each class", bar_chart("Rows of each class", dots), rest))


def contents(ids: list[tuple[str, str]]) -> Markup:
    """Return links to the sections."""
    links = [el("a", title, href=f"#{name}") for name, title in ids]
    return el("nav", join(*(part for link in links for part in (link, " "))), aria_label="Sections")
