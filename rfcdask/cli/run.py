"""``rfcdask run``: from data to a model and a report; ``rfcdask fit``: to the model alone."""

from __future__ import annotations

from typing import Any

import click

from rfcdask.cli import options as opt
from rfcdask.cli.errors import on_interrupt
from rfcdask.cli.files import (
    check_data,
    emit,
    is_store,
    note,
    require_free,
    show,
    to_json,
    unfinished,
)
from rfcdask.pipeline.settings import COMPARING, READING, STORING, Settings, describe

ALL = tuple(Settings.__dataclass_fields__)
WORK = ("scheduler", "threads", "ignore_plan")
FIT = tuple(name for name in ALL if name not in COMPARING)


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
    from rfcdask.pipeline import RunFolder, run_job

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
    emit(to_json(results) if as_json else _summary(results, folder))


def _check_source(source: str | None, options: dict[str, Any]) -> None:
    """Refuse options that would count for nothing."""
    if source is not None:
        if options["rows"] is not None:
            raise click.UsageError("--rows is for data that are made: leave it or PATH out.")
        check_data(source, options, *STORING)
        return
    of_files = (name for name in (*READING, *STORING) if name != "block_size")
    for name in of_files:
        if options[name] is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} tells how to read a file: give PATH."
            )


def _summary(results: dict[str, Any], folder: Any) -> str:
    from rfcdask.pipeline.report.scores import name_of

    model, other, name = results["model"], results["linear"], "a linear model"
    if "set_aside" in model:  # the linear model was better
        other, name = model["set_aside"], name_of(model["set_aside"])
    advice = results["recommendation"]
    return "\n".join(
        [
            *(f"Warning: {said}" for said in results.get("warnings") or ()),
            f"{advice['text']} {advice['reason']}",
            f"Model: {_good(model, other, name, results['data']['test_rows'])}; saved in "
            f"{folder.model}",
            f"Report: {folder.report}",
        ]
    )


def _good(model: dict[str, Any], other: dict[str, Any], name: str, rows: int) -> str:
    """Say how good the model is that was saved, and the other one."""
    kind = "linear on the columns, " if model["method"] == "none" else ""
    if model["accuracy"] is None:
        mine, others = model["metrics"], other["metrics"]
        return (
            f"{kind}R2 {mine['r2']:.4f} on {rows:,} held-out rows, mean absolute error "
            f"{mine['mean_absolute_error']:.4g}, against {others['r2']:.4f} and "
            f"{others['mean_absolute_error']:.4g} for {name}"
        )
    return (
        f"{kind}{model['accuracy']:.2%} of {rows:,} held-out rows right, against "
        f"{other['accuracy']:.2%} for {name}"
    )


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
    from rfcdask.pipeline import fit_model

    with opt.progress_on_stderr():
        result = fit_model(
            data,
            model,
            settings=settings,
            overwrite=overwrite,
            say=note,
            **{name: options[name] for name in WORK},
        )
    show(result, _text(result), as_json)


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


def _text(result: dict[str, Any]) -> str:
    parts = f"{result['n_components']} {result['map']} features, {result['learner']}"
    if result["map"] == "none":
        parts = f"{result['learner']} on {result['columns']} columns"
    lines = [f"Warning: {said}" for said in result.get("warnings") or ()]
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
