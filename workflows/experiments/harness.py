"""What the experiments share: data by path, options, results kept trial by trial, figures.

Every script has the same options (`--help`). Data are given by a folder in which each set is either
``NAME.zarr`` (what ``rfcdask fetch NAME`` writes; ``NAME-test.zarr`` beside it if test rows are a
file of their own) or one of the ``.npz`` files of `FILES`. ``--quick`` is a minute's form on small
sizes, on synthetic data unless a folder is given. Results go to a CSV file, one line per measured
value of a trial; a trial that is there is not run again, so that a run goes on where it ended.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import math
import os
import pickle
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from data import FILES, MADE, MADE_ROWS, Array, Rows, made, read, synthetic, titled
from figures import Row, draw_lines, log_axis, one_figure

import rfcdask as rf

PAPER_SETS = ("adult", "human", "mnist", "sensorless", "covtype")
"""The sets of the paper's figures 1 and 2, and covtype, which has more rows."""
ERROR = "relative Frobenius error"
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Options:
    """What every script is told."""

    data: Path | None
    sets: tuple[str, ...]
    trials: int
    seed: int
    scheduler: str
    out: Path
    quick: bool
    n_rows: int | None = None
    sizes: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    maps: Path | None = None

    def rows(self, name: str, trial: int = 0) -> Rows:
        """Return a data set; sets without test rows of their own are split anew in each trial."""
        seed = self.seed + trial
        if name == MADE and not self.quick:
            return made(self.n_rows or MADE_ROWS, seed)
        if self.data is None:
            if not self.quick:
                raise SystemExit("--data FOLDER is needed: see `rfcdask fetch --list`.")
            return synthetic(seed=0)
        rows = read(self.data, name, seed)
        count = self.n_rows or (2000 if self.quick else None)
        return rows._replace(X=rows.X[:count], y=rows.y[:count])


