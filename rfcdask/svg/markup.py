"""HTML and SVG elements as strings in which everything that is not markup is escaped."""

from __future__ import annotations

import re
from html import escape
from typing import Any

VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


class Markup(str):
    """Text that is HTML already and goes into a page as it is."""

    __slots__ = ()


def text(value: Any) -> Markup:
    """Return anything as HTML that shows it as text.

    Control characters, lone surrogates and marks that turn the direction of what follows become
    the replacement character: a name must not change the page around it.
    """
    if isinstance(value, Markup):
        return value
    return Markup(escape(_UNSHOWABLE.sub("\ufffd", str(value)), quote=True))


def join(*parts: Any) -> Markup:
    """Return parts behind one another, each escaped unless it is markup; None is left out."""
    return Markup("".join(text(part) for part in parts if part is not None))


def el(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """Return an element.

    Parameters
    ----------
    name : str
        Of the element; never from data.
    *children
        Markup, or anything else, which is escaped.
    **attributes
        ``class_`` is ``class`` and ``stroke_width`` is ``stroke-width``; None is left out.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{join(*children)}</{name}>")


def _value(value: Any) -> str:
    return short(value) if isinstance(value, float) else text(value)


def short(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    shown = f"{value:.1f}"
    shown = shown[:-2] if shown.endswith(".0") else shown
    return "0" if shown == "-0" else shown
