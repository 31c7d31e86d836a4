"""What charts are drawn with: axes, shaded cells, and inline SVG for light and dark pages.

matplotlib draws a chart; what it writes is then reduced to paths and texts without ids or style
sheets, whose colours are `currentColor` or CSS variables: the page around it decides how it looks.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from rfcdask.display import LIGHT, NONE, css_colour, cut_apart, finite, printable, tick

if TYPE_CHECKING:
    from markupsafe import Markup

Tips = dict[Any, list[str]]  # for artists of matplotlib, one text for each of their points or cells
BLUE = LIGHT[0]
WIDTH = 340.0  # width of every chart in points; pages scale it
INK = "#010203"  # stands for the colour of the text around the chart
PAPER = "#fefdfc"  # stands for a colour that is readable on filled areas
FONT_SIZE = 12
_COLOURS = {
    INK: "currentColor",
    PAPER: "var(--rfcdask-on-fill,#fff)",
    **{colour: css_colour(number) for number, colour in enumerate(LIGHT)},
}
_SETTINGS: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "font.size": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "lines.linewidth": 1.8,
    "figure.constrained_layout.w_pad": 0.02,
    "figure.constrained_layout.h_pad": 0.02,
    "svg.fonttype": "none",
    "svg.hashsalt": "rfcdask",
    "path.simplify_threshold": 0.5,
    "text.parse_math": False,
}
_KEPT = [
    *("d", "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"),
    *("opacity", "x", "y", "width", "height", "transform", "text-anchor", "font-size", "href"),
    "image-rendering",
]
"""Attributes an element keeps, in this order."""
# matplotlib's settings belong to the whole process: one chart at a time.
_LOCK = threading.Lock()
MOST_WRITTEN = 12  # up to so many rows and columns the cells of a heat map hold their numbers
MOST_NAMED = 30  # up to so many a heat map names them
_SVG = "{http://www.w3.org/2000/svg}"


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
        from markupsafe import Markup, escape

        written, texts = self._written()
        root = ElementTree.fromstring(written)
        paths = (path for defs in root.iter(f"{_SVG}defs") for path in defs.iter(f"{_SVG}path"))
        symbols = {path.get("id", ""): path.get("d", "") for path in paths}
        shown = _visible(root, symbols, texts)
        body = "".join(ElementTree.tostring(element, encoding="unicode") for element in shown)
        return Markup(
            f'<svg class="chart" role="img" aria-label="{escape(printable(self.label))}" '
            f'viewBox="0 0 {_short(WIDTH)} {_short(self.height)}" stroke-linejoin="round" '
            'font-family="system-ui,sans-serif" style="display:block;width:100%;height:auto">'
            f"{body}</svg>"
        )

    def _written(self) -> tuple[bytes, dict[str, list[str]]]:
        """Return what matplotlib writes, and the texts by the id of their group in it."""
        import matplotlib as mpl
        from matplotlib.figure import Figure

        file = io.BytesIO()
        with _LOCK, mpl.rc_context(), warnings.catch_warnings():
            # The browser has the glyphs that matplotlib's own font lacks.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            mpl.rcdefaults()  # whatever style the caller plots with
            mpl.rcParams.update(_SETTINGS)
            figure = Figure(figsize=(WIDTH / 72, self.height / 72), layout="constrained")
            found = self.draw(figure.subplots())
            for number, artist in enumerate(found):
                artist.set_gid(f"texts-{number}")
            figure.savefig(file, format="svg", metadata={"Date": None}, dpi=144)
        return file.getvalue(), {f"texts-{k}": texts for k, texts in enumerate(found.values())}


def _visible(
    parent: ElementTree.Element, symbols: dict[str, str], texts: dict[str, list[str]]
) -> Iterator[ElementTree.Element]:
    """Yield the visible elements of a drawing in their order, without groups around them."""
    for node in parent:
        tag = node.tag.rpartition("}")[2]
        if tag == "g":
            inside = list(_visible(node, symbols, texts))
            titles = texts.get(node.get("id", ""), ())  # of the last elements, which are its points
            for point, title in zip(reversed(inside), reversed(titles), strict=False):
                ElementTree.SubElement(point, "title").text = printable(title)
            yield from inside
        elif (element := _plain(tag, node, symbols)) is not None:
            yield element


def _plain(
    tag: str, node: ElementTree.Element, symbols: dict[str, str]
) -> ElementTree.Element | None:
    """Return an element that needs no other one, or None for one that draws nothing."""
    if tag not in ("path", "use", "text", "image"):
        return None
    style = _style(node)
    given = {name.rpartition("}")[2]: value for name, value in node.attrib.items()} | style
    if tag == "use":  # a marker: the path it stands for, moved to its place
        given["d"] = symbols[given.pop("href").lstrip("#")]
        given["transform"] = f"translate({given.pop('x', 0)} {given.pop('y', 0)})"
    if tag in ("path", "use"):
        tag = "path"
        if style.get("fill") == "none" and "stroke" not in style:
            return None
    if tag == "text":
        given.setdefault("fill", INK)
        if float(given.get("transform", "rotate(-0 ").split("(")[1].split()[0]) == 0:
            given.pop("transform", None)
    made = {name: _value(name, given[name]) for name in _KEPT if name in given}
    element = ElementTree.Element(tag, made)
    element.text = "".join(node.itertext()) if tag == "text" else None
    return element


def _style(node: ElementTree.Element) -> dict[str, str]:
    """Return the style of an element as attributes; the size of the font from either form."""
    text = node.get("style", "")
    pairs = (part.partition(":") for part in text.split(";"))
    found = {name.strip(): value.strip() for name, _, value in pairs}
    size = re.search(r"([\d.]+)px", text)
    return found | ({"font-size": size[1]} if size else {})


def _value(name: str, value: str) -> str:
    if name in ("fill", "stroke"):
        return _COLOURS.get(value, value)
    if name in ("href", "image-rendering"):
        return value
    return " ".join(re.sub(r"-?\d+\.\d+", lambda found: _short(float(found[0])), value).split())


def _short(value: float) -> str:
    shown = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def clean(name: Any) -> str:
    """Return a name as it can stand in a chart: one line, and never empty."""
    return " ".join(printable(str(name)).split()) or NONE


def _known(values: Sequence[Any]) -> list[float]:
    return [found for value in values if (found := finite(value)) is not None]


def as_float(value: Any) -> float:
    """Return a number, NaN for anything that is none."""
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

    `down` and `along` say what rows and columns are, `tall` is the height of a cell by its width.
    """
    n, m = len(cells.rows), len(cells.columns)
    small = max(n, m) <= MOST_WRITTEN

    def draw(ax: Any) -> Tips:
        from matplotlib.patches import Rectangle

        low, high = cells.span or _range([v for row in cells.values for v in row])
        mesh = ax.pcolormesh(
            [[as_float(value) for value in row] for row in cells.values],
            cmap=_shades(), vmin=low, vmax=high, rasterized=not small,
        )  # fmt: skip
        ax.set(xlabel=along, ylabel=down, frame_on=False)
        ax.invert_yaxis()
        ax.grid(False)
        ax.tick_params(length=0, bottom=False, labelbottom=False, labeltop=True)
        ax.xaxis.set_label_position("top")
        _name_cells(ax, cells)
        if small and cells.written:
            place = {"ha": "center", "va": "center", "fontsize": "small"}
            for (i, row), texts in zip(enumerate(cells.values), cells.written, strict=True):
                for (j, value), text in zip(enumerate(row), texts, strict=True):
                    on_fill = {"color": PAPER} if value > (low + high) / 2 else {}
                    ax.text(j + 0.5, i + 0.5, text, **place, **on_fill)
        if cells.marked:
            i, j = cells.marked
            ink = {"fill": False, "edgecolor": ax.xaxis.label.get_color(), "lw": 2}
            ax.add_patch(Rectangle((j + 0.03, i + 0.03), 0.94, 0.94, **ink))
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


def _shades() -> Any:
    """Return shades of one colour from nearly clear to full, for light and dark backgrounds."""
    from matplotlib.colors import ListedColormap, to_rgb

    shades = [(*to_rgb(BLUE), 0.04 + 0.96 * k / 63) for k in range(64)]
    return ListedColormap(shades, "rfcdask").with_extremes(bad=(*to_rgb(BLUE), 0.02))


def _range(values: Sequence[Any]) -> tuple[float, float]:
    known = _known(values) or [0.0]
    low, high = min(known), max(known)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
