"""All charts, drawn by matplotlib from plain numbers: for `.plot()`, notebooks and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rfcdask.display.style import (
    LIGHT,
    NONE,
    count,
    cut,
    cut_apart,
    finite,
    number,
    printable,
    tick,
)
from rfcdask.display.svg import PAPER, WIDTH, inline_svg

if TYPE_CHECKING:
    from markupsafe import Markup

Tips = dict[Any, list[str]]  # for artists of matplotlib, one text for each of their points or cells
Rows = Sequence[Mapping[str, Any]]
BLUE, ORANGE, GREY = LIGHT[0], LIGHT[1], LIGHT[7]
MOST_MARKERS = 40  # a line with more points is drawn without markers
MOST_STEPS = 250  # of more values an area shows every so many
MOST_WRITTEN = 12  # up to so many rows and columns the cells of a heat map hold their numbers
MOST_NAMED = 30  # up to so many a heat map names them


@dataclass(frozen=True)
class Chart:
    """A chart that is ready to be drawn, into given axes or as SVG."""

    label: str  # what the chart shows, for those who cannot see it
    draw: Callable[[Any], Tips]  # into matplotlib axes; returns the texts of points and cells
    height: float = 226.0  # of the SVG, in points

    def plot(self, ax: Any = None) -> Any:
        """Draw into the given axes, or into those of a new figure of pyplot; return the axes."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(5.0, 5.0 * self.height / WIDTH), layout="constrained")
        self.draw(ax)
        return ax

    def svg(self) -> Markup:
        """Return the chart as an SVG element."""
        return inline_svg(self.draw, self.label, self.height)


def clean(name: Any) -> str:
    """Return a name as it can stand in a chart: one line, and never empty."""
    return " ".join(printable(str(name)).split()) or NONE


def error_path(
    sizes: Sequence[float],
    sampled: Sequence[Any],
    heldout: Sequence[Any],
    chosen: float | None = None,
    refined: float | None = None,
) -> Chart:
    """Draw the error along a selection, with the kept size and the error after refinement.

    Parameters
    ----------
    sizes, sampled, heldout : sequences
        Numbers of features, and the relative errors at each on both kinds of pairs.
    chosen : float, optional
        The size that was kept.
    refined : float, optional
        The held-out error once the kept features were refined.
    """
    after = finite(refined) if chosen is not None else None

    def draw(ax: Any) -> Tips:
        marker = "o" if len(sizes) == 1 else None
        for errors, name, look in (
            (heldout, "held-out pairs", {"color": BLUE}),
            (sampled, "sampled pairs", {"color": GREY, "ls": "--"}),
        ):
            known = [_number(error) for error in errors]
            ax.plot(sizes[: len(known)], known[: len(sizes)], marker=marker, label=name, **look)
        tips: Tips = {}
        if chosen is not None:
            _mark_size(ax, chosen, before_half=chosen < (sizes[0] + sizes[-1]) / 2)
        if after is not None:
            (point,) = ax.plot([chosen], [after], "D", color=ORANGE, label="after refinement")
            tips[point] = [f"after refinement, {count(chosen)} features: {number(after)}"]
        ax.set(xlabel="features kept", ylabel="relative error, pairs of rows")
        set_log(ax.yaxis, [*heldout, *sampled, after])
        legend(ax, loc="upper right", borderaxespad=1.4)
        return tips

    kept = f"; {count(chosen)} features were kept" if chosen is not None else ""
    return Chart(f"Relative kernel error against the number of features{kept}", draw)


def _mark_size(ax: Any, chosen: float, *, before_half: bool) -> None:
    ink = ax.xaxis.label.get_color()
    ax.axvline(chosen, color=ink, alpha=0.6, lw=1, zorder=0)
    ax.annotate(
        f"chosen: {count(chosen)}",
        (chosen, 0.0),
        (4 if before_half else -4, 5),
        xycoords=ax.get_xaxis_transform(),
        textcoords="offset points",
        ha="left" if before_half else "right",
        fontsize="small",
    )


