"""A model that another takes the place of while a command reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rfcdask as rf
from rfcdask.cli import saved


def test_a_model_has_the_columns_of_its_own_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] > 0
    path = tmp_path / "model"

    def write(names: list[str], alpha: float) -> None:
        data = {"columns": 2, "columns_in_file": 2, "column_names": names}
        model = rf.RidgeClassifier(alpha=alpha).fit(X, y)
        rf.save(model, path, overwrite=True, about={"data": data})

    write(["a", "b"], 1.0)
    load = saved.load

    def load_another(place: Any) -> Any:
        monkeypatch.setattr(saved, "load", load)
        write(["b", "a"], 2.0)
        return load(place)

    monkeypatch.setattr(saved, "load", load_another)
    found = saved.load_model(str(path), predicts=True)
    assert (found.learner.alpha, found.data["column_names"]) == (2.0, ["b", "a"])