def parse(doc: str | None, *, sets: Sequence[str] = PAPER_SETS, trials: int = 20) -> Options:
    """Read the options from the command line."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the data sets are")
    parser.add_argument("--sets", nargs="+", default=list(sets), choices=[*FILES, MADE])
    parser.add_argument(
        "--trials", type=int, default=None, help=f"default: {trials}; 0 draws what is there"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--scheduler", default="threads", help="as rf.connect takes it")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results and figures")
    parser.add_argument("--rows", type=int, help="most rows to learn from")
    parser.add_argument("--sizes", type=int, nargs="+", default=(), help="numbers of features J")
    parser.add_argument("--methods", nargs="+", default=(), help="some lines of the figure only")
    parser.add_argument("--maps", type=Path, help="folder of chosen maps, for more experiments")
    parser.add_argument("--quick", action="store_true", help="small sizes, two trials")
    given = parser.parse_args()
    if given.quick:
        trials, given.sets = 2, given.sets[:1]
        if given.data is None:
            given.sets = ["synthetic"]
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", UserWarning)  # fewer features than asked for on few rows
    return Options(
        given.data, tuple(given.sets), trials if given.trials is None else given.trials, given.seed,
        given.scheduler, given.out, given.quick, given.rows,
        tuple(given.sizes), tuple(given.methods), given.maps,
    )  # fmt: skip


def lazy(values: Array) -> Any:
    """Return rows as a dask array of small blocks, so that no map is held for all of them."""
    return da.from_array(values, chunks=(4096, *values.shape[1:]))


class Results:
    """Rows of a CSV file, added trial by trial.

    Parameters
    ----------
    path : Path
    keys : sequence of str
        The columns that name one trial.
    """

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self.path, self.keys = path, tuple(keys)
        self.rows: list[Row] = []
        if path.exists():
            with path.open(newline="") as file:
                self.rows = [
                    {name: _value(text) for name, text in row.items()}
                    for row in csv.DictReader(file)
                ]
        self._done = {self._key(row) for row in self.rows}

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.keys)

    def __contains__(self, key: Row) -> bool:
        return self._key(key) in self._done

    def add(self, key: Row, rows: Iterable[Row]) -> None:
        """Keep what a trial measured; the file is replaced whole, so a trial is there or not."""
        self.rows += [key | row for row in rows]
        self._done.add(self._key(key))
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        part = self.path.with_suffix(".part")
        with part.open("w", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: _text(v) for k, v in row.items()} for row in self.rows)
        os.replace(part, self.path)

    def run(self, keys: Iterable[Row], measure: Callable[..., Iterable[Row]]) -> None:
        """Measure each trial that is not there yet, and say how it went."""
        todo = [key for key in keys if key not in self]
        for done, key in enumerate(todo, start=1):
            start, cpu = time.perf_counter(), time.process_time()
            self.add(key, list(measure(**key)))
            name = " ".join(str(value) for value in key.values())
            took = f"{time.perf_counter() - start:.1f} s, {time.process_time() - cpu:.1f} s of CPU"
            print(f"{self.path.stem}: {name} ({took}; {done} of {len(todo)})", flush=True)

    def summary(self, by: Sequence[str], value: str) -> list[Row]:
        """Return mean and standard deviation over trials, and their number, for each group."""
        groups: dict[tuple[Any, ...], list[float]] = {}
        for row in self.rows:
            if row.get(value) not in (None, ""):
                groups.setdefault(tuple(row[name] for name in by), []).append(float(row[value]))
        return [
            dict(zip(by, group, strict=True))
            | {
                "mean": float(np.mean(found)),
                "std": float(np.std(found, ddof=1)) if len(found) > 1 else math.nan,
                "trials": len(found),
            }
            for group, found in groups.items()
        ]


def _value(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _text(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def run_trials(
    doc: str | None,
    name: str,
    cells: Callable[[Options], Iterable[Row]],
    measure: Callable[..., Iterable[Row]],
    report: Callable[[Options, Results], None],
    **defaults: Any,
) -> None:
    """Run an experiment from its command line: `measure` of all cells, trial after trial.

    A cell is what one trial is told, such as the data set and the method. Trials come first, so
    that a run that is ended has all methods of the trials that it reached.
    """
    options = parse(doc, **defaults)
    found = [
        cell for cell in cells(options)
        if not options.methods or cell.get("method") in options.methods
    ]  # fmt: skip
    if not found:
        raise SystemExit(f"--methods: none of {', '.join(options.methods)} is a line of {name}.")
    results = Results(options.out / f"{name}.csv", [*found[0], "trial"])
    keys = [cell | {"trial": trial} for trial in range(options.trials) for cell in found]
    with rf.connect(options.scheduler):
        results.run(keys, lambda **key: measure(options, **key))
    report(options, results)


def cells_of(**axes: Sequence[Any]) -> list[Row]:
    """Return all combinations of values."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def tuned(options: Options, name: str) -> tuple[float, float]:
    """Return gamma and C by the paper's protocol; kept in ``tuned.csv`` for all experiments.

    An exact kernel SVM on 10,000 random rows, 5-fold cross-validation over both, by successive
    halving of the pairs.
    """
    results = Results(options.out / "tuned.csv", ["data"])
    key = {"data": name}
    if key not in results:
        rows = options.rows(name)
        found = rf.tune(
            rows.X,
            rows.y,
            n_rows=300 if options.quick else 10_000,
            strategy="halving",
            random_state=options.seed,
        )
        kept = {"gamma": found.gamma, "C": found.C, "accuracy": found.accuracy}
        results.add(key, [kept | {"n_rows": found.n_rows}])
    row = next(row for row in results.rows if row["data"] == name)
    return float(row["gamma"]), float(row["C"])


N_CANDIDATES = 5000
MAPS: dict[str, Callable[..., Any]] = {
    "RFM": rf.RandomFeatures,
    "RFM-JL": lambda J, **more: rf.JLFeatures(J, n_candidates=more.pop("n_candidates"), **more),
    "RFM-FW": lambda J, **more: rf.CompressedFeatures.paper(J, solver="frank-wolfe", **more),
    "RFM-GIGA": lambda J, **more: rf.CompressedFeatures.paper(J, solver="giga", **more),
    "compressed": rf.CompressedFeatures,
    "compressed, paired": lambda J, **more: rf.CompressedFeatures(J, phases="paired", **more),
    "compressed, labels": lambda J, **more: rf.CompressedFeatures(J, label_weight=1.0, **more),
    "Nyström": rf.NystroemFeatures,
    "Nyström, RPCholesky": lambda J, **more: rf.NystroemFeatures(J, landmarks="rpcholesky", **more),
}
"""The feature maps by the names of the figures; the paper's as the paper has them."""
_WITH_CANDIDATES = ("RFM-JL", "RFM-FW", "RFM-GIGA", "compressed")


def make_map(options: Options, method: str, J: int, gamma: float, trial: int, **more: Any) -> Any:
    """Return an unfitted feature map; ``--quick`` chooses among fewer candidates."""
    if method.startswith(_WITH_CANDIDATES):
        more.setdefault("n_candidates", 400 if options.quick else N_CANDIDATES)
    if options.quick and method in ("RFM-FW", "RFM-GIGA"):
        more.setdefault("n_pairs", 2000)
    if options.quick and method.startswith("compressed"):
        more = {"n_rows": 500, "refine": 20} | more
    return MAPS[method](J, gamma=gamma, random_state=options.seed + trial, **more)


