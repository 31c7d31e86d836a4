"""A chart as inline SVG: small, without ids or style sheets, readable on light and dark pages.

matplotlib draws the chart; what it writes is then reduced to paths and texts whose colours are
`currentColor` or CSS variables, so that the page around a chart decides how it looks.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from rfcdask.display.style import LIGHT, css_colour, printable

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH = 340.0  # width of every chart in points; pages scale it
INK = "#010203"
"""Stands for the colour of the text around the chart."""
PAPER = "#fefdfc"
"""Stands for a colour that is readable on filled areas."""
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


def inline_svg(
    draw: Callable[[Any], dict[Any, list[str]]], label: str, height: float = 226.0
) -> Markup:
    """Draw a chart without a display and return it as an SVG element.

    Parameters
    ----------
    draw : callable
        Draws into matplotlib axes, and returns for some artists one text for each of their
        points or cells, which is shown when the pointer rests on it.
    label : str
        What the chart shows, for those who cannot see it.
    height : float
        In points; the width is always `WIDTH`.
    """
    from markupsafe import Markup, escape

    written, texts = _draw(draw, height)
    body = "".join(
        ElementTree.tostring(element, encoding="unicode") for element in _reduce(written, texts)
    )
    return Markup(
        f'<svg class="chart" role="img" aria-label="{escape(printable(label))}" '
        f'viewBox="0 0 {_short(WIDTH)} {_short(height)}" stroke-linejoin="round" '
        'font-family="system-ui,sans-serif" style="display:block;width:100%;height:auto">'
        f"{body}</svg>"
    )


def _draw(draw: Callable[[Any], dict[Any, list[str]]], height: float) -> tuple[bytes, Any]:
    """Return what matplotlib writes, and the texts by the id of their group in it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with _LOCK, mpl.rc_context(), warnings.catch_warnings():
        # The browser has the glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        mpl.rcdefaults()  # whatever style the caller plots with
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        found = draw(figure.subplots())
        for number, artist in enumerate(found):
            artist.set_gid(f"texts-{number}")
        figure.savefig(file, format="svg", metadata={"Date": None}, dpi=144)
    return file.getvalue(), {f"texts-{k}": texts for k, texts in enumerate(found.values())}


def _reduce(written: bytes, texts: dict[str, list[str]]) -> list[ElementTree.Element]:
    """Return the visible elements of a drawing in their order, without groups around them."""
    root = ElementTree.fromstring(written)
    symbols = {
        node.get("id", ""): node.get("d", "")
        for defs in root.iter(_svg("defs"))
        for node in defs.iter(_svg("path"))
    }
    return list(_visible(root, symbols, texts))


def _visible(
    parent: ElementTree.Element, symbols: dict[str, str], texts: dict[str, list[str]]
) -> Iterator[ElementTree.Element]:
    for node in parent:
        tag = node.tag.rpartition("}")[2]
        if tag == "g":
            inside = list(_visible(node, symbols, texts))
            _add_titles(inside, texts.get(node.get("id", ""), ()))
            yield from inside
        elif tag in ("path", "use", "text", "image"):
            element = _plain(tag, node, symbols)
            if element is not None:
                yield element


def _add_titles(elements: Sequence[ElementTree.Element], titles: Sequence[str]) -> None:
    """Give the last elements of a group, which are its points, their texts."""
    for element, title in zip(reversed(elements), reversed(titles), strict=False):
        ElementTree.SubElement(element, "title").text = printable(title)


def _plain(
    tag: str, node: ElementTree.Element, symbols: dict[str, str]
) -> ElementTree.Element | None:
    """Return an element that needs no other one, or None for one that draws nothing."""
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


def _svg(tag: str) -> str:
    return f"{{http://www.w3.org/2000/svg}}{tag}"
