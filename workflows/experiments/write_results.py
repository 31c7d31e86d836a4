"""Write the tables of workflows/RESULTS.md and docs/scale.md from the CSV files of the experiments.

What stands between a mark and ``<!-- end -->`` is written anew:

- ``<!-- table FILE VALUE X key=value ... -->``: means and standard deviations of VALUE over trials,
  one line per method, one column per X.
- ``<!-- sets FILE VALUE METHOD:J METHOD:J ... -->``: one line per data set, one column per method.
- ``<!-- versus FILE VALUE METHOD:J METHOD:J -->``: one line per data set: both means, their
  difference in standard errors, and whether it is a win. The first may be several, ``A:J|B:J``: the
  best of them is taken. More is better for accuracy, less for everything else.

- ``<!-- steps FILE X key=value VALUE ... -->``: one line per VALUE, one column per X.

Blanks in names are written as ``_``. A test checks that the page is what this script writes.

    python workflows/experiments/write_results.py [--check]
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

from data import titled
from figures import Row
from harness import (
    RESULTS,
    Results,
    mean_and_spread,
    table_of,
)

PAGES = (
    Path(__file__).parents[1] / "RESULTS.md",
    Path(__file__).parents[2] / "docs" / "scale.md",
)
_MARK = re.compile(
    r"(<!-- (?P<kind>table|sets|versus|steps) (?P<what>[^>]*?) -->\n).*?(<!-- end -->)", re.S
)


def table(folder: Path, file: str, value: str, x: str, *where: str) -> str:
    """Return means by method and x."""
    pairs = [condition.split("=", 1) for condition in where]
    wanted = {key: _words(text) for key, text in pairs}
    results = Results(folder / f"{file}.csv", ())
    line = "method" if "method" in results.rows[0] else "varied"
    found = results.summary([*dict.fromkeys([line, x, *wanted])], value)
    chosen = [row for row in found if all(str(row[k]) == v for k, v in wanted.items())]
    digits = 1 if value.endswith(("seconds", "MB", "per_row")) else _digits(value)
    return f"{table_of(chosen, x, line=line, digits=digits)}\n\n{_trials(chosen)}.\n"


def sets(folder: Path, file: str, value: str, *methods: str) -> str:
    """Return one line per data set and one column per method at its size."""
    found = _by_set(folder, file, value)
    names = [_words(method) for method in methods]
    lines = ["| data | " + " | ".join(_title(name) for name in names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for data, cells in found.items():
        shown = [mean_and_spread(cells.get(name), _digits(value)) for name in names]
        lines.append(f"| {titled(data)} | " + " | ".join(shown) + " |")
    used = [cells[name] for cells in found.values() for name in names if name in cells]
    return "\n".join(lines) + f"\n\n{_trials(used)}.\n"


def versus(folder: Path, file: str, value: str, first: str, second: str) -> str:
    """Return who wins on each data set, and by how many standard errors."""
    sign = 1 if "accuracy" in value else -1
    names, other = [_words(name) for name in first.split("|")], _words(second)
    lines = [
        f"| data | {' or '.join(map(_title, names))} | {_title(other)} | difference | verdict |"
    ]
    lines.append("|---" * 5 + "|")
    used: list[Row] = []
    for data, cells in _by_set(folder, file, value).items():
        ours = [(sign * cells[name]["mean"], name) for name in names if name in cells]
        if not ours or other not in cells:
            continue
        name = max(ours)[1]
        pair = cells[name], cells[other]
        used += pair
        prefix = f"{_title(name)}: " if len(names) > 1 else ""
        shown = [mean_and_spread(row, _digits(value)) for row in pair]
        lines.append(
            f"| {titled(data)} | {prefix}{shown[0]} | {shown[1]} | {_judged(*pair, sign)} |"
        )
    return "\n".join(lines) + f"\n\n{_trials(used)}.\n"


def steps(folder: Path, file: str, x: str, where: str, *values: str) -> str:
    """Return several measured values against x."""
    key, wanted = where.split("=", 1)
    results = Results(folder / f"{file}.csv", ())
    rows = [
        row | {"": _words(value)}
        for value in values
        for row in results.summary([key, x], value)
        if str(row[key]) == wanted
    ]
    return f"{table_of(rows, x, line='', digits=1)}\n\n{_trials(rows)}.\n"


def _judged(first: Row, second: Row, sign: int) -> str:
    """Return the difference with its standard error, and the verdict at two of them."""
    difference = first["mean"] - second["mean"]
    digits = max(3, 2 - math.floor(math.log10(abs(difference) or 1)))
    if min(first["trials"], second["trials"]) < 2:
        return f"{difference:+.{digits}f} | one trial: no verdict"
    error = math.sqrt(sum(row["std"] ** 2 / row["trials"] for row in (first, second)))
    verdict = "no difference"
    if abs(difference) > 2 * error:
        verdict = "win" if sign * difference > 0 else "loss"
    return f"{difference:+.{digits}f} ± {error:.{digits}f} | {verdict}"


def _by_set(folder: Path, file: str, value: str) -> dict[str, dict[str, Row]]:
    """Return means by data set and by ``METHOD:J``."""
    found: dict[str, dict[str, Row]] = {}
    for row in Results(folder / f"{file}.csv", ()).summary(["data", "method", "J"], value):
        found.setdefault(row["data"], {})[f"{row['method']}:{row['J']}"] = row
    return found


def _digits(value: str) -> int:
    return {"accuracy": 4, "bytes": 0, "microseconds": 1}.get(value, 3)


def _title(name: str) -> str:
    method, _, size = name.rpartition(":")
    return method if size == "0" else f"{method}, {int(size):,}"


def _words(text: str) -> str:
    return text.replace("_", " ")


def _trials(rows: list[Row]) -> str:
    counts = sorted({row["trials"] for row in rows})
    if counts == [1]:
        return "1 trial"
    return f"{counts[0]} trials" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} trials"


KINDS: dict[str, Callable[..., str]] = {
    "table": table,
    "sets": sets,
    "versus": versus,
    "steps": steps,
}


def fill(text: str, folder: Path = RESULTS) -> str:
    """Return the page with its tables as the results have them."""

    def written(found: re.Match[str]) -> str:
        return found[1] + KINDS[found["kind"]](folder, *found["what"].split()) + found[4]

    return _MARK.sub(written, text)


if __name__ == "__main__":
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        filled = fill(page)
        if "--check" not in sys.argv[1:]:
            path.write_text(filled, encoding="utf-8")
        elif filled != page:
            raise SystemExit(f"{path} differs from the results: run {Path(__file__).name}.")
