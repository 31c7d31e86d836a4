"""What linear models say of themselves."""

from __future__ import annotations

from typing import Any

from rfcdask.display.html import Facts
from rfcdask.display.numbers import count

MANY = 6
"""More classes than this are counted, not listed."""


def model_facts(model: Any) -> Facts:
    """Return the columns a fitted model takes and the classes it knows."""
    found = [("columns", count(model.n_features_in_))]
    classes = getattr(model, "classes_", None)
    if classes is not None:
        names = ", ".join(str(name) for name in classes[:MANY])
        more = f" and {count(len(classes) - MANY)} more" if len(classes) > MANY else ""
        found.append(("classes", names + more))
    return found