def curve(
    x: Sequence[float],
    y: Sequence[Any],
    xlabel: str,
    ylabel: str,
    *,
    log: bool = False,
    highest: float | None = None,
) -> Chart:
    """Draw one line, with its points while they are few.

    Parameters
    ----------
    x, y : sequences
    xlabel, ylabel : str
    log : bool
        Logarithmic axis of x; around 0 it is linear.
    highest : float, optional
        The axis of y then goes from 0 to a little above this.
    """

    def draw(ax: Any) -> Tips:
        few = len(x) <= MOST_MARKERS
        values = [_number(value) for value in y]
        (line,) = ax.plot(x, values, color=BLUE, marker="o" if few else None)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        if log and not set_log(ax.xaxis, x):
            ax.set_xscale("symlog")
            plain_ticks(ax.xaxis, tick)
        elif not log and all(float(value).is_integer() for value in x):
            ax.xaxis.get_major_locator().set_params(integer=True)
        if highest is not None:
            ax.set_ylim(0, 1.05 * highest)
        # A point that is not a number is not drawn and has no text.
        known = [(a, b) for a, b in zip(x, values, strict=True) if b == b]
        texts = [f"{xlabel} {number(a)}: {number(b)}" for a, b in known]
        return {line: texts} if few else {}

    return Chart(f"{ylabel} against {xlabel}", draw)


def training(history: Rows) -> Chart:
    """Draw the mean loss of each epoch, on rows learned from and on rows held out."""

    def draw(ax: Any) -> Tips:
        tips: Tips = {}
        kinds = [
            ("loss", "training rows", "o-", BLUE),
            ("held_out_loss", "held-out rows", "D-", ORANGE),
        ]
        for key, name, form, colour in kinds:
            points = [(entry["epoch"], _number(entry[key])) for entry in history if key in entry]
            if points:
                (line,) = ax.plot(*columns(points), form, color=colour, label=name)
                known = [(x, y) for x, y in points if y == y]
                tips[line] = [f"{name}, epoch {count(x)}: {number(y)}" for x, y in known]
        ax.set(xlabel="epoch", ylabel="mean loss")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if len(tips) > 1:
            legend(ax)
        return tips

    return Chart("Mean loss of each epoch", draw)


def bars(
    names: Sequence[str], values: Sequence[float], xlabel: str, shown: Sequence[str] = ()
) -> Chart:
    """Draw one bar per name, the first at the top, with its number behind it."""

    def draw(ax: Any) -> Tips:
        drawn = ax.barh(range(len(names)), values, color=BLUE, height=0.7)
        rows_axis(ax, [cut(str(name), 18) for name in names])
        ax.invert_yaxis()
        texts = list(shown) or [count(value) for value in values]
        ax.bar_label(drawn, texts, padding=4, fontsize="small")
        ax.set(xlabel=xlabel)
        ax.margins(x=0.15)  # room for the numbers
        ax.xaxis.set_major_locator(ticker().MaxNLocator(3))
        plain_ticks(ax.xaxis, tick)
        return {
            bar: [f"{clean(name)}: {text}"]
            for bar, name, text in zip(drawn, names, texts, strict=True)
        }

    return Chart(
        f"{xlabel} of each: {', '.join(clean(name) for name in names[:20])}",
        draw,
        44 + 20.0 * len(names),
    )


def sorted_area(values: Sequence[float], xlabel: str, ylabel: str) -> Chart:
    """Draw values, largest first, as steps that touch; of many, every so many."""
    falling = sorted((float(value) for value in values), reverse=True)
    kept = thinned(len(falling), MOST_STEPS)

    def draw(ax: Any) -> Tips:
        ax.stairs([falling[k] for k in kept], [*kept, len(falling)], fill=True, color=BLUE)
        ax.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, len(falling)))
        ax.xaxis.get_major_locator().set_params(integer=True)
        return {}

    return Chart(f"{ylabel} of {count(len(falling))} {xlabel}", draw)


