"""The style sheet of the report, with the colours of the drawings."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from rfcdask.svg.styles import DARK, LIGHT


@cache
def style_sheet() -> str:
    """Return all of it, as it stands in the page."""
    sheet = files("rfcdask.report").joinpath("style.css").read_text(encoding="utf-8")
    dark = f"@media screen and (prefers-color-scheme:dark){{{_colours(DARK)}}}"
    return f"{sheet}{_colours(LIGHT)}{dark}"


def _colours(tones: tuple[str, ...]) -> str:
    return "".join(f".f{k}{{fill:{tone}}}.k{k}{{stroke:{tone}}}" for k, tone in enumerate(tones))
