"""The section of the report that says how good the model is, by every metric that applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rfcdask.display.numbers import NONE, count, finite, number, share
from rfcdask.pipeline.report.recommendation import Results, section
from rfcdask.pipeline.report.sections import Block, ReportTable, Section, Titled

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
    measured = section(section(results, "model"), "metrics")
    linear = section(section(results, "linear"), "metrics")
    known = [name for name in METRICS if finite(measured.get(name)) is not None]
    if not known:
        return None
    rows = [
        (METRICS[name], _shown(name, measured[name]), _shown(name, linear.get(name)))
        for name in known
    ]
    head = ("on rows held out", "model", "linear model on the columns")
    table: Block = ("table", ReportTable(head, rows, "Metrics of the model"))
    return Section("scores", "Scores", "How good the model is", [table])


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
