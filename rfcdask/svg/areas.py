"""Many values in falling order as one area."""

from __future__ import annotations

from collections.abc import Sequence

from rfcdask.svg.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, axis_scale, frame
from rfcdask.svg.charts import picture as _picture
from rfcdask.svg.markup import Markup, el, short
from rfcdask.svg.scales import thinned
from rfcdask.svg.styles import Style

MOST_STEPS = 250


def sorted_area(
    label: str, values: Sequence[float], xlabel: str, ylabel: str, style: Style
) -> Markup:
    """Draw values, largest first, as bars that touch; of many, every so many."""
    falling = sorted((float(value) for value in values), reverse=True)
    if not falling:
        return el("p", "There are none to draw.", class_="none")
    x, y = Axis(xlabel, zero=True), Axis(ylabel, zero=True)
    across = axis_scale(x, [0.0, float(len(falling))], LEFT, WIDTH - RIGHT)
    upward = axis_scale(y, [0.0, max(falling)], HEIGHT - BOTTOM, TOP)
    kept = thinned(falling, MOST_STEPS)
    ends = [*kept[1:], len(falling)]
    steps = "".join(
        f"V{short(upward(falling[k]))}H{short(across(end))}"
        for k, end in zip(kept, ends, strict=True)
    )
    base = short(HEIGHT - BOTTOM)
    d = f"M{short(across(0.0))} {base}{steps}V{base}z"
    area = el("path", el("title", label), d=d, **style.fill)
    return _picture(label, frame(across, upward, x, y), area)
