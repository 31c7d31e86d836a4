"""Feature maps and learners by the names they have on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rfcdask.features.methods import METHODS

Function = TypeVar("Function", bound=Callable[..., Any])

MAPS = tuple(METHODS)
KERNELS = ("rbf", "laplacian", "cauchy", "matern12", "matern32", "matern52")


class NumberOr(click.ParamType):  # type: ignore[type-arg]  # generic only in new versions
    """A positive number, or one of some words."""

    def __init__(self, *words: str, least: float = 0.0) -> None:
        self.words, self.least = words, least
        self.name = "|".join(("number", *words))

    def get_metavar(self, param: click.Parameter, ctx: Any = None) -> str:
        """Return what stands for the value in the help."""
        return "|".join(("NUMBER", *self.words))

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a float or one of the words."""
        if value in self.words:
            return value
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor one of {', '.join(self.words)}.")
        if not self.least < number < float("inf"):
            self.fail(f"{value!r} must be a finite number above {self.least:g}.")
        return number


def kernel_options(function: Function) -> Function:
    """Add ``--kernel`` and ``--gamma``."""
    function = click.option(
        "--gamma",
        type=NumberOr("scale", "median"),
        default="scale",
        show_default=True,
        help="Width of the kernel.",
    )(function)
    return click.option(
        "--kernel", type=click.Choice(KERNELS), default="rbf", show_default=True, help="Kernel."
    )(function)


def size_options(function: Function) -> Function:
    """Add ``--components``, ``--candidates`` and ``--sample-rows``."""
    for name, default, text in (
        ("--sample-rows", 5000, "Rows on which features are chosen."),
        ("--candidates", 5000, "Random features to choose from."),
        ("--components", 500, "Features to keep."),
    ):
        function = click.option(
            name,
            type=click.IntRange(min=1),
            default=default,
            show_default=True,
            metavar="N",
            help=text,
        )(function)
    return function


def standardize_option(function: Function) -> Function:
    """Add ``--standardize/--no-standardize``; None leaves it to the data."""
    return click.option(
        "--standardize/--no-standardize",
        default=None,
        help="Mean 0 and variance 1 in every column.  [default: unless all values lie in -1..1]",
    )(function)


def make_learner(settings: dict[str, Any], task: str | None, n_rows: int, seed: int) -> Any:
    """Return an unfitted linear model for classes or for numbers."""
    import rfcdask as rf

    numbers = task == "regression"
    alpha = settings["alpha"]
    if settings["learner"] == "ridge":
        kind = rf.Ridge if numbers else rf.RidgeClassifier
        return kind(1.0 if alpha == "auto" else alpha)
    if alpha == "auto" and settings.get("C") is not None:
        alpha = 1.0 / (settings["C"] * n_rows)
    common = {"alpha": alpha, "epochs": settings["epochs"], "random_state": seed}
    if numbers:
        return rf.SGDRegressor(**common)
    return rf.SGDClassifier(settings["loss"], **common)
