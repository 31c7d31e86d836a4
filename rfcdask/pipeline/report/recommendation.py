"""What to use, in plain sentences with the numbers that speak for it.

The most accurate method sets the mark. Everything within the sampling error of the test rows
counts as equally accurate, and of those the cheapest is taken, be it ours or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfcdask.display.numbers import count, finite, micros, number, share, size
from rfcdask.display.style import title_of

Results = Mapping[str, Any]
SAME_SPEED = 1.15
"""Two times per row whose ratio is below this count as the same: clocks are not better."""
_PLURALS = {
    "compressed": "compressed features",
    "compressed-labels": "compressed features with labels",
    "random": "plain random features (RFM)",
}
SMALL = 0.01
"""A loss of accuracy that some would accept for speed."""
BARGAIN = 3.0
"""How many times faster it must then be to be named."""


@dataclass(frozen=True)
class Measured:
    """One method at one number of features; what was not measured is None."""

    method: str
    features: int
    error: float | None
    accuracy: float | None
    fit_seconds: float | None
    micros: float | None
    size: float | None

    @property
    def title(self) -> str:
        """The name of the method for people."""
        return title_of(self.method)

    @property
    def ours(self) -> bool:
        """Whether it is one of our own maps."""
        return self.method.startswith("compressed")

    @property
    def nystroem(self) -> bool:
        """Whether it is a Nyström map."""
        return self.method.startswith("nystroem")


def section(results: Results, name: str) -> dict[str, Any]:
    """Return a part of the results; empty where it is missing."""
    found = results.get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def comparison_of(results: Results) -> list[Measured]:
    """Return the rows of the comparison."""
    return [
        Measured(
            str(row.get("method", "?")),
            int(finite(row.get("n_components")) or 0),
            finite(row.get("kernel_error")),
            finite(row.get("accuracy")),
            finite(row.get("fit_seconds")),
            finite(row.get("microseconds_per_row")),
            finite(row.get("model_bytes")),
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
    for value in said:
        rows = finite(value)
        if rows:
            return int(min(rows, held) if held else rows)
    return int(held or 0)


def standard_error(accuracy: float, rows: int) -> float:
    """Return the binomial standard error of an accuracy measured on that many rows."""
    return math.sqrt(max(accuracy * (1 - accuracy), 0.0) / rows) if rows else 0.0


def as_accurate(one: float, best: float, rows: int) -> bool:
    """Tell whether a difference is within the sampling error of the test rows.

    The error is that of a difference of two independent measurements. All methods are judged by
    the same rows, for which it is cautious.
    """
    margin = math.hypot(standard_error(one, rows), standard_error(best, rows))
    return best - one <= margin + 1e-12


def best_accuracy(rows: Iterable[Measured]) -> Measured | None:
    """Return the most accurate row."""
    known = [row for row in rows if row.accuracy is not None]
    return max(known, key=lambda row: row.accuracy or 0.0, default=None)


@dataclass(frozen=True)
class _Facts:
    """What the sentences are made from."""

    rows: list[Measured]
    tested: int
    linear: float | None
    majority: float | None

    def percent(self, accuracy: float | None) -> str:
        return share(accuracy, self.digits)

    @property
    def digits(self) -> int:
        """As many as the test rows support: two once the error is below .05 points."""
        best = best_accuracy(self.rows)
        error = standard_error(best.accuracy or 0.5, self.tested) if best else 0.01
        return 2 if 0 < error < 5e-4 else 1


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
    facts = _Facts(
        comparison_of(results),
        compared_rows(results),
        finite(section(results, "linear").get("accuracy")),
        _majority(results),
    )
    best = best_accuracy(facts.rows)
    if best is None:
        return _without_accuracy(facts, results)
    if facts.linear is not None and as_accurate(facts.linear, best.accuracy or 0, facts.tested):
        return _linear_is_enough(facts, best)
    equal = [
        row
        for row in facts.rows
        if row.accuracy is not None and as_accurate(row.accuracy, best.accuracy or 0, facts.tested)
    ]
    pick = _cheapest(equal)
    sentences = [
        *_why(facts, pick, best, equal),
        *_other_side(facts, pick, equal),
        *_bargain(facts, pick),
        *_plain_features(facts, pick),
        *_against_linear(facts, pick),
        *_against_majority(facts, pick.accuracy or 0),
    ]
    return {"text": f"Use {sized(pick)}.", "reason": " ".join(sentences)}


def _cheapest(rows: Sequence[Measured]) -> Measured:
    """Return the fastest per row; of equally fast ones the smallest, then the most accurate."""
    unknown = float("inf")
    fastest = min(row.micros or unknown for row in rows)
    fast = [row for row in rows if (row.micros or unknown) <= fastest * SAME_SPEED]
    smallest = min(row.size or unknown for row in fast)
    small = [row for row in fast if (row.size or unknown) <= smallest * 1.02]
    return max(small, key=lambda row: (row.accuracy or 0, -(row.error or 0)))


def _why(facts: _Facts, pick: Measured, best: Measured, equal: Sequence[Measured]) -> list[str]:
    """Say how the pick stands to the rest in accuracy."""
    others = [row for row in equal if row != pick]
    tested = f" on {count(facts.tested)} held-out rows" if facts.tested else ""
    if not others:
        return _clear_winner(facts, pick, tested)
    error = standard_error(pick.accuracy or 0, facts.tested)
    bound = f" ± {100 * error:.{facts.digits}f}" if error else ""
    mine = f"{facts.percent(pick.accuracy)}{bound}"
    if best == pick:
        return [
            f"It has the highest accuracy{tested} ({mine}), and of the {len(others) + 1} settings "
            f"within the sampling error of it none is cheaper{costs(pick)}."
        ]
    return [
        f"{len(others) + 1} of {len(facts.rows)} settings are equally accurate within the sampling "
        f"error{tested} ({mine}; the highest is {facts.percent(best.accuracy)}, {sized(best)}), "
        f"and this is the cheapest of them{costs(pick)}."
    ]


def _clear_winner(facts: _Facts, pick: Measured, tested: str) -> list[str]:
    rest = best_accuracy(row for row in facts.rows if row.method != pick.method)
    if rest is None:
        return [f"It has the highest accuracy{tested} ({facts.percent(pick.accuracy)})."]
    if rest.features == pick.features:
        where = f" at {count(pick.features)} features"
        return [
            f"{upper(name_of(pick))} {verb(pick)} more accurate here{where} than every other "
            f"method{tested} ({facts.percent(pick.accuracy)} against "
            f"{facts.percent(rest.accuracy)} for {name_of(rest)})."
        ]
    return [
        f"It has the highest accuracy{tested} ({facts.percent(pick.accuracy)}; the next is "
        f"{sized(rest)}, {facts.percent(rest.accuracy)})."
    ]


def _other_side(facts: _Facts, pick: Measured, equal: Sequence[Measured]) -> list[str]:
    """Set Nyström against our maps, whichever of them won."""
    rivals = [row for row in facts.rows if (row.ours if pick.nystroem else row.nystroem)]
    rival = best_accuracy([r for r in rivals if r.features == pick.features] or rivals)
    if rival is None:
        return []
    named = rival == best_accuracy(row for row in facts.rows if row.method != pick.method)
    said = []
    if rival in equal:
        said.append(
            f"{sized(rival)} {verb(rival)} equally accurate ({facts.percent(rival.accuracy)})"
        )
    elif not named:
        reach = verb(rival, "reaches", "reach")
        said.append(f"{sized(rival)} {reach} {facts.percent(rival.accuracy)}")
    said += filter(None, [speed(pick, rival)])
    return [upper("; ".join(said)) + "."] if said else []


def _bargain(facts: _Facts, pick: Measured) -> list[str]:
    """Name what is much faster for next to no accuracy: the choice is the reader's."""
    near = [
        row
        for row in facts.rows
        if row.micros and row.accuracy is not None and (pick.accuracy or 0) - row.accuracy <= SMALL
    ]
    if not near or not pick.micros:
        return []
    row = _cheapest(near)
    less = 100 * ((pick.accuracy or 0) - (row.accuracy or 0))
    ratio = pick.micros / (row.micros or 1)
    if ratio < BARGAIN:
        return []
    return [
        f"If {less:.{facts.digits}f} points do not matter, {sized(row)} "
        f"({facts.percent(row.accuracy)}) {verb(row)} {times(ratio)} times faster per row."
    ]


