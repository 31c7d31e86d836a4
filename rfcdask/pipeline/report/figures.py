"""The sections of the report with charts: methods side by side, the selection, confusions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rfcdask.display import (
    NONE,
    charts,
    count,
    drawing,
    finite,
    micros,
    number,
    seconds,
    share,
    size,
    title_of,
)
from rfcdask.display.charts import against_features, one_against_other
from rfcdask.display.html import Cell, legend_of
from rfcdask.pipeline.report import (
    SAME_SPEED,
    Block,
    Measured,
    Metric,
    ReportTable,
    Results,
    Section,
    Titled,
    best_accuracy,
    compared_rows,
    comparison_of,
    section,
)

HEAD = ("kernel error", "µs per row", "map size", "time to fit")
MOST_DRAWN = 100
"""Of more classes than this, those with the most wrong answers are drawn."""
MOST_LISTED = 10
MOST_TARGETS = 4
"""Targets that are drawn."""
MOST_CLASSES = 30
"""Of more classes than this, those that are found least are listed."""
Matrix = list[list[float]]


def comparison(results: Results) -> Section | None:
    """Return who won, the tables and the charts; None when nothing was compared."""
    rows = comparison_of(results)
    if not rows:
        return None
    raw = [dict(row) | {"method": str(row.get("method", "?"))} for row in results["comparison"]]
    tested = compared_rows(results)
    metric = Metric.of(results)
    blocks: list[Block] = [
        *_tables(rows, raw, tested, metric, _others(results, metric)),
        ("note", _caption(rows, raw, tested, metric)),
        ("legend", legend_of([row["method"] for row in raw])),
        ("figures", _plots(rows, raw, tested, metric)),
    ]
    return Section("comparison", "Methods", "Methods side by side", blocks)


def _others(results: Results, metric: Metric) -> list[tuple[str, ...]]:
    """Return the rows of models without features: a linear one, and gradient boosting."""
    found, linear = [], metric.value(section(results, "linear"))
    if linear is not None:
        found.append(("linear model on the raw columns", metric.show(linear), *[NONE] * 4))
    boosted = section(results, "boosting")
    if (value := metric.value(boosted)) is not None:
        speed, fit = (finite(boosted.get(k)) for k in ("microseconds_per_row", "fit_seconds"))
        name = f"{title_of('boosting')}, {count(boosted.get('n_rows') or 0)} rows"
        costs = (number(speed), NONE, seconds(fit))
        found.append((name, metric.show(value), NONE, *costs))
    return found


def winners(here: Sequence[Measured], metric: Metric) -> str:
    """Say of maps with as many features who is most accurate, nearest to the kernel, fastest."""
    said = []
    right = best_accuracy(here)
    if right is not None:
        best = metric.best[:1].upper() + metric.best[1:]
        said.append(f"{best}: {right.title} ({metric.show(right.accuracy)})")
    near = min((r for r in here if r.error is not None), key=lambda r: r.error or 0, default=None)
    if near is not None:
        said.append(f"Lowest kernel error: {near.title} ({number(near.error)})")
    fast = [r for r in here if r.micros in _least([r.micros for r in here], SAME_SPEED)]
    if fast and 2 * len(fast) <= len(here):
        names = " and ".join(row.title for row in fast)
        said.append(f"Fastest: {names} ({micros(fast[0].micros)} per row)")
    return "; ".join(said)


def _tables(
    rows: Sequence[Measured],
    raw: Sequence[dict[str, Any]],
    tested: int,
    metric: Metric,
    others: Sequence[Sequence[Any]],
) -> list[Block]:
    """Return one table per number of features; of several, all but one are folded."""
    sizes = sorted({row.features for row in rows})
    methods = [row["method"] for row in raw]
    symbols = dict(zip(dict.fromkeys(methods), legend_of(methods), strict=True))
    made = [
        _table([r for r in rows if r.features == n], symbols, tested, metric, others) for n in sizes
    ]
    if len(sizes) == 1:
        return made[0]
    top = best_accuracy(rows)
    shown = top.features if top else sizes[-1]
    parts = [
        Titled(f"With {count(n)} features", blocks, open=n == shown)
        for n, blocks in zip(sizes, made, strict=True)
    ]
    return [("folded", parts)]


def _table(
    here: Sequence[Measured],
    symbols: Mapping[str, Any],
    tested: int,
    metric: Metric,
    others: Sequence[Sequence[Any]],
) -> list[Block]:
    body: list[Sequence[Any]] = [
        (Cell(row.title, symbol=symbols[row.method]), *_values(row, here, tested, metric))
        for row in sorted(here, key=lambda row: -(row.accuracy or 0.0))
    ]
    body += others
    caption = f"What was measured of each method with {count(here[0].features)} features"
    table = ReportTable(("method", metric.word, *HEAD), body, caption, "compare")
    return [("text", winners(here, metric)), ("table", table)]


def _values(row: Measured, here: Sequence[Measured], tested: int, metric: Metric) -> list[Any]:
    top = best_accuracy(here)
    accurate = [
        r.accuracy
        for r in here
        if r.accuracy is not None
        and top
        and metric.as_good(r.accuracy, top.accuracy or 0.0, tested)
    ]
    return [
        _marked(row.accuracy, accurate, here, metric.show),
        _marked(row.error, _least([r.error for r in here]), here, number),
        _marked(row.micros, _least([r.micros for r in here], SAME_SPEED), here, number),
        _marked(row.size, _least([r.size for r in here]), here, size),
        _marked(row.fit_seconds, _least([r.fit_seconds for r in here]), here, seconds),
    ]


def _least(values: Sequence[float | None], room: float = 1.0) -> list[float]:
    known = [value for value in values if value is not None]
    most = min(known, default=0.0) * room
    return [value for value in known if value <= most]


def _marked(
    value: float | None, first: list[float], here: Sequence[Measured], show: Callable[[Any], str]
) -> Cell | str:
    """Mark a value that is among the best, unless most are."""
    few = value in first and 2 * len(first) <= len(here)
    return Cell(show(value), best=True) if few else show(value)


def _caption(
    rows: Sequence[Measured], raw: Sequence[dict[str, Any]], tested: int, metric: Metric
) -> str:
    top = best_accuracy(rows)
    said = "A star marks the best of the maps with as many features, unless most of them share it."
    if top is not None and tested:
        error = metric.standard_error(top.accuracy or 0.0, tested)
        what = metric.words("Accuracies were", f"The {metric.word} was")
        said += (
            f" {what} measured on {count(tested)} held-out rows, so each is uncertain by "
            f"about {metric.show_difference(error, 2)} (one standard error); those that differ by "
            "less than the error of a difference are all marked."
        )
    name = f"{metric.scoring}_spread"
    varied = [v for row in raw if (v := finite(row.get(name))) is not None]
    if varied:
        said += (
            " All figures are means of several repeats with other rows held out and other random "
            f"features, between which {metric.words('accuracies', 'it')} varied by up to "
            f"{metric.show_difference(max(varied), 2)} (standard deviation)."
        )
    if any(row.method == "compressed-labels" for row in rows):
        said += (
            " A map that looks at labels no longer approximates the kernel alone: its kernel "
            "error is not what it was made for."
        )
    if any(row.method == "learned" for row in rows):
        said += (
            " Learned features do not approximate the kernel, so they have no kernel error; they "
            "are judged with the linear model that they were trained with, and their time to fit "
            "includes it."
        )
    return said


def _plots(
    rows: Sequence[Measured], raw: Sequence[dict[str, Any]], tested: int, metric: Metric
) -> list[Titled]:
    margins = {
        row.method: metric.standard_error(row.accuracy, tested)
        for row in rows
        if row.accuracy is not None
    }
    score, name = metric.scoring, metric.word[:1].upper() + metric.word[1:]
    single = len({row.features for row in rows}) == 1
    by = f"with {count(rows[0].features)} features" if single else "against features"
    drawn = {
        f"{name} {by}": against_features(raw, score, margins),
        f"Kernel error {by}": against_features(raw, "kernel_error"),
        f"{name} against time per row": one_against_other(raw, "microseconds_per_row", score),
        f"{name} against size of the map": one_against_other(raw, "model_bytes", score),
    }
    return [Titled(title, [("chart", chart)]) for title, chart in drawn.items()]


def selection(results: Results) -> Section | None:
    """Return the error along the selection and the weights; None when nothing was selected."""
    found = section(results, "selection")
    drawn = [figure for figure in (_path(found), _weights(found)) if figure is not None]
    blocks: list[Block] = [("figures", drawn)]
    return (
        Section("selection", "Features", "How the features were chosen", blocks) if drawn else None
    )


def _path(found: dict[str, Any]) -> Titled | None:
    sizes = [finite(value) or 0.0 for value in found.get("sizes") or ()]
    sampled, heldout = list(found.get("sampled") or ()), list(found.get("heldout") or ())
    if not sizes or not (sampled or heldout):
        return None
    chosen, refined = finite(found.get("chosen_size")), finite(found.get("refined_heldout"))
    said = "The relative error of the kernel on pairs the selection looked at, and on pairs it did "
    said += "not see; both should fall together."
    known = dict(zip(sizes, map(finite, heldout), strict=False))
    before = known.get(chosen) if chosen is not None else None
    if before is not None:
        said += f" At {count(chosen)} features it was {number(before)} on unseen pairs"
        said += f", and {number(refined)} after refinement." if refined is not None else "."
    chart = charts.error_path(sizes, sampled, heldout, chosen, refined)
    return Titled("Error along the selection", [("chart", chart), ("note", said)])


def _weights(found: dict[str, Any]) -> Titled | None:
    weights = [w for value in found.get("weights") or () if (w := finite(value)) is not None]
    if not weights:
        return None
    falling = sorted(weights, reverse=True)
    total, tenth = sum(falling), max(1, len(falling) // 10)
    said = "Each feature counts in proportion to its weight."
    if total > 0 and len(falling) >= 10:
        said = (
            f"The heaviest tenth of the features carries {share(sum(falling[:tenth]) / total, 0)} "
            "of the weight; plain random features would all weigh the same."
        )
    chart = charts.sorted_area(weights, "features, by weight", "weight")
    return Titled("Weights of the kept features", [("chart", chart), ("note", said)])


def confusion(results: Results) -> Section | None:
    """Return which classes are taken for which; None when there is no matrix."""
    found = section(results, "confusion")
    labels = [str(label) for label in found.get("labels") or ()]
    matrix = [[finite(value) or 0.0 for value in row] for row in found.get("matrix") or ()]
    n = len(labels)
    if n < 2 or len(matrix) != n or any(len(row) != n for row in matrix):
        return None
    blocks: list[Block] = [
        ("figures", [_drawn(labels, matrix), _largest(labels, matrix), each_class(labels, matrix)])
    ]
    return Section("confusion", "Confusions", "Which classes are confused", blocks)


def _drawn(labels: list[str], matrix: Matrix) -> Titled:
    wrong = [sum(row) - row[k] for k, row in enumerate(matrix)]
    kept = sorted(sorted(range(len(matrix)), key=lambda k: -wrong[k])[:MOST_DRAWN])
    names = [labels[k] for k in kept]
    shares = [[matrix[i][j] / (sum(matrix[i]) or 1.0) for j in kept] for i in kept]
    cells = drawing.Cells(
        shares,
        names,
        names,
        [[_percent(value) for value in row] for row in shares],
        [
            [f"{labels[i]} taken for {labels[j]}: {count(matrix[i][j])} rows" for j in kept]
            for i in kept
        ],
        span=(0.0, 1.0),
    )
    label = f"Shares of {count(len(labels))} true classes by predicted class; the diagonal is right"
    chart = drawing.heat_map(label, cells, "true class", "predicted class")
    blocks: list[Block] = [("chart", chart), ("note", _confusion_words(len(labels), len(kept)))]
    return Titled("Rows by true and predicted class", blocks)


def _percent(value: float) -> str:
    return "" if value == 0 else "<1" if value < 0.005 else f"{100 * value:.0f}"


def _confusion_words(n: int, drawn: int) -> str:
    said = "Each line holds the rows of one true class; the stronger the colour, the larger the "
    said += "share of them, in percent." if drawn <= drawing.MOST_WRITTEN else "share of them."
    if drawn > drawing.MOST_NAMED:
        said += " Classes are in the order of their names, which would be too many to write."
    if drawn < n:
        said += f" Of {count(n)} classes the {drawn} with the most wrong answers are drawn."
    return said


def _largest(labels: list[str], matrix: Matrix) -> Titled:
    pairs = [
        (n, i, j) for i, row in enumerate(matrix) for j, n in enumerate(row) if i != j and n > 0
    ]
    pairs.sort(key=lambda found: (-found[0], found[1], found[2]))
    title = "Largest confusions"
    if not pairs:
        return Titled(title, [("text", "Every held-out row was classified right.")])
    rows = [
        (labels[i], labels[j], count(n), share(n / (sum(matrix[i]) or 1.0)))
        for n, i, j in pairs[:MOST_LISTED]
    ]
    head = ("true class", "taken for", "rows", "of the class")
    return Titled(title, [("table", ReportTable(head, rows, title, "confusions", wordy=2))])


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


def points(results: Results) -> list[Block]:
    """Return predicted against true numbers, and what is left, of each target."""
    points = [tuple(map(finite, point)) for point in results.get("points") or ()]
    names = [str(row.get("target", "?")) for row in results.get("targets") or ()]
    k, figures, n_rows = max(len(names), 1), [], 0
    for target in range(min(k, MOST_TARGETS)):
        pairs = [(point[target], point[k + target]) for point in points if len(point) == 2 * k]
        known = [
            {"true value": a, "predicted value": b, "true less predicted": a - b}
            for a, b in pairs
            if a is not None and b is not None
        ]
        if known:
            n_rows = len(known)
            figures += _drawn_points(known, f"{names[target]}: " if names else "")
    if not figures:
        return []
    said = f"{count(n_rows)} of the rows held out; on the line nothing is left to explain."
    if k > MOST_TARGETS:
        said += f" The first {MOST_TARGETS} of {count(k)} targets are drawn."
    return [("figures", figures), ("note", said)]


def _drawn_points(known: list[dict[str, Any]], name: str) -> list[Titled]:
    equal = charts.scatter(known, "true value", "predicted value", "equal")
    left = charts.scatter(known, "predicted value", "true less predicted", "zero")
    titles = (f"{name}Predicted against true values", f"{name}What is left")
    return [Titled(title, [("chart", c)]) for title, c in zip(titles, (equal, left), strict=True)]
