"""The page as text: well formed, complete, small, and closed to whatever data are called."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rfcdask.cli import main
from rfcdask.pipeline.report.page import SECTIONS as MAKERS
from rfcdask.pipeline.report.page import render
from tests.pipeline.report import samples
from tests.pipeline.report.wellformed import read, skeleton

SECTIONS = [
    "run", "data", "comparison", "selection", "scores", "confusion", "importances", "costs", "plan",
    "settings", "reproduce",
]  # fmt: skip
FROM = {
    "comparison": "comparison",
    "selection": "selection",
    "model": "scores",
    "confusion": "confusion",
    "importances": "importances",
    "phases": "costs",
    "plan": "plan",
}


def ids(page: str) -> list[str]:
    return [a["id"] or "" for tag, a in read(page).elements if tag == "section"]


def words(page: str) -> str:
    return " ".join(" ".join(read(page).text).split())


@pytest.mark.parametrize(
    "made",
    [samples.results, samples.many_sizes, samples.nasty, lambda: samples.many_classes(3)],
    ids=["one", "many", "nasty", "three classes"],
)
def test_well_formed_with_all_sections_in_order(made: Any) -> None:
    page = render(made())
    assert page.startswith("<!doctype html>")
    assert ids(page) == SECTIONS
    links = [a["href"] for tag, a in read(page).elements if tag == "a"]
    assert links == [f"#{name}" for name in SECTIONS]
    assert page.index('class="say"') < page.index("<section")


@pytest.mark.parametrize("gone", [*FROM, "kernel", "linear", "machine", "settings"])
def test_what_is_missing_is_left_out(gone: str) -> None:
    null = samples.results(**{gone: None})
    missing = {key: value for key, value in null.items() if key != gone}
    wanted = [name for name in SECTIONS if name != FROM.get(gone)]
    for results in (null, missing):
        made = [make(results) for make in MAKERS]
        assert [section.id for section in made if section is not None] == wanted


def test_nothing_says_none() -> None:
    keys = ["kernel", "linear", "model", "machine", "settings", "selection", "confusion", "plan"]
    keys.append("importances")
    shown = render(samples.results(**dict.fromkeys(keys)))
    assert ids(shown) == ["run", "data", "comparison", "costs", "settings", "reproduce"]
    assert "None" not in words(shown)


def test_format_and_data_are_enough() -> None:
    page = render({"format": 1, "data": {"name": "small"}})
    assert ids(page) == ["data"]
    assert "Kernel features for small" in words(page)
    read(render({"format": 1, "data": {}}))


def test_other_formats_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="format 2, but this version reads 1"):
        render({"format": 2, "data": {}})
    with pytest.raises(ValueError, match="format None"):
        render({})


def test_numbers_of_the_run_are_on_the_page() -> None:
    shown = words(render(samples.results()))
    for number in ("1,000,000", "800,000", "93.10%", "64.10%", "0.0103", "1.24", "6,680"):
        assert number in shown, number
    for phrase in ("35.2 kiB", "3.11.2", "1 min 41 s", "--n-components 300", "chosen: 300"):
        assert phrase in shown, phrase
    assert "Highest accuracy: compressed with labels (ours) (93.10%)" in shown
    assert "Lowest kernel error: Nyström (RPCholesky) (0.0103)" in shown


def test_the_plan_is_held_against_the_phases_it_was_made_for() -> None:
    shown = words(render(samples.results()))
    assert "time to choose features and train 41 s 45 s 1.10" in shown  # 14.0 + 31.2 seconds
    assert "peak memory then, all processes 1.52 GiB 1.12 GiB 0.736" in shown
    plan = samples.results()["plan"] | {"seconds": {"fit": 10.0, "train": 30.0}, "steps": ["train"]}
    assert "time to train 40 s 31 s 0.780" in words(render(samples.results(plan=plan)))
    assert "ratio" not in words(render(samples.results(plan=plan, phases=None)))


def test_learned_features_show_no_selection_of_theirs() -> None:
    found = samples.results()
    found["model"] = found["model"] | {"method": "learned"}
    page = render(found)
    assert "trained with the model on all rows to learn from" in page
    assert "of 5,000 candidates" not in page
    assert "relative kernel error on held-out pairs" not in page


def test_a_given_recommendation_is_kept() -> None:
    said = {"text": "Use your head.", "reason": "It is there."}
    shown = words(render(samples.results(recommendation=said)))
    assert "Use your head. It is there." in shown


def test_best_values_are_marked_and_equals_alike() -> None:
    rows = [
        samples.row("random", accuracy=0.80),
        samples.row("jl", accuracy=0.81),
        samples.row("compressed", accuracy=0.9000),
        samples.row("nystroem", accuracy=0.9001),
    ]
    page = render(samples.results(comparison=rows))
    marked = re.findall(r'<strong class="best">([^<]*)</strong>', page)
    assert {"90.00%", "90.01%", "0.0142"} <= set(marked)  # Nyström has the lowest error
    assert not {"80.00%", "81.00%", "0.0812"} & set(marked)


def test_the_spread_over_repeats_is_told() -> None:
    rows = [samples.row("random", accuracy_spread=0.0012), samples.row("compressed")]
    rows[1]["accuracy_spread"] = 0.0034
    page = words(render(samples.results(comparison=rows)))
    assert "means of several repeats" in page
    assert "varied by up to 0.34 points" in page
    assert "repeats" not in words(render(samples.results()))


def test_one_size_has_no_lines_and_many_have() -> None:
    def lines(shown: str) -> int:
        part = shown[shown.index('id="comparison"') : shown.index('id="selection"')]
        paths = re.findall(r'<path d="([^"]*)"[^>]*stroke="var[^>]*/>', part)
        return sum("L" in d for d in paths)

    single = samples.results()
    single["data"]["test_rows"] = 0  # without them no margins are drawn
    assert lines(render(single)) == 0
    assert lines(render(samples.many_sizes())) == 4 * len(samples.FIGURES)


@pytest.mark.parametrize("n", [2, 12, 13, 31, 100, 300])
def test_any_number_of_classes_stays_small(n: int) -> None:
    whole = samples.many_classes(n, wrong=200)
    page = render({key: whole[key] for key in ("format", "data", "confusion")})
    read(page)
    assert len(page.encode()) < 300_000
    assert ("<title>species 000" in page) == (n <= 12)
    assert ("the 100 with the most wrong answers" in words(page)) == (n > 100)
    assert words(page).count("taken for") >= 1


def test_the_largest_confusions_come_first() -> None:
    confusion = {"labels": ["a", "b", "c"], "matrix": [[5, 1, 4], [9, 80, 1], [0, 7, 90]]}
    shown = words(render(samples.results(confusion=confusion)))
    assert "of the class b a 9 10.0% c b 7 7.2% a c 4 40.0%" in shown


@pytest.mark.parametrize(
    "matrix", [[[1, 2]], [[1], [2]], [], [[0, 0], [0, 0]], [[3, 0], [0, 4]], [[None, 1], [1, "x"]]]
)
def test_matrices_that_hold_nothing_or_do_not_fit(matrix: Any) -> None:
    results = samples.results(confusion={"labels": ["a", "b"], "matrix": matrix})
    fits = len(matrix) == 2 and all(len(row) == 2 for row in matrix)
    assert ("confusion" in ids(render(results))) == fits


@pytest.mark.parametrize(
    "bad", [None, float("nan"), float("inf"), "text", -1.0, 0.0, 1e300, 1e-300]
)
def test_figures_that_are_none_do_not_stop_the_page(bad: Any) -> None:
    rows = [samples.row(name) for name in samples.FIGURES]
    for k, column in enumerate(list(rows[0])[2:]):
        rows[k][column] = bad
    rows[-1] |= dict.fromkeys(list(rows[0])[2:], bad)
    chosen = samples.selection() | {
        "refined_heldout": bad,
        "heldout": [bad] * 300,
        "weights": [bad],
    }
    phases = [{"name": "a", "seconds": bad, "peak_bytes": bad, "rows": bad}]
    read(render(samples.results(comparison=rows, selection=chosen, phases=phases)))


def test_nothing_is_fetched_or_run() -> None:
    for page in (render(samples.many_sizes()), render(samples.nasty())):
        found = read(page).elements
        assert not {tag for tag, _ in found} & {"script", "img", "link", "iframe", "use"}
        assert all((a["href"] or "").startswith("data:") for tag, a in found if tag == "image")
        assert not [name for _, a in found for name in a if name.startswith("on") or name == "src"]
        assert "http://" not in page
        assert "https://" not in page
        assert "@import" not in page
        assert "url(" not in page
        assert len(page.encode()) < 400_000


def test_drawings_say_what_they_show() -> None:
    drawn = [a for tag, a in read(render(samples.results())).elements if tag == "svg"]
    assert len(drawn) == 9
    assert all(a["role"] == "img" and a["aria-label"] for a in drawn)


# Any text at all, also what no file can hold, and pieces of markup more often than chance.
PIECES = ["<", ">", "&", '"', "'", "</", "-->", "<!--", "]]>", "<script>", "</svg>", "</style>",
          "&lt;", "\x00", "\ud800", "\u202e", "\u2028", "\n", "`", "=", "/>"]  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=6).map("".join)


def named(name: str) -> dict[str, Any]:
    base = samples.results()
    return samples.results(
        rfcdask=name,
        created=name,
        command=f"run {name}",
        seed=name,
        settings={"key": name, "many": [name]},
        versions={"other": name},
        machine=base["machine"] | {"platform": f"p{name}", "scheduler": f"s{name}"},
        data=base["data"] | {"name": f"n{name}", "source": f"s{name}", "classes": [name, "b"]},
        kernel={"name": name, "gamma": 1.0, "rule": name},
        comparison=[samples.row(f"m{name}"), samples.row("compressed")],
        selection=None,
        model=base["model"] | {"learner": f"l{name}", "method": f"m{name}"},
        confusion={"labels": [f"c{name}", "b"], "matrix": [[5, 1], [2, 6]]},
        phases=[{"name": name, "seconds": 1.0, "peak_bytes": 5, "rows": None}],
        plan=base["plan"] | {"problems": [name]},
        recommendation={"text": f"t{name}", "reason": f"r{name}"},
    )


@cache
def plain() -> list[tuple[str, tuple[str, ...]]]:
    return skeleton(render(named("plain")))


@settings(deadline=None, max_examples=12)
@given(TEXT)
def test_no_name_breaks_out_of_its_text(name: str) -> None:
    page = render(named(name))
    page.encode()
    assert skeleton(page) == plain()  # charts included: the same marks, texts and attributes


def test_results_survive_json() -> None:
    made = samples.many_classes(5) | {"comparison": None, "selection": None}
    assert render(json.loads(json.dumps(made))) == render(made)


def test_a_class_never_predicted_stands_at_the_top() -> None:
    said = "Class 'rare' is never predicted"
    confusion = {"labels": ["often", "rare"], "matrix": [[980, 0], [20, 0]]}
    page = render(samples.results(warnings=[said], confusion=confusion))
    assert page.index(said.replace("'", "&#39;")) < page.index("<section")
    shown = words(page)
    assert shown.index(said) < shown.index("Use ")
    assert "rare 20 0.0% never predicted often 980 100.0% 98.0%" in shown
    assert "balanced accuracy (mean recall of all classes) 93.31%" in shown


def test_numbers_are_drawn_against_what_is_predicted() -> None:
    points = [[k / 10, k / 10 + 0.1 * (k % 3)] for k in range(50)]
    results = samples.results(
        scoring="r2",
        comparison=[samples.row("compressed", r2=0.81), samples.row("random", r2=0.5)],
        linear={"metrics": {"r2": 0.4}},
        boosting={"method": "boosting", "r2": 0.79, "n_rows": 50_000, "fit_seconds": 3.0},
        model={"metrics": {"r2": 0.83, "mean_absolute_error": 0.21}},
        confusion=None,
        points=points,
    )
    shown = words(render(results))
    assert "Use 300 compressed features." in shown
    assert "R2 of each method" not in shown
    assert "R2, the share of the variance that is explained 0.830 0.400" in shown
    assert "gradient boosting on a sample (scikit-learn), 50,000 rows 0.790" in shown
    assert "Predicted against true values" in shown
    assert "accura" not in shown.lower()


@pytest.mark.parametrize("part", ["comparison", "targets"])
@pytest.mark.parametrize("value", [5, "text", [1], {"a": 1}])
def test_results_that_were_edited_are_named(part: str, value: Any, tmp_path: Path) -> None:
    edited = tmp_path / "results.json"
    edited.write_text(json.dumps(samples.results(**{part: value})), encoding="utf-8")
    found = CliRunner().invoke(main, ["report", str(edited), str(tmp_path / "page.html")])
    assert found.exit_code == 2
    assert f"Error: {edited} does not hold results as they were written" in found.output
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"comparison": [samples.row("random", n_features=n) for n in range(1001)]}, "1,001 maps"),
        ({"comparison": [samples.row(f"m{n}") for n in range(101)]}, "101 methods"),
        ({"points": [[n, n] for n in range(10_001)]}, "10,001 points"),
    ],
)
def test_results_of_very_much_to_draw_are_not_shown(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Files below 1 MB were drawn for minutes."""
    many = tmp_path / "results.json"
    many.write_text(json.dumps(samples.results(**changed)), encoding="utf-8")
    found = CliRunner().invoke(main, ["report", str(many), str(tmp_path / "page.html")])
    assert found.exit_code == 2
    assert f"{many} has {said}, and at most " in found.output
