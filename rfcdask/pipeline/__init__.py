"""A whole run, from data to report: phases with products on disk, so that any of them can fail."""

from rfcdask.pipeline.folder import OtherRunError, RunExistsError, RunFolder, UnfinishedRunError
from rfcdask.pipeline.results import comparable
from rfcdask.pipeline.run import run_job
from rfcdask.pipeline.settings import Settings, SettingsError

__all__ = [
    "OtherRunError",
    "RunExistsError",
    "RunFolder",
    "Settings",
    "SettingsError",
    "UnfinishedRunError",
    "comparable",
    "run_job",
]
