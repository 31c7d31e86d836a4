"""The figures of the experiments: small SVG files, one colour per method in all of them."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@contextlib.contextmanager
def one_figure(
    out: Path, name: str, titles: Sequence[str], *, columns: int = 3
) -> Iterator[list[Any]]:
    """Give one panel for each title, then write the figure as a small SVG file."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    # Text as text keeps the files small; a fixed salt keeps the same figure the same bytes.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "rfcdask", "font.size": 9}
    columns = min(columns, len(titles))
    lines = math.ceil(len(titles) / columns)
    with plt.rc_context(style):
        size = max(3.3 * columns, 5.5), (2.7 if columns > 1 else 3.6) * lines
        figure, axes = plt.subplots(
            lines, columns, figsize=size, squeeze=False, layout="constrained"
        )  # fmt: skip
        panels = list(axes.flat)
        for panel in panels[len(titles) :]:
            panel.set_axis_off()
        for panel, title in zip(panels, titles, strict=False):
            panel.set_title(title, fontsize=9)
            panel.grid(alpha=0.25, linewidth=0.5)
        yield panels[: len(titles)]
        handles = {
            text: handle
            for panel in panels
            for handle, text in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=min(1 + columns, 4),
            fontsize=8,
        )
        for panel in panels:
            _label_log_scale(panel.xaxis)
            _label_log_scale(panel.yaxis)
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(handles) / 4))
        path = out / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
    drawn = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r' d="[^"]*"', _shorter, drawn), encoding="utf-8")


def _shorter(places: re.Match[str]) -> str:
    """Return the places of a line to a hundredth of a point: they are most of a file."""
    return re.sub(r"(\.\d\d)\d+", r"\1", places[0])


def _label_log_scale(axis: Any) -> None:
    """Label more than the powers of ten where an axis has few of them, and none of its own."""
    from matplotlib.ticker import FixedLocator

    if axis.get_scale() != "log" or isinstance(axis.get_major_locator(), FixedLocator):
        return
    low, high = sorted(axis.get_view_interval())
    if high / low < 100:
        steps = (1, 2, 5) if high / low > 4 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        ticks = [step * 10.0**power for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        axis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)  # most of the bytes of a file


# One colour per method in all figures; any two differ for colour-blind readers too (the colours
# of the package's own charts), and markers and dashes tell lines apart without colour.
STYLES: dict[str, Row] = {
    "RFM": {"color": "#747575", "marker": "o"},
    "RFM-JL": {"color": "#bc8954", "marker": "^"},
    "RFM-FW": {"color": "#677be9", "marker": "s"},
    "RFM-GIGA": {"color": "#29a2b5", "marker": "v"},
    "compressed": {"color": "#1f4fd8", "marker": "o", "linewidth": 2},
    "compressed, paired": {"color": "#1f4fd8", "marker": "x", "linestyle": "--"},
    "compressed, labels": {"color": "#b8480c", "marker": "D"},
    "learned": {"color": "#4a0a14", "marker": "*", "linewidth": 2, "markersize": 8},
    "Nyström": {"color": "#92259c", "marker": "s", "linestyle": "--"},
    "Nyström, RPCholesky": {"color": "#6e3049", "marker": "^", "linestyle": "--"},
    "best of this rank": {"color": "black", "linestyle": ":"},
    "exact kernel SVM": {"color": "black", "linestyle": "-."},
    "S random pairs": {"color": "#29a2b5", "marker": "v"},
    "S random pairs, 500 candidates": {"color": "#29a2b5", "marker": "v", "linestyle": ":"},
    "all pairs of m rows": {"color": "#1f4fd8", "marker": "o"},
    "project": {"color": "#bc8954", "marker": "D", "linestyle": ":"},
    "select": {"color": "#1f4fd8", "marker": "o"},
    "ridge": {"color": "black", "marker": "s", "linestyle": "--"},
    "score": {"color": "black", "marker": "^", "linestyle": ":"},
    "PCA": {"color": "#b8480c", "marker": "D", "linestyle": "--"},
    "SVM": {"color": "#4a0a14", "marker": "x", "linestyle": "--"},
    "linear": {"color": "black", "linestyle": ":"},
    "boosting": {"color": "black", "linestyle": "--"},
}


# What varies within a method is told by marker and dashes; draws have colours of their own.
_SOLVERS = {"frank-wolfe": "#677be9", "giga": "#29a2b5", "pursuit": "#b8480c"}
_DRAWS = {
    "iid": "#747575", "halton": "#1f4fd8", "sobol": "#b8480c", "orthogonal": "#92259c",
    "fastfood": "#bc8954",
}  # fmt: skip


def style_of(name: str) -> Row:
    """Return how the line of a method is drawn."""
    head, *rest = name.split(", ")
    style: Row = {"marker": ".", "linewidth": 1.2, "markersize": 4}
    if head in _SOLVERS:
        style |= {
            "color": _SOLVERS[head],
            "marker": "o" if "kernel" in rest else "x",
            "linestyle": "-" if "refit" in rest else ":",
        }
    elif head in _DRAWS:
        style |= {
            "color": _DRAWS[head],
            "marker": "v" if rest else "o",
            "linestyle": "-" if rest else ":",
        }
    return style | STYLES.get(name, {})


def draw_lines(
    panel: Any, summary: list[Row], x: str, *, line: str = "method", **labels: str
) -> None:
    """Draw means over trials against `x`, with one standard deviation, one line per method."""
    for name in dict.fromkeys(row[line] for row in summary):
        points = sorted((row for row in summary if row[line] == name), key=lambda row: row[x])
        spread = [0.0 if math.isnan(row["std"]) else row["std"] for row in points]
        panel.errorbar(
            [row[x] for row in points], [row["mean"] for row in points], spread,
            label=name, capsize=2, elinewidth=0.8, **style_of(name),
        )  # fmt: skip
    panel.set_xlabel(labels.get("xlabel", x))
    panel.set_ylabel(labels.get("ylabel", ""))


def log_axis(panel: Any, values: Iterable[float]) -> None:
    """Make the axis of x logarithmic, with the values themselves as its ticks."""
    ticks = sorted(set(values))
    near = (ticks[-1] / ticks[0]) ** 0.12 if ticks else 1  # labels nearer than that would overlap
    names = [_short(value) for value in ticks]
    for place in range(1, len(ticks)):
        if ticks[place] < near * ticks[place - 1] and names[place - 1]:
            names[place] = ""
    panel.set_xscale("log")
    panel.set_xticks(ticks, names)
    panel.set_xticks([], minor=True)


def _short(value: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit and len(f"{value / unit:g}") <= 4:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
