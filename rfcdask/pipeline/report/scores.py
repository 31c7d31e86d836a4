"""The section of the report that says how good the model is, by every metric that applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rfcdask.display import charts
from rfcdask.display.style import NONE, count, finite, number, share
from rfcdask.pipeline.report.metric import Metric, Results, section
from rfcdask.pipeline.report.recommendation import Measured
from rfcdask.pipeline.report.sections import Block, ReportTable, Section, Titled

MOST_COLUMNS = 25
MOST_CLASSES = 30
"""Of more classes than this, those that are found least are listed."""
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
SHARES = ("accuracy", "balanced_accuracy", "f1_macro")


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
    return Section("scores", "Scores", "How good the model is", [*blocks, *_points(results)])


def name_of(model: Results) -> str:
    """Return the features of a model in words."""
    return Measured(str(model.get("method")), int(finite(model.get("n_components")) or 0)).sized


def _shown(name: str, value: Any) -> str:
    if finite(value) is None:
        return NONE
    return share(value, 2) if name in SHARES else number(value)


def each_class(labels: Sequence[str], matrix: Sequence[Sequence[float]]) -> Titled:
    """Return rows, recall and precision of each class from the matrix of confusions."""
    n = len(labels)
    true = [sum(row) for row in matrix]
    given = [sum(row[k] for row in matrix) for k in range(n)]
    recall = [matrix[k][k] / true[k] if true[k] else None for k in range(n)]
    worst = sorted(range(n), key=lambda k: (1.0 if (r := recall[k]) is None else r, -true[k], k))
    rows = [
        (
            labels[k],
            count(true[k]),
            share(recall[k], 1) if recall[k] is not None else NONE,
            share(matrix[k][k] / given[k], 1) if given[k] else "never predicted",
        )
        for k in worst[:MOST_CLASSES]
    ]
    head = ("class", "rows", "recall", "precision")
    said = "Recall is the share of a class's rows that are found, precision the share of its "
    said += "predictions that are right; the class that is found least comes first."
    if n > MOST_CLASSES:
        said += f" {MOST_CLASSES} of {count(n)} classes are listed."
    return Titled("Each class", [("table", ReportTable(head, rows, "Each class")), ("note", said)])


def _points(results: Results) -> list[Block]:
    """Return predicted against true numbers, and what is left."""
    pairs = [tuple(map(finite, pair)) for pair in results.get("points") or ()]
    known = [
        {"true value": a, "predicted value": b, "true less predicted": a - b}
        for a, b in (pair for pair in pairs if len(pair) == 2)
        if a is not None and b is not None
    ]
    if not known:
        return []
    drawn = {
        "Predicted against true values": charts.scatter(
            known, "true value", "predicted value", "equal"
        ),
        "What is left": charts.scatter(known, "predicted value", "true less predicted", "zero"),
    }
    said = f"{count(len(known))} of the rows held out; on the line nothing is left to explain."
    figures = [Titled(title, [("chart", chart)]) for title, chart in drawn.items()]
    return [("figures", figures), ("note", said)]


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
    names, values, spreads, slopes = zip(*rows[:MOST_COLUMNS], strict=True)
    metric = Metric.of(results)
    texts = [f"{number(v)} ± {number(s)}" for v, s in zip(values, spreads, strict=True)]
    said = (
        f"What the model loses of its {metric.word} when the values of a column are mixed up, on "
        f"{count(finite(found.get('rows')) or 0)} of the rows held out. Columns that say the same "
        "stand in for each other: each alone may then seem unimportant."
    )
    if found.get("by_source"):
        said += " All that a column of the table was encoded to is mixed up together."
    if len(rows) > MOST_COLUMNS:
        said += f" The first {MOST_COLUMNS} of {count(len(rows))} columns are shown."
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