def fit_timed(feature_map: Any, X: Array, y: Array) -> tuple[Any, float]:
    """Return the fitted map and the seconds it took."""
    start = time.perf_counter()
    feature_map.fit(X, y)
    return feature_map, time.perf_counter() - start


def fit_sizes(
    options: Options, data: str, rows: Rows, method: str, sizes: Sequence[int], gamma: float,
    trial: int, **more: Any,
) -> Iterator[tuple[int, Any, float]]:  # fmt: skip
    """Give fitted maps of several sizes, one selection for all, and the seconds of each.

    With ``--maps`` they are kept, so that figures 1 and 2 choose the same maps once.
    """
    sizes, seed = list(sizes), options.seed + trial
    name = f"{data} {len(rows.X)} {method} {sizes} {gamma:.4g} {seed} {more}"
    kept = options.maps and options.maps / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.pkl"
    if kept and kept.exists():
        yield from pickle.loads(kept.read_bytes())
        return
    maps = [make_map(options, method, J, gamma, trial, **more) for J in sizes]
    if isinstance(maps[-1], rf.CompressedFeatures):
        fitted = maps[-1].fit_sizes(rows.X, rows.y, sizes=sizes)
    else:
        fitted = [fit_timed(one, rows.X, rows.y) for one in maps]
    found = [(J, features, seconds) for J, (features, seconds) in zip(sizes, fitted, strict=True)]
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
    yield from found


def model_bytes(method: str, p: int, J: int) -> int:
    """Return the size in float32 of what `transform` needs of a fitted map."""
    numbers = p * J + 2 * J  # frequencies, phases, scales
    if method == "RFM-JL":
        numbers = p * N_CANDIDATES + N_CANDIDATES + N_CANDIDATES * J
    elif method.startswith("Nyström"):
        numbers = p * J + J * J
    return 4 * numbers


def table_of(summary: list[Row], x: str, *, line: str = "method", digits: int = 3) -> str:
    """Return means and standard deviations as Markdown, one column for each value of x."""
    values = sorted({row[x] for row in summary})
    lines = [f"| {line} | " + " | ".join(f"{value:,}" for value in values) + " |"]
    lines.append("|---" * (len(values) + 1) + "|")
    for name in dict.fromkeys(row[line] for row in summary):
        found = {row[x]: row for row in summary if row[line] == name}
        cells = [mean_and_spread(found.get(value), digits) for value in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def print_table(summary: list[Row], x: str, *, line: str = "method", digits: int = 3) -> None:
    """Print what `table_of` returns."""
    print(table_of(summary, x, line=line, digits=digits))


def mean_and_spread(row: Row | None, digits: int) -> str:
    """Return a mean with its spread, both cut at the place of the third digit of the mean."""
    if row is None or math.isnan(row["mean"]):
        return "-"
    if row["mean"]:
        digits = max(digits, 2 - math.floor(math.log10(abs(row["mean"]))))
    known = not math.isnan(row["std"]) and (row["std"] > 0 or digits > 0)
    spread = f" ± {row['std']:.{digits}f}" if known else ""
    return f"{row['mean']:,.{digits}f}{spread}"


def report_lines(
    options: Options,
    results: Results,
    value: str,
    x: str,
    *,
    xlabel: str,
    ylabel: str,
    figure: str | None = None,
    log_y: bool = True,
    level: Sequence[str] = (),
) -> None:
    """Print a table for each data set and draw them side by side, one line per method.

    Methods in `level` do not depend on `x` and are drawn as level lines.
    """
    found = results.summary(["data", "method", x], value)
    sets = list(dict.fromkeys(row["data"] for row in found))
    name = figure or results.path.stem
    with one_figure(options.out, name, [titled(data) for data in sets]) as panels:
        for panel, data in zip(panels, sets, strict=True):
            chosen = [row for row in found if row["data"] == data]
            lines = [row for row in chosen if row["method"] not in level]
            ends = (min(row[x] for row in lines), max(row[x] for row in lines))
            lines += [row | {x: end} for row in chosen if row["method"] in level for end in ends]
            draw_lines(panel, lines, x, xlabel=xlabel, ylabel=ylabel)
            log_axis(panel, (row[x] for row in lines))
            if log_y:
                panel.set_yscale("log")
            trials = "-".join(str(n) for n in sorted({row["trials"] for row in chosen}))
            print(f"\n{titled(data)}: {ylabel}, {trials} trials\n")
            print_table(chosen, x)
