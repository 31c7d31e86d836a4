"""The command line: ``rfcdask``, ``python -m rfcdask`` and ``dask rfc``.

Nothing heavy is imported here or at the head of a command's file, so that ``--help``, shell
completion and ``dask --help`` stay fast: a command is imported when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from rfcdask.cli.errors import reported

_ABOUT = """Kernel machines on data larger than memory.

\b
First:           rfcdask run
On your data:    rfcdask run data.csv
Step by step:    rfcdask ingest data.csv data.zarr
                 rfcdask fit data.zarr model
                 rfcdask predict model new.csv predicted.csv

Every command reads paths and writes paths. Data go to stdout, progress and errors to stderr.
What is seen under its final name is complete; a command that was stopped goes on when it is called
again. Messages name parameters as Python does: n_rows=100 is --n-rows 100 here, label=False is
--no-label.
"""
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "All in one": {
        "run": ("run", "From data to a model and a report, in one go."),
    },
    "Data": {
        "ingest": ("stores", "Write files to a store of lazy blocks."),
        "fetch": ("stores", "Download a known data set into a store."),
        "synthesize": ("stores", "Make data of any size."),
        "info": ("stores", "Say what a store or a saved model holds."),
    },
    "Models": {
        "plan": ("evaluate", "Say what a fit will cost, and whether it fits."),
        "tune": ("evaluate", "Choose gamma and the penalty on a sample."),
        "fit": ("run", "Choose features and train a model on them."),
        "transform": ("predict", "Write the features of all rows."),
        "predict": ("predict", "Write the predicted labels of all rows."),
        "score": ("predict", "Measure a model on labelled rows."),
    },
    "Results": {
        "compare": ("evaluate", "Measure feature maps side by side."),
        "report": ("evaluate", "Write results as one HTML page."),
    },
}
"""The file of each command and its line in the list, which must not import it."""

EXIT_CODES = {
    0: "done",
    1: "the work failed",
    2: "bad usage or bad input",
    3: "refused: the plan does not fit the memory",
    4: "unfinished: an input or output was interrupted and can be resumed",
    130: "interrupted by Ctrl-C (143 by SIGTERM, 141 when stdout lost its reader)",
}
COMPLETION = (
    'Shell completion: add  eval "$(_RFCDASK_COMPLETE=bash_source rfcdask)"  to ~/.bashrc '
    "(zsh_source, fish_source likewise)."
)


class Commands(click.Group):
    """The commands of :data:`SECTIONS`, in that order."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(context_settings={"help_option_names": ["-h", "--help"]}, **settings)
        self.params.append(_version_option())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the workflow."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command by name."""
        for section in SECTIONS.values():
            if name in section:
                module = import_module(f"rfcdask.cli.{section[name][0]}")
                command: click.Command = getattr(module, name)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or name the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{meant}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, and the exit codes."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in section.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in EXIT_CODES.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what goes wrong becomes one sentence and an exit code."""
        with reported(ctx):
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                from rfcdask.cli.options import RENAMED

                if error.option_name not in RENAMED:
                    raise
                said = f"{error.option_name} is called {RENAMED[error.option_name]} now."
                raise click.UsageError(said, error.ctx) from None


def _version_option() -> click.Parameter:
    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from rfcdask._version import __version__

            click.echo(f"rfcdask {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the version and exit.",
    )


main = Commands(name="rfcdask", help=_ABOUT, epilog=COMPLETION)
"""The group behind the script ``rfcdask``."""
rfc = Commands(name="rfc", help=_ABOUT, epilog=COMPLETION)
"""The same under ``dask rfc``."""
