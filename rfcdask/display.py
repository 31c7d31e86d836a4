"""How fitted estimators show themselves in a notebook: scikit-learn's box, then what was found."""

from __future__ import annotations

from typing import Any

from rfcdask.svg.markup import Markup, el

Facts = list[tuple[str, str]]


class Shown:
    """Adds facts and a drawing below scikit-learn's own HTML once an estimator is fitted.

    Stands before scikit-learn's base classes. What is not fitted shows itself as scikit-learn
    has it, and ``sklearn.set_config(display="text")`` turns all of it off.
    """

    def _facts(self) -> Facts:
        """Return what was learned as pairs of name and text; empty before `fit`."""
        return []

    def _drawing(self) -> Markup | None:
        """Return a small drawing of what was learned."""
        return None

    def _repr_html_inner(self) -> str:
        found: str = super()._repr_html_inner()  # type: ignore[misc]
        return found + summary(self._facts, self._drawing)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def summary(facts: Any, drawing: Any) -> str:
    """Return facts and drawing as HTML; nothing when there are no facts."""
    pairs = facts()
    if not pairs:
        return ""
    return box(fact_table(pairs), drawing())


def box(*children: Any) -> Markup:
    """Return a block that stands by itself in a notebook, light or dark."""
    return el("div", *children, class_="rfcdask", style="max-width:30em;margin:.5em 0")


def fact_table(pairs: Facts) -> Markup:
    """Return names with texts."""
    left = {"style": "text-align:left"}
    rows = [el("tr", el("th", name, **left), el("td", value, **left)) for name, value in pairs]
    return el("table", el("tbody", *rows))


def folded(title: str, body: Any) -> Markup:
    """Return something long that unfolds when one asks for it."""
    return el("details", el("summary", title), body)