def scatter(points: Rows, x: str, y: str, line: str) -> Chart:
    """Draw one dot per point, and where both are equal or `y` is zero as a line."""
    across, upward = ([float(point[name]) for point in points] for name in (x, y))

    def draw(ax: Any) -> Tips:
        ends = [min(across), max(across)]
        ax.plot(ends, ends if line == "equal" else [0.0, 0.0], color=GREY, lw=1)
        dots = ax.scatter(across, upward, s=6, color=BLUE, alpha=0.5, linewidths=0)
        dots.set_rasterized(False)
        ax.set(xlabel=x, ylabel=y)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(ticker().MaxNLocator(4))
            plain_ticks(axis, tick)
        return {}

    return Chart(f"{y} against {x} of {count(len(points))} rows held out", draw)


def thinned(n: int, most: int) -> list[int]:
    """Return at most `most` evenly spread positions among `n`, with the first and the last."""
    if n <= most:
        return list(range(n))
    return sorted({round(k * (n - 1) / (most - 1)) for k in range(most)})


def stacks(parts: Mapping[str, Mapping[str, float]], xlabel: str) -> Chart:
    """Draw one bar per name, made of its parts; a part looks the same in every bar."""

    def draw(ax: Any) -> Tips:
        starts = dict.fromkeys(parts, 0.0)
        kinds = dict.fromkeys(part for bar in parts.values() for part in bar)
        for k, part in enumerate(kinds):
            widths = [bar.get(part, 0.0) for bar in parts.values()]
            # More parts than colours: the second time round they are hatched.
            look = {"color": LIGHT[k % len(LIGHT)], "hatch": "///" if k >= len(LIGHT) else None}
            ax.barh(range(len(parts)), widths, left=list(starts.values()), label=part, **look)
            starts = {name: starts[name] + w for name, w in zip(parts, widths, strict=True)}
        rows_axis(ax, list(parts))
        ax.set(xlabel=xlabel)
        # Below the bars, where it covers none.
        legend(ax, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.35))
        return {}

    lines = -(-len({part for bar in parts.values() for part in bar}) // 2)
    return Chart(f"{xlabel} by its parts", draw, 60 + 30.0 * len(parts) + 18.0 * lines)


@dataclass(frozen=True)
class Cells:
    """What a heat map shows: values of rows and columns, not a number where there is none."""

    values: Sequence[Sequence[float]]
    rows: Sequence[str]  # their names
    columns: Sequence[str]
    written: Sequence[Sequence[str]] | None = None  # what stands in each cell
    tips: Sequence[Sequence[str]] | None = None  # what is shown when the pointer rests on it
    marked: tuple[int, int] | None = None  # the cell to frame
    span: tuple[float, float] | None = None  # of the weakest and the strongest shade


def heat_map(label: str, cells: Cells, down: str, along: str, *, tall: float = 1.0) -> Chart:
    """Draw a table of numbers as shaded cells, with the numbers in them while these are few.

    Parameters
    ----------
    label : str
        What the chart shows.
    cells : Cells
    down, along : str
        What the rows and the columns are.
    tall : float
        Height of a cell in units of its width.
    """
    n, m = len(cells.rows), len(cells.columns)
    small = max(n, m) <= MOST_WRITTEN

    def draw(ax: Any) -> Tips:
        low, high = cells.span or _range([v for row in cells.values for v in row])
        mesh = ax.pcolormesh(
            [[_number(value) for value in row] for row in cells.values],
            cmap=_shades(), vmin=low, vmax=high, rasterized=not small,
        )  # fmt: skip
        ax.set(xlabel=along, ylabel=down, frame_on=False)
        ax.invert_yaxis()
        ax.grid(False)
        ax.tick_params(length=0, bottom=False, labelbottom=False, labeltop=True)
        ax.xaxis.set_label_position("top")
        _name_cells(ax, cells)
        if small and cells.written:
            _write_cells(ax, cells, (low + high) / 2)
        if cells.marked:
            _frame_cell(ax, *cells.marked)
        return {mesh: [tip for row in cells.tips for tip in row]} if small and cells.tips else {}

    return Chart(label, draw, 60 + min(280.0 * tall * n / m, 36.0 * n, 300.0))


def _name_cells(ax: Any, cells: Cells) -> None:
    """Name rows and columns while they are few; names of columns that are long stand upright."""
    if max(len(cells.rows), len(cells.columns)) > MOST_NAMED:
        ax.set(xticks=[], yticks=[])
        return
    rows, columns = (
        cut_apart([clean(x) for x in side], 10) for side in (cells.rows, cells.columns)
    )
    size = {"fontsize": "small" if max(len(rows), len(columns)) <= 15 else 6, "parse_math": False}
    upright = max(map(len, columns)) * len(columns) > 38
    turned = {"rotation": 90, "rotation_mode": "anchor", "ha": "left", "va": "center"}
    ax.set_yticks([k + 0.5 for k in range(len(rows))], rows, **size)
    ax.set_xticks(
        [k + 0.5 for k in range(len(columns))], columns, **size, **(turned if upright else {})
    )


def _write_cells(ax: Any, cells: Cells, middle: float) -> None:
    for i, row in enumerate(cells.values):
        for j, value in enumerate(row):
            strong = {"color": PAPER} if value > middle else {}
            text = cells.written[i][j] if cells.written else ""
            if text:
                place = {"ha": "center", "va": "center", "fontsize": "small"}
                ax.text(j + 0.5, i + 0.5, text, **place, **strong)


def _frame_cell(ax: Any, row: int, column: int) -> None:
    from matplotlib.patches import Rectangle

    ink = ax.xaxis.label.get_color()
    ax.add_patch(
        Rectangle((column + 0.03, row + 0.03), 0.94, 0.94, fill=False, edgecolor=ink, lw=2)
    )


def _shades() -> Any:
    """Return shades of one colour from nearly clear to full, for light and dark backgrounds."""
    from matplotlib.colors import ListedColormap, to_rgb

    shades = [(*to_rgb(BLUE), 0.04 + 0.96 * k / 63) for k in range(64)]
    return ListedColormap(shades, "rfcdask").with_extremes(bad=(*to_rgb(BLUE), 0.02))


def _known(values: Sequence[Any]) -> list[float]:
    return [found for value in values if (found := finite(value)) is not None]


def _range(values: Sequence[Any]) -> tuple[float, float]:
    known = _known(values) or [0.0]
    low, high = min(known), max(known)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _number(value: Any) -> float:
    found = finite(value)
    return float("nan") if found is None else found


def columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the coordinates of points as matplotlib takes them."""
    return [x for x, _ in points], [y for _, y in points]


def ticker() -> Any:
    """Return matplotlib's module of tick locators and formatters."""
    from matplotlib import ticker

    return ticker


def legend(ax: Any, **more: Any) -> None:
    """Add a legend whose names are shown as they are written, also where they begin with "_"."""
    named = [line for line in ax.lines if not line.get_label().startswith("_child")]
    given = {} if ax.patches else {"handles": named}
    legend = ax.legend(**given, **({"frameon": False, "fontsize": "small"} | more))
    for text in legend.get_texts():
        text.set_parse_math(False)


def rows_axis(ax: Any, names: Sequence[str]) -> None:
    """Name the rows of a chart that has one value or bar per row."""
    ax.set_yticks(range(len(names)), [clean(name) for name in names], parse_math=False)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.yaxis.grid(False)


def set_log(axis: Any, values: Sequence[Any], base: int = 10, most: int = 5) -> bool:
    """Make an axis logarithmic if all values are positive; tell whether it is."""
    known = _known(values)
    if not known or min(known) <= 0:
        return False
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    ratio = max(known) / min(known)
    steps = (1.0,) if base == 2 or ratio > 300 else (1.0, 3.0) if ratio > 30 else (1.0, 2.0, 5.0)
    # Within a few multiples there may be no power to name: round numbers then.
    narrow = ratio < (8 if base == 2 else 5)
    log, linear = ticker().LogLocator(base, steps, numticks=most), ticker().MaxNLocator(most - 2)
    axis.set_major_locator(linear if narrow else log)
    plain_ticks(axis, tick)
    return True


def plain_ticks(axis: Any, show: Callable[[float], str]) -> None:
    """Write the numbers of an axis without mathematical notation, and no ticks between them."""
    axis.set_major_formatter(lambda value, _: show(value))
    axis.set_minor_locator(ticker().NullLocator())
