"""Commands that judge before and after: ``plan``, ``tune``, ``compare`` and ``report``."""

from __future__ import annotations

import dataclasses
import shlex
import time
from pathlib import Path
from typing import Any

import click

from rfcdask.cli import options as opt
from rfcdask.cli.errors import NO_FIT
from rfcdask.cli.files import (
    check_data,
    note,
    opened_data,
    require_free,
    scoring_of,
    show,
    standardized,
    to_json,
    whole_file,
)
from rfcdask.features.methods import METHODS, NEIGHBOURS
from rfcdask.persist.untrusted import faults_as, read_json, redacted
from rfcdask.pipeline.folder import RESULTS_FORMAT
from rfcdask.pipeline.settings import COUNT, POSITIVE, Settings, one_of

PICTURES = (".png", ".svg", ".pdf")
STEPS = ("fit", "transform", "train")
_SIZES = ("n_components", "n_candidates", "n_rows", "epochs")
_PLANNED = ("method", *_SIZES)


@click.command()
@click.argument("data")
@opt.setting_options(*_PLANNED)
@opt.list_option("--steps", one_of(STEPS), "What is to be done.", STEPS, metavar="WORDS")
@click.option(
    "--probe/--no-probe",
    default=True,
    show_default=True,
    help="Measure this machine for two seconds to tell the time.",
)
@opt.file_options
@opt.work_options
def plan(data: str, steps: tuple[str, ...], probe: bool, **options: Any) -> None:
    """Say what fitting DATA takes: blocks, tasks, bytes, memory and time.

    Ends with exit code 3, and the remedy, when it will not fit the memory.

    \b
    Example:
      rfcdask plan data.zarr --n-components 200
    """
    if options["method"] == "none":
        raise click.UsageError("a plan is for features: give another --method than none.")
    check_data(data, options)
    from rfcdask.pipeline.data import settle
    from rfcdask.planning import plan as make_plan

    given = {name: options[name] for name in _PLANNED if options[name] is not None}
    with opt.session(options) as client, opened_data(data, options, client) as dataset:
        learner = "none" if dataset.y is None else "auto"
        settings = Settings(test_size=None, learner=learner, **given)
        settled = settings.to_dict() | settle(settings, dataset, compares=False)
        sizes = {name: settled[name] for name in _PLANNED}
        made = make_plan(dataset, **sizes, persist=False, steps=steps, client=client, probe=probe)
    show(made.to_dict(), repr(made), options["as_json"])
    if not made.fits:
        click.get_current_context().exit(NO_FIT)


@click.command()
@click.argument("data")
@click.option("--out", metavar="FILE", help="JSON file to write, for 'fit --tuned'.")
@opt.setting_options("kernel")
@opt.list_option("--gammas", POSITIVE, "Widths to try.", metavar="G,G")
@opt.list_option("--Cs", POSITIVE, "Penalties to try.", metavar="C,C")
@opt.count_option("--n-rows", 10_000, "Rows to try on; a fold needs about 10 N^2 bytes.", least=10)
@opt.count_option("--folds", 5, "Parts of the cross-validation.", least=2)
@click.option(
    "--strategy",
    type=click.Choice(["grid", "halving"]),
    default="halving",
    show_default=True,
    help="All pairs on all rows, or the best ones only.",
)
@click.option("--label-weights", is_flag=True, help="Choose the weight of the labels too.")
@opt.setting_options("scoring", "class_weight", "standardize", "random_state")
@opt.overwrite_option("a file")
@opt.file_options
@opt.work_options
def tune(
    data: str, out: str | None, cs: tuple[float, ...], overwrite: bool, **options: Any
) -> None:
    """Choose gamma and C for DATA by exact kernel machines on a sample of its rows.

    \b
    Example:
      rfcdask tune data.zarr --out tune.json
    """
    check_data(data, options)
    import rfcdask as rf

    if out:
        require_free(out, overwrite, data)
    with opt.session(options) as client, opened_data(data, options, client) as dataset:
        scoring = scoring_of(dataset, data, options["scoring"])
        seen, standard = standardized(dataset, options["standardize"])
        names = (
            *("kernel", "gammas", "n_rows", "folds", "strategy", "label_weights"),
            *("class_weight", "random_state"),
        )
        given = {name: options[name] for name in names if options[name] not in (None, (), False)}
        given = {"random_state": 0, "Cs": cs or None, "scoring": scoring} | given
        found = rf.tune(seen.X, seen.y, client=client, **given)
    result = _tuned(found) | {"standardize": standard, "data": data}
    if out:
        with whole_file(out, overwrite=overwrite) as file:
            file.write(to_json(result) + "\n")
    show(result, _tuned_text(result), options["as_json"])


def _tuned(found: Any) -> dict[str, Any]:
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    tables = ("table", "label_table")
    shown = {k: list(v) if k in tables and v is not None else v for k, v in fields.items()}
    return shown | {"accuracy": found.accuracy}


def _tuned_text(result: dict[str, Any]) -> str:
    scoring = result["scoring"].replace("_", " ")
    lines = [
        f"kernel        {result['kernel']}",
        f"gamma         {result['gamma']:.6g}",
        f"C             {result['C']:g}",
        f"alpha         {result['alpha']:.6g}",
        f"{scoring:<13} {result['score']:.4f} on {result['n_rows']:,} rows",
        f"standardized  {'yes' if result['standardize'] else 'no'}",
    ]
    if result["label_weight"] is not None:
        lines.append(f"label weight  {result['label_weight']:g}")
    return "\n".join(lines)


