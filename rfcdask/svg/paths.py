"""The drawings of how errors fell: along a selection and over the epochs of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rfcdask.svg.charts import Axis, Series, line_chart, rule, words
from rfcdask.svg.legends import legend
from rfcdask.svg.markup import Markup, join
from rfcdask.svg.numbers import count, finite, number
from rfcdask.svg.scales import Scale
from rfcdask.svg.styles import Style

SAMPLED = Style(7, "circle", dashed=True)
HELDOUT = Style(0, "circle", strong=True)
REFINED = Style(1, "diamond", strong=True)
FEW = 40


def error_path(
    sizes: Sequence[float],
    sampled: Sequence[Any],
    heldout: Sequence[Any],
    chosen: float | None = None,
    refined: float | None = None,
) -> Markup:
    """Draw the error along a selection, with the chosen size and the error after refinement.

    Parameters
    ----------
    sizes, sampled, heldout : sequences
        Numbers of features, and the relative errors at each on both kinds of pairs.
    chosen : float, optional
        The size that was kept.
    refined : float, optional
        The held-out error once the kept features were refined.
    """
    kept = finite(chosen)
    after = finite(refined)
    single = len(sizes) < 2
    series = [
        Series("sampled pairs", _points(sizes, sampled), SAMPLED, marks=single),
        Series("held-out pairs", _points(sizes, heldout), HELDOUT, marks=single),
    ]
    names = [("held-out pairs", HELDOUT), ("sampled pairs", SAMPLED)]
    if kept is not None and after is not None:
        title = f"held-out pairs after refinement, {count(kept)} features: {number(after)}"
        series.append(Series("refined", [(kept, after)], REFINED, [title]))
        names.append(("after refinement", REFINED))
    last = f"; {count(kept)} features were kept" if kept is not None else ""
    drawing = line_chart(
        f"Relative kernel error against the number of features{last}",
        series,
        Axis("features kept"),
        Axis("relative error over pairs of rows", log=True),
        *([_chosen(kept)] if kept is not None else []),
    )
    lines = () if single else ("sampled pairs", "held-out pairs")
    return join(drawing, legend(names, lines))


def _points(sizes: Sequence[float], errors: Sequence[Any]) -> list[tuple[float, float]]:
    return [(float(k), _value(error)) for k, error in zip(sizes, errors, strict=False)]


def _value(value: Any) -> float:
    found = finite(value)
    return float("nan") if found is None else found


def _chosen(size: float) -> Any:
    def draw(across: Scale, upward: Scale) -> Markup:
        x = across(size)
        shown = f"chosen: {count(size)}"
        anchor = "end" if x > (across.start + across.stop) / 2 else "start"
        return join(
            rule(x, upward.stop, x, upward.start, 0.6),
            words(x + (-5 if anchor == "end" else 5), upward.stop + 8, shown, anchor),
        )

    return draw


def training_curve(history: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw the mean loss of each epoch, on the rows learned from and on those held out."""
    kinds = [("loss", "rows learned from", HELDOUT), ("held_out_loss", "rows held out", REFINED)]
    series, names = [], []
    for key, name, style in kinds:
        points = [(float(h["epoch"]), _value(h[key])) for h in history if key in h]
        titles = [f"{name}, epoch {count(x)}: {number(y)}" for x, y in points]
        if points:
            series.append(Series(name, points, style, titles))
            names.append((name, style))
    drawing = line_chart("Mean loss of each epoch", series, Axis("epoch"), Axis("mean loss"))
    return join(drawing, legend(names) if len(names) > 1 else None)


def curve(
    points: Sequence[tuple[float, float]], xlabel: str, ylabel: str, *, log: bool = False
) -> Markup:
    """Draw one line, with its points while they are few."""
    titles = [f"{xlabel} {number(x)}: {number(y)}" for x, y in points]
    few = len(points) <= FEW
    series = Series(ylabel, [(float(x), _value(y)) for x, y in points], HELDOUT, titles, marks=few)
    return line_chart(f"{ylabel} against {xlabel}", [series], Axis(xlabel, log=log), Axis(ylabel))
