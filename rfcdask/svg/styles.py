"""What each method is called and how it is drawn: one colour and one shape everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rfcdask.svg.markup import Markup, el, short

LIGHT = (
    "#0b62c4",
    "#c8441b",
    "#8a4bb0",
    "#c05fb5",
    "#4f8f86",
    "#5f89ad",
    "#a8844a",
    "#7f858d",
)
"""Colours by number; ours and Nyström come first and are stronger than the baselines."""
DARK = (
    "#6cb0ff",
    "#ff8f66",
    "#c99ae6",
    "#f0a3e4",
    "#7cc4b9",
    "#9fc3e2",
    "#d9b77c",
    "#a9afb8",
)
"""The same on a dark ground."""
SHAPES = ("circle", "diamond", "square", "triangle", "down", "square", "triangle", "circle")


@dataclass(frozen=True)
class Style:
    """A colour by number, the shape of a point and whether it stands out."""

    colour: int
    shape: str = "circle"
    strong: bool = False
    dashed: bool = False

    @property
    def hex(self) -> str:
        """The colour on a light ground."""
        return LIGHT[self.colour % len(LIGHT)]

    @property
    def fill(self) -> dict[str, str]:
        """Attributes that fill with the colour; a page may exchange it by the class."""
        return {"fill": self.hex, "class_": f"f{self.colour % len(LIGHT)}"}

    @property
    def stroke(self) -> dict[str, str]:
        """Attributes that draw lines in the colour."""
        return {"stroke": self.hex, "class_": f"k{self.colour % len(LIGHT)}"}


METHOD_TITLES = {
    "random": "RFM",
    "jl": "RFM-JL",
    "frank-wolfe": "RFM-FW",
    "giga": "RFM-GIGA",
    "compressed": "compressed (ours)",
    "compressed-labels": "compressed with labels (ours)",
    "nystroem": "Nyström",
    "nystroem-rpcholesky": "Nyström (RPCholesky)",
}
_SHORT = {
    "compressed": "compressed",
    "compressed-labels": "with labels",
    "nystroem-rpcholesky": "Nyström RPC",
}
_STYLES = {
    "compressed": Style(0, "circle", strong=True),
    "compressed-labels": Style(1, "diamond", strong=True),
    "nystroem": Style(2, "square", strong=True),
    "nystroem-rpcholesky": Style(3, "triangle", strong=True),
    "giga": Style(4, "down"),
    "frank-wolfe": Style(5, "square"),
    "jl": Style(6, "triangle"),
    "random": Style(7, "circle"),
}


def title_of(method: str) -> str:
    """Return the name of a method for people; names of your own stay as they are."""
    return METHOD_TITLES.get(method, str(method))


def short_title(method: str, most: int = 16) -> str:
    """Return a name that fits beside a drawing."""
    return cut(_SHORT.get(method, title_of(method)), most)


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


def styles_for(methods: Sequence[str]) -> dict[str, Style]:
    """Return how methods are drawn; those we do not know get what the known ones leave."""
    names = list(dict.fromkeys(methods))
    taken = {_STYLES[name].colour for name in names if name in _STYLES}
    free = [k for k in range(len(LIGHT)) if k not in taken] or list(range(len(LIGHT)))
    others = [name for name in names if name not in _STYLES]
    made = {
        name: Style(free[k % len(free)], SHAPES[k % len(SHAPES)], strong=True)
        for k, name in enumerate(others)
    }
    return {name: _STYLES.get(name) or made[name] for name in names}


def mark(x: float, y: float, style: Style, title: str = "", radius: float | None = None) -> Markup:
    """Return a point, with a text that shows when one rests on it."""
    r = radius or (4.2 if style.strong else 3.4)
    inside = el("title", title) if title else None
    return el("path", inside, d=_outline(style.shape, x, y, r), **style.fill)


def _outline(shape: str, x: float, y: float, r: float) -> str:
    if shape == "circle":
        return f"M{short(x - r)} {short(y)}a{short(r)} {short(r)} 0 1 0 {short(2 * r)} 0" + (
            f"a{short(r)} {short(r)} 0 1 0 {short(-2 * r)} 0z"
        )
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
        "triangle": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
        "down": ((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
    }[shape]
    return "M" + "L".join(f"{short(x + r * a)} {short(y + r * b)}" for a, b in corners) + "z"
