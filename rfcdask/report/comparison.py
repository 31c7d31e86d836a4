"""The comparison of methods: who won, the table, and what each accuracy costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rfcdask.report.measured import (
    Measured,
    Results,
    as_accurate,
    best_accuracy,
    compared_rows,
    comparison_of,
    section,
    standard_error,
)
from rfcdask.report.parts import best, cards, figure, note, part, table
from rfcdask.report.sentences import SAME_SPEED
from rfcdask.svg.comparisons import (
    against_features,
    method_legend,
    one_against_other,
    spreads,
    styles_of,
)
from rfcdask.svg.legends import swatch
from rfcdask.svg.markup import Markup, el, join
from rfcdask.svg.numbers import NONE, count, finite, micros, number, seconds, share, size
from rfcdask.svg.styles import Style

HEAD = ("method", "accuracy", "kernel error", "µs a row", "map size", "time to fit")


def comparison(results: Results) -> Markup | None:
    """Return the whole section; None when nothing was compared."""
    rows = comparison_of(results)
    if not rows:
        return None
    raw = [dict(row) | {"method": str(row.get("method", "?"))} for row in results["comparison"]]
    tested = compared_rows(results)
    return part(
        "Methods side by side",
        "comparison",
        _tables(rows, raw, tested, finite(section(results, "linear").get("accuracy"))),
        _caption(rows, tested, spreads(raw, "accuracy")),
        method_legend(raw),
        _plots(rows, raw, tested),
    )


def winners(here: Sequence[Measured]) -> str:
    """Say of maps with as many features who is most accurate, nearest to the kernel, fastest."""
    said = []
    right = best_accuracy(here)
    if right is not None:
        said.append(f"Highest accuracy: {right.title} ({share(right.accuracy, 2)})")
    near = min((r for r in here if r.error is not None), key=lambda r: r.error or 0, default=None)
    if near is not None:
        said.append(f"Lowest kernel error: {near.title} ({number(near.error)})")
    fast = [r for r in here if r.micros in _least([r.micros for r in here], SAME_SPEED)]
    if fast and 2 * len(fast) <= len(here):
        names = " and ".join(row.title for row in fast)
        said.append(f"Fastest: {names} ({micros(fast[0].micros)} a row)")
    return "; ".join(said)


def _tables(
    rows: Sequence[Measured], raw: Sequence[dict[str, Any]], tested: int, linear: float | None
) -> Markup:
    """Return a table a number of features; of many, all but one are folded."""
    sizes = sorted({row.features for row in rows})
    made = [
        _table([r for r in rows if r.features == n], styles_of(raw), tested, linear) for n in sizes
    ]
    if len(sizes) == 1:
        return made[0]
    top = best_accuracy(rows)
    shown = top.features if top else sizes[-1]
    return join(
        *(
            el(
                "details",
                el("summary", f"With {count(n)} features"),
                body,
                open="" if n == shown else None,
            )
            for n, body in zip(sizes, made, strict=True)
        )
    )


def _table(
    here: Sequence[Measured], styles: Mapping[str, Style], tested: int, linear: float | None
) -> Markup:
    body: list[Sequence[Any]] = [
        (join(swatch(styles[row.method]), " ", row.title), *_values(row, here, tested))
        for row in sorted(here, key=lambda row: -(row.accuracy or 0.0))
    ]
    if linear is not None:
        body.append(("linear model on the raw columns", share(linear, 2), *[NONE] * 4))
    caption = f"What was measured of each method with {count(here[0].features)} features"
    return join(el("p", winners(here)), table(HEAD, body, caption=caption, class_="compare"))


def _values(row: Measured, here: Sequence[Measured], tested: int) -> list[Any]:
    top = best_accuracy(here)
    accurate = [
        r.accuracy
        for r in here
        if r.accuracy is not None and top and as_accurate(r.accuracy, top.accuracy or 0.0, tested)
    ]
    return [
        _marked(row.accuracy, accurate, here, lambda value: share(value, 2)),
        _marked(row.error, _least([r.error for r in here]), here, number),
        _marked(row.micros, _least([r.micros for r in here], SAME_SPEED), here, number),
        _marked(row.size, _least([r.size for r in here]), here, size),
        _marked(row.fit_seconds, _least([r.fit_seconds for r in here]), here, seconds),
    ]


def _least(values: Sequence[float | None], room: float = 1.0) -> list[float]:
    known = [value for value in values if value is not None]
    return [value for value in known if value <= min(known) * room]


def _marked(
    value: float | None, first: list[float], here: Sequence[Measured], show: Callable[[Any], str]
) -> Any:
    """Mark a value that is among the best, unless most are."""
    return best(show(value)) if value in first and 2 * len(first) <= len(here) else show(value)


def _caption(rows: Sequence[Measured], tested: int, varied: Mapping[str, float]) -> Markup:
    top = best_accuracy(rows)
    said = "A star marks the best of the maps with as many features, unless most of them share it."
    if top is not None and tested:
        error = 100 * standard_error(top.accuracy or 0.0, tested)
        said += (
            f" Accuracies were measured on {count(tested)} held-out rows, so each is uncertain by "
            f"about {error:.2f} points (one standard error); those that differ by less than the "
            "error of a difference are all marked."
        )
    if varied:
        said += (
            " All figures are means of several repeats with other rows held out and other random "
            f"features, between which accuracies varied by up to {100 * max(varied.values()):.2f} "
            "points (standard deviation)."
        )
    if any(row.method == "compressed-labels" for row in rows):
        said += (
            " A map that looks at labels no longer approximates the kernel alone: its kernel "
            "error is not what it was made for."
        )
    return note(said)


def _plots(rows: Sequence[Measured], raw: Sequence[dict[str, Any]], tested: int) -> Markup:
    margins = {
        row.method: standard_error(row.accuracy, tested) for row in rows if row.accuracy is not None
    }
    single = len({row.features for row in rows}) == 1
    by = f"with {count(rows[0].features)} features" if single else "against features"
    return cards(
        figure(f"Accuracy {by}", against_features(raw, "accuracy", margins)),
        figure(f"Kernel error {by}", against_features(raw, "kernel_error")),
        figure(
            "Accuracy against time a row",
            one_against_other(raw, "microseconds_per_row", "accuracy"),
        ),
        figure(
            "Accuracy against size of the map", one_against_other(raw, "model_bytes", "accuracy")
        ),
    )
