"""The report of a run: what it reads from the results, and what its page is made of.

sections   what was run, the data, scores, costs, settings
figures    methods side by side, the selection, confusions
page       all of it as one HTML file, with a recommendation at its top
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rfcdask.display import count, finite, number, share, title_of
from rfcdask.linear import SCORERS

Results = Mapping[str, Any]
Block = tuple[str, Any]
"""A macro of ``blocks.html.j2`` and what it is given."""
_WORDS = {"r2": "R2", "roc_auc": "area under the ROC curve", "f1_macro": "mean F1"}
SHARES = ("accuracy", "balanced_accuracy", "precision_macro", "recall_macro", "f1_macro")
_PLURALS = {
    "compressed": "compressed features",
    "compressed-labels": "compressed features with labels",
    "learned": "learned features",
    "random": "plain random features (RFM)",
}
SAME_SPEED = 1.15
"""Two times per row whose ratio is below this count as the same: clocks are not better."""


class Metric(NamedTuple):
    """A metric by scikit-learn's name; larger is better."""

    scoring: str = "accuracy"

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> Metric:
        """Return the metric of some results; those of older versions have the accuracy."""
        found = results.get("scoring")
        return cls(found if found in SCORERS else "accuracy")

    @property
    def word(self) -> str:
        """The metric in a sentence."""
        value = SCORERS[self.scoring][0]
        return _WORDS.get(value, value.replace("_", " "))

    @property
    def best(self) -> str:
        """The metric of the best, in a sentence."""
        return "highest accuracy" if self.scoring == "accuracy" else f"best {self.word}"

    def words(self, of_accuracy: str, of_others: str) -> str:
        """Return the first of two phrases for the accuracy, else the second."""
        return of_accuracy if self.scoring == "accuracy" else of_others

    @property
    def is_share(self) -> bool:
        """Whether it is written in percent."""
        return self.scoring in SHARES

    def value(self, section: Mapping[str, Any]) -> float | None:
        """Return the metric of a row of a comparison, or of a model with all its metrics."""
        if (found := finite(section.get(self.scoring))) is not None:
            return found
        name, sign = SCORERS[self.scoring]
        known = section.get("metrics")
        found = finite(known.get(name)) if isinstance(known, Mapping) else None
        return None if found is None else sign * found

    def show(self, value: float | None, digits: int = 2) -> str:
        """Write a value; of an error, which is negative here, its size."""
        if self.is_share or value is None:
            return share(value, digits)
        return number(-value if SCORERS[self.scoring][1] < 0 else value)

    def show_difference(self, value: float, digits: int = 1) -> str:
        """Write a difference of two values."""
        return f"{100 * value:.{digits}f} points" if self.is_share else number(value)

    def standard_error(self, value: float, rows: int) -> float:
        """Return how uncertain a value is that was measured on that many rows.

        For shares this is the binomial error, for R2 that of a squared correlation, and for a mean
        error that of normal residuals.
        """
        if not rows:
            return 0.0
        if self.scoring == "r2":
            return 2 * math.sqrt(max(value, 0.0) / rows) * max(1 - value, 0.0)
        if SCORERS[self.scoring][1] < 0:
            return abs(value) / math.sqrt(2 * rows)
        return math.sqrt(max(value * (1 - value), 0.0) / rows)

    def as_good(self, one: float, best: float, rows: int) -> bool:
        """Tell whether a difference is within the sampling error of the test rows.

        The error is that of a difference of two independent measurements. All methods are judged
        by the same rows, for which it is cautious.
        """
        margin = math.hypot(self.standard_error(one, rows), self.standard_error(best, rows))
        return best - one <= margin + 1e-12


