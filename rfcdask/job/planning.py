"""The phase that looks ahead: what the run will cost, and a refusal of what cannot fit."""

from __future__ import annotations

from typing import Any

from rfcdask.job.context import Context


def make_plan(run: Context) -> dict[str, Any]:
    """Plan choosing, transforming and training at the largest size; raise where it cannot fit."""
    from rfcdask.plan import plan

    used = run.used
    found = plan(
        run.train,
        n_components=run.largest,
        n_candidates=used["n_candidates"],
        n_rows=used["n_rows"],
        epochs=used["epochs"],
        steps=("fit", "train"),
        client=run.client,
    )
    found.check()
    planned: dict[str, Any] = found.to_dict()
    return planned