@click.command()
@click.argument("data")
@opt.setting_options(methods=(*METHODS, *NEIGHBOURS))
@opt.list_option("--n-components", COUNT, "Numbers of features.", (300,), metavar="N,N")
@opt.setting_options(n_candidates=5000, kernel="rbf", gamma="scale")
@opt.count_option("--n-rows", 50_000, "Rows to learn from.", least=2)
@opt.count_option("--n-test", 10_000, "Rows held out, at most a fifth of all.", least=2)
@opt.count_option("--repeats", 1, "Repeat with other rows and features, for means and spread.")
@opt.setting_options("scoring", "class_weight", "standardize", "random_state")
@click.option("--out", metavar="FILE", help="JSON file to write, for 'rfcdask report'.")
@click.option("--plot", metavar="FILE", help="Picture to draw: .png, .svg or .pdf.")
@opt.overwrite_option("files")
@opt.file_options
@opt.work_options
def compare(data: str, out: str | None, plot: str | None, overwrite: bool, **options: Any) -> None:
    """Fit feature maps on the same rows of DATA and measure each on rows none of them saw.

    \b
    Example:
      rfcdask compare data.zarr --methods compressed,random --out comparison.json
    """
    if plot and Path(plot).suffix not in PICTURES:
        raise click.BadParameter(f"{plot!r} must end in {', '.join(PICTURES)}.")
    check_data(data, options)
    for path in (out, plot):
        if path:
            require_free(path, overwrite, data)
    with opt.session(options) as client, opened_data(data, options, client) as dataset:
        table, results = _measure(dataset, data, options, client)
    if out:
        with whole_file(out, overwrite=overwrite) as file:
            file.write(to_json(results) + "\n")
    if plot:
        _draw(table, Path(plot))
    show(list(table), repr(table), options["as_json"])


def _measure(
    dataset: Any, path: str, options: dict[str, Any], client: Any
) -> tuple[Any, dict[str, Any]]:
    import rfcdask as rf

    scoring = scoring_of(dataset, path, options["scoring"])
    seen, standard = standardized(dataset, options["standardize"])
    names = ("kernel", "gamma", "n_candidates", "n_rows", "n_test", "repeats", "class_weight")
    used = {name: options[name] for name in names if options[name] is not None}
    used |= {
        "methods": options["methods"] or [*METHODS, *NEIGHBOURS],
        "scoring": scoring,
        "n_components": sorted(options["n_components"]),
        "random_state": options["random_state"] or 0,
    }
    table = rf.compare(seen.X, seen.y, client=client, **used)
    results = {
        "format": RESULTS_FORMAT,
        "rfcdask": rf.__version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": shlex.join(["rfcdask", "compare", redacted(path)]),
        "seed": used["random_state"],
        "scoring": scoring,
        "settings": used | {"standardize": standard},
        "data": _data_section(dataset, path),
        "comparison": [row for row in table if row["method"] not in NEIGHBOURS],
        "boosting": next((row for row in table if row["method"] in NEIGHBOURS), None),
    }
    return table, results


def _data_section(dataset: Any, path: str) -> dict[str, Any]:
    """Return what a report says of the data."""
    from rfcdask.data.dataset import describe_store

    found = describe_store(dataset, path)
    source = found["source"]
    kept = ("path", "rows", "columns", "dtype", "bytes", "blocks", "block_bytes", "shuffled")
    return {
        "name": Path(path.rstrip("/")).name.partition(".")[0],
        "source": ", ".join(source) if isinstance(source, list) else source,
        "classes": [str(name) for name in found["classes"] or ()],
    } | {name: found[name] for name in kept}


def _draw(table: Any, target: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    table.plot(figure.subplots(1, 2))
    with whole_file(str(target), mode="wb") as file:
        figure.savefig(file, format=target.suffix[1:], dpi=150)


@click.command()
@click.argument("results")
@click.argument("page")
@opt.overwrite_option("a page")
@opt.output_options
def report(results: str, page: str, overwrite: bool) -> None:
    """Write the RESULTS of run or compare as one HTML PAGE that works offline.

    RESULTS is the results.json of 'rfcdask run', or what 'rfcdask compare --out' wrote.

    \b
    Example:
      rfcdask report comparison.json report.html
    """
    require_free(page, overwrite, results)
    data = read_results(Path(results))
    from rfcdask.pipeline.report import render

    text = render(data)
    with whole_file(page, overwrite=overwrite) as file:
        file.write(text)
    note(f"{page}: {len(text.encode()) / 1000:,.0f} kB")


def read_results(path: Path) -> dict[str, object]:
    """Read results, or say what is wrong with the file."""
    with faults_as(
        lambda why: ValueError(f"{path} is no JSON ({why}): give a results.json."),
        FileNotFoundError,
    ):
        found = read_json(path)
    number = found.get("format") if isinstance(found, dict) else None
    if not isinstance(number, int) or not isinstance(found.get("data"), dict):
        raise ValueError(
            f"{path} does not hold results: give the results.json of 'rfcdask run' or the file of "
            "'rfcdask compare --out'."
        )
    if number > RESULTS_FORMAT:
        raise ValueError(
            f"{path} has format {number}, this version reads {RESULTS_FORMAT}: update rfcdask."
        )
    return dict(found)
