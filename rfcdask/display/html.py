"""HTML from templates: how objects show themselves in a notebook, and tables of results.

Everything a template is given is escaped unless it is markup already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rfcdask.display import DARK, LIGHT, css_variables, printable, styles_for, title_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from rfcdask.display.drawing import Chart

Facts = list[tuple[str, str]]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("rfcdask.display"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: Any) -> Any:
    """Return what a template writes for a value: nothing for None, text without surprises."""
    if value is None or hasattr(value, "__html__"):
        return "" if value is None else value
    return printable(str(value))


def render(template: str, /, **values: Any) -> Markup:
    """Fill in a template of this package.

    Parameters
    ----------
    template : str
        Its name without the ending.
    **values
        What the template needs; a name that is missing raises.
    """
    from markupsafe import Markup

    page = _environment().get_template(f"{template}.html.j2")
    return Markup(page.render(values))


def render_repr(
    *,
    title: str = "",
    code: str = "",
    facts: Facts | None = None,
    problems: Sequence[str] = (),
    tables: Iterable[tuple[str, Table]] = (),
    methods: Sequence[str] = (),
    charts: Sequence[Chart | None] = (),
) -> str:
    """Return how an object shows itself in a notebook, light or dark.

    Parameters
    ----------
    title, code : str
        A heading, and a line of code.
    facts : list of pairs
        Names with texts.
    problems : sequence of str
        What is wrong, in bold.
    tables : iterable of (str, Table)
        A table with a title is folded under it.
    methods : sequence of str
        Methods of a legend.
    charts : sequence of Chart
        Drawn side by side where there is room.
    """
    drawn = [chart.svg() for chart in charts if chart is not None]
    page = render(
        "repr",
        title=title,
        code=code,
        facts=facts or [],
        problems=problems,
        tables=list(tables),
        legend=legend_of(methods),
        charts=drawn,
        dark=css_variables(DARK),
    )
    return str(page)  # markup would escape the HTML of others it is added to


@dataclass(frozen=True)
class Cell:
    """A text in a table of the report, and how it is set."""

    text: str
    best: bool = False  # marked as the best of its kind
    code: bool = False  # set as code
    symbol: dict[str, str] | None = None  # an entry of `legend_of` that stands before the text
    percent: float = 0.0  # length of the bar behind the text


def legend_of(methods: Sequence[str]) -> list[dict[str, str]]:
    """Return symbol, colour and name of each method, for the legend of a template."""
    return [
        {"symbol": style.symbol, "colour": style.css, "title": title_of(method)}
        for method, style in styles_for(methods).items()
    ]


def colour_sheet() -> str:
    """Return the style sheet with the colours of charts on light and on dark pages."""
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{css_variables(DARK)}}}}}"
    return f":root{{{css_variables(LIGHT)}}}{dark}"


class HTMLReprMixin:
    """Adds facts and a chart below scikit-learn's own HTML once an estimator is fitted.

    Stands before scikit-learn's base classes. What is not fitted shows itself as scikit-learn
    has it, and ``sklearn.set_config(display="text")`` turns all of it off.
    """

    def _facts(self) -> Facts:
        """Return what was learned as pairs of name and text; empty before `fit`."""
        return []

    def _chart(self) -> Chart | None:
        """Return a chart of what was learned."""
        return None

    def _repr_html_inner(self) -> str:
        found: str = super()._repr_html_inner()  # type: ignore[misc]
        facts = self._facts()
        return found + render_repr(facts=facts, charts=[self._chart()]) if facts else found

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def aligned(title: str, facts: Facts) -> str:
    """Return a title and facts as lines of text."""
    width = max(len(name) for name, _ in facts)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in facts)])


class Table:
    """Rows with the same columns, in a fixed order, shown as text and as HTML.

    Parameters
    ----------
    rows : list of dict
        One dict per row; plain numbers and strings only.
    """

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns that any row has."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def cells(self) -> list[list[str]]:
        """All values as text, empty where a row has none."""
        names = self.columns
        return [[_cell(row.get(name)) for name in names] for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        if self.rows and column not in self.columns:
            raise KeyError(column)
        return [row.get(column) for row in self.rows]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __repr__(self) -> str:
        lines = [self.columns, *self.cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        )

    def _repr_html_(self) -> str:
        return render_repr(tables=[("", self)])


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