def _plain_features(facts: _Facts, pick: Measured) -> list[str]:
    """Say what compression gains over plain random features of the same number."""
    plain = next(
        (r for r in facts.rows if r.method == "random" and r.features == pick.features), None
    )
    if plain is None or not pick.ours or plain.accuracy is None:
        return []
    if as_accurate(plain.accuracy, pick.accuracy or 0, facts.tested):
        nearer = ""
        if pick.error and plain.error and pick.error < plain.error:
            ratio = times(plain.error / pick.error)
            nearer = f"; their kernel error is {number(plain.error)}, {ratio} times as large"
        return [f"Plain random features of the same number are as accurate here{nearer}."]
    gain = 100 * ((pick.accuracy or 0) - plain.accuracy)
    return [f"Plain random features of the same number are {gain:.1f} points less accurate."]


def _against_linear(facts: _Facts, pick: Measured) -> list[str]:
    if facts.linear is None:
        return []
    less = 100 * ((pick.accuracy or 0) - facts.linear)
    return [
        f"A linear model on the raw columns reaches {facts.percent(facts.linear)}, "
        f"{less:.{facts.digits}f} points less."
    ]


def _against_majority(facts: _Facts, accuracy: float) -> list[str]:
    if facts.majority is None or not as_accurate(facts.majority, accuracy, facts.tested):
        return []
    return [
        f"Mind that always answering the commonest class is right for {share(facts.majority)} of "
        "the rows: nothing has been learned that would beat it."
    ]


