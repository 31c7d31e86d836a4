"""Settings, seed and versions, and the command that does it all again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from rfcdask.report.measured import Results, section
from rfcdask.report.parts import note, part, table
from rfcdask.svg.markup import Markup, el


def settings(results: Results) -> Markup | None:
    """Return every setting, the seed and the versions; None when none was recorded."""
    used, versions = section(results, "settings"), section(results, "versions")
    if not used and not versions and results.get("seed") is None:
        return None
    rows = [("seed", _show(results["seed"]))] if results.get("seed") is not None else []
    rows += [(str(key), _show(value)) for key, value in used.items() if key != "seed"]
    built = {"rfcdask": results.get("rfcdask"), **versions}
    made = [(str(key), _show(value)) for key, value in built.items() if value is not None]
    return part(
        "Settings and versions",
        "settings",
        el(
            "div",
            _pairs("Settings", rows) if rows else None,
            _pairs("Versions", made) if made else None,
            class_="cards",
        ),
    )


def _pairs(title: str, rows: list[tuple[str, str]]) -> Markup:
    body = [(name, el("code", value)) for name, value in rows]
    return el(
        "figure",
        el("figcaption", title),
        table(("name", "value"), body, class_="pairs", wordy=2),
    )


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _given(value: Any) -> str:
    """Return a value as ``--set`` takes it."""
    return ",".join(map(_show, value)) if isinstance(value, list | tuple) else _show(value)


def reproduce(results: Results) -> Markup | None:
    """Return the command; None when nobody said which it was."""
    command = command_of(results)
    if not command:
        return None
    return part(
        "Do it again",
        "reproduce",
        el("pre", el("code", command)),
        note("The same seed and data give the same selection, whatever the machine; times differ."),
    )


def command_of(results: Results) -> str:
    """Return a command line with the settings that were used, one a line."""
    said = str(results.get("command") or "").strip()
    if not said:
        return ""
    used: Mapping[str, Any] = section(results, "settings")
    seed = results.get("seed")
    given = {"seed": seed} | dict(used) if seed is not None else dict(used)
    options = [
        "--set " + shlex.quote(f"{key}={_given(value)}")
        for key, value in given.items()
        if value is not None and f"{key}=" not in said
    ]
    return " \\\n    ".join([said, *options])
