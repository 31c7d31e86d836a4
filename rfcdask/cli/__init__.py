"""The command line: ``rfcdask``, ``python -m rfcdask`` and ``dask rfc``.

Nothing heavy is imported here or at the head of a command's file, so that ``--help``, shell
completion and ``dask --help`` stay fast.
"""

from __future__ import annotations

from rfcdask.cli.group import COMPLETION, Commands

_ABOUT = """Kernel machines on data larger than memory.

\b
First:           rfcdask run
On your data:    rfcdask run data.csv
Step by step:    rfcdask ingest data.csv data.zarr
                 rfcdask fit data.zarr model
                 rfcdask predict model new.csv predicted.csv

Every command reads paths and writes paths. Data go to stdout, progress and errors to stderr.
What is seen under its final name is complete; a command that was stopped goes on when it is called
again.
"""

main = Commands(name="rfcdask", help=_ABOUT, epilog=COMPLETION)
"""The group behind the script ``rfcdask``."""
rfc = Commands(name="rfc", help=_ABOUT, epilog=COMPLETION)
"""The same under ``dask rfc``."""
