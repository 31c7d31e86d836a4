"""Options that commands share, and where the work is done.

Options are called as the parameters are in Python, with dashes: ``n_rows=100`` is ``--n-rows 100``,
``label=False`` is ``--no-label``. So what a message of the package names can be typed. Those that
are settings of :mod:`rfcdask.pipeline.settings` are made from there. A command's file imports only
click and its like at its head, and the rest of rfcdask inside the function, after the arguments
have been checked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from rfcdask.persist.untrusted import read_json
from rfcdask.pipeline.settings import (
    READING,
    Kind,
    Settings,
    SettingsError,
    about,
    default_of,
    from_pairs,
    from_text,
    from_toml,
    kind_of,
    list_of,
    show,
)

Decorator = Callable[[Any], Any]
RENAMED = {
    "--candidates": "--n-candidates",
    "--components": "--n-components",
    "--drop-nan": "--nan drop",
    "--from": "--source",
    "--map": "--method",
    "--method": "--methods",
    "--no-labels": "--no-label",
    "--sample-rows": "--n-rows",
    "--seed": "--random-state",
    "--step": "--steps",
    "--test-rows": "--n-test",
    "--train-rows": "--n-rows",
}
"""Options by the names they had, where a command does not have them under these any more."""
_FLAGS = {"header", "zero_based", "shuffle", "sparse", "standardize"}
_LISTS = {"label", "sizes", "methods"}


def all_of(*options: Decorator) -> Decorator:
    """Return one decorator for several options, listed in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def count_option(name: str, default: int | None, text: str, *, least: int = 1) -> Decorator:
    """Return an option for a whole number."""
    return click.option(
        name,
        type=click.IntRange(min=least),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=text,
    )


