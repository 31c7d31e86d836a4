"""The phase that looks ahead: what the run will cost, and a refusal of what cannot fit."""

from __future__ import annotations

from typing import Any

from rfcdask.pipeline.choose import ERROR_ROWS
from rfcdask.pipeline.context import Context
from rfcdask.planning import plan


def make_plan(run: Context) -> dict[str, Any]:
    """Plan choosing, comparing and training; raise where memory will not suffice."""
    used = run.used
    found = plan(
        run.train,
        n_components=run.largest,
        n_candidates=used["n_candidates"],
        n_rows=used["n_rows"],
        refine=used["refine"],
        epochs=1 if used["learner"] == "ridge" else used["epochs"],
        persist=False,
        steps=("fit", "compare", "train"),
        methods=used["methods"],
        sizes=used["sizes"],
        compare_rows=used["compare_rows"],
        test_rows=used["compare_test_rows"],
        error_rows=ERROR_ROWS,
        client=run.client,
    )
    found.check()
    planned: dict[str, Any] = found.to_dict()
    return planned
