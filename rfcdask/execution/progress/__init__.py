"""Progress of long work behind one small protocol.

Everything that may take more than two seconds reports to a :class:`Reporter`. What is drawn is the
reporter's business: a bar on a terminal or in a notebook, plain lines in a log, nothing at all.
The choice is ``rfcdask.progress`` in Dask's configuration: ``auto`` (a bar where somebody can see
it, else nothing), ``plain`` (lines on stderr) or ``off``.
"""

from rfcdask.execution.progress.choose import track
from rfcdask.execution.progress.lines import LineReporter
from rfcdask.execution.progress.reporter import Reporter, ReporterFactory, SilentReporter

__all__ = ["LineReporter", "Reporter", "ReporterFactory", "SilentReporter", "track"]
