"""``rfcdask fit``: a feature map chosen for the data and a linear model on its features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rfcdask.cli import common
from rfcdask.cli.fitting import Fitting
from rfcdask.cli.inputs import TASKS, check_data, file_options
from rfcdask.cli.models import MAPS, NumberOr, kernel_options, size_options, standardize_option
from rfcdask.cli.outputs import require_free
from rfcdask.persist.untrusted import read_json


def tuned_option(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Read what ``rfcdask tune --out`` wrote."""
    if value is None:
        return None
    try:
        found = read_json(Path(value))
        return {key: found[key] for key in ("kernel", "gamma", "C", "label_weight", "standardize")}
    except OSError as error:
        raise click.BadParameter(f"{value} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise click.BadParameter(f"{value} was not written by 'rfcdask tune --out'.") from None


@click.command()
@click.argument("data")
@click.argument("model")
@click.option(
    "--map",
    "map_name",
    type=click.Choice([*MAPS, "none"]),
    default="compressed",
    show_default=True,
    help="Feature map; none trains on the columns themselves.",
)
@size_options
@kernel_options
@click.option(
    "--label-weight",
    type=click.FloatRange(min=0),
    metavar="W",
    help="How much compressed-labels looks at the labels.  [default: 0.3]",
)
@standardize_option
@click.option(
    "--learner",
    type=click.Choice(["sgd", "ridge", "none"]),
    default="sgd",
    show_default=True,
    help="Linear model; none writes the feature map alone.",
)
@click.option(
    "--loss",
    type=click.Choice(["hinge", "squared_hinge", "log_loss"]),
    default="hinge",
    show_default=True,
    help="Loss of sgd; log_loss gives probabilities.",
)
@click.option("--alpha", type=NumberOr("auto"), default="auto", show_default=True, help="Penalty.")
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Passes of sgd over the rows.",
)
@click.option(
    "--tuned",
    callback=tuned_option,
    metavar="FILE",
    help="Take kernel, gamma, penalty and label weight from 'rfcdask tune --out FILE'; options "
    "that are given count more.",
)
@click.option(
    "--test-size",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="F",
    help="Hold out this share of the rows and score on it.",
)
@click.option(
    "--task",
    type=click.Choice(TASKS),
    default="auto",
    show_default=True,
    help="What the labels of a file mean.",
)
@click.option("--ignore-plan", is_flag=True, help="Begin even if it will not fit the memory.")
@click.option("--overwrite", is_flag=True, help="Replace a model that is there.")
@file_options
@common.seed_option
@common.scheduler_options
@common.json_option
@common.output_options
def fit(
    data: str,
    model: str,
    tuned: dict[str, Any] | None,
    scheduler: str | None,
    threads: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Choose features for DATA, train on them, and write the folder MODEL.

    DATA is a store, or a file that is read into one first. MODEL holds all that predicting needs:
    column means and deviations, the features, the coefficients and the names of the classes.

    What will not fit the memory is refused (exit code 3). Interrupted, it goes on when it is
    called again with the same arguments.

    \b
    Examples:
      rfcdask fit data.zarr model --components 50
      rfcdask fit data.csv model2 --label target --map compressed-labels --test-size 0.2
      rfcdask fit data.zarr model3 --tuned tune.json --learner ridge
    """
    if settings["map_name"] == "none" and settings["learner"] == "none":
        raise click.UsageError("--map none with --learner none leaves nothing to fit.")
    if settings["label_weight"] is not None and settings["map_name"] != "compressed-labels":
        raise click.UsageError("--label-weight is for --map compressed-labels.")
    target = require_free(model, settings["overwrite"])
    if target.exists() and not (target / "model.json").is_file():
        raise FileExistsError(f"{model} is no saved model: choose another path.")
    check_data(data, settings)
    if tuned:
        _take_over(click.get_current_context(), settings, tuned)
    with common.session(scheduler, threads) as client:
        result = Fitting(data, model, settings, client).run()
    common.show(result, _text(result), as_json)


def _take_over(ctx: click.Context, settings: dict[str, Any], tuned: dict[str, Any]) -> None:
    """Use tuned values for the options that were not given."""
    default = click.core.ParameterSource.DEFAULT
    for name in ("kernel", "gamma", "label_weight", "standardize"):
        if ctx.get_parameter_source(name) is default and tuned[name] is not None:
            settings[name] = tuned[name]
    if ctx.get_parameter_source("alpha") is default:
        settings["C"] = tuned["C"]


def _text(result: dict[str, Any]) -> str:
    lines = [f"{result['model']}: {result['map']} features, {result['learner']}"]
    if result["map"] == "none":
        lines = [f"{result['model']}: {result['learner']} on {result['columns']} columns"]
    elif result["n_components"]:
        lines[0] = f"{result['model']}: {result['n_components']} {lines[0].partition(': ')[2]}"
    if result.get("heldout_error") is not None:
        lines.append(f"kernel error on held-out pairs: {result['heldout_error']:.4g}")
    lines.append(f"trained on {result['rows']:,} rows in {result['seconds']:.1f} s")
    if result.get("score") is not None:
        lines.append(
            f"{result['metric']} on {result['test_rows']:,} held-out rows: {result['score']:.4f}"
        )
    return "\n".join(lines)
