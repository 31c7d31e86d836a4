"""Charts as SVG: what was measured, readable by everyone, alone and always the same."""

from __future__ import annotations

import itertools
import math
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfcdask.display import DARK, LIGHT, charts, cut_apart, drawing, styles_for
from rfcdask.display.charts import against_features, one_against_other
from tests.pipeline.report import samples
from tests.pipeline.report.wellformed import read

ELEMENTS = {"svg", "path", "text", "title", "image"}
CELLS = drawing.Cells(
    [[0.1, 0.9], [0.8, math.nan]],
    ["<b>a</b>", "$x$"],
    ["<b>a</b>", "$x$"],
    [["10", "90"], ["80", ""]],
    [["a to a", "a to x"], ["x to a", "x to x"]],
    (0, 1),
)
CHARTS: dict[str, charts.Chart | None] = {
    "path": charts.error_path([1, 2, 3], [0.5, 0.3, 0.2], [0.6, 0.4, None], 3, 0.1),
    "curve": charts.curve([0.1, 1, 10], [3, 2, 4], "alpha", "error", log=True),
    "from zero": charts.curve([0, 1, 10], [3, 2, 4], "alpha", "error", log=True),
    "training": charts.training([{"epoch": 1, "loss": 0.5, "held_out_loss": 0.6}]),
    "one size": against_features(samples.results()["comparison"], "accuracy"),
    "sizes": against_features(samples.many_sizes()["comparison"], "kernel_error"),
    "trade-off": one_against_other(samples.results()["comparison"], "model_bytes", "accuracy"),
    "bars": charts.bars(["<b>a</b>", "$x$"], [1, 2], "rows"),
    "area": charts.sorted_area(list(range(400)), "features", "weight"),
    "stacks": charts.stacks({"a worker": {"block": 1.0}, "driver": {"rows": 2.0}}, "GB"),
    "cells": drawing.heat_map("cells", CELLS, "true", "predicted"),
    "many cells": drawing.heat_map(
        "many", drawing.Cells(np.eye(40).tolist(), ["a"] * 40, ["b"] * 40), "true", "predicted"
    ),
}


def drawn(name: str) -> str:
    chart = CHARTS[name]
    assert chart is not None
    return chart.svg()


def places(svg: str) -> list[tuple[float, float]]:
    """Return where the points with a text are."""
    found = re.findall(r'transform="translate\(([\d.-]+) ([\d.-]+)\)"[^>]*><title>', svg)
    return [(float(x), float(y)) for x, y in found]


@pytest.mark.parametrize("name", CHARTS)
def test_svg_stands_alone_on_any_background(name: str) -> None:
    svg = drawn(name)
    page = read(svg)
    tag, root = page.elements[0]
    assert tag == "svg"
    assert root["role"] == "img"
    assert root["aria-label"]
    assert (root["viewbox"] or "").startswith("0 0 340 ")
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    for _, given_ in page.elements:
        assert not {"id", "class", "clip-path"} & given_.keys() or given_ is root
        for paint in (given_.get("fill"), given_.get("stroke")):
            assert paint is None or paint in ("none", "currentColor") or paint.startswith("var(--")
    assert "$\\math" not in svg
    assert "http" not in svg


def test_names_are_text_and_not_formulas() -> None:
    for name in ("bars", "cells"):
        page = read(drawn(name))
        assert "b" not in [tag for tag, _ in page.elements]
        assert {"<b>a</b>", "$x$"} <= set(page.text)


# Any text, and pieces of markup and of formulas more often than chance.
PIECES = ["<", "&", '"', "]]>", "</svg>", "<script>", "$", "\\frac", "_", "\x00", "\ud800", "\n",
          "中"]  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=4).map("".join)


@settings(deadline=None, max_examples=25)
@given(TEXT)
def test_no_name_breaks_out_of_a_chart(name: str) -> None:
    svg = charts.bars([name, "b"], [1.0, 2.0], "rows").svg()
    svg.encode()
    page = read(svg)
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    assert charts.clean(name)[:17] in " ".join(page.text)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=12, unique=True))
def test_points_keep_their_order_inside(values: list[float]) -> None:
    values = sorted(values)
    rows = [samples.row("mine", k + 1, kernel_error=v) for k, v in enumerate(values)]
    rows += [samples.row("mine", 50, kernel_error=None)]
    chart = one_against_other(rows, "n_components", "kernel_error")
    assert chart is not None
    found = places(chart.svg())
    assert len(found) == len(values)
    assert found == sorted(found)
    heights = [y for _, y in found]
    assert heights == sorted(heights, reverse=True)
    assert all(0 <= x <= 340 and 0 <= y <= chart.height for x, y in found)


def test_points_say_what_was_measured() -> None:
    titles = read(drawn("one size")).text
    assert "compressed with labels (ours): 93.10%" in titles
    titles = read(drawn("sizes")).text
    assert "Nyström, 300 features: 0.0142" in titles
    assert "after refinement, 3 features: 0.100" in read(drawn("path")).text
    assert {"a to a", "a to x", "x to a"} <= set(read(drawn("cells")).text)