def _linear_is_enough(facts: _Facts, best: Measured) -> dict[str, str]:
    tested = f" on {count(facts.tested)} held-out rows" if facts.tested else ""
    more = (facts.linear or 0) > (best.accuracy or 0) and not as_accurate(
        best.accuracy or 0, facts.linear or 0, facts.tested
    )
    how = "more accurate than" if more else "as accurate, within the sampling error, as"
    sentences = [
        f"It is {how} the best feature map{tested} ({facts.percent(facts.linear)} against "
        f"{facts.percent(best.accuracy)} for {sized(best)}), and it needs no features at all.",
        *_against_majority(facts, facts.linear or 0),
    ]
    return {"text": "Use a linear model on the raw columns.", "reason": " ".join(sentences)}


def _without_accuracy(facts: _Facts, results: Results) -> dict[str, str]:
    """Speak of what there is: kernel errors, or the model alone."""
    near = [row for row in facts.rows if row.error is not None]
    if near:
        best = min(near, key=lambda row: row.error or 0)
        return {
            "text": f"Use {sized(best)}.",
            "reason": f"Accuracies were not measured; {name_of(best)} {verb(best)} nearest to the "
            f"exact kernel (error {number(best.error)}).",
        }
    accuracy = finite(section(results, "model").get("accuracy"))
    if accuracy is None:
        return {"text": "No recommendation: nothing was compared.", "reason": ""}
    tested = finite(section(results, "data").get("test_rows"))
    where = f" on {count(tested)} held-out rows" if tested else " on held-out rows"
    return {
        "text": f"The model is right for {share(accuracy)} of the rows it has not seen.",
        "reason": " ".join(
            [
                f"That was measured{where}; other methods were not compared.",
                *_against_linear(facts, Measured("", 0, None, accuracy, None, None, None)),
                *_against_majority(facts, accuracy),
            ]
        ),
    }


def _majority(results: Results) -> float | None:
    counts = [finite(value) or 0.0 for value in section(results, "data").get("class_counts") or ()]
    return max(counts) / sum(counts) if sum(counts) > 0 else None


def name_of(row: Measured) -> str:
    """Return a method as it stands in a sentence."""
    return _PLURALS.get(row.method, row.title)


def verb(row: Measured, one: str = "is", many: str = "are") -> str:
    """Return the form of a verb that goes with the method's name."""
    return many if row.method in _PLURALS else one


def sized(row: Measured) -> str:
    """Return a method with its number of features."""
    name, n = name_of(row), count(row.features)
    return f"{n} {name}" if row.method in _PLURALS else f"{name} with {n} features"


def upper(sentence: str) -> str:
    """Return a sentence that begins with a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def times(ratio: float) -> str:
    """Return how many times one is the other."""
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:,.0f}"


def costs(row: Measured) -> str:
    """Return time per row and size in brackets, as far as they are known."""
    said = []
    if row.micros is not None:
        said.append(f"{micros(row.micros)} per row")
    if row.size is not None:
        said.append(size(row.size))
    return f" ({', '.join(said)})" if said else ""


def speed(one: Measured, other: Measured) -> str:
    """Say which of two is faster; with their sizes where these differ."""
    if not one.micros or not other.micros:
        return ""
    name = name_of if one.features == other.features else sized
    ratio = other.micros / one.micros
    if 1 / SAME_SPEED < ratio < SAME_SPEED:
        return f"{name(one)} and {name(other)} are equally fast per row"
    fast, slow = (one, other) if ratio > 1 else (other, one)
    return (
        f"{name(fast)} {verb(fast)} {times(max(ratio, 1 / ratio))} times faster per row than "
        f"{name(slow)} ({micros(fast.micros)} against {micros(slow.micros)})"
    )
