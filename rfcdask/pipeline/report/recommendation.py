"""What to use, in plain sentences with the numbers that speak for it.

The most accurate method sets the mark. Everything within the sampling error of the test rows
counts as equally accurate, and of those the cheapest is taken, be it ours or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfcdask.display.style import count, finite, micros, number, share, size, title_of
from rfcdask.pipeline.report.metric import Metric, Results, section

SAME_SPEED = 1.15
"""Two times per row whose ratio is below this count as the same: clocks are not better."""
_PLURALS = {
    "compressed": "compressed features",
    "compressed-labels": "compressed features with labels",
    "learned": "learned features",
    "random": "plain random features (RFM)",
}
SMALL = 0.01
"""A loss of accuracy that some would accept for speed."""
BARGAIN = 3.0
"""How many times faster it must then be to be named."""


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
        return judge.boosting_is_better(value, best, boosted)
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
        rivals = [
            row for row in self.rows if (row.is_ours if pick.is_nystroem else row.is_nystroem)
        ]
        rival = best_accuracy([r for r in rivals if r.features == pick.features] or rivals)
        if rival is None:
            return ""
        named = self._named(rival, pick)
        said, accuracy = [], self._percent(rival.accuracy)
        if rival in equal:
            said.append(f"{rival.sized} {rival.verb()} equally {self._good} ({accuracy})")
        elif not named:
            said.append(f"{rival.sized} {rival.verb('reaches', 'reach')} {accuracy}")
        said += filter(None, [_speed(pick, rival)])
        largest = best_accuracy(rivals)
        if largest and largest != rival and not self._named(largest, pick):
            reaches = largest.verb("reaches", "reach")
            said.append(f"{largest.sized} {reaches} {self._percent(largest.accuracy)}")
        return _upper("; ".join(said)) + "." if said else ""

    def _named(self, row: Measured, pick: Measured) -> bool:
        """Tell whether the sentence before has named a row beside the pick."""
        return row in (self.best, best_accuracy(r for r in self.rows if r.method != pick.method))

    def confirmed(self, pick: Measured) -> str:
        """Say what the pick and the best of the other side reach on rows that chose nothing."""
        rivals = [r for r in self.rows if (r.is_ours if pick.is_nystroem else r.is_nystroem)]
        rival = best_accuracy(rivals)
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
            f"scikit-learn's gradient boosting on {_sample(boosted)} reaches "
            f"{self._percent(value)}."
        )

    def boosting_is_better(
        self, value: float, best: Measured, boosted: Mapping[str, Any]
    ) -> dict[str, str]:
        """Recommend the neighbour."""
        better = self.metric.words("more accurate", "better")
        reason = (
            f"On {_sample(boosted)}, in memory, it is {better} than every feature map"
            f"{self._on_rows} ({self._percent(value)} against {self._percent(best.accuracy)} for "
            f"{best.sized}). It needs its rows in memory; of more rows than fit there, try whether "
            "a larger sample still helps, or take the model that was trained on all of them."
        )
        sentences = [reason, self.against_linear(value), self.against_majority(value)]
        text = "Use gradient boosting (scikit-learn's HistGradientBoosting)."
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