def list_option(
    name: str, kind: Kind, text: str, default: tuple[Any, ...] = (), **more: Any
) -> Decorator:
    """Return an option for several values: with commas between, or given again."""

    def read(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Any:
        try:
            return tuple(list_of(kind).read(",".join(value))) if value else default
        except (ValueError, TypeError, OverflowError):
            raise click.BadParameter(f"{','.join(value)!r} must be {kind.takes}.") from None

    shown = f"{text}  [default: {','.join(map(str, default))}]" if default else text
    return click.option(name, multiple=True, callback=read, help=shown, **more)


class SettingType(click.ParamType):  # type: ignore[type-arg]  # generic only in new versions
    """What a setting takes, in its own words."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of the setting."""
        if self.name == "label":  # any name may be that of a column, also none and true
            return int(value) if re.fullmatch("-?[0-9]+", value) else value
        if self.name == "delimiter":  # may be a space or a tab
            return value
        try:
            return from_text(self.name, value)
        except SettingsError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Offer the words that the setting takes."""
        words = kind_of(self.name).choices
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def setting_option(name: str, default: Any = ...) -> Decorator:
    """Return the option of a setting; its value is None unless it is given."""
    standard = default_of(name) if default is ... else default
    text = about(name)
    text = f"{text[0].upper()}{text[1:]}."
    if standard is not None:
        text += f"  [default: {show(standard)}]"
    option = f"--{name.replace('_', '-')}"
    if name in _FLAGS:
        other = "--one-based" if name == "zero_based" else f"--no-{option[2:]}"
        return click.option(f"{option}/{other}", default=None, help=text)
    kind = SettingType(name)
    if name not in _LISTS:
        return click.option(option, name, type=kind, metavar=_metavar(name), help=text)

    def join(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Any:
        if name == "label":  # several targets; a name may have a comma in it
            found = [kind.convert(one, param, ctx) for one in value]
            return (found if len(found) > 1 else found[0]) if found else None
        return kind.convert(",".join(value), param, ctx) if value else None

    return click.option(option, metavar=_metavar(name), multiple=True, callback=join, help=text)


def _metavar(name: str) -> str:
    takes = kind_of(name).takes
    known = {"one of": "WORD", "a whole": "N", "a number": "NUMBER", "whole numbers": "N,N"}
    return next((short for begin, short in known.items() if takes.startswith(begin)), name.upper())


def setting_options(*names: str, **defaults: Any) -> Decorator:
    """Return the options of some settings; `defaults` are those of other functions."""
    shown = {name: defaults.get(name, ...) for name in (*names, *defaults)}
    return all_of(*(setting_option(name, default) for name, default in shown.items()))


no_label_option = click.option("--no-label", is_flag=True, help="The rows have no labels.")
file_options = all_of(setting_options(*READING), no_label_option)
"""What a file may need to be read."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def overwrite_option(what: str) -> Decorator:
    """Return ``--overwrite``."""
    return click.option("--overwrite", is_flag=True, help=f"Replace {what} that is there.")


def reading_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of :data:`file_options` as arguments of ``rfcdask.ingest``."""
    given = {name: options[name] for name in READING if options[name] is not None}
    return given | ({"label": False} if options["no_label"] else {})


def _read_tuned(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Read what ``rfcdask tune --out`` wrote."""
    if value is None:
        return {}
    try:
        found = read_json(Path(value))
        names = ("kernel", "gamma", "C", "label_weight", "standardize")
        return {name: found[name] for name in names if found[name] is not None}
    except OSError as error:
        raise click.BadParameter(f"{value} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise click.BadParameter(f"{value} was not written by 'rfcdask tune --out'.") from None


pipeline_options = all_of(
    no_label_option,
    click.option("--config", metavar="FILE", help="TOML file with settings."),
    click.option(
        "--tuned",
        callback=_read_tuned,
        metavar="FILE",
        help="Take kernel, gamma, penalty and label weight from 'rfcdask tune --out FILE'.",
    ),
    click.option(
        "--set",
        "pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="One setting, such as sizes=100,300; may be given again. Options count more.",
    ),
    click.option("--ignore-plan", is_flag=True, help="Begin even if it will not fit the memory."),
)
"""Beside the settings themselves, what ``run`` and ``fit`` take."""


def typed_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given as pairs or as options."""
    source = click.get_current_context().get_parameter_source
    default = click.core.ParameterSource.DEFAULT  # what is typed as none is None, and counts
    names = [name for name in Settings.__dataclass_fields__ if name in options]
    given = {name: options[name] for name in names if source(name) is not default}
    return from_pairs(options["pairs"]) | given


def given_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given, in a file, by tuning, as pairs or as options."""
    config: dict[str, Any] = from_toml(options["config"]) if options["config"] else {}
    typed = typed_settings(options)
    tuned, asked = dict(options["tuned"]), config | typed
    if asked.get("alpha", "auto") != "auto" or asked.get("learner") == "ridge":
        tuned.pop("C", None)  # a penalty that is given counts more, and that of ridge is another
    found = config | tuned | typed
    if options["no_label"]:
        found["label"] = False
    if options["label_weight"] is not None:  # asks for the method that has one
        method = found.setdefault("method", "compressed-labels")
        if method not in ("auto", "compressed-labels"):
            raise click.UsageError("--label-weight is for --method compressed-labels.")
    return found


def _remember(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[f"rfcdask.{param.name}"] = value


_FLAG: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True}
output_options = all_of(
    click.option("-q", "--quiet", callback=_remember, help="No progress and no remarks.", **_FLAG),
    click.option("--debug", callback=_remember, help="Show the traceback of an error.", **_FLAG),
)
"""They take effect by themselves."""


def scheduler_options(default: str) -> Decorator:
    """Return ``--scheduler`` and ``--threads``, passed on as `scheduler` and `threads`."""
    return all_of(
        click.option(
            "--scheduler",
            metavar="ADDRESS|FILE",
            help="Dask scheduler to work on: tcp://... or tls://..., a scheduler file, 'local' for "
            "a cluster of processes here, or 'threads'.  [default: DASK_SCHEDULER_ADDRESS if set, "
            f"else {default}]",
        ),
        count_option("--threads", None, "Threads to use on this machine.  [default: one a core]"),
    )


work_options = all_of(scheduler_options("threads"), json_option, output_options)


@contextmanager
def session(options: dict[str, Any]) -> Iterator[Any]:
    """Connect to where the options say and set up progress; yields a client or None."""
    from rfcdask.execution.cluster import chosen_scheduler, connect, share_threads

    where = chosen_scheduler(options["scheduler"], "threads")
    size = share_threads(where, options["threads"])
    with progress_on_stderr(), connect(where, **size) as client:
        yield client


@contextmanager
def progress_on_stderr() -> Iterator[None]:
    """Show bars on a terminal, lines in a log, nothing with ``--quiet``."""
    from rfcdask.execution.configuration import with_progress

    style = "off" if is_quiet() else "auto" if sys.stderr.isatty() else "plain"
    with with_progress(style):
        yield


def is_quiet() -> bool:
    """Tell whether ``--quiet`` was given."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get("rfcdask.quiet"))
