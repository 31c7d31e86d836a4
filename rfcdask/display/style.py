"""What each method is called and how it is drawn: one colour and one marker everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LIGHT = ("#1f4fd8", "#b8480c", "#92259c", "#6e3049",
         "#29a2b5", "#677be9", "#bc8954", "#747575", "#4a0a14")  # fmt: skip
"""Colours on a light background: any two differ for colour-blind readers too (tested)."""
DARK = ("#3986fe", "#fd4e06", "#b9a6f4", "#9264ae",
        "#7ed29d", "#ace6fe", "#e6e039", "#969697", "#c63648")  # fmt: skip
"""The same colours on a dark background."""
SYMBOLS = {"o": "●", "D": "◆", "s": "■", "^": "▲", "v": "▼"}
"""matplotlib's markers as characters, for legends in HTML."""
METHOD_TITLES = {
    "random": "RFM",
    "jl": "RFM-JL",
    "frank-wolfe": "RFM-FW",
    "giga": "RFM-GIGA",
    "compressed": "compressed (ours)",
    "compressed-labels": "compressed with labels (ours)",
    "learned": "learned (ours)",
    "boosting": "gradient boosting on a sample (scikit-learn)",
    "nystroem": "Nyström",
    "nystroem-rpcholesky": "Nyström (RPCholesky)",
}
_SHORT_TITLES = {
    "compressed": "compressed",
    "compressed-labels": "with labels",
    "learned": "learned",
    "boosting": "boosting",
    "nystroem-rpcholesky": "Nyström RPC",
}
# Control characters, lone surrogates, and marks that turn the direction of the text after them.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


@dataclass(frozen=True)
class Style:
    """A colour by its number, matplotlib's name of a marker, and whether it stands out."""

    colour: int
    marker: str = "o"
    strong: bool = False

    @property
    def hex(self) -> str:
        """The colour on a light background."""
        return LIGHT[self.colour]

    @property
    def css(self) -> str:
        """The colour in HTML and SVG, which a dark page or notebook replaces."""
        return css_colour(self.colour)

    @property
    def symbol(self) -> str:
        """The marker as a character."""
        return SYMBOLS[self.marker]


_STYLES = {
    "compressed": Style(0, "o", strong=True),
    "compressed-labels": Style(1, "D", strong=True),
    "learned": Style(8, "v", strong=True),
    "nystroem": Style(2, "s", strong=True),
    "nystroem-rpcholesky": Style(3, "^", strong=True),
    "giga": Style(4, "v"),
    "frank-wolfe": Style(5, "s"),
    "jl": Style(6, "^"),
    "random": Style(7, "o"),
}


def css_colour(number: int) -> str:
    """Return a colour as CSS: the variable a page may set, else the one for light pages."""
    return f"var(--rfcdask-{number},{LIGHT[number]})"


def css_variables(colours: Sequence[str]) -> str:
    """Return the CSS that sets all colours."""
    return "".join(f"--rfcdask-{k}:{colour};" for k, colour in enumerate(colours))


def styles_for(methods: Sequence[str]) -> dict[str, Style]:
    """Return how methods are drawn; unknown methods get the colours that known ones leave."""
    names = list(dict.fromkeys(methods))
    taken = {_STYLES[name].colour for name in names if name in _STYLES}
    free = [k for k in range(len(LIGHT)) if k not in taken] or list(range(len(LIGHT)))
    markers = list(SYMBOLS)
    others = [name for name in names if name not in _STYLES]
    made = {
        name: Style(free[k % len(free)], markers[k % len(markers)], strong=True)
        for k, name in enumerate(others)
    }
    return {name: _STYLES.get(name) or made[name] for name in names}


def title_of(method: str) -> str:
    """Return the name of a method for people; names of your own stay as they are."""
    return METHOD_TITLES.get(method, str(method))


def short_title(method: str, most: int = 16) -> str:
    """Return a name that fits beside a chart."""
    return cut(_SHORT_TITLES.get(method, title_of(method)), most)


def cut(name: str, most: int) -> str:
    """Return a name with what is too long of it left out."""
    return name if len(name) <= most else name[: most - 1] + "…"


def cut_apart(names: Sequence[str], most: int) -> list[str]:
    """Return short names that differ where the long ones do; numbers where nothing else helps."""
    found = [cut(name, most) for name in names]
    if len(set(found)) == len(found):
        return found
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    start = first.rfind(" ", 0, next((k for k, (a, b) in pairs if a != b), 0)) + 1
    found = ["…" + cut(name[start:], most - 1) for name in names]
    return found if len(set(found)) == len(found) else [str(k + 1) for k in range(len(names))]


def printable(text: str) -> str:
    """Replace characters that cannot be shown, or would change the text around them."""
    return _UNSHOWABLE.sub("\ufffd", text)