def section(results: Results, name: str) -> dict[str, Any]:
    """Return a part of the results; empty where it is missing."""
    found = results.get(name)
    return dict(found) if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class Measured:
    """One method at one number of features; what was not measured is None.

    What is called its accuracy is the metric that methods are judged by.
    """

    method: str
    features: int
    error: float | None = None
    accuracy: float | None = None
    fit_seconds: float | None = None
    micros: float | None = None
    size: float | None = None
    confirmed: float | None = None
    """The accuracy on rows by which nothing was chosen."""

    @property
    def title(self) -> str:
        """The name of the method for people."""
        return title_of(self.method)

    @property
    def name(self) -> str:
        """The method as it stands in a sentence."""
        return _PLURALS.get(self.method, self.title)

    @property
    def sized(self) -> str:
        """The method with its number of features."""
        n = count(self.features)
        return f"{n} {self.name}" if self.method in _PLURALS else f"{self.name} with {n} features"

    def verb(self, one: str = "is", many: str = "are") -> str:
        """Return the form of a verb that goes with the name."""
        return many if self.method in _PLURALS else one

    @property
    def is_nystroem(self) -> bool:
        """Whether it is a Nyström map."""
        return self.method.startswith("nystroem")

    @property
    def is_ours(self) -> bool:
        """Whether it is one of our own maps."""
        return self.method == "learned" or self.method.startswith("compressed")


def comparison_of(results: Results) -> list[Measured]:
    """Return the rows of the comparison."""
    metric = Metric.of(results)
    return [
        Measured(
            str(row.get("method", "?")),
            int(finite(row.get("n_components")) or 0),
            finite(row.get("kernel_error")),
            metric.value(row),
            finite(row.get("fit_seconds")),
            finite(row.get("microseconds_per_row")),
            finite(row.get("model_bytes")),
            finite(row.get(f"confirmed_{metric.scoring}")),
        )
        for row in results.get("comparison") or ()
    ]


def compared_rows(results: Results) -> int:
    """Return on how many held-out rows the methods were compared; 0 when nobody says.

    A comparison may look at fewer rows than the model is scored on: what it says itself counts
    first, then the setting, then the data.
    """
    said = [row.get("test_rows") for row in results.get("comparison") or ()]
    settings = section(results, "settings")
    said += [settings.get("compare_test_rows"), settings.get("n_test")]
    held = finite(section(results, "data").get("test_rows"))
    for rows in filter(None, map(finite, said)):
        return int(min(rows, held) if held else rows)
    return int(held or 0)


def best_accuracy(rows: Iterable[Measured]) -> Measured | None:
    """Return the most accurate row."""
    known = [row for row in rows if row.accuracy is not None]
    return max(known, key=lambda row: row.accuracy or 0.0, default=None)


@dataclass(frozen=True)
class Section:
    """A part of the page: where links lead, what the link says, the heading, the content."""

    id: str
    link: str
    title: str
    blocks: list[Block]


@dataclass(frozen=True)
class Titled:
    """Blocks under a title: a figure, or something that unfolds."""

    title: str
    blocks: list[Block]
    open: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table whose rows become small cards on a narrow page; the first cell names the row."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    style: str = "plain"
    wordy: int = 1  # so many columns from the left hold words and are set to the left


def name_of(model: Results) -> str:
    """Return the features of a model in words."""
    return Measured(str(model.get("method")), int(finite(model.get("n_components")) or 0)).sized


def summary(results: dict[str, Any], saved: Any, page: Any) -> str:
    """Return what a run found in a few lines: warnings, recommendation, model and report."""
    model, other, name = results["model"], results["linear"], "a linear model"
    if "set_aside" in model:  # the linear model was better
        other, name = model["set_aside"], name_of(model["set_aside"])
    advice = results["recommendation"]
    return "\n".join(
        [
            *(f"Warning: {said}" for said in results.get("warnings") or ()),
            f"{advice['text']} {advice['reason']}",
            f"Model: {_good(model, other, name, results['data']['test_rows'])}; saved in {saved}",
            f"Report: {page}",
        ]
    )


def _good(model: dict[str, Any], other: dict[str, Any], name: str, rows: int) -> str:
    """Say how good the model is that was saved, and the other one."""
    kind = "linear on the columns, " if model["method"] == "none" else ""
    if model["accuracy"] is None:
        mine, others = model["metrics"], other["metrics"]
        return (
            f"{kind}R2 {mine['r2']:.4f} on {rows:,} held-out rows, mean absolute error "
            f"{mine['mean_absolute_error']:.4g}, against {others['r2']:.4f} and "
            f"{others['mean_absolute_error']:.4g} for {name}"
        )
    return (
        f"{kind}{model['accuracy']:.2%} of {rows:,} held-out rows right, against "
        f"{other['accuracy']:.2%} for {name}"
    )
