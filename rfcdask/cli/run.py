"""Commands for models: ``run``, ``fit``, ``plan``, ``tune``, ``compare``, ``report``."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from rfcdask.cli import NO_FIT, in_options, on_interrupt
from rfcdask.cli import options as opt
from rfcdask.cli.files import (
    check_data,
    is_store,
    note,
    opened_data,
    require_free,
    scoring_of,
    show,
    standardized,
    to_json,
    unfinished,
    whole_file,
)
from rfcdask.features import METHODS, NEIGHBOURS
from rfcdask.persist.untrusted import faults_as, redacted
from rfcdask.pipeline.folder import MADE_AGAIN, RESULTS_FORMAT, damage_of, read_results
from rfcdask.pipeline.settings import (
    COMPARING,
    COUNT,
    POSITIVE,
    READING,
    STORING,
    Settings,
    describe,
    one_of,
)

ALL = tuple(Settings.__dataclass_fields__)
WORK = ("scheduler", "threads", "ignore_plan")
FIT = tuple(name for name in ALL if name not in COMPARING)
PICTURES = (".png", ".svg", ".pdf")
STEPS = ("fit", "transform", "train")
TUNED = ("kernel", "gammas", "n_rows", "folds", "strategy", "label_weights", "class_weight",
         "random_state")  # fmt: skip
PLANNED = ("method", "n_components", "n_candidates", "n_rows", "epochs")


def _list_settings(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        for name, default, about in describe():
            click.echo(f"{name + '=' + default:<30}  {about}")
        ctx.exit()


@click.command(
    epilog="\b\nExamples:\n  rfcdask run\n"
    "  rfcdask run flights.csv --label late --out flights-run\n"
    "  rfcdask run higgs.zarr --scheduler tcp://10.0.0.1:8786 --sizes 300,1000\n"
    "  rfcdask run --resume"
)
@click.argument("source", required=False, metavar="[PATH]")
@click.option(
    "--out",
    default="rfcdask-run",
    show_default=True,
    metavar="DIR",
    help="Folder for the report, the results, the model, the log and the data made.",
)
@click.option("--resume", is_flag=True, help="Go on after the last finished phase.")
@opt.overwrite_option("a run")
@click.option(
    "--list-settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_settings,
    help="List all settings with their defaults and exit.",
)
@opt.setting_options(*ALL)
@opt.pipeline_options
@opt.scheduler_options("local")
@opt.json_option
@opt.output_options
def run(
    source: str | None, out: str, resume: bool, overwrite: bool, as_json: bool, **options: Any
) -> None:
    """Go from data to a model and a report, in one go.

    PATH is a store, or svmlight, CSV or Parquet data with labels; without it a million rows are
    made whose classes no linear model can tell apart. Feature maps are compared on held-out rows
    and a model is trained on all others. DIR gets report.html, results.json, model and run.log.

    A run that was stopped goes on with --resume.
    """
    if resume and overwrite:
        raise click.UsageError("--resume goes on with a run and --overwrite replaces it: give one.")
    settings = opt.given_settings(options)
    if not resume:
        _check_source(source, options)
    from rfcdask.kernels.runtime import share_freed_memory
    from rfcdask.pipeline import RunFolder, run_job
    from rfcdask.pipeline.report import summary

    share_freed_memory()
    folder = RunFolder.at(out)
    on_interrupt(f"Interrupted; what is finished stays. To go on: {folder.resume_command}")
    with opt.progress_on_stderr():
        results = run_job(
            source,
            out,
            settings=settings,
            resume=resume,
            overwrite=overwrite,
            say=note,
            **{name: options[name] for name in WORK},
        )
    with damage_of(folder.results, f"{MADE_AGAIN}, or {folder.how_to_begin_anew}"):
        text = summary(results, folder.model, folder.report)
    show(results, text, as_json)


def _check_source(source: str | None, options: dict[str, Any]) -> None:
    """Refuse options that would count for nothing."""
    if source is not None:
        if options["rows"] is not None:
            raise click.UsageError("--rows is for data that are made: leave it or PATH out.")
        check_data(source, options, *STORING)
        return
    for name in (*READING, *STORING):
        if name != "block_size" and options[name] is not None:
            said = f"--{name.replace('_', '-')} tells how to read a file: give PATH."
            raise click.UsageError(said)


@click.command()
@click.argument("data")
@click.argument("model")
@opt.overwrite_option("a model")
@opt.setting_options(*FIT, test_size=None)
@opt.pipeline_options
@opt.work_options
def fit(data: str, model: str, overwrite: bool, as_json: bool, **options: Any) -> None:
    """Choose features for DATA, train on them, and write the folder MODEL.

    DATA is a store, or a file that is read into one first. MODEL holds all that predicting needs:
    column means and deviations, the features, the coefficients and the names of the classes.
    --method none trains on the columns themselves, --learner none writes the feature map alone.

    What will not fit the memory is refused (exit code 3). Interrupted, it goes on when it is
    called again with the same arguments.

    \b
    Examples:
      rfcdask fit data.zarr model --n-components 50
      rfcdask fit data.csv model2 --label target --method compressed --test-size 0.2
      rfcdask fit data.zarr model3 --tuned tune.json --learner ridge
    """
    settings = opt.given_settings(options)
    if settings.get("method") == "none" and settings.get("learner") == "none":
        raise click.UsageError("--method none with --learner none leaves nothing to fit.")
    _require_use(opt.typed_settings(options), settings)
    target = require_free(model, overwrite)
    if target.exists() and not (target / "model.json").is_file():
        raise FileExistsError(f"{model} is no saved model: choose another path.")
    check_data(data, options, *STORING)
    work = unfinished(model)
    on_interrupt(f"Interrupted: call the same command again to go on; {work} keeps what is done.")
    if not is_store(data):
        note(f"{data} is no store: reading it into {work}/data.zarr first, which is gone later.")
    from rfcdask.kernels.runtime import share_freed_memory
    from rfcdask.pipeline import fit_model

    share_freed_memory()
    with opt.progress_on_stderr():
        result = fit_model(
            data,
            model,
            settings=settings,
            overwrite=overwrite,
            say=note,
            **{name: options[name] for name in WORK},
        )
    show(result, _fitted_text(result), as_json)


def _require_use(typed: dict[str, Any], settings: dict[str, Any]) -> None:
    """Refuse what counts for features that are chosen, where they learn with the model."""
    if not Settings(**settings).learns_features:
        return
    for name in ("n_candidates", "n_rows", "refine"):
        if typed.get(name) is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for features that are chosen, and those of "
                "--method learned learn with the model: leave it out, or pass --method compressed."
            )
    if typed.get("gamma") in ("scale", "median"):
        raise click.UsageError(
            f"--gamma {typed['gamma']} is a rule for features that are chosen, and --method "
            "learned tries widths: leave it out, give a number, or pass --method compressed."
        )


def _fitted_text(result: dict[str, Any]) -> str:
    parts = f"{result['n_components']} {result['map']} features, {result['learner']}"
    if result["map"] == "none":
        parts = f"{result['learner']} on {result['columns']} columns"
    lines = [f"Warning: {in_options(said)}" for said in result.get("warnings") or ()]
    lines.append(f"{result['model']}: {parts}")
    if result.get("heldout_error") is not None:
        lines.append(f"kernel error on held-out pairs: {result['heldout_error']:.4g}")
    left = "encoded by their kind" if result["table"] else "as they are, all in -1..1"
    columns = "standardized" if result["standardized"] else left
    lines.append(
        f"trained on {result['rows']:,} rows in {result['seconds']:.1f} s, columns {columns}"
    )
    if result.get("score") is not None:
        lines.append(
            f"{result['metric']} on {result['test_rows']:,} held-out rows: {result['score']:.4f}"
        )
        shown = ("balanced_accuracy", "roc_auc", "log_loss", "root_mean_squared_error")
        found = {name: result["metrics"][name] for name in shown if name in result["metrics"]}
        lines += [f"{name.replace('_', ' ')}: {value:.4g}" for name, value in found.items()]
    return "\n".join(lines)


@click.command()
@click.argument("data")
@opt.setting_options(*PLANNED)
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

    given: dict[str, Any] = {k: options[k] for k in PLANNED if options[k] is not None}
    with opt.session(options) as client, opened_data(data, options, client) as dataset:
        learner = "none" if dataset.y is None else "auto"
        settings = Settings(test_size=None, learner=learner, **given)
        settled = settings.to_dict() | settle(settings, dataset, compares=False)
        given = {name: settled[name] for name in PLANNED} | {"steps": steps, "probe": probe}
        made = make_plan(dataset, persist=False, client=client, **given)
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
        given = {name: options[name] for name in TUNED if options[name] not in (None, (), False)}
        given = {"random_state": 0, "Cs": cs or None, "scoring": scoring} | given
        found = rf.tune(seen.X, seen.y, client=client, **given)
    more = {"accuracy": found.accuracy, "standardize": standard, "data": data}
    result = vars(found) | more
    _write_json(result, out, overwrite)
    show(result, _tuned_text(result), options["as_json"])


def _write_json(result: dict[str, Any], out: str | None, overwrite: bool) -> None:
    if out:
        with whole_file(out, overwrite=overwrite) as file:
            file.write(to_json(result) + "\n")


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
    places = [require_free(path, overwrite, data) for path in (out, plot) if path]
    if len({place.resolve() for place in places}) < len(places):
        raise click.UsageError("--out and --plot name the same file: give two.")
    with opt.session(options) as client, opened_data(data, options, client) as dataset:
        table, results = _measure(dataset, data, options, client)
    _write_json(results, out, overwrite)
    if plot:
        _draw(table, Path(plot))
    show(list(table), repr(table), options["as_json"])


def _measure(
    dataset: Any, path: str, options: dict[str, Any], client: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the comparison, and what a report is made from."""
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
        "settings": opt.reading_arguments(options) | used | {"standardize": standard},
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
    from rfcdask.pipeline.report.page import render

    data = read_results(Path(results))
    damage = f"{results} does not hold results as they were written"
    with faults_as(lambda why: ValueError(f"{damage} ({why}): give the results.json of a run.")):
        text = render(data)
    with whole_file(page, overwrite=overwrite) as file:
        file.write(text)
    note(f"{page}: {len(text.encode()) / 1000:,.0f} kB")
