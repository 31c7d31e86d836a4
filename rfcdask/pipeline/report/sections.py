"""The sections of the report that tell: what was run, the data, scores, costs, settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rfcdask.display import NONE, charts, count, finite, number, seconds, share, size, title_of
from rfcdask.display.html import Cell
from rfcdask.pipeline.report import (
    SHARES,
    Block,
    Metric,
    ReportTable,
    Results,
    Section,
    Titled,
    name_of,
    section,
)
from rfcdask.pipeline.report.figures import points
from rfcdask.pipeline.settings import renamed, show

MOST_CLASSES = 12
MOST_COLUMNS = 100
MOST_IMPORTANCES = 25
METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy (mean recall of all classes)",
    "f1_macro": "F1, mean of all classes",
    "roc_auc": "area under the ROC curve",
    "average_precision": "average precision",
    "log_loss": "log loss (lower is better)",
    "brier_score": "Brier score (lower is better)",
    "r2": "R2, the share of the variance that is explained",
    "mean_absolute_error": "mean absolute error",
    "root_mean_squared_error": "root mean squared error",
}
GAMMA_RULES = {
    "scale": "from the variance of the columns",
    "median": "from the median distance of rows",
    "given": "as given",
    "tuned": "tuned by cross-validation",
}
LEARNERS = {
    "svm": "linear support vector machine",
    "logistic": "logistic regression",
    "ridge": "ridge classifier",
    "sgd": "linear model by stochastic gradient descent",
}
PHASES = {
    "data": "bring the data to disk",
    "sample": "fetch a sample",
    "linear": "train a linear model",
    "kernel": "settle the kernel",
    "select": "choose features",
    "compare": "compare methods",
    "report": "write the report",
}
"""What a phase does, where its name does not say it."""
PLANNED = {"fit": "select", "transform": "transform", "train": "train"}
"""Which phase a step of a plan is about."""


def total_seconds(results: Results) -> float:
    """Return how long all phases took together."""
    return sum(finite(phase.get("seconds")) or 0.0 for phase in results.get("phases") or ())


def what_was_run(results: Results) -> Section | None:
    """Return which kernel, map, model and machine."""
    model, machine = section(results, "model"), section(results, "machine")
    command = results.get("command")
    cores, memory = machine.get("cores"), finite(machine.get("memory_bytes"))
    hardware = [
        f"{count(cores)} cores" if cores else None,
        f"{size(memory)} memory" if memory is not None else None,
        machine.get("platform"),
    ]
    known = [key for key in ("workers", "threads") if finite(machine.get(key)) is not None]
    workers = [f"{count(machine[key])} {key}" for key in known]
    scheduler = machine.get("scheduler")
    pairs = [
        ("kernel", _kernel(section(results, "kernel"))),
        ("feature map", _feature_map(model, section(results, "selection"))),
        ("model", _model(model)),
        ("machine", _listed(hardware)),
        ("computed on", _listed([scheduler, *workers]) if scheduler else None),
        ("command", Cell(str(command), code=True) if command else None),
    ]
    if all(value is None for _, value in pairs):
        return None
    return Section("run", "What was run", "What was run", [("facts", pairs)])


def _listed(parts: Sequence[Any]) -> str | None:
    return ", ".join(str(part) for part in parts if part) or None


def _kernel(kernel: dict[str, Any]) -> str | None:
    if not kernel:
        return None
    rule = GAMMA_RULES.get(str(kernel.get("rule")), kernel.get("rule"))
    gamma = finite(kernel.get("gamma"))
    width = f", gamma {number(gamma)}" if gamma is not None else ""
    return f"{kernel.get('name', 'kernel')}{width}{f' ({rule})' if rule else ''}"


def _feature_map(model: dict[str, Any], chosen: dict[str, Any]) -> str | None:
    kept = finite(model.get("n_components")) or finite(chosen.get("chosen_size"))
    candidates, rows = chosen.get("n_candidates"), chosen.get("n_rows")
    method = model.get("method") or chosen.get("method")
    if method == "none":
        return "none: the linear model on the columns was better"
    how = [
        f"of {count(candidates)} candidates" if candidates else None,
        f"chosen on {count(rows)} rows" if rows else None,
    ]
    if method == "learned":  # the selection of the report is that of another map
        how = ["trained with the model on all rows to learn from"]
    features = f"{count(kept)} features" if kept else None
    return _listed([title_of(str(method)), features, *how]) if method else None


def _model(model: dict[str, Any]) -> str | None:
    if not model.get("learner"):
        return None
    said = LEARNERS.get(str(model["learner"]), str(model["learner"]))
    if model.get("epochs"):
        said += f", {count(model['epochs'])} epochs"
    if finite(model.get("train_seconds")) is not None:
        said += f", trained in {seconds(model['train_seconds'])}"
    if finite(model.get("rows_per_second")) is not None:
        said += f" ({count(model['rows_per_second'])} rows per second)"
    return said


def the_data(results: Results) -> Section:
    """Return the shape of the data and how often each class occurs."""
    data = section(results, "data")
    shuffled, blocks = data.get("shuffled"), data.get("blocks")
    each = f" of {size(data['block_bytes'])}" if data.get("block_bytes") else ""
    pairs = [
        ("rows", None if data.get("rows") is None else count(data["rows"])),
        ("to learn from", _known(data.get("train_rows"), count)),
        ("held out", _known(data.get("test_rows"), count)),
        ("columns", _known(data.get("columns"), count)),
        (
            "maps see",
            _known(data.get("projected_columns"), lambda n: f"{count(n)} projected columns"),
        ),
        ("classes", _known(len(data.get("classes") or ()), count)),
        ("numbers", data.get("dtype")),
        ("size", _known(data.get("bytes"), size)),
        ("blocks", count(blocks) + each if blocks else None),
        ("order", None if shuffled is None else "shuffled" if shuffled else "as given"),
        ("source", data.get("source")),
        ("store", data.get("path")),
    ]
    table = [(str(name), str(said)) for name, said in data.get("table") or ()]
    columns: list[Block] = [("brief_facts", table[:MOST_COLUMNS])] if table else []
    if len(table) > MOST_COLUMNS:
        columns.append(("note", f"The first {MOST_COLUMNS} of {count(len(table))} columns."))
    shown = [("figures", [Titled("How the columns are encoded", columns)])] if columns else []
    blocks = [("brief_facts", pairs), *shown, *_class_counts(data)]
    return Section("data", "Data", "The data", blocks)


def _known(value: Any, show: Callable[[Any], str]) -> str | None:
    return show(value) if value else None


def _class_counts(data: dict[str, Any]) -> list[Block]:
    names, counts = data.get("classes") or [], data.get("class_counts") or []
    known = [(str(n), finite(c) or 0.0) for n, c in zip(names, counts, strict=False)]
    total = sum(c for _, c in known)
    if len(known) < 2 or not total:
        return []
    known.sort(key=lambda pair: -pair[1])
    shown, values = zip(*known[:MOST_CLASSES], strict=True)
    texts = [f"{count(c)} ({share(c / total)})" for c in values]
    blocks: list[Block] = [("chart", charts.bars(shown, values, "rows", texts))]
    if len(known) > MOST_CLASSES:
        said = f"The {MOST_CLASSES} commonest of {count(len(known))} classes; the rarest has "
        blocks.append(("note", said + f"{count(known[-1][1])} rows."))
    return [("figures", [Titled("Rows of each class", blocks)])]


def phases(results: Results) -> Section | None:
    """Return time and memory of each phase; None when none was recorded."""
    found = [dict(phase) for phase in results.get("phases") or ()]
    if not found:
        return None
    longest, largest = (
        max(finite(phase.get(key)) or 0.0 for phase in found) for key in ("seconds", "peak_bytes")
    )
    head = ("phase", "time", "peak memory", "rows per second")
    rows = [_phase(phase, longest or 1.0, largest or 1.0) for phase in found]
    said = f"Together {seconds(total_seconds(results))}"
    said += f"; the highest peak was {size(largest)}." if largest else "."
    blocks: list[Block] = [("table", ReportTable(head, rows, style="plain bars")), ("note", said)]
    return Section("costs", "Time and memory", "Time and memory", blocks)


def _phase(phase: Mapping[str, Any], longest: float, largest: float) -> tuple[Any, ...]:
    took, peak = finite(phase.get("seconds")), finite(phase.get("peak_bytes"))
    rows = finite(phase.get("rows"))
    return (
        PHASES.get(str(phase.get("name")), phase.get("name", "?")),
        _bar(seconds(took), (took or 0.0) / longest),
        _bar(size(peak), (peak or 0.0) / largest),
        count(rows / took) if rows and took else NONE,
    )


def _bar(text: str, part: float) -> Cell:
    return Cell(text, percent=round(100 * min(max(part, 0.0), 1.0), 1))


def plan(results: Results) -> Section | None:
    """Set what was planned against what was measured; None without a plan."""
    planned = section(results, "plan")
    if not planned:
        return None
    blocks = [*_against_measured(results, planned), ("brief_facts", _planned(planned))]
    if planned.get("problems"):
        blocks.append(("bullets", [str(problem) for problem in planned["problems"]]))
    return Section("plan", "Plan", "Plan and measurement", blocks)


def _against_measured(results: Results, planned: dict[str, Any]) -> list[Block]:
    """Compare with the phases that were planned; the others have no part in it."""
    steps = planned.get("steps") or PLANNED
    names = {PLANNED.get(str(step), str(step)) for step in steps}
    if "compare" in names:  # it includes the selection
        names.add("select")
    done = [phase for phase in results.get("phases") or () if phase.get("name") in names]
    took = [value for phase in done if (value := finite(phase.get("seconds"))) is not None]
    peaks = [value for phase in done if (value := finite(phase.get("peak_bytes"))) is not None]
    what = " and ".join(PHASES.get(str(phase["name"]), str(phase["name"])) for phase in done)
    peak = _planned_peak(results, planned)
    rows = [
        _compared(f"time to {what}", total(planned.get("seconds")), sum(took) or None, seconds),
        _compared("peak memory then, all processes", peak, max(peaks, default=None), size),
    ]
    kept = [row for row in rows if row is not None]
    if not kept or not done:
        return []
    head = ("", "planned", "measured", "ratio")
    return [("table", ReportTable(head, kept, "Plan and measurement"))]


def _planned_peak(results: Results, planned: dict[str, Any]) -> float | None:
    worker, driver = (finite(planned.get(f"peak_{who}_bytes")) for who in ("worker", "driver"))
    workers = finite(section(planned, "settings").get("workers"))
    if workers is None:
        workers = finite(section(results, "machine").get("workers"))
    return None if worker is None or workers is None else workers * worker + (driver or 0.0)


def _planned(planned: dict[str, Any]) -> list[tuple[str, str | None]]:
    shown = {
        "blocks": ("blocks", count),
        "tasks": ("tasks", count),
        "to read": ("bytes_read", size),
        "to write": ("bytes_written", size),
        "time": ("seconds", seconds),
        "peak of a worker": ("peak_worker_bytes", size),
        "peak of the driver": ("peak_driver_bytes", size),
    }
    found = [(name, total(planned.get(key)), show) for name, (key, show) in shown.items()]
    return [(name, None if value is None else show(value)) for name, value, show in found]


def total(value: Any) -> float | None:
    """Return a number, or the sum of the numbers of each step."""
    if isinstance(value, Mapping):
        known = [v for v in map(finite, value.values()) if v is not None]
        return sum(known) if known else None
    return finite(value)


def _compared(name: str, planned: Any, measured: Any, show: Any) -> tuple[str, ...] | None:
    if planned is None and measured is None:
        return None
    ratio = number(measured / planned) if planned and measured is not None else NONE
    return name, show(planned), show(measured), ratio


def settings(results: Results) -> Section | None:
    """Return every setting, the seed and the versions; None when none was recorded."""
    used = _used(results)
    built = {"rfcdask": results.get("rfcdask"), **section(results, "versions")}
    known = {key: value for key, value in built.items() if value is not None}
    if not used and known.keys() <= {"rfcdask"}:
        return None
    shown = [_pairs(*pair) for pair in (("Settings", used), ("Versions", known)) if pair[1]]
    return Section("settings", "Settings", "Settings and versions", [("figures", shown)])


def _pairs(title: str, values: Mapping[str, Any]) -> Titled:
    rows = [(str(name), Cell(_text(value), code=True)) for name, value in values.items()]
    table = ReportTable(("name", "value"), rows, style="pairs", wordy=2)
    return Titled(title, [("table", table)])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _used(results: Results) -> dict[str, Any]:
    """Return the settings, with the seed first, which older results have beside them."""
    seed = results.get("seed")
    return renamed(({"seed": seed} if seed is not None else {}) | section(results, "settings"))


def reproduce(results: Results) -> Section | None:
    """Return the command that does it all again; None when nobody said which it was."""
    command = str(results.get("command") or "").strip()
    if not command:
        return None
    asked = results.get("asked")  # others than the settings used: a choice of a run's own is none
    options = _options(_used(results) if asked is None else dict(asked))
    new = [option for option in options if option.split()[0] not in command.split()]
    said = "The same seed and data give the same selection, whatever the machine; times differ."
    blocks = [("code", " \\\n    ".join([command, *new])), ("note", said)]
    return Section("reproduce", "Do it again", "Do it again", blocks)


def _options(settings: dict[str, Any]) -> list[str]:
    """Return settings as options."""
    pairs = []
    for name, value in settings.items():
        several = name == "label" and isinstance(value, list | tuple)  # names may have commas
        pairs += [(name, one) for one in value] if several else [(name, value)]
    return [option for pair in pairs if (option := _option(*pair))]


def _option(name: str, value: Any) -> str:
    """Return a setting as an option; nothing for what is left to the data."""
    if name == "label_weight":  # whose option asks for a method too
        return f"--set {name}={value}"
    option = shlex.quote(f"--{name.replace('_', '-')}")
    if value is None or value == "auto":
        return ""
    if isinstance(value, bool):
        off = "--one-based" if name == "zero_based" else option.replace("--", "--no-", 1)
        return option if value else off
    text = ",".join(map(_text, value)) if isinstance(value, list | tuple) else _text(value)
    text = show(value) if isinstance(value, dict) else text
    return f"{option} {shlex.quote(text)}"


def scores(results: Results) -> Section | None:
    """Return all metrics, of each class too; None where nothing was measured."""
    model = section(results, "model")
    measured = section(model, "metrics")
    beside, other = "linear model on the columns", section(results, "linear")
    if aside := section(model, "set_aside"):
        beside, other = f"{name_of(aside)}, set aside", aside
    others = section(other, "metrics")
    known = [name for name in METRICS if finite(measured.get(name)) is not None]
    if not known:
        return None
    rows = [
        (METRICS[name], _shown(name, measured[name]), _shown(name, others.get(name)))
        for name in known
    ]
    mine, where = "model", "on rows held out"
    if aside:
        mine, where = "linear model on the columns, saved", f"{where}, which chose between the two"
    head = (where, mine, beside)
    blocks: list[Block] = [("table", ReportTable(head, rows, "Metrics of the model"))]
    blocks += [*_each_target(results), *points(results)]
    return Section("scores", "Scores", "How good the model is", blocks)


def _shown(name: str, value: Any) -> str:
    if finite(value) is None:
        return NONE
    return share(value, 2) if name in SHARES else number(value)


def _each_target(results: Results) -> list[Block]:
    """Return the metrics of each target, where there are several."""
    targets = results.get("targets") or ()
    known = [name for name in METRICS if any(finite(row.get(name)) is not None for row in targets)]
    rows = [
        (str(row.get("target", "?")), *(_shown(name, row.get(name)) for name in known))
        for row in targets
    ]
    head = ("target", *(METRICS[name].partition(",")[0] for name in known))
    return [("table", ReportTable(head, rows, "Each target"))] if rows else []


def importances(results: Results) -> Section | None:
    """Return which columns the model needs; None where that was not measured."""
    found = section(results, "importances")
    rows = [
        (
            str(row.get("column", "?")),
            value,
            finite(row.get("deviation")) or 0.0,
            finite(row.get("gradient")),
        )
        for row in found.get("columns") or ()
        if (value := finite(row.get("importance"))) is not None
    ]
    if not rows:
        return None
    names, values, spreads, slopes = zip(*rows[:MOST_IMPORTANCES], strict=True)
    metric = Metric.of(results)
    texts = [f"{number(v)} ± {number(s)}" for v, s in zip(values, spreads, strict=True)]
    said = (
        f"What the model loses of its {metric.word} when the values of a column are permuted, on "
        f"{count(finite(found.get('rows')) or 0)} of the rows held out. Columns that say the same "
        "stand in for each other: each alone may then seem unimportant."
    )
    if found.get("by_source"):
        said += " All that a column of the table was encoded to is permuted together."
    if len(rows) > MOST_IMPORTANCES:
        said += f" The first {MOST_IMPORTANCES} of {count(len(rows))} columns are shown."
    chart = charts.bars(names, values, f"loss of {metric.word}", texts)
    blocks: list[Block] = [("chart", chart), ("note", said)]
    if any(slope is not None for slope in slopes):
        head = ("column", f"loss of {metric.word}", "size of the gradient")
        shown = [NONE if slope is None else number(slope) for slope in slopes]
        table = ReportTable(head, list(zip(names, texts, shown, strict=True)), "Columns")
        why = "The size of the gradient is the mean slope of the model's scores along a column, "
        why += "times the standard deviation of the column."
        blocks += [("table", table), ("note", why)]
    return Section("importances", "Columns", "Which columns the model needs", blocks)
