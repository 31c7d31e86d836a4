"""The recommendation: true, with its numbers, and ours only where ours is best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfcdask.display import NONE
from rfcdask.pipeline.report import Metric, compared_rows
from rfcdask.pipeline.report.page import recommend
from tests.pipeline.report import samples


def said(rows: list[dict[str, Any]], **changes: Any) -> tuple[str, str]:
    test_rows = changes.pop("test_rows", 10_000)
    changes.setdefault("linear", {"accuracy": 0.64, "seconds": 1.0})
    results = samples.results(comparison=rows, **changes)
    results["data"] = results["data"] | {"test_rows": test_rows}
    found = recommend(results)
    assert set(found) == {"text", "reason"}
    return found["text"], found["reason"]


def test_nystroem_is_named_when_it_wins() -> None:
    rows = [
        samples.row("random", accuracy=0.880),
        samples.row("compressed", accuracy=0.930),
        samples.row("compressed-labels", accuracy=0.940, microseconds_per_row=1.2),
        samples.row("nystroem", accuracy=0.953, microseconds_per_row=2.52),
    ]
    text, reason = said(rows)
    assert text == "Use Nyström with 300 features."
    assert "Nyström is more accurate here at 300 features" in reason
    assert "(95.3% against 94.0% for compressed features with labels)" in reason
    assert (
        "compressed features with labels are 2.1 times faster per row than Nyström"
        in reason.replace("Compressed", "compressed")
    )
    assert "(1.20 µs against 2.52 µs)" in reason


def test_ours_wins_and_says_by_how_much() -> None:
    text, reason = said([samples.row(name) for name in samples.FIGURES])
    assert text == "Use 300 compressed features with labels."
    assert "93.1% against 91.6% for Nyström (RPCholesky)" in reason
    assert "2.2 times faster per row than Nyström (RPCholesky)" in reason
    assert "Plain random features of the same number are 5.7 points less accurate." in reason
    assert "A linear model on the raw columns reaches 64.0%, 29.1 points less." in reason


@pytest.mark.parametrize(("confirmed", "noise"), [(0.849, True), (0.835, False)])
def test_few_learned_features_stand_against_all_nystroem(confirmed: float, noise: bool) -> None:
    rows = [
        samples.row("learned", 50, accuracy=0.8495, microseconds_per_row=0.1),
        samples.row("nystroem", 50, accuracy=0.823, microseconds_per_row=0.4),
        samples.row("nystroem", 300, accuracy=0.8488, microseconds_per_row=3.5),
    ]
    rows[0]["confirmed_accuracy"], rows[1]["confirmed_accuracy"] = 0.851, 0.82
    rows[2]["confirmed_accuracy"] = confirmed
    rows = [row | {"confirmed_rows": 50_000, "kernel_error": None} for row in rows]
    text, reason = said(rows, test_rows=50_000)
    assert text == "Use 50 learned features."
    assert "Nyström with 50 features reaches 82.3%" in reason
    assert (
        "On 50,000 further rows, by which nothing was chosen, they reach 85.1%, and Nyström with "
        f"300 features {100 * confirmed:.1f}%" in reason
    )
    assert ("no difference beyond the sampling error" in reason) is noise


def test_equally_accurate_takes_the_cheaper() -> None:
    rows = [
        samples.row("compressed", accuracy=0.9510, microseconds_per_row=1.2),
        samples.row("nystroem", accuracy=0.9520, microseconds_per_row=2.4),
    ]
    text, reason = said(rows, test_rows=10_000)
    assert text == "Use 300 compressed features."
    assert "equally accurate within the sampling error on 10,000 held-out rows" in reason
    assert "95.1% ± 0.2" in reason
    assert "2.0 times faster per row than Nyström" in reason
    # with a hundred times the rows the same difference is one
    text, reason = said(rows, test_rows=1_000_000)
    assert text == "Use Nyström with 300 features."
    assert "95.20% against 95.10%" in reason


def test_fewer_features_that_are_as_accurate_are_enough() -> None:
    rows = [
        samples.row("compressed", 300, accuracy=0.9000),
        samples.row("compressed", 1000, accuracy=0.9005),
    ]
    assert said(rows)[0] == "Use 300 compressed features."
    assert said(rows, test_rows=10_000_000)[0] == "Use 1,000 compressed features."


def test_plain_random_features_that_are_as_good_are_said_to_be() -> None:
    rows = [
        samples.row("random", accuracy=0.9001, microseconds_per_row=1.0),
        samples.row("compressed", accuracy=0.9010, microseconds_per_row=1.01),
    ]
    text, reason = said(rows)
    assert text == "Use 300 compressed features."
    assert "Plain random features of the same number are as accurate here" in reason
    assert "kernel error is 0.0812, 3.8 times as large" in reason
    rows[0]["microseconds_per_row"] = 0.5  # and much cheaper
    assert said(rows)[0] == "Use 300 plain random features (RFM)."


def test_sizes_are_named_where_they_differ() -> None:
    rows = [
        samples.row("compressed", 100, accuracy=0.95, microseconds_per_row=1.0),
        samples.row("nystroem", 200, accuracy=0.90, microseconds_per_row=3.0),
        samples.row("features of mine", 100, accuracy=0.80),
    ]
    text, reason = said(rows)
    assert text == "Use 100 compressed features."
    assert "100 compressed features are 3.0 times faster per row than Nyström with 200" in reason
    rows[2]["accuracy"] = 0.97
    assert said(rows)[0] == "Use features of mine with 100 features."


def test_what_is_much_faster_for_little_is_named_too() -> None:
    rows = [
        samples.row("compressed-labels", 50, accuracy=0.844, microseconds_per_row=0.27),
        samples.row("nystroem", 300, accuracy=0.852, microseconds_per_row=9.58),
    ]
    text, reason = said(rows, test_rows=50_000)
    assert text == "Use Nyström with 300 features."
    assert (
        "If 0.8 points do not matter, 50 compressed features with labels (84.4%) are 35 times "
        "faster per row." in reason
    )
    rows[0]["accuracy"] = 0.84
    assert "do not matter" not in said(rows, test_rows=50_000)[1]
    rows[0] |= {"accuracy": 0.844, "microseconds_per_row": 4.0}
    assert "do not matter" not in said(rows, test_rows=50_000)[1]


def test_a_linear_model_that_is_as_good_is_enough() -> None:
    rows = [samples.row("compressed", accuracy=0.901), samples.row("nystroem", accuracy=0.902)]
    text, reason = said(rows, linear={"accuracy": 0.900})
    assert text == "Use a linear model on the raw columns."
    assert "as accurate, within the sampling error" in reason
    assert "(90.0% against 90.2% for Nyström with 300 features)" in reason
    text, reason = said(rows, linear={"accuracy": 0.95})
    assert "It is more accurate than the best feature map" in reason


def test_nothing_learned_is_admitted() -> None:
    rows = [samples.row("compressed", accuracy=0.531), samples.row("nystroem", accuracy=0.528)]
    _, reason = said(rows, linear={"accuracy": 0.50})
    assert "always answering the commonest class is right for 52.9%" in reason
    _, reason = said([samples.row("compressed", accuracy=0.60)], linear=None)
    assert "commonest class" not in reason


def test_without_accuracies_the_kernel_error_speaks() -> None:
    rows = [samples.row(name, accuracy=None) for name in ("random", "compressed", "nystroem")]
    text, reason = said(rows)
    assert text == "Use Nyström with 300 features."
    assert "nearest to the exact kernel (error 0.0142)" in reason


def test_without_a_comparison_the_model_speaks() -> None:
    text, reason = said([])
    assert text == "The model is right for 93.3% of the rows it has not seen."
    assert "other methods were not compared" in reason
    assert said([], model=None) == ("No recommendation: nothing was compared.", "")


@pytest.mark.parametrize("missing", ["microseconds_per_row", "model_bytes", "kernel_error"])
def test_figures_that_are_missing_are_not_spoken_of(missing: str) -> None:
    rows = [samples.row(name) | {missing: None} for name in samples.FIGURES]
    text, reason = said(rows)
    assert text == "Use 300 compressed features with labels."
    assert "None" not in reason
    assert NONE not in reason


def test_the_rows_compared_on_decide_and_not_those_scored_on() -> None:
    rows = [
        samples.row("compressed", accuracy=0.951, microseconds_per_row=1.0),
        samples.row("nystroem", accuracy=0.952, microseconds_per_row=2.0),
    ]
    many = samples.results(comparison=rows, settings={"compare_test_rows": 5_000})
    assert compared_rows(many) == 5_000
    assert recommend(many)["text"] == "Use 300 compressed features."
    assert compared_rows(samples.results(settings={"compare_test_rows": "auto"})) == 200_000
    assert compared_rows({"data": {}}) == 0


def test_the_margin_is_the_binomial_one() -> None:
    assert Metric().standard_error(0.5, 10_000) == pytest.approx(0.005)
    margin = (2 * 0.25 / 10_000) ** 0.5
    assert Metric().as_good(0.5, 0.5 + 0.99 * margin, 10_000)
    assert not Metric().as_good(0.5, 0.5 + 1.02 * margin, 10_000)
    assert not Metric().as_good(
        0.5, 0.5001, 0
    )  # nobody says how many rows: every difference counts
    assert Metric().as_good(0.6, 0.5, 0)


def test_boosting_that_is_better_is_recommended() -> None:
    rows = [samples.row("compressed", accuracy=0.90)]
    boosting = {"method": "boosting", "accuracy": 0.95, "n_rows": 50_000}
    found = recommend(samples.results(comparison=rows, boosting=boosting))
    assert found["text"] == "Use gradient boosting (scikit-learn's HistGradientBoosting)."
    assert "On a sample of 50,000 rows, in memory, it is more accurate" in found["reason"]
    model = {"method": "learned", "accuracy": 0.951}
    saved = recommend(samples.results(comparison=rows, boosting=boosting, model=model))
    assert saved["text"] == "Use the model that was saved."
    assert "Trained on all rows it reaches 95.1% on those held out. Gradient" in saved["reason"]
    assert "sample of 50,000 rows reaches 95.0%. Of the compared maps" in saved["reason"]
    worse = recommend(samples.results(comparison=rows, boosting=boosting | {"accuracy": 0.85}))
    assert worse["text"] == "Use 300 compressed features."
    said = "Gradient boosting (scikit-learn's) on a sample of 50,000 rows reaches 85.0"
    assert said in worse["reason"]


def test_the_metric_that_is_named_decides() -> None:
    rows = [
        samples.row("compressed", accuracy=0.98, balanced_accuracy=0.50),
        samples.row("random", accuracy=0.90, balanced_accuracy=0.88),
    ]
    found = recommend(
        samples.results(comparison=rows, scoring="balanced_accuracy", linear={"accuracy": 0.99})
    )
    assert found["text"] == "Use 300 plain random features (RFM)."
    assert "better here at 300 features" in found["reason"]
    assert "88.0% against 50.0%" in found["reason"]


@pytest.mark.parametrize(("scoring", "value"), [("r2", 0.6), ("neg_mean_squared_error", -2.0)])
def test_margins_of_numbers_are_those_of_their_spread(scoring: str, value: float) -> None:
    rng = np.random.default_rng(0)
    n, found = 400, []
    for _ in range(300):
        if scoring == "r2":
            x, e = rng.normal(size=n), rng.normal(size=n)
            y = np.sqrt(0.6) * x + np.sqrt(0.4) * e
            found.append(1 - 0.4 * np.mean(e**2) / y.var())
        else:
            found.append(-2.0 * np.mean(rng.normal(size=n) ** 2))
    margin = Metric(scoring).standard_error(value, n)
    assert margin == pytest.approx(np.std(found), rel=0.6)
