"""Write the tables of workflows/RESULTS.md from the CSV files beside this script.

A table stands between ``<!-- table FILE VALUE X key=value ... -->`` and ``<!-- end -->``: means and
standard deviations of VALUE over trials, one line per method, one column per X. A test checks that
the page is what this script writes.

    python workflows/experiments/write_results.py
"""

from __future__ import annotations

import re
from pathlib import Path

from harness import RESULTS, Results, table_of

PAGE = Path(__file__).parents[1] / "RESULTS.md"
_TABLE = re.compile(r"(<!-- table (?P<what>[^>]*?) -->\n).*?(<!-- end -->)", re.S)


def table(what: str, folder: Path = RESULTS) -> str:
    """Return the table that a mark asks for."""
    file, value, x, *where = what.split()
    wanted = dict(condition.split("=", 1) for condition in where)
    results = Results(folder / f"{file}.csv", ())
    line = "method" if "method" in results.rows[0] else "varied"
    found = results.summary([*dict.fromkeys([line, x, *wanted])], value)
    chosen = [row for row in found if all(str(row[k]) == v for k, v in wanted.items())]
    trials = sorted({row["trials"] for row in chosen})
    count = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    digits = 1 if value.endswith(("seconds", "MB")) else 3
    return f"{table_of(chosen, x, line=line, digits=digits)}\n\n{count} trials.\n"


def fill(text: str, folder: Path = RESULTS) -> str:
    """Return the page with its tables as the results have them."""
    return _TABLE.sub(lambda found: found[1] + table(found["what"], folder) + found[3], text)


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
