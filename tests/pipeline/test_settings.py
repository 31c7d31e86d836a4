"""Settings: what is wrong is named with what was meant, and what is written is read back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfcdask.data.errors import DataError
from rfcdask.display import METHOD_TITLES, styles_for
from rfcdask.features import METHODS, NEIGHBOURS
from rfcdask.pipeline.data import settle
from rfcdask.pipeline.settings import (
    Settings,
    SettingsError,
    describe,
    from_mapping,
    from_pairs,
    from_toml,
    show,
)


def test_pairs_become_values_of_their_own_type() -> None:
    found = from_pairs(
        ["rows=20_000", "sizes=100, 30", "gamma=0.5", "methods=random,giga", "test-size=0.1"]
    )
    assert found == {
        "rows": 20_000,
        "sizes": [30, 100],
        "gamma": 0.5,
        "methods": ["random", "giga"],
        "test_size": 0.1,
    }
    assert from_pairs(["gamma=tune", "standardize=false", "label=none", "project=none"]) == {
        "gamma": "tune",
        "standardize": False,
        "label": None,
        "project": None,
    }
    assert from_pairs(["rows=2e4"]) == {"rows": 20_000}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("n_candidate=5", "no setting 'n_candidate'; did you mean 'n_candidates'"),
        ("quux=5", "no setting 'quux'; there are random_state, rows"),
        ("rows", "write it as key=value"),
        ("rows=many", "rows=many cannot be used; it is a whole number of at least 1"),
        ("rows=1.5", "rows=1.5 cannot be used"),
        ("rows=inf", "rows=inf cannot be used"),
        ("gamma=-1", "gamma=-1 cannot be used; it is a number above 0, or scale"),
        ("gamma=wide", "gamma=wide cannot be used"),
        ("kernel=gauss", "kernel=gauss cannot be used.*laplacian"),
        ("methods=random,magic", "methods=random,magic cannot be used.*frank-wolfe"),
        ("sizes=", "sizes=none cannot be used"),
        ("test_size=0", "test_size=0 cannot be used"),
        ("block_size=big", "block_size=big cannot be used"),
        ("shuffle=3", "shuffle=3 cannot be used; it is true or false"),
        ("columns=1", "columns=1 is neither a TOML file nor kinds by name"),
        ("columns=[nan]", r"columns=\[nan\] is neither"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_takes(pair: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        from_pairs([pair])


def test_a_toml_file_at_its_top_or_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("rows = 5000\n[run]\nsizes = [20, 10]\nlabel = 'late'\n")
    assert from_toml(path) == {"rows": 5000, "sizes": [10, 20], "label": "late"}
    path.write_text("rows = 5000\n", encoding="utf-8-sig")  # as Notepad may write it
    assert from_toml(path) == {"rows": 5000}
    path.write_text("refin = 3\n")
    with pytest.raises(SettingsError, match=r"run.toml: there is no setting 'refin'; .*'refine'"):
        from_toml(path)
    path.write_text("rows =\n")
    with pytest.raises(SettingsError, match="is no TOML file"):
        from_toml(path)
    with pytest.raises(SettingsError, match="There is no file"):
        from_toml(tmp_path / "other.toml")


def test_the_final_method_is_always_compared() -> None:
    settings = Settings(methods=["random"], method="giga")
    assert settings.methods == ["random", "giga"]


def test_every_method_has_a_title_and_a_style() -> None:
    assert {*METHODS, *NEIGHBOURS} == METHOD_TITLES.keys()
    assert len({style.colour for style in styles_for(list(METHODS)).values()}) == len(METHODS)


def test_every_default_can_be_written_and_read() -> None:
    for name, default, about in describe():
        assert about
        assert from_pairs([f"{name}={default}"]) == {name: getattr(Settings(), name)}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "random_state": st.integers(0, 2**40),
            "sizes": st.lists(st.integers(2, 10**6), min_size=1).map(lambda v: sorted(set(v))),
            "gamma": st.one_of(st.floats(1e-9, 1e9), st.sampled_from(["scale", "median", "tune"])),
            "methods": st.lists(st.sampled_from(list(METHODS)), min_size=1, unique=True),
            "test_size": st.one_of(st.integers(1, 10**9), st.floats(0.001, 0.999)),
            "shuffle": st.booleans(),
            "project": st.one_of(st.none(), st.integers(1, 10**4)),
        },
    )
)
def test_what_is_shown_is_read_back(values: dict[str, object]) -> None:
    assert from_pairs([f"{name}={show(value)}" for name, value in values.items()]) == values
    assert from_mapping(values) == values


RECORD = "[columns]\nkinds = {}\nformats = {}\nmax_levels = 9\nmin_frequency = 0.1\n"
"""The choices of columns as runs keep them, but for one number."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 10**5, "is no TOML file: it is nested too deeply"),
        ("#" + "x" * 2**20, "is no TOML file: it is larger than 1,048,576 bytes"),
        ("seed = " + "9" * 5000, "is no TOML file"),
        ("\udcff", "is no TOML file"),
        ("C = 0x" + "f" * 6000, "is no TOML file: a whole number in it has more than 3,000"),
        (RECORD + "hash_columns = 1000000000\n", "hash_columns = 1000000000 cannot be used"),
        (RECORD.replace("{}", "5") + "hash_columns = 9\n", "kinds = 5 is no kind of column"),
        ("block_size = true", "block_size=true cannot be used"),
        ("block_size = [1]", "block_size=1 cannot be used"),
    ],
)
def test_absurd_files_of_settings_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError, match=words):
        from_toml(path)


@pytest.mark.parametrize(
    "text", ["block_size=none", "block_size=", "sizes=" + "[" * 10**4, "C=0x" + "f" * 6000]
)
def test_absurd_pairs_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="cannot be used"):
        from_pairs([text])


@pytest.mark.parametrize("compares", [True, False])
def test_features_are_chosen_on_as_many_rows_as_asked(compares: bool) -> None:
    dataset: Any = SimpleNamespace(sparse=False, shape=(200_000, 28), classes=np.arange(2))
    settings = Settings(n_rows=80_000, standardize=False)
    settled = settle(settings, dataset, compares=compares)
    assert settled["n_rows"] == 80_000
    assert settled["compare_rows"] >= 80_000


@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score"])
def test_probabilities_are_asked_of_models_that_have_them(scoring: str) -> None:
    """A fit chose by another metric without a word, and a run failed after its comparison."""
    dataset: Any = SimpleNamespace(sparse=False, shape=(2000, 28), classes=np.arange(2))
    without: tuple[dict[str, Any], ...] = (
        {"loss": "hinge"},
        {"learner": "svm"},
        {"learner": "ridge"},
        {"method": "random"},
    )
    for chosen in without:
        with pytest.raises(DataError, match="needs probabilities, which models of learner="):
            settle(Settings(scoring=scoring, standardize=False, **chosen), dataset, compares=False)
    having: tuple[dict[str, Any], ...] = (
        {},
        {"learner": "svm", "calibration": "sigmoid"},
        {"loss": "log_loss"},
    )
    for chosen in having:
        settled = settle(
            Settings(scoring=scoring, standardize=False, **chosen), dataset, compares=False
        )
        assert settled["scoring"] == scoring
        with pytest.raises(DataError, match="needs probabilities, which ridge models"):
            settle(Settings(scoring=scoring, standardize=False, **chosen), dataset)
