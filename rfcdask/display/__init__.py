"""How things are shown: name, colour and marker of each method, numbers as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
# Control characters, line separators, lone surrogates, and marks that turn the direction of text.
UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\ufffe\uffff]"
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
    return UNSHOWABLE.sub("\ufffd", text)


NONE = "\u2013"
LARGEST = 1e100
UNITS = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "kiB"))


def finite(value: Any) -> float | None:
    """Return a number, or None for anything that is none one could draw or name."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) <= LARGEST else None


def number(value: Any) -> str:
    """Return a number with three digits that count: 0.0123, 1.23, 12.3, 1,230."""
    found = finite(value)
    if found is None:
        return NONE
    size = abs(found)
    if found == 0:
        return "0"
    if size < 1e-4 or size >= 1e15:
        return f"{found:.2e}".replace("e-0", "e-").replace("e+", "e")
    if size >= 999.5:
        return f"{found:,.0f}"
    return f"{found:.{max(0, 2 - math.floor(math.log10(size)))}f}"


def count(value: Any) -> str:
    """Return a whole number with separators."""
    found = finite(value)
    return NONE if found is None else f"{found:,.0f}"


def share(value: Any, digits: int = 1) -> str:
    """Return a part of one as percent."""
    found = finite(value)
    return NONE if found is None else f"{100 * found:.{digits}f}%"


def size(value: Any) -> str:
    """Return bytes with a unit."""
    found = finite(value)
    if found is None:
        return NONE
    factor, unit = _unit(found)
    return f"{number(found / factor)} {unit}" if factor > 1 else f"{found:,.0f} B"


def seconds(value: Any) -> str:
    """Return a duration in the units one would say it in."""
    found = finite(value)
    if found is None:
        return NONE
    if found < 0.0995:
        return f"{1000 * found:.2g} ms" if found > 0 else "0 s"
    if found < 59.5:
        return f"{found:.1f} s" if found < 9.95 else f"{found:.0f} s"
    minutes, rest = divmod(round(found), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def estimated_time(seconds: float) -> str:
    """Return a duration that is only an estimate, in one unit and few digits."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.1f} h" if hours < 48 else f"{math.ceil(hours / 24)} days"


def micros(value: Any) -> str:
    """Return microseconds."""
    found = finite(value)
    return NONE if found is None else f"{number(found)} µs"


def tick(value: float) -> str:
    """Return a short label for an axis."""
    if value and abs(value) < 1e-4:
        return f"{value:.0e}".replace("e-0", "e-")
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.6g}M"
    return f"{value:,.6g}"


def percent_tick(value: float) -> str:
    """Return a part of one as a short label in percent."""
    return f"{100 * value:.6g}%"


def size_tick(value: float) -> str:
    """Return bytes as a short label."""
    factor, unit = _unit(value)
    return f"{value / factor:.3g} {unit}"


def _unit(value: float) -> tuple[int, str]:
    return next(((factor, unit) for factor, unit in UNITS if value >= factor), (1, "B"))