def test_one_colour_per_method_everywhere() -> None:
    for name in ("one size", "sizes", "trade-off"):
        svg = drawn(name)
        marks = re.findall(r'fill="var\(--rfcdask-(\d),[^>]*><title>([^<:,]*)', svg)
        assert {title: int(k) for k, title in marks}["Nyström (RPCholesky)"] == 3
        assert len(set(marks)) == len(samples.FIGURES)


def test_few_points_are_named_and_do_not_overlap() -> None:
    shown = read(drawn("trade-off")).text
    assert {"compressed", "with labels", "RFM-JL"} <= set(shown)


def test_shares_do_not_reach_beyond_one() -> None:
    rows = [samples.row("mine", n, accuracy=a) for n, a in ((10, 0.98), (20, 1.0))]
    chart = against_features(rows, "accuracy")
    assert chart is not None
    ticks = [float(t[:-1]) for t in read(chart.svg()).text if re.fullmatch(r"[\d.]+%", t)]
    assert ticks
    assert max(ticks) <= 100


def test_a_log_axis_needs_positive_values() -> None:
    def scale(values: list[float]) -> str:
        from matplotlib.figure import Figure

        ax = Figure().subplots()
        charts.error_path(list(range(len(values))), values, values).draw(ax)
        return str(ax.get_yscale())

    assert scale([0.1, 10.0]) == "log"
    assert scale([0.0, 10.0]) == "linear"
    assert scale([math.nan, math.inf]) == "linear"


@pytest.mark.parametrize("column", ["kernel_error", "model_bytes"])
@pytest.mark.parametrize("ratio", [1.3, 3.0, 7.0, 30.0, 1e4])
def test_a_log_axis_has_a_few_numbers(column: str, ratio: float) -> None:
    from matplotlib.figure import Figure

    rows = [samples.row("a", **{column: 36_000.0}), samples.row("b", **{column: 36_000 * ratio})]
    chart = against_features(rows, column)
    assert chart is not None
    figure = Figure(layout="constrained")
    ax = chart.plot(figure.subplots())
    figure.draw_without_rendering()
    low, high = ax.get_xlim()
    assert 2 <= sum(low <= tick <= high for tick in ax.get_xticks()) <= 5


def test_nothing_measured_is_no_chart() -> None:
    rows = [samples.row("mine", accuracy=None), samples.row("yours", accuracy=math.nan)]
    assert against_features(rows, "accuracy") is None
    assert one_against_other(rows, "model_bytes", "accuracy") is None


def test_the_same_chart_is_the_same_text() -> None:
    names = ["path", "sizes", "cells", "many cells"] * 2
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(drawn, names))
    assert together == [drawn(name) for name in names]


def test_settings_of_the_caller_stay_apart() -> None:
    import matplotlib as mpl

    before = drawn("curve")
    changed: Any = {"font.size": 30.0, "text.usetex": True, "axes.facecolor": "red"}
    with mpl.rc_context(changed):
        assert drawn("curve") == before
        assert {key: mpl.rcParams[key] for key in changed} == changed


@given(st.integers(0, 1000), st.integers(2, 60))
def test_thinning_keeps_both_ends(n: int, most: int) -> None:
    kept = charts.thinned(n, most)
    assert len(kept) == min(n, most)
    assert kept == sorted(set(kept))
    assert not n or (kept[0], kept[-1]) == (0, n - 1)


@given(st.lists(st.text(max_size=30), unique=True, max_size=12))
def test_names_stay_apart(names: list[str]) -> None:
    found = cut_apart(names, 10)
    assert len(set(found)) == len(names)
    assert all(len(name) <= 10 for name in found)


def test_like_names_show_where_they_differ() -> None:
    names = [f"some species {k} of a family" for k in (1, 2)]
    assert cut_apart(names, 10) == ["…1 of a f…", "…2 of a f…"]
    assert cut_apart(["a" * 20 + "b", "a" * 20 + "c"], 10) == ["1", "2"]


def test_own_methods_do_not_take_known_colours() -> None:
    styles = styles_for(["compressed", "mine", "nystroem", "yours"])
    assert len({style.colour for style in styles.values()}) == 4


# Colours as seen with normal sight, protanopia, deuteranopia and tritanopia (Machado and others,
# 2009), in the perceptual space OKLab.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
TO_CONES = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]]
)  # fmt: skip
TO_LAB = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.8086757660]]
)  # fmt: skip


def linear(colours: tuple[str, ...]) -> Any:
    rgb = np.array([[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in colours])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_differ_for_every_sight(colours: tuple[str, ...], sight: str) -> None:
    seen = np.clip(linear(colours) @ SIGHT[sight].T, 0, 1)
    lab = np.cbrt(seen @ TO_CONES.T) @ TO_LAB.T
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(lab, 2))
    assert nearest > (0.06 if sight == "tritanopia" else 0.1)


@pytest.mark.parametrize(("colours", "ground"), [(LIGHT, "#ffffff"), (DARK, "#1a2129")])
def test_colours_stand_out_from_the_background(colours: tuple[str, ...], ground: str) -> None:
    def luminance(given_: tuple[str, ...]) -> Any:
        return linear(given_) @ [0.2126, 0.7152, 0.0722] + 0.05

    ratio = luminance(colours) / luminance((ground,))
    assert np.maximum(ratio, 1 / ratio).min() >= 3  # WCAG 2.1 asks this of graphics
