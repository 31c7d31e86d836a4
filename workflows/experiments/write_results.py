"""Write the tables of workflows/RESULTS.md and docs/scale.md from the CSV files of the experiments.

What stands between a mark and ``<!-- end -->`` is written anew:

- ``<!-- table FILE VALUE X key=value ... -->``: means and standard deviations of VALUE over trials,
  one line per method, one column per X.
- ``<!-- sets FILE VALUE METHOD:J METHOD:J ... -->``: one line per data set, one column per method.
- ``<!-- verdicts FILE VALUE A:J/B:J ... -->``: one line per data set, one column per comparison:
  the difference with its standard error, and whether it is more than two of them. More is better
  for accuracy, less for everything else.
- ``<!-- steps FILE X key=value VALUE ... -->``: one line per VALUE, one column per X.
- ``<!-- values FILE COLUMN,COLUMN key=value ... VALUE ... -->``: one line per combination of the
  columns, one column per VALUE.
- ``<!-- exponents FILE DATA -->``: the powers that times grow with.

Blanks in names are written as ``_``. A test checks that the page is what this script writes.

    python workflows/experiments/write_results.py [--check]
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

from costs import exponents_table
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
_MARK = re.compile(r"(<!-- (?P<kind>\w+) (?P<what>[^>]*?) -->\n).*?(<!-- end -->)", re.S)


def table(folder: Path, file: str, value: str, x: str, *where: str) -> str:
    """Return means by method and x."""
    pairs = [condition.split("=", 1) for condition in where]
    wanted = {key: _words(text) for key, text in pairs}
    results = Results(folder / f"{file}.csv", ())
    line = "method" if "method" in results.rows[0] else "varied"
    found = results.summary([*dict.fromkeys([line, x, *wanted])], value)
    chosen = [row for row in found if all(str(row[k]) == v for k, v in wanted.items())]
    return f"{table_of(chosen, x, line=line, digits=_digits(value))}\n\n{_trials(chosen)}.\n"


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


def verdicts(folder: Path, file: str, value: str, *comparisons: str) -> str:
    """Return one line per data set and one column per comparison: difference and verdict."""
    sign = 1 if "accuracy" in value else -1
    pairs = [[_words(name) for name in comparison.split("/")] for comparison in comparisons]
    heads = [f"{_title(first)} against {_title(second)}" for first, second in pairs]
    lines = ["| data | " + " | ".join(heads) + " |", "|---" * (len(pairs) + 1) + "|"]
    used: list[Row] = []
    for data, cells in _by_set(folder, file, value).items():
        shown = []
        for first, second in pairs:
            known = first in cells and second in cells
            used += [cells[first], cells[second]] if known else []
            shown.append(_judged(cells[first], cells[second], sign) if known else "not measured")
        lines.append(f"| {titled(data)} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + f"\n\n{_trials(used)}.\n"


def values(folder: Path, file: str, lines_by: str, *rest: str) -> str:
    """Return one line per combination of some columns, and one column per value."""
    wanted = dict(_words(text).split("=", 1) for text in rest if "=" in text)
    names = [text for text in rest if "=" not in text]
    by = [*lines_by.split(","), *wanted]
    results = Results(folder / f"{file}.csv", ())
    cells: dict[str, list[str]] = {}
    used: list[Row] = []
    for name in names:
        for row in results.summary(by, name):
            if all(str(row[key]) == text for key, text in wanted.items()):
                used.append(row)
                line = ", ".join(str(row[key]) for key in lines_by.split(","))
                cells.setdefault(line, []).append(mean_and_spread(row, _digits(name)))
    head = f"| {lines_by.replace(',', ', ')} | " + " | ".join(map(_words, names)) + " |"
    lines = [f"| {line} | " + " | ".join(shown) + " |" for line, shown in cells.items()]
    return "\n".join([head, "|---" * (len(names) + 1) + "|", *lines]) + f"\n\n{_trials(used)}.\n"


def exponents(folder: Path, file: str, data: str) -> str:
    """Return the powers that times grow with, beside the paper's orders."""
    return exponents_table(Results(folder / f"{file}.csv", ()), data) + "\n"


def steps(folder: Path, file: str, x: str, where: str, *values: str) -> str:
    """Return several measured values against x."""
    key, wanted = _words(where).split("=", 1)
    results = Results(folder / f"{file}.csv", ())
    rows = [
        row | {"": _words(value)}
        for value in values
        for row in results.summary([key, x], value)
        if str(row[key]) == wanted
    ]
    return f"{table_of(rows, x, line='', digits=1)}\n\n{_trials(rows)}.\n"


def _judged(first: Row, second: Row, sign: int) -> str:
    """Return the verdict at two standard errors, and the difference with one of them."""
    difference = first["mean"] - second["mean"]
    if min(first["trials"], second["trials"]) < 2:
        return f"one trial: {difference:+.2g}"
    error = math.sqrt(sum(row["std"] ** 2 / row["trials"] for row in (first, second)))
    verdict = "same"
    if abs(difference) > 2 * error:
        verdict = "**win**" if sign * difference > 0 else "**loss**"
    digits = max(0, 1 - math.floor(math.log10(error or 1)))
    return f"{verdict}, {difference:+.{digits}f} ± {error:.{digits}f}"


def _by_set(folder: Path, file: str, value: str) -> dict[str, dict[str, Row]]:
    """Return means by data set and by ``METHOD:J``."""
    found: dict[str, dict[str, Row]] = {}
    for row in Results(folder / f"{file}.csv", ()).summary(["data", "method", "J"], value):
        found.setdefault(row["data"], {})[f"{row['method']}:{row['J']}"] = row
    return found


def _digits(value: str) -> int:
    if value.endswith(("seconds", "MB", "per_row")):
        return 1
    return {"accuracy": 4, "bytes": 0, "microseconds": 1}.get(value, 3)


def _title(name: str) -> str:
    method, _, size = name.rpartition(":")
    return method if size == "0" else f"{method}, {int(size):,}"


def _words(text: str) -> str:
    return text.replace("_", " ")


def _trials(rows: list[Row]) -> str:
    counts = sorted({row["trials"] for row in rows})
    if counts in ([], [1]):
        return f"{len(counts)} trial"
    return f"{counts[0]} trials" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} trials"


KINDS: dict[str, Callable[..., str]] = {
    kind.__name__: kind for kind in (table, sets, verdicts, steps, values, exponents)
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
