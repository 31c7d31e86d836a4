"""``rfcdask report``: results as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from rfcdask.cli import common
from rfcdask.cli.outputs import require_free, whole_file
from rfcdask.persist.untrusted import faults_as, read_json

FORMAT = 1


@click.command()
@click.argument("results")
@click.argument("page")
@click.option("--overwrite", is_flag=True, help="Replace a page that is there.")
@common.output_options
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
    common.note(f"{page}: {len(text.encode()) / 1000:,.0f} kB")


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
    if number > FORMAT:
        raise ValueError(
            f"{path} has format {number}, this version reads {FORMAT}: update rfcdask."
        )
    return dict(found)
