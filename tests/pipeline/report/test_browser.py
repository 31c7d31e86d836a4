"""The report in a real browser: on a phone and on a desk, silent, and alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rfcdask.pipeline.report.page import render
from tests.pipeline.report import samples
from tests.pipeline.report.browser import Page, opened_browser

REPORTS: dict[str, Any] = {
    "one size": samples.results,
    "many sizes": samples.many_sizes,
    "ten classes": lambda: samples.many_classes(10),
    "many classes": lambda: samples.many_classes(120),
    "nasty names": samples.nasty,
    "bare": lambda: {"format": 1, "data": {"name": "bare"}},
}
# What reaches beyond its box without making the page scroll would be cut or lie over others.
OUTSIDE = """
return [...document.querySelectorAll('body *:not(svg *):not(.unseen)')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(e => e.outerHTML.slice(0, 80));
"""
CUT = """
return [...document.querySelectorAll('svg.chart')].flatMap(svg => {
  const view = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => {
    const box = t.getBoundingClientRect();
    return box.left < view.left - 2 || box.right > view.right + 2 || box.top < view.top - 2
      || box.bottom > view.bottom + 2;
  }).map(t => t.textContent);
});
"""


def written(results: dict[str, Any], path: Path) -> Path:
    path.write_text(render(results), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", REPORTS)
def test_fits_says_nothing_and_asks_nobody(
    page: Page, name: str, width: int, tmp_path: Path
) -> None:
    path = written(REPORTS[name](), tmp_path / "report.html")
    page.open(path, width)
    assert page.run("return innerWidth") == width
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run(OUTSIDE) == []
    assert page.run(CUT) == []
    assert page.messages() == []
    assert page.requests() == [path.as_uri()]


def test_the_checks_would_see_a_fault(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><p style='width:2000px'>wide</p><img src='http://127.0.0.1:9/x.png'>"
        "<script>console.error('loud')</script>"
    )
    page.open(path, 1280)
    assert page.run("return document.documentElement.scrollWidth") > 1280
    assert page.run(OUTSIDE) != []
    assert any("loud" in message for message in page.messages())
    assert "http://127.0.0.1:9/x.png" in page.requests()


@pytest.mark.parametrize("width", [360, 1280])
def test_names_that_are_scripts_are_shown_as_text(page: Page, width: int, tmp_path: Path) -> None:
    page.open(written(samples.nasty(), tmp_path / "nasty.html"), width)
    assert page.run("return document.title") == f"{samples.NASTY}: rfcdask report"
    assert page.run("return document.scripts.length") == 0
    assert page.run("return document.images.length") == 0
    shown = page.run("return document.body.innerText")
    assert shown.count(samples.NASTY) >= 10


def test_everything_is_readable_in_the_dark(page: Page, tmp_path: Path) -> None:
    path = written(samples.many_sizes(), tmp_path / "report.html")
    brightness = (
        "const rgb = s => s.match(/[0-9.]+/g).slice(0, 3).map(Number);"
        "const luma = s => { const [r, g, b] = rgb(s); return .2126*r + .7152*g + .0722*b; };"
        "const style = getComputedStyle(document.body);"
        "const marks = [...document.querySelectorAll('svg.chart [fill^=var]')]"
        "  .filter(m => !m.getAttribute('fill').includes('on-fill'));"
        "return [luma(style.backgroundColor), luma(style.color),"
        " Math.min(...marks.map(m => luma(getComputedStyle(m).fill)))]"
    )
    page.open(path, 1280, dark=True)
    ground, ink, darkest = page.run(brightness)
    assert ground < 40 < 200 < ink
    assert darkest > 90
    page.open(path, 1280)
    ground, ink, _ = page.run(brightness)
    assert ink < 60 < 200 < ground


def test_the_recommendation_is_the_first_thing_one_sees(page: Page, tmp_path: Path) -> None:
    page.open(written(samples.results(), tmp_path / "report.html"), 360)
    top = page.run("return document.querySelector('.say').getBoundingClientRect().bottom")
    assert top < 400


def test_tables_of_other_sizes_unfold(page: Page, tmp_path: Path) -> None:
    page.open(written(samples.many_sizes(), tmp_path / "report.html"), 360)
    opened = "return [...document.querySelectorAll('details[open] summary')].map(e => e.innerText)"
    assert page.run(opened) == ["With 1,000 features"]
    page.run("document.querySelector('summary').click()")
    assert page.run(opened) == ["With 50 features", "With 1,000 features"]
    assert page.run("return document.documentElement.scrollWidth") <= 360
