"""The page of a report: a plain recommendation, the first figures, and all sections.

The most accurate method sets the mark. Everything within the sampling error of the test rows
counts as equally accurate, and of those the cheapest is recommended, be it ours or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rfcdask.display import count, finite, micros, number, seconds, share, size
from rfcdask.display.html import colour_sheet
from rfcdask.display.html import render as render_template
from rfcdask.pipeline.folder import RESULTS_FORMAT
from rfcdask.pipeline.report import (
    SAME_SPEED,
    Measured,
    Metric,
    Results,
    best_accuracy,
    compared_rows,
    comparison_of,
    figures,
    name_of,
    section,
    sections,
)

__all__ = ["recommend", "render"]
SMALL = 0.01
"""A loss of accuracy that some would accept for speed."""
BARGAIN = 3.0
"""How many times faster it must then be to be named."""
SECTIONS = (
    sections.what_was_run,
    sections.the_data,
    figures.comparison,
    figures.selection,
    sections.scores,
    figures.confusion,
    sections.importances,
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
        linear, beside = metric.value(aside), f"with {name_of(aside)}, which was set aside"
    shown: list[tuple[Any, Any, str]] = [
        (mine, lambda v: metric.show(v, 1), shares),
        (linear, lambda v: metric.show(v, 1), beside),
        (error, number, "relative kernel error on held-out pairs"),
        (sections.total_seconds(results) or None, seconds, "for the whole run"),
    ]
    return [(show(value), text) for value, show, text in shown if finite(value) is not None]


def recommend(results: Results) -> dict[str, str]:
    """Return what to use and why.

    Parameters
    ----------
    results : mapping
        The content of ``results.json``; whatever is missing is not spoken of.

    Returns
    -------
    dict
        ``text``, one sentence, and ``reason``, some sentences with numbers.
    """
    rows, tested = comparison_of(results), compared_rows(results)
    counts = [finite(value) or 0.0 for value in section(results, "data").get("class_counts") or ()]
    metric = Metric.of(results)
    majority = None
    if metric.scoring == "accuracy" and sum(counts) > 0:
        majority = max(counts) / sum(counts)
    linear = metric.value(section(results, "linear"))
    best = best_accuracy(rows)
    more = [finite(row.get("confirmed_rows")) or 0 for row in results.get("comparison") or ()]
    judge = _Judge(rows, tested, linear, majority, best, metric, int(min(more, default=0)))
    if best is None:
        return judge.without_accuracy(results)
    boosted = section(results, "boosting")
    value = metric.value(boosted)
    top = max(filter(None, [best.accuracy, value]), default=0.0)
    if linear is not None and metric.as_good(linear, top, tested):
        saved = section(results, "model").get("method") == "none"
        return judge.linear_is_enough(linear, best, saved)
    if value is not None and not metric.as_good(best.accuracy or 0, value, tested):
        mine = metric.value(section(results, "model"))
        return judge.boosting_is_better(value, best, boosted, mine)
    equal = [
        row
        for row in rows
        if row.accuracy is not None and metric.as_good(row.accuracy, best.accuracy or 0, tested)
    ]
    pick = _cheapest(equal)
    sentences = [
        judge.why(pick, best, equal),
        judge.other_side(pick, equal),
        judge.confirmed(pick),
        judge.bargain(pick),
        judge.plain_features(pick),
        judge.against_linear(pick.accuracy or 0),
        judge.against_boosting(value, section(results, "boosting")),
        judge.against_majority(pick.accuracy or 0),
    ]
    return {"text": f"Use {pick.sized}.", "reason": " ".join(filter(None, sentences))}


def _cheapest(rows: Sequence[Measured]) -> Measured:
    """Return the fastest per row; of equally fast ones the smallest, then the most accurate."""
    unknown = float("inf")
    fastest = min(row.micros or unknown for row in rows)
    fast = [row for row in rows if (row.micros or unknown) <= fastest * SAME_SPEED]
    smallest = min(row.size or unknown for row in fast)
    small = [row for row in fast if (row.size or unknown) <= smallest * 1.02]
    return max(small, key=lambda row: (row.accuracy or 0, -(row.error or 0)))


@dataclass(frozen=True)
class _Judge:
    """Makes the sentences from what was measured; one that has nothing to say is empty."""

    rows: list[Measured]
    tested: int
    linear: float | None
    majority: float | None
    best: Measured | None
    metric: Metric
    confirming: int = 0  # further rows, on which nothing was chosen

    @property
    def _digits(self) -> int:
        """As many as the test rows support: two once the error is below .05 points."""
        error = 0.01
        if self.best:
            error = self.metric.standard_error(self.best.accuracy or 0.5, self.tested)
        return 2 if 0 < error < 5e-4 else 1

    def _percent(self, accuracy: float | None) -> str:
        return self.metric.show(accuracy, self._digits)

    @property
    def _on_rows(self) -> str:
        return f" on {count(self.tested)} held-out rows" if self.tested else ""

    @property
    def _good(self) -> str:
        return self.metric.words("accurate", "good")

    @property
    def _highest(self) -> str:
        return self.metric.words("highest", "best")

    def _as_accurate(self, one: float, other: float) -> bool:
        return self.metric.as_good(one, other, self.tested)

    def why(self, pick: Measured, best: Measured, equal: Sequence[Measured]) -> str:
        """Say how the pick stands to the rest in accuracy."""
        if len(equal) == 1:
            return self._clear_winner(pick)
        error = self.metric.standard_error(pick.accuracy or 0, self.tested)
        bound = f" ± {100 * error:.{self._digits}f}" if error else ""
        if error and not self.metric.is_share:
            bound = f" ± {number(error)}"
        mine = f"{self._percent(pick.accuracy)}{bound}"
        if best == pick:
            return (
                f"It has the {self.metric.best}{self._on_rows} ({mine}), and of the {len(equal)} "
                f"settings within the sampling error of it none is cheaper{_costs(pick)}."
            )
        return (
            f"{len(equal)} of {len(self.rows)} settings are equally {self._good} within the "
            f"sampling error{self._on_rows} ({mine}; the {self._highest} is "
            f"{self._percent(best.accuracy)}, "
            f"{best.sized}), and this is the cheapest of them{_costs(pick)}."
        )

    def _clear_winner(self, pick: Measured) -> str:
        mine = self._percent(pick.accuracy)
        highest = f"It has the {self.metric.best}{self._on_rows} ({mine}"
        rest = best_accuracy(row for row in self.rows if row.method != pick.method)
        if rest is None:
            return f"{highest})."
        if rest.features == pick.features:
            return (
                f"{_upper(pick.name)} {pick.verb()} {self.metric.words('more accurate', 'better')} "
                f"here at {count(pick.features)} features than every other method{self._on_rows} "
                f"({mine} against {self._percent(rest.accuracy)} for {rest.name})."
            )
        return f"{highest}; the next is {rest.sized}, {self._percent(rest.accuracy)})."

    def other_side(self, pick: Measured, equal: Sequence[Measured]) -> str:
        """Set Nyström against our maps, whichever of them won."""
        rivals = self._rivals(pick)
        rival = best_accuracy([r for r in rivals if r.features == pick.features] or rivals)
        if rival is None:
            return ""
        said, accuracy = [], self._percent(rival.accuracy)
        if rival in equal:
            said.append(f"{rival.sized} {rival.verb()} equally {self._good} ({accuracy})")
        elif not self._named(rival, pick):
            said.append(f"{rival.sized} {rival.verb('reaches', 'reach')} {accuracy}")
        said += filter(None, [_speed(pick, rival)])
        largest = best_accuracy(rivals)
        if largest and largest != rival and not self._named(largest, pick):
            reaches = largest.verb("reaches", "reach")
            said.append(f"{largest.sized} {reaches} {self._percent(largest.accuracy)}")
        return _upper("; ".join(said)) + "." if said else ""

    def _rivals(self, pick: Measured) -> list[Measured]:
        return [r for r in self.rows if (r.is_ours if pick.is_nystroem else r.is_nystroem)]

    def _named(self, row: Measured, pick: Measured) -> bool:
        """Tell whether the sentence before has named a row beside the pick."""
        return row in (self.best, best_accuracy(r for r in self.rows if r.method != pick.method))

    def confirmed(self, pick: Measured) -> str:
        """Say what the pick and the best of the other side reach on rows that chose nothing."""
        rival = best_accuracy(self._rivals(pick))
        if pick.confirmed is None:
            return ""
        said = (
            f"On {count(self.confirming)} further rows, by which nothing was chosen, "
            f"{'they reach' if pick.verb() == 'are' else 'it reaches'} "
            f"{self._percent(pick.confirmed)}"
        )
        if rival is None or rival.confirmed is None:
            return f"{said}."
        low, high = sorted((pick.confirmed, rival.confirmed))
        noise = self.metric.as_good(low, high, self.confirming)
        how = ", which is no difference beyond the sampling error" if noise else ""
        return f"{said}, and {rival.sized} {self._percent(rival.confirmed)}{how}."

    def bargain(self, pick: Measured) -> str:
        """Name what is much faster for next to no accuracy: the choice is the reader's."""
        mine = pick.accuracy or 0
        near = [r for r in self.rows if r.micros and r.accuracy is not None]
        near = [row for row in near if mine - (row.accuracy or 0) <= SMALL]
        comparable = self.metric.is_share or self.metric.scoring == "r2"
        if not near or not pick.micros or not comparable:
            return ""
        row = _cheapest(near)
        ratio = pick.micros / (row.micros or 1)
        if ratio < BARGAIN:
            return ""
        return (
            f"If {self._difference(mine - (row.accuracy or 0))} do not matter, "
            f"{row.sized} ({self._percent(row.accuracy)}) {row.verb()} {_times(ratio)} times "
            "faster per row."
        )

    def plain_features(self, pick: Measured) -> str:
        """Say what compression gains over plain random features of the same number."""
        same = [r for r in self.rows if (r.method, r.features) == ("random", pick.features)]
        plain = same[0] if same else None
        if plain is None or not pick.is_ours or plain.accuracy is None:
            return ""
        if not self._as_accurate(plain.accuracy, pick.accuracy or 0):
            gain = self.metric.show_difference((pick.accuracy or 0) - plain.accuracy)
            less = self.metric.words("less accurate", "worse")
            return f"Plain random features of the same number are {gain} {less}."
        nearer = ""
        if pick.error and plain.error and pick.error < plain.error:
            ratio = _times(plain.error / pick.error)
            nearer = f"; their kernel error is {number(plain.error)}, {ratio} times as large"
        return f"Plain random features of the same number are as {self._good} here{nearer}."

    def against_linear(self, accuracy: float) -> str:
        """Say what features gain over the columns themselves."""
        if self.linear is None:
            return ""
        return (
            f"A linear model on the raw columns reaches {self._percent(self.linear)}, "
            f"{self._difference(accuracy - self.linear)} {self.metric.words('less', 'worse')}."
        )

    def _difference(self, value: float) -> str:
        return self.metric.show_difference(value, self._digits)

    def against_boosting(self, value: float | None, boosted: Mapping[str, Any]) -> str:
        """Say how near gradient boosting comes, which was not better."""
        if value is None:
            return ""
        return (
            f"Gradient boosting (scikit-learn's) on {_sample(boosted)} reaches "
            f"{self._percent(value)}."
        )

    def boosting_is_better(
        self, value: float, best: Measured, boosted: Mapping[str, Any], mine: float | None
    ) -> dict[str, str]:
        """Recommend the neighbour, or the model of all rows where that is as good after all."""
        text = "Use gradient boosting (scikit-learn's HistGradientBoosting)."
        reason = (
            f"On {_sample(boosted)}, in memory, it is "
            f"{self.metric.words('more accurate', 'better')} than every feature map"
            f"{self._on_rows} ({self._percent(value)} against {self._percent(best.accuracy)} for "
            f"{best.sized}). It needs its rows in memory; of more rows than fit there, try whether "
            "a larger sample still helps, or take the model that was trained on all of them."
        )
        if mine is not None and mine >= value:
            text = "Use the model that was saved."
            reason = (
                f"Trained on all rows it reaches {self._percent(mine)} on those held out. "
                f"{self.against_boosting(value, boosted)} Of the compared maps, which learned from "
                f"few rows too, {best.sized} reach {self._percent(best.accuracy)}."
            )
        top = max(value, value if mine is None else mine)
        sentences = [reason, self.against_linear(top), self.against_majority(top)]
        return {"text": text, "reason": " ".join(filter(None, sentences))}

    def against_majority(self, accuracy: float) -> str:
        """Warn where nothing was learned."""
        if self.majority is None or not self._as_accurate(self.majority, accuracy):
            return ""
        return (
            f"Mind that always answering the commonest class is right for {share(self.majority)} "
            "of the rows: nothing has been learned that would beat it."
        )

    def linear_is_enough(self, linear: float, best: Measured, saved: bool) -> dict[str, str]:
        """Recommend no features at all."""
        accuracy = best.accuracy or 0
        more = linear > accuracy and not self._as_accurate(accuracy, linear)
        better = self.metric.words("more accurate", "better")
        how = f"{better} than" if more else f"as {self._good}, within the sampling error, as"
        reason = (
            f"It is {how} the best feature map{self._on_rows} ({self._percent(linear)} against "
            f"{self._percent(best.accuracy)} for {best.sized}), and it needs no features at all."
        )
        kept = "It is the model that was saved." if saved else ""
        sentences = filter(None, [reason, kept, self.against_majority(linear)])
        return {"text": "Use a linear model on the raw columns.", "reason": " ".join(sentences)}

    def without_accuracy(self, results: Results) -> dict[str, str]:
        """Speak of what there is: kernel errors, or the model alone."""
        near = [row for row in self.rows if row.error is not None]
        if near:
            best = min(near, key=lambda row: row.error or 0)
            reason = (
                f"Accuracies were not measured; {best.name} {best.verb()} nearest to the exact "
                f"kernel (error {number(best.error)})."
            )
            return {"text": f"Use {best.sized}.", "reason": reason}
        accuracy = self.metric.value(section(results, "model"))
        if accuracy is None:
            return {"text": "No recommendation: nothing was compared.", "reason": ""}
        tested = finite(section(results, "data").get("test_rows"))
        where = f"{count(tested)} held-out rows" if tested else "held-out rows"
        sentences = [
            f"That was measured on {where}; other methods were not compared.",
            self.against_linear(accuracy),
            self.against_majority(accuracy),
        ]
        text = f"The model is right for {share(accuracy)} of the rows it has not seen."
        if self.metric.scoring != "accuracy":
            text = f"The model has a {self.metric.word} of {self._percent(accuracy)} on new rows."
        return {"text": text, "reason": " ".join(filter(None, sentences))}


def _sample(boosted: Mapping[str, Any]) -> str:
    rows = finite(boosted.get("n_rows"))
    return f"a sample of {count(rows)} rows" if rows else "a sample"


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:,.0f}"


def _costs(row: Measured) -> str:
    """Return time per row and size in brackets, as far as they are known."""
    said = [f"{micros(row.micros)} per row"] if row.micros is not None else []
    said += [size(row.size)] if row.size is not None else []
    return f" ({', '.join(said)})" if said else ""


def _speed(one: Measured, other: Measured) -> str:
    """Say which of two is faster; with their sizes where these differ."""
    if not one.micros or not other.micros:
        return ""
    names = {row: row.name if one.features == other.features else row.sized for row in (one, other)}
    ratio = other.micros / one.micros
    if 1 / SAME_SPEED < ratio < SAME_SPEED:
        return f"{names[one]} and {names[other]} are equally fast per row"
    fast, slow = (one, other) if ratio > 1 else (other, one)
    return (
        f"{names[fast]} {fast.verb()} {_times(max(ratio, 1 / ratio))} times faster per row than "
        f"{names[slow]} ({micros(fast.micros)} against {micros(slow.micros)})"
    )
