"""A click group that imports a command only when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from rfcdask.cli.errors import reported

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "All in one": {
        "run": ("rfcdask.cli.run:run", "From data to a model and a report, in one go."),
    },
    "Data": {
        "ingest": ("rfcdask.cli.ingest:ingest", "Write files to a store of lazy blocks."),
        "fetch": ("rfcdask.cli.fetch:fetch", "Download a known data set into a store."),
        "synthesize": ("rfcdask.cli.synthesize:synthesize", "Make data of any size."),
        "info": ("rfcdask.cli.info:info", "Say what a store or a saved model holds."),
    },
    "Models": {
        "plan": ("rfcdask.cli.plan:plan", "Say what a fit will cost, and whether it fits."),
        "tune": ("rfcdask.cli.tune:tune", "Choose gamma and the penalty on a sample."),
        "fit": ("rfcdask.cli.fit:fit", "Choose features and train a model on them."),
        "transform": ("rfcdask.cli.transform:transform", "Write the features of all rows."),
        "predict": ("rfcdask.cli.predict:predict", "Write the predicted labels of all rows."),
        "score": ("rfcdask.cli.score:score", "Measure a model on labelled rows."),
    },
    "Results": {
        "compare": ("rfcdask.cli.compare:compare", "Measure feature maps side by side."),
        "report": ("rfcdask.cli.report:report", "Write results as one HTML page."),
    },
}
"""Where each command lives and its line in the list, which must not import it."""

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
                module, _, attribute = section[name][0].partition(":")
                command: click.Command = getattr(import_module(module), attribute)
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
            return super().invoke(ctx)


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
